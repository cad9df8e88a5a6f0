"""A service on PostgreSQL with curators that stand by: one is active, the others wait.

A curator that stands by copies new records into its own witness, so that a database server that
took over without the last records gets them back. It answers no price and takes no reading, and it
records nothing. When the row of the active curator has expired, it takes the row
(`ledger/fenced.py`), opens the zones and serves them. A curator that has lost the row closes its
zones and stands by again.

It begins no terms. A zone whose file has other terms than the ledger is not served: the ledger has
only the digest of what is not in the file. Such a curator says where its file differs, and takes a
row only when it has been free for one more lease, so that one with the right file comes first.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hushgrid.curator.changes import changes_of, under_ledger_terms
from hushgrid.curator.clock import Clock, since_start
from hushgrid.errors import (
    LedgerAwayError,
    LedgerError,
    LedgerHeldError,
    MeterRetryError,
    ServiceError,
)
from hushgrid.files.deployment import Deployment
from hushgrid.operate.process import Process
from hushgrid.stores.ledger.chain import Fold
from hushgrid.stores.ledger.fenced import FencedLedger, Lease, session_url
from hushgrid.stores.ledger.recovery import recover, refold
from hushgrid.stores.ledger.witness import KEPT, open_witnesses
from hushgrid.stores.ledger.writer import load, verify_signature
from hushgrid.stores.meters.block_keys import BlockKeys
from hushgrid.web.http.server import Server, SwappableApp

if TYPE_CHECKING:
    from hushgrid.stores.ledger.records import Record

log = logging.getLogger("hushgrid.standby")

STANDS_BY = "This curator stands by; ask the active one."
HANGS = 300.0  # [s] without a pass over the zones, then the row is no longer renewed


class Standby:
    """One curator of several on a database: its row, its witnesses and its HTTP server.

    Args:
        deployment: The service as its file describes it.
        stack: Closes what is opened.
        clock: The wall clock.
        steady: A clock that cannot be set [s].
        begins: Whether it begins the terms of its file when it is first active.

    Attributes:
        me: The name of this curator.
        deployment: The service with this name in every database session.
        store: The ledger.
        lost: Set when this curator is no longer active.
        begins: See above; False once it has begun them.
        differs: Where the file of a zone differs from the ledger, a sentence by zone.
    """

    def __init__(
        self,
        deployment: Deployment,
        stack: ExitStack,
        clock: Clock,
        steady: Callable[[], float] = since_start,
        *,
        begins: bool = False,
    ) -> None:
        self.me = f"{deployment.name}-{secrets.token_hex(3)}"
        self.deployment = _with_session_urls(deployment, self.me)
        self.lease = Lease.of(min(zone.seconds for zone in deployment.zones))
        self._zones = {zone.id: zone.seconds for zone in deployment.zones}
        keys = deployment.block_key_folder
        self._keys = None if keys is None else BlockKeys(keys)
        self._key, self._steady, self._clock = load(deployment.key), steady, clock
        self.store = stack.enter_context(
            FencedLedger(deployment.ledger, self.me, self.lease, steady)
        )
        self.witnesses = stack.enter_context(open_witnesses(deployment))
        self.lost = threading.Event()
        self._server = self.store.server()
        moved = self.store.any_moved(self._zones)
        # until then nothing is taken: other curators append what this server lacks
        self._still = steady() + self.lease.seconds if moved else -math.inf
        self._since = clock.now()
        self._last = {zone: self._noted(zone) for zone in self._zones}
        self._passed, self._stop = steady(), threading.Event()
        self._asked = -math.inf  # when the last renewal was begun, gone through or not
        self._away = False
        self._free: float | None = None  # since when the row is seen free
        self.differs: Mapping[str, str] = {}
        self.begins = begins
        if not begins:
            self.compare()
        self.stage: SwappableApp | None = None
        if deployment.http is not None:
            health = Route("/healthz", self._alive)
            self.stage = SwappableApp([health], absent=STANDS_BY, answers=self.awake)
            http = deployment.http
            server = Server(self.stage, http.host, http.port, http)
            server.start()
            stack.callback(server.stop)
        self._put_back()

    def _noted(self, zone: str) -> int:
        """The number of the record after which the witness is to follow the ledger."""
        head = self.store.head(zone)
        return max((head.seq if head else 0) - KEPT, 0)

    def wait(self, stop: threading.Event) -> bool:
        """Stand by until this curator is active; False where `stop` was set before.

        Args:
            stop: Ends the wait once it is set.
        """
        log.info("standing by", extra={"curator": self.me})
        while not stop.is_set():
            try:
                if self._turn():
                    self._away = False
                    log.info("active", extra={"curator": self.me})
                    return True
                self._away = False
            except LedgerError as error:
                if not self._away:
                    log.error("database away", extra={"reason": str(error)})
                self._away = True
            stop.wait(self.lease.beat)
        return False

    def _turn(self) -> bool:
        """Follow the ledger; take the row where it is free. Whether this curator is active now."""
        now, server = self._steady(), self.store.server()
        if server is not None and server != self._server:
            log.warning("another database server", extra={"curator": self.me})
            self._server, self._still = server, now + self.lease.seconds
            self._last = {zone: self._noted(zone) for zone in self._zones}
            self._put_back()
        self._follow()
        row = self.store.look()
        if row.valid or now < self._still:
            self._free = None
            return False
        self._free = now if self._free is None else self._free
        if len(self.differs) == len(self._zones):  # it has nothing to serve
            return False
        if self.differs and now - self._free < self.lease.seconds:
            return False
        if not self.store.take(row):
            return False
        if self.store.server() not in (None, self._server):  # noticed at the next turn
            self.store.give()
            return False
        self.lost.clear()
        self.passed()
        self._asked = now
        threading.Thread(target=self._renew, name="lease", daemon=True).start()
        return True

    def _follow(self) -> None:
        """Copy new records into the witnesses."""
        behind, new_terms = dict(self._last), False
        while behind:
            records: dict[str, list[Record]] = {}
            for record in self.store.after(behind):
                records.setdefault(record.zone, []).append(record)
            for zone, new in records.items():
                kinds = {record.kind for record in new}
                new_terms = new_terms or bool(kinds & {"terms", "tariff"})
                try:
                    self.witnesses.of(zone).follow(new, self._since)
                except LedgerError as error:
                    log.warning("not witnessed", extra={"zone": zone, "reason": str(error)})
                self._erase_keys(zone, new)
                self._last[zone] = new[-1].seq
            behind = {zone: self._last[zone] for zone in records}
        if new_terms and not self.begins:
            self.compare()

    def compare(self) -> Deployment:
        """See where the file differs from the ledger; the zones where it does not."""
        comparison = under_ledger_terms(self.deployment, self.store)
        deployment, differs = comparison.deployment, comparison.zones
        for zone, sentence in differs.items():
            if self.differs.get(zone) != sentence:
                log.warning("file differs", extra={"zone": zone, "reason": sentence})
        self.differs = differs
        return deployment

    def _erase_keys(self, zone: str, records: list[Record]) -> None:
        """Erase the keys of blocks before the one that the newest release is of."""
        for record in reversed(records):
            block = record.body.get("block") if record.kind == "release" else None
            if block and self._keys is not None:
                start = block["first"] * self._zones[zone]
                self._keys.follow(zone, start)
                return

    def _put_back(self) -> None:
        """Append records of the witnesses that the ledger lacks.

        A record that was sent and never confirmed is none of them: the curator that was active
        since may have published that step. The zone's writer appends it.
        """
        for zone in self._zones:
            head, witness = self.store.head(zone), self.witnesses.of(zone)
            seq = head.seq if head else 0
            if all(tail.seq <= seq for tail in witness.tails()):
                continue
            try:
                with self.store.recovering(zone):
                    fold = Fold(verify_signature)
                    refold(self.store, zone, fold)
                    recover(self.store, zone, fold, witness, self._key.public, unconfirmed=False)
            except LedgerError as error:
                log.warning("records not put back", extra={"zone": zone, "reason": str(error)})

    def passed(self) -> None:
        """Note that the loop over the zones goes on."""
        self._passed = self._steady()

    def awake(self) -> bool:
        """Whether this curator is active and asked for its row within the last lease.

        Until a curator that was paused has asked, another may be active, and what this one has in
        memory may be old.
        """
        return not self.lost.is_set() and self._steady() - self._asked < self.lease.seconds

    def wake(self, stop: threading.Event) -> None:
        """After a pause, wait until the row was asked for.

        Args:
            stop: Ends the wait once it is set.
        """
        while not (self.awake() or self.lost.is_set() or stop.is_set()):
            self.lost.wait(0.05)

    def _renew(self) -> None:
        """Renew the row until this curator has lost it or stops."""
        while not self._stop.wait(self.lease.beat) and not self.lost.is_set():
            start = self._steady()
            if start - self._passed > HANGS:
                continue
            try:
                active = self.store.renew()
            except LedgerError:  # the zones notice it, too
                active = True
            if not active:
                log.warning("no longer active", extra={"curator": self.me})
                self.lost.set()
            self._asked = start

    async def _alive(self, _request: Request) -> JSONResponse:
        state: dict[str, Any] = {"status": "standing by"}
        state |= {"differs": list(self.differs.values())} if self.differs else {}
        return JSONResponse(state, headers={"Cache-Control": "no-store"})

    def give(self) -> None:
        """Stop being active; the row is free at once where this curator still has it."""
        self.lost.set()
        self.store.give()
        for zone in self._zones:
            self.witnesses.of(zone).disown()
        self._last = {zone: max(self.witnesses.of(zone).seq, 0) for zone in self._zones}

    def close(self) -> None:
        """Let the thread that renews the row end."""
        self._stop.set()

    def check_alone(self) -> None:
        """Refuse to begin new terms while another curator is active.

        Raises:
            ServiceError: Another curator is active.
        """
        row = self.store.look()
        if row.valid and row.holder != self.me:
            raise ServiceError(
                f"--yes begins new terms while {row.holder} is active; stop it first."
            )


def serve_in_turn(
    deployment: Deployment,
    *,
    clock: Clock,
    stop: threading.Event,
    changed: bool,
    run: Callable[[Process, Callable[[], bool]], None],
) -> None:
    """Stand by, serve while this curator is active, and stand by again, until `stop` is set.

    Args:
        deployment: The service as its file describes it.
        clock: The wall clock.
        stop: Ends it once it is set.
        changed: Begin the terms of the file where the ledger has others, when this curator is
            first active.
        run: Serves with a process that is open, until the function it is given answers True.
    """
    with ExitStack() as stack:
        standby = Standby(deployment, stack, clock, begins=changed)
        stack.callback(standby.close)
        if changed:
            standby.check_alone()
        while standby.wait(stop):
            try:
                with ExitStack() as process_stack:
                    changes: Mapping[str, str] = {}
                    if standby.begins:
                        comparison = changes_of(standby.deployment, clock.now())
                        present, changes = comparison.deployment, comparison.zones
                    else:
                        present = standby.compare()
                        if not present.zones:  # other terms began since the row was taken
                            continue
                    process = Process(
                        present,
                        process_stack,
                        store=standby.store,
                        witnesses=standby.witnesses,
                    )
                    process.open(clock.now(), changes)
                    standby.begins = False
                    process.listen(clock, standby.stage)

                    def ended() -> bool:
                        standby.passed()
                        standby.wake(stop)
                        return stop.is_set() or standby.lost.is_set()

                    run(process, ended)
            except (LedgerAwayError, LedgerHeldError, MeterRetryError) as error:
                log.error("not opened", extra={"curator": standby.me, "reason": str(error)})
            finally:
                standby.give()


def _with_session_urls(deployment: Deployment, me: str) -> Deployment:
    """The deployment with this curator's name in every database session."""
    return replace(
        deployment,
        ledger=session_url(deployment.ledger, me),
        meters=session_url(deployment.meters, me),
        clients=session_url(deployment.client_store, me),
        vtn=session_url(deployment.vtn_store, me),
    )
