"""A batch: days of readings aggregated by an engine, released by the curator, kept in the ledger.

The curator is the one of the running service; only its closed intervals come from the engine, as
sums by zone. A release in the ledger is never drawn again: an interrupted run is repeated with the
same arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from hushgrid._numbers import Int32s
from hushgrid.curator.changes import changes_of, unasked
from hushgrid.curator.clock import Clock
from hushgrid.curator.covariates import CovariateSources
from hushgrid.curator.curator import Curator
from hushgrid.curator.terms import check_moves
from hushgrid.curator.transfer import check_arrived
from hushgrid.errors import BatchError
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.mechanism.noise import Noise, SecureNoise, Stepwise
from hushgrid.model.zone import Tally, Zone
from hushgrid.operate.batch import _expression as expression
from hushgrid.operate.batch._expression import BatchRoster, ImputedSums, roster_of
from hushgrid.operate.batch.engines import BatchReadings, Engine, engine_errors, open_readings
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.witness import open_witnesses
from hushgrid.stores.ledger.writer import load
from hushgrid.stores.meters import open_meters
from hushgrid.stores.meters.columns import Expected as EachHouse

_NOTHING = dict.fromkeys(expression.SUMS, 0)


@dataclass(frozen=True, slots=True, repr=False)
class Sums:
    """A closed interval whose readings are already added up. Secret.

    Attributes:
        houses: Number of houses.
        missing: Houses without readings that cover the interval.
        load: [Wh], with the public expectation for each missing house.
        clamped: Readings that were clamped.
        repeated: Repeated readings, not in the load.
        late: Late readings, not in the load.
        malformed: Malformed readings, not in the load.
        bound: Upper bounds that readings were clamped to [Wh].
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
        """Whether no house reported."""
        return self.missing == self.houses

    def tally(self, zone: Zone, expected: EachHouse) -> Tally:
        """The sum; the caller checks that the bounds are its own."""
        del zone, expected
        return Tally(self.load, self.clamped, self.bound)


class Aggregated(NamedTuple):
    """What an engine made of one time span.

    Attributes:
        rows: Readings.
        unknown: Readings of no zone's meter.
        sums: Sums by zone and start [UTC s].
        by_house: Intervals of segments that were aggregated house by house.
    """

    rows: int
    unknown: int
    sums: dict[tuple[str, int], Sums]
    by_house: int


class Aggregator:
    """Aggregates time spans with an engine.

    Args:
        engine: The engine.
        readings: All readings.
        roster: The houses of all zones.
    """

    def __init__(self, engine: Engine, readings: BatchReadings, roster: BatchRoster) -> None:
        self._engine, self._readings, self._roster = engine, readings, roster
        with engine_errors(engine, "the roster"):
            self._houses = engine.put(roster.houses)
            self._segments = engine.put(roster.segments)

    def over(self, first: int, end: int) -> Aggregated:
        """The intervals that start from `first` to before `end` [UTC s], of all zones."""
        expected = self._roster.expected(first, end)
        with engine_errors(self._engine, f"readings from {first} to {end}"):
            totals = {
                (row["zone"], row["opens"]): row for row in self._totals(first, end, expected)
            }
        rows, broken = (sum(row[name] for row in totals.values()) for name in ("rows", "broken"))
        unknown = totals.get((None, None), _NOTHING)["rows"]
        return Aggregated(rows, unknown, self._sums(totals, expected, first, end), broken)

    def _totals(self, first: int, end: int, expected: ImputedSums) -> list[dict[str, Any]]:
        """The totals; a second query where an interval has to be aggregated house by house."""
        width = self._roster.width
        where = (self._readings.near(first, end), self._houses, width)
        imputed = self._engine.put(expected.table())
        with expression.group_readings(*where, self._engine.distinct(width)).cache() as groups:
            by_span = expression.spans(groups, self._segments)
            totals = expression.totals(by_span, None, imputed).to_pyarrow()
            if any(totals["broken"].to_pylist()):
                more = expression.by_house(*where, by_span)
                totals = expression.totals(by_span, more, imputed).to_pyarrow()
        return list(totals.to_pylist())

    def _sums(
        self,
        totals: dict[tuple[int | None, int | None], dict[str, Any]],
        expected: ImputedSums,
        first: int,
        end: int,
    ) -> dict[tuple[str, int], Sums]:
        sums = {}
        for number, part in enumerate(self._roster.parts):
            zone, seconds = part.service.id, part.service.seconds
            houses = part.cut.n_houses
            for opens in range(-(-first // seconds) * seconds, end, seconds):
                if opens < part.service.begins:
                    continue
                row = totals.get((number, opens), _NOTHING)
                fill = expected.total(zone, opens) - row["expected"]
                sums[zone, opens] = Sums(
                    houses,
                    houses - row["present"],
                    row["load"] + fill,
                    row["clamped"],
                    row["good"] - row["accepted"],
                    row["late"],
                    row["malformed"],
                    part.cut.bound,
                )
        return sums


CHUNK = 86_400  # [s] aggregated at once, of many houses
CHUNKS = 8  # the most of few houses: no week has to be cut
_HOUSE_DAYS = 1_000_000  # aggregated at once, but a day at least

Gaps = Literal["stop", "publish"]


@dataclass(frozen=True, slots=True)
class Job:
    """What to run.

    Attributes:
        deployment: The service.
        readings: Places of the readings.
        first: Start of the first interval [UTC s].
        end: Intervals start before it [UTC s].
        zones: Zones to run; empty: all.
        seed: Random seed, for simulations only.
        gaps: Whether an interval without any reading of a zone stops the zone, or gets the public
            forecast as in the service.
        leave_out: Whether intervals between the last release and `first` may stay unpublished.
        changed: Begin the terms of the file where the ledger has others.
    """

    deployment: Deployment
    readings: tuple[str, ...]
    first: int
    end: int
    zones: tuple[str, ...] = ()
    seed: int | None = None
    gaps: Gaps = "stop"
    leave_out: bool = False
    changed: bool = False


@dataclass(slots=True)
class BatchReport:
    """Results of a run; readings of the aggregated time only.

    Counts of readings and houses are for the operator, not for the public.

    Attributes:
        zones: Number of zones.
        intervals: Releases made.
        before: Intervals that were published already.
        readings: Readings in the aggregated time.
        unknown: Of no zone's meter.
        repeated: Repeated.
        late: Late.
        malformed: Malformed.
        clamped: Clamped.
        missing: Missing readings.
        stopped: Zones that were not run to the end, and the start of the interval they lack
            [UTC s].
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
    """The sums that were aggregated last, which curators read in place of readings.

    Rosters and closed intervals are kept in the service's meter store, as if the readings had come
    there: its last closed interval is the second witness of what was published.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], Sums] = {}

    def fill(self, span: Aggregated) -> None:
        """Replace the sums by newly aggregated ones."""
        self._sums = span.sums

    def get(self, zone: str, start: int) -> Sums:
        """The sums of an interval."""
        if (zone, start) not in self._sums:
            raise BatchError(
                f"interval {start} of zone {zone!r} was not aggregated; run the batch from there."
            )
        return self._sums[zone, start]


