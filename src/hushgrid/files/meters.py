"""Meters of a zone's houses in its file: ids, files of ids, registers of homes with several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter

from hushgrid.errors import FileError
from hushgrid.files._tables import (
    Context,
    FileTable,
    Info,
    Mistakes,
    Text,
    adapter,
    fix,
    mistake,
    read,
)
from hushgrid.files.laws import written_seconds
from hushgrid.files.results import read_text
from hushgrid.files.toml import TomlFile, display
from hushgrid.files.zone_file import (
    GROUP_KEYS,
    MOST_HOUSES,
    REGISTER_KEYS,
    Group,
)
from hushgrid.intake.readings import MOST_METERS, Register


@dataclass(frozen=True, slots=True)
class Numbered(FileTable):
    """Meter ids that end with four digits or more.

    Attributes:
        prefix: What they begin with.
        first: The first number.
    """

    prefix: Text
    first: Annotated[int, fix("give a whole number", ge=0, lt=2**62)] = 1


_Id = Annotated[str, Field(strict=True)]
_HOMES: TypeAdapter[list[_Id | list[_Id]]] = TypeAdapter(list[_Id | list[_Id]])
_METERS = (
    "give a list of ids, with a list of its own for a home of several meters, or"
    ' {prefix = "elm-", first = 1}'
)


def _listed(content: Any, info: Info) -> list[list[str]]:
    """The meters of each home as they are written, or numbered."""
    if not isinstance(content, Mapping):
        homes = _HOMES.validate_python(content)
        return _checked([[home] if isinstance(home, str) else home for home in homes], info)
    by: Numbered = adapter(Numbered).validate_python(content)
    numbers = range(by.first, by.first + info.data.get("count", 1))
    return _checked([[f"{by.prefix}{number:04d}"] for number in numbers], info)


def _one_each(content: Any, info: Info) -> list[list[str]]:
    """A register for each home."""
    return _single(_listed(content, info))


def _single(homes: list[list[str]]) -> list[list[str]]:
    if any(len(meters) > 1 for meters in homes):
        raise mistake("has a home of several registers; give one id for each house.")
    return homes


def _in_file(name: Any, info: Info) -> list[list[str]]:
    """The meters of each home, of a file with a home a line and tabs between its meters."""
    if not isinstance(name, str) or not name.isprintable():
        raise mistake("give the path of a file with one id a line", "fix")
    try:
        lines = read_text(info.context.folder / name).splitlines()
    except FileError as error:
        raise mistake(str(error), "whole") from None
    return _checked([line.strip().split("\t") for line in lines if line.strip()], info)


def _one_each_in_file(name: Any, info: Info) -> list[list[str]]:
    """A register for each home, of a file with one a line."""
    return _single(_in_file(name, info))


def _checked(homes: list[list[str]], info: Info) -> list[list[str]]:
    for meters in homes:
        if not 1 <= len(meters) <= MOST_METERS:
            raise mistake(
                f"has a home of {len(meters)} meters; give each home 1 to {MOST_METERS} of them."
            )
        for meter in meters:
            if not 1 <= len(meter) <= 128 or not meter.isprintable() or meter != meter.strip():
                raise mistake(
                    f"holds {display(meter)}; give ids of 1 to 128 printed characters, without"
                    " spaces around them."
                )
    count = info.data.get("count", len(homes))
    if len(homes) != count:
        raise mistake(f"has {len(homes)} ids for {count} houses; give one id for each house.")
    return homes


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered(Group):
    """A [[houses]] table whose meters are known.

    Attributes:
        meters: Ids of the meters of each home, in house order; a list in the place of an id for a
            home of several meters (docs/meter-data.md), which are added up.
        meters_file: The same, of a file: a home a line, tabs between its meters.
        export_meters: Ids of the registers of energy fed in, in house order, where each house has
            a register for each direction.
        export_meters_file: The same, of a file.
    """

    unread: ClassVar[frozenset[str]] = frozenset()

    meters: Annotated[list[list[str]], PlainValidator(_listed), fix(_METERS)] | None = None
    meters_file: Annotated[list[list[str]], PlainValidator(_in_file)] | None = None
    export_meters: Annotated[list[list[str]], PlainValidator(_one_each), fix(_METERS)] | None = None
    export_meters_file: Annotated[list[list[str]], PlainValidator(_one_each_in_file)] | None = None

    @classmethod
    def check_keys(cls, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """One of the two keys of each kind of register, and laws in pairs."""
        yield from Group.check_keys(table)
        presence = [key in table for key in sorted(GROUP_KEYS)]
        if all(presence) or not any(presence):
            state = "both set" if all(presence) else "both unset"
            yield "meters", f"and meters_file are {state}; give one of them."
        second = sorted(REGISTER_KEYS & set(table))
        if len(second) > 1:
            yield second[0], f"and {second[1]} are both set; give one of them."
        elif second and not table.get("export"):
            yield second[0], "is set but export is not; give what each house may export [Wh]."


def _of_one_zone(groups: list[Metered]) -> list[Metered]:
    """Groups that are not too many houses, each with a meter of its own."""
    houses, places = sum(group.count for group in groups), dict[str, str]()
    if houses > MOST_HOUSES:
        raise mistake(f"has {houses} houses; give a zone at most {MOST_HOUSES} of them.")
    for i, group in enumerate(groups):
        for key in (*sorted(GROUP_KEYS), *sorted(REGISTER_KEYS)):
            for meter in chain.from_iterable(getattr(group, key) or ()):
                if meter in places:
                    text = f"holds {display(meter)} twice (also in {places[meter]});"
                    Mistakes().add(f"{text} give each house its own meter.", i, key).check()
                places[meter] = f"houses[{i}].{key}"
    return groups


Houses = Annotated[
    list[Metered],
    AfterValidator(_of_one_zone),
    fix("give at least one [[houses]] table", min_length=1),
]


def meter_ids(file: TomlFile) -> tuple[str, ...]:
    """Meter ids of a zone file that names its meters.

    Args:
        file: The file; receives every mistake.

    Returns:
        One id for each house, in house order; none where there are mistakes.
    """
    context = Context(file.folder, written_seconds(file.content.get("service")))
    groups = read(Houses, file.content["houses"], ("houses",), file.faults, context)
    return ids_of(groups or ())


def ids_of(groups: Iterable[Metered]) -> tuple[str, ...]:
    """One meter of each house, in house order.

    Args:
        groups: The groups of houses.

    Returns:
        Their ids.
    """
    return tuple(home[0] for group in groups for home in group.meters or group.meters_file or ())


def registers_of(groups: Iterable[Metered]) -> tuple[Register, ...]:
    """Further meters of each home, and its register of energy fed in, by house.

    Args:
        groups: The groups of houses.

    Returns:
        The registers.
    """
    registers, first = list[Register](), 0
    for group in groups:
        homes = group.meters or group.meters_file or []
        fed_in = group.export_meters or group.export_meters_file or [[]] * len(homes)
        for house, (meters, second) in enumerate(zip(homes, fed_in, strict=True), first):
            registers += [Register(house, meter, 1) for meter in meters[1:]]
            registers += [Register(house, meter, -1) for meter in second]
        first += len(homes)
    return tuple(registers)
