"""The running process of one curator among several: its own zones tick, the others are followed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from hushgrid.errors import HushgridError, LedgerError, ServiceError
from hushgrid.live.clock import Clock
from hushgrid.live.curator import Curator, Status
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.ledger.book import recover, refold
from hushgrid.live.ledger.chain import Fold
from hushgrid.live.ledger.keys import verify
from hushgrid.live.ledger.records import ReleaseRecord
from hushgrid.live.ledger.state import LedgerState
from hushgrid.live.ledger.witness import Witness
from hushgrid.live.mqtt import MqttReadings
from hushgrid.live.replay import Replay
from hushgrid.live.running import ZoneRun
from hushgrid.live.serve import Process, make_noise
from hushgrid.live.share.following import Following
from hushgrid.live.share.leases import marked
from hushgrid.live.share.rules import LeasePace
from hushgrid.live.share.sharing import Sharing
from hushgrid.live.status import status_of
from hushgrid.live.terms import check_all_here, check_same
from hushgrid.live.transfer import check_arrived

log = logging.getLogger("hushgrid.share")

BROKER = "mqtt:readings"  # one curator takes what the broker has; no zone has a name like it
FEW = 2  # zones given back at once, where it is not many
FAILURES = 2  # of a zone in a row, then another curator may try


class SharedProcess(Process):
    """A process that runs the zones it has leases of."""

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
        self._following = Following(self._sharing.zones, verify, self._witness)
        self._moves = self._lapses = 0
        self._replays = {zone.id: Replay(zone) for zone in deployment.zones}
        self._statuses: dict[str, Status] = {}
        self._away = False
        self._broker: MqttReadings | None = None
        super().__init__(_marked(deployment, self._sharing.me), stack)
        self._metrics.share()

    @property
    def _mark(self) -> str:
        return f"-{self._sharing.me}"

    def _witness(self, zone: str) -> Witness:
        return self._witnesses.of(zone)

    def _made_zones(self) -> list[ZoneRun]:
        beat = self._sharing.pace.beat
        return [ZoneRun(z, self._curator, first_pause=beat) for z in self.deployment.zones]

    @contextmanager
    def _curator(self, zone: ZoneService, now: float, new_epoch: bool) -> Iterator[Curator]:
        with Curator.open(
            zone,
            self._sharing.store,
            self._meters,
            make_noise(self.deployment),
            self._key,
            self._publishers,
            self.deployment.mode,
            now=now,
            new_epoch=new_epoch,
            fold=self._following.folds[zone.id],
            replay=self._replays[zone.id],
            witness=self._witness(zone.id),
        ) as curator:
            self.history.fill(zone.id, curator.releases, told=False)
            yield curator

    # ---- the start

    def open(self, now: float, new_epoch: bool) -> None:
        """Read every zone's ledger; what is wrong with one is raised. The loop joins the others."""
        for run in self._zones:
            self._stack.callback(run.close)
        self._put_back()
        if new_epoch:
            self._begin_anew(now)
        self._follow(now)
        standings = {}
        for zone in self.deployment.zones:
            self._meters.open_zone(zone.id, zone.meters, zone.seconds)
            if zone.id in self._following.bad or self._following.folds[zone.id].place is None:
                continue
            standings[zone.id] = self._following.folds[zone.id].standing
            self._check(zone, standings[zone.id])
        check_arrived({zone: one.transfers for zone, one in standings.items()})

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
        """What a curator would find when it opens the zone is found at the start."""
        if (standing.mode, standing.key) != (self.deployment.mode, self._key.public):
            raise LedgerError(
                f"the ledger of zone {zone.id!r} is for {standing.mode} with the key"
                f" {standing.key[:12]}; give every curator the same file and key."
            )
        check_all_here(zone, standing, self._key)
        if standing.epoch is not None:
            check_same(zone, standing)

    def _listen_to_broker(self) -> None:
        self._stack.callback(self._leave_broker)  # a lease says who listens

    # ---- the loop

    def turn(self, clock: Clock) -> None:
        """Take and give leases, follow others, and one pass over the zones that are here."""
        self._mend()
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
            self._away = False
            for zone in self._zones:
                zone.refresh()
        self._use_broker()
        self._run(clock)
        self._passed()
        try:
            self._give(clock.now())
        except LedgerError as error:
            self._lose(error)

    def _run(self, clock: Clock) -> None:
        """A pass over the zones that are here, the most urgent first, until it is time to look.

        Who has more to do than it can would else not see others come who wait to take some of it.
        """
        if self._sharing.still:
            return
        mine = [zone for zone in self._zones if zone.service.id in self._sharing.ready]
        for zone in sorted(mine, key=self._due):
            failures = zone.failures
            self._pass(zone, clock)
            if zone.failures > failures:  # perhaps the database is away, then no other need fail
                self._sharing.look_soon()
            if self._sharing.time_to_look():
                return

    def _due(self, zone: ZoneRun) -> float:
        """When its next interval closes [UTC epoch s], open or not; at once before the first."""
        if zone.curator is not None:
            return zone.next_due()
        status, service = self._statuses.get(zone.service.id), zone.service
        return (status.t + 2) * service.seconds + service.grace if status and status.t else 0.0

    def rest(self, clock: Clock) -> float:
        """How long to sleep [s]: never longer than a beat."""
        return min(super().rest(clock), self._sharing.pace.beat)

    def _told(self, status: Status) -> Status:
        return replace(status, curator=self._sharing.me)

    def _disown(self) -> None:
        """After a lapse of the leases this process may not have been the last that wrote."""
        if self._sharing.lapses != self._lapses:
            self._lapses = self._sharing.lapses
            for zone in self._zones:
                self._witness(zone.service.id).disown()

    def _look_at_server(self) -> bool:
        """After a fail-over: give the ledgers back what they lost, and doubt what was read."""
        if self._sharing.moves == self._moves:
            return False
        self._moves = self._sharing.moves
        self._put_back()
        self._following.doubt()
        return True

    def _put_back(self) -> None:
        """Append again what the ledgers of zones that are not open here lack of the witnesses."""
        store = self._sharing.store
        for zone in self._zones:
            name, witness = zone.service.id, self._witness(zone.service.id)
            if zone.curator is not None:
                continue  # its writer does
            head = store.head(name)
            seq = head.seq if head else 0
            if not any(tail.records[-1].seq > seq for tail in witness.tails()):
                continue
            try:
                with store.recovering(name):
                    fold = Fold(verify)
                    refold(store, name, fold)
                    recover(store, name, fold, witness, self._key.public)
            except LedgerError as error:
                told = {"zone": name, "reason": str(error)}
                log.warning("records not put back", extra=told)

    def _close_lost(self) -> None:
        for zone in self._zones:
            if zone.service.id not in self._sharing.ready:
                self._witness(zone.service.id).disown()
            if zone.curator is not None and zone.service.id not in self._sharing.ready:
                log.info("zone left", extra={"zone": zone.service.id})
                zone.close()

    def _resume(self, *, moved: bool) -> None:
        """Go on with zones that a lost session cut off, unless their ledgers went on meanwhile.

        Where another server answers they are opened again, which judges what it may have lost.
        """
        store, found = self._sharing.store, {}
        cut = {z.service.id: z for z in self._zones if store.cut_off(z.service.id)}
        if cut:
            found = self._following.catch_up(store, self._sharing.zones - set(cut))
        for name, zone in cut.items():
            head, place = store.head(name), self._following.folds[name].place
            same = head is not None and place is not None and head.digest == place.head.digest
            if moved or name in found or not same:
                zone.close()  # and opened again, with what came
                self._show(zone.service, found.get(name, []))
            else:
                store.resume(name)

    def _lose(self, error: LedgerError) -> None:
        """Without the session nothing may be recorded; the zones wait as they are."""
        if not self._away:
            log.error("database away", extra={"reason": str(error)})
        self._away = True
        for zone in self._zones:
            if zone.service.id not in self.board.waiting():
                self._metrics.failed(zone.service.id)
            self.board.failed(zone.service.id)

    def _give(self, now: float) -> None:
        """Leave to others what they wait for, and what cannot be run here."""
        sharing = self._sharing
        if len(sharing.seen.living) > 1:
            for zone in self._zones:
                if zone.failures >= FAILURES and zone.service.id in sharing.ready:
                    zone.refresh()
                    sharing.give([zone.service.id], refuse=True)
        if sharing.surplus:
            # a few at a time: who takes them opens one after the other
            few = max(FEW, sharing.surplus // 4)
            some = self._spare(now)[: min(few, sharing.surplus)]
            sharing.surplus = 0
            for zone in some:
                zone.close()
            if some:
                sharing.give([zone.service.id for zone in some])

    def _spare(self, now: float) -> list[ZoneRun]:
        """Zones that another can open before they are due; then those that are late by one."""
        mine = [zone for zone in self._zones if zone.service.id in self._sharing.ready]
        idle = [z for z in mine if self._due(z) - now > z.service.seconds / 4]
        late = [z for z in mine if now - self._due(z) > z.service.seconds]
        return [*sorted(idle, key=self._due, reverse=True), *sorted(late, key=self._due)]

    # ---- what others do

    def _follow(self, now: float) -> None:
        """Show what other curators recorded, and say where their zones stand."""
        sharing, here = self._sharing, {z.service.id for z in self._zones if z.curator is not None}
        anew = self._following.reread(sharing.store, here)
        found = self._following.catch_up(sharing.store, here)
        for zone in self.deployment.zones:
            if zone.id in here:
                self._statuses.pop(zone.id, None)
                continue
            if zone.id in anew:
                self._statuses.pop(zone.id, None)
                releases = self._following.folds[zone.id].standing.releases
                self.history.fill(zone.id, releases, told=False)
            self._show(zone, found.get(zone.id, []))
            if zone.id in found or zone.id not in self._statuses:
                fold = self._following.folds[zone.id]
                standing = fold.standing if fold.place else None
                self._statuses[zone.id] = status_of(zone, standing, now)
                if standing is not None and standing.epoch is not None:
                    self._keep_up(zone, standing)
            owner, status = sharing.owner(zone.id), self._statuses[zone.id]
            late = status.t > 0 and now > (status.t + 3) * zone.seconds + zone.grace
            state = "behind" if late else status.state
            status = replace(status, curator=owner or None, state=state)
            self._metrics.follows(status)
            if self._operator is not None:
                self._operator.elsewhere(zone.id)
            self.board.follows(status, runs=bool(owner) and owner != sharing.me)
        living = len(sharing.seen.living)
        self._metrics.shares(living, len(sharing.ready), sharing.taken)

    def _keep_up(self, zone: ZoneService, standing: LedgerState) -> None:
        """Fold what came, so that the zone can be taken over at once."""
        try:
            self._replays[zone.id].follow(standing).fold()
        except HushgridError:  # other terms than ours; who opens the zone says so
            self._replays[zone.id] = Replay(zone)

    def _show(self, zone: ZoneService, releases: list[ReleaseRecord]) -> None:
        for release in releases:
            self.history.follow(zone, release)
        if releases and self._price_file is not None:
            try:
                self._price_file.publish(zone, releases[-1])
            except OSError as error:  # the next one is written again
                log.warning("not shown", extra={"zone": zone.id, "error": type(error).__name__})

    def _use_broker(self) -> None:
        if BROKER not in self._sharing.ready:
            self._leave_broker()
        elif self._broker is None:
            self._broker = self._made_readings()
            if self._broker is not None:
                self._broker.start()

    def _leave_broker(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def leave(self) -> None:
        """Others go on with the zones before the ways in are closed."""
        for zone in self._zones:
            zone.close()
        self._leave_broker()
        self._sharing.leave()


def _marked(deployment: Deployment, me: str) -> Deployment:
    """Every session of the process is known as this curator's."""
    return replace(
        deployment,
        ledger=marked(deployment.ledger, me),
        meters=marked(deployment.meters, me),
        clients=marked(deployment.client_store, me),
        vtn=marked(deployment.vtn_store, me),
    )
