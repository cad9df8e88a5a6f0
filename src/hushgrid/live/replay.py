"""What a zone's releases leave behind, folded as they come: state, public knowledge, spending.

Everything in it is public: whoever has the ledger and the zone file has it too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from hushgrid.errors import LedgerError
from hushgrid.estimate import PublicKnowledge
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.records import EpochRecord, ReleaseRecord
from hushgrid.live.ledger.state import LedgerState
from hushgrid.live.terms import first_state
from hushgrid.mechanism import State, bring, carry, first_public, replay, skip
from hushgrid.schedules import largest_so_far
from hushgrid.sums import Spent


class Replay:
    """The fold of an epoch's releases; `follow` goes on from where it was."""

    state: State
    public: PublicKnowledge
    spent: Spent

    def __init__(self, service: ZoneService) -> None:
        self._service = service
        self._terms: object = None  # what a fold begins with
        self._folded, self._last = 0, ""  # releases taken, and the digest of the last one

    def follow(self, standing: LedgerState) -> EpochRecord:
        """Take the releases that are new; the epoch they are of."""
        epoch, releases = standing.epoch, standing.current
        if epoch is None:
            raise LedgerError(
                f"the ledger of zone {self._service.id!r} has no epoch; open it again."
            )
        terms = (epoch, standing.transfers, dict(standing.charged), standing.booked)
        last = releases[self._folded - 1].head if 0 < self._folded <= len(releases) else ""
        if terms != self._terms or last != self._last:
            self._begin(standing)
            self._terms = terms
        for shown in releases[self._folded :]:
            if self._folded == 0:
                self._pass_until(epoch.step(shown.t))
                self.state = bring(self.state, brought_now(standing))
            self._take(epoch, shown)
            self._folded += 1
            self._last = shown.head
        return epoch

    def _begin(self, standing: LedgerState) -> None:
        scenario = self._service.scenario
        self.state = begun(self._service, standing)
        self.public = first_public(scenario.models, scenario.consumption, self.state.policy)
        self.spent = spent_before(self._service, standing)
        self._folded, self._last = 0, ""

    def _take(self, epoch: EpochRecord, shown: ReleaseRecord) -> None:
        self._pass_until(epoch.step(shown.t))
        if shown.source != "readings":
            self._pass(shown.rate)
            return
        again = shown.in_epoch(epoch)
        _, self.public = self.public.learn(again.load_hat, again.scale, self.state.rates)
        self.state = replay(self.state, again)
        self.spent = self.spent.add(again.epsilon)

    def _pass_until(self, own: int) -> None:
        while self.state.t < own:  # intervals that nobody published
            self._pass(self.state.rates[-1] if self.state.rates else self._service.fallback_rate)

    def _pass(self, rate: float) -> None:
        self.public = self.public.passed()
        self.state = skip(self.state, rate)


def begun(service: ZoneService, standing: LedgerState) -> State:
    """The mechanism before step 1 of the present epoch, with what windows count from before it."""
    epoch = standing.epoch
    state = first_state(service, None if epoch is None else epoch.digest)
    return carry(state, lost_before(standing, service.policy.schedule.shared_by))


def lost_before(standing: LedgerState, steps: int) -> tuple[float, ...]:
    """What the last `steps` - 1 steps before the present epoch lost, latest last.

    Counted by the epoch's own steps and by those published under, whichever reaches back further,
    and with the loss of any house whatever it consumes. A house that came in before the epoch's
    first release may have lost all it had spent at the last step before the release that follows
    its record; where that is a release of the present epoch, `brought_now` has it.
    """
    lost, epoch = [Spent() for _ in range(steps - 1)], standing.epoch
    if epoch is None or not lost:
        return ()
    begins = epoch.first * epoch.seconds
    furthest = (steps - 1) * max(one.seconds for one in standing.epochs)
    for one in reversed(standing.releases):
        if one.t >= epoch.first or one.source != "readings":
            continue
        if begins - one.start > 2 * furthest:  # older than any window reaches, whatever its length
            break
        seconds = standing.epoch_of(one).seconds
        gap = begins - (one.start + seconds)
        ago = max(gap // max(seconds, epoch.seconds), 0) + 1
        if ago < steps:
            lost[-ago] = lost[-ago].add(max(one.epsilon, one.epsilon_any))
    moves: dict[int, float] = {}
    for epsilon, after in _brought(standing):
        if after is not None and after.t < epoch.first:
            longest = max(standing.epoch_of(after).seconds, epoch.seconds)
            ago = max(begins - after.start, 0) // longest + 1
            moves[ago] = max(moves.get(ago, 0.0), epsilon)
    for ago, epsilon in largest_so_far(moves).items():
        if ago < steps:
            lost[-ago] = lost[-ago].add(epsilon)
    return tuple(each.total for each in lost)


def brought_now(standing: LedgerState) -> float:
    """The most that a house brought along which came since the release before the present epoch.

    It counts as lost at the last step before the epoch's first release, whenever that is made.
    """
    first = standing.epoch.first if standing.epoch else 0
    late = (e for e, after in _brought(standing) if after is None or after.t >= first)
    return max(late, default=0.0)


def _brought(standing: LedgerState) -> Iterator[tuple[float, ReleaseRecord | None]]:
    """What each house that moved in had spent, and the first release after its record.

    As of the present epoch's first release: a house that came later is not in its roster.
    """
    first = next((one.seq for one in standing.current), None)
    moved = {one.house: one for one in standing.transfers if first is None or one.seq < first}
    for move in moved.values():
        if move.direction == "in":
            after = bisect_right(standing.releases, move.seq, key=lambda one: one.seq)
            late = after == len(standing.releases)
            yield move.epsilon, None if late else standing.releases[after]


def spent_before(service: ZoneService, standing: LedgerState) -> Spent:
    """What is lost besides an epoch's releases: the most a house brought along, models, gaps."""
    gaps = (one.epsilon for one in standing.booked_now)
    return Spent().add(standing.carried, service.learned.epsilon, *gaps)
