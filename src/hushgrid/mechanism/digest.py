"""The digest that names the terms of releases: zone, tariff, models, laws and policy.

It is taken over named fields, under the keys of a zone file, with a version; a field at its default
is left out. So a new optional field, or another arrangement of the classes, leaves every digest
unchanged. docs/ledger.md describes it for other implementations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hushgrid._numbers import array_digest, canonical_digest, is_real, real, unlike
from hushgrid.errors import ZoneError
from hushgrid.mechanism.policy import Policy
from hushgrid.model.consumption import Consumption
from hushgrid.model.covariate import Covariate
from hushgrid.model.curve import CURVES, Curve
from hushgrid.model.laws import Clamp, clamp_ends
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.model.zone import FeedIn, Tariff, Zone

FORMAT = "hushgrid-terms/2"

_Form = Callable[[Any], Any]

# a value that is left out: written down here, whatever the classes' own defaults become
_TARIFF_USUAL = {
    "gamma": 0.0, "inelastic": 0, "floor": 0.0, "cap": math.inf, "smooth": 0.0, "feed_in": None,
    "curve": None,
}  # fmt: skip
_TARIFF_KEYS = ("alpha", "beta", *_TARIFF_USUAL)
_POLICY_USUAL: dict[str, Any] = {
    "horizon": 96,
    "eta": 1.0,
    "blocks": "block",
    "models": "union",
    "on_empty": "protect_all",
    "min_scale": 0.1,
    "epsilon_t": [],
    "clamp": [],
    "publish": "raw",
    "estimator": "model",
    "usual": 0.0,
    "covariates": [],
    "block_steps": [],
    "block_epsilon": [],
}


def _tariff_values(tariff: Tariff) -> dict[str, tuple[Any, _Form]]:
    """By the keys of [tariff]: the value as it is, and how it is written in a digest."""
    return {
        "alpha": (tariff.alpha, real),
        "beta": (tariff.beta, real),
        "gamma": (tariff.gamma, real),
        "inelastic": (tariff.inelastic, int),
        "floor": (tariff.floor, real),
        "cap": (tariff.cap, real),
        "smooth": (tariff.smooth, real),
        "feed_in": (tariff.feed_in, _feed_in),
        "curve": (tariff.curve, _curve),
    }


def _feed_in(feed_in: FeedIn | None) -> dict[str, Any] | None:
    if feed_in is None:
        return None
    values = {key: real(getattr(feed_in, key)) for key in ("alpha", "beta", "floor", "cap")}
    return unlike(values, {"floor": 0.0, "cap": math.inf})


def _curve(curve: Curve | None) -> dict[str, Any] | None:
    if curve is None:
        return None
    fields = {key: [[real(x) for x in pair] for pair in getattr(curve, key)] for key in CURVES}
    fields = {key: pairs for key, pairs in fields.items() if pairs}
    return fields if curve.capacity is None else {**fields, "capacity": real(curve.capacity)}


def _policy_values(policy: Policy) -> dict[str, tuple[Any, _Form]]:
    """By the keys of [policy] likewise; `min_scale` alone has none in a file."""
    schedule_terms = dict(policy.schedule.terms)
    return {
        "epsilon": (policy.epsilon, real),
        "horizon": (policy.horizon, int),
        "eta": (policy.eta, real),
        "blocks": (policy.blocks, str),
        "models": (policy.models, str),
        "on_empty": (policy.on_empty, str),
        "min_scale": (policy.min_scale, real),
        "clamp": (policy.clamp, _clamp),
        "publish": (policy.publish, str),
        "estimator": (policy.estimator, str),
        "usual": (policy.usual, real),
        "covariates": (
            policy.covariates,
            lambda covariates: [_covariate(covariate) for covariate in covariates],
        ),
        **{key: (value, _written) for key, value in (_NO_SCHEDULE | schedule_terms).items()},
    }


_NO_SCHEDULE: dict[str, Any] = {"epsilon_t": (), "block_steps": (), "block_epsilon": ()}


def _clamp(clamp: Clamp) -> list[Any]:
    ends = [clamp_ends(at) for at in clamp]
    return [[low, high] if low else high for low, high in ends]


def _covariate(covariate: Covariate) -> dict[str, Any]:
    return {
        "name": covariate.name,
        "centre": real(covariate.centre),
        "scale": real(covariate.scale),
    }


def _written(value: Any) -> Any:
    """A value of a schedule as it is written in a digest."""
    if isinstance(value, tuple):
        return [real(number) for number in value]
    return real(value) if is_real(value) else value


def zone_fields(zone: Zone) -> dict[str, Any]:
    """A zone's public description: its name, and its limits by their digests.

    Args:
        zone: The zone.

    Returns:
        Key to value, as JSON has them.
    """
    export = {"export": array_digest(zone.export, "<i4")} if zone.offset else {}
    return {"id": zone.id, "bound": array_digest(zone.bound, "<i4"), **export}


def tariff_fields(tariff: Tariff) -> dict[str, Any]:
    """A tariff under the keys of [tariff], defaults left out.

    Args:
        tariff: The tariff.

    Returns:
        Key to number, as JSON has them.
    """
    values = {key: form(value) for key, (value, form) in _tariff_values(tariff).items()}
    return unlike(values, _TARIFF_USUAL)


def tariff_from(figures: Mapping[str, Any]) -> Tariff:
    """The tariff of figures as `tariff_fields` has them; other keys are left out.

    Args:
        figures: By the keys of [tariff].

    Returns:
        The tariff.

    Raises:
        ZoneError: They are no tariff.

    >>> tariff = Tariff(0.1, 0.05, cap=1.0, feed_in=FeedIn(0.1, 0.2))
    >>> tariff_from(tariff_fields(tariff)) == tariff
    True
    """
    values = {key: figures[key] for key in _TARIFF_KEYS if key in figures}
    try:
        if "feed_in" in values:
            values["feed_in"] = FeedIn(**values["feed_in"])
        if "curve" in values:  # its slope and first price follow from it
            values = {key: values[key] for key in values if key not in ("alpha", "beta")}
            values["curve"] = Curve(**values["curve"])
        return Tariff(**values)
    except TypeError:
        raise ZoneError("the figures are no tariff; give those of a record.") from None


def policy_fields(policy: Policy) -> dict[str, Any]:
    """A policy under the keys of [policy], defaults left out.

    Args:
        policy: The policy.

    Returns:
        Key to value, as JSON has them.
    """
    values = {key: form(value) for key, (value, form) in _policy_values(policy).items()}
    return unlike(values, _POLICY_USUAL)


def terms_digest(
    zone: Zone,
    tariff: Tariff,
    models: Sequence[OccupancyModel],
    consumption: Consumption,
    policy: Policy,
    calibrator: object | None = None,
) -> str:
    """SHA-256 over everything public that the noise depends on.

    Args:
        zone: Houses and bounds.
        tariff: Coefficients and limits of the price.
        models: The occupancy models Theta.
        consumption: The laws of readings.
        policy: The promise, the trust and the schedule.
        calibrator: A custom calibrator, identified by `calibrator_name`, or None.

    Returns:
        64 hexadecimal digits.
    """
    fields = _world_fields(zone, tariff, models, consumption)
    fields["policy"] = policy_fields(policy)
    if calibrator is not None:
        fields["calibrator"] = calibrator_name(calibrator)
    return canonical_digest(fields)


def calibrator_name(calibrator: object) -> str:
    """The name of a calibrator in digests and rules: that of its class when it was first released.

    Args:
        calibrator: An object of a calibrator's class.

    Returns:
        The qualified name of the class; for `TrustCalibrator` "Trust", which it was called before.
    """
    name = type(calibrator).__qualname__
    return "Trust" if name == "TrustCalibrator" else name


def world_digest(
    zone: Zone, tariff: Tariff, models: Sequence[OccupancyModel], consumption: Consumption
) -> str:
    """SHA-256 over the zone, its tariff and its models, without a policy.

    Args:
        zone: Houses and bounds.
        tariff: Coefficients and limits of the price.
        models: The occupancy models Theta.
        consumption: The laws of readings.

    Returns:
        64 hexadecimal digits.
    """
    return canonical_digest(_world_fields(zone, tariff, models, consumption))


def _world_fields(
    zone: Zone, tariff: Tariff, models: Sequence[OccupancyModel], consumption: Consumption
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "zone": zone_fields(zone),
        "tariff": tariff_fields(tariff),
        "models": [model.digest for model in models],
        "consumption": consumption.digest,
    }
