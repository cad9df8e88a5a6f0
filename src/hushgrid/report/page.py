"""A certificate as one page of HTML that asks nothing of anybody: no script, no outside address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from hushgrid.report.attack import KNOWS
from hushgrid.report.svg import bars, line_plot

_STYLE = """
:root{color-scheme:light dark;--ink:#1a1c1e;--soft:#5b6470;--line:#d8dde3;--paper:#fff;
--card:#f5f7f9;--good:#1b7f4b;--bad:#b3261e;--part:#8a6100;--one:#0b6e99;--two:#c4622d}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#9aa4b0;--line:#333a42;
--paper:#14171a;--card:#1d2125;--good:#5cc98d;--bad:#ff8a80;--part:#e0b252;--one:#5db8e0;
--two:#f0a070}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:2rem 1.25rem 4rem;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:1.6rem;margin:0 0 .25rem}h2{font-size:1.2rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
p,ul{margin:.4rem 0}ul{padding-left:1.2rem}
.soft{color:var(--soft)}
.verdict{border-left:6px solid var(--soft);background:var(--card);padding:1rem 1.2rem;
border-radius:4px;margin:1rem 0}
.verdict.passed{border-color:var(--good)}.verdict.failed{border-color:var(--bad)}
.verdict.incomplete{border-color:var(--part)}
.verdict b{font-size:1.15rem;text-transform:capitalize}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid var(--line)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}
.s{white-space:nowrap;font-weight:600}
.s.passed{color:var(--good)}.s.failed{color:var(--bad)}
.s.noted,.s.not_checked{color:var(--part)}.s.not_applicable{color:var(--soft);font-weight:400}
code{font:.82rem/1.4 ui-monospace,Menlo,Consolas,monospace;overflow-wrap:anywhere}
pre{background:var(--card);padding:.5rem .8rem;border-radius:4px;margin:.4rem 0;overflow-x:auto}
pre code{white-space:pre-wrap}
svg{width:100%;height:auto;max-width:46rem;display:block;margin:.4rem 0}
svg text{fill:currentColor;font:12px system-ui,sans-serif}svg .axis{fill:var(--soft);font-size:11px}
svg .grid{stroke:var(--line);fill:none}svg .one{stroke:var(--one);stroke-width:2;fill:none}
svg .two{stroke:var(--two);stroke-width:1.5;stroke-dasharray:5 4;fill:none}
svg .bar{fill:var(--one)}svg .mark{stroke:var(--two);stroke-width:2.5;fill:none}
details summary{cursor:pointer;color:var(--soft)}
@media(max-width:600px){.checks thead{display:none}.checks tr{display:block;padding:.5rem 0;
border-bottom:1px solid var(--line)}.checks td{display:inline-block;border:0;padding:.1rem .4rem}
.checks td:nth-child(3)::before{content:"first bad: ";color:var(--soft)}
.checks td:last-child{display:block}}
@media print{body{max-width:none;padding:0;font-size:11pt}pre,table,svg{break-inside:avoid}
tr{break-inside:avoid}}
"""


def certificate_page(values: Mapping[str, Any]) -> str:
    """The page of a certificate, from its JSON: the same figures, each with its command."""
    promise = values["promise"]
    zones = dict.fromkeys(zone["zone"] for zone in values["zones"])
    own = promise["zone"] if promise else values["inputs"].get("file", "")
    name = ", ".join(zones) if len(zones) > 1 else own
    body = [
        f"<h1>Privacy certificate: {_t(name)}</h1>",
        f'<p class="soft">{_t(_about(values))}</p>',
        f'<section class="verdict {_t(values["verdict"])}"><b>{_t(values["verdict"])}</b>',
        _list(values["summary"]),
        "</section>",
        *_promised(values),
        "<h2>Assumptions</h2>",
        _list(values["assumptions"]) if values["assumptions"] else _none("no terms were given"),
        *_tested(values["black_box"]),
        *_attacked(values),
        *_checks(values["checks"]),
        *(part for zone in values["zones"] for part in _zone(zone)),
        "<h2>What this cannot show</h2>",
        _list(values["cannot_show"]),
        *_origin(values),
        "<h2>The whole certificate again</h2>",
        _command(values["recompute"]),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Privacy certificate: {_t(name)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _t(value: Any) -> str:
    return escape(str(value))


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_t(line)}</li>" for line in lines) + "</ul>"


def _none(why: str) -> str:
    return f'<p class="soft">None: {_t(why)}.</p>'


def _command(command: str) -> str:
    return f"<pre><code>{_t(command)}</code></pre>"


def _about(values: Mapping[str, Any]) -> str:
    inputs = values["inputs"]
    what = f"{inputs.get('kind', 'audit')} {inputs.get('file', '')}".strip()
    return f"{what}, {values['format']}"


def _number(value: Any, digits: int = 4) -> str:
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else _t(value)


def _or_endless(value: float | None) -> float | str:
    """A loss that is always known: null is infinite."""
    return "no bound" if value is None else value


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    kind = ' class="n"' if numbers else ""
    cells = "".join(f"<th{kind}>{_t(cell)}</th>" for cell in head)
    lines = ["<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    return (
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _promised(values: Mapping[str, Any]) -> list[str]:
    promise = values["promise"]
    if promise is None:
        return ["<h2>What is promised</h2>", _none("give the terms with --config")]
    shown = {
        "epsilon": promise["epsilon"],
        "delta": promise["delta"],
        "trust eta": f"{promise['eta']:g} (set by: {values['eta_set_by']})",
        "horizon, steps": promise["horizon"],
        "budget": "none" if promise["budget"] is None else promise["budget"],
        "houses": promise["houses"],
        "models in Theta": promise["models"],
        "rules": promise["rule"],
    }
    rows = [(_t(name), _t(value)) for name, value in shown.items()]
    return [
        "<h2>What is promised</h2>",
        f"<p>{_t(promise['sentence'])}</p>",
        _table(("", ""), rows),
    ]


def _tested(box: Mapping[str, Any] | None) -> list[str]:
    title = "<h2>What a test from outside could certify</h2>"
    if box is None:
        return [title, _none("no --publisher was given")]
    rows = [("one release", box["one_step"])]
    if box["trajectory"] is not None:
        rows.append((f"{box['steps']} releases", box["trajectory"]))
    shown = [(name, one["epsilon_lower"], one["promised"]) for name, one in rows]
    words = [
        f"{name}: the event “{one['score']} {one['side']} {one['threshold']:.4g}” has probability"
        f" at least {one['at_least']:.4f} in one world ({one['hits'][one['toward']]} of"
        f" {one['samples'][one['toward']]}) and at most {one['at_most']:.4f} in the other"
        f" ({one['hits'][1 - one['toward']]} of {one['samples'][1 - one['toward']]})."
        for name, one in rows
    ]
    houses = ", ".join(map(str, box["houses"][:8]))
    return [
        title,
        f"<p>Two worlds differ in the occupancy of house {_t(houses)}, the calibration's worst."
        f" Clopper–Pearson at confidence {box['confidence']:g}, {box['samples']} samples a side."
        " A lower bound: it can show a broken promise, never a kept one.</p>",
        bars(shown, title="Certified and promised loss"),
        _list(words),
        _command(box["recompute"]),
    ]


def _attacked(values: Mapping[str, Any]) -> list[str]:
    parts = ["<h2>What an attacker with the paper's knowledge achieved</h2>"]
    rows = [
        (
            _t(zone["zone"]),
            _t(seen["releases"]),
            _t(seen["filter"]),
            "no bound" if seen["moved_max"] is None else f"{seen['moved_max']:.4f}",
            _t(f"house {seen['house']}, step {seen['step']}"),
            "no bound" if seen["bound"] is None else f"{seen['bound']:.4f}",
        )
        for zone in values["zones"]
        if (seen := zone["watched"]) is not None
    ]
    if rows:
        head = ("zone", "releases", "filter", "log odds moved", "where", "bound")
        parts += [
            "<p>She saw everything that was published and knows the public models. In hindsight,"
            " each model apart, her log odds left the prior's by at most:</p>",
            _table(head, rows),
        ]
    attack = values["attack"]
    if attack is not None:
        parts.append(_scored(attack))
    return parts if len(parts) > 1 else [*parts, _none("nothing on record to attack")]


_SCORES = ("auc", "auc_prior", "log_loss", "log_loss_prior", "brier", "accuracy")


def _scored(attack: Mapping[str, Any]) -> str:
    """Attacks scored against the truth of a simulated day; or figures as they were given."""
    if not all(isinstance(each, Mapping) and "auc" in each for each in attack.values()):
        return _table(("figure", "value"), [(_t(key), _t(value)) for key, value in attack.items()])
    rows = [
        (_t(KNOWS.get(knows, knows)), *(f"{one[k]:.3f}" if one[k] is not None else "–"
                                         for k in _SCORES))
        for knows, one in attack.items()
    ]  # fmt: skip
    head = ("she", "AUC", "AUC of the prior", "log loss", "of the prior", "Brier", "right")
    return "<p>Scored against the truth of the simulated day, all houses:</p>" + _table(head, rows)


def _checks(checks: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            f"<b>{_t(check['id'])}</b>",
            f'<span class="s {_t(check["status"])}">{_t(check["status"].replace("_", " "))}</span>',
            "–" if check["first_bad"] is None else _t(check["first_bad"]),
            f"{_t(check['text'])}<details><summary>recompute</summary>"
            f"<code>{_t(check['recompute'])}</code></details>",
        )
        for check in checks
    ]
    table = _table(("check", "status", "first bad", "what was found"), rows)
    return ["<h2>Checks</h2>", f'<div class="checks">{table}</div>']


def _zone(zone: Mapping[str, Any]) -> list[str]:
    worst = zone["worst"]
    stated = [b or None for b in zone["stated"]]
    due = [b or None for b in zone["due"]]
    leaks = sorted((h["leakage"] for h in zone["houses"] if h["leakage"] is not None), reverse=True)
    totals = {
        "worst house": worst["house"],
        "one release, at most": _or_endless(worst["loss"]),
        "all releases about one step": worst["leakage"],
        "all releases, whole record": _or_endless(worst["total"]),
        f"the same as (epsilon, delta = {worst['composed_delta']:g})": worst["composed"],
        "houses that move together, one release": zone["realised_max"],
        "a prior mixed over Theta, one release": zone["mixture_max"],
    }
    rows = [(_t(name), _number(value)) for name, value in totals.items()]
    return [
        f"<h2>Zone {_t(zone['zone'])}, from step {zone['first']}: {zone['releases']} releases</h2>",
        _table(("loss", "epsilon"), rows),
        "<h3>Noise scale</h3>",
        line_plot(
            [("stated", "one", stated), ("due by the terms", "two", due)],
            x="step",
            y="scale [Wh]",
            title="Noise scale stated and due",
        ),
        "<h3>Leakage about one step, house by house</h3>",
        line_plot(
            [("leakage", "one", leaks)], x="houses, worst first", y="epsilon", title="Leakage"
        ),
        "<h3>House by house</h3>",
        _houses(zone),
        _command(zone["recompute"]),
    ]


_COLUMNS = {
    "house": "house",
    "bound": "bound [Wh]",
    "protected": "steps uncertain",
    "loss": "one release",
    "total": "whole record",
    "leakage": "about one step",
    "any_total": "whatever is consumed",
    "realised": "in its block",
    "mixture": "mixed over Theta",
}


def _houses(zone: Mapping[str, Any]) -> str:
    houses = [
        {**house, **{k: _or_endless(house[k]) for k in ("loss", "total", "any_total")}}
        for house in zone["houses"]
    ]
    shown = [k for k in _COLUMNS if any(house[k] is not None for house in houses)]
    rows = [[_number(house[key]) for key in shown] for house in houses]
    left = zone["houses_left_out"]
    more = f'<p class="soft">{left} houses that lose less are left out.</p>' if left else ""
    head = [_COLUMNS[key] for key in shown]
    table = _table(head, rows, numbers=True)
    if len(rows) <= 40:
        return table + more
    few = _table(head, rows[:10], numbers=True)
    return f"{few}<details><summary>all {len(rows)} houses</summary>{table}</details>{more}"


def _origin(values: Mapping[str, Any]) -> list[str]:
    rows = [(_t(name), _t(text)) for name, text in values["provenance"].items()]
    files = [
        (f"<code>{_t(name)}</code>", f"<code>{_t(digest or 'not read whole')}</code>")
        for name, digest in values["inputs"].get("digests", {}).items()
    ]
    return [
        "<h2>Where models and laws come from</h2>",
        _table(("", "in the words of the file"), rows) if rows else _none("no terms were given"),
        "<h2>What was read</h2>",
        _table(("file", "SHA-256"), files),
    ]
