"""The tick of one zone: an interval closes, one release is recorded, then published.

    readings -> meter store -> close -> clamp, add, add noise drawn beforehand -> ledger -> show

Cost and value are one durable record; nothing is published before it. The only state is the meter
store and the ledger: everything else is folded again from them when a curator opens.

An interval without any reading gets the public forecast and spends nothing. That no meter of the
zone reported is then public; no other pattern of who reported is.

Where noise lasts a block of steps, its size M is sealed in the meter store, durable before the
block's first release and erased after its last step, as its key is. It is drawn while no release of
the block is out, and never again. A block with a release and without M is lost: its other steps get
the forecast.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hushgrid._numbers import Ints
from hushgrid.belief.expected_rate import mean_rates
from hushgrid.belief.filter import Expectations
from hushgrid.belief.followed import informed
from hushgrid.belief.load_filter import Values
from hushgrid.curator.account_records import room_of
from hushgrid.curator.block_sizes import BlockSizes
from hushgrid.curator.changes import begins_terms, last_terms, zone_as_begun
from hushgrid.curator.clock import utc
from hushgrid.curator.gaps import book, note_loss
from hushgrid.curator.price_lists import due_list, price_list
from hushgrid.curator.publishers import PresentPrices, Publisher, Publishers
from hushgrid.curator.replay import Replay, last_release
from hushgrid.curator.status import (
    NO_SIZE,
    NOT_BEGUN,
    UNTIL_RESUMED,
    WAITS,
    ClockDoubt,
    Inside,
    Status,
)
from hushgrid.curator.terms import begin, check_models_agree, check_moves
from hushgrid.curator.zone_account import AdmittedBlock, ZoneAccount
from hushgrid.errors import HorizonError, HushgridError, MeterError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.files.weeks import in_week
from hushgrid.mechanism.noise import Noise, Stepwise
from hushgrid.mechanism.release import Mode, PreparedNoise, State, prepare, step
from hushgrid.mechanism.scheduler import Calibration
from hushgrid.model.zone import feed_in_rate, smoothed_rate
from hushgrid.stores.ledger.checkpoint import Checkpoint
from hushgrid.stores.ledger.checkpoint import read as read_checkpoint
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.entries import (
    PricesRecord,
    ReleaseRecord,
    TransferRecord,
    first_step,
)
from hushgrid.stores.ledger.records import Head
from hushgrid.stores.ledger.witness import Witness
from hushgrid.stores.ledger.writer import Ledger, Signer, verify_signature
from hushgrid.stores.meters import MeterStore
from hushgrid.stores.meters.columns import Closed

log = logging.getLogger("hushgrid.curator")

PURGE = 60.0  # [s] between two looks for readings that are kept no longer
LATE = 4  # intervals a curator that was away still publishes; older ones are closed and left out
AT_ONCE = 10_000  # intervals left out in one pass; other zones and a stop signal come in between
EVERY = 20  # records between two checkpoints: what a curator that takes over replays
LEARNED = 20  # releases that public knowledge takes in one pass, where nothing waits for it


class PriceFile:
    """The price in force of each zone in one JSON file, replaced whole.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._beside = path, path.with_name(f"{path.name}.new")
        self._prices: dict[str, dict[str, Any]] = {}

    def publish(self, zone: ZoneService, release: ReleaseRecord) -> None:
        """Nothing: a price is written when it is in force."""

    def show(self, zone: ZoneService, prices: PresentPrices) -> None:
        """Write all prices where one has changed; OSError where that fails."""
        all_prices = self._prices | {zone.id: prices.price}
        if all_prices == self._prices:
            return
        self._beside.write_text(json.dumps(all_prices, indent=2, sort_keys=True) + "\n")
        self._beside.replace(self._path)
        self._prices = all_prices


def open_price_file(deployment: Deployment, client: str) -> PriceFile | None:
    """Open the price file that the service file names.

    Args:
        deployment: The service.
        client: Name of this process at brokers; not used.

    Returns:
        The publisher, or None.
    """
    del client
    if deployment.price_file is None:
        return None
    return PriceFile(deployment.price_file)


