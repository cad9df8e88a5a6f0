"""A day, a month, all zones: aggregated by an engine, released by the curator, kept in the ledger.

The curator is the one of the running service; only what it closes comes from elsewhere. What is in
the ledger is never drawn again: a run that was broken off is run again with the same arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hushgrid._numbers import Int32s
from hushgrid.errors import BatchError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.mechanism.noise import Noise, SecureNoise, Stepwise
from hushgrid.model.zone import Tally
from hushgrid.service.batch import expression
from hushgrid.service.batch.engines import BatchReadings, Engine, asking, open_readings
from hushgrid.service.batch.expression import BatchRoster, ImputedSums, roster_of
from hushgrid.service.clock import Clock
from hushgrid.service.curator import Curator
from hushgrid.service.gaps import closed_intervals
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.witness import open_witnesses
from hushgrid.service.ledger.writer import load
from hushgrid.service.meters.ports import Expected as EachHouse
from hushgrid.service.transfer import check_arrived

# --------------------------------------------------------------------------------------------------
# One time span of readings through an engine: sums by zone and interval, nothing of a house.


_NOTHING = dict.fromkeys(expression.SUMS, 0)


@dataclass(frozen=True, slots=True, repr=False)
class Sums:
    """A closed interval as `Closed` asks: the readings are added up already. Secret.

    `load` [Wh] has the public expectation in it for each house that is missing. `repeated`, `late`
    and `malformed` readings are counted and not in it.
    """

    houses: int
    missing: int
    load: int
    clamped: int
    repeated: int
    late: int
    malformed: int
    bound: Int32s

    @property
    def empty(self) -> bool:
        """Whether nobody reported."""
        return self.missing == self.houses

    def tally(self, bound: Int32s, expected: EachHouse) -> Tally:
        """The sum; whoever takes it checks that the bounds are theirs."""
        del bound, expected
        return Tally(self.load, self.clamped, self.bound)


class Aggregated(NamedTuple):
    """What an engine made of one time span: `rows` readings, `unknown` of them of no zone."""

    rows: int
    unknown: int
    sums: dict[tuple[str, int], Sums]  # by zone and start [epoch s]
    mended: int  # intervals of segments that were looked at house by house


class Aggregator:
    """The engine with a roster in it."""

    def __init__(self, engine: Engine, readings: BatchReadings, roster: BatchRoster) -> None:
        self._engine, self._readings, self._roster = engine, readings, roster
        with asking(engine, "the roster"):
            self._houses = engine.put(roster.houses)
            self._segments = engine.put(roster.segments)

    def over(self, first: int, end: int) -> Aggregated:
        """The intervals that start from `first` to `end` [epoch s], of all zones."""
        expected = self._roster.expected(first, end)
        with asking(self._engine, f"readings from {first} to {end}"):
            found = {(row["zone"], row["opens"]): row for row in self._asked(first, end, expected)}
        rows, broken = (sum(row[name] for row in found.values()) for name in ("rows", "broken"))
        unknown = found.get((None, None), _NOTHING)["rows"]
        return Aggregated(rows, unknown, self._sums(found, expected, first, end), broken)

    def _asked(self, first: int, end: int, expected: ImputedSums) -> list[dict[str, Any]]:
        """The totals; once more with what had to be mended, if anything had."""
        width = self._roster.width
        where = (self._readings.near(first, end), self._houses, width)
        each = self._engine.put(expected.table())
        with expression.looked(*where, self._engine.distinct(width)).cache() as found:
            by_span = expression.spans(found, self._segments)
            made = expression.totals(by_span, None, each).to_pyarrow()
            if any(made["broken"].to_pylist()):
                more = expression.mended(*where, by_span)
                made = expression.totals(by_span, more, each).to_pyarrow()
        return list(made.to_pylist())

    def _sums(
        self,
        found: dict[tuple[int | None, int | None], dict[str, Any]],
        expected: ImputedSums,
        first: int,
        end: int,
    ) -> dict[tuple[str, int], Sums]:
        sums = {}
        for number, part in enumerate(self._roster.parts):
            zone, seconds = part.service.id, part.service.seconds
            houses = len(part.bound)
            for opens in range(-(-first // seconds) * seconds, end, seconds):
                if opens < part.service.begins:
                    continue
                row = found.get((number, opens), _NOTHING)
                fill = expected.total(zone, opens) - row["expected"]
                sums[zone, opens] = Sums(
                    houses,
                    houses - row["present"],
                    row["load"] + fill,
                    row["clamped"],
                    row["good"] - row["accepted"],
                    row["late"],
                    row["malformed"],
                    part.bound,
                )
        return sums


CHUNK = 86_400  # [s] aggregated at once

Gaps = Literal["stop", "publish"]


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: intervals that start from `first` to `end` [epoch s], of some zones.

    `gaps`: whether an interval of which a zone has no reading at all stops the zone, or gets the
    public forecast as in the service. `leave_out`: whether intervals between what
    is published and `first` may stay without a release for ever. `seed` is for simulations.
    """

    deployment: Deployment
    readings: tuple[str, ...]
    first: int
    end: int
    zones: tuple[str, ...] = ()
    seed: int | None = None
    gaps: Gaps = "stop"
    leave_out: bool = False
    new_epoch: bool = False


