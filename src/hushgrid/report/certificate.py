"""A certificate of an audit as JSON (docs/certificate.md), as text and as a page of HTML.

The page has no script and loads nothing from other addresses.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from hushgrid.audit.black_box import BlackBox
from hushgrid.audit.bounds import Bound
from hushgrid.audit.certificate import Certificate, LargestMove
from hushgrid.audit.evidence import Terms
from hushgrid.audit.houses import DELTA, Houses
from hushgrid.audit.recompute import Recomputed
from hushgrid.report.comparison import KNOWS
from hushgrid.report.figures import bars, html_document, line_plot
from hushgrid.report.promise import finite_or_none, promise_sentence

FORMAT = "hushgrid-certificate/1"
MOST_HOUSES = 2000  # rows of the table; the worst ones where a zone has more
_VERDICT = {
    "passed": "Every check that applies passed.",
    "failed": "A check failed: the publisher does not do what it promises.",
    "incomplete": "Nothing failed, but not everything could be checked.",
}


def certificate_json(found: Certificate) -> dict[str, Any]:
    """The certificate under its public keys.

    Args:
        found: The certificate.

    Returns:
        The values of docs/certificate.md; a figure that does not exist is None.
    """
    command = _audit_command(found.inputs)
    return {
        "format": FORMAT,
        "verdict": found.verdict,
        "simulated": found.simulated,
        "summary": _summary(found),
        "checks": [
            {
                "id": check.id,
                "status": check.status,
                "first_bad": check.first_bad,
                "text": check.text,
                "recompute": _of_check(check.id, found.inputs, command),
            }
            for check in found.checks
        ],
        "epsilon_lower": found.epsilon_lower,
        "promise": None if found.terms is None else _promise(found.terms),
        "assumptions": list(found.assumptions),
        "cannot_show": list(found.cannot_show),
        "eta_set_by": None if found.terms is None else (found.terms.eta_set_by or "not stated"),
        "provenance": {} if found.terms is None else dict(found.terms.provenance),
        "black_box": None if found.black_box is None else _black_box(found.black_box, command),
        "zones": [
            _zone(made, houses, move, f"{command} | jq .zones[{i}]")
            for i, (made, houses, move) in enumerate(
                zip(found.recomputed, found.houses, found.moves, strict=True)
            )
        ],
        "attack": None if found.attack is None else dict(found.attack),
        "inputs": dict(found.inputs),
        "recompute": command,
    }


def _audit_command(inputs: Mapping[str, Any]) -> str:
    """The command that reproduces the certificate."""
    words = ["hushgrid", "audit", str(inputs.get("file", "FILE"))]
    for path in inputs.get("config", ()):
        words += ["--config", str(path)]
    for name in ("zone", "publisher", "samples", "confidence", "seed", "key"):
        if inputs.get(name) is not None:
            words += [f"--{name}", str(inputs[name])]
    for digest in inputs.get("heads", ()):
        words += ["--head", str(digest)]
    return f"{shlex.join(words)} --json -"


def _of_check(name: str, inputs: Mapping[str, Any], command: str) -> str:
    ledger = "ledger" in str(inputs.get("kind", ""))
    if name == "chain" and ledger and not str(inputs.get("file")).endswith(".toml"):
        extra = "".join(f" --head {digest}" for digest in inputs.get("heads", ()))
        extra += f" --key {inputs['key']}" if inputs.get("key") else ""
        return f"hushgrid ledger verify {shlex.quote(str(inputs['file']))}{extra}"
    return f"{command} | jq '.checks[] | select(.id == \"{name}\")'"


def _promise(terms: Terms) -> dict[str, Any]:
    return {
        "zone": terms.zone.id,
        "houses": terms.zone.n_houses,
        "secret": terms.secret,
        "epsilon": terms.promised,
        "epsilon_t": finite_or_none(terms.policy.epsilon_at(1)),
        "delta": terms.delta,
        "eta": terms.policy.eta,
        "horizon": terms.policy.horizon,
        "budget": terms.budget,
        "rule": terms.policy.rule,
        "models": len(terms.models),
        "sentence": promise_sentence(
            terms.policy, terms.secret, terms.promised, delta=terms.delta, continued=terms.continued
        ),
    }


def _black_box(box: BlackBox, command: str) -> dict[str, Any]:
    return {
        "houses": list(box.houses),
        "samples": box.samples,
        "confidence": box.confidence,
        "scale": box.scale,
        "one_step": _bound(box.one_step, box.promised),
        "steps": box.steps,
        "trajectory": (
            None if box.trajectory is None else _bound(box.trajectory, box.promised_trajectory)
        ),
        "recompute": f"{command} | jq .black_box",
    }


def _bound(bound: Bound, promised: float) -> dict[str, Any]:
    return {
        "epsilon_lower": bound.epsilon,
        "promised": finite_or_none(promised),
        "score": bound.score,
        "side": bound.side,
        "threshold": bound.threshold,
        "toward": bound.toward,
        "at_least": bound.high,
        "at_most": bound.low,
        "hits": list(bound.hits),
        "samples": list(bound.samples),
    }


def _zone(
    made: Recomputed, houses: Houses, move: LargestMove | None, command: str
) -> dict[str, Any]:
    worst = houses.worst
    by = houses.total if houses.leakage is None else houses.leakage
    order = np.argsort(-np.where(np.isfinite(by), by, np.inf), kind="stable")[:MOST_HOUSES]
    realised = {one.house: one for one in houses.realised}
    mixture = dict(houses.mixture)
    epsilon = made.terms.policy.epsilon_at(1)
    return {
        "zone": houses.zone,
        "first": houses.first,
        "digest": made.epoch.digest,
        "releases": houses.releases,
        "steps": len(made.stated),
        "epsilon": finite_or_none(epsilon),
        "worst": {
            "house": worst,
            "loss": finite_or_none(float(houses.loss[worst])),
            "total": finite_or_none(float(houses.total[worst])),
            "leakage": None if houses.leakage is None else float(houses.leakage[worst]),
            "composed": finite_or_none(houses.composed),
            "composed_delta": DELTA,
        },
        "realised_max": max((one.loss for one in houses.realised), default=None),
        "mixture_max": max(mixture.values(), default=None),
        "watched": None if move is None else _watched(move),
        "stated": [finite_or_none(b) for b in made.stated],
        "due": [finite_or_none(b) for b in made.due],
        "houses": [
            {
                "house": house,
                "bound": int(houses.bound[house]),
                "protected": int(houses.protected[house]),
                "loss": finite_or_none(float(houses.loss[house])),
                "total": finite_or_none(float(houses.total[house])),
                "leakage": None if houses.leakage is None else float(houses.leakage[house]),
                "any_total": finite_or_none(float(houses.any_total[house])),
                "realised": realised[house].loss if house in realised else None,
                "mixture": mixture.get(house),
                "moved": None if move is None else finite_or_none(float(move.moved[house])),
            }
            for house in order.tolist()
        ],
        "houses_left_out": len(houses.bound) - len(order),
        "recompute": command,
    }


def _watched(move: LargestMove) -> dict[str, Any]:
    return {
        "filter": move.filter,
        "releases": move.releases,
        "moved_max": finite_or_none(float(move.moved.max())),
        "house": move.house,
        "step": move.step,
        "bound": finite_or_none(move.bound),
    }


def _summary(found: Certificate) -> list[str]:
    """The most important findings, one sentence each."""
    failed = [check for check in found.checks if check.status == "failed"]
    lines = [_VERDICT[found.verdict]]
    lines += [f"Failed: {check.id}. {check.text}" for check in failed]
    if found.simulated:
        lines.append("These releases are of a simulation: their noise gives no protection.")
    if found.terms is not None:
        lines.append(f"Promised: {_lower(_promise(found.terms)['sentence'])}")
    box = found.black_box
    if box is not None:
        lines.append(
            f"A test from outside could certify a loss of {box.one_step.epsilon:.3f} of one"
            f" release; {box.promised:.3f} is promised (confidence {box.confidence:.0%}). A"
            " certified loss is a lower bound: passing proves no promise."
        )
    for houses in found.houses:
        lines.append(_of_houses(houses))
    for move in found.moves:
        if move is not None:
            limit = "there is no bound" if move.bound is None else f"the bound is {move.bound:.3f}"
            far = float(move.moved.max())
            moved = f"by at most {far:.3f}" if math.isfinite(far) else "to certainty"
            lines.append(
                f"Zone {move.zone}: an adversary who sees what was published and knows the public"
                f" models moved its log odds {moved} (house {move.house}, step {move.step},"
                f" {move.releases} releases, {move.filter} filter); {limit}."
            )
    for made, houses in zip(found.recomputed, found.houses, strict=True):
        epsilon = made.terms.policy.epsilon_at(1)
        over = [one for one in houses.realised if one.loss > epsilon * (1 + 1e-9)]
        if over:
            most = max(over, key=lambda one: one.loss)
            lines.append(
                f"Houses in blocks: the exact loss of one release is {most.loss:.4f} about house"
                f" {most.house}, above {epsilon:g}; the rule"
                f" {made.terms.policy.blocks!r} does not bound that, the rule 'block' does."
            )
        mixture = max((loss for _, loss in houses.mixture), default=0.0)
        if mixture > epsilon * (1 + 1e-9):
            lines.append(
                f"An adversary unsure between the models of Theta can learn {mixture:.4f} from one"
                f" release, above {epsilon:g}; the promise is for each model by itself."
            )
    skipped = [check.id for check in found.checks if check.status == "not_checked"]
    if skipped:
        lines.append(f"Not checked: {', '.join(skipped)}.")
    return lines


def _of_houses(houses: Houses) -> str:
    worst = houses.worst
    if houses.leakage is not None and math.isfinite(houses.total[worst]):
        return (
            f"Zone {houses.zone}, {houses.releases} releases: together they leak at most"
            f" {houses.leakage[worst]:.3f} about any one step of the worst house (house {worst}),"
            f" and at most {houses.total[worst]:.3f} about its whole record."
        )
    if math.isfinite(houses.total[worst]):  # how fast habits change is not public
        return (
            f"Zone {houses.zone}, {houses.releases} releases: together they leak at most"
            f" {houses.total[worst]:.3f} about anything in the record of the worst house (house"
            f" {worst})."
        )
    return (
        f"Zone {houses.zone}, {houses.releases} releases: one or more have no finite loss (Gaussian"
        " noise, or none while a house is uncertain), so there is no bound in epsilon on what they"
        " leak together."
    )


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def certificate_prose(values: Mapping[str, Any]) -> str:
    """The certificate for a terminal: summary, checks, assumptions.

    Args:
        values: Values of `certificate_json`.

    Returns:
        Lines of text.
    """
    lines = [f"Verdict: {values['verdict']}.", *(f"  {line}" for line in values["summary"])]
    lines += ["", "Checks:"]
    width = max(len(check["id"]) for check in values["checks"])
    for check in values["checks"]:
        bad = "" if check["first_bad"] is None else f" [first bad: {check['first_bad']}]"
        status = check["status"].replace("_", " ")
        lines.append(f"  {check['id'].ljust(width)}  {status:14} {check['text']}{bad}")
    for title, key in (("Assumptions", "assumptions"), ("What this cannot show", "cannot_show")):
        if values[key]:
            lines += ["", f"{title}:", *(f"- {line}" for line in values[key])]
    return "\n".join(lines)


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
    """The certificate as a page, with the command that reproduces each figure.

    Args:
        values: Values of `certificate_json`.

    Returns:
        The HTML.
    """
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
        *(part for zone in values["zones"] for part in _page_zone(zone)),
        "<h2>What this cannot show</h2>",
        _list(values["cannot_show"]),
        *_origin(values),
        "<h2>How to recompute this certificate</h2>",
        _command(values["recompute"]),
    ]
    return html_document(f"Privacy certificate: {name}", _STYLE, body)


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
    """A loss that is always known: None means infinite."""
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
    terms = {
        "epsilon": promise["epsilon"],
        "delta": promise["delta"],
        "trust eta": f"{promise['eta']:g} (set by: {values['eta_set_by']})",
        "horizon, steps": promise["horizon"],
        "budget": "none" if promise["budget"] is None else promise["budget"],
        "houses": promise["houses"],
        "models in Theta": promise["models"],
        "rules": promise["rule"],
    }
    rows = [(_t(name), _t(value)) for name, value in terms.items()]
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
    losses = [(name, one["epsilon_lower"], one["promised"]) for name, one in rows]
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
        bars(losses, title="Certified and promised loss"),
        _list(words),
        _command(box["recompute"]),
    ]


def _attacked(values: Mapping[str, Any]) -> list[str]:
    parts = ["<h2>What an adversary with the paper's knowledge achieved</h2>"]
    rows = [
        (
            _t(zone["zone"]),
            _t(move["releases"]),
            _t(move["filter"]),
            "no bound" if move["moved_max"] is None else f"{move['moved_max']:.4f}",
            _t(f"house {move['house']}, step {move['step']}"),
            "no bound" if move["bound"] is None else f"{move['bound']:.4f}",
        )
        for zone in values["zones"]
        if (move := zone["watched"]) is not None
    ]
    if rows:
        head = ("zone", "releases", "filter", "log odds moved", "where", "bound")
        parts += [
            "<p>The adversary saw every release and knows the public models. In hindsight, for each"
            " model separately, its log odds left the prior's by at most:</p>",
            _table(head, rows),
        ]
    attack = values["attack"]
    if attack is not None:
        parts.append(_scored(attack))
    return parts if len(parts) > 1 else [*parts, _none("nothing on record to attack")]


_SCORES = ("auc", "auc_prior", "log_loss", "log_loss_prior", "brier", "accuracy")


def _scored(attack: Mapping[str, Any]) -> str:
    """Attacks scored against the truth of a simulated day; other figures as given."""
    if not all(isinstance(each, Mapping) and "auc" in each for each in attack.values()):
        return _table(("figure", "value"), [(_t(key), _t(value)) for key, value in attack.items()])
    rows = [
        (_t(KNOWS.get(knows, knows)), *(f"{one[k]:.3f}" if one[k] is not None else "–"
                                         for k in _SCORES))
        for knows, one in attack.items()
    ]  # fmt: skip
    head = ("adversary", "AUC", "AUC of the prior", "log loss", "of the prior", "Brier", "right")
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


def _page_zone(zone: Mapping[str, Any]) -> list[str]:
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
        "houses in blocks, one release": zone["realised_max"],
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
    columns = [k for k in _COLUMNS if any(house[k] is not None for house in houses)]
    rows = [[_number(house[key]) for key in columns] for house in houses]
    left = zone["houses_left_out"]
    more = f'<p class="soft">{left} houses that lose less are left out.</p>' if left else ""
    head = [_COLUMNS[key] for key in columns]
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
        "<h2>Origin of models and laws</h2>",
        _table(("", "in the words of the file"), rows) if rows else _none("no terms were given"),
        "<h2>What was read</h2>",
        _table(("file", "SHA-256"), files),
    ]
