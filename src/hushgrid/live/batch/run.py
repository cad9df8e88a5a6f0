"""A day, a month, all zones: aggregated by an engine, released by the curator, kept in the ledger.

The curator is the one of the running service; only what it closes comes from elsewhere. What is in
the ledger is never drawn again: a run that was broken off is run again with the same arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal

from hushgrid.errors import BatchError
from hushgrid.live.batch.aggregate import Aggregated, Aggregator, Sums
from hushgrid.live.batch.engines import Engine
from hushgrid.live.batch.readings import open_readings
from hushgrid.live.batch.roster import roster_of
from hushgrid.live.clock import Clock
from hushgrid.live.curator import Curator
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.ledger.keys import load
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.transfer import check_arrived
from hushgrid.noise import Noise, SecureNoise, Stepwise

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

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int], Sums] = {}

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
        """Not known: the files of a batch say nothing about what was published."""
        del zone
        return None

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
    deployment, source = job.deployment, SumsSource()
    now = float(job.first) if deployment.mode == "simulation" else clock.now()
    key = load(deployment.key)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(deployment.ledger))
        witnesses = stack.enter_context(deployment.witnesses())
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
