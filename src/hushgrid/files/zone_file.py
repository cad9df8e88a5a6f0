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
from typing import Annotated, Any, ClassVar, Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    PlainValidator,
    model_validator,
)

from hushgrid.errors import FileError, HushgridError, PolicyError
from hushgrid.files._tables import (
    Context,
    FilePath,
    FileTable,
    Info,
    Line,
    Mistakes,
    Positive,
    Text,
    Whole,
    build,
    converted,
    duration,
    fix,
    mistake,
    read,
)
from hushgrid.files.laws import (
    DAY,
    MOST_BOUND,
    SECONDS,
    Interval,
    LawKeys,
    Month,
    load_shape,
    read_laws,
    read_model,
    written_seconds,
)
from hushgrid.files.results import read_text
from hushgrid.files.scenario import provenance_of, scenario_of
from hushgrid.files.toml import TomlFile, instant_of, seconds_of
from hushgrid.mechanism.policy import (
    Blocks,
    Even,
    PerStep,
    Policy,
    Schedule,
    per_step,
)
from hushgrid.model.consumption import Elasticity, LoadShape
from hushgrid.model.covariate import Covariate
from hushgrid.model.laws import ClampAt
from hushgrid.model.zone import Scenario, Tariff

MOST_HOUSES = 10_000_000  # of a service's zone
_INSTANT = "give a date-time in UTC such as 2026-01-01T00:00:00Z"


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
        {"by", "law", "prior", "days", "seasons", "bound_by"}
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
    absent: Annotated[list[LawKeys], PlainValidator(read_laws)] | None = None
    present: Annotated[list[LawKeys], PlainValidator(read_laws)] | None = None
    chain: Any = None
    provenance: Text = ""

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Laws come in pairs."""
        missing = [key for key in ("absent", "present") if key not in table]
        if len(missing) == 1:
            yield missing[0], "is not set; give laws for absent and present, or for neither."


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
        max_age: How old a value may be when an interval starts [s]; a day for series of days.
    """

    name: Annotated[str, fix(_LABEL, pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    centre: Annotated[float, fix("give a number")]
    scale: Positive
    vouched_by: Line
    file: FilePath
    max_age: Annotated[int, duration("PT3H", 60, 366 * DAY)] = 10_800

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


def _days(value: Any) -> int | None:
    seconds = seconds_of(value)
    if seconds is None or seconds % DAY or not DAY <= seconds <= 7 * DAY:
        return None
    return seconds // DAY


def _time_of_day(value: Any) -> int | None:
    match = re.fullmatch("([01][0-9]|2[0-3]):([0-5][0-9])", str(value))
    return None if match is None else int(match[1]) * 3600 + int(match[2]) * 60


@dataclass(frozen=True, slots=True)
class PricesAhead(FileTable):
    """The [prices] table: prices are published ahead, as a list for whole days.

    Attributes:
        ahead: For how many local days, from the end of the last list on.
        publish_at: Local time at which a list is published, on the day before its first [s].
    """

    ahead: Annotated[int, converted(_days, "give whole days up to a week, such as 'P1D'")]
    publish_at: Annotated[int, converted(_time_of_day, "give a time HH:MM, such as '18:00'")] = (
        18 * 3600
    )


TariffTable = Annotated[
    Tariff, PlainValidator(partial(build, Tariff, unread=("charges", "digits")))
]


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
        prices: How prices are published ahead; None: each for the next interval.
    """

    zone: ZoneTable
    tariff: TariffTable
    learned: Provenance = field(default_factory=Provenance)
    policy: Annotated[Any, PlainValidator(policy_of)]
    covariates: Annotated[tuple[PublicSeries, ...], AfterValidator(_check_series)] = ()
    elasticity: Annotated[Elasticity, PlainValidator(partial(build, Elasticity))] | None = None
    houses: Annotated[list[Group], fix(_MANY.format("houses"), min_length=1)]
    models: Annotated[
        list[Annotated[Any, PlainValidator(read_model)]], fix(_MANY.format("models"), min_length=1)
    ] = field(default_factory=list)
    prices: PricesAhead | None = None


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


def load_zone(path: Path | str) -> ZoneFile:
    """Read a zone file.

    Args:
        path: The file (TOML).

    Returns:
        The zone. With the secret interval or window its policy is planned, as a service plans it,
        for a horizon that repeats for ever. What a service alone reads (meters, who set eta) is
        left to it.

    Raises:
        ConfigError: Every mistake in the file, each with its line.
    """
    path = Path(path)
    return zone_of(read_text(path), path)


def load_tariff(path: Path) -> Tariff:
    """Read the table [tariff] of a zone file, of a service file, or of a file that has no other.

    Args:
        path: The file (TOML).

    Returns:
        The tariff.

    Raises:
        ConfigError: Every mistake in the table, each with its line.
        FileError: If the file cannot be read, or has no such table.
    """
    file = TomlFile(path)
    if not isinstance(file.content.get("tariff"), Mapping):
        raise FileError(f"{path} has no table [tariff]; give a file that has one.")
    tariff: Tariff | None = read(TariffTable, file.content["tariff"], ("tariff",), file.faults)
    file.check()
    assert tariff is not None
    return tariff


def zone_of(text: str, path: Path) -> ZoneFile:
    """Read a zone from the text of a zone file.

    Args:
        text: The text (TOML).
        path: Name of the file; its model files are relative to its folder.

    Returns:
        The zone.

    Raises:
        ConfigError: Every mistake in the file, each with its line.
    """
    file = TomlFile(path, text)
    file.check_format()
    context = Context(file.folder, written_seconds(file.content.get("service")))
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
    all_months, scenario = scenario, scenario.of_month(month, DAY // context.seconds)
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


def _month_of(zone: ZoneTable, service: Mapping[str, Any]) -> int:
    """The month of days without a date: as given, else that of `begins`, else January."""
    begins = instant_of(service.get("begins"))
    if zone.month is None and begins is not None:
        with suppress(ValueError, OSError, KeyError):  # a service checks the name
            where = ZoneInfo(str(service.get("time_zone", "UTC")))
            return datetime.fromtimestamp(begins, where).month
    return zone.month or 1


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
