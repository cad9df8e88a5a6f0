"""Where zones stand, read from a ledger that others may be writing, or from a running service."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hushgrid.errors import LedgerError, ServiceError
from hushgrid.live.curator import UNTIL_RESUMED, Status
from hushgrid.live.deployment import Deployment, ZoneService
from hushgrid.live.ledger.chain import check
from hushgrid.live.ledger.keys import verify
from hushgrid.live.ledger.state import LedgerState
from hushgrid.live.ledger.stores import open_store
from hushgrid.live.replay import Replay
from hushgrid.sums import Spent

_STATES = {"readings": "publishing", "forecast": "forecast only", "fallback": "fallback"}


def from_ledger(deployment: Deployment, now: float) -> list[Status]:
    """Every zone by its records, each checked; takes no lock."""
    with open_store(deployment.ledger, create=False) as store:
        found = []
        for zone in deployment.zones:
            report = check(store.records(zone.id), verify, {})
            if report.first_bad is not None:
                raise LedgerError(
                    f"the ledger of zone {zone.id!r} is bad at record {report.first_bad}"
                    f" ({report.reason}); see hushgrid ledger verify."
                )
            found.append(status_of(zone, report.standings.get(zone.id), now))
    if deployment.share:
        from hushgrid.live.share.leases import owners

        who = owners(deployment.ledger)
        found = [replace(one, curator=who.get(one.zone)) for one in found]
    return found


def status_of(zone: ZoneService, standing: LedgerState | None, now: float) -> Status:
    """Where a zone stands by its ledger."""
    if standing is None:
        return Status(zone.id, 0, 0.0, zone.budget, None, "not begun")
    spent = Replay(zone).follow(standing).spent
    left = None if zone.budget is None else spent.left(zone.budget)
    last = standing.releases[-1] if standing.releases else None
    missing = last.counts.get("missing") if last else None  # in records of earlier versions
    state = _state(zone, standing, spent, now)
    counted = standing.epoch.leakage if standing.epoch else None
    return Status(zone.id, standing.last_t, spent.total, left, missing, state, leakage=counted)


def _state(zone: ZoneService, standing: LedgerState, spent: Spent, now: float) -> str:
    """Behind when an interval more than the next one should be out."""
    if standing.gap is not None:
        return UNTIL_RESUMED
    if not standing.releases:  # a new zone begins with the next whole interval, whenever that is
        return "not begun"
    first = standing.epoch.first if standing.epoch else 1
    t = max(standing.last_t, first - 1) + 1
    due = (t + 1) * zone.seconds + zone.grace
    if now > due + zone.seconds:
        return "behind"
    last = standing.releases[-1]
    ends = first + (standing.epoch.horizon if standing.epoch else 0)
    costs = [one.epsilon for one in standing.current if one.source == "readings"]
    next_cost = costs[-1] if costs else zone.policy.epsilon
    if last.source == "forecast" and last.t < ends and spent.fits(next_cost, zone.budget):
        return "no readings"  # neither horizon nor budget are the reason
    return _STATES[last.source]


def from_service(url: str, token: str = "") -> list[Status]:
    """Every zone as a running service answers; `missing` where the token is an operator's."""
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url.rstrip("/") + "/v1/status", timeout=10, headers=headers)
        answer.raise_for_status()
        zones: list[dict[str, Any]] = answer.json()["zones"]
        return [Status(**({"missing": None} | zone)) for zone in zones]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise ServiceError(
            f"service {url} does not tell its status ({type(error).__name__}); give the address"
            " of a running hushgrid serve, or its service file."
        ) from None