class Curator:
    """The curator of one zone, made by `open`.

    Attributes:
        service: The zone as it runs.
        confirmed: Whether the operator took the clock for right during the last pass.
    """

    def __init__(
        self,
        service: ZoneService,
        ledger: Ledger,
        meters: MeterStore,
        noise: Noise | Stepwise,
        publishers: Publishers,
        mode: Mode,
        watch: Callable[[str], None],
        covariates: Callable[[int], Values],
        read: Callable[[str, int], Closed] | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.service, self._ledger, self._meters = service, ledger, meters
        self._publishers, self._mode, self._watch = publishers, mode, watch
        self._covariates, self._read = covariates, read
        self._noise, self._sizes = noise, BlockSizes(meters, noise)
        self._closed = -1  # the last interval closed here [UTC s]
        self._refused = 0  # the end of the week after which none may begin [UTC s]
        self._missing: int | None = None
        self._purged = -math.inf
        self._clock = ClockDoubt()
        self.confirmed = False
        self._replay = Replay(service)
        self._checkpoint = 0  # the number of its record
        if checkpoint is not None:
            self._checkpoint = checkpoint.seq
            agrees = self._replay.follow(ledger.standing).resume(checkpoint)
            if not agrees:
                reason = "it has another state than that of the present terms"
                log.warning("checkpoint not used", extra={"zone": service.id, "why": reason})
        self._fold()

    @classmethod
    @contextmanager
    def open(
        cls,
        service: ZoneService,
        store: LedgerStore,
        meters: MeterStore,
        noise: Noise | Stepwise,
        key: Signer,
        publishers: Sequence[Publisher],
        mode: Mode,
        *,
        now: float,
        new_terms: bool = False,
        begins: int | None = None,
        watch: Callable[[str], None] = lambda _: None,
        witness: Witness | None = None,
        covariates: Callable[[int], Values] = lambda _: {},
        present: Callable[[float], PresentPrices | None] = lambda _: None,
        read: Callable[[str, int], Closed] | None = None,
    ) -> Iterator[Curator]:
        """Take the zone's lock, refold ledger and schedule, and go on from there.

        Args:
            service: The zone.
            store: Where its ledger is.
            meters: Where its readings are.
            noise: Source of the noise.
            key: The key that signs.
            publishers: The ways out.
            mode: Production or simulation.
            now: [UTC s]
            new_terms: The operator has agreed to the file: record its terms, where they are others
                or begin later than those on record, and its tariff. A tariff alone begins no terms.
            begins: First interval [UTC s] of terms that have published nothing, where the
                caller knows it.
            watch: Called with the name of each step of a tick.
            witness: The last records known on this machine. Without one a ledger that lost its
                end is refused where its store notices, and not noticed where it does not.
            covariates: Values of the public covariates by the start of an interval [UTC s];
                returns at once, and never raises.
            present: Prices at an instant [UTC s], for publishers that show them; None while
                they are not ready. Returns at once, and never raises.
            read: Gives a zone's closed interval by its start [UTC s], where it is not the meter
                store that has its readings.

        Yields:
            The curator; the lock is held until the context ends.

        Raises:
            LedgerError: The ledger cannot be gone on with: other terms or another tariff, another
                key, two histories, a gap that is not booked.
            MeterError: The meter store holds the zone under other terms.
        """
        checkpoint, changed = None, new_terms
        new_terms = changed and begins_terms(service, last_terms(store, service.id))
        if not new_terms:
            checkpoint = read_checkpoint(store, service.id, key.public, verify_signature)
        verified = None if checkpoint is None else Head(checkpoint.seq, checkpoint.head)
        with Ledger.open(
            store, service.id, key, mode, now, witness=witness, verified=verified
        ) as ledger:
            if witness is not None and new_terms:  # no new terms while something may be lost
                note_loss(service, ledger, meters, now)
            if new_terms:
                check_moves([service], store, key, new_terms=True)
            terms = ledger.standing.terms
            if terms is None and not new_terms:  # before terms are on record that it contradicts
                meters.open_zone(*service.roster)
            if not new_terms and terms is not None:
                tariff = ledger.standing.tariff_before(terms.seq)
                service = zone_as_begun(service, terms, tariff)
            begin(service, ledger, meters, key, new_terms, changed=changed)
            meters.open_zone(*service.roster)
            if witness is not None and (terms is None or not new_terms):
                note_loss(service, ledger, meters, now)
            ledger.settle()
            service = in_week(service, ledger.standing.reach_step + 1)
            ways = Publishers(publishers, present)
            inputs = (mode, watch, covariates, read, checkpoint)
            curator = cls(service, ledger, meters, noise, ways, *inputs)
            curator._skip_what_was_before(now, begins)
            # steps that may have been published and lost are not published
            curator.leave_out_until(curator.start_of(ledger.standing.reach_step + 1))
            asked = bool(ledger.standing.current) and ledger.can_be_asked
            curator._clock.begin(service.id, curator._last, now, asked=asked)
            yield curator

    def _fold(self) -> None:
        """State and public knowledge from the ledger alone."""
        standing = self._ledger.standing
        self._replay.follow(standing)
        self._first = self.service.begins // self.service.seconds
        self._account = ZoneAccount(self.service)
        self._choice: tuple[tuple[int, str], AdmittedBlock | None] | None = None  # of a block
        self._scenario = self.service.scenario
        self._last = standing.releases[-1] if standing.releases else None
        if standing.lists:  # at least once: show the newest again
            self._publishers.add_list(standing.lists[-1])
        if self._last is not None:
            self._publishers.add(self._last)
        self._expectations = Expectations(self._scenario, usual=self.service.policy.usual)
        self._imputed: tuple[int, Ints] | None = None  # of a step
        self._draws = self._drawn()

    def _skip_what_was_before(self, now: float, begin_time: int | None = None) -> None:
        """A zone whose terms have published nothing yet begins with the next whole interval.

        Or with the first in which a house has its reading: they were there before it. Which houses
        those are, and incomplete readings, play no part. `begin_time` [UTC s]: where it begins, if
        the caller knows. The meter store keeps where it begins: what a start leaves out, a later
        one does not publish. The intervals before are not closed here but with the first that is
        published: what the meter store has closed was to be published.
        """
        if self._ledger.standing.current:
            return
        first, seconds = self.start_of(self.t), self.service.seconds
        zone, begins = self.service.id, first + seconds * math.ceil((now - first) / seconds)
        for start in () if begin_time is not None else self._meters.open_intervals(zone):
            interval = self._meters.get(zone, start)
            if first <= start < begins and interval.missing < interval.houses:
                begins = start
        if begin_time is None:
            begins = self._meters.begin(zone, max(begins, first), first)
        else:
            begins = min(begins, max(begin_time, first))
        if begins > first:
            self._pass_over((begins - first) // seconds)

    def _resume(self) -> None:
        """Book the gap, since the operator asked for it, and go on with readings."""
        book(self.service, self._ledger)
        t = self.t
        self._fold()
        self.leave_out_until(self.start_of(t))

    @property
    def _over(self) -> bool:
        """Whether the steps of the present week are over."""
        return self._replay.state.t > self.service.policy.horizon

    @property
    def doubt(self) -> str | None:
        """Why the clock may be wrong, so that nothing is published; None: it may not."""
        return self._clock.reason

    @property
    def transfers(self) -> tuple[TransferRecord, ...]:
        """Houses that came and went, in order."""
        return self._ledger.standing.transfers

    @property
    def t(self) -> int:
        """The zone's step that is published next: intervals since 1970."""
        return self._first + self._replay.state.t - 1

    def start_of(self, t: int) -> int:
        """When the zone's step t starts [UTC s]."""
        return t * self.service.seconds

    def next_due(self) -> int:
        """When the next interval closes [UTC s]."""
        return self.start_of(self.t) + self.service.seconds + self.service.grace

    @property
    def status(self) -> Status:
        """The present state of the zone."""
        state = "no readings" if self._missing == len(self.service.meters) else "publishing"
        state = state if self._draws is not None or self._over else "forecast only"
        state = WAITS if self._held else NO_SIZE if self._sizes.lost else state
        state = state if self._usable else "fallback only"
        if self._last is None:
            state = f"{NOT_BEGUN}; first price at {utc(self.next_due())}"
        state = UNTIL_RESUMED if self._ledger.standing.gap is not None else state
        state = state if self.doubt is None else self.doubt
        return Status(
            self.service.id,
            self.t - 1,
            room_of(self.service, self._ledger.standing),
            self._missing,
            state,
        )

    @property
    def inside(self) -> Inside:
        """Why the next release gets its noise, and who does not take prices; for the operator."""
        schedule = self.service.policy.schedule
        return Inside.of(self._draws, self._publishers.away, schedule)

    @property
    def releases(self) -> Sequence[ReleaseRecord]:
        """All that was ever published, in order."""
        return self._ledger.standing.releases

    def run(self, now: float, ahead: float = 0.0, *, most: int = LATE) -> list[ReleaseRecord]:
        """Close and publish every interval that is due; retry releases not yet published.

        Args:
            now: [UTC s]
            ahead: By how much the clock was set forward since it was known to be right [s].
            most: Intervals to publish at most.

        Returns:
            What was released; nothing while the clock is in doubt.
        """
        releases: list[ReleaseRecord] = []
        self._publishers.show(self.service, now)
        self.confirmed = self._ledger.asked_to_resume
        if self.confirmed:
            if self._ledger.standing.gap is not None:
                self._resume()
            self._ledger.resumed()
            ahead, self._clock.old = 0.0, False
        if self._clock.look(self.service, self._last, now, ahead) is not None:
            return releases
        self.list_prices(now)
        while self.next_due() <= now and len(releases) < most:
            self.renew()
            behind = int((now - self.next_due()) // self.service.seconds)
            if behind >= LATE:
                self._leave_out(min(behind - LATE + 1, AT_ONCE))
            if behind - LATE >= AT_ONCE:
                self._replay.public.predicted(self._replay.state.rates)  # moments up to this step
                break
            self.renew()
            self._expected()  # whether a reading is missing or not: the time taken shows nothing
            releases.append(self.tick(now))
        if not self._over:  # the next week takes a second to begin, and other zones may be due
            self._expected()
        return releases

    def list_prices(self, now: float) -> None:
        """Publish the list of prices that is due at `now` [UTC s]: one durable record first."""
        standing = self._ledger.standing
        due = due_list(self.service, standing, now)
        if due is None:
            return
        self.renew()
        knowledge = self._replay.public if self._usable else None
        rates = self._replay.state.rates
        entry = price_list(self.service, due, standing, knowledge, self.t, rates, now)
        self._watch("list made")
        record = self._ledger.write(entry)
        self._watch("listed")
        self._replay.follow(self._ledger.standing)
        self._publishers.add_list(PricesRecord.from_record(record, checked=True))
        self._publishers.show(self.service, now)
        log.info("prices listed", extra={"zone": self.service.id, "prices": due.number})

    @property
    def priced_since(self) -> int:
        """When the present tariff began [UTC s]: earlier prices are of another one."""
        tariff = self._ledger.standing.tariff
        return 0 if tariff is None else tariff.begins

    @property
    def lists(self) -> Sequence[PricesRecord]:
        """All lists of prices that were ever published, in order."""
        return self._ledger.standing.lists

    def renew(self) -> None:
        """Go on with the steps of the next week, where those of the present one are over.

        `run` does so before what is due, and leaves it to the caller where nothing is: it takes as
        long as following the releases of a week, or of sixty days every eighth week. The account
        goes on. Where the steps cannot begin, the zone publishes forecasts, and an operator has to
        begin other terms.
        """
        t, ends = self.t, self.service.ends
        if ends == self._refused:
            return
        try:
            later = in_week(self.service, t)
            if later is self.service:
                return
            check_models_agree(later)
        except HushgridError as error:
            self._refused = ends
            fields = {"zone": self.service.id, "t": t, "reason": str(error)}
            log.error("next week not begun", extra=fields)
            return
        self.service, self._replay, self._refused = later, Replay(later, self._replay), 0
        self._fold()
        self.leave_out_until(self.start_of(t))
        log.info("next week begun", extra={"zone": self.service.id, "t": t})

    def keep_checkpoint(self, spacing: int = EVERY) -> None:
        """Learn from a few releases that were published, and keep a checkpoint where one is due.

        Outside of a tick: nothing that is published depends on it.

        Args:
            spacing: Records since the last checkpoint, then one is due.

        Raises:
            LedgerError: It cannot be written.
        """
        self._replay.learn(LEARNED)
        if self._over or self._last is None or self._last.seq - self._checkpoint < spacing:
            return
        arrays = self._replay.to_arrays()
        if arrays is not None:
            self._checkpoint = self._last.seq  # also where it fails: not at every pass
            self._ledger.keep_checkpoint(self._last, arrays)

    def leave_out_until(self, start: int) -> None:
        """Go on with the interval at `start` [UTC s]; those before it get no release."""
        steps = start // self.service.seconds - self.t
        if steps > 0:
            self._leave_out(steps)

    @contextmanager
    def together(self, last: int) -> Iterator[None]:
        """Publish several intervals in one transaction: for those who show none of them before.

        Args:
            last: Start of the last interval [UTC s]; readings of it and before are late now.

        Raises:
            LedgerError: The ledger cannot be written; what is not in it is published again.
        """
        self._close(last)
        self._sizes.alone = True
        try:
            with self._ledger.together():
                yield
        finally:
            self._sizes.alone = False

    def _close(self, start: int) -> None:
        """Take no more readings of an interval and those before it."""
        if start > self._closed:
            self._meters.close(self.service.id, start)
            self._closed = start

    def tick(self, now: float) -> ReleaseRecord:
        """Publish the next interval: one durable record, then everything else."""
        start = self.start_of(self.t)
        self._watch("due")
        self._close(start)
        self._watch("closed")
        body, after = self._body(start, now)
        self._watch("stepped")
        published = self._ledger.publish(body)
        self._watch("recorded")
        self._replay.follow(self._ledger.standing, after)
        self._last = published
        self._publishers.add(published)
        self._publishers.show(self.service, now)
        self._watch("published")
        if self._read is None and not 0 <= now - self._purged < PURGE:
            self._meters.purge(self.service.id, int(now) - self.service.retention)
            self._purged = now
        self._draws = self._drawn()  # for the next interval, before any of its load is known
        self._watch("drawn")
        log.info("released", extra=self._line(published))
        return published

    def _line(self, release: ReleaseRecord) -> dict[str, Any]:
        """What is logged of a release; only a terminal shows its price."""
        places = 4 if self.service.digits is None else self.service.digits
        unit, start = f"{self.service.currency}/kWh", utc(release.applies_start)
        price = f"{release.rate:.{places}f} {unit} from {start} on"
        return {"zone": self.service.id, "t": release.t, "source": release.source, "price": price}

    def _body(self, start: int, now: float) -> tuple[dict[str, Any], State | None]:
        """What to record, and the state after it where it comes from readings."""
        seconds = self.service.seconds
        applies_start = (math.floor(now) // seconds + 1) * seconds
        interval = (self._read or self._meters.get)(self.service.id, start)
        self._watch("read")
        self._missing = interval.missing
        when: dict[str, Any] = {
            "mode": self._mode,
            "start": start,
            "applies_start": applies_start,
            "applies_from": applies_start // seconds,  # the first that starts after publication
            "published_at": now,
            "counts": {"houses": interval.houses},
        }
        # nothing of a reading in it: no noise is used, and what was drawn for the step never is
        draws = self._draws if self._missing < interval.houses else None
        if not self._usable:
            rate = self.service.fallback_rate
            feed_in = feed_in_rate(None, self._scenario.tariff)
            record = ReleaseRecord.stand_in(
                self.service.id, "fallback", t=self.t, rate=rate, feed_in=feed_in, **when
            )
            return record.to_body(), None
        if draws is None:
            rates = self._replay.state.rates
            law = self._replay.public.predicted(rates)
            guess = float((law.weights * law.mean).sum())
            (rate,) = mean_rates([law], self._scenario.tariff)
            record = ReleaseRecord.stand_in(
                self.service.id,
                "forecast",
                t=self.t,
                rate=smoothed_rate(rate, self._scenario.tariff, rates[-1] if rates else None),
                digest=self._replay.state.digest,
                estimate=guess,
                feed_in=feed_in_rate(guess, self._scenario.tariff),
                offset=self._scenario.tariff.offset or None,
                **when,
            )
            return record.to_body(), None
        cut = self._replay.state.zone
        low = self._scenario.zone.low_ends(cut)
        tally = interval.tally(cut, lambda: self._expected() - low)
        state = self._replay.state
        if state.public is not None:
            state = replace(state, public=informed(state.public, self._covariates(start)))
        release, after = step(state, tally, draws)
        choice = self._choice[1] if self._choice is not None and self._opens else None
        accounts = (None, None) if choice is None else (choice.account, choice.windows)
        when |= dict(zip(("account", "windows"), accounts, strict=True))
        return ReleaseRecord.of(release, first=self._first, **when).to_body(), after

    def _expected(self) -> Ints:
        """The imputed value of every reading of the step."""
        t = self._replay.state.t
        if self._imputed is None or self._imputed[0] != t:
            self._imputed = (t, self._expectations.at(t))
        return self._imputed[1]

    def _drawn(self) -> PreparedNoise | None:
        """The noise of the next step; None where the week is over.

        Terms that give no noise at all, whatever the reason, are not usable: then the fallback.
        """
        self._usable = True
        self._held = self._ledger.standing.gap is not None
        over = self._over
        try:
            calibration = None if over or self._held else self._admitted()
            self._held = self._held or (calibration is None and not over)
            scale = None if calibration is None else calibration.scale
            state, standing, flush = self._replay.state, self._ledger.standing, self._ledger.flush
            size = self._sizes.at(self.service, state, standing, scale, flush)
            if self._sizes.lost or calibration is None:
                return None
            noise = self._noise(self.t) if isinstance(self._noise, Stepwise) else self._noise
            draws = prepare(self._replay.state, noise, size, self._sizes.mark, calibration)
        except HorizonError:
            return None
        except MeterError:  # its store is away: the zone is opened again
            raise
        except HushgridError as error:
            self._usable = False
            log.error(
                "no usable model", extra={"zone": self.service.id, "error": type(error).__name__}
            )
            return None
        return draws

    def _admitted(self) -> Calibration | None:
        """The calibration of the next step; None where the account does not admit its block.

        A block that has a release has the noise of that one.
        """
        state, standing = self._replay.state, self._ledger.standing
        self._opens = False
        planned = state.scheduler.at(state.t, state.rates)
        schedule, last = self.service.policy.schedule, last_release(standing)
        first = self._first + schedule.span(state.t)[0] - 1
        if last is not None and last.block and first_step(last) == first:
            return replace(
                planned, scale=last.scale, epsilon=last.epsilon, epsilon_any=last.epsilon_any
            )
        key = (first, standing.head.digest)
        if self._choice is None or self._choice[0] != key:
            choice = self._account.choose(standing, state.t, state.scheduler, state.rates)
            self._choice = (key, choice)
        choice = self._choice[1]
        if choice is None:
            return None
        self._opens = choice.account is not None or choice.windows is not None
        return state.scheduler.at(state.t, state.rates, choice.epsilon)

    def _leave_out(self, steps: int) -> None:
        """Close intervals that passed while no curator ran; they get no release."""
        self._close(self.start_of(self.t + steps - 1))
        self._pass_over(steps)

    def _pass_over(self, steps: int) -> None:
        self._replay.reach(self.t + steps)
        self._draws = self._drawn()
