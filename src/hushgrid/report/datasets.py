"""What a file of a public data set holds, as JSON and as text; no reading, no id of a home."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hushgrid._numbers import count_of
from hushgrid.files.datasets import DatasetReport

_SHOWN = 5  # files of a folder that are listed


def report_json(report: DatasetReport) -> dict[str, Any]:
    """What files hold, under public keys.

    Args:
        report: What was read.

    Returns:
        Values for JSON.
    """
    tally, dataset = report.tally, report.dataset
    return {
        "ok": not report.problems,
        "problems": list(report.problems),
        "layout": report.layout,
        "dataset": None
        if dataset is None
        else {
            "name": dataset.name,
            "title": dataset.title,
            "publisher": dataset.publisher,
            "licence": dataset.licence,
            "note": dataset.note,
        },
        "unit": report.unit,
        "interval_s": tally.interval,
        "homes": len(tally.homes),
        "readings": tally.readings,
        "malformed": tally.malformed,
        "reasons": {reason.text: reason.rows for reason in tally.reasons},
        "missing": tally.missing,
        "first": report.begins,
        "last": report.ends,
        "kwh_a_day": tally.kwh_a_day,
        "files": [
            {"file": str(file.path), "sha256": file.sha256, "known": file.known}
            for file in report.files
        ],
    }


def report_prose(report: DatasetReport) -> str:
    """What files hold, in plain words.

    Args:
        report: What was read.

    Returns:
        Lines of text.
    """
    tally, dataset = report.tally, report.dataset
    title = "canonical columns, of no data set that is known here"
    if dataset is not None:
        title = f"{dataset.title} ({dataset.publisher}; {dataset.licence})"
    lines = [f"{title}: layout {report.layout}"]
    if tally.readings:
        count = f"{count_of('home', len(tally.homes))}, {count_of('reading', tally.readings)}"
        lines += [
            f"  {count} of {tally.interval // 60} minutes, written in {report.unit},"
            f" {report.begins} to {report.ends}",
            f"  {tally.missing:.1%} missing between each home's first and last reading;"
            f" {count_of('row', tally.malformed)} without one; a mean home takes"
            f" {tally.kwh_a_day:.3g} kWh a day",
        ]
    if dataset is not None:
        lines.append(f"  {dataset.note}")
    for file in islice(report.files, _SHOWN):
        known = f"known: {file.known}" if file.known else "not known here; compare it with yours"
        lines.append(f"  SHA-256 {file.sha256} {file.path.name} ({known})")
    if len(report.files) > _SHOWN:
        lines.append(f"  and {len(report.files) - _SHOWN} more files, in --json")
    problems = [f"wrong: {problem}" for problem in report.problems] or ["good"]
    return "\n".join([*lines, *(f"  {line}" for line in problems)])
