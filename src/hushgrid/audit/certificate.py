"""The certificate: what is promised, under which assumptions, and what an audit found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.adversary.exact import Exact
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import Adversary, look_back
from hushgrid.adversary.knowledge import Knowledge
from hushgrid.audit.behaviour import Factory, watch
from hushgrid.audit.black_box import BlackBox, certify_publisher
from hushgrid.audit.bounds import CHECKS, FALSE_ALARM, Check, merged, verdict
from hushgrid.audit.evidence import Evidence, Terms
from hushgrid.audit.houses import Houses, fifteen, houses, leakages
from hushgrid.audit.recompute import (
    Commit,
    Recomputed,
    budget,
    charges,
    lost_before,
    of_terms,
    recompute,
    republication,
    roster,
    schedule,
    seed_reuse,
    steps,
    transfers,
    windows,
)
from hushgrid.belief.filter import at_home, marginals
from hushgrid.compare.attack import SMALL
from hushgrid.errors import HushgridError, ModelError, PolicyError
from hushgrid.mechanism.release import Release
from hushgrid.planning.planner import assumptions

# --------------------------------------------------------------------------------------------------
# How far an adversary with the paper's knowledge gets on what is on record.


MOST = 5_000_000  # houses times steps that are looked at


@dataclass(frozen=True, slots=True, eq=False)
class LargestMove:
    """The largest move of the adversary's log odds from the prior, in hindsight, each theta apart.

    `moved` of every house, infinite where the adversary became certain; `house` and `step` where
    it was largest of all. `bound`: the most that all releases together can move them, None where
    there is no such bound. `releases` looked at.
    """

    zone: str
    filter: str
    moved: Floats
    house: int
    step: int
    bound: float | None
    releases: int


def watched(made: Recomputed) -> LargestMove | None:
    """Let her watch an epoch; None where no filter reads it."""
    terms, n = made.terms, made.terms.zone.n_houses
    releases = _releases(made)[: max(1, MOST // n)]
    if not releases or terms.veiled or any(release.look for release in releases):
        return None
    known = Knowledge(terms.zone, terms.models, terms.consumption, terms.policy.clamp)
    try:
        adversary: Adversary = Exact(known) if n <= SMALL else Factored(known)
        found = np.asarray(look_back(adversary, releases).home)
    except ModelError:  # many houses that move together; an exact load that a model rules out
        return None
    shift = np.zeros(found.shape[1:])
    for home, model in zip(found, terms.models, strict=True):
        prior = np.stack([at_home(b, model) for b in islice(marginals(model), len(home))])
        shift = np.maximum(shift, _moved(home, prior))
    t, house = np.unravel_index(int(shift.argmax()), shift.shape)
    losses, bound = made.losses[: len(shift)], None
    if np.isfinite(losses).all():  # Gaussian noise, or none at all, bounds nothing
        bound = worst_leakage(terms.models, losses).total
    name = type(adversary).__name__.lower()
    moved = shift.max(axis=0)
    return LargestMove(terms.zone.id, name, moved, int(house), int(t) + 1, bound, len(releases))


def _releases(made: Recomputed) -> list[Release]:
    """The mechanism's releases again; what came from no reading tells nothing."""
    return [
        made.release_of(entry)
        for entry in made.epoch.entries
        if entry.source == "readings" and entry.load_hat is not None
    ]


