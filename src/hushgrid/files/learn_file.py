"""The [learn] table: choices of `hushgrid learn` that most runs leave as they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from hushgrid.files._tables import (
    Bool,
    Context,
    FileTable,
    Line,
    Positive,
    Whole,
    converted,
    fix,
    read,
)
from hushgrid.files.toml import TomlFile, instant_of

_SEASONS = "give groups of months such as [[12, 1, 2], [3, 4, 5, 6, 7, 8, 9, 10, 11]]"
_INSTANT = "give a date and time such as 2026-01-05T00:00:00Z"


@dataclass(frozen=True, slots=True)
class LearnTable(FileTable):
    """The [learn] table.

    Attributes:
        zone: Name of the zone.
        residents: Residents of the survey's chains for the prior.
        seasons: Groups of months with laws of their own; none: the year has one.
        prototypes: Models that homes share; 0: one a home.
        law: Laws of a reading.
        groups: Slot groups of laws a day; "auto" of a pool is 4.
        days: What the prior on habits is worth [days].
        bound: Contract bound [Wh a step]; None: that of 10 kW.
        export: Homes export up to this much [Wh a step], and readings below 0 are net.
        bound_budget: The bound is a private quantile of this epsilon; it needs what a pool needs.
        usual: What a home uses in a year [kWh], by published figures.
        begins: First interval of service.toml [UTC s]; None: today, or after the readings.
        figures: Draw pictures and report.html.
    """

    zone: Line = "learned"
    residents: Annotated[tuple[Whole, ...], fix("give numbers such as [2, 3]", min_length=1)] = (
        2,
        3,
    )
    seasons: Annotated[tuple[tuple[int, ...], ...], fix(_SEASONS)] = ()
    prototypes: Annotated[int, fix("give a whole number, 0 or more", ge=0)] = 4
    law: Annotated[
        Literal["auto", "lognormal", "gamma", "histogram"],
        fix("give auto, lognormal, gamma or histogram"),
    ] = "auto"
    groups: Annotated[Literal["auto", 4, 8, 12, 24], fix("give 'auto', 4, 8, 12 or 24")] = "auto"
    days: Positive = 30.0
    bound: Whole | None = None
    export: Whole | None = None
    bound_budget: Positive | None = None
    usual: Positive = 3300.0
    begins: Annotated[int, converted(instant_of, _INSTANT)] | None = None
    figures: Bool = True


@dataclass(frozen=True, slots=True)
class LearnFile(FileTable):
    """A file with a [learn] table.

    Attributes:
        learn: The table.
    """

    learn: LearnTable


def load_learn(path: Path | None) -> LearnTable:
    """Read the [learn] table of a file.

    Args:
        path: The file (TOML); None: every choice is left as it is.

    Returns:
        The choices.

    Raises:
        FileError: Every mistake of the file, with its line.
    """
    if path is None:
        return LearnTable()
    file = TomlFile(path)
    file.check()
    tables = read(LearnFile, file.content, (), file.faults, Context(file.folder))
    file.check()
    table: LearnTable = tables.learn
    return table
