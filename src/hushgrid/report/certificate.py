"""A certificate as JSON (docs/certificate.md) and as plain words."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hushgrid.audit.blackbox import BlackBox
from hushgrid.audit.bounds import Bound
from hushgrid.audit.certificate import Certificate
from hushgrid.audit.houses import DELTA, Houses
from hushgrid.audit.ledger import Recomputed
from hushgrid.audit.terms import Terms
from hushgrid.audit.watched import LargestMove
from hushgrid.report.plan import finite_or_none
from hushgrid.report.sentence import promise_sentence

FORMAT = "hushgrid-certificate/1"
MOST_HOUSES = 2000  # rows of the table; the worst ones where a zone has more
_VERDICT = {
    "passed": "Every check that applies passed.",
    "failed": "A check failed: the publisher does not do what it promises.",
    "incomplete": "Nothing failed, but not everything could be checked.",
}


def certificate_json(found: Certificate) -> dict[str, Any]:
    """The certificate under its public keys; a figure that does not exist is null."""
    command = audit_command(found.inputs)
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
            _zone(made, houses, seen, f"{command} | jq .zones[{i}]")
            for i, (made, houses, seen) in enumerate(
                zip(found.recomputed, found.houses, found.watched, strict=True)
            )
        ],
        "attack": None if found.attack is None else dict(found.attack),
        "inputs": dict(found.inputs),
        "recompute": command,
    }


def audit_command(inputs: Mapping[str, Any]) -> str:
    """The command that gives the same certificate again."""
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
            terms.policy,
            terms.secret,
            terms.promised,
            delta=terms.delta,
            continued=terms.continued,
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
    made: Recomputed, houses: Houses, seen: LargestMove | None, command: str
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
        "watched": None if seen is None else _watched(seen),
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
                "moved": None if seen is None else finite_or_none(float(seen.moved[house])),
            }
            for house in order.tolist()
        ],
        "houses_left_out": len(houses.bound) - len(order),
        "recompute": command,
    }


def _watched(seen: LargestMove) -> dict[str, Any]:
    return {
        "filter": seen.filter,
        "releases": seen.releases,
        "moved_max": finite_or_none(float(seen.moved.max())),
        "house": seen.house,
        "step": seen.step,
        "bound": finite_or_none(seen.bound),
    }


def _summary(found: Certificate) -> list[str]:
    """What a reader should know first."""
    failed = [check for check in found.checks if check.status == "failed"]
    lines = [_VERDICT[found.verdict]]
    lines += [f"Failed: {check.id}. {check.text}" for check in failed]
    if found.simulated:
        lines.append("These releases are of a simulation: their noise protects nobody.")
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
    for seen in found.watched:
        if seen is not None:
            limit = "no bound on what" if seen.bound is None else f"{seen.bound:.3f} is the most"
            far = float(seen.moved.max())
            moved = f"by at most {far:.3f}" if math.isfinite(far) else "to certainty"
            lines.append(
                f"Zone {seen.zone}: an adversary who sees what was published and knows the public"
                f" models moved its log odds {moved} (house {seen.house}, step {seen.step},"
                f" {seen.releases} releases, {seen.filter} filter); {limit} they could tell."
            )
    for made, houses in zip(found.recomputed, found.houses, strict=True):
        epsilon = made.terms.policy.epsilon_at(1)
        over = [one for one in houses.realised if one.loss > epsilon * (1 + 1e-9)]
        if over:
            most = max(over, key=lambda one: one.loss)
            lines.append(
                f"Houses that move together: one release really tells {most.loss:.4f} about house"
                f" {most.house}, above {epsilon:g}; the rule"
                f" {made.terms.policy.blocks!r} does not bound that, the rule 'block' does."
            )
        mixed = max((loss for _, loss in houses.mixture), default=0.0)
        if mixed > epsilon * (1 + 1e-9):
            lines.append(
                f"Somebody unsure between the models of Theta can learn {mixed:.4f} from one"
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
            f"Zone {houses.zone}, {houses.releases} releases: together they tell at most"
            f" {houses.leakage[worst]:.3f} about any one step of the worst house (house {worst}),"
            f" and at most {houses.total[worst]:.3f} about its whole record."
        )
    if math.isfinite(houses.total[worst]):  # how fast habits change is not public
        return (
            f"Zone {houses.zone}, {houses.releases} releases: together they tell at most"
            f" {houses.total[worst]:.3f} about anything in the record of the worst house (house"
            f" {worst})."
        )
    return (
        f"Zone {houses.zone}, {houses.releases} releases: one or more have no finite loss (Gaussian"
        " noise, or none while a house is uncertain), so there is no bound in epsilon on what they"
        " tell together."
    )


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def certificate_prose(values: Mapping[str, Any]) -> str:
    """The certificate for a terminal: summary, checks, assumptions."""
    lines = [f"Verdict: {values['verdict']}.", *(f"  {line}" for line in values["summary"])]
    lines += ["", "Checks:"]
    width = max(len(check["id"]) for check in values["checks"])
    for check in values["checks"]:
        bad = "" if check["first_bad"] is None else f" [first bad: {check['first_bad']}]"
        status = check["status"].replace("_", " ")
        lines.append(f"  {check['id'].ljust(width)}  {status:14} {check['text']}{bad}")
    for title, key in (("Assumptions", "assumptions"), ("What this cannot show", "cannot_show")):
        shown: Sequence[str] = values[key]
        if shown:
            lines += ["", f"{title}:", *(f"- {line}" for line in shown)]
    return "\n".join(lines)
