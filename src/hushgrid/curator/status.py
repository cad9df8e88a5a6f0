"""The state of a zone in words, and the noise of its next release, for its operator."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

from hushgrid.curator.account_records import room_of
from hushgrid.curator.clock import utc
from hushgrid.curator.terms import window_promise
from hushgrid.errors import LedgerError, ServiceError, connection_reason
from hushgrid.files.deployment import Deployment, ZoneService
from hushgrid.mechanism.policy import Schedule
from hushgrid.mechanism.release import PreparedNoise, noise_spread
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.entries import ReleaseRecord
from hushgrid.stores.ledger.state import LedgerState
from hushgrid.stores.ledger.writer import verify_signature

log = logging.getLogger("hushgrid.curator")

NOT_BEGUN = "not begun"  # before the first release; a state begins with it
UNTIL_RESUMED = "forecast until hushgrid resume"  # releases may be lost
STEPPED = "waits: the clock was set forward"  # until it is set back, or hushgrid resume
OLD = "waits: the last release is old"  # until hushgrid resume
BEHIND = "waits: the clock is behind the ledger"
IN_DOUBT = (STEPPED, OLD, BEHIND)
AWAY = 7 * 86_400  # [s] between the last release and a start, then the clock may be wrong
NO_SIZE = "forecast until the next block"  # the secret of the block of steps is lost
WAITS = "forecast until the account admits a block"  # see zone_account


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a zone, for `hushgrid status`; all of it is public but `missing`.

    Attributes:
        zone: The zone.
        t: The last step that is published or left out.
        room: What the account still admits, as a share of the promise; see `room_of`.
        missing: Meters without a reading in the last interval, for operators; None: not known.
        state: In words, such as `publishing` or `forecast only`.
    """

    zone: str
    t: int
    room: float
    missing: int | None
    state: str


class ClockDoubt:
    """Whether the clock may be wrong: then a zone waits, for no step is published twice.

    Attributes:
        old: Whether the last release was old when the zone was opened.
        reason: Why the clock may be wrong; None: it may not.
    """

    def __init__(self) -> None:
        self.old = False
        self.reason: str | None = None

    def begin(self, zone: str, last: ReleaseRecord | None, now: float, *, asked: bool) -> None:
        """Look at the clock where a zone is opened.

        Args:
            zone: The zone.
            last: Its last release.
            now: [UTC s]
            asked: Whether an operator can be asked if the clock is right.
        """
        if last is None:
            return
        since = math.floor(now) - last.published_at
        if since < 0:
            log.warning("clock behind the ledger", extra={"zone": zone, "seconds": -since})
        self.old = asked and since > AWAY

    def look(
        self, zone: ZoneService, last: ReleaseRecord | None, now: float, ahead: float
    ) -> str | None:
        """Say why the clock may be wrong; once in the log.

        Args:
            zone: The zone.
            last: Its last release.
            now: [UTC s]
            ahead: By how much the clock was set forward since it was known to be right [s].

        Returns:
            The reason; None: it may not be wrong.
        """
        most = zone.clock_limit * zone.seconds
        doubt = STEPPED if ahead > most else OLD if self.old else None
        if last is not None and now < last.published_at - most:
            doubt = BEHIND
        if doubt not in (None, self.reason):
            log.error("clock in doubt", extra={"zone": zone.id, "why": doubt})
        self.reason = doubt
        return doubt


@dataclass(frozen=True, slots=True)
class Inside:
    """The calibration of the next release, for the operator; no noise and nothing of a reading.

    Attributes:
        scale: Scale of the noise [Wh]; None where no reading is used.
        epsilon: What the release spends under the policy's trust.
        epsilon_any: What it spends whatever is public.
        house: The house that sets the scale, from 0; None where none does.
        model: The model that sets the scale, from 0; None where none does.
        protected: How many houses are protected.
        away: Publishers, by number, that did not take the last release.
        spread: Planned standard deviation of the noise [Wh], whatever size the block has drawn.
    """

    scale: float | None
    epsilon: float | None
    epsilon_any: float | None
    house: int | None
    model: int | None
    protected: int | None
    away: tuple[int, ...] = ()
    spread: float | None = None

    @classmethod
    def of(
        cls,
        draws: PreparedNoise | None,
        away: tuple[int, ...] = (),
        schedule: Schedule | None = None,
    ) -> Inside:
        """What is known of the next release.

        Args:
            draws: What is drawn for it; None where it has no noise of its own.
            away: See the class.
            schedule: The schedule of the policy; None: noise of its own at every step.
        """
        if draws is None:
            return cls(None, None, None, None, None, None, away)
        calibration = draws.calibration
        steps = 1
        if schedule is not None:
            steps = schedule.block(calibration.t).get("length", 1)
        return cls(
            calibration.scale,
            calibration.epsilon,
            calibration.epsilon_any,
            calibration.house,
            calibration.model,
            len(calibration.protected),
            away,
            noise_spread(calibration.scale, steps),
        )


