"""A certificate of an audit as JSON (docs/certificate.md), as text and as a page of HTML.

The page has no script and loads nothing from other addresses.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.audit.black_box import BlackBox
from hushgrid.audit.bounds import Bound
from hushgrid.audit.certificate import Certificate, LargestMove
from hushgrid.audit.evidence import Terms
from hushgrid.audit.houses import DELTA, Houses
from hushgrid.audit.recompute import Recomputed
from hushgrid.errors import HushgridError
from hushgrid.mechanism.policy import Policy
from hushgrid.planning.planner import examine
from hushgrid.report._figures import BLUE, ORANGE, chart, loss, number, render, table
from hushgrid.report.comparison import KNOWS
from hushgrid.report.promise import (
    COVERS_WORDS,
    covers_head,
    covers_json,
    covers_rows,
    finite_or_none,
    home_words,
    promise_sentence,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        "epsilon_t": finite_or_none(_largest(terms.policy)),
        **_figures(terms),
        "delta": terms.delta,
        "eta": terms.policy.eta,
        "horizon": terms.policy.horizon,
        "budget": terms.budget,
        "rule": terms.policy.rule,
        "models": len(terms.models),
        **home_words(terms.secret, terms.promised, terms.window).content,
        "sentence": promise_sentence(
            terms.policy,
            terms.secret,
            terms.promised,
            delta=terms.delta,
            continued=terms.continued,
            window=terms.window,
        ),
    }


def _largest(policy: Policy) -> float:
    """The largest epsilon of a policy for one release."""
    return max(policy.epsilon_at(t) for t in range(1, policy.horizon + 1))


def _figures(terms: Terms) -> dict[str, Any]:
    """What one release, the first day's and week's say about one step; what the promise covers.

    Nothing if models are private.
    """
    day = round(24 / terms.days.hours)
    policy = terms.policy.first(7 * day)
    world = (terms.zone, terms.tariff, terms.models, terms.consumption, policy)
    try:
        seen = examine(*world, epsilon=terms.promised, window=terms.window_steps)
    except HushgridError:
        return {"leakage": None, "covers": []}
    each = [seen.leaked_by(terms.models, n) for n in (day, 7 * day)]
    return {
        "leakage": {
            "step": finite_or_none(max(seen.epsilon_t)),
            "day": each[0],
            "week": each[1],
        },
        "covers": covers_json(seen.covers(round(terms.days.hours * 3600))),
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
    epsilon = _largest(made.terms.policy)
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
        "realised_max": finite_or_none(max((one.loss for one in houses.realised), default=None)),
        "mixture_max": finite_or_none(max(mixture.values(), default=None)),
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
                "realised": finite_or_none(realised[house].loss if house in realised else None),
                "mixture": finite_or_none(mixture.get(house)),
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
        policy, epsilon = made.terms.policy, _largest(made.terms.policy)
        over = [
            one for one in houses.realised if one.loss > policy.epsilon_at(one.step) * (1 + 1e-9)
        ]
        if over:
            most = max(over, key=lambda one: one.loss)
            lines.append(
                f"Houses in blocks: the exact loss of one release is {most.loss:.4f} about house"
                f" {most.house}, above {policy.epsilon_at(most.step):g}; the rule"
                f" {policy.blocks!r} does not bound that, the rule 'block' does."
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
        others = houses.leakage[worst] > houses.total[worst] * (1 + 1e-9)
        which = " with those of neighbouring epochs" if others else ""
        return (
            f"Zone {houses.zone}, {houses.releases} releases: together{which} they leak at most"
            f" {houses.leakage[worst]:.3f} about any one step of the worst house (house {worst}),"
            f" and{' on their own' if others else ''} at most {houses.total[worst]:.3f} about its"
            " whole record."
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
    if values["promise"] and values["promise"]["covers"]:
        covers = table([covers_head(), *covers_rows(values["promise"]["covers"])])
        lines += ["", COVERS_WORDS, covers]
    for title, key in (("Assumptions", "assumptions"), ("What this cannot show", "cannot_show")):
        if values[key]:
            lines += ["", f"{title}:", *(f"- {line}" for line in values[key])]
    return "\n".join(lines)


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
    box = values["black_box"]
    tested = [] if box is None else [("one release", box["one_step"])]
    if box is not None and box["trajectory"] is not None:
        tested.append((f"{box['steps']} releases", box["trajectory"]))
    charts = {
        "losses": chart(lambda axes: _losses(axes, tested), 0.9 + 0.4 * len(tested)),
        "scale": [chart(partial(_scales, zone=zone)) for zone in values["zones"]],
        "leakage": [_leakage_chart(zone) for zone in values["zones"]],
    }
    return render(
        "certificate.html",
        **{**values, "zones": [{**z, "table": _house_table(z)} for z in values["zones"]]},
        title=f"Privacy certificate: {name}",
        charts=charts,
        covered=COVERS_WORDS,
        covers=(covers_head(), covers_rows(promise["covers"]) if promise else []),
        tested=tested,
        watched=_watched_rows(values["zones"]),
        scored=_scored(values["attack"]),
    )


def _watched_rows(zones: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            zone["zone"],
            move["releases"],
            move["filter"],
            "no bound" if move["moved_max"] is None else f"{move['moved_max']:.4f}",
            f"house {move['house']}, step {move['step']}",
            "no bound" if move["bound"] is None else f"{move['bound']:.4f}",
        )
        for zone in zones
        if (move := zone["watched"]) is not None
    ]


_SCORES = ("auc", "auc_prior", "log_loss", "log_loss_prior", "brier", "accuracy")


def _scored(attack: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Attacks scored against the truth of a simulated day; none for other figures."""
    if not attack or not all(isinstance(one, Mapping) and "auc" in one for one in attack.values()):
        return []
    return [
        (KNOWS.get(knows, knows), *("–" if one[k] is None else f"{one[k]:.3f}" for k in _SCORES))
        for knows, one in attack.items()
    ]


