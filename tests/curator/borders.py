"""Streets and their ledgers, and an oracle for what outputs really say about a house."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.curator.terms import first_state, terms_record
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.weeks import placed
from hushgrid.mechanism.release import Release
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.records import Head
from hushgrid.stores.ledger.state import LedgerState

HOUR, FIRST = 3600, 490_000


@dataclass(frozen=True, slots=True)
class World:
    """How houses of a street move: a step of each block, and of all houses together."""

    blocks: Sequence[Sequence[int]]
    steps: Sequence[Floats]

    @property
    def step(self) -> Floats:
        return _kron(self.steps)

    def model(self, law: Floats | None = None) -> OccupancyModel:
        """From the steady state, or from a law of all houses."""
        starts = [np.linalg.matrix_power(one, 2**12)[0] for one in self.steps]
        if law is not None:
            n = sum(map(len, self.blocks))
            whole = law.reshape((2,) * n)
            others = [tuple(set(range(n)) - set(block)) for block in self.blocks]
            starts = [whole.sum(axis=axes).ravel() for axes in others]
        starts = [one / one.sum() for one in starts]
        if len(self.blocks[0]) == 1:
            return OccupancyModel.factored(starts, [list(self.steps)])
        return OccupancyModel.blocked(self.blocks, starts, [[one] for one in self.steps])


def _kron(parts: Sequence[Floats]) -> Floats:
    whole = np.ones((1,) * parts[0].ndim)
    for part in parts:
        whole = np.kron(whole, part)
    return whole


def zone_of(
    theta: OccupancyModel,
    begins: int,
    epsilon: float,
    horizon: int,
    factor: float | None,
    bounds: Sequence[int] = (),
) -> ZoneService:
    """A street with such a schedule, of houses of 1000 Wh or with these bounds.

    Its interval promise is as many times what its own releases leak; without a factor it has none.
    """
    n = theta.n_houses
    each = list(bounds) or [1000] * n
    kinds = sorted(set(each))
    laws = ([Uniform(3 * bound // 10) for bound in kinds], [Uniform(bound) for bound in kinds])
    class_of = [kinds.index(bound) for bound in each]
    f = Consumption.by_class(absent=laws[0], present=laws[1], class_of=class_of)
    scenario = Scenario(Zone("elm", each), Tariff(1.0, 2.0), (theta,), f)
    meters = tuple(f"m{i}" for i in range(n))
    made = ZoneService(
        scenario, Policy(epsilon, horizon=horizon), meters, seconds=HOUR, begins=begins, grace=0
    )
    if factor is None:
        return made
    scheduler = first_state(made).scheduler
    rows = [scheduler.losses(t, scheduler.at(t).scale) for t in range(1, horizon + 1)]
    own = temporal_leakage(theta, np.array(rows)).worst
    return replace(made, promise=Promise("interval", own * factor))


def from_file(
    theta: OccupancyModel,
    begins: int,
    epsilon: float,
    horizon: int,
    bounds: Sequence[int] = (),
) -> ZoneService:
    """A street whose interval promise is planned, as that of one read from a file is."""
    made = zone_of(theta, begins, 1.0, horizon, None, bounds)
    pattern, promise = Pattern(made.scenario, made.policy), Promise("interval", epsilon)
    service = replace(made, pattern=pattern, promise=promise)
    return placed(service, begins)


class Street:
    """Terms of one street as its ledger has them, and what they really lost."""

    def __init__(self, houses: int) -> None:
        self.n = houses
        self.standing = LedgerState("elm", "simulation", "", Head(1, ""), "", None, (), (), ())
        self.losses: dict[int, float] = {}  # of one house, by step

    def begin(self, service: ZoneService) -> None:
        """Record the terms."""
        head = self._next()
        terms = replace(terms_record(service), seq=head.seq)
        records = (*self.standing.terms_records, terms)
        self.standing = replace(self.standing, terms=terms, terms_records=records, head=head)

    def publish(self, service: ZoneService, steps: Sequence[int]) -> None:
        """These steps of the week from readings, 1 its first."""
        scheduler, seconds = first_state(service).scheduler, service.seconds
        first = service.begins // seconds
        for t in steps:
            scale = scheduler.at(t).scale
            at = first + t - 1
            lost = scheduler.most(t)
            made = Release(
                "elm", at, at + 2, 0, 0.0, None, 0.0, scale, lost, lost, "all", "0" * 64,
                True, "laplace",
            )  # fmt: skip
            times = (at * seconds, (at + 2) * seconds, (at + 1) * seconds)
            head = self._next()
            record = ReleaseRecord(made, "readings", *times, {}, seq=head.seq)
            releases = (*self.standing.releases, record)
            self.standing = replace(self.standing, releases=releases, head=head)
            self.losses[at] = 1000 / scale

    def _next(self) -> Head:
        return Head(self.standing.head.seq + 1, "")


def exact(steps: Sequence[Floats], law: Sequence[float], losses: Sequence[float]) -> Floats:
    """The largest log-ratio of any outputs about a house of two states, at each step.

    By the log-ratio itself and not by its bound L: what outputs say about one step is a monotone
    function of what they say about its neighbour. Each release has two outputs that say all it can.

    Args:
        steps: The matrix into each step; that of the first plays no part.
        law: The chance of both states at the first step.
        losses: Of the release of each step, 0 where there is none.
    """
    n, laws = len(losses), [np.array(law, float)]
    for step in steps[1:]:
        laws.append(laws[-1] @ step)
    sure = [one.min() <= 0 for one in laws]

    def carried(rows: Floats, said: Floats, loss: float) -> Floats:
        """The least and the most that is said about the next step."""
        ends = said + np.array([-loss, loss])
        values = np.exp(np.stack([0 * ends, ends]) - np.maximum(ends, 0))
        return np.sort(np.log(rows[1] @ values) - np.log(rows[0] @ values))

    before, after = np.zeros((n, 2)), np.zeros((n, 2))
    for t in range(1, n):
        if not (sure[t] or sure[t - 1]):
            rows = (laws[t - 1][:, None] * steps[t] / laws[t]).T
            before[t] = carried(rows, before[t - 1], losses[t - 1])
    for t in range(n - 2, -1, -1):
        if not sure[t]:
            after[t] = carried(steps[t + 1], after[t + 1], losses[t + 1])
    most = np.abs(before + after).max(axis=1) + np.array(losses)
    return np.where(sure, 0.0, most)