def explanation(zone: ZoneService, inside: Inside) -> str:
    """Explain the noise of the next release in one sentence.

    Args:
        zone: The zone.
        inside: The noise of the next release and the house that requires it.

    Returns:
        The house or contract that sets the scale, and the model by which it does.
    """
    if inside.scale is None:
        return "The next price uses no reading, so there is no noise."
    models = len(zone.scenario.models)
    by = "its model" if models == 1 else f"model {inside.model} of {models}"
    by = "all models together" if inside.model is None else by
    by = f" under {by}" if window_promise(zone) is None else ""  # of windows no model says anything
    if inside.house is None:
        return f"The largest contract sets the scale of {inside.scale:,.0f} Wh."
    bound = int(zone.scenario.zone.bound[inside.house])
    meter = zone.meters[inside.house]
    export = int(zone.scenario.zone.export[inside.house])
    feeding = f" and {export:,} Wh of export" if export else ""
    clamp, cut = zone.policy.clamp, ""
    if (
        clamp
        and (high := int(zone.scenario.consumption.clamp_ends(clamp)[1, inside.house])) < bound
    ):
        cut = f", readings cut at {high - export:,} Wh"
    house = (
        f"House {inside.house} (meter {meter}, contract {bound - export:,} Wh{feeding}{cut}){by}"
    )
    return (
        f"{house} needs the most noise of the {inside.protected:,} protected houses:"
        f" {inside.scale:,.0f} Wh, so that one price loses at most {inside.epsilon:.3g}."
    )


_STATES = {"readings": "publishing", "forecast": "forecast only", "fallback": "fallback"}


def status_of(zone: ZoneService, standing: LedgerState | None, now: float) -> Status:
    """The state of a zone by its ledger.

    Args:
        zone: The zone.
        standing: What its ledger says; None where it has no record.
        now: [UTC s]

    Returns:
        The last step, the room of its account, and the state in words.
    """
    if standing is None:
        return Status(zone.id, 0, 1.0, None, _not_begun(zone, zone.begins, now))
    state = _state(zone, standing, now)
    t = standing.reach_step if standing.releases else 0
    return Status(zone.id, t, room_of(zone, standing), None, state)


def _not_begun(zone: ZoneService, start: int, now: float) -> str:
    """When the first price comes, by the start of the first interval [UTC s].

    A zone whose first interval is over begins with the next whole one after the start of serve,
    which the ledger does not have.
    """
    due = start + zone.seconds + zone.grace
    when = f"at {utc(due)}" if due >= now else "after a whole interval under hushgrid serve"
    return f"{NOT_BEGUN}; first price {when}"


def _state(zone: ZoneService, standing: LedgerState, now: float) -> str:
    """Behind when an interval more than the next one should be out."""
    if standing.gap is not None:
        return UNTIL_RESUMED
    if not standing.releases:
        return _not_begun(zone, (standing.reach_step + 1) * zone.seconds, now)
    if now < standing.releases[-1].published_at - zone.clock_limit * zone.seconds:
        return BEHIND
    due = (standing.reach_step + 2) * zone.seconds + zone.grace
    if now > due + zone.seconds:
        return "behind"
    last = standing.releases[-1]
    if last.source == "forecast":
        return "no readings"
    return _STATES[last.source]


# ---- by file and by address


def from_ledger(deployment: Deployment, now: float) -> list[Status]:
    """Status of every zone from its records, each verified; takes no lock.

    Args:
        deployment: The service.
        now: The time [UTC s].

    Returns:
        A status for each zone.

    Raises:
        LedgerError: A record is bad.
    """
    with open_store(deployment.ledger, create=False) as store:
        statuses = []
        for zone in deployment.zones:
            report = check(store.records(zone.id), verify_signature, {})
            if report.first_bad is not None:
                raise LedgerError(
                    f"the ledger of zone {zone.id!r} is bad at record {report.first_bad}"
                    f" ({report.reason}); see hushgrid ledger verify."
                )
            statuses.append(status_of(zone, report.standings.get(zone.id), now))
    return statuses


def from_service(url: str, token: str = "") -> list[Status]:
    """Status of every zone as a running service answers.

    Args:
        url: The service's address.
        token: A bearer token; with an operator's, `missing` is included.

    Returns:
        A status for each zone.

    Raises:
        ServiceError: The service cannot be reached, or gives another answer.
    """
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url.rstrip("/") + "/v1/status", timeout=10, headers=headers)
        answer.raise_for_status()
        zones: list[dict[str, Any]] = answer.json()["zones"]
        return [Status(**({"missing": None} | zone)) for zone in zones]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise ServiceError(
            f"cannot get the status of service {url} ({connection_reason(error)}); give the"
            " address of a running hushgrid serve, or its service file."
        ) from None
