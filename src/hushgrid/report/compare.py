"""A comparison as tables, prose and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hushgrid.baselines import Ready
from hushgrid.baselines.battery import LABELS, NO_PROMISE
from hushgrid.baselines.meters import BatteryScore
from hushgrid.compare import AUCS, BATTERY_POWER, BATTERY_SIZE, FIGURES, OPEN, PARTS, Comparison
from hushgrid.intervals import Summary, summarise
from hushgrid.report.shared import table


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _summary(s: Summary) -> dict[str, Any]:
    return {"mean": _plain(s.mean), "sd": _plain(s.sd), "ci95": [_plain(x) for x in s.ci95]}


def comparison_json(
    result: Comparison, curve: Sequence[Comparison], batteries: Sequence[BatteryScore]
) -> dict[str, Any]:
    """The figures under their public keys; estimated ratios first."""
    promise = result.promise
    return {
        "secret": promise.secret,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "days": result.days,
        "ratios": _ratios(result),
        "mechanisms": _mechanisms(result, batteries),
        "refused": result.refused,
        OPEN: _aucs(result, OPEN),
        "curve": [_curve_point(point) for point in curve],
        "batteries": [
            {"name": s.name, "size": s.size, "auc": _summary(s.auc), "moved": s.moved}
            for s in batteries
        ],
    }


def _mechanisms(result: Comparison, batteries: Sequence[BatteryScore]) -> dict[str, Any]:
    at_meter = {s.name: _summary(s.auc) for s in batteries if s.size == BATTERY_SIZE}
    out: dict[str, Any] = {}
    for method in result.methods:
        ready = result.ready[method.name]
        if not isinstance(ready, Ready):
            continue
        out[method.name] = {
            part: {f: _summary(result.summary(method.name, part, f)) for f in FIGURES}
            for part in PARTS
        } | {
            "label": method.label,
            "online": method.online,
            "eta": method.eta,
            "guarantee": ready.guarantee,
            "scale": ready.scale,
            **_aucs(result, method.name),
        }
    for name in LABELS:
        moved = summarise([row[name]["moved"][0] for row in result.rows])
        out[name] = {
            "estimated": None,
            "raw": {f: _summary(result.summary(name, "raw", f)) for f in FIGURES},
            "cut": {f: _summary(result.summary(name, "cut", f)) for f in FIGURES},
            "label": LABELS[name],
            "online": True,
            "per_house": True,
            "eta": None,
            "guarantee": NO_PROMISE,
            "capacity": BATTERY_SIZE,
            "power": BATTERY_POWER,
            "moved": _summary(moved),
            "auc": at_meter.get(name),  # at the house's own meter
        }
    return out


def _aucs(result: Comparison, name: str) -> dict[str, Any]:
    found = {key: result.auc(name, key) for key in AUCS}
    return {key: _summary(s) if s else None for key, s in found.items()}


def _pairs(result: Comparison) -> list[tuple[str, str]]:
    ours = [n for n in result.names if n.startswith("hushgrid") or n == "bound"]
    return [
        (other, our)
        for our in ours
        for other in ("group", "forecast", "bound")
        if other in result.names and other != our
    ]


def _ratios(result: Comparison) -> dict[str, Any]:
    return {
        f"{other}_over_{our}": {
            part: _summary(result.ratio(other, our, part))
            | {"gap_ci95": list(result.gap(other, our, part).ci95)}
            for part in PARTS
        }
        for other, our in _pairs(result)
    }


def _curve_point(point: Comparison) -> dict[str, Any]:
    return {
        "epsilon": point.promise.epsilon,
        "days": point.days,
        "mechanisms": {
            name: {part: _summary(point.summary(name, part)) for part in PARTS}
            for name in point.names
        },
    }


def comparison_table(result: Comparison) -> str:
    """Errors in thousandths, the paper's formula; best estimate first."""
    rows: list[tuple[str, ...]] = [
        (
            "method",
            "eta",
            "estimated, e-3",
            "raw, e-3",
            "cut, e-3",
            "mismatch cost, est. / raw / cut",
            "AUC, knowing nothing / all others",
        )
    ]
    order = sorted(result.names, key=lambda n: result.summary(n, "estimated").mean)
    by_name = {m.name: m for m in result.methods}
    for name in order:
        method = by_name[name]
        rows.append(
            (
                method.label + ("" if method.online else " (offline)"),
                "-" if method.eta is None else f"{method.eta:g}",
                *(_thousandths(result.summary(name, part)) for part in PARTS),
                _wasted(result, name, PARTS),
                _auc_text(result, name),
            )
        )
    if result.auc(OPEN):
        rows.append(("no noise (no promise)", "-", "-", "0", "0", "-", _auc_text(result, OPEN)))
    for name, label in LABELS.items():
        both = [_thousandths(result.summary(name, part)) for part in PARTS[1:]]
        wasted = f"- / {_wasted(result, name, PARTS[1:])}"
        rows.append((f"{label} (no promise)", "-", "-", *both, wasted, "-"))
    return table(rows)