def run(
    job: Job, engine: Engine, clock: Clock, advance: Callable[[int], None] = lambda _: None
) -> BatchReport:
    """Run a job to its end.

    Args:
        job: What to run.
        engine: The engine.
        clock: The wall clock.
        advance: Called with the number of intervals just done.

    Returns:
        Counts.

    Raises:
        BatchError: The ledger has other terms and the job does not begin the file's.
    """
    simulated = job.deployment.mode == "simulation"
    begins = float(job.first) if simulated else clock.now()
    comparison = changes_of(job.deployment, begins)
    deployment, changes = comparison.deployment, comparison.zones
    if changes and not job.changed:
        raise BatchError(unasked(changes))
    job = replace(job, deployment=deployment)
    services = _services(job)
    _check(job, services, clock.now())
    report = BatchReport(zones=len(services))
    readings = open_readings(engine, job.readings)
    with _curators(job, services, clock, changes) as (curators, source):
        check_arrived({curator.service.id: curator.transfers for curator in curators})
        for curator in curators:
            report.before += _go_to(curator, job)
        advance(report.before)
        aggregator = Aggregator(engine, readings, roster_of(services))
        for first, end in _chunks(job, curators):
            now = [curator.service for curator in curators]
            if any(present is not former for present, former in zip(now, services, strict=True)):
                services, aggregator = now, Aggregator(engine, readings, roster_of(now))
            _run_chunk(job, curators, source, aggregator, (first, end), clock, report, advance)
    return report


def _go_to(curator: Curator, job: Job) -> int:
    """Continue a zone where the job begins; how many of the job's intervals it has published."""
    service, at, first = curator.service, curator.start_of(curator.t), _from(job, curator.service)
    if at < first and curator.releases and not job.leave_out:
        raise BatchError(
            f"zone {service.id!r} goes on at {at} but the batch begins at {first}: what lies"
            " between would never be published; begin there, or say that it is left out."
        )
    curator.leave_out_until(first)
    return max(min(at, job.end) - first, 0) // service.seconds