def _moved(home: Floats, prior: Floats) -> Floats:
    """|log odds - log odds|; nothing where the prior was sure already."""
    sure = (prior <= 0) | (prior >= 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(np.log(home) - np.log1p(-home) - np.log(prior) + np.log1p(-prior))
    return np.where(sure, 0.0, found)


CANNOT_SHOW = (
    "That the readings were what the meters read, or that the meters were sound.",
    "That the noise came from a secure source: equal figures come from a seed that somebody kept.",
    "That nothing was published beside it: a second price, a log, a bill, a chart of the load.",
    "That there is only one ledger: a publisher could show another one elsewhere.",
    "That its end is there, or whose it is, unless a head or key seen earlier is given.",
    "That its times are true: they are the publisher's own word.",
    "That Theta holds the truth and that the laws are as trusted: both are assumptions.",
    "That a publisher under test behaves in service as it did in the test.",
)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """What an audit found. `inputs` names files with their digests and all that was asked."""

    verdict: str
    checks: tuple[Check, ...]
    terms: Terms | None
    assumptions: tuple[str, ...]
    cannot_show: tuple[str, ...]
    recomputed: tuple[Recomputed, ...]
    houses: tuple[Houses, ...]
    black_box: BlackBox | None
    attack: Mapping[str, Any] | None
    inputs: Mapping[str, Any]
    watched: tuple[LargestMove | None, ...] = ()  # of each that was recomputed
    simulated: bool = False  # releases whose noise protects nobody

    @property
    def epsilon_lower(self) -> float | None:
        """The loss of one release that a black-box test could certify."""
        return None if self.black_box is None else self.black_box.one_step.epsilon

    def check(self, name: str) -> Check:
        """The check of that id."""
        return next(check for check in self.checks if check.id == name)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A publisher to test: so many samples a side, at a confidence, from a seed."""

    factory: Factory
    samples: int = 100_000
    confidence: float = 0.95
    seed: int = 1


def certify(
    evidence: Sequence[Evidence] = (),
    terms: Sequence[Terms] = (),
    *,
    chain: Check | None = None,
    commit: Commit | None = None,
    trial: Trial | None = None,
    attack: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Certificate:
    """Audit records against terms, and a publisher against the first terms.

    `chain` is what became of the records' own chain; `commit` computes the digest of a schedule;
    `attack` holds figures of attacks, to be shown as they are.
    """
    found: list[Check] = [] if chain is None else [chain]
    recomputed: list[Recomputed] = []
    digests = {digest: one for one in terms for digest in one.digests}
    for one in evidence:
        _find_elsewhere(one, terms, digests)
        zones = [each.zone for each in evidence]
        found += _of_record(one, digests, recomputed, commit, zones)
    if len(recomputed) > 0:
        found.append(seed_reuse(recomputed))
    found += [fifteen(one) for one in terms]
    black_box = None
    if trial is not None:
        black_box, checks = _of_publisher(trial, terms)
        found += checks
    found += _left_over(found, evidence, terms, trial)
    checks = list(merged(found))
    own = terms[0] if terms else None
    return Certificate(
        verdict(checks),
        tuple(checks),
        own,
        () if own is None else _assumed(own),
        CANNOT_SHOW,
        tuple(recomputed),
        tuple(map(houses, recomputed, leakages(recomputed, evidence))),
        black_box,
        attack,
        dict(inputs or {}),
        tuple(watched(made) for made in recomputed),
        any(one.mode == "simulation" for one in evidence),
    )


def _find_elsewhere(evidence: Evidence, terms: Sequence[Terms], digests: dict[str, Terms]) -> None:
    """Add the terms of epochs that differ from those given in their times alone."""
    for epoch in evidence.epochs:
        for own in terms:
            if epoch.digest in digests or own.elsewhere is None or own.zone.id != evidence.zone:
                continue
            found = own.elsewhere.terms(epoch.digest, epoch.first, epoch.horizon)
            if found is not None:
                digests[epoch.digest] = found


def _of_record(
    evidence: Evidence,
    digests: Mapping[str, Terms],
    recomputed: list[Recomputed],
    commit: Commit | None,
    zones: Sequence[str],
) -> list[Check]:
    """All checks of one zone's record; what was computed again is added to `recomputed`."""
    own = [t for t in digests.values() if t.zone.id == evidence.zone]
    found = [republication(evidence), steps(evidence)]
    if not digests:
        return [*found, budget(evidence, None)]
    found += [of_terms(evidence, digests, zones), *charges(evidence, digests)]
    found += [*transfers(evidence), *windows(evidence, digests)]
    found.append(budget(evidence, own[0] if own else None, digests))
    for epoch in evidence.epochs:
        terms = digests.get(epoch.digest)
        if terms is None or terms.zone.id != evidence.zone:
            continue
        before = lost_before(evidence, epoch, terms.policy.schedule.shared_by)
        made, checks = recompute(epoch, terms, before)
        recomputed.append(made)
        found += [*checks, schedule(made, commit), roster(epoch, terms)]
    return found


def _of_publisher(trial: Trial, terms: Sequence[Terms]) -> tuple[BlackBox, list[Check]]:
    if not terms:
        raise PolicyError("a publisher is given but no terms; give --config, a zone file.")
    try:
        box = certify_publisher(
            trial.factory,
            terms[0],
            samples=trial.samples,
            confidence=trial.confidence,
            seed=trial.seed,
        )
        return box, [*bounded(box), *watch(trial.factory, terms[0], seed=trial.seed)]
    except HushgridError:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's code may raise
        raise PolicyError(
            f"the publisher failed with {type(error).__name__} ({error}); mend it, see"
            " docs/audit.md."
        ) from error


def bounded(box: BlackBox) -> list[Check]:
    """Whether what was certified is more than what is promised."""
    found = []
    pairs = [("one release", box.one_step, box.promised)]
    if box.trajectory is not None:
        pairs.append((f"{box.steps} releases", box.trajectory, box.promised_trajectory))
    for what, bound, promised in pairs:
        text = (
            f"A black-box test certifies a loss of {bound.epsilon:.4g} for {what} where"
            f" {promised:.4g} is promised (confidence {box.confidence:g},"
            f" {sum(bound.samples) // 2} tested samples a side)."
        )
        broken = bound.epsilon > promised * (1 + 1e-9)
        found.append(Check("noise_scale", "failed" if broken else "passed", text))
    if box.too_often < FALSE_ALARM:
        text = (
            "Noise is small more often than noise of the scale due can be"
            f" ({2 * box.samples} draws of step 1; p = {box.too_often:.1e})."
        )
        found.append(Check("noise_scale", "failed", text))
    return found


def _left_over(
    found: Sequence[Check],
    evidence: Sequence[Evidence],
    terms: Sequence[Terms],
    trial: Trial | None,
) -> list[Check]:
    """What nobody looked at, and why."""
    seen = {check.id for check in found}
    left = []
    for name in CHECKS:
        if name in seen:
            continue
        if name == "chain":
            of = "A trace has no chain." if evidence else "There is no ledger."
            left.append(Check(name, "not_applicable", of))
        elif not terms:
            left.append(Check(name, "not_checked", "Not checked: needs --config."))
        elif not evidence and trial is None:
            text = "Not checked: needs a ledger or a trace, or --publisher."
            left.append(Check(name, "not_checked", text))
        else:
            left.append(Check(name, "not_applicable", "Nothing of the kind to look at."))
    return left


def _assumed(terms: Terms) -> tuple[str, ...]:
    return assumptions("trajectory", terms.policy, terms.consumption, len(terms.models))
