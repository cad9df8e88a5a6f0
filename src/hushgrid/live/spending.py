"""What the releases of a zone's present epoch have cost one house, as an account books it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hushgrid.accounting.compose import compose
from hushgrid.accounting.events import Event, Gaussian
from hushgrid.errors import LedgerError
from hushgrid.live.deployment import ZoneService
from hushgrid.live.ledger.standing import Published, Standing
from hushgrid.live.terms import first_state
from hushgrid.mechanism import State
from hushgrid.sums import sum_up


class Cost(NamedTuple):
    """What was lost: epsilon at the policy's trust, and delta where the noise is Gaussian."""

    epsilon: float
    delta: float = 0.0


class _Step(NamedTuple):
    t: int  # in the mechanism's own count
    rates: tuple[float, ...]  # before it
    shown: Published


def spent_by(service: ZoneService, standing: Standing, house: int) -> Cost:
    """The cost of the present epoch for a house, by its place in the roster."""
    state, steps = first_state(service), list(_steps(service, standing))
    if state.policy.gaussian is not None:
        delta = state.policy.delta
        return Cost(compose([e for step in steps for e in _gaussian(state, step)], delta), delta)
    return Cost(sum_up(_loss(state, step, house) for step in steps))


def _steps(service: ZoneService, standing: Standing) -> Iterator[_Step]:
    """Releases from readings, each with the rates that were shown before it, gaps filled."""
    if standing.epoch is None:
        raise LedgerError(f"the ledger of zone {service.id!r} has no epoch; start the service.")
    rates: list[float] = []
    for shown in standing.current:
        own = standing.epoch.step(shown.t)
        while len(rates) < own - 1:  # what a curator that was away left out
            rates.append(rates[-1] if rates else service.fallback_rate)
        if shown.source == "readings":
            yield _Step(own, tuple(rates), shown)
        rates.append(shown.rate)


def _loss(state: State, step: _Step, house: int) -> float:
    scales = [scale for scale in (step.shown.scale, step.shown.look) if scale]
    lost = [float(state.scheduler.losses(step.t, scale, step.rates)[house]) for scale in scales]
    return float(np.nextafter(sum_up(lost), np.inf)) if len(lost) > 1 else sum_up(lost)


def _gaussian(state: State, step: _Step) -> list[Event]:
    """As if the house were the one of which the release could tell most."""
    cases = state.scheduler.booked(step.t, step.rates).cases
    return [Gaussian(max(case.reach for case in cases), step.shown.scale)] if cases else []
