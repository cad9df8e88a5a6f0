"""A certificate of an audit as JSON, as text and as a page of HTML (docs/audit.md).

The page has no script and loads nothing from other addresses. The keys of the JSON; `[]` means
each entry of a list, a figure that does not exist is null, and new keys may be added:

    format: `hushgrid-certificate/1`
    verdict: `passed`, `failed`, or `incomplete`: nothing failed, but something could not be
        checked
    simulated: whether releases are of a simulation, whose noise protects no one
    summary[]: what to know first, in sentences
    checks[].id: which check, see docs/audit.md
    checks[].status: `passed`, `failed`, `noted`, `not_checked`, `not_applicable`
    checks[].first_bad: first record, line or step that fails
    checks[].text: what was found
    checks[].recompute: command that checks it again
    epsilon_lower: loss of one release that the black-box test certifies
    promise.zone: name of the zone
    promise.houses: their number
    promise.secret: `step`, `interval` or `window`
    promise.epsilon: what is promised about it
    promise.epsilon_t: the largest epsilon of the policy for one release; under rules that bound
        less, a release loses more (`worst.loss`)
    promise.leakage.step: what one release may say about one step
    promise.leakage.day: the same of the first day of releases
    promise.leakage.week: the same of the first week, or of a shorter run
    promise.words: the promise in a householder's words
    promise.not_covered[]: what they do not cover
    promise.covers[].duration: a stretch of time (ISO 8601): a quarter hour, a day, a week, two
        weeks, a month
    promise.covers[].shift: the most by which all prices shift log odds between any two stories
        about a home in it, all else known
    promise.covers[].auc_limit: a bound on the AUC of the best attack on a home that uses its
        limit
    promise.covers[].auc_typical: the same on a home that uses `usual`, as an example
        (docs/proofs/covers.md)
    promise.eta: share of every reading's law that may be anything
    promise.horizon: steps of one run
    promise.rule: the policy's rules
    promise.models: models in Theta
    promise.sentence: the promise in words
    assumptions[]: what must hold for it
    cannot_show[]: what no audit of this kind shows
    eta_set_by: who set eta, and why
    provenance.*: where each model and each group's laws come from
    black_box.houses[]: whose occupancy differs between the two worlds
    black_box.samples: a side
    black_box.confidence: of both bounds together
    black_box.scale: noise due at step 1 [Wh]
    black_box.steps: of the trajectory
    black_box.one_step.epsilon_lower: certified for one release
    black_box.one_step.promised: promised for it
    black_box.one_step.score: what is compared with the threshold: `load`, `likelihood`,
        `classifier`
    black_box.one_step.side: `above` or `below`
    black_box.one_step.threshold: of the score
    black_box.one_step.toward: world, 0 or 1, in which the event is more probable
    black_box.one_step.at_least: its probability there, at least
    black_box.one_step.at_most: its probability in the other world, at most
    black_box.one_step.hits[]: how often it happened in world 0 and 1
    black_box.one_step.samples[]: of how many
    black_box.trajectory.*: the same for `steps` releases together
    black_box.recompute: command
    zones[].zone: name; an entry for each record of rules whose file is given
    zones[].first: step at which these rules begin
    zones[].digest: of the rules
    zones[].releases: from readings
    zones[].steps: up to the last one
    zones[].epsilon: the promise's, of these rules
    zones[].worst.house: the house that leaks most
    zones[].worst.loss: largest loss of one release about it; null: no bound (Gaussian noise, or
        none while a house is uncertain)
    zones[].worst.total: sum over all releases and lost steps, by the model's own start; what is
        booked beyond them (two histories, rules that are lost) is in the check `budget` alone;
        null: no bound
    zones[].worst.leakage: worst about one step from all releases, where a service file is given
        those of neighbouring records with the same rules too
    zones[].realised_max: what the release that may reveal most really reveals about a house
        that moves with others (at eta above 0 for one choice of the laws that eta allows);
        null: there is none, or no bound
    zones[].mixture_max: worst for an adversary who holds the models of Theta equally likely
    zones[].stated[]: scale of each step as recorded [Wh]; 0 without readings
    zones[].due[]: the scale that the terms lead to [Wh]
    zones[].houses[].house: number, from 0 in the order of the zone file; worst first
    zones[].houses[].bound: what its readings are cut at [Wh]
    zones[].houses[].protected: steps at which a release depended on it
    zones[].houses[].loss: largest loss of one release; null: no bound
    zones[].houses[].total: sum over all; null: no bound
    zones[].houses[].leakage: the same for this house
    zones[].houses[].any_total: sum whatever anyone consumes; null: no bound, since a release
        had no noise or Gaussian noise
    zones[].houses[].realised: what one release really reveals, where it moves with others
    zones[].watched.filter: filter of an adversary who saw all releases and knows the public
        models: exact or factored
    zones[].watched.releases: how many of the releases the adversary was given (houses times
        steps up to 5,000,000)
    zones[].watched.moved_max: the most by which the adversary's log odds left the prior's, in
        hindsight and under each model apart; null: it became certain
    zones[].watched.house: the house it was about
    zones[].watched.step: and the step
    zones[].watched.bound: the most those releases could move them (leakage); null: no bound
    zones[].houses[].mixture: the same for a prior mixed over Theta
    zones[].houses[].moved: the most by which the adversary's log odds moved; null: it became
        certain, or `watched` is null
    zones[].houses_left_out: houses beyond the 2000 worst
    zones[].recompute: command
    attack.*: figures of `hushgrid attack`: of a trace with truth under `none` and `others`
        (what the adversary knows besides prices), or as given with `--attack`
    inputs.file: what was audited
    inputs.kind: ledger, trace, zone file, service file and its ledger
    inputs.digests.*: SHA-256 of each file read; null for one that cannot be read as a file, or
        that has private models
    inputs.config[]: files with the rules
    inputs.zone: the one zone asked for
    inputs.publisher: factory under test
    inputs.samples: asked for
    inputs.confidence: asked for
    inputs.seed: asked for
    inputs.key: public key that must have signed
    inputs.heads[]: digests that must be there
    recompute: command that gives the whole certificate again
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hushgrid.audit.bounds import BlackBox, Bound
from hushgrid.audit.certificate import Certificate, LargestMove
from hushgrid.audit.evidence import Terms
from hushgrid.audit.houses import Houses
from hushgrid.audit.recompute import Recomputed
from hushgrid.errors import HushgridError
from hushgrid.mechanism.policy import Policy
from hushgrid.planning.planner import examine
from hushgrid.report._figures import BLUE, ORANGE, chart, loss, number, render, table
from hushgrid.report.attack import KNOWS
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


def certificate_json(certificate: Certificate) -> dict[str, Any]:
    """The certificate under its public keys.

    Args:
        certificate: The certificate.

    Returns:
        The values by the keys above; a figure that does not exist is None.
    """
    command = _audit_command(certificate.inputs)
    terms, box = certificate.terms, certificate.black_box
    return {
        "format": FORMAT,
        "verdict": certificate.verdict,
        "simulated": certificate.simulated,
        "summary": _summary(certificate),
        "checks": [
            {
                "id": check.id,
                "status": check.status,
                "first_bad": check.first_bad,
                "text": check.text,
                "recompute": _of_check(check.id, certificate.inputs, command),
            }
            for check in certificate.checks
        ],
        "epsilon_lower": certificate.epsilon_lower,
        "promise": None if terms is None else _promise(terms),
        "assumptions": list(certificate.assumptions),
        "cannot_show": list(certificate.cannot_show),
        "eta_set_by": None if terms is None else (terms.eta_set_by or "not stated"),
        "provenance": {} if terms is None else dict(terms.provenance),
        "black_box": None if box is None else _black_box(box, command),
        "zones": [
            _zone(recomputed, houses, move, f"{command} | jq .zones[{i}]")
            for i, (recomputed, houses, move) in enumerate(
                zip(certificate.recomputed, certificate.houses, certificate.moves, strict=True)
            )
        ],
        "attack": None if certificate.attack is None else dict(certificate.attack),
        "inputs": dict(certificate.inputs),
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
        "eta": terms.policy.eta,
        "horizon": terms.policy.horizon,
        "rule": terms.policy.rule,
        "models": len(terms.models),
        **home_words(terms.secret, terms.promised, terms.window).content,
        "sentence": promise_sentence(
            terms.policy,
            terms.secret,
            terms.promised,
            continued=terms.continued,
            window=terms.window,
        ),
    }


def _largest(policy: Policy) -> float:
    """The largest epsilon of a policy for one release."""
    return max(policy.epsilon_at(t) for t in range(1, policy.horizon + 1))


def _figures(terms: Terms) -> dict[str, Any]:
    """What one release, the first day's and week's say about one step; what the promise covers.

    As the service states it, where there is one. Nothing if models are private.
    """
    if terms.figures is not None:
        figures = terms.figures()
        return {name: figures[name] for name in ("leakage", "covers")}
    day = round(24 / terms.days.hours)
    policy = terms.policy.first(7 * day)
    world = (terms.zone, terms.tariff, terms.models, terms.consumption, policy)
    try:
        plan = examine(*world, epsilon=terms.promised, window=terms.window_steps)
    except HushgridError:
        return {"leakage": None, "covers": []}
    leaked = [plan.leaked_by(terms.models, n) for n in (day, 7 * day)]
    return {
        "leakage": {
            "step": finite_or_none(max(plan.epsilon_t)),
            "day": leaked[0],
            "week": leaked[1],
        },
        "covers": covers_json(plan.covers(round(terms.days.hours * 3600))),
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
    recomputed: Recomputed, houses: Houses, move: LargestMove | None, command: str
) -> dict[str, Any]:
    worst = houses.worst
    by = houses.total if houses.leakage is None else houses.leakage
    order = np.argsort(-np.where(np.isfinite(by), by, np.inf), kind="stable")[:MOST_HOUSES]
    realised = {house_loss.house: house_loss for house_loss in houses.realised}
    mixture = dict(houses.mixture)
    epsilon = _largest(recomputed.terms.policy)
    return {
        "zone": houses.zone,
        "first": houses.first,
        "digest": recomputed.week.digest,
        "releases": houses.releases,
        "steps": len(recomputed.recorded_scale),
        "epsilon": finite_or_none(epsilon),
        "worst": {
            "house": worst,
            "loss": finite_or_none(float(houses.loss[worst])),
            "total": finite_or_none(float(houses.total[worst])),
            "leakage": None if houses.leakage is None else float(houses.leakage[worst]),
        },
        "realised_max": finite_or_none(
            max((house_loss.loss for house_loss in houses.realised), default=None)
        ),
        "mixture_max": finite_or_none(max(mixture.values(), default=None)),
        "watched": None if move is None else _watched(move),
        "stated": [finite_or_none(b) for b in recomputed.recorded_scale],
        "due": [finite_or_none(b) for b in recomputed.due],
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


def _summary(certificate: Certificate) -> list[str]:
    """The most important findings, one sentence each."""
    failed = [check for check in certificate.checks if check.status == "failed"]
    lines = [_VERDICT[certificate.verdict]]
    lines += [f"Failed: {check.id}. {check.text}" for check in failed]
    if certificate.simulated:
        lines.append("These releases are of a simulation: their noise gives no protection.")
    if certificate.terms is not None:
        lines.append(f"Promised: {_lower(_promise(certificate.terms)['sentence'])}")
    box = certificate.black_box
    if box is not None:
        lines.append(
            f"A test from outside could certify a loss of {box.one_step.epsilon:.3f} of one"
            f" release; {box.promised:.3f} is promised (confidence {box.confidence:.0%}). A"
            " certified loss is a lower bound: passing proves no promise."
        )
    for houses in certificate.houses:
        lines.append(_of_houses(houses))
    for houses, move in zip(certificate.houses, certificate.moves, strict=True):
        if move is not None:
            first = f"the first {move.releases} of " if move.releases < houses.releases else ""
            limit = "there is no bound" if move.bound is None else f"the bound is {move.bound:.3f}"
            largest_move = float(move.moved.max())
            moved = (
                f"by at most {largest_move:.3f}" if math.isfinite(largest_move) else "to certainty"
            )
            lines.append(
                f"Zone {move.zone}: an adversary who sees {first}{houses.releases} releases and"
                f" knows the public models moved its log odds {moved} (house {move.house}, step"
                f" {move.step}, {move.filter} filter); {limit}."
            )
    for recomputed, houses in zip(certificate.recomputed, certificate.houses, strict=True):
        policy, epsilon = recomputed.terms.policy, _largest(recomputed.terms.policy)
        over = [
            house_loss
            for house_loss in houses.realised
            if house_loss.loss > policy.epsilon_at(house_loss.step) * (1 + 1e-9)
        ]
        if over:
            most = max(over, key=lambda house_loss: house_loss.loss)
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
    skipped = [check.id for check in certificate.checks if check.status == "not_checked"]
    if skipped:
        lines.append(f"Not checked: {', '.join(skipped)}.")
    return lines


def _of_houses(houses: Houses) -> str:
    worst = houses.worst
    if houses.leakage is not None and math.isfinite(houses.total[worst]):
        more = houses.leakage[worst] > houses.total[worst] * (1 + 1e-9)
        neighbours = " with those of neighbouring weeks" if more else ""
        return (
            f"Zone {houses.zone}, {houses.releases} releases: together{neighbours} they leak at"
            f" most {houses.leakage[worst]:.3f} about any one step of the worst house (house"
            f" {worst}), and{' on their own' if more else ''} at most"
            f" {houses.total[worst]:.3f} about its whole record."
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
    zone_name = promise["zone"] if promise else values["inputs"].get("file", "")
    name = ", ".join(zones) if len(zones) > 1 else zone_name
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
    if not attack or not all(
        isinstance(scores, Mapping) and "auc" in scores for scores in attack.values()
    ):
        return []
    return [
        (
            KNOWS.get(knows, knows),
            *("–" if scores[k] is None else f"{scores[k]:.3f}" for k in _SCORES),
        )
        for knows, scores in attack.items()
    ]


def _losses(axes: Axes, tested: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Certified losses as bars, promised ones as marks."""
    names = [name for name, _ in tested]
    axes.barh(names, [test["epsilon_lower"] for _, test in tested], color=BLUE, label="certified")
    promised = [np.nan if test["promised"] is None else test["promised"] for _, test in tested]
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
