"""The process of one curator among several: it runs the zones it has leases of, follows the others.

    sharing = Sharing(url, zones, name="north", pace=LeasePace.of(900))
    while ...:
        sharing.turn()        # raises LedgerError while the database is unavailable
        ... run the zones of sharing.ready, and no others
    sharing.stop()

The loop is one thread and alone decides which leases to take. Another thread renews the curator's
row, however long a pass of the loop takes, and ends the sessions of expired curators: the loop may
be waiting for what they locked.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from hushgrid.errors import HushgridError, LedgerAwayError, LedgerError, ServiceError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.service.clock import Clock, since_start
from hushgrid.service.cluster.leases import (
    LeasePace,
    Leases,
    LeaseTable,
    SharedLedger,
    plan,
    session_url,
)
from hushgrid.service.curator import BEHIND, STEPPED, Curator, Status, status_of
from hushgrid.service.epoch import check_all_here, check_moves, check_same
from hushgrid.service.ledger.chain import Fold, Verify
from hushgrid.service.ledger.checkpoint import read
from hushgrid.service.ledger.records import Head, LedgerState, Record, ReleaseRecord
from hushgrid.service.ledger.store import PAGE
from hushgrid.service.ledger.witness import KEPT, Witness
from hushgrid.service.ledger.writer import recover, refold, refold_verified, verify_signature
from hushgrid.service.mqtt import MqttReadings
from hushgrid.service.process import Process, ZoneRun
from hushgrid.service.replay import Replay
from hushgrid.service.same_terms import zone_as_begun
from hushgrid.service.transfer import check_arrived

log = logging.getLogger("hushgrid.share")


class LedgerFollower:
    """Ledgers of all zones, read with one query; every record is verified once, when it is read.

    A zone's fold is used by its writer while this process runs the zone, and includes what it
    wrote. Records go into the zone's witness before they are returned.

    Args:
        zones: The zones.
        verify: Verifies signatures.
        witness: The witness of a zone.

    Attributes:
        folds: The fold of each zone.
        bad: Zones whose next record breaks a rule.
        since: When this process began to follow [UTC epoch s].
    """

    def __init__(
        self, zones: Iterable[str], verify: Verify, witness: Callable[[str], Witness]
    ) -> None:
        self.folds = {zone: Fold(verify) for zone in zones}
        self.bad: set[str] = set()  # zones whose next record breaks a rule
        self._verify, self._witness = verify, witness
        self._doubtful: set[str] = set()
        self.since = math.inf

    def doubt(self) -> None:
        """Read all ledgers again: another database server answers, whose records may differ."""
        self._doubtful = set(self.folds)
        self.bad.clear()

    def reread(self, store: SharedLedger, but: Collection[str] = ()) -> set[str]:
        """After `doubt`: read ledgers again; returns the zones read from their beginning.

        A ledger that is shorter than what was read is waited for. One with other records is read
        again where a gap on record has taken the place of what is missing, and is bad otherwise.
        """
        anew = set()
        for zone in sorted(self._doubtful - set(but)):
            fold, place = self.folds[zone], self.folds[zone].place
            last = next(store.records(zone, fold.seq - 1), None) if place else None
            if place is None or (last is not None and last.digest == place.head.digest):
                self._doubtful.discard(zone)
                continue
            there = Fold(self._verify)
            try:
                refold(store, zone, there)
                gap = there.gaps[-1] if there.gaps else None
                end = (gap.last + 1) * there.standing.epoch_of(gap).seconds if gap else 0
                if gap and gap not in fold.gaps and place.reach <= end:
                    fold.clear()
                    refold(store, zone, fold)
                    anew.add(zone)
                elif there.seq < fold.seq:
                    continue
                else:
                    raise LedgerError(
                        f"the ledger of zone {zone!r} has other records than those read before; run"
                        " hushgrid resume."
                    )
            except LedgerError as error:
                self.bad.add(zone)
                log.error("zone not read", extra={"zone": zone, "reason": str(error)})
            self._doubtful.discard(zone)
        return anew

    def catch_up(
        self, store: SharedLedger, but: Collection[str] = ()
    ) -> dict[str, list[ReleaseRecord]]:
        """New releases by zone, in order; zones of `but` are written here."""
        found: dict[str, list[ReleaseRecord]] = {}
        behind = {zone for zone in self.folds if zone not in but and zone not in self.bad}
        while behind:
            records = store.after({zone: self.folds[zone].seq for zone in behind})
            counts = dict.fromkeys(behind, 0)
            read: dict[str, list[Record]] = {}
            for record in records:
                if record.zone in self.bad:
                    continue
                counts[record.zone] += 1
                try:
                    self.folds[record.zone].take(record)
                except LedgerError as error:
                    self.bad.add(record.zone)
                    log.error("zone not read", extra={"zone": record.zone, "reason": str(error)})
                    continue
                read.setdefault(record.zone, []).append(record)
                new = found.setdefault(record.zone, [])
                if record.kind == "release":
                    new.append(ReleaseRecord.from_record(record))
            for zone, some in read.items():
                self.note(zone, some)
            behind = {zone for zone, n in counts.items() if n == PAGE}
        return found

    def note(self, zone: str, records: list[Record]) -> None:
        """Add records to the witness. A failure is only logged: the zone's writer stops then."""
        try:
            self._witness(zone).follow(records, self.since)
        except LedgerError as error:
            log.warning("not witnessed", extra={"zone": zone, "reason": str(error)})


