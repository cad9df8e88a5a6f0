"""Zone files in TOML (docs/files.md has an annotated one).

Reads zone, tariff, policy, laws of readings, occupancy models and the [learned] table: where models
come from and what they may shape. A model fitted to the homes' own readings without noise reveals
something about them in every number it shapes: a scale, an estimate, a forecast, an imputed
reading. Times HH:MM become steps of a day, periods with probabilities become transition matrices.
Houses without laws use those of a load shape, the public one or that of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args
from zoneinfo import ZoneInfo

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    TypeAdapter,
    model_validator,
)

from hushgrid._numbers import Floats, Int32s, Ints, is_real
from hushgrid.errors import FileError, HushgridError, PolicyError
from hushgrid.files._tables import (
    Bool,
    Context,
    FilePath,
    FileTable,
    Info,
    Line,
    Mistakes,
    PlainTopic,
    Positive,
    Probability,
    Text,
    Whole,
    adapter,
    build,
    converted,
    duration,
    fix,
    keys_of,
    mistake,
    read,
)
from hushgrid.files.results import load_model, read_text
from hushgrid.files.shape_file import load_shape
from hushgrid.files.toml import TomlFile, display, instant_of, seconds_of
from hushgrid.mechanism.policy import (
    Blocks,
    Even,
    PerStep,
    Policy,
    Schedule,
    per_step,
)
from hushgrid.model.consumption import MONTHS, Consumption, Elasticity
from hushgrid.model.laws import FAMILIES, ClampAt, Histogram, Law, Mixture, Net
from hushgrid.model.occupancy import Calendar, OccupancyModel, check_models
from hushgrid.model.shape import LoadShape
from hushgrid.model.zone import MAX_BOUND, Covariate, Scenario, Tariff, Zone

SECONDS = 900  # default length of a step
ANY = 60  # steps that begin at every HH:MM: where a file's own are not known
_DAY = 86_400
MOST_HOUSES = 10_000_000  # of a service's zone
MOST_BOUND = 1_000_000  # [Wh] of an interval: a law has a number for each Wh


def step_seconds(value: Any) -> int | None:
    """Length of a step, as zone and service files give it.

    Args:
        value: Seconds, or an ISO 8601 duration.

    Returns:
        Seconds; None where they do not divide a day.

    >>> step_seconds("PT1H"), step_seconds(1800), step_seconds("PT7M")
    (3600, 1800, None)
    """
    seconds = seconds_of(value)
    return seconds if seconds and _DAY % seconds == 0 else None


# ---- times

_INSTANT = "give a date-time in UTC such as 2026-01-01T00:00:00Z"
_INTERVAL = "give whole seconds that divide a day, such as 'PT15M' or 1800"
Interval = Annotated[int, converted(step_seconds, _INTERVAL)]
_Starts = list[tuple[int, int]]  # (step, number of what begins)
_Entry = TypeVar("_Entry", "Period", "LawKeys")


@dataclass(frozen=True, slots=True)
class StepKeys(FileTable):
    """The [service] table as a zone file reads it: the length of a step [s]."""

    unread: ClassVar[frozenset[str]] = frozenset(
        {
            *("mode", "begins", "time_zone", "meter_interval", "grace", "retention", "currency"),
            *("fallback_rate", "accept_error", "accept_error_set_by", "early_limit"),
            *("clock_limit", "key", "zones", "standby"),
        }
    )

    interval: Interval = SECONDS


def _step_of_day(value: Any, info: Info) -> int:
    """Step of the day that starts at HH:MM."""
    seconds = info.context.seconds
    with suppress(ValueError):
        time = datetime.strptime(str(value), "%H:%M")
        second = time.hour * 3600 + time.minute * 60
        if second % seconds == 0:
            return int(second // seconds)
    fixed = "give a quarter hour such as '07:15'"
    if seconds != SECONDS:
        fixed = f"give a time such as '07:00' at which a step of {seconds} s begins"
    raise mistake(fixed, "fix")


StepOfDay = Annotated[int, BeforeValidator(_step_of_day)]


def _check_starts(entries: list[_Entry]) -> list[_Entry]:
    """Entries that begin at different times."""
    starts = [entry.from_ for entry in entries]
    for i, start in enumerate(starts):
        if start in starts[:i]:
            text = "makes two entries from the same time; give each its own."
            Mistakes().add(text, i, "from").check()
    return entries


Month = Annotated[int, Field(ge=1, le=MONTHS)]
_MONTHS = "give months from 1 to 12, such as [11, 12, 1, 2]"


def _laws_of_month(laws: Sequence[LawKeys], month: int) -> list[int]:
    """Numbers of the laws that hold in a month: those that name it, else those that name none."""
    numbers = [i for i, law in enumerate(laws) if month in law.months]
    return numbers or [i for i, law in enumerate(laws) if not law.months]


def _all_year(laws: list[LawKeys]) -> list[LawKeys]:
    """Laws of which every month has one, at different times of its day."""
    if not any(law.months for law in laws):
        return _check_starts(laws)
    for month in range(1, MONTHS + 1):
        numbers, starts = _laws_of_month(laws, month), list[int]()
        if not numbers:
            raise mistake(f"has no law for month {month}; give it one, or one law without months.")
        for i in numbers:
            if laws[i].from_ in starts:
                text = f"gives month {month} two laws from the same time; give it to one of them."
                Mistakes().add(text, i, "months" if laws[i].months else "from").check()
            starts.append(laws[i].from_)
    return laws


def _from_midnight(starts: Iterable[tuple[int, int]]) -> _Starts:
    """(step, number) in order; the last one of the day also holds before the first."""
    ordered = sorted(starts)
    return ordered if ordered[0][0] == 0 else [(0, ordered[-1][1]), *ordered]


# ---- origin of the models

Origin = Literal["public", "pooled", "private"]
_ORIGINS = f"give one of {', '.join(get_args(Origin))}"
LEAST_POOLED = 15  # homes
PRIVATE = (  # why a service refuses what homes' own readings shaped without noise
    "all that they shape would reveal something about these homes; give models of a survey, or"
    " pooled ones (hushgrid learn --pool-budget)"
)


@dataclass(frozen=True, slots=True)
class Provenance(FileTable):
    """Origin of the models: the [learned] table.

    Attributes:
        origin: "public" (a survey), "pooled" (noisy sums over many homes) or "private".
        epsilon: What the models cost every home.
        homes: Number of homes whose meters were listed or had readings.
        digest: Digest of the model; empty where it is private.
        first_reading: When the first reading that it was made of begins [UTC s].
        last_reading: When the last one ends [UTC s].
    """

    unread: ClassVar[frozenset[str]] = frozenset(
        {"by", "law", "prior", "days", "months", "seasons", "bound_by"}
    )

    origin: Annotated[Origin, fix(_ORIGINS)] = "public"
    epsilon: Annotated[float, fix("give 0 or more", ge=0)] = 0.0
    homes: Annotated[int, fix("give a whole number", ge=0)] = 0
    digest: Annotated[str, BeforeValidator(str)] = ""
    first_reading: Annotated[int, converted(instant_of, _INSTANT)] = 0
    last_reading: Annotated[int, converted(instant_of, _INSTANT)] = 0

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """A table says where the models come from, and of which time."""
        if "provenance" not in table:
            yield "provenance", "is not set; give it a value."

    @model_validator(mode="after")
    def _pooled(self) -> Provenance:
        if self.origin == "pooled" and (self.homes < LEAST_POOLED or not self.epsilon > 0):
            text = (
                f"is 'pooled' with {self.homes} homes and epsilon {self.epsilon:g}; a pooled model"
                f" has at least {LEAST_POOLED} homes and noise worth an epsilon above 0."
            )
            Mistakes().add(text, "provenance").check()
        if self.epsilon > 0 and not 0 < self.first_reading < self.last_reading:
            key = "last_reading" if self.first_reading > 0 else "first_reading"
            text = (
                "is not set, or the first is not before the last; give when the readings of the"
                " models begin and end, which cost every home epsilon."
            )
            Mistakes().add(text, key).check()
        return self

    @property
    def private(self) -> bool:
        """True if the model is for experiments alone: no service runs on it."""
        return self.origin == "private"


# ---- houses and models


def _law(table: Any, info: Info) -> LawKeys:
    """A law of one family, a mixture or a net law, up to the bound of the context.

    Where the house exports it is the law of the offset reading: the file gives net Wh.
    """
    context, mistakes = info.context, Mistakes()
    keys: Any = None
    law: Any = None
    if not isinstance(table, Mapping) or "law" not in table:  # which may be misspelt
        table = mistakes.with_known_keys(table, _LAW_KEYS)
    if table.get("law") == "mixture":
        with mistakes.within():
            keys = adapter(MixtureKeys).validate_python(table, context=context)
        with mistakes.within("parts"):
            law = keys and Mixture(
                [part.law for part in keys.parts], [part.share for part in keys.parts]
            )
    elif table.get("law") == "net":
        with mistakes.within():
            keys = adapter(NetKeys).validate_python(table, context=context)
            law = Net(keys.consumption.law, keys.solar.law, context.export)
    else:
        law_keys = {key: table[key] for key in keys_of(LawKeys) if key in table}
        with mistakes.within():
            keys = adapter(LawKeys).validate_python(law_keys, context=context)
        if family := FAMILIES.get(str(table.get("law"))):
            top = {"top": context.bound} if "top" in keys_of(family) else {}
            family_table = _offset(top | table, context.export)
            with mistakes.within():
                law = build(family, family_table, keys_of(LawKeys))
                if context.export and table["law"] not in _NET_FAMILIES:
                    law = Net(law, Histogram([1.0]), context.export)
    if law is not None and law.top > context.bound + context.export:
        top = law.top - context.export
        text = f"reaches {top} Wh but the bound is {context.bound} Wh; end it at the bound."
        mistakes.add(text, "top" if "top" in table else "weights")
    elif law is not None and context.service and context.bound <= MOST_BOUND:
        with mistakes.within():
            law.pmf.sum()
    mistakes.check()
    return replace(keys, law=law)  # type: ignore[no-any-return]


_NET_FAMILIES = ("normal", "bins")  # whose values may be below 0


def _offset(table: Mapping[str, Any], export: int) -> Mapping[str, Any]:
    """A law in net Wh as one in offset Wh; what is no number is left to those who check it."""
    if not export or table["law"] not in _NET_FAMILIES:
        return table
    moved = {k: table[k] + export for k in ("centre", "top") if is_real(table.get(k))}
    edges, weights = table.get("edges"), table.get("weights")
    if isinstance(edges, list) and isinstance(weights, list) and all(map(is_real, edges)):
        edges = [edge + export for edge in edges]
        low = bool(edges and edges[0] > 0)  # below the first edge there is nothing
        moved |= {"edges": [0] * low + edges, "weights": [0] * low + weights}
    return {**table, **moved}


def _with_share(part: LawKeys) -> LawKeys:
    if part.share is None:
        Mistakes().add("", "share", form="missing").check()
    return _at_all_times(part)


def _at_all_times(part: LawKeys) -> LawKeys:
    """A part of a law, which holds when the law does."""
    if part.months:
        Mistakes().add("is set in a part of a law; give it to the law itself.", "months").check()
    return part


_WORDS = (*FAMILIES, "mixture", "net")
_ONE_OF = f"give one of {', '.join(_WORDS)}"
_Law = Annotated[Any, PlainValidator(_law)]
_LAW: TypeAdapter[LawKeys] = TypeAdapter(_Law)
_LAWS: TypeAdapter[list[LawKeys]] = TypeAdapter(
    Annotated[list[_Law], AfterValidator(_all_year), fix("give a law", min_length=1)]
)


@dataclass(frozen=True, slots=True)
class LawKeys(FileTable):
    """Keys of a law in addition to those of its family.

    Attributes:
        law: The family, and then the law itself.
        from_: Step of the day from which it holds.
        share: Its share in a mixture.
        months: Months of the year in which it holds, from 1 to 12; none: those that no other law of
            its list names.
    """

    law: Annotated[Any, converted(lambda law: law if law in _WORDS else None, _ONE_OF)]
    from_: StepOfDay = 0
    share: Probability | None = None
    months: Annotated[tuple[Month, ...], fix(_MONTHS, min_length=1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureKeys(LawKeys):
    """Keys of a mixture.

    Attributes:
        parts: Laws, each with its share.
    """

    parts: Annotated[
        list[Annotated[_Law, AfterValidator(_with_share)]],
        fix("give at least one law with its share", min_length=1),
    ]


def _consumed(table: Any, info: Info) -> LawKeys:
    return _at_all_times(_LAW.validate_python(table, context=replace(info.context, export=0)))


def _generated(table: Any, info: Info) -> LawKeys:
    if not info.context.export:
        raise mistake("is set but the houses have no export limit; give them export [Wh].")
    context = replace(info.context, bound=info.context.export, export=0)
    return _at_all_times(_LAW.validate_python(table, context=context))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetKeys(LawKeys):
    """Keys of a net law.

    Attributes:
        consumption: Law of what a house consumes.
        solar: Law of what its panels generate.
    """

    consumption: Annotated[Any, PlainValidator(_consumed)]
    solar: Annotated[Any, PlainValidator(_generated)]


_LAW_KEYS = {key for kind in (MixtureKeys, NetKeys, *FAMILIES.values()) for key in keys_of(kind)}
_Export = Annotated[int, fix("give whole Wh, 0 or more, below 2^30", ge=0, lt=2**30)]
GROUP_KEYS = frozenset({"meters", "meters_file"})  # of [[houses]], read by a service alone
REGISTER_KEYS = frozenset({"export_meters", "export_meters_file"})  # likewise


def _few_enough(count: int, info: Info) -> int:
    if info.context.service and count > MOST_HOUSES:
        raise mistake(f"is {count}; give a zone at most {MOST_HOUSES} houses.")
    return count


def _small_enough(bound: int, info: Info) -> int:
    if info.context.service and bound > MOST_BOUND:
        raise mistake(f"is {bound}; give at most {MOST_BOUND} Wh an interval.")
    return bound


def _laws(content: Any, info: Info) -> list[Any]:
    """A law, or several that begin at different times, up to the bound of the group."""
    bound, export = info.data.get("bound", MAX_BOUND), info.data.get("export", 0)
    context = replace(info.context, bound=bound, export=export)
    if isinstance(content, list):
        return _LAWS.validate_python(content, context=context)
    return _all_year([_LAW.validate_python(content, context=context)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(FileTable):
    """A [[houses]] table.

    Attributes:
        count: Number of houses; as many as `meters` where that is set.
        bound: Most that each may read in a step [Wh], by its contract.
        export: Most that each may feed in during a step [Wh], by its contract.
        absent: A law, or a list of laws with `from` and `months`, of a reading while the house is
            empty; None: the load shape scaled to `policy.usual`.
        present: Laws while it is occupied; None where `absent` is.
        chain: Name of its chain in the models.
        provenance: Where the laws come from: who measured whom, when. A certificate shows it.
    """

    unread: ClassVar[frozenset[str]] = GROUP_KEYS | REGISTER_KEYS

    count: Annotated[Whole, AfterValidator(_few_enough)]
    bound: Annotated[Whole, AfterValidator(_small_enough)]
    export: Annotated[_Export, AfterValidator(_small_enough)] = 0
    absent: Annotated[list[LawKeys], PlainValidator(_laws)] | None = None
    present: Annotated[list[LawKeys], PlainValidator(_laws)] | None = None
    chain: Any = None
    provenance: Text = ""

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Laws come in pairs."""
        missing = [key for key in ("absent", "present") if key not in table]
        if len(missing) == 1:
            yield missing[0], "is not set; give laws for absent and present, or for neither."


