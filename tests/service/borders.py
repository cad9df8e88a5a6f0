"""An oracle for borders of epochs: what outputs really say, by the joint law of all houses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from hushgrid import Consumption, OccupancyModel, Policy, Scenario, Tariff, Uniform, Zone
from hushgrid._numbers import Floats
from hushgrid.accounting.temporal import temporal_leakage
from hushgrid.files.deployment import Pattern, Promise, ZoneService
from hushgrid.files.interval_plan import in_epoch
from hushgrid.mechanism.release import Release
from hushgrid.service.border import border, opening
from hushgrid.service.epoch import first_state, roster_digest
from hushgrid.service.ledger.records import (
    Direction,
    EpochRecord,
    Head,
    LedgerState,
    ReleaseRecord,
    ResumeRecord,
    TransferRecord,
)

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


def world(rng: np.random.Generator, houses: int, *, blocks: bool = False) -> World:
    """A chain that forgets within days; houses move on their own, or the first two together."""
    if not blocks:
        move = rng.uniform(0.03, 0.9, (houses, 2)) * rng.choice([0.3, 1.0])
        steps = [np.array([[1 - c, c], [x, 1 - x]]) for x, c in move]
        return World([[house] for house in range(houses)], steps)
    often = rng.choice([0.3, 1.0, 4.0])
    steps = [rng.dirichlet(np.full(k, often), k) * 0.96 + 0.04 / k for k in (4, 2)]
    return World([[0, 1], [2]][: houses - 1], steps[: houses - 1])


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
    accepts: float | None = None,
    bounds: Sequence[int] = (),
) -> ZoneService:
    """A street whose interval promise is planned among its epochs, as one read from a file is."""
    made = zone_of(theta, begins, 1.0, horizon, None, bounds)
    pattern, promise = Pattern(made.scenario, made.policy), Promise("interval", epsilon)
    service = replace(made, pattern=pattern, promise=promise, accepts=accepts)
    return in_epoch(service, begins) or service


def _joint(theta: OccupancyModel) -> Floats:
    """Pi of all houses."""
    return _kron([piece.initial[k] for piece in theta.chains for k in piece.chain_of])


class Street:
    """Epochs of one street as its ledger has them, and what they really lost."""

    def __init__(self, houses: int) -> None:
        self.n = houses
        self.standing = LedgerState(
            "elm", "simulation", "", Head(1, ""), "", None, None, (), (), (), {}
        )
        self.losses: dict[int, float] = {}  # of one house, by step
        self.moves: list[tuple[int, World]] = []  # steps from which on houses move so

    def law(self, one: World, first: int) -> OccupancyModel:
        """The model of a world that an epoch begins with: it holds since the last release."""
        if not self.moves:
            self.moves.append((first, one))
            return one.model()
        self.moves.append((max(self.losses, default=self.moves[0][0]) + 1, one))
        return self.present(first)

    def present(self, first: int) -> OccupancyModel:
        """The model of the present world from a step on."""
        law = _joint(self.moves[0][1].model())
        for t in range(self.moves[0][0] + 1, first + 1):
            law = law @ self._step(t)
        return self.moves[-1][1].model(law)

    def begin(self, service: ZoneService) -> float:
        """Record the epoch, accepting what it asks for; the figure."""
        found = border(service, self.standing)
        stated = opening(replace(service, accepts=math.inf), self.standing)
        first = service.begins // service.seconds
        roster, horizon = roster_digest(service), service.policy.horizon
        digest = first_state(service).digest
        head = self._next()
        stated["seq"] = head.seq
        epoch = EpochRecord(digest, first, horizon, service.seconds, roster, False, **stated)
        epochs = (*self.standing.epochs, epoch)
        self.standing = replace(self.standing, epoch=epoch, epochs=epochs, head=head)
        return 0.0 if found is None else found.leakage

    def publish(self, service: ZoneService, steps: Sequence[int]) -> None:
        """These steps of the epoch from readings, 1 its first."""
        scheduler, seconds = first_state(service).scheduler, service.seconds
        first = service.begins // seconds
        for t in steps:
            scale = scheduler.at(t).scale
            at = first + t - 1
            lost = scheduler.most(t)
            made = Release(
                "elm", at, at + 2, 0, 0.0, None, 0.0, scale, lost, 0.0, lost, "all", "0" * 64,
                True, "laplace",
            )  # fmt: skip
            times = (at * seconds, (at + 2) * seconds, (at + 1) * seconds)
            head = self._next()
            record = ReleaseRecord(made, "readings", *times, {}, seq=head.seq)
            releases = (*self.standing.releases, record)
            self.standing = replace(self.standing, releases=releases, head=head)
            self.losses[at] = 1000 / scale

    def forecast(self, first: int, steps: int) -> None:
        """So many steps without readings."""
        for t in range(first, first + steps):
            head = self._next()
            made = Release(
                "elm", t, t + 1, 0, 0.0, None, 0.0, 0.0, 0.0, 0.0, 0.0, "all", "0" * 64,
                True, "laplace",
            )  # fmt: skip
            times = (t * HOUR, (t + 1) * HOUR, t * HOUR)
            record = ReleaseRecord(made, "forecast", *times, {}, seq=head.seq)
            releases = (*self.standing.releases, record)
            self.standing = replace(self.standing, releases=releases, head=head)

    def _next(self) -> Head:
        return Head(self.standing.head.seq + 1, "")

    def move(self, direction: Direction, epsilon: float, last: int = 0) -> None:
        """A house leaves or comes with so much lost until `last` [s]; no budget counts it."""
        head = self._next()
        one = TransferRecord("h", direction, "y", 0.0, seq=head.seq, total=epsilon, last=last)
        transfers = (*self.standing.transfers, one)
        self.standing = replace(self.standing, transfers=transfers, head=head)

    def lose(
        self,
        first: int,
        losses: Sequence[float],
        together: int | None = None,
        interval: float | None = None,
    ) -> None:
        """Steps of a gap that really lost so much, booked with their sum."""
        last = first + len(losses) - 1
        head = self._next()
        gap = ResumeRecord(
            first, last, math.fsum(losses), seq=head.seq, together=together, interval=interval
        )
        booked = (*self.standing.booked, gap)
        self.standing = replace(self.standing, booked=booked, head=head)
        self.losses |= {first + i: loss for i, loss in enumerate(losses)}

    def realised(self, rng: np.random.Generator, most: int = 64) -> dict[int, float]:
        """The largest log-ratio that outputs show about a house at each step since the first."""
        first, last = self.moves[0][0], max(self.standing.epochs[-1].first, *self.losses)
        times = sorted(t for t, loss in self.losses.items() if loss > 0)
        states = np.array(list(product([0, 1], repeat=self.n)))
        found = dict.fromkeys(range(first, last + 1), 0.0)
        steps = [self._step(t) for t in range(first, last + 1)]
        start = _joint(self.moves[0][1].model())
        for signs in _signs(rng, len(times), most):
            shown = dict(zip(times, signs, strict=True))
            seen = [
                np.exp(shown.get(t, 0) * self.losses.get(t, 0.0) * states.sum(1))
                for t in range(first, last + 1)
            ]
            alpha, law = [start * seen[0]], [start]
            for a, each in zip(steps[1:], seen[1:], strict=True):
                joint = (alpha[-1] @ a) * each
                alpha.append(joint / joint.sum())
                law.append(law[-1] @ a)
            beta = np.ones(len(states))
            for k in range(len(steps) - 1, -1, -1):
                for h in range(self.n):
                    home = states[:, h] == 1
                    after, before = alpha[k] * beta, law[k]
                    ratio = math.log(after[home].sum() / after[~home].sum())
                    ratio -= math.log(before[home].sum() / before[~home].sum())
                    found[first + k] = max(found[first + k], abs(ratio))
                beta = steps[k] @ (seen[k] * beta)
                beta /= beta.sum()
        return found

    def _step(self, t: int) -> Floats:
        return next(one.step for since, one in reversed(self.moves) if since <= t)

    def allowed(self) -> dict[int, float]:
        """What is stated for each step of an epoch with an interval promise."""
        epochs, found = self.standing.epochs, dict[int, float]()
        for i, epoch in enumerate(epochs):
            if epoch.interval is None:
                continue
            until = min([epoch.first + epoch.horizon, *(one.first for one in epochs[i + 1 :])])
            figure = max([epoch.interval, *(one.accepted or 0.0 for one in epochs[i:])])
            found |= dict.fromkeys(range(epoch.first, until), figure)
        return found


def _signs(rng: np.random.Generator, n: int, most: int) -> Iterator[Sequence[int]]:
    """All outputs at either end, or many of them."""
    if 2**n <= most:
        yield from product([-1, 1], repeat=n)
        return
    yield from ([-1] * n, [1] * n)
    for k in range(1, n):
        yield [-1] * k + [1] * (n - k)
        yield [1] * k + [-1] * (n - k)
    yield from rng.choice([-1, 1], size=(max(most - 2 * n, 0), n)).tolist()


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
