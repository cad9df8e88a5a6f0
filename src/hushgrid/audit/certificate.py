"""The certificate: what is promised, under which assumptions, and what an audit found.

Includes how far the paper's Bayesian adversary moves its odds on the recorded releases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import worst_leakage
from hushgrid.adversary.attack import SMALL
from hushgrid.adversary.exact import Exact
from hushgrid.adversary.factored import Factored
from hushgrid.adversary.filter import Adversary, look_back
from hushgrid.adversary.knowledge import Knowledge
from hushgrid.audit.accounts import (
    budget,
    charges,
    releases_before,
)
from hushgrid.audit.bounds import CHECKS, BlackBox, Check, merge_checks, verdict
from hushgrid.audit.evidence import Evidence, Terms, as_recorded
from hushgrid.audit.houses import Houses, fifteen_fifteen, houses, leakages, promise_kept
from hushgrid.audit.noise_reuse import seed_reuse
from hushgrid.audit.recompute import (
    Recomputed,
    account,
    house_names,
    recompute,
    release_terms,
    republication,
    steps,
)
from hushgrid.belief.filter import at_home, marginals
from hushgrid.belief.followed import followed_from
from hushgrid.errors import ModelError
from hushgrid.mechanism.release import Release

MOST = 5_000_000  # houses times steps given to the adversary

PublisherTest = Callable[[Sequence[Terms]], tuple[BlackBox, list[Check]]]


@dataclass(frozen=True, slots=True, eq=False)
class LargestMove:
    """Largest change of the adversary's log odds from the prior, in hindsight, over all models.

    Attributes:
        zone: Id of the zone.
        filter: Name of the adversary's filter.
        moved: (N,) of every house; infinite where the adversary became certain.
        house: House with the largest change.
        step: Step of the largest change.
        bound: Bound on the change by all releases together; None where there is none.
        releases: Number of releases used.
    """

    zone: str
    filter: str
    moved: Floats
    house: int
    step: int
    bound: float | None
    releases: int


def largest_move(recomputed: Recomputed) -> LargestMove | None:
    """Run the Bayesian adversary on the releases of a week.

    Args:
        recomputed: The recomputed week.

    Returns:
        Its largest change of odds; None where no filter handles the week.
    """
    terms, n = recomputed.terms, recomputed.terms.zone.n_houses
    states = max(64 * n, 4096) if terms.policy.schedule.lengths else n  # every size of its noise
    releases = _releases(recomputed)[: max(1, MOST // states)]
    if not releases:
        return None
    knowledge = Knowledge(terms.zone, terms.models, terms.consumption, terms.policy.clamp)
    try:
        adversary: Adversary = Exact(knowledge) if n <= SMALL else Factored(knowledge)
        posteriors = np.asarray(look_back(adversary, releases).home)
    except ModelError:  # many houses that move together; an exact load that a model rules out
        return None
    shift = np.zeros(posteriors.shape[1:])
    for home, model in zip(posteriors, terms.models, strict=True):
        prior = np.stack([at_home(b, model) for b in islice(marginals(model), len(home))])
        shift = np.maximum(shift, _moved(home, prior))
    t, house = np.unravel_index(int(shift.argmax()), shift.shape)
    losses, bound = recomputed.losses[: len(shift)], None
    if np.isfinite(losses).all():  # Gaussian noise, or none at all, bounds nothing
        bound = worst_leakage(terms.models, losses, lengths=recomputed.lengths(len(losses))).total
    name = type(adversary).__name__.lower()
    moved = shift.max(axis=0)
    step = recomputed.week.first + int(t)
    return LargestMove(terms.zone.id, name, moved, int(house), step, bound, len(releases))


def _releases(recomputed: Recomputed) -> list[Release]:
    """The mechanism's releases; a forecast or fallback carries no information about occupancy."""
    return [
        recomputed.release_of(entry)
        for entry in recomputed.week.entries
        if entry.source == "readings"
        and entry.load_hat is not None
        and entry.step <= recomputed.terms.policy.horizon
    ]


