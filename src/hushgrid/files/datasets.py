"""Files of public data sets: which one a file is of, and whether it holds what it should."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from hushgrid.errors import FileError, IntakeError
from hushgrid.files.readings import batches_of_file, mapping_named
from hushgrid.intake.csv import csv_batches
from hushgrid.intake.datasets import (
    BY_NAME,
    DATASETS,
    ECO,
    KNOWN_FILES,
    DatasetTally,
    PublicDataset,
    of_meters,
    problems_of,
)
from hushgrid.intake.eco import eco_day, is_eco
from hushgrid.intake.readings import Parsed, collect
from hushgrid.intake.text import ColumnMapping

HEAD = 1 << 18  # [bytes] by which a layout is known
_ECO_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\.csv")
_ECO_FOLDER = re.compile(r"0[1-6](_sm_csv)?")
_ECO_ZONE = ZoneInfo("Europe/Zurich")
_ECO_15MIN = ColumnMapping(
    meter_id="eco-02",
    time="timestamp",
    value="power_w",
    unit="w",
    duration_s=900,
    time_zone="Europe/Zurich",
)
Advance = Callable[[int], None]


class Recognised(NamedTuple):
    """The layout of a file.

    Attributes:
        layout: Name of the mapping, "eco_day" or "eco_15min".
        dataset: The data set whose layout it is; None: canonical columns, of any homes.
        mapping: The mapping by which rows are read; None: "eco_day" has no columns.
    """

    layout: str
    dataset: PublicDataset | None
    mapping: ColumnMapping | None

    @property
    def unit(self) -> str:
        """The unit of values as written."""
        unit = "w" if self.mapping is None else self.mapping.unit
        return {"wh": "Wh", "kwh": "kWh", "mwh": "MWh", "w": "W", "kw": "kW"}[unit]

    def batches(self, path: Path, advance: Advance) -> Iterator[Parsed]:
        """The readings of a file of this layout.

        Args:
            path: The file.
            advance: Called with the number of bytes of each piece.

        Yields:
            The readings and the malformed rows of each batch.

        Raises:
            IntakeError: If the file is not of the layout.
        """
        if self.mapping is not None:
            yield from batches_of_file(path, self.mapping, advance)
            return
        home, midnight = _eco_place(path)
        content = path.read_bytes()
        yield eco_day(content, home, midnight)
        advance(len(content))


def recognise(path: Path) -> Recognised:
    """The public data set that a file is of, by its columns.

    Args:
        path: The file.

    Returns:
        Its layout.

    Raises:
        IntakeError: If it has none of the layouts of `DATASETS` and no canonical columns.
        FileError: If it cannot be read.
    """
    parquet = path.suffix.lower() == ".parquet"
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
        if not parquet and is_eco(head.partition(b"\n")[0]):
            _eco_place(path)
            return Recognised("eco_day", ECO, None)
        for name, dataset in _candidates(parquet):
            mapping = _ECO_15MIN if name == "eco_15min" else mapping_named(name)
            parsed = _beginning(path, head, mapping)
            if parsed is not None and len(parsed.readings) > parsed.malformed:
                return Recognised(name, dataset, mapping)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); give a file.") from None
    if head[:2] in (b"PK", b"\x1f\x8b"):
        raise IntakeError(f"{path} is packed; unpack it and give the file in it.")
    raise IntakeError(
        f"{path} has the layout of no public data set that is known"
        f" ({', '.join(dataset.title for dataset in DATASETS)}) and no rows of the columns"
        " meter_id, start_utc, duration_s and wh; give a file as its publisher has it."
    )


def _candidates(parquet: bool) -> list[tuple[str, PublicDataset | None]]:
    """Layouts of a table, with the data sets they are of."""
    if parquet:
        return [("canonical", None), ("eco_15min", ECO)]
    of_sets = [(name, each) for each in DATASETS for name in each.layouts if name != "eco_day"]
    return [*of_sets, ("canonical", None)]


def _beginning(path: Path, head: bytes, mapping: ColumnMapping) -> Parsed | None:
    """The first readings of a file; None where the mapping does not fit."""
    try:
        if path.suffix.lower() == ".parquet":
            return next(batches_of_file(path, mapping, lambda _: None), None)
        lines = head if len(head) < HEAD else head[: head.rfind(b"\n") + 1]
        return collect(csv_batches(lines, mapping))
    except IntakeError:
        return None


def _eco_place(path: Path) -> tuple[str, int]:
    """The home and the begin of the day [UTC s] that a file of ECO is of, by its name."""
    date = _ECO_NAME.fullmatch(path.name)
    homes = [part[:2] for part in path.resolve().parts[:-1] if _ECO_FOLDER.fullmatch(part)]
    if date is None or not homes:
        raise IntakeError(
            f"{path} looks like a day of ECO, whose name says the day and whose folder the home;"
            " give it as it was unpacked, such as 02_sm_csv/02/2012-06-01.csv."
        )
    try:
        begins = datetime.fromisoformat(date[1]).replace(tzinfo=_ECO_ZONE)
    except ValueError:
        raise IntakeError(f"{path} is named after no day; give it as it was unpacked.") from None
    return f"eco-{homes[-1]}", int(begins.timestamp())


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """A file that was read.

    Attributes:
        path: The file.
        sha256: Digest of its bytes.
        known: What a file of this digest holds; None: the digest is not known here.
    """

    path: Path
    sha256: str
    known: str | None


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """What a file, or the files of a folder, hold.

    Attributes:
        files: The files.
        layout: Name of their layout.
        unit: Unit of values as written.
        dataset: The data set; None: canonical columns of homes of no known one.
        tally: What was read.
        problems: What is wrong, in sentences.
    """

    files: tuple[VerifiedFile, ...]
    layout: str
    unit: str
    dataset: PublicDataset | None
    tally: DatasetTally
    problems: tuple[str, ...]

    @property
    def begins(self) -> str | None:
        """When the first reading begins, in UTC; None without one."""
        return _utc(self.tally.first)

    @property
    def ends(self) -> str | None:
        """When the last reading ends, in UTC; None without one."""
        return _utc(self.tally.last)


def _utc(at: int) -> str | None:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ") if at else None


def verify(path: Path, advance: Advance) -> DatasetReport:
    """Read a file of a public data set, or a folder of such files, to the end.

    Args:
        path: The file or folder.
        advance: Called with the number of bytes of each piece.

    Returns:
        What it holds, and what is wrong with it.

    Raises:
        IntakeError: If a file has no layout that is known, or those of a folder have several.
        FileError: If a file cannot be read.
    """
    tally, files, layout = DatasetTally(), list[VerifiedFile](), None
    try:
        for file in files_of(path):
            recognised = recognise(file)
            if layout is not None and recognised.layout != layout.layout:
                raise IntakeError(
                    f"{path} has files of the layouts {layout.layout} and {recognised.layout}; give"
                    " folders of one layout."
                )
            layout = recognised
            digest = _digest(file)
            known = KNOWN_FILES.get(digest)
            files.append(VerifiedFile(file, digest, None if known is None else known.words))
            for parsed in recognised.batches(file, advance):
                tally.add(parsed)
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); give a file.") from None
    except IntakeError as error:
        prefix = "" if str(error).startswith(str(path)) else f"{path}: "
        raise IntakeError(f"{prefix}{error}") from None
    assert layout is not None
    dataset = layout.dataset or _by_digest(files) or of_meters(tuple(tally.homes))
    problems = tuple(problems_of(tally, dataset))
    return DatasetReport(tuple(files), layout.layout, layout.unit, dataset, tally, problems)


def files_of(path: Path) -> list[Path]:
    """The files of a folder and of its folders, in order of their names; a file itself.

    Args:
        path: A file or a folder.

    Returns:
        The tables among them: files that end in .csv or .parquet.

    Raises:
        FileError: If a folder has none.
    """
    if not path.is_dir():
        return [path]
    files = sorted(file for kind in ("*.csv", "*.parquet") for file in path.rglob(kind))
    if not files:
        raise FileError(f"{path} is a folder without .csv or .parquet; give files of readings.")
    return files


def _by_digest(files: Sequence[VerifiedFile]) -> PublicDataset | None:
    """The data set of files whose digests are all known."""
    names = {KNOWN_FILES[file.sha256].dataset if file.known else "" for file in files}
    return BY_NAME.get(names.pop()) if len(names) == 1 else None


def _digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