@dataclass(frozen=True, slots=True)
class Period(FileTable):
    """Part of a day.

    Attributes:
        from_: Step of the day at which it begins.
        leave: Probability of leaving in a step.
        come: Probability of coming home in a step.
    """

    from_: StepOfDay
    leave: Probability
    come: Probability


Day = Annotated[
    list[Period], AfterValidator(_check_starts), fix("give a list of periods", min_length=1)
]


@dataclass(frozen=True, slots=True)
class Chain(FileTable):
    """A chain of an occupancy model.

    Attributes:
        home_at_start: Probability that a house is occupied at the start.
        periods: A day, or a weekday.
        weekend: A day of the weekend; None: as any other.
    """

    home_at_start: Probability
    periods: Day
    weekend: Day | None = None

    @property
    def certain(self) -> bool:
        """True if something in it is impossible."""
        chances = [self.home_at_start]
        for period in (*self.periods, *(self.weekend or ())):
            chances += [period.leave, period.come]
        return any(chance in (0, 1) for chance in chances)


def _declared(zeros: str, info: Info) -> str:
    if not zeros and any(chain.certain for chain in info.data.get("chains", {}).values()):
        raise mistake(
            "is not set but a chance is 0 or 1; move it inside (0, 1), or say who declares it"
            " impossible and why."
        )
    return zeros


