"""The layout of a file of readings, found from its first and last rows.

A mapping that is built in is taken where it reads the rows; else the columns are taken by their
names and values. What was taken is said in sentences, which hold names of columns and no values.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hushgrid.errors import FileError, HushgridError, IntakeError
from hushgrid.files.readings import (
    BUILT_IN,
    format_by,
    format_of,
    local_histories,
    mapping_named,
    mapping_of,
    read_readings,
)
from hushgrid.intake.csv import fields_of
from hushgrid.intake.readings import Fault, Parsed, collect
from hushgrid.intake.text import ColumnMapping, Encoding, Unit

if TYPE_CHECKING:
    from hushgrid.learning.histories import Histories
    from hushgrid.learning.learner import Watch

HEAD, TAIL = 1 << 18, 1 << 16  # [bytes] that are looked at
_LEAST, _FEWEST = 0.5, 0.2  # share of rows that a layout has to read; one that is built in
_UNNAMED = ("table", "json")  # forms that need not name meters
_ARROW = (".parquet", ".arrow", ".arrows")
_ROWS = 2000  # of an Arrow or Parquet file that are looked at
BY_COLUMNS = "by its columns"

_METER = re.compile(
    r"meter|lclid|mpan|mprn|nmi|esiid|ean|cups|prm|customer|household|house|home|site|client"
    r"|account|point|serial|device|^id$|[ _]id$|dataid|participant|zähler|compteur|contador"
)
_TIME = re.compile(r"time|tstp|date|start|from|begin|period|zeit|von|horodat|fecha|^ts$|hour|utc")
_END = re.compile(r"\bend|_end|until|\bto\b|\bbis\b")
_LENGTH = re.compile(r"duration|length|resolution|interval_s|interval_length")
_VALUE = re.compile(
    r"k?wh|consum|import|usage|energy|used|value|verbrauch|bezug|reading|load|power|grid|^k?w$|"
    r"[ _(\[]k?w[)\]]?$|demand|active|^a\+|^val"
)
_FED_IN = re.compile(r"export|generat|inject|fed|feed|received|produc|solar|einspeis|^a-|return|pv")
_OTHER = re.compile(r"kvar|reactive|volt|current|temp|cost|price|tariff|status|quality|flag|count")
_UNIT = re.compile(r"(?<![a-z])(mwh|kwh|wh|kw|w)(?![a-z])")
_FLOW = re.compile(r"regist|direction|flow|channel|suffix|^type$|category|obis|kind")
_IMPORT = re.compile(
    r"import|consum|deliver|\ba\+|\+a|1[.]8[.]|^e\d*$|afname|bezug|taken|from grid|net ?draw|usage"
)
_CLOCK = re.compile(r"([01]?[0-9]|2[0-4]):[0-5][0-9]")
_FORMATS = tuple(
    f"{date} {time}".strip()
    for date in (
        *("%Y-%m-%d", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d %b %Y"),
        *("%d-%b-%Y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%Y%m%d"),
    )
    for time in ("%H:%M", "%H:%M:%S", "%H%M", "")
)


class Layout(NamedTuple):
    """How the rows of a file are read.

    Attributes:
        name: Of the mapping, or `BY_COLUMNS`.
        mapping: The mapping.
        notes: What was taken, and why, one sentence each.
    """

    name: str
    mapping: ColumnMapping
    notes: tuple[str, ...] = ()


class _Sample(NamedTuple):
    """Names of columns, and rows from the beginning and from the end of a table."""

    names: list[str]
    rows: list[list[str]]
    end: int  # of the rows: from here on they are of the end
    delimiter: str = ","
    encoding: Encoding = "utf-8"

    def column(self, name: str) -> list[str]:
        at = self.names.index(name)
        return [row[at].strip() for row in self.rows if len(row) > at]


def layout_of(path: Path, time_zone: str | None = None, unit: Unit | None = None) -> Layout:
    """Find out how the rows of a file are read.

    Args:
        path: The file: CSV, JSON, Parquet, Arrow, Green Button XML or an export of a utility.
        time_zone: Of times without an offset; None: that of a layout that is built in, else UTC.
        unit: Of values; None: as the layout or the name of the column says, else by their size.

    Returns:
        The layout.

    Raises:
        IntakeError: If none reads its rows.
        FileError: If the file cannot be read.
    """
    try:
        if path.suffix.lower() not in (".txt", ""):
            format_of(path)
        if path.suffix.lower() in _ARROW:
            return _checked(path, _of_columns(path, _table_sample(path), time_zone, unit))
        if path.suffix.lower() == ".xml":
            return Layout("green_button", mapping_named("canonical"))
        with path.open("rb") as stream:
            head = stream.read(HEAD)
        if layout := _built_in(path, head, unit):
            return layout
        if path.suffix.lower() in (".json", ".ndjson", ".jsonl"):
            raise IntakeError(
                "its rows fit no layout that is known; give --mapping with the fields of"
                " docs/meter-data.md."
            )
        return _checked(path, _of_columns(path, _text_sample(path, head), time_zone, unit))
    except IntakeError as error:
        raise IntakeError(f"{path}: {error}") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); give a file.") from None


def _built_in(path: Path, head: bytes, unit: Unit | None) -> Layout | None:
    """The mapping that reads most of the first rows, and fewest of them as malformed."""
    best, layout = (0, 0), None
    for name in BUILT_IN:
        mapping = mapping_named(name)
        if mapping.meter is None and mapping.meter_id is None and mapping.form in _UNNAMED:
            mapping = replace(mapping, meter_id=path.stem[:64] or "home")
        content = path.read_bytes() if mapping.form == "json" else head[:TAIL]
        if len(content) == TAIL:  # whole lines
            content = content[: content.rfind(b"\n") + 1]
        parsed = _parsed(path, content, mapping)
        score = (len(parsed.readings), -parsed.malformed) if parsed else (0, 0)
        if parsed and score > best and score[0] > _FEWEST * (score[0] - score[1]):
            best, layout = score, Layout(name, replace(mapping, unit=unit or mapping.unit))
            if not parsed.malformed and not parsed.reasons:  # every row
                break
    return layout


def _parsed(path: Path, content: bytes, mapping: ColumnMapping) -> Parsed | None:
    """What a mapping reads of some bytes; None where it does not fit."""
    try:
        form = format_by(mapping, lambda: format_of(path))
        return collect(form.batches(iter([content]), mapping))
    except (HushgridError, UnicodeDecodeError):
        return None


def _checked(path: Path, layout: Layout) -> Layout:
    """A layout, once it reads rows of the file."""
    if path.suffix.lower() in _ARROW:
        return layout
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if len(head) == HEAD:
        head = head[: head.rfind(b"\n") + 1]
    parsed = _parsed(path, head, layout.mapping)
    count = len(parsed.readings) if parsed else 0
    if parsed is None or count <= _LEAST * (count + parsed.malformed):
        reason = f" ({parsed.problems[0]})" if parsed and parsed.problems else ""
        raise IntakeError(
            f"its rows fit no layout that is known{reason}; give --mapping with its columns, as in"
            " docs/meter-data.md."
        )
    return layout


# ---- tables of other columns


def _table_sample(path: Path) -> _Sample:
    """Columns and rows of a file of Arrow or Parquet."""
    from pyarrow import ArrowException, ipc, parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = next(parquet.ParquetFile(path).iter_batches(batch_size=_ROWS))
        else:
            with path.open("rb") as stream, ipc.open_stream(stream) as reader:
                table = next(reader)
    except (ArrowException, OSError, ValueError, StopIteration):
        raise IntakeError("it is no whole Arrow or Parquet file; give another copy.") from None
    rows = [
        ["" if value is None else _cell(value) for value in row.values()]
        for row in table.slice(0, _ROWS).to_pylist()
    ]
    names = [n for n in table.schema.names if not n.startswith("__index")]
    at = [table.schema.names.index(name) for name in names]
    return _Sample(names, [[row[i] for i in at] for row in rows], len(rows))


def _cell(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _text_sample(path: Path, head: bytes) -> _Sample:
    """Columns and rows of a text file."""
    encoding: Encoding = "utf-8"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        try:
            head[: head.rfind(b"\n") + 1].decode("utf-8")
        except UnicodeDecodeError:
            encoding = "cp1252"
    text = head.decode("utf-8-sig" if encoding == "utf-8" else encoding, "ignore")
    lines = [line for line in text.splitlines() if line.strip()]
    lines = lines[:-1] if len(head) == HEAD else lines
    if len(lines) < 2:
        raise IntakeError("it has no header and no rows; give a file of readings.")
    delimiter = max(",;\t|", key=lines[0].count)
    if not lines[0].count(delimiter):
        raise IntakeError("its first line names no columns; give a file whose first line does.")
    late: list[str] = []
    if len(head) == HEAD and encoding != "utf-16":
        with path.open("rb") as stream:
            stream.seek(max(path.stat().st_size - TAIL, HEAD))
            late = stream.read().decode(encoding, "ignore").splitlines()[1:]
    parts = [fields_of(line, delimiter) for line in (*lines, *late)]
    names, *rows = [fields for fields in parts if fields]
    return _Sample([n.strip() for n in names], rows, len(lines) - 1, delimiter, encoding)


def _of_columns(path: Path, sample: _Sample, zone: str | None, unit: Unit | None) -> Layout:
    """A mapping by the names and values of columns."""
    names, notes = sample.names, list[str]()
    plain = {name: " ".join(name.casefold().replace("_", " ").split()) for name in names}
    if {"meter_id", "start_utc", "duration_s", "wh"} <= set(names):
        mapping = mapping_named("canonical")
        return Layout("canonical", replace(mapping, unit=unit or mapping.unit))
    clocks = [name for name in names if _CLOCK.fullmatch(name)]
    length = _first(plain, _LENGTH)
    unit_column = next((name for name in names if plain[name] in ("unit", "uom")), None)
    flow = _first(
        plain, _FLOW, lambda name: not _numbers(sample.column(name)) or _obis(sample, name)
    )
    end = _first(plain, _END, lambda name: _looks_like_time(sample, name))
    times = [
        name
        for name in names
        if _TIME.search(plain[name]) and name not in (end, length) and name not in clocks
        and _looks_like_time(sample, name)
    ]  # fmt: skip
    if not times and end:
        times, end = [end], None
    if not times:
        raise IntakeError(
            f"no column of times is seen among {_listed(names)}; give --mapping with its columns,"
            " as in docs/meter-data.md."
        )
    fields = dict[str, Any](delimiter=sample.delimiter, encoding=sample.encoding)
    fields |= _times(sample, times, plain, zone, notes)
    used = {*times, end, length, flow, unit_column}
    meter = _first(plain, _METER, lambda name: name not in used and not _UNIT.search(plain[name]))
    if meter is None:
        fields["meter_id"] = path.stem[:64] or "home"
        notes.append("No column names a meter, so the file is taken as that of one home.")
    else:
        fields["meter"] = meter
        notes.append(f"Homes are told apart by the column {meter!r}.")
    used.add(meter)
    if clocks:
        value = clocks[0]
        fields |= {"value": value, "last_value": clocks[-1], "duration_s": 86_400 // len(clocks)}
        notes.append(f"A row is a day: values are in {len(clocks)} columns of times of the clock.")
        values = [cell for name in clocks for cell in sample.column(name)[:50]]
    else:
        value = _value(sample, plain, used, notes)
        fields["value"] = value
        values = sample.column(value)
        if length is not None:
            minutes = "min" in plain[length] or "min" in "".join(sample.column(length)[:1]).lower()
            iso = sample.column(length)[:1] and sample.column(length)[0].startswith("P")
            fields |= {"duration": length, "duration_unit": "iso" if iso else
                       "min" if minutes else "s"}  # fmt: skip
        elif end is not None:
            fields["end"] = end
        else:
            fields["duration_s"] = seconds = _step(sample, fields, meter)
            notes.append(f"A reading lasts {seconds} s, the usual time between two of a meter.")
    if sample.delimiter != "," and any(re.fullmatch(r"-?\d+,\d+", cell) for cell in values):
        fields["decimal"] = ","
    if flow is not None:
        _directions(sample, flow, fields, notes)
    if unit_column is not None:
        written = Counter(cell.casefold() for cell in sample.column(unit_column)).most_common(1)
        unit = unit or _known_unit(written[0][0] if written else "")
    fields["unit"] = unit or _unit(plain[value], values, fields, notes)
    return Layout(BY_COLUMNS, ColumnMapping(**fields), tuple(notes))


def _first(
    plain: Mapping[str, str], pattern: re.Pattern[str], fits: Callable[[str], bool] = lambda _: True
) -> str | None:
    return next((name for name in plain if pattern.search(plain[name]) and fits(name)), None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names[:12])


def _numbers(cells: Sequence[str]) -> bool:
    """Whether all cells that have something are numbers."""
    filled = [cell for cell in cells[:2000] if cell]
    return bool(filled) and all(re.fullmatch(r"[-+]?[\d.,]+(e-?\d+)?", c, re.I) for c in filled)


def _obis(sample: _Sample, name: str) -> bool:
    return all(re.fullmatch(r"(\d-\d:)?\d\.\d(\.\d)?", c) for c in sample.column(name)[:50] if c)


def _looks_like_time(sample: _Sample, name: str) -> bool:
    cells = [cell for cell in sample.column(name)[:20] if cell]
    return bool(cells) and all(
        re.search(
            r"\d{1,4}[-/. ](\d{1,2}|[A-Za-z]{3})[-/. ]\d{2,4}|^\d{8,10}$|^\d{1,2}:\d{2}", cell
        )
        for cell in cells
    )


def _times(
    sample: _Sample, columns: Sequence[str], plain: Mapping[str, str], zone: str | None,
    notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    """Column, form and zone of times."""
    clock = [n for n in columns if all(_CLOCK.match(c) for c in sample.column(n)[:20] if c)]
    dates = [name for name in columns if name not in clock]
    fields: dict[str, Any] = {"time": (dates or clock)[0]}
    cells = sample.column(fields["time"])
    if clock and dates and not any(":" in cell for cell in cells[:20]):
        fields = {"date": dates[0], "time": clock[0]}
        cells = [f"{a} {b}" for a, b in zip(cells, sample.column(clock[0]), strict=False)]
    filled = [cell for cell in cells if cell]
    offset = re.search(r"(Z|[+-]\d{2}:?\d{2})$", filled[0]) if filled else None
    fields["time_format"] = "iso" if offset else _format(filled)
    if not offset and fields["time_format"] != "%s":
        utc = any("utc" in plain[name] or "gmt" in plain[name] for name in columns)
        fields["time_zone"] = "UTC" if utc else zone or "UTC"
        if not utc:
            notes.append(
                f"Times are taken as those of clocks of {zone}."
                if zone
                else "Times have no offset; they are taken as those of a clock that is never set"
                " forward or back. Give --time-zone where it is."
            )
    if re.search(r"\bend\b|ending", plain[fields["time"]]):
        fields["marks"] = "end"
        notes.append(f"Times in {fields['time']!r} are taken as the ends of readings.")
    return fields


def _format(cells: Sequence[str]) -> str:
    """The form of times: that which reads all of them, and by which they pass most evenly."""
    if all(re.fullmatch(r"\d{9,10}", cell) for cell in cells[:50]):
        return "%s"
    if _all_read(cells, datetime.fromisoformat) and not re.fullmatch(r"\d{8}", cells[0]):
        return "iso"
    fitting = [form for form in _FORMATS if _all_read(cells, _reader(form))]
    if not fitting:
        raise IntakeError(
            "the form of its times is not known; give --mapping with time_format, as in"
            " docs/meter-data.md."
        )

    def evenness(form: str) -> int:
        times = list(map(_reader(form), cells[:2000]))
        return Counter(b - a for a, b in pairwise(times)).most_common(1)[0][1] if times[1:] else 0

    return max(fitting, key=evenness)


def _reader(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form)


def _all_read(cells: Sequence[str], read: Callable[[str], datetime]) -> bool:
    try:
        for cell in cells:
            read(cell)
    except ValueError:
        return False
    return bool(cells)


def _instants(sample: _Sample, fields: Mapping[str, Any]) -> list[datetime]:
    cells = sample.column(fields["time"])
    if "date" in fields:
        cells = [f"{a} {b}" for a, b in zip(sample.column(fields["date"]), cells, strict=False)]
    form = fields["time_format"]
    if form == "%s":
        return [datetime.fromtimestamp(int(cell)) for cell in cells if cell]
    read = datetime.fromisoformat if form == "iso" else _reader(form)
    return [read(cell) for cell in cells if cell]


def _step(sample: _Sample, fields: Mapping[str, Any], meter: str | None) -> int:
    """Usual seconds between times of a meter."""
    times = _instants(sample, fields)[: sample.end]
    owners = sample.column(meter) if meter else [""] * len(times)
    by_meter: dict[str, set[datetime]] = {}
    for owner, time in zip(owners, times, strict=False):
        by_meter.setdefault(owner, set()).add(time)
    gaps = Counter(
        int((b - a).total_seconds())
        for starts in by_meter.values()
        for a, b in pairwise(sorted(starts))
    )
    if not gaps:
        raise IntakeError("no meter has two readings, so their length is not known; give more.")
    return gaps.most_common(1)[0][0]


def _value(
    sample: _Sample, plain: Mapping[str, str], used: set[str | None], notes: list[str]
) -> str:
    """The column of energy taken from the grid."""
    columns = [
        name
        for name in plain
        if name not in used and not _OTHER.search(plain[name]) and _numbers(sample.column(name))
    ]
    taken = [name for name in columns if not _FED_IN.search(plain[name])]
    named = [name for name in taken if _VALUE.search(plain[name])] or (
        taken if len(taken) == 1 else []
    )
    if not named:
        raise IntakeError(
            f"no column of energy is seen among {_listed(sample.names)}; give --mapping with its"
            " columns, as in docs/meter-data.md."
        )
    best = next((n for n in named if "import" in plain[n]), None) or next(
        (n for n in named if _UNIT.search(plain[n])), named[0]
    )
    fed_in = [name for name in columns if _FED_IN.search(plain[name])]
    notes.append(f"Energy taken from the grid is in the column {best!r}.")
    if fed_in:
        notes.append(f"The column {fed_in[0]!r} is energy fed in and is left out.")
    return best


def _directions(sample: _Sample, flow: str, fields: dict[str, Any], notes: list[str]) -> None:
    """Registers: rows of energy fed in are left out."""
    kinds = sorted(set(filter(None, sample.column(flow))))
    imports = tuple(kind for kind in kinds if _IMPORT.search(kind.casefold()))
    imports = tuple(kind for kind in imports if not _FED_IN.search(kind.casefold()))
    if 1 < len(kinds) <= 12 and imports and len(imports) < len(kinds):
        fields["only"] = ((flow, imports),)
        notes.append(
            f"Of the column {flow!r} the rows {', '.join(map(repr, imports))} are taken; the others"
            " are left out."
        )


def _known_unit(text: str) -> Unit | None:
    match = _UNIT.search(text.casefold())
    return match[1] if match else None  # type: ignore[return-value]


def _unit(name: str, values: Sequence[str], fields: Mapping[str, Any], notes: list[str]) -> Unit:
    """The unit that a column's name has, else by the size of a day."""
    if (known := _known_unit(name)) is not None:
        return known
    numbers = [
        float(cell.replace(",", ".") if fields.get("decimal") == "," else cell)
        for cell in values
        if cell and (cell.count(",") == 0 or fields.get("decimal") == ",")
    ]
    mean = sum(numbers) / max(len(numbers), 1)
    hours = (fields.get("duration_s") or 1800) / 3600
    kilo = mean / hours < 20  # a mean home takes 0.1 to 2 kW
    unit: Unit = "kwh" if kilo else "wh"
    notes.append(f"No unit is named; by their size values are {'kWh' if kilo else 'Wh'}.")
    return unit