def _moved(home: Floats, prior: Floats) -> Floats:
    """Absolute difference of log odds; 0 where the prior was certain."""
    sure = (prior <= 0) | (prior >= 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = np.abs(np.log(home) - np.log1p(-home) - np.log(prior) + np.log1p(-prior))
    return np.where(sure, 0.0, shift)


CANNOT_SHOW = (
    "That the readings were what the meters read, or that the meters were sound.",
    "That the noise came from a secure source: a stored seed gives the same figures.",
    "That nothing else was published: a second price, a log, a bill, a chart of the load.",
    "That there is only one ledger: a publisher could present another one elsewhere.",
    "That its end is there, or whose it is, unless a head or key seen earlier is given.",
    "That its times are true: they are the publisher's own word.",
    "That Theta holds the truth and that the laws are as trusted: both are assumptions.",
    "That a publisher under test behaves in service as it did in the test.",
)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """What an audit found.

    Attributes:
        verdict: "passed", "failed" or "incomplete".
        checks: One per id, in the order of `CHECKS`.
        terms: The first terms given, or None.
        assumptions: Assumptions of the promises, of all terms given.
        cannot_show: What no audit of this kind can establish.
        recomputed: The weeks computed again.
        houses: Figures of every house, per recomputed week.
        black_box: Result of the black-box test, or None.
        attack: Figures of attacks, as given.
        inputs: Files with their digests, and the options of the audit.
        moves: Largest change of the adversary's odds, per recomputed week.
        simulated: Whether some releases carry seeded noise, which protects no one.
    """

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
    moves: tuple[LargestMove | None, ...] = ()
    simulated: bool = False

    @property
    def epsilon_lower(self) -> float | None:
        """The loss of one release that a black-box test could certify."""
        return None if self.black_box is None else self.black_box.one_step.epsilon

    def check(self, name: str) -> Check:
        """The check of that id."""
        return next(check for check in self.checks if check.id == name)


def certify(
    evidence: Sequence[Evidence] = (),
    terms: Sequence[Terms] = (),
    *,
    chain: Check | None = None,
    trial: PublisherTest | None = None,
    attack: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> Certificate:
    """Audit records against terms, and a publisher against the first terms.

    Args:
        evidence: Records, one per zone.
        terms: Terms of the zones.
        chain: Result of the check of the records' hash chain, or None.
        trial: Tests a publisher against the terms, or None.
        attack: Figures of attacks, passed through.
        inputs: Files with digests and options, passed through.

    Returns:
        The certificate.
    """
    findings: list[Check] = [] if chain is None else [chain]
    recomputed: list[Recomputed] = []
    terms = as_recorded(terms, evidence)
    by_digest = {version.digest: version for version in terms}
    zones = [source.zone for source in evidence]
    for source in evidence:
        findings += _check_record(source, by_digest, terms, recomputed, zones)
    leakage = leakages(recomputed, evidence)
    if recomputed:
        findings += [seed_reuse(recomputed), *map(promise_kept, recomputed, leakage)]
    findings += [fifteen_fifteen(version) for version in terms]
    black_box = None
    if trial is not None:
        black_box, checks = trial(terms)
        findings += checks
    findings += _unchecked(findings, evidence, terms, trial)
    checks = list(merge_checks(findings))
    first_terms = terms[0] if terms else None
    return Certificate(
        verdict(checks),
        tuple(checks),
        first_terms,
        tuple(dict.fromkeys(line for version in terms for line in version.assumptions)),
        CANNOT_SHOW,
        tuple(recomputed),
        tuple(map(houses, recomputed, leakage)),
        black_box,
        attack,
        dict(inputs or {}),
        tuple(largest_move(present) for present in recomputed),
        any(source.mode == "simulation" for source in evidence),
    )


def _check_record(
    evidence: Evidence,
    digests: Mapping[str, Terms],
    all_terms: Sequence[Terms],
    recomputed: list[Recomputed],
    zones: Sequence[str],
) -> list[Check]:
    """All checks of one zone's record; the recomputed weeks are appended to `recomputed`."""
    findings = [republication(evidence), steps(evidence), budget(evidence, digests)]
    if not digests:
        return findings
    findings += [release_terms(evidence, digests, zones), *charges(evidence, digests)]
    findings += [*house_names(evidence, digests), account(evidence, all_terms)]
    for week in evidence.weeks:
        terms = digests.get(week.digest)
        if terms is None or terms.zone.id != evidence.zone:
            continue
        last = recomputed[-1] if recomputed else None
        former = last.begun if last is not None and last.week.digest == week.digest else None
        since, begun = followed_from(evidence.zone, week.first, week.seconds or 1, former)
        present, checks = recompute(week, terms, releases_before(evidence, week, since), begun)
        recomputed.append(present)
        findings += checks
    return findings


def _unchecked(
    findings: Sequence[Check],
    evidence: Sequence[Evidence],
    terms: Sequence[Terms],
    trial: PublisherTest | None,
) -> list[Check]:
    """A check for each id without a finding, with the reason."""
    present = {check.id for check in findings}
    checks = []
    for name in CHECKS:
        if name in present:
            continue
        if name == "chain":
            of = "A trace has no chain." if evidence else "There is no ledger."
            checks.append(Check(name, "not_applicable", of))
        elif not terms:
            checks.append(Check(name, "not_checked", "Not checked: needs --config."))
        elif not evidence and trial is None:
            text = "Not checked: needs a ledger or a trace, or --publisher."
            checks.append(Check(name, "not_checked", text))
        else:
            checks.append(
                Check(name, "not_applicable", "No ledger or trace with these terms was given.")
            )
    return checks