HANGS = 300.0  # [s] without a turn of the loop, then the curator's row is no longer renewed
REFUSED = 60.0  # [s] for which a lease that was given up is left to others


class Sharing:
    """The leases of this process, renewed by a thread.

    Args:
        url: The ledger's URL.
        zones: The zones.
        more: Leases for other tasks that one of several curators does.
        name: Prefix of the curator's name.
        pace: How often rows are renewed.
        steady: A clock that cannot be set [s].

    Attributes:
        me: This curator's name.
        zones: The zones.
        pace: How often rows are renewed.
        store: The ledger's session.
        seen: All curators and leases, as last read.
        ready: Zones and tasks that this process may run now.
        surplus: How many leases other curators wait for.
        taken: Leases taken from others that did not give them back.
        moves: How often another database server took over.
        lapses: How often others may have taken what was leased here.
    """

    def __init__(
        self,
        url: str,
        zones: Iterable[str],
        more: Iterable[str] = (),
        *,
        name: str,
        pace: LeasePace,
        steady: Callable[[], float] = since_start,
    ) -> None:
        self.me = f"{name}-{secrets.token_hex(3)}"
        self.zones, self._more = frozenset(zones), frozenset(more)
        self.pace, self._steady = pace, steady
        self.store = SharedLedger(session_url(url, self.me), self.me)
        self._leases = Leases(self.store, self.me, [*self.zones, *self._more], pace)
        self.seen = LeaseTable(0.0, (), {})
        self.ready: frozenset[str] = frozenset()  # what this process may do now
        self.surplus = 0  # how many others wait for
        self.taken = 0  # leases taken from others, who did not give them back
        self.moves = 0  # times that another database server took over
        self.lapses = 0  # times that others may have taken what was leased here
        self._word = -math.inf  # when the last beat that went through was begun
        self._server: str | None = None
        self._still = -math.inf  # until then nothing is taken or run: others put records back
        # of each lease: its owner, the owner's last word, and when that was read
        self._words: dict[str, tuple[str | None, float | None, float]] = {}
        self._refused: dict[str, float] = {}  # until when
        self._joined, self._next, self._turned = math.inf, 0.0, steady()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="lease", daemon=True)

    def _join(self) -> None:
        """Register this curator; from now on others count on it."""
        self._look_at_server()
        begun = self._steady()
        self._leases.join()
        self._spoke(begun)
        if not self._thread.is_alive() and not self._stop.is_set():
            self._thread.start()
        self._joined, self._next = self._steady(), 0.0
        # an owner without a row may have joined, and a crash of the database have removed it again
        self._words = {name: word for name, word in self._words.items() if word[1] is not None}
        log.info("joined", extra={"curator": self.me})

    def _look_at_server(self) -> None:
        """After a fail-over wait for one lease: curators append records that the standby lacks."""
        before, now = self._server, self.store.server()
        first = before is None
        if (first and self.store.any_moved(self.zones)) or (
            not first and now is not None and now != before
        ):
            self.moves += 1
            self._still = self._steady() + self.pace.lease
            log.warning("another database server", extra={"curator": self.me})
        self._server = now or before

    @property
    def still(self) -> bool:
        """Whether to wait after a fail-over of the database."""
        return self._steady() < self._still

    def _spoke(self, begun: float) -> None:
        """Note a renewal; count a lapse where the one before had expired."""
        if begun - self._word >= self.pace.lease:
            self.lapses += 1
        self._word = begun

    def turn(self) -> bool:
        """Read the leases if a beat has passed, and take this curator's share; whether it did."""
        self._turned = self._steady()
        if not self.store.connected:
            self.ready, self._joined = frozenset(), math.inf
            self.store.connect()
        if self._joined == math.inf:
            self._join()
        if not self.time_to_look():
            return False
        begun = self._steady()  # a pause after the look makes no word older
        self.seen = self._look()
        self._take(begun)
        self._lock()
        self._next = self._steady() + self.pace.beat
        return True

    def look_soon(self) -> None:
        """Read the leases in the next turn."""
        self._next = 0.0

    def time_to_look(self) -> bool:
        """Whether a beat has passed since the leases were read."""
        return self._steady() >= self._next

    def _look(self) -> LeaseTable:
        seen = self._leases.look()
        if self.me not in seen.living:  # others took this one for dead
            self.lapses += 1
            begun = self._steady()
            self._leases.join()
            self._spoke(begun)
            seen = self._leases.look()
        valid, now = {peer.id: peer.until for peer in seen.peers}, self._steady()
        for name, owner in seen.leases.items():
            word = owner, valid.get(owner or "")
            if self._words.get(name, ())[:2] != word:
                self._words[name] = *word, now
        return seen

    def _take(self, now: float) -> None:
        if now - self._joined < self.pace.settled or self.still:
            self.surplus = 0
            return
        lease, owners = self.pace.lease, self.seen.leases
        since = {n: self._words[n][2] + (lease if owners[n] else 0.0) for n in self.seen.free}
        overdue = {name for name, free in since.items() if now - free > lease}
        refused = {name for name, until in self._refused.items() if now < until}
        # an owner that is cut off takes its zones for its own for a lease after its last word, also
        # where it reaches another server that lacks what its successor recorded
        refused |= {name for name, free in since.items() if owners[name] and now < free}
        wanted = plan(self.seen, self.me, overdue, refused)
        self.surplus = wanted.give
        self._keep(self._leases.take(wanted.take, self.seen))

    def take_all(self) -> list[str]:
        """Take all leases, unless another curator lives; returns those that do."""
        self._join()
        self.seen = self._look()
        others = sorted(self.seen.living - {self.me})
        if not others and any(self.seen.leases.values()):
            self._stop.wait(self.pace.lease)  # one that is cut off may still run them
            self.seen = self._look()
            others = sorted(self.seen.living - {self.me})
        if not others:
            self._keep(self._leases.take(list(self.seen.leases), self.seen))
            self._lock()
        return others

    def _keep(self, taken: frozenset[str]) -> None:
        if not taken:
            return
        before = self.seen.leases
        self.taken += sum(before[name] is not None for name in taken)
        leases = {**before, **dict.fromkeys(taken, self.me)}
        self.seen = LeaseTable(self.seen.now, self.seen.peers, leases)
        log.info("leases taken", extra={"curator": self.me, "zones": len(taken)})

    def _lock(self) -> None:
        """Lock the leased zones: the old writer's session may not have ended yet."""
        mine = self.seen.of(self.me)
        self.ready = self.store.lock(mine & self.zones) | (mine & self._more)

    def owner(self, zone: str) -> str:
        """The living curator that runs a zone; empty where there is none."""
        found = self.seen.leases.get(zone)
        return found if found is not None and found in self.seen.living else ""

    def awaited(self, zone: str) -> bool:
        """Whether the curator of a zone ended so shortly before that none may have it yet."""
        owner, _, came = self._words.get(zone, (None, None, 0.0))
        waits = self.pace.lease + self.pace.settled
        return bool(owner) and not self.owner(zone) and self._steady() < came + waits

    def give(self, names: Iterable[str], *, refuse: bool = False) -> None:
        """Give back leases of zones that are closed here already."""
        some = list(names)
        for name in some:
            self.store.unlock(name)
            if refuse:
                self._refused[name] = self._steady() + REFUSED
        self.ready -= set(some)
        self._leases.give(some)
        leases = {**self.seen.leases, **dict.fromkeys(some, None)}
        self.seen = LeaseTable(self.seen.now, self.seen.peers, leases)
        log.info("leases given back", extra={"curator": self.me, "zones": len(some)})

    def leave(self) -> None:
        """Give back all leases and unregister, so that others need not wait."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)
        for zone in self.ready & self.zones:
            self.store.unlock(zone)
        self.ready = frozenset()
        try:
            self._leases.leave()
        except LedgerError:  # then the leases end by themselves
            log.warning("leases not given back", extra={"curator": self.me})

    def stop(self) -> None:
        """Leave, and close the session."""
        if self._joined < math.inf:
            self.leave()
        self.store.close()

    def _live(self) -> None:
        while not self._stop.wait(self.pace.beat):
            if self._steady() - self._turned > HANGS:
                continue
            with suppress(LedgerError):  # the loop finds out, too
                if self.store.connected:
                    begun, joined = self._steady(), self._joined < math.inf
                    self._leases.beat()
                    if joined and self._joined < math.inf:  # not a session that has not joined
                        self._spoke(begun)


BROKER = "mqtt:readings"  # one curator takes what the broker has; no zone has a name like it
FEW = 2  # zones given back at once, where it is not many
FAILURES = 2  # of a zone in a row, then another curator may try


class SharedProcess(Process):
    """A process that runs the zones it has leases of.

    Args:
        deployment: The service as its file describes it.
        stack: Closes what the process opens.
    """

    def __init__(self, deployment: Deployment, stack: ExitStack) -> None:
        mqtt = deployment.mqtt
        self._sharing = Sharing(
            deployment.ledger,
            [zone.id for zone in deployment.zones],
            [BROKER] if mqtt is not None and mqtt.readings else [],
            name=deployment.name,
            pace=LeasePace.of(min(zone.seconds for zone in deployment.zones)),
        )
        stack.callback(self._sharing.stop)
        self._follower = LedgerFollower(self._sharing.zones, verify_signature, self._witness)
        self._moves = self._lapses = 0
        self._replays = {zone.id: Replay(zone) for zone in deployment.zones}
        self._statuses: dict[str, Status] = {}
        self._away, self._refused = False, ""
        self._broker: MqttReadings | None = None
        super().__init__(_with_session_urls(deployment, self._sharing.me), stack)
        self._metrics.add_cluster()

    @property
    def _suffix(self) -> str:
        return f"-{self._sharing.me}"

    def _witness(self, zone: str) -> Witness:
        return self._witnesses.of(zone)

    def _make_zones(self) -> list[ZoneRun]:
        beat, zones = self._sharing.pace.beat, self.deployment.zones
        return [ZoneRun(z, self._curator, first_pause=beat, server=True) for z in zones]

    @contextmanager
    def _curator(self, zone: ZoneService, now: float, new_epoch: bool) -> Iterator[Curator]:
        known = {"fold": self._follower.folds[zone.id], "replay": self._replays[zone.id]}
        with self._curator_on(self._sharing.store, zone, now, new_epoch, **known) as curator:
            self.history.fill(zone.id, curator.releases, notified=False)
            yield curator

    # ---- the start

    def open(self, now: float, new_epoch: bool) -> None:
        """Read every zone's ledger; raises the first error. Leases are taken by the loop."""
        for run in self._zones:
            self._stack.callback(run.close)
        self._follower.since = now
        self._put_back()
        store = self._sharing.store
        check_moves(self.deployment.zones, store, self._key, new_epoch=new_epoch)
        if new_epoch:
            self._begin_anew(now)
        else:
            self._use_checkpoints()
        self._follow(now)
        standings = {}
        for zone in self.deployment.zones:
            self._meters.open_zone(*zone.roster)
            if zone.id in self._follower.bad or self._follower.folds[zone.id].place is None:
                continue
            standings[zone.id] = self._follower.folds[zone.id].standing
            self._check(zone, standings[zone.id])
        check_arrived({zone: one.transfers for zone, one in standings.items()})

    def _use_checkpoints(self) -> None:
        """Begin with the state after a record that was verified before, where there is one."""
        store = self._sharing.store
        for zone in self.deployment.zones:
            held, fold = (
                read(store, zone.id, self._key.public, verify_signature),
                self._follower.folds[zone.id],
            )
            if held is not None:
                refold_verified(store, zone.id, fold, Head(held.seq, held.head))
            if held is None or fold.place is None:
                continue
            self._follower.note(zone.id, list(store.records(zone.id, max(fold.seq - KEPT, 0))))
            releases = fold.standing.releases
            self.history.fill(zone.id, releases, notified=False)
            with suppress(HushgridError):  # other terms than here; see `_keep_up`
                self._replays[zone.id].follow(fold.standing).resume(held)

    def _begin_anew(self, now: float) -> None:
        others = self._sharing.take_all()
        if others:
            raise ServiceError(
                f"--new-epoch begins new terms in every zone while {', '.join(others)} runs some;"
                " stop all other curators first."
            )
        for zone in self._zones:
            zone.open(now, new_epoch=True)

    def _check(self, zone: ZoneService, standing: LedgerState) -> None:
        """Check at the start what a curator would check when it opens the zone."""
        if (standing.mode, standing.key) != (self.deployment.mode, self._key.public):
            raise LedgerError(
                f"the ledger of zone {zone.id!r} is for {standing.mode} with the key"
                f" {standing.key[:12]}; give every curator the same file and key."
            )
        check_all_here(zone, standing, self._key, new_epoch=False)
        if standing.epoch is not None:
            check_same(zone, standing)

    def _listen_to_broker(self) -> None:
        self._stack.callback(self._leave_broker)  # a lease says who listens

    # ---- the loop

    def turn(self, clock: Clock, stopped: Callable[[], bool] = lambda: False) -> None:
        """Take and give leases, follow others, and one pass over the zones run here."""
        try:
            if self._sharing.turn():
                self._disown()
                self._close_lost()
                self._resume(moved=self._look_at_server())
                self._follow(clock.now())
        except LedgerError as error:
            self._lose(error)
            return
        if self._away:
            self._away, self._refused = False, ""
            for zone in self._zones:
                zone.refresh()
        self._use_broker()
        self._run(clock, stopped)
        self._passed()
        try:
            self._give(clock.now())
        except LedgerError as error:
            self._lose(error)

    def _run(self, clock: Clock, stopped: Callable[[], bool]) -> None:
        """A pass over the zones run here, most urgent first, until it is time to read the leases.

        A curator with too many zones would otherwise not notice others that wait to take some.
        """
        if self._sharing.still:
            return
        mine = [zone for zone in self._zones if zone.service.id in self._sharing.ready]
        for zone in sorted(mine, key=self._due):
            failures = zone.failures
            self._pass(zone, clock, stopped)
            if zone.failures > failures:  # perhaps the database is away, then no other need fail
                self._sharing.look_soon()
            if self._sharing.time_to_look() or stopped():
                return

    def _due(self, zone: ZoneRun) -> float:
        """When its next interval closes [UTC epoch s], open or not; at once before the first."""
        if zone.curator is not None:
            return zone.next_due()
        status, service = self._statuses.get(zone.service.id), zone.service
        return (status.t + 2) * service.seconds + service.grace if status and status.t else 0.0

    def rest(self, clock: Clock) -> float:
        """How long to sleep [s]: at most a beat."""
        return min(super().rest(clock), self._sharing.pace.beat)

    def _with_curator(self, status: Status) -> Status:
        return replace(status, curator=self._sharing.me)

    def _disown(self) -> None:
        """After a lapse of the leases this process may not have been the last that wrote."""
        if self._sharing.lapses != self._lapses:
            self._lapses = self._sharing.lapses
            for zone in self._zones:
                self._witness(zone.service.id).disown()

    def _look_at_server(self) -> bool:
        """After a fail-over: restore lost records of the ledgers, and read them again."""
        if self._sharing.moves == self._moves:
            return False
        self._moves = self._sharing.moves
        self._put_back()
        self._follower.doubt()
        return True

    def _put_back(self) -> None:
        """Append records of the witnesses that the ledgers of zones not open here lack.

        A record that was sent and never confirmed is none of them: another curator may have
        published that step since. The writer of the zone appends it, after others had their time.
        """
        store = self._sharing.store
        for zone in self._zones:
            name, witness = zone.service.id, self._witness(zone.service.id)
            if zone.curator is not None:
                continue  # its writer does
            head = store.head(name)
            seq = head.seq if head else 0
            if all(tail.records[-1].seq <= seq for tail in witness.tails()):
                continue
            try:
                with store.recovering(name):
                    fold = Fold(verify_signature)
                    refold(store, name, fold)
                    recover(store, name, fold, witness, self._key.public, sent=False)
            except LedgerError as error:
                log.warning("records not put back", extra={"zone": name, "reason": str(error)})

    def _close_lost(self) -> None:
        for zone in self._zones:
            if zone.service.id not in self._sharing.ready:
                self._witness(zone.service.id).disown()
            if zone.curator is not None and zone.service.id not in self._sharing.ready:
                log.info("zone left", extra={"zone": zone.service.id})
                zone.close()

    def _resume(self, *, moved: bool) -> None:
        """Continue zones whose session was lost, unless their ledgers have new records.

        Where another server answers they are reopened, which finds out what it may have lost.
        """
        store, found = self._sharing.store, {}
        cut = {z.service.id: z for z in self._zones if store.cut_off(z.service.id)}
        if cut:
            found = self._follower.catch_up(store, self._sharing.zones - set(cut))
        for name, zone in cut.items():
            head, place = store.head(name), self._follower.folds[name].place
            same = head is not None and place is not None and head.digest == place.head.digest
            if moved or name in found or not same:
                zone.close()  # and opened again, with what came
                for release in found.get(name, []):
                    self.history.follow(zone.service, release)
            else:
                store.resume(name)

    def _lose(self, error: LedgerError) -> None:
        """Without the session nothing may be recorded; the zones wait."""
        # once, not at every attempt; a ledger that was moved is no database that comes back
        refused = "" if isinstance(error, LedgerAwayError) else str(error)
        if not self._away or refused not in ("", self._refused):
            log.error(
                "ledger refused" if refused else "database away", extra={"reason": str(error)}
            )
        self._away, self._refused = True, refused or self._refused
        for zone in self._zones:
            if zone.service.id not in self.board.waiting():
                self._metrics.failed(zone.service.id)
            self.board.failed(zone.service.id)

    def _give(self, now: float) -> None:
        """Give back leases that others wait for, and zones that fail or wait for the clock here."""
        sharing = self._sharing
        if len(sharing.seen.living) > 1:
            for zone in self._zones:
                wrong = zone.curator is not None and zone.curator.doubt in (STEPPED, BEHIND)
                if (wrong or zone.failures >= FAILURES) and zone.service.id in sharing.ready:
                    zone.refresh()
                    self._hand_over([zone], refuse=True)
        if sharing.surplus:
            # a few at a time: who takes them opens one after the other
            few = max(FEW, sharing.surplus // 4)
            some = self._spare(now)[: min(few, sharing.surplus)]
            sharing.surplus = 0
            if some:
                self._hand_over(some)

    def _hand_over(self, zones: Sequence[ZoneRun], *, refuse: bool = False) -> None:
        """Close zones and give them back; another curator may write from then on."""
        for zone in zones:
            zone.close()
            self._witness(zone.service.id).disown()
        self._sharing.give([zone.service.id for zone in zones], refuse=refuse)

    def _spare(self, now: float) -> list[ZoneRun]:
        """Zones that another can open before they are due; then those late by an interval."""
        mine = [zone for zone in self._zones if zone.service.id in self._sharing.ready]
        idle = [z for z in mine if self._due(z) - now > z.service.seconds / 4]
        late = [z for z in mine if now - self._due(z) > z.service.seconds]
        return [*sorted(idle, key=self._due, reverse=True), *sorted(late, key=self._due)]

    # ---- what others do

    def _follow(self, now: float) -> None:
        """Publish what other curators recorded, and the status of their zones."""
        sharing, here = self._sharing, {z.service.id for z in self._zones if z.curator is not None}
        anew = self._follower.reread(sharing.store, here)
        found = self._follower.catch_up(sharing.store, here)
        for zone in map(self._present, self.deployment.zones):
            if zone.id in here:
                self._statuses.pop(zone.id, None)
                continue
            if zone.id in anew:
                self._statuses.pop(zone.id, None)
                releases = self._follower.folds[zone.id].standing.releases
                self.history.fill(zone.id, releases, notified=False)
            self._show(zone, found.get(zone.id, []), now)
            if zone.id in found or zone.id not in self._statuses:
                fold = self._follower.folds[zone.id]
                standing = fold.standing if fold.place else None
                self._statuses[zone.id] = status_of(zone, standing, now)
                if standing is not None and standing.epoch is not None:
                    self._keep_up(zone, standing)
            owner, status = sharing.owner(zone.id), self._statuses[zone.id]
            late = status.t > 0 and now > (status.t + 3) * zone.seconds + zone.grace
            state = "behind" if late else status.state
            status = replace(status, curator=owner or None, state=state)
            self._metrics.zone_elsewhere(status)
            if self._operator is not None:
                self._operator.elsewhere(zone.id)
            runs = None if sharing.awaited(zone.id) else bool(owner) and owner != sharing.me
            self.board.follows(status, runs=runs)
        living = len(sharing.seen.living)
        self._metrics.cluster(living, len(sharing.ready), sharing.taken)

    def _present(self, zone: ZoneService) -> ZoneService:
        """The zone in the epoch that another curator has begun since, if one has."""
        fold = self._follower.folds[zone.id]
        epoch = fold.standing.epoch if fold.place else None
        if epoch is None or epoch.first * epoch.seconds == zone.begins:
            return zone
        found = zone_as_begun(zone, epoch)
        if found is not zone:
            self._renew(found)
        return found

    def _renew(self, zone: ZoneService) -> None:
        super()._renew(zone)
        self._replays[zone.id] = Replay(zone)
        for run in self._zones:
            run.service = zone if run.service.id == zone.id else run.service

    def _keep_up(self, zone: ZoneService, standing: LedgerState) -> None:
        """Replay new records, so that the zone can be taken over at once."""
        try:
            _ = self._replays[zone.id].follow(standing).public
        except HushgridError:  # other terms than here; opening the zone raises the error
            self._replays[zone.id] = Replay(zone)

    def _show(self, zone: ZoneService, releases: list[ReleaseRecord], now: float) -> None:
        for release in releases:
            self.history.follow(zone, release)
        self.history.unread.discard(zone.id)
        prices = self.history.present(zone.id, now)
        if prices is None:
            return
        self.history.show(zone, prices)
        if self._price_file is not None:
            try:
                self._price_file.show(zone, prices)
            except OSError as error:  # the next pass writes it again
                log.warning(
                    "price file not written", extra={"zone": zone.id, "error": type(error).__name__}
                )

    def _use_broker(self) -> None:
        if BROKER not in self._sharing.ready:
            self._leave_broker()
        elif self._broker is None:
            self._broker = self._make_readings()
            if self._broker is not None:
                self._broker.start()

    def _leave_broker(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def leave(self) -> None:
        """Give back all zones before HTTP and MQTT are closed."""
        super().leave()
        for zone in self._zones:
            zone.close()
        self._leave_broker()
        self._sharing.leave()


def _with_session_urls(deployment: Deployment, me: str) -> Deployment:
    """The deployment with this curator's name in every database session."""
    return replace(
        deployment,
        ledger=session_url(deployment.ledger, me),
        meters=session_url(deployment.meters, me),
        clients=session_url(deployment.client_store, me),
        vtn=session_url(deployment.vtn_store, me),
    )