def _losses(axes: Axes, tested: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Certified losses as bars, promised ones as marks."""
    names = [name for name, _ in tested]
    axes.barh(names, [one["epsilon_lower"] for _, one in tested], color=BLUE, label="certified")
    promised = [np.nan if one["promised"] is None else one["promised"] for _, one in tested]
    axes.plot(
        promised, names, "|", color=ORANGE, markersize=22, markeredgewidth=3, label="promised"
    )
    axes.set(xlabel="epsilon", xlim=(0, None))
    axes.invert_yaxis()


def _scales(axes: Axes, zone: Mapping[str, Any]) -> None:
    for key, label, color, style in (
        ("stated", "stated", BLUE, "-"),
        ("due", "due by the terms", ORANGE, "--"),
    ):
        values = [scale or np.nan for scale in zone[key]]
        axes.stairs(values, np.arange(len(values) + 1) + 0.5, baseline=None, label=label,
                    color=color, linestyle=style, linewidth=1.6)  # fmt: skip
    axes.set(xlabel="step", ylabel="scale [Wh]", ylim=(0, None))


def _leakage_chart(zone: Mapping[str, Any]) -> str | None:
    """Leakage about one step, worst house first; None if there is none."""
    leaks = sorted((h["leakage"] for h in zone["houses"] if h["leakage"] is not None), reverse=True)

    def draw(axes: Axes) -> None:
        axes.stairs(
            leaks, np.arange(len(leaks) + 1) + 0.5, baseline=None, color=BLUE, linewidth=1.6
        )
        axes.set(xlabel="houses, worst first", ylabel="epsilon", ylim=(0, None))

    return chart(draw) if leaks else None


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


def _house_table(zone: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the houses; columns without figures are left out."""
    text = {key: loss if key in ("loss", "total", "any_total") else number for key in _COLUMNS}
    houses = zone["houses"]
    columns = [
        k for k in _COLUMNS if text[k] is loss or any(house[k] is not None for house in houses)
    ]
    rows = [[text[key](house[key]) for key in columns] for house in houses]
    return [_COLUMNS[key] for key in columns], rows
