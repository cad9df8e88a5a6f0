"""Laws of readings and chains of occupancy in a TOML file: what [[houses]] and [[models]] say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    TypeAdapter,
)

from hushgrid._numbers import is_real
from hushgrid.errors import HushgridError
from hushgrid.files._tables import (
    FileTable,
    Info,
    Mistakes,
    Probability,
    Text,
    adapter,
    build,
    converted,
    fix,
    keys_of,
    mistake,
    read,
)
from hushgrid.files.results import load_model
from hushgrid.files.toml import TomlFile, display, seconds_of
from hushgrid.model.consumption import MONTHS, LoadShape
from hushgrid.model.laws import FAMILIES, Histogram, Mixture, Net
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import MAX_BOUND

SECONDS = 900  # default length of a step
ANY = 60  # steps that begin at every HH:MM: where a file's own are not known
MOST_BOUND = 1_000_000  # [Wh] of an interval: a law has a number for each Wh
DAY = 86_400


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
    return seconds if seconds and DAY % seconds == 0 else None


_INTERVAL = "give whole seconds that divide a day, such as 'PT15M' or 1800"
Interval = Annotated[int, converted(step_seconds, _INTERVAL)]
_Starts = list[tuple[int, int]]  # (step, number of what begins)
_Entry = TypeVar("_Entry", "Period", "LawKeys")


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


def laws_of_month(laws: Sequence[LawKeys], month: int) -> list[int]:
    """Numbers of the laws that hold in a month: those that name it, else those that name none."""
    numbers = [i for i, law in enumerate(laws) if month in law.months]
    return numbers or [i for i, law in enumerate(laws) if not law.months]


def _all_year(laws: list[LawKeys]) -> list[LawKeys]:
    """Laws of which every month has one, at different times of its day."""
    if not any(law.months for law in laws):
        return _check_starts(laws)
    for month in range(1, MONTHS + 1):
        numbers, starts = laws_of_month(laws, month), list[int]()
        if not numbers:
            raise mistake(f"has no law for month {month}; give it one, or one law without months.")
        for i in numbers:
            if laws[i].from_ in starts:
                text = f"gives month {month} two laws from the same time; give it to one of them."
                Mistakes().add(text, i, "months" if laws[i].months else "from").check()
            starts.append(laws[i].from_)
    return laws


def from_midnight(starts: Iterable[tuple[int, int]]) -> _Starts:
    """(step, number) in order; the last one of the day also holds before the first."""
    ordered = sorted(starts)
    return ordered if ordered[0][0] == 0 else [(0, ordered[-1][1]), *ordered]


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


def read_laws(content: Any, info: Info) -> list[Any]:
    """Laws of a group of houses, one or several by time.

    Args:
        content: What the file has.
        info: The group's bound and export limit, and the file.

    Returns:
        `LawKeys`.

    Raises:
        ValidationError: Every mistake.
    """
    """A law, or several that begin at different times, up to the bound of the group."""
    bound, export = info.data.get("bound", MAX_BOUND), info.data.get("export", 0)
    context = replace(info.context, bound=bound, export=export)
    if isinstance(content, list):
        return _LAWS.validate_python(content, context=context)
    return _all_year([_LAW.validate_python(content, context=context)])


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


def read_model(table: Any, info: Info) -> Any:
    """A [[models]] table: a file, or chains.

    Args:
        table: What the file has.
        info: The file.

    Returns:
        `ModelFile` or `Chained`.

    Raises:
        ValidationError: Every mistake.
    """
    is_file = isinstance(table, Mapping) and "file" in table
    return adapter(ModelFile if is_file else Chained).validate_python(table, context=info.context)


def written_seconds(service: Any) -> int:
    """Length of a step, before the table is checked.

    Args:
        service: The [service] table, or what was given in its place.

    Returns:
        Seconds: the default where it says nothing, `ANY` where it has a mistake.
    """
    interval = service.get("interval", SECONDS) if isinstance(service, Mapping) else SECONDS
    return step_seconds(interval) or ANY


_BUILD = partial(build, LoadShape, unread=("format", "provenance"))


def load_shape(path: Path | str) -> LoadShape:
    """Read a load shape.

    Args:
        path: The file (TOML) with any of the fields of `LoadShape`; what it leaves out is as in the
            public shape. `provenance` says where its numbers come from.

    Returns:
        The shape.

    Raises:
        FileError: Every mistake of the file, with its line.
    """
    file = TomlFile(Path(path))
    file.check_format()
    shape: Any = read(Annotated[Any, PlainValidator(_BUILD)], file.content, (), file.faults)
    origin = file.content.get("provenance")
    if not isinstance(origin, str) or not origin.strip():
        file.faults.add("provenance", "provenance is not set; say where the numbers come from.")
    elif re.match(r"private\b", origin.strip(), re.IGNORECASE):
        file.faults.add(
            "provenance",
            f"provenance is {display(origin)}; all that the shape enters would reveal something"
            " about these homes: give published numbers.",
        )
    file.check()
    loaded: LoadShape = shape
    return loaded