@dataclass(frozen=True, slots=True)
class Chained(FileTable):
    """A [[models]] table with chains.

    Attributes:
        chains: By name.
        name: Name in messages; None: its place in the file.
        structural_zeros: Who declares a chance of 0 or 1 to be the truth, and why; without it such
            chances are refused.
        provenance: Where the model comes from; a certificate shows it.
    """

    chains: Annotated[dict[str, Chain], fix("give a table for each chain", min_length=1)]
    name: Any = None
    structural_zeros: Annotated[Text, AfterValidator(_declared), Field(validate_default=True)] = ""
    provenance: Text = ""


def _loaded(name: Any, info: Info) -> OccupancyModel:
    if not isinstance(name, str):
        raise mistake("give a text", "fix")
    try:
        return load_model(info.context.folder / name)
    except HushgridError as error:
        raise mistake(str(error), "whole") from None


@dataclass(frozen=True, slots=True)
class ModelFile(FileTable):
    """A [[models]] table that names a file.

    Attributes:
        file: The model.
        provenance: Where it comes from.
    """

    file: Annotated[Any, PlainValidator(_loaded), fix("give the path of a model file")]
    provenance: Text = ""


def _model(table: Any, info: Info) -> Any:
    is_file = isinstance(table, Mapping) and "file" in table
    return adapter(ModelFile if is_file else Chained).validate_python(table, context=info.context)


