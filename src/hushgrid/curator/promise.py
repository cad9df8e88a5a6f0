"""What a zone promises its homes and what that costs, computed from its models alone.

Sentences, assumptions and figures of the promise, other promises and their error. No reading is
used.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from hushgrid.curator.clock import utc
from hushgrid.curator.terms import first_state, terms_record
from hushgrid.curator.zone_account import ZoneAccount
from hushgrid.errors import HushgridError
from hushgrid.files.deployment import Deployment, Promise, ZoneService
from hushgrid.files.settings import ACCEPT_ERROR
from hushgrid.files.toml import duration_text, window_text
from hushgrid.files.weeks import whole_week
from hushgrid.mechanism.policy import Policy, assumptions
from hushgrid.model.zone import FeedIn, Tariff
from hushgrid.planning.expected_error import RHO, block_filter
from hushgrid.planning.planner import examine
from hushgrid.planning.stability import Stability, loop_of
from hushgrid.planning.tradeoff import ETAS, Tradeoff, expected, tradeoff
from hushgrid.report.outlook import (
    Outlook,
    figures,
    outlook_brief,
    outlook_json,
    outlook_prose,
    price_error,
    verdict,
)
from hushgrid.report.plan import stability_line
from hushgrid.report.promise import (
    HomeWords,
    covers_json,
    finite_or_none,
    home_words,
    promise_sentence,
)
from hushgrid.stores.ledger.state import LedgerState

DAY = 86_400  # [s]


def promise_of(zone: ZoneService) -> Promise:
    """The zone's promise; without one in the file, one about each step.

    Args:
        zone: The zone.

    Returns:
        Secret and epsilon.
    """
    return zone.promise or Promise("step", zone.policy.epsilon)


def sentence(zone: ZoneService) -> str:
    """The promise in plain words, with the adversary it holds for and its assumptions.

    Args:
        zone: The zone.

    Returns:
        One or more sentences; what models have cost the homes is stated beside the promise.
    """
    promise = promise_of(zone)
    text = promise_sentence(
        zone.policy,
        promise.secret,
        stated_epsilon(zone),
        continued=True,
        window=window_words(zone),
    )
    cost = zone.learned.epsilon
    return text if not cost else f"{text} The models cost every home epsilon {cost:g} in addition."


def window_words(zone: ZoneService) -> str:
    """The length of the window of a promise in words.

    Args:
        zone: The zone.

    Returns:
        Words such as "24 hours"; empty without a window.
    """
    window = promise_of(zone).window
    return "" if window is None else window_text(window)


def window_steps(zone: ZoneService) -> int | None:
    """The steps that a promised window touches; None without one.

    Args:
        zone: The zone.

    Returns:
        One step more than a window is long, since it can begin inside one.
    """
    window = promise_of(zone).window
    return None if window is None else -(-window // zone.seconds) + 1


def zone_words(zone: ZoneService) -> HomeWords:
    """The promise in a householder's words.

    Args:
        zone: The zone.

    Returns:
        The words, and what they do not cover.
    """
    return home_words(promise_of(zone).secret, stated_epsilon(zone), window_words(zone))


def stated_epsilon(zone: ZoneService) -> float:
    """The epsilon of the promise.

    Args:
        zone: The zone.

    Returns:
        Epsilon.
    """
    return promise_of(zone).epsilon


def zone_assumptions(zone: ZoneService) -> tuple[str, ...]:
    """Every assumption of the zone's promise.

    Args:
        zone: The zone.

    Returns:
        A sentence for each.
    """
    scenario = zone.scenario
    models, exports = len(scenario.models), scenario.zone.offset > 0
    secret = promise_of(zone).secret
    return assumptions(secret, zone.policy, scenario.consumption, models, exports=exports)


def promise_content(zone: ZoneService) -> dict[str, Any]:
    """What is promised, in words and figures.

    Args:
        zone: The zone.

    Returns:
        The keys that /v1/promise and /v1/operator/zone share.
    """
    promise = promise_of(zone)
    return {
        **zone_words(zone).content,
        "sentence": sentence(zone),
        "assumptions": list(zone_assumptions(zone)),
        "secret": promise.secret,
        **({} if promise.window is None else {"window_s": promise.window}),
        "epsilon": stated_epsilon(zone),
        "eta": zone.policy.eta,
    }


def promise_json(zone: ZoneService, mode: str) -> dict[str, Any]:
    """The promise under its public keys.

    Args:
        zone: The zone.
        mode: The service's mode.

    Returns:
        Values of GET /v1/promise; `error` is the expected relative error of a price. Where homes
        export, `readings_wh` has the lowest and the highest reading of a contract [Wh].
    """
    tariff, houses = zone.scenario.tariff, zone.scenario.zone
    terms: dict[str, Any] = {
        **_rate_terms(tariff),
        "smooth": tariff.smooth,
    }
    if tariff.feed_in is not None:
        terms["feed_in"] = _rate_terms(tariff.feed_in)
    if tariff.curve is not None:
        terms["curve"] = [list(vertex) for vertex in tariff.curve.vertices]
    content = {
        "zone": zone.id,
        "mode": mode,
        **promise_content(zone),
        "houses": len(zone.meters),
        "interval_s": zone.seconds,
        "time_zone": zone.time_zone,
        "currency": zone.currency,
        "tariff": terms,
        "publish": zone.policy.publish,
        "error": expected_error(zone),
        **outlook_figures(zone),
    }
    if houses.offset:
        limits = (-int(houses.export.max()), int((houses.bound - houses.export).max()))
        content["readings_wh"] = dict(zip(("low", "high"), limits, strict=True))
    return content


def _rate_terms(rate: Tariff | FeedIn) -> dict[str, float | None]:
    """Slope, rate at no load and limits of a rate; no cap is None."""
    cap = rate.cap if math.isfinite(rate.cap) else None
    return {"alpha": rate.alpha, "beta": rate.beta, "floor": rate.floor, "cap": cap}


def outlook_figures(zone: ZoneService) -> dict[str, Any]:
    """What prices say about one interval; what the promise covers; noise as a share of the load.

    Args:
        zone: The zone.

    Returns:
        Keys of GET /v1/promise; a certificate states `leakage` and `covers` as well.
    """
    try:
        zone_outlook = outlook(zone)
    except HushgridError:
        return {"leakage": None, "covers": [], "noise": None}
    return {
        "leakage": figures(zone_outlook),
        "covers": covers_json(zone_outlook.covers),
        "noise": finite_or_none(zone_outlook.plan.prospect.share(zone_outlook.rho)),
    }


def expected_error(zone: ZoneService) -> float | None:
    """Root mean square of the published price's relative error, over a Monday or a week.

    Args:
        zone: The zone.

    Returns:
        The error; None where no noise can be found for the terms.
    """
    zone = whole_week(zone)
    policy, promise = first_steps(zone), promise_of(zone)
    blocks = block_filter(policy, promise.secret, zone.seconds)
    try:
        errors, _ = expected(zone.scenario.terms, policy, promise.epsilon, _rho(zone), blocks)
    except HushgridError:
        return None
    return errors.estimated if policy.publish == "estimate" else errors.raw


def first_steps(zone: ZoneService) -> Policy:
    """The policy of the first steps, by which its error is shown.

    Args:
        zone: The zone.

    Returns:
        The policy over a day; over a week for a promise about windows, whose blocks may be longer.
    """
    days = _DAYS if promise_of(zone).secret == "window" else 1
    return zone.policy.first(days * DAY // zone.seconds)


def tradeoff_json(zone: ZoneService) -> dict[str, Any]:
    """What other promises would cost, under public keys.

    Args:
        zone: The zone.

    Returns:
        Values of GET /v1/tradeoff: relative error by epsilon and eta.
    """
    promise, costs = promise_of(zone), _tradeoff(zone)
    return {
        "zone": zone.id,
        "secret": promise.secret,
        "unit": "relative error",
        "chosen": {"eta": costs.eta, **costs.point._asdict()},
        "curves": [
            {"eta": curve.eta, "points": [point._asdict() for point in curve.points]}
            for curve in costs.curves
        ],
        "forecast": costs.forecast,
    }


def _tradeoff(zone: ZoneService) -> Tradeoff:
    zone = whole_week(zone)
    promise = promise_of(zone)
    # these go with eta = 1 alone
    fixed = zone.scenario.consumption.reacts or promise.secret == "window"
    return tradeoff(
        zone.scenario.terms,
        first_steps(zone),
        secret=promise.secret,
        epsilon=promise.epsilon,
        rho=_rho(zone),
        steps=zone.policy.horizon,
        etas=() if fixed else ETAS,
        seconds=zone.seconds,
    )


def _rho(zone: ZoneService) -> float:
    rho = promise_of(zone).rho
    return RHO if rho is None else rho


_DAYS = 7  # that a policy is examined over: they hold a weekend


def outlook(zone: ZoneService) -> Outlook:
    """The zone's policy over a week.

    Args:
        zone: The zone.

    Returns:
        Losses, leakage and errors, from which JSON and prose are made.
    """
    zone = whole_week(zone)
    scenario, promise = zone.scenario, promise_of(zone)
    day = min(DAY // zone.seconds, zone.policy.horizon)
    policy = zone.policy.first(_DAYS * DAY // zone.seconds)
    plan = examine(
        *scenario.terms,
        policy,
        secret=promise.secret,
        epsilon=promise.epsilon,
        seconds=zone.seconds,
        window=window_steps(zone),
    )
    leakage = week = None
    if promise.secret != "window":  # which uses no model: what a day's prices say is in `covers`
        leakage, week = (plan.leaked_by(scenario.models, n) for n in (day, policy.horizon))
    return Outlook(
        plan,
        promise.secret,
        stated_epsilon(zone),
        zone.policy.horizon,
        leakage,
        day,
        _rho(zone),
        week,
        zone.leakage,
        window_words(zone),
        plan.covers(zone.seconds),
    )


def zone_json(
    zone: ZoneService, zone_outlook: Outlook, on: Running | None = None
) -> dict[str, Any]:
    """A zone's outlook and terms under their public keys.

    Args:
        zone: The zone.
        zone_outlook: Its outlook.
        on: The terms of its ledger; None: there are none.

    Returns:
        Values of `hushgrid check --json` for the zone.
    """
    return {
        "zone": zone.id,
        "houses": len(zone.meters),
        **outlook_json(zone_outlook),
        "loop": {
            name: finite_or_none(v) for name, v in _loop(zone, zone_outlook)._asdict().items()
        },
        "eta_set_by": zone.eta_set_by or None,
        "provenance": zone.learned.origin,
        "learned_epsilon": zone.learned.epsilon,
        "begins": zone.begins,
        "interval_s": zone.seconds,
        "grace_s": zone.grace,
        "retention_s": zone.retention,
        "time_zone": zone.time_zone,
        "running_terms": on is not None and not on.new,
        "forecast_until": None if on is None else _forecast_until(on),
        "accept_error": zone.accept_error,
        "accept_error_set_by": zone.accept_error_set_by or None,
        "fallback_rate": zone.fallback_rate,
        "currency": zone.currency,
    }


class Running(NamedTuple):
    """Terms as the ledger has them.

    Attributes:
        zone: The zone under these terms, over the week that is next.
        standing: The zone's ledger state.
        new: They are not on record yet; `serve --yes` would begin them.
    """

    zone: ZoneService
    standing: LedgerState
    new: bool = False

    @classmethod
    def beginning(cls, zone: ZoneService, standing: LedgerState) -> Running:
        """The terms that would begin now, with what houses brought along before them."""
        terms = replace(terms_record(zone), seq=standing.head.seq + 1)
        records = (*standing.terms_records, terms)
        return cls(zone, replace(standing, terms=terms, terms_records=records), True)


def _forecast_until(on: Running) -> str | None:
    """Until when prices are forecasts since the account admits no block; None: it does now."""
    if on.standing.gap is not None:
        return None
    state = first_state(on.zone)
    first = on.zone.begins // on.zone.seconds
    t = max(on.standing.reach_step + 1 - first + 1, 1)
    if t > on.zone.policy.horizon or not state.scheduler.ahead:
        return None
    opens = ZoneAccount(on.zone).first_admitted(on.standing, t, state.scheduler)
    if opens == t:
        return None
    return "never" if opens is None else utc((first + opens - 1) * on.zone.seconds)


def _loop(zone: ZoneService, zone_outlook: Outlook) -> Stability:
    scenario = zone.scenario
    return loop_of(zone_outlook.plan, scenario.tariff, scenario.consumption, DAY // zone.seconds)


def zone_prose(zone: ZoneService, zone_outlook: Outlook, on: Running | None = None) -> str:
    """A zone's outlook and terms in plain words.

    Args:
        zone: The zone.
        zone_outlook: Its outlook.
        on: The terms of its ledger; None: there are none.

    Returns:
        Lines of text.
    """
    constant = f"the constant {zone.fallback_rate:g} {zone.currency}/kWh"
    lines = [
        _headline(zone, f", times of {zone.time_zone}"),
        outlook_prose(zone_outlook),
        stability_line(_loop(zone, zone_outlook)),
        _when(zone),
        f"Readings are kept for {duration_text(zone.retention)}, then deleted.",
        *_conditions(zone, on),
        "No meter reported: the public forecast, which uses no reading, is published."
        f" No usable model: {constant}. Both are marked.",
    ]
    return "\n".join(lines)


def _when(zone: ZoneService) -> str:
    """When prices come, in a sentence."""
    ahead = zone.ahead
    if ahead is None:
        return f"A price comes {duration_text(zone.grace)} after its interval."
    hour, minute = divmod(ahead.publish_at // 60, 60)
    days = "for the next day" if ahead.ahead == 1 else f"for {ahead.ahead} days"
    return f"Prices are published ahead, {days} at {hour:02d}:{minute:02d} of the day before."


def zone_brief(zone: ZoneService, zone_outlook: Outlook, on: Running | None = None) -> str:
    """The first questions about a zone, in plain words that fit on one screen.

    Args:
        zone: The zone.
        zone_outlook: Its outlook.
        on: The terms of its ledger; None: there are none.

    Returns:
        Lines of text.
    """
    return "\n".join([_headline(zone), outlook_brief(zone_outlook), *_conditions(zone, on)])


def _headline(zone: ZoneService, more: str = "") -> str:
    interval = duration_text(zone.seconds)
    return f"Zone {zone.id}: {len(zone.meters)} houses, a price every {interval}{more}."


def _conditions(zone: ZoneService, on: Running | None) -> list[str]:
    """What a person set, what the ledger leaves no room for, what models have cost."""
    lines = list[str]()
    if zone.policy.eta < 1:
        lines.append(f"Eta set by: {zone.eta_set_by or 'not stated'}.".replace("..", "."))
    if on is not None and (until := _forecast_until(on)) is not None:
        when = "All prices are" if until == "never" else f"Until {until} prices are"
        lines.append(
            f"{when} forecasts: what was published before, or may be lost, leaves no room for a"
            " price from readings under this promise."
        )
    if zone.learned.epsilon:
        lines.append(f"The models cost every home epsilon {zone.learned.epsilon:g} in addition.")
    return lines


def error_problem(zone: ZoneService, zone_outlook: Outlook) -> str | None:
    """Why a price is too far from the exact one to be worth publishing.

    Args:
        zone: The zone.
        zone_outlook: Its outlook.

    Returns:
        One sentence with what lowers the error; None where it is acceptable.
    """
    error, policy = price_error(zone_outlook), zone.policy
    if error <= zone.accept_error:
        return None
    best = zone_outlook.plan.prospect.best(zone_outlook.rho)
    lower = [f'publish = "{best}" ({price_error(zone_outlook, best):.1%})']
    lower = lower if best not in ("forecast", policy.publish) else []
    if not policy.clamp:
        lower.append("policy.rho (a clamp)")
    if policy.eta == 1 and not policy.schedule.lengths and zone_outlook.secret == "interval":
        lower.append("blocks of steps (hushgrid plan --blocks)")
    larger = verdict(zone_outlook, len(zone.meters), zone.accept_error)["houses"]
    lower.append("more homes" if larger is None else f"more homes ({larger:,} such ones)")
    return (
        f"zone {zone.id}: the expected error of the price is {error:.1%}, above the"
        f" {zone.accept_error:.1%} of service.accept_error; what lowers it:"
        f" {', '.join(lower)}, a larger epsilon (hushgrid plan has the figures). Or set"
        " accept_error to what you accept, and accept_error_set_by to your name."
    )


def name_problem(zone: ZoneService) -> str | None:
    """Why a large error that the file accepts is accepted by no one.

    Args:
        zone: The zone.

    Returns:
        One sentence; None where the error is small or has a name.
    """
    if zone.accept_error <= ACCEPT_ERROR or zone.accept_error_set_by.strip():
        return None
    return (
        f"zone {zone.id}: service.accept_error is {zone.accept_error:g}, above {ACCEPT_ERROR:g},"
        " and accept_error_set_by is not set; say who accepts that."
    )


def deployment_prose(
    deployment: Deployment, zones: list[str], problems: list[str], remarks: list[str]
) -> str:
    """The result of `hushgrid check` in plain words.

    Args:
        deployment: The service.
        zones: Text of each zone.
        problems: What keeps the service from starting, a sentence each.
        remarks: Warnings, a sentence each.

    Returns:
        Paragraphs of text.
    """
    noise = (
        "noise is drawn from a secure source"
        if deployment.mode == "production"
        else "noise is simulated and gives no protection"
    )
    notes = [f"Warning: {remark}" for remark in remarks] + [
        f"Problem: {problem}" for problem in problems
    ]
    return "\n\n".join([f"Mode {deployment.mode}: {noise}.", *zones, *notes])