@dataclass(slots=True)
class BatchReport:
    """What became of a run. Counts of readings are of the aggregated time alone.

    `stopped`: zones that were not run to the end, and the start of the interval they lack
    [epoch s]. Counts of readings and houses are for the operator, not for the public.
    """

    zones: int = 0
    intervals: int = 0
    before: int = 0  # intervals that were published already
    readings: int = 0
    unknown: int = 0
    repeated: int = 0
    late: int = 0
    malformed: int = 0
    clamped: int = 0
    missing: int = 0
    stopped: dict[str, int] = field(default_factory=dict)


class SumsSource:
    """The curator's source of closed intervals: those that were aggregated last."""

    def __init__(self, closed: Mapping[str, int | None]) -> None:
        self._sums: dict[tuple[str, int], Sums] = {}
        self._closed = closed

    def fill(self, made: Aggregated) -> None:
        """Take what was aggregated, in place of what there was."""
        self._sums = made.sums

    def open_zone(self, zone: str, meters: Sequence[str], interval: int) -> None:
        """The roster is the aggregation's."""

    def reopen(self, zone: str, meters: Sequence[str], interval: int, begins: int = 0) -> None:
        """The roster is the aggregation's."""

    def get(self, zone: str, start: int) -> Sums:
        """The sums of an interval."""
        if (zone, start) not in self._sums:
            raise BatchError(
                f"interval {start} of zone {zone!r} was not aggregated; run the batch from there."
            )
        return self._sums[zone, start]

    def close(self, zone: str, start: int) -> None:
        """Nothing comes in any more."""

    def last_closed(self, zone: str) -> int | None:
        """Start of the last interval that the service's meter store closed [epoch s].

        The files of a batch say nothing about what was published.
        """
        return self._closed.get(zone)

    def open_intervals(self, zone: str) -> tuple[int, ...]:
        """None: nothing comes in any more."""
        del zone
        return ()

    def purge(self, zone: str, before: int) -> int:
        """Nothing is kept."""
        del zone, before
        return 0


def run(
    job: Job, engine: Engine, clock: Clock, advance: Callable[[int], None] = lambda _: None
) -> BatchReport:
    """Run a job to its end. `advance` is told how many intervals are done."""
    chosen = _chosen(job)
    _check(job, chosen, clock.now())
    report = BatchReport(zones=len(chosen))
    readings = open_readings(engine, job.readings)
    with _curators(job, chosen, clock) as (curators, source):
        check_arrived({one.service.id: one.transfers for one in curators})
        for curator in curators:
            report.before += _go_to(curator, job)
        advance(report.before)
        aggregator = Aggregator(engine, readings, roster_of(chosen))
        for first, end in _chunks(job, curators):
            _run_chunk(job, curators, source, aggregator, (first, end), clock, report, advance)
    return report


def _go_to(curator: Curator, job: Job) -> int:
    """Let a zone go on where the job begins; how many of the job's intervals it is past."""
    service, at, first = curator.service, curator.start_of(curator.t), _from(job, curator.service)
    if at < first and curator.releases and not job.leave_out:
        raise BatchError(
            f"zone {service.id!r} goes on at {at} but the batch begins at {first}: what lies"
            " between would never be published; begin there, or say that it is left out."
        )
    curator.leave_out_until(first)
    return max(min(at, job.end) - first, 0) // service.seconds