_SOURCES = ("file", "url", "topic")
_WEB = "give a URL such as 'https://weather.example/zurich.json'"
_LABEL = "give 1 to 64 letters, digits, dashes or underscores, beginning with a letter"


@dataclass(frozen=True, slots=True)
class PublicSeries(FileTable):
    """A [[covariates]] table: a public series that the estimate may use, and its source.

    Attributes:
        name: Its name in records.
        centre: A usual value; a missing one counts as this.
        scale: How far values usually are from it.
        vouched_by: Who says that it depends on no reading of the zone.
        file: CSV with the columns start_utc and value, or JSON of the same; read again when it
            changes.
        url: Address of the same over HTTP, asked every two minutes for at most 10 s; redirects are
            not followed. It may hold a key.
        topic: MQTT topic of `[mqtt]` with the same; no topic of its readings.
        max_age: How old a value may be when an interval starts [s]; a day for series of days.
        allow_private_address: Whether the address may be outside of the public internet.
    """

    name: Annotated[str, fix(_LABEL, pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    centre: Annotated[float, fix("give a number")]
    scale: Positive
    vouched_by: Line
    file: FilePath | None = None
    url: Annotated[str, fix(_WEB, "secret", pattern=r"^https?://[^\s/@]+(/\S*)?$")] | None = field(
        default=None, repr=False
    )  # may hold a key
    topic: PlainTopic | None = None
    max_age: Annotated[int, duration("PT3H", 60, 366 * _DAY)] = 10_800
    allow_private_address: Bool = False

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """One source."""
        sources = [key for key in _SOURCES if key in table]
        if len(sources) != 1:
            state = f"and {' and '.join(sources[1:])} are both set" if sources else "is not set"
            yield sources[0] if sources else "file", f"{state}; give one of {', '.join(_SOURCES)}."

    @property
    def terms(self) -> Covariate:
        """What of it the estimate depends on, and who vouches for it."""
        return Covariate(self.name, self.centre, self.scale, self.vouched_by)


def _name(name: str, info: Info) -> str:
    """A name is part of topics, paths and addresses of a service."""
    if info.context.service and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise mistake("give 1 to 64 letters, digits, dots, dashes or underscores", "fix")
    if not name:
        raise mistake("give a non-empty name", "fix")
    return name


def _shape(name: Any, info: Info) -> LoadShape:
    """The load shape of a file."""
    if not isinstance(name, str):
        raise mistake("give the path of a load shape", "fix")
    try:
        return load_shape(info.context.folder / name)
    except HushgridError as error:
        raise mistake(str(error), "whole") from None


@dataclass(frozen=True, slots=True)
class ZoneTable(FileTable):
    """The [zone] table.

    Attributes:
        id: Name of the zone.
        month: Month of the laws where days have no date; None: that of the service's `begins`, else
            January. A service follows the date.
        shape: File of a load shape that replaces the public one for houses without laws.
    """

    id: Annotated[Text, AfterValidator(_name)]
    month: Annotated[Month, fix("give a month from 1 to 12")] | None = None
    shape: Annotated[LoadShape, PlainValidator(_shape)] = field(default_factory=LoadShape)


# ---- the file


def _planned(table: Mapping[str, Any], policy: Policy, scenario: Scenario, seconds: int) -> Policy:
    """The policy that keeps the promise of a file's keys; as given where they name the noise."""
    from hushgrid.planning.expected_error import RHO
    from hushgrid.planning.planner import plan

    secret, schedule = table.get("secret"), policy.schedule
    if secret not in ("interval", "window") or schedule.lengths or schedule.terms:
        return policy
    window = seconds_of(table.get("window", "P1D")) or 86_400
    best = plan(
        *scenario.terms,
        secret=secret,
        epsilon=policy.epsilon,
        terms=policy,
        rho=None if policy.clamp else table.get("rho", RHO),
        running=secret == "interval",
        blocks=True,
        window=-(-window // seconds) + 1,
        seconds=seconds,
    )
    return best.policy


POLICY_KEYS = frozenset(
    {"secret", "rho", "eta_set_by", "window", "block"}
)  # read by a service alone


def policy_of(table: Any, hidden: Iterable[str] = ()) -> Policy:
    """Read the [policy] table.

    Args:
        table: The table, or what was given in its place.
        hidden: Keys that the file does not take.

    Returns:
        The policy.

    Raises:
        ValidationError: Every mistake.
    """
    policy_table: PolicyTable = build(PolicyTable, table, POLICY_KEYS, hidden)
    return policy_table.policy


def _check_series(series: tuple[PublicSeries, ...], info: Info) -> tuple[PublicSeries, ...]:
    """Series with names of their own, which the policy's estimate can use."""
    terms = info.data.get("policy")
    policy = getattr(terms, "policy", terms)  # a service reads it with its promise
    if policy is not None:
        with_series(policy, series)
    return series


def with_series(policy: Policy, series: Iterable[PublicSeries]) -> Policy:
    """A policy with its covariates.

    Args:
        policy: The policy.
        series: The covariates of the file.

    Returns:
        The policy.

    Raises:
        ValidationError: Its estimate uses no covariates, or two have the same name.
    """
    mistakes = Mistakes()
    with mistakes.within():
        policy = replace(policy, covariates=tuple(covariate.terms for covariate in series))
    mistakes.check()
    return policy


def with_offset_clamp(policy: Policy, groups: Sequence[Group]) -> Policy:
    """A policy whose clamp, which a file gives in net Wh, is of offset readings.

    Args:
        policy: The policy.
        groups: The groups of houses, one a density class.

    Returns:
        The policy; the same where no house exports.

    Raises:
        PolicyError: A lower end is above 0, or below what the houses may export.
    """
    exports = [group.export for group in groups]
    if len(policy.clamp) != len(exports):
        return policy
    clamp: list[ClampAt] = []
    for kind, (at, v) in enumerate(zip(policy.clamp, exports, strict=True)):
        low, high = at if isinstance(at, tuple) else (-v, at)
        if not -v <= low <= 0:
            raise PolicyError(
                f"policy.clamp of class {kind} begins at {low} Wh but its houses export up to {v}"
                f" Wh; give a lower end of {-v} to 0.",
                fields=("clamp",),
            )
        clamp.append((low + v, high + v) if low > -v else high + v)
    return replace(policy, clamp=tuple(clamp))


_MANY = "give at least one [[{}]] table"


@dataclass(frozen=True, kw_only=True)
class ZoneTables(FileTable):
    """The tables of a zone.

    Attributes:
        zone: Its name.
        tariff: The tariff.
        learned: Origin of the models.
        policy: The policy.
        covariates: Public series that the estimate may use.
        elasticity: How demand reacts to rates; None: it does not.
        houses: Groups of houses.
        models: Occupancy models; none: nothing is assumed of occupancy, which only the secret
            window allows.
    """

    zone: ZoneTable
    tariff: Annotated[Tariff, PlainValidator(partial(build, Tariff, unread=("charges", "digits")))]
    learned: Provenance = field(default_factory=Provenance)
    policy: Annotated[Any, PlainValidator(policy_of)]
    covariates: Annotated[tuple[PublicSeries, ...], AfterValidator(_check_series)] = ()
    elasticity: Annotated[Elasticity, PlainValidator(partial(build, Elasticity))] | None = None
    houses: Annotated[list[Group], fix(_MANY.format("houses"), min_length=1)]
    models: Annotated[
        list[Annotated[Any, PlainValidator(_model)]], fix(_MANY.format("models"), min_length=1)
    ] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ZoneFileTables(ZoneTables):
    """The tables of a zone file.

    Attributes:
        service: Length of a step.
    """

    service: StepKeys = field(default_factory=StepKeys)


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFile:
    """Content of a zone file.

    Attributes:
        scenario: Zone, tariff, models and laws.
        policy: The policy.
        provenance: Where models and laws come from, as the file states it.
        seconds: Length of a step [s].
        learned: Origin of the models.
        time_zone: IANA name of the zone of its times of day.
        meters: Meter ids in house order; empty where the file does not list them.
        secret: "interval" where the file says so and its blocks of steps are to keep that; else ""
            for what the noise implies.
        all_months: The scenario with the laws of all months, for days that have a date; None:
            `scenario` is all there is.
    """

    scenario: Scenario
    policy: Policy
    provenance: Mapping[str, str] = field(default_factory=dict)
    seconds: int = SECONDS
    learned: Provenance = field(default_factory=Provenance)
    time_zone: str = "UTC"
    meters: tuple[str, ...] = ()
    secret: str = ""
    all_months: Scenario | None = None


def load_zone(path: Path | str, *, seconds: int | None = None) -> ZoneFile:
    """Read a zone file.

    Args:
        path: The file (TOML).
        seconds: Length of a step [s]; else the file's own service.interval, else 15 minutes.

    Returns:
        The zone. With the secret interval or window its policy is planned, as a service plans it,
        for a horizon that repeats for ever. What a service alone reads (meters, who set eta) is
        left to it.

    Raises:
        ConfigError: Every mistake in the file, each with its line.
    """
    path = Path(path)
    return zone_of(read_text(path), path, seconds=seconds)


def zone_of(text: str, path: Path, *, seconds: int | None = None) -> ZoneFile:
    """Read a zone from the text of a zone file.

    Args:
        text: The text (TOML).
        path: Name of the file; its model files are relative to its folder.
        seconds: Length of a step [s]; else the file's own service.interval, else 15 minutes.

    Returns:
        The zone.

    Raises:
        ConfigError: Every mistake in the file, each with its line.
        FileError: If `seconds` does not divide a day.
    """
    file = TomlFile(path, text)
    file.check_format()
    if seconds is not None and step_seconds(seconds) is None:
        raise FileError(
            f"the interval is {seconds} s; give one that divides a day, such as {SECONDS}."
        )
    context = Context(file.folder, seconds or written_seconds(file.content.get("service")))
    tables: ZoneFileTables | None = read(
        ZoneFileTables, completed(file.content), (), file.faults, context
    )
    scenario = scenario_of(file, tables, context.seconds)
    file.check()
    assert tables is not None
    assert scenario is not None
    policy = with_series(tables.policy, tables.covariates)
    with file.faults.within("policy.clamp"):
        policy = with_offset_clamp(policy, tables.houses)
    file.check()
    month = _month_of(tables.zone, file.table("service"))
    all_months, scenario = scenario, scenario.of_month(month, _DAY // context.seconds)
    policy = _planned(file.table("policy"), policy, scenario, context.seconds)
    lists = [group.get("meters") for group in file.content["houses"]]
    listed = all(isinstance(meter_list, list) for meter_list in lists)
    meters = tuple(str(meter) for meter_list in lists for meter in meter_list) if listed else ()
    all_there = len(meters) == len(set(meters)) == scenario.zone.n_houses
    zone = file.table("service").get("time_zone")
    about = file.table("policy").get("secret")
    return ZoneFile(
        scenario,
        policy,
        provenance_of(file.content),
        context.seconds,
        tables.learned,
        zone if isinstance(zone, str) else "UTC",  # a service checks the name
        meters if all_there else (),
        "interval" if about == "interval" and policy.schedule.lengths else "",
        all_months,
    )


def completed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a zone with what they need not say.

    Args:
        content: The file.

    Returns:
        The content. A policy with a usual load publishes the estimate that follows releases; a
        group has as many houses as it lists meters.

    >>> completed({"houses": [{"meters": ["a", "b"]}], "policy": {"usual": 94}})["houses"]
    [{'count': 2, 'meters': ['a', 'b']}]
    """
    tables, policy, groups = dict(content), content.get("policy"), content.get("houses")
    if isinstance(policy, Mapping) and "usual" in policy:
        tables["policy"] = {"publish": "estimate", "estimator": "releases", **policy}
    if isinstance(groups, list):
        tables["houses"] = [_counted(group) for group in groups]
    return tables


def _counted(group: Any) -> Any:
    if isinstance(group, Mapping) and isinstance(meters := group.get("meters"), list):
        return {"count": len(meters), **group}
    return group


def written_seconds(service: Any) -> int:
    """Length of a step, before the table is checked.

    Args:
        service: The [service] table, or what was given in its place.

    Returns:
        Seconds: the default where it says nothing, `ANY` where it has a mistake.
    """
    interval = service.get("interval", SECONDS) if isinstance(service, Mapping) else SECONDS
    return step_seconds(interval) or ANY


def scenario_of(file: TomlFile, tables: ZoneTables | None, seconds: int) -> Scenario | None:
    """Put zone, tariff, models and laws together.

    Args:
        file: The file; receives every mistake.
        tables: Its tables; None where they have mistakes.
        seconds: Length of a step [s].

    Returns:
        The scenario; None where there is a mistake.
    """
    faults, before, steps = file.faults, len(file.faults), _DAY // seconds
    _check_chains(file)
    if tables is None or len(faults) > before:
        return None
    groups = tables.houses
    if not tables.models and (secret := file.table("policy").get("secret", "step")) != "window":
        faults.add(
            "models",
            f"models is not set but policy.secret is {display(secret)}, which speaks of occupancy;"
            " give [[models]], or the secret window, which needs none.",
            "policy.secret",
        )
        return None
    _check_laws(file, groups)
    if len(faults) > before:
        return None
    with faults.within("houses"):
        if groups[0].absent is None:
            usual = float(file.table("policy")["usual"])
            consumption = shape_laws(tables.zone.shape, groups, usual, tables.elasticity, steps)
        else:
            consumption = _consumption(groups, tables.elasticity, steps)
        limits = np.repeat(
            [(group.bound, group.export) for group in groups],
            [group.count for group in groups],
            axis=0,
        )
        zone = Zone.net(tables.zone.id, *limits.T)
        consumption.check_fits(zone.bound)
        models: list[OccupancyModel] = []
        for i, table in enumerate(tables.models):
            loaded = isinstance(table, ModelFile)
            with faults.within(f"models[{i}].file" if loaded else f"models[{i}]"):
                model = table.file if loaded else _occupancy(table, i, groups, steps)
                models += check_models([model], zone.n_houses)
        if len(faults) == before:
            models = models or [unknown_occupancy(zone.n_houses)]
            return Scenario(zone, tables.tariff, tuple(models), consumption)
    return None


def unknown_occupancy(houses: int) -> OccupancyModel:
    """Occupancy of which nothing is assumed: at every step each home is in either state, evenly.

    A promise about windows uses no occupancy. Every home is protected at every step, as none is
    ever certain to be empty or occupied.

    Args:
        houses: Number of houses.

    Returns:
        The model.
    """
    even = np.full((1, 1, 2, 2), 0.5)
    return OccupancyModel.factored(
        [[0.5, 0.5]], even, chain_of=np.zeros(houses, np.int64), name="unknown"
    )


def _check_laws(file: TomlFile, groups: Sequence[Group]) -> None:
    """Check that all houses have laws, or that none has and a load shape can take their place."""
    without = [i for i, group in enumerate(groups) if group.absent is None]
    if not without:
        return
    policy, key, text = file.table("policy"), f"houses[{without[0]}].absent", ""
    usual: Any = policy.get("usual")
    if len(without) < len(groups):
        text = "is not set but other houses have laws; give laws to all houses or to none."
    elif policy.get("eta", 1) != 1:
        text = f"is not set but policy.eta is {policy['eta']}; give laws, or eta = 1."
    elif not (is_real(usual) and usual > 0):
        key = "policy.usual"
        text = "is not set and houses have no laws; give the Wh that a home uses in an interval."
    if text:
        file.faults.add(key, f"{key} {text}")


def _check_chains(file: TomlFile) -> None:
    """Check that every model has a chain for all houses, as far as they are known."""
    groups, models = file.content.get("houses"), file.content.get("models")
    for model in models if isinstance(models, list) else ():
        chains = model.get("chains") if isinstance(model, Mapping) else None
        if not isinstance(chains, Mapping) or not chains or not isinstance(groups, list):
            continue
        for i, group in enumerate(groups):
            name = group.get("chain") if isinstance(group, Mapping) else next(iter(chains))
            if not isinstance(name, str) or name not in chains:
                key = f"houses[{i}].chain"
                text = f"{key} is {display(name)}; give one of {', '.join(chains)}."
                file.faults.add(key, text)


def shape_laws(
    shape: LoadShape,
    groups: Sequence[Group],
    usual: float,
    elasticity: Elasticity | None,
    steps: int,
) -> Consumption:
    """Laws of readings of a load shape over a week, the same at home and away.

    Args:
        shape: The load shape.
        groups: Groups of houses with their bounds; one density class each.
        usual: What a home uses in a step, mean over a year [Wh].
        elasticity: Reaction of demand to rates, or None.
        steps: Steps of a day.

    Returns:
        The laws. Means are a per cent apart, so that few laws stand for all steps.
    """
    middles = (np.arange(7 * steps) + 0.5) * (_DAY // steps)
    sizes, slots = np.unique(
        np.rint(np.log(shape.week(middles)) / _APART).astype(np.int64), return_inverse=True
    )
    laws: list[Law] = []
    for group in groups:
        group_laws = [shape.law(usual * m, group.bound) for m in np.exp(sizes * _APART).tolist()]
        exports = [Net(law, Histogram([1.0]), group.export) for law in group_laws]
        laws += exports if group.export else group_laws
    table = np.arange(len(laws), dtype=np.int32).reshape(len(groups), -1).T
    kinds = np.repeat(np.arange(len(groups)), [group.count for group in groups]).astype(np.int32)
    return Consumption(tuple(laws), table, table, kinds, Calendar(slots), elasticity, shape)


_APART = 0.01  # logarithms of the means of laws


def _consumption(groups: Sequence[Group], elasticity: Elasticity | None, steps: int) -> Consumption:
    """A density class for each group of houses; laws may change at given times of day."""
    laws: list[Law] = []
    numbers = dict[int, int]()  # of the first law of each list
    pairs = [(group.absent or [], group.present or []) for group in groups]
    for pair in pairs:
        for timed in pair:
            numbers[id(timed)] = len(laws)
            laws += [keys.law for keys in timed]
    # absent of every group, then present
    lists = [timed for side in zip(*pairs, strict=True) for timed in side]
    cuts = sorted({start for timed in lists for start in {0} | {keys.from_ for keys in timed}})
    of_day = np.searchsorted(cuts, np.arange(steps), side="right") - 1

    def at(month: int) -> Int32s:
        """(cuts, 2, groups): the numbers of the laws of a month."""
        columns = []
        for timed in lists:
            law_starts = [
                (timed[i].from_, numbers[id(timed)] + i) for i in _laws_of_month(timed, month)
            ]
            starts = _from_midnight(law_starts)
            columns.append([[law for start, law in starts if start <= cut][-1] for cut in cuts])
        return np.array(columns, np.int32).T.reshape(len(cuts), 2, len(groups))

    seasonal = any(keys.months for timed in lists for keys in timed)
    tables, days = list[Int32s](), list[Ints]()
    for month in range(1, MONTHS + 1) if seasonal else (1,):
        law_table = at(month)
        equal = [i for i, earlier in enumerate(tables) if (earlier == law_table).all()]
        number = equal[0] if equal else len(tables)
        tables += [] if equal else [law_table]
        days.append(of_day + number * len(cuts))
    table, calendar = np.concatenate(tables), Calendar(np.concatenate(days))
    kinds = np.repeat(np.arange(len(groups)), [group.count for group in groups]).astype(np.int32)
    return Consumption(tuple(laws), table[:, 0], table[:, 1], kinds, calendar, elasticity)


def _month_of(zone: ZoneTable, service: Mapping[str, Any]) -> int:
    """The month of days without a date: as given, else that of `begins`, else January."""
    begins = instant_of(service.get("begins"))
    if zone.month is None and begins is not None:
        with suppress(ValueError, OSError, KeyError):  # a service checks the name
            where = ZoneInfo(str(service.get("time_zone", "UTC")))
            return datetime.fromtimestamp(begins, where).month
    return zone.month or 1


def _occupancy(table: Chained, number: int, groups: Sequence[Group], steps: int) -> OccupancyModel:
    """A model with slots of a day, or of a weekday followed by those of a weekend day."""
    chains, order = table.chains.values(), list(table.chains)
    days = [[_matrices(chain.periods, steps) for chain in chains]]
    slots = np.arange(steps)
    if any(chain.weekend for chain in chains):
        days.append([_matrices(chain.weekend or chain.periods, steps) for chain in chains])
        slots = np.concatenate([np.tile(slots, 5), np.tile(slots + steps, 2)])
    return OccupancyModel.factored(
        [[1 - chain.home_at_start, chain.home_at_start] for chain in chains],
        np.concatenate([np.stack(day, axis=1) for day in days]),
        calendar=Calendar(slots),
        chain_of=np.repeat(
            [order.index(group.chain) for group in groups], [group.count for group in groups]
        ),
        name=f"models[{number}]" if table.name is None else str(table.name),
    )


def _matrices(periods: Sequence[Period], steps: int) -> Floats:
    """(steps, 2, 2) transition matrices of a day."""
    a = np.empty((steps, 2, 2))
    for start, i in _from_midnight((period.from_, i) for i, period in enumerate(periods)):
        leave, come = periods[i].leave, periods[i].come
        a[start:] = [[1 - come, come], [leave, 1 - leave]]
    return a


def provenance_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Where each model and each group's laws come from.

    Args:
        content: The zone file.

    Returns:
        The file's statement by model or group; "not stated" where it has none.
    """
    origins = {
        f"model {table.get('name', table.get('file', i))}": _stated(table)
        for i, table in enumerate(content.get("models", ()))
    }
    laws = [_stated(table) for table in content.get("houses", ())]
    return {**origins, **{f"laws of houses {i}": text for i, text in enumerate(laws)}}


def _stated(table: Mapping[str, Any]) -> str:
    return str(table.get("provenance", "not stated"))


@dataclass(frozen=True, slots=True)
class PolicyTable(Policy):
    """A policy as written in a file: the keys of all schedules, of which it may use one.

    Attributes:
        schedule: The schedule that the keys name.
        covariates: None; `with_series` adds them.
        epsilon_t: Epsilon of each step.
        block_steps: Steps of each block with one noise; of a part of the run that repeats.
        block_epsilon: Epsilon of each of these blocks.

    Raises:
        PolicyError: If keys of several schedules are set, or a value is not allowed.
    """

    schedule: Schedule = field(default_factory=Even, init=False)
    covariates: tuple[Covariate, ...] = field(default=(), init=False)  # tables of their own
    epsilon_t: tuple[float, ...] = ()
    block_steps: tuple[int, ...] = ()
    block_epsilon: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", PerStep(self.epsilon_t))
        Policy.__post_init__(self)
        object.__setattr__(self, "schedule", self._schedule_of_keys())
        self.schedule.check(self)

    @property
    def policy(self) -> Policy:
        """The policy itself."""
        return Policy(**{field.name: getattr(self, field.name) for field in fields(Policy)})

    def _schedule_of_keys(self) -> Schedule:
        """The schedule that the keys name."""
        if self.block_steps or self.block_epsilon:
            if self.epsilon_t:
                raise PolicyError(
                    f"policy block_steps has {len(self.block_steps)} blocks with another schedule"
                    " of the budget; give one of block_steps and epsilon_t.",
                    fields=("block_steps", "epsilon_t"),
                )
            blocks = Blocks(self.block_steps, self.block_epsilon)
            repeats = self.horizon % sum(blocks.lengths) == 0
            return blocks.over(self.horizon) if repeats else blocks
        return per_step(self.epsilon_t)