class FileRead(NamedTuple):
    """A file that was read.

    Attributes:
        path: The file.
        sha256: Digest of its bytes.
        layout: How its rows were read.
    """

    path: Path
    sha256: str
    layout: Layout


class HomesRead(NamedTuple):
    """Homes of one or more files.

    Attributes:
        histories: Their readings on one axis of local time.
        files: The files.
        time_zone: Where days begin at 0:00.
        notes: What was taken, and why, one sentence each.
    """

    histories: Histories
    files: tuple[FileRead, ...]
    time_zone: str
    notes: tuple[str, ...]


def read_homes(
    paths: Sequence[Path],
    *,
    mapping: str | None = None,
    time_zone: str | None = None,
    seconds: int | None = None,
    unit: Unit | None = None,
    watch: Watch | None = None,
) -> HomesRead:
    """Read files of any layout, and say what was taken.

    Args:
        paths: Files, or folders of them.
        mapping: As `mapping_of` takes it; None: the layout of each file is found.
        time_zone: Of times without an offset, and where days begin; None: that of a layout that is
            built in, else UTC.
        seconds: Step [s]; None: the length of most readings.
        unit: Of values; None: as the layout says.
        watch: Progress, called with a label and the size [bytes].

    Returns:
        The homes.

    Raises:
        IntakeError: If a file has no layout that is known, or no reading.
        FileError: If a file cannot be read.
    """
    files = list(_files(paths))
    layouts = [
        layout_of(path, time_zone, unit)
        if mapping is None
        else Layout(mapping, mapping_of(mapping), ())
        for path in files
    ]
    parts, digests = list[Parsed](), list[str]()
    for path, layout in zip(files, layouts, strict=True):
        parts.append(read_readings(path, layout.mapping, watch))
        digests.append(_sha256(path))
    parsed = collect(parts)
    zones = {layout.mapping.time_zone for layout in layouts} - {"UTC"}
    zone = time_zone or (min(zones) if len(zones) == 1 else "UTC")
    histories = local_histories(parsed, zone, seconds)
    notes = list(dict.fromkeys(note for layout in layouts for note in layout.notes))
    notes += _counted(parsed, histories)
    reads = map(FileRead, files, digests, layouts)
    return HomesRead(histories, tuple(reads), zone, tuple(notes))


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _counted(parsed: Parsed, histories: Histories) -> list[str]:
    """Rows that gave no reading, in sentences."""
    notes = []
    if fed_in := sum(e.rows for e in parsed.reasons if e.text == Fault.LEFT_OUT.text):
        notes.append(f"{fed_in:,} rows of energy fed in, or of other kinds, are left out.")
    if parsed.malformed:
        first = parsed.problems[0] if parsed.problems else "none can be read"
        notes.append(f"{parsed.malformed:,} rows are no readings and are left out ({first}).")
    for kind, words in (
        ("duplicates", "readings come twice and count once"),
        ("conflicts", "readings come again with another value; the first counts"),
        ("incomplete", "intervals are covered in part and count as missing"),
    ):
        if count := histories.counts.get(kind, 0):
            notes.append(f"{count:,} {words}.")
    if exporting := int((histories.wh < 0).any(axis=1).sum()):
        notes.append(
            f"{exporting} of {len(histories.ids)} homes feed energy in at times; such intervals"
            " count as 0 Wh."
        )
    return notes


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Files of a list, those of folders in order of their names."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        files = sorted(part for part in path.iterdir() if part.is_file())
        if not files:
            raise FileError(f"{path} is a folder without files; give files of readings.")
        yield from files
