"""What is offered of learned models: whose they are, what they have cost, which eta they allow.

What goes into a zone file may be read by anybody. So nothing here puts a number computed from
readings or labels into it, but through noise that is paid for, unless the models are private and
may shape nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushgrid._numbers import Floats, Indices, is_real
from hushgrid.errors import ModelError, PolicyError
from hushgrid.learn.em import Fit
from hushgrid.learn.evaluation import PublishedGroup, TrustBounds, daily_scores, publics, trust_of
from hushgrid.learn.habits import Habits
from hushgrid.learn.histories import Histories, clamped
from hushgrid.learn.learner import HeldOut, Learned, decoded, last_days, parted
from hushgrid.learn.private import (
    PARTS,
    LearnedFrom,
    bound_quantile,
    contract_sizes,
    noisy,
    pooled_model,
    statistics,
)
from hushgrid.mechanism.noise import Noise

CONTRACT_W = 10_000  # [W] assumed where no contract is told
_PEAK, _QUANTILE = 0.999, 0.98  # of a home's readings; of homes whose peak a bound covers


@dataclass(frozen=True, slots=True)
class ZoneChoices:
    """What somebody decides about a zone: its bound [Wh a step], budgets [epsilon] and eta."""

    zone: str = "learned"
    time_zone: str = "UTC"
    bound: int | None = None
    bound_budget: float | None = None
    pool_budget: float | None = None
    eta: float | None = None
    eta_set_by: str = ""

    def __post_init__(self) -> None:
        budgets = (("pool budget", self.pool_budget), ("bound budget", self.bound_budget))
        for word, budget in budgets:
            if budget is not None and not (is_real(budget) and budget > 0):
                raise PolicyError(f"{word} is {budget}; give a positive epsilon.")
        if self.eta is not None and not self.eta_set_by.strip():
            raise PolicyError(
                f"eta is {self.eta:g} but eta-set-by is not set; say who set it, and why."
            )


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """Models as they are offered: all that public files are written from.

    `models` are hidden ones, one for each of `public`; `which` (fitted homes,) the one of each
    home. Of pooled models nothing here but `which` is computed from readings without noise.
    """

    provenance: LearnedFrom
    note: str
    epsilon: float
    bound: int
    bound_by: str
    eta: float
    eta_by: str
    models: Fit
    public: tuple[PublishedGroup, ...]
    which: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Figures:
    """Figures for the operator alone, computed from readings without noise.

    `daily` (fitted homes, 3): mean, standard deviation and number of daily scores. `held_out`: the
    last days under what is offered, so of a pooled model under the one with noise, whose sums have
    these days in them too. `accuracy` and `home_share` are of the homes' own fits.
    """

    eta_basis: str
    trust: TrustBounds
    daily: Floats
    held_out: HeldOut | None
    accuracy: dict[str, Any]
    home_share: Floats


def offered(result: Learned, found: Histories, asked: ZoneChoices, noise: Noise) -> Offered:
    """The homes' own models, or a pooled one with noise where a budget is given for it.

    Args:
        result: What was learned from `found`.
        found: Histories of all homes.
        asked: Budgets, bound and eta.
        noise: Source of the noise on sums and counts.

    Raises:
        PolicyError: A budget is given, but the axis, the homes or the law would be chosen by
            readings, or there are too few homes.
        ModelError: No budget is given, but the homes' own fits are all that was learned.
    """
    _check_public(result, found, asked)
    bound, bound_by, cost = _bound(result, found, asked, noise)
    if asked.pool_budget is not None:
        exact = statistics(result.own, bound, homes=len(result.ids))
        told = noisy(exact, asked.pool_budget, noise)
        which = np.zeros(len(result.usable), np.intp)
        models = pooled_model(result.own, told, bound)
        public = publics(models, result.terms.starts, which)
        cost += asked.pool_budget
        provenance: LearnedFrom = "pooled"
        note = (
            f"Noisy sums over all homes cost every home epsilon {cost:g}; the noise on each sum is"
            f" worth {math.sqrt(2) * 2 * PARTS / asked.pool_budget:.1f} homes. report.html and"
            " model.json stay with the utility."
        )
    elif result.shared is None:
        raise ModelError("the homes' own fits are pooled only; give a pool budget.")
    else:
        models, public, which = result.shared.models, result.public, result.shared.which
        provenance, note = "private", (
            "The models come from these homes without noise: nothing they shape may be published,"
            " and hushgrid check holds a service to that."
        )  # fmt: skip
    eta, eta_by = _eta(provenance, asked)
    return Offered(
        provenance=provenance,
        note=note,
        epsilon=cost,
        bound=bound,
        bound_by=bound_by,
        eta=eta,
        eta_by=eta_by,
        models=models,
        public=tuple(one.within(bound) for one in public),
        which=which,
    )


def figures(
    result: Learned, made: Offered, found: Histories, habits: Habits, asked: ZoneChoices
) -> Figures:
    """What the operator gets to know about the models that are offered.

    A pooled run computes it after its public files are written: no reading decides whether they
    are.
    """
    usable = clamped(found.homes(result.usable), made.bound)
    if made.provenance == "pooled" or result.trust is None:
        # other laws than those that were judged
        result = decoded(result, found, habits)
        trust = trust_of(usable, made.public, made.which, result.terms.starts, made.bound)
        parts = parted(usable)
        held = None if parts is None else last_days(*parts, made.public, made.which, made.bound)
    else:
        trust, held = result.trust, result.held_out
    return Figures(
        eta_basis=_basis(trust, made, asked),
        trust=trust,
        daily=daily_scores(usable, made.public, made.which, made.bound),
        held_out=held,
        accuracy=result.accuracy,
        home_share=result.home_share,
    )


def _check_public(result: Learned, found: Histories, asked: ZoneChoices) -> None:
    """What noise does not cover must not come from readings."""
    if asked.pool_budget is None and asked.bound_budget is None:
        return
    if not found.declared:
        raise PolicyError(
            "a budget is set but the axis of time or the list of homes comes from readings, which"
            " no noise covers; give begin, end, step and meters."
        )
    if asked.pool_budget is not None and result.terms.law == "auto":
        raise PolicyError(
            "law is 'auto', which readings decide and no noise covers; give gamma or lognormal."
        )


def _bound(
    result: Learned, found: Histories, asked: ZoneChoices, noise: Noise
) -> tuple[int, str, float]:
    """The public bound [Wh], who answers for it, and what it cost; never a reading's own."""
    if asked.bound is not None:
        return asked.bound, "given as the contract's", 0.0
    if asked.bound_budget is None:
        assumed = max(CONTRACT_W * found.seconds // 3600, 1)
        return assumed, f"assumed: a contract of {CONTRACT_W // 1000} kW", 0.0
    sizes = contract_sizes(found.seconds)
    wh = np.clip(found.wh[result.usable], 0, sizes[-1])
    peaks = np.array([np.nanquantile(row, _PEAK) for row in wh]).astype(np.int64)
    at = bound_quantile(peaks, sizes, _QUANTILE, asked.bound_budget, noise)
    return at, f"a private quantile at epsilon {asked.bound_budget:g}", asked.bound_budget


def _eta(provenance: LearnedFrom, asked: ZoneChoices) -> tuple[float, str]:
    """Eta and who set it: a person's, never one computed from labels."""
    if provenance == "private":
        return 1.0, f"nobody: {_ONLY}"
    return (1.0, _NOBODY) if asked.eta is None else (asked.eta, asked.eta_set_by.strip())


def _basis(trust: TrustBounds, made: Offered, asked: ZoneChoices) -> str:
    """On what grounds eta is what it is."""
    if made.provenance == "private":
        return _ONLY
    if asked.eta is not None:
        return f"set by {made.eta_by}; {trust.reasoning}"
    suggested = "" if trust.upper is None else f" suggested is {trust.suggested:g};"
    return f"{_NOBODY};{suggested} {trust.reasoning}"


_ONLY = "private models allow eta = 1 only"
_NOBODY = "nobody set eta"


def groups_of(result: Learned, made: Offered) -> list[tuple[PublishedGroup, list[str]]]:
    """What is offered with the meters it is for; a home that was not fitted joins the most."""
    largest = int(np.bincount(made.which, minlength=len(made.public)).argmax())
    of = {int(i): int(made.which[n]) for n, i in enumerate(result.usable)}
    meters: list[list[str]] = [[] for _ in made.public]
    for i, name in enumerate(result.ids):
        meters[of.get(i, largest)].append(name)
    return [(one, names) for one, names in zip(made.public, meters, strict=True) if names]


# --------------------------------------------------------------------------------------------------
# A learned zone as the text of a zone file and of a service file that runs it.


@dataclass(frozen=True, slots=True)
class Offer:
    """What a zone file says besides its models; `bound_by` and `eta_by` say who answers for it."""

    zone: str
    seconds: int
    time_zone: str
    bound: int
    bound_by: str
    eta: float
    eta_by: str
    provenance: str
    homes: int
    epsilon: float
    law: str
    prior: str
    days: float
    digest: str
    policy_epsilon: float = 0.5
    alpha: float = 0.012
    beta: float = 0.05
    currency: str = "EUR"
    by: str = "hushgrid learn"


def zone_text(offer: Offer, groups: Sequence[tuple[PublishedGroup, Sequence[str]]]) -> str:
    """A zone file; houses in the order of `groups`, each with its meters; theta.json beside."""
    publish = "raw" if offer.provenance == "private" else "estimate"
    day = 86_400 // offer.seconds
    parts = [
        "# Written by hushgrid learn; docs/zone-file.md explains the keys.",
        _table("zone", {"id": offer.zone}),
        _table(
            "learned",
            {
                "provenance": offer.provenance,
                "homes": offer.homes,
                "epsilon": offer.epsilon,
                "by": offer.by,
                "law": offer.law,
                "prior": offer.prior,
                "days": offer.days,
                "bound_by": offer.bound_by,
                "digest": offer.digest,
            },
        ),
        _table(
            "service",
            {
                "interval": offer.seconds,
                "meter_interval": offer.seconds,
                "time_zone": offer.time_zone,
            },
        ),
        _table("tariff", {"alpha": offer.alpha, "beta": offer.beta, "floor": 0.0, "cap": 2.0}),
        _table(
            "policy",
            {
                "epsilon": offer.policy_epsilon,
                "eta": offer.eta,
                "eta_set_by": offer.eta_by,
                "horizon": 7 * day,
                "publish": publish,
            },
        ),
    ]
    for public, meters in groups:
        parts.append(_houses(public, meters, offer))
    parts.append(
        _table(
            "[models]",
            {"file": "theta.json", "provenance": f"{offer.provenance}, by {offer.by}"},
        )
    )
    return "\n\n".join(parts) + "\n"


def service_text(offer: Offer, begins: str) -> str:
    """A service file that runs the zone in simulation; `begins` is a date-time in UTC."""
    service = {
        "mode": "simulation",
        "interval": offer.seconds,
        "meter_interval": offer.seconds,
        "time_zone": offer.time_zone,
        "currency": offer.currency,
        "fallback_rate": 0.25,
        "key": "hushgrid.key",
        "zones": ["zone.toml"],
    }
    head = _table("service", service).replace("\ninterval", f"\nbegins = {begins}\ninterval", 1)
    return (
        "\n\n".join(
            [
                "# A service for the learned zone: hushgrid check service.toml, hushgrid serve.",
                head,
                _table("stores", {"ledger": "ledger.sqlite", "meters": "meters"}),
                _table("http", {"host": "127.0.0.1", "port": 8080, "token_digests": []}),
                _table("publish", {"file": "prices.json"}),
            ]
        )
        + "\n"
    )


def _houses(public: PublishedGroup, meters: Sequence[str], offer: Offer) -> str:
    lines = ["[[houses]]", f"count = {len(meters)}", f"meters = {_value(list(meters))}"]
    lines += [f"provenance = {_value(f'{offer.provenance}, by {offer.by}')}"]
    lines += [f"bound = {offer.bound}", f"absent = {_value(public.absent)}"]
    laws = [
        _value({"from": f"{start:02d}:00", **law})
        for start, law in zip(public.starts, public.present, strict=True)
    ]
    return "\n".join([*lines, "present = [", *(f"  {law}," for law in laws), "]"])


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())])


def _value(value: Any) -> str:
    """A TOML value on one line; JSON's escapes are TOML's.

    >>> _value({"law": "gamma", "shape": 2.0})
    '{ law = "gamma", shape = 2.0 }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and not isinstance(value, np.floating):
        return repr(value)
    if isinstance(value, np.generic):
        return _value(value.item())
    return json.dumps(value, ensure_ascii=False)