def intervals(job: Job) -> int:
    """How many releases a job asks for, including those that exist already.

    Args:
        job: What to run.

    Returns:
        The number over all zones.
    """
    counts = ((job.end - _from(job, service)) // service.seconds for service in _services(job))
    return sum(max(count, 0) for count in counts)


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
    open_curators = [
        curator
        for curator in curators
        if curator.service.id not in report.stopped and curator.start_of(curator.t) < chunk[1]
    ]
    if not open_curators:
        return
    begin = max(chunk[0], min(curator.start_of(curator.t) for curator in open_curators))
    span = aggregator.over(begin, chunk[1])
    source.fill(span)
    report.readings += span.rows
    report.unknown += span.unknown
    for curator in open_curators:
        zone, seconds = curator.service.id, curator.service.seconds
        at = curator.start_of(curator.t)
        end = _end(job, source, zone, range(at, chunk[1], seconds))
        with curator.together(end - seconds) if at < end else nullcontext():
            for start in range(at, end, seconds):
                _tick(job, curator, clock)
                _count(report, source.get(zone, start))
                advance(1)
        if end < chunk[1]:
            report.stopped[zone] = end


def _end(job: Job, source: SumsSource, zone: str, starts: range) -> int:
    """Where the first interval begins that has no reading and stops its zone; else the end."""
    empty = (start for start in starts if job.gaps == "stop" and source.get(zone, start).empty)
    return next(empty, starts.stop)


def _tick(job: Job, curator: Curator, clock: Clock) -> None:
    """Publish a zone's next interval."""
    simulated = job.deployment.mode == "simulation"
    # a simulation publishes at the time of the service: equal readings give equal records
    due = float(curator.next_due())
    curator.list_prices(due - curator.service.grace if simulated else clock.now())
    curator.tick(due if simulated else clock.now())


def _count(report: BatchReport, sums: Sums) -> None:
    report.intervals += 1
    report.repeated += sums.repeated
    report.late += sums.late
    report.malformed += sums.malformed
    report.clamped += sums.clamped
    report.missing += sums.missing


@contextmanager
def _curators(
    job: Job, services: Sequence[ZoneService], clock: Clock, changes: Collection[str]
) -> Iterator[tuple[list[Curator], SumsSource]]:
    """All zones open and locked, on one store."""
    deployment = job.deployment
    now = float(job.first) if deployment.mode == "simulation" else clock.now()
    key = load(deployment.key)
    with ExitStack() as stack:
        source = SumsSource()
        meters = stack.enter_context(open_meters(deployment.meters, deployment.block_key_folder))
        store = stack.enter_context(open_store(deployment.ledger))
        witnesses = stack.enter_context(open_witnesses(deployment))
        covariates = CovariateSources(services)
        covariates.read_files()
        check_moves(services, store, key, new_terms=bool(changes))
        yield (
            [
                stack.enter_context(
                    Curator.open(
                        service,
                        store,
                        meters,
                        _noise(job, service),
                        key,
                        (),
                        deployment.mode,
                        now=now,
                        new_terms=service.id in changes,
                        begins=job.first,
                        witness=witnesses.of(service.id),
                        covariates=covariates.of(service.id),
                        read=source.get,
                    )
                )
                for service in services
            ],
            source,
        )


def _noise(job: Job, service: ZoneService) -> Noise | Stepwise:
    if job.deployment.mode == "production":
        return SecureNoise()
    return Stepwise(secrets.randbits(128) if job.seed is None else job.seed, service.id)


def _chunks(job: Job, curators: Sequence[Curator]) -> Iterator[tuple[int, int]]:
    """Days of UTC from the first interval that a zone lacks, cut where a week ends.

    Zones go on with the next week first, where theirs is over. Of few houses some days at once:
    what an engine takes to begin would be most of its time.
    """
    houses = sum(len(curator.service.meters) for curator in curators)
    length = CHUNK * min(max(_HOUSE_DAYS // max(houses, 1), 1), CHUNKS)
    first = min((curator.start_of(curator.t) for curator in curators), default=job.end)
    while first < job.end:
        for curator in curators:
            curator.renew()
        borders = [curator.service.ends for curator in curators if curator.service.ends > first]
        end = min(first // CHUNK * CHUNK + length, job.end, *borders)
        yield first, end
        first = end


def _from(job: Job, service: ZoneService) -> int:
    """The first interval of a zone in the job."""
    return max(-(-job.first // service.seconds) * service.seconds, service.begins)


def _services(job: Job) -> list[ZoneService]:
    by_name = {service.id: service for service in job.deployment.zones}
    for name in job.zones:
        if name not in by_name:
            raise BatchError(f"zone is {name!r}; give some of {', '.join(by_name)}.")
    return [service for name, service in by_name.items() if not job.zones or name in job.zones]


def _check(job: Job, services: Sequence[ZoneService], now: float) -> None:
    if job.end <= job.first:
        raise BatchError(f"the time from {job.first} to {job.end} is empty; give a later end.")
    production = job.deployment.mode == "production"
    if production and job.seed is not None:
        raise BatchError(
            "seed is for simulated noise and the service file is for production; leave it out, or"
            " replay into a simulation ledger."
        )
    for service in services:
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