def intervals(job: Job) -> int:
    """How many releases a job asks for, those that are there already included."""
    each = ((job.end - _from(job, service)) // service.seconds for service in _chosen(job))
    return sum(max(some, 0) for some in each)


def _run_chunk(
    job: Job,
    curators: Sequence[Curator],
    source: SumsSource,
    aggregator: Aggregator,
    chunk: tuple[int, int],
    clock: Clock,
    report: BatchReport,
    advance: Callable[[int], None],
) -> None:
    open_ones = [
        one
        for one in curators
        if one.service.id not in report.stopped and one.start_of(one.t) < chunk[1]
    ]
    if not open_ones:
        return
    begin = max(chunk[0], min(one.start_of(one.t) for one in open_ones))
    made = aggregator.over(begin, chunk[1])
    source.fill(made)
    report.readings += made.rows
    report.unknown += made.unknown
    for curator in open_ones:
        for sums in _ticks(job, curator, source, chunk[1], clock):
            if sums is None:
                report.stopped[curator.service.id] = curator.start_of(curator.t)
                break
            _count(report, sums)
            advance(1)


def _ticks(
    job: Job, curator: Curator, source: SumsSource, end: int, clock: Clock
) -> Iterator[Sums | None]:
    """Publish a zone's intervals before `end`; None where one has no reading and that stops it."""
    while curator.start_of(curator.t) < end:
        sums = source.get(curator.service.id, curator.start_of(curator.t))
        if sums.empty and job.gaps == "stop":
            yield None
            return
        simulated = job.deployment.mode == "simulation"
        # a replay is told as the service would have: the same readings give the same records
        curator.tick(curator.next_due() if simulated else clock.now())
        yield sums


def _count(report: BatchReport, sums: Sums) -> None:
    report.intervals += 1
    report.repeated += sums.repeated
    report.late += sums.late
    report.malformed += sums.malformed
    report.clamped += sums.clamped
    report.missing += sums.missing


@contextmanager
def _curators(
    job: Job, chosen: Sequence[ZoneService], clock: Clock
) -> Iterator[tuple[list[Curator], SumsSource]]:
    """All zones open and locked, on one store."""
    deployment = job.deployment
    with closed_intervals(deployment) as meters:
        known = {} if meters is None else {one.id: meters.last_closed(one.id) for one in chosen}
    source = SumsSource(known)
    now = float(job.first) if deployment.mode == "simulation" else clock.now()
    key = load(deployment.key)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(deployment.ledger))
        witnesses = stack.enter_context(open_witnesses(deployment))
        yield (
            [
                stack.enter_context(
                    Curator.open(
                        service,
                        store,
                        source,
                        _noise(job, service),
                        key,
                        (),
                        deployment.mode,
                        now=now,
                        new_epoch=job.new_epoch,
                        begins=job.first,
                        witness=witnesses.of(service.id),
                    )
                )
                for service in chosen
            ],
            source,
        )


def _noise(job: Job, service: ZoneService) -> Noise | Stepwise:
    if job.deployment.mode == "production":
        return SecureNoise()
    return Stepwise(secrets.randbits(128) if job.seed is None else job.seed, service.id)


def _chunks(job: Job, curators: Sequence[Curator]) -> Iterator[tuple[int, int]]:
    """Days of UTC from where the first zone goes on."""
    first = min((one.start_of(one.t) for one in curators), default=job.end)
    while first < job.end:
        end = min((first // CHUNK + 1) * CHUNK, job.end)
        yield first, end
        first = end


def _from(job: Job, service: ZoneService) -> int:
    """The first interval of a zone that is asked for."""
    return max(-(-job.first // service.seconds) * service.seconds, service.begins)


def _chosen(job: Job) -> list[ZoneService]:
    known = {service.id: service for service in job.deployment.zones}
    for name in job.zones:
        if name not in known:
            raise BatchError(f"zone is {name!r}; give some of {', '.join(known)}.")
    return [service for name, service in known.items() if not job.zones or name in job.zones]


def _check(job: Job, chosen: Sequence[ZoneService], now: float) -> None:
    if job.end <= job.first:
        raise BatchError(f"the time from {job.first} to {job.end} is empty; give a later end.")
    production = job.deployment.mode == "production"
    if production and job.seed is not None:
        raise BatchError(
            "seed is for simulated noise and the service file is for production; leave it out, or"
            " replay into a simulation ledger."
        )
    for service in chosen:
        end = job.end // service.seconds * service.seconds
        if end != job.end:
            raise BatchError(
                f"end is {job.end}, inside an interval of zone {service.id!r}; give a multiple of"
                f" {service.seconds} s."
            )
        if production and end + service.grace > now:
            raise BatchError(
                f"end is {job.end} but the last interval of zone {service.id!r} is not closed yet;"
                " give an earlier end."
            )
