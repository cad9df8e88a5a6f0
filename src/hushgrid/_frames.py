"""Results as tables: a pandas data frame where it is asked for, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from hushgrid.errors import HushgridError, require

ROWS, COLUMNS = 10, 12  # that a notebook shows; more are cut in the middle


class DataTable(NamedTuple):
    """A table.

    Attributes:
        name: What the rows are, such as "step".
        rows: Label of each row.
        columns: Values of each column by its label, one a row.
    """

    name: str
    rows: Sequence[Any]
    columns: Mapping[Any, Any]


class Tabular:
    """A result that is a table; it says which by `_table`."""

    __slots__ = ()

    def _table(self) -> DataTable:
        raise NotImplementedError

    def to_frame(self) -> Any:
        """The result as a pandas data frame.

        Returns:
            The `pandas.DataFrame`.

        Raises:
            ExtraError: If pandas is not installed.
        """
        pandas = require("pandas", "frame")
        name, rows, columns = self._table()
        return pandas.DataFrame(dict(columns), index=pandas.Index(list(rows), name=name))

    def _repr_html_(self) -> str:
        return html_table(repr(self), self._table())


def html_table(caption: str, table: DataTable, rows: int = ROWS) -> str:
    """A table as HTML, its middle left out where it is long.

    Args:
        caption: What it is.
        table: The table.
        rows: How many of its rows are shown.

    Returns:
        One element.

    >>> html_table("x < y", DataTable("step", [1], {"rate": [0.25]}))[:41]
    '<table><caption>x &lt; y</caption><thead>'
    """
    row_numbers, labels = _ends(range(len(table.rows)), rows), _ends(list(table.columns), COLUMNS)
    head = "".join(f"<th>{_cell(label)}</th>" for label in (table.name, *labels))
    lines = []
    for row in row_numbers:
        cells = [
            _GAP if row is _GAP or label is _GAP else table.columns[label][row] for label in labels
        ]
        label = _GAP if row is _GAP else table.rows[row]
        values = "".join(f"<td>{_cell(cell)}</td>" for cell in cells)
        lines.append(f"<tr><th>{_cell(label)}</th>{values}</tr>")
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )


_GAP: Any = "…"


def _ends(values: Sequence[Any], most: int) -> list[Any]:
    if len(values) <= most:
        return list(values)
    half = most // 2
    return [*values[:half], _GAP, *values[-half:]]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):  # numpy's are floats too
        return f"{value:.5g}"
    return escape(str(value))


def check_labels(error: type[HushgridError], **arrays: Any) -> None:
    """Refuse pandas series or frames whose labels differ: their values are of other houses.

    Labels 0, 1, 2 and so on say nothing, so they are not compared.

    Args:
        error: The class of the error.
        **arrays: The values, by their names in the message.

    Raises:
        HushgridError: The given class, if two have different labels, or another order.
    """
    for axis in ("index", "columns"):
        first, usual = "", list[Any]()
        for name, values in arrays.items():
            if not (labels := _labels(values, axis)):
                continue
            for place, (label, before) in enumerate(zip(labels, usual, strict=False)):
                if label != before:
                    raise error(
                        f"{name} has the label {label!r} at place {place} where {first} has"
                        f" {before!r}; give both with the same labels in the same order."
                    )
            first, usual = first or name, usual or labels


def _labels(values: Any, axis: str) -> list[Any]:
    """The labels of a series or frame; none where they are 0, 1, 2 and so on."""
    labels: Any = getattr(values, axis, None)
    if callable(labels) or not hasattr(labels, "tolist"):  # a list has a method `index`
        return []
    listed: list[Any] = labels.tolist()
    return [] if listed == list(range(len(listed))) else listed