def _wasted(result: Comparison, name: str, parts: Sequence[str]) -> str:
    return " / ".join(f"{result.summary(name, p, 'mismatch_cost').mean:.3g}" for p in parts)


def _auc_text(result: Comparison, name: str) -> str:
    found = [result.auc(name, key) for key in AUCS]
    return " / ".join(f"{s.mean:.4f}" if s else "-" for s in found) if any(found) else "-"


def _thousandths(s: Summary) -> str:
    return f"{s.mean * 1e3:.3f} ({s.ci95[0] * 1e3:.3f} to {s.ci95[1] * 1e3:.3f})"


def terms_prose(result: Comparison, model: str) -> str:
    """What is promised, on how many days, and what the columns are."""
    promise = result.promise
    return "\n".join(
        [
            f"- Secret {promise.secret}, epsilon = {promise.epsilon:g}"
            + (f", delta = {promise.delta:g}" if promise.delta else "")
            + f", {result.days} days; the public model is {model}.",
            "- Errors are RMSRE in the paper's formula, with 95 % intervals over the days.",
            "- estimated: the rate of the public's best guess; raw: the noisy rate as it is; cut:"
            " the noisy rate cut to the tariff's limits.",
        ]
    )


def ratio_table(result: Comparison) -> str:
    """Errors of others over ours, estimated first, on paired days."""
    rows: list[tuple[str, ...]] = [("error of", "over", *PARTS)]
    labels = {m.name: m.label for m in result.methods}
    for other, our in _pairs(result):
        found = [result.ratio(other, our, part) for part in PARTS]
        told = (f"{r.mean:.3f} ({r.ci95[0]:.3f} to {r.ci95[1]:.3f})" for r in found)
        rows.append((labels[other], labels[our], *told))
    return table(rows)


def guarantee_prose(result: Comparison) -> str:
    """What each method promises, or why it is left out."""
    lines = []
    for method in result.methods:
        ready = result.ready[method.name]
        if isinstance(ready, Ready):
            lines.append(f"- {method.label}: {ready.guarantee}.")
        else:
            lines.append(f"- {method.label}: left out: {ready.reason}.")
    return "\n".join(lines)


def battery_table(scores: Sequence[BatteryScore]) -> str:
    """What a watcher of one meter still learns, by size."""
    rows = [("battery", "capacity, in u", "her AUC", "energy moved / used")]
    for s in scores:
        low, high = s.auc.ci95
        rows.append(
            (
                {"open": "none", "prior": "no meter, public model alone"}.get(
                    s.name, LABELS.get(s.name, s.name)
                ),
                f"{s.size:g}",
                f"{s.auc.mean:.3f} ({low:.3f} to {high:.3f})",
                f"{s.moved:.2f}",
            )
        )
    return table(rows)
