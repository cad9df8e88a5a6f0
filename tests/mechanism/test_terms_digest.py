"""The digest of terms: the same whatever the classes look like, another for any other term."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from hushgrid import (
    Consumption,
    Curve,
    Elasticity,
    Gamma,
    Histogram,
    LogNormal,
    Naive,
    OccupancyModel,
    Policy,
    Tariff,
    TruncatedNormal,
    Uniform,
    Zone,
    init,
)
from hushgrid.files.zone_file import PolicyTable
from hushgrid.mechanism.policy import PerStep
from hushgrid.model.covariate import Covariate
from hushgrid.model.laws import Binned, Cut, Law, Mixture
from hushgrid.model.zone import FeedIn

THETA = OccupancyModel.factored([[0.5, 0.5]], [[[[0.9, 0.1], [0.2, 0.8]]]], chain_of=[0, 0])
ZONE, TARIFF, POLICY = Zone("elm", [1000, 600]), Tariff(1.0, 62.5), Policy(0.5)
F = Consumption.by_class(absent=[Uniform(300)], present=[Uniform(600)], class_of=[0, 0])


def digest(**changes: Any) -> str:
    base = {"zone": ZONE, "tariff": TARIFF, "models": [THETA], "consumption": F, "policy": POLICY}
    return init(**(base | changes)).digest


@dataclass(frozen=True, slots=True)
class LaterPolicy(Policy):
    """A policy of a later version, with one more optional field."""

    extra: int = 0


@dataclass(frozen=True, slots=True)
class LaterTariff(Tariff):
    extra: str = "none"


@dataclass(frozen=True, slots=True)
class LaterElasticity(Elasticity):
    extra: float = 1.0


def test_a_new_optional_field_moves_nothing() -> None:
    reacts = [replace(F, elasticity=kind(70.0, 1.0)) for kind in (Elasticity, LaterElasticity)]
    assert digest(policy=LaterPolicy(0.5)) == digest()
    assert digest(tariff=LaterTariff(1.0, 62.5)) == digest()
    assert digest(consumption=reacts[1]) == digest(consumption=reacts[0]) != digest()


def test_how_a_class_prints_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regrouped, renamed or printed in another way: the terms are the same."""
    made = [digest(), digest(policy=Policy(0.5, schedule=PerStep((0.5,) * 96)))]
    laws = [Uniform(300), Gamma(2.0, 20.0, 600), LogNormal(60.0, 0.8, 600)]
    own = replace(F, laws=tuple(laws), elasticity=Elasticity(70.0, 1.0))
    for kind in (Policy, Tariff, Elasticity, Uniform, Gamma, LogNormal, Zone):
        monkeypatch.setattr(kind, "__repr__", lambda _: "another")
    assert [digest(), digest(policy=Policy(0.5, schedule=PerStep((0.5,) * 96)))] == made
    assert replace(own).digest == own.digest


def test_equal_numbers_are_equal_terms() -> None:
    assert digest(policy=Policy(1)) == digest(policy=Policy(1.0)) != digest(policy=Policy(2.0))
    assert digest(tariff=Tariff(1, 62.5, cap=9)) == digest(tariff=Tariff(1.0, 62.5, cap=9.0))
    assert digest(policy=Policy(np.float64(0.5))) == digest()
    assert digest(tariff=Tariff(1.0, 62.5, gamma=-0.0)) == digest()
    assert digest(policy=Policy(0.5, horizon=96, eta=1, schedule=PerStep(()))) == digest()


def test_golden() -> None:
    """The text of the first typed out by hand, as docs/ledger.md describes it."""

    def array(form: str, shape: str, *values: int) -> str:
        numbers = b"".join(value.to_bytes(4, "little") for value in values)
        return hashlib.sha256(f"{form} {shape}\n".encode() + numbers).hexdigest()

    laws = (
        f'{{"absent":"{array("<i4", "1 1", 0)}","calendar":"{array("<i4", "1", 0)}",'
        f'"class_of":"{array("<i4", "2", 0, 0)}","format":"hushgrid-consumption/2",'
        '"laws":[{"law":"uniform","top":300},{"law":"uniform","top":600}],'
        f'"present":"{array("<i4", "1 1", 1)}"}}'
    )
    text = (
        f'{{"consumption":"{hashlib.sha256(laws.encode()).hexdigest()}",'
        f'"format":"hushgrid-terms/2","models":["{THETA.digest}"],"policy":{{"epsilon":0.5}},'
        '"tariff":{"alpha":1.0,"beta":62.5},'
        f'"zone":{{"bound":"{array("<i4", "2", 1000, 600)}","id":"elm"}}}}'
    )
    assert digest() == hashlib.sha256(text.encode()).hexdigest()
    assert {name: digest(**changes)[:16] for name, changes in GOLDEN.items()} == PINNED


GOLDEN: dict[str, dict[str, Any]] = {
    "default": {},
    "trusting": {"policy": Policy(0.4, 48, 0.05, clamp=(400,), publish="estimate")},
    "planned": {"policy": Policy(0.7, horizon=3, schedule=PerStep((0.7, 0.1, 0.35)))},
    "tariff": {"tariff": Tariff(0.012, 0.05, 1.5, 700, 0.01, 2.0)},
}
PINNED = {
    "default": "9b0a87d57107cae1",
    "trusting": "089c6896c78c3909",
    "planned": "c2cdb0a39f83e089",
    "tariff": "84f12be2bbc3297a",
}

# another value for every field, and what else must be set for it to be allowed
POLICIES: dict[str, dict[str, Any]] = {
    "epsilon": {"epsilon": 0.6},
    "horizon": {"horizon": 95},
    "eta": {"eta": 0.9},
    "blocks": {"blocks": "minimal"},
    "models": {"models": "paper"},
    "on_empty": {"on_empty": "publish_exact"},
    "min_scale": {"min_scale": 0.2},
    "epsilon_t": {"epsilon_t": (0.5,) * 96},
    "clamp": {"clamp": (500,)},
    "publish": {"publish": "estimate"},
    "estimator": {"estimator": "filter"},
    "usual": {"estimator": "releases", "usual": 90.0},
    "block_steps": {"block_steps": (48, 48), "block_epsilon": (0.5, 0.4)},
    "block_epsilon": {"block_steps": (48, 48), "block_epsilon": (0.5, 0.3)},
}
CURVE = Curve(points=[(0, 62.5), (10, 72.5)])
TARIFFS: dict[str, Any] = {
    "feed_in": FeedIn(0.1, 0.2),
    "curve": CURVE,
    "alpha": 1.5, "beta": 62.4, "gamma": -1.0, "inelastic": 7, "floor": 0.5, "cap": 99.0,
    "smooth": 0.25
}  # fmt: skip
ELASTICITIES = {"reference": 71.0, "exponent": 0.9, "low": 0.4, "high": 1.6}


def test_every_term_moves_it() -> None:
    """A field that is added to one of these classes must be named in the digest, and here."""
    for kind, cases in (
        (PolicyTable, POLICIES), (Tariff, TARIFFS), (Elasticity, ELASTICITIES),
        (Zone, {"id": "oak", "bound": [1000, 601], "export": [0, 9]}),
    ):  # fmt: skip
        names = {field.name for field in fields(kind) if field.init}
        assert names - {"offset"} == set(cases), kind  # which is the zone's export
    reacts = Elasticity(70.0, 1.0)
    warmth = Covariate("temperature", 10.0, 8.0)
    series = [
        warmth,
        *(replace(warmth, **it) for it in ({"name": "x"}, {"centre": 9}, {"scale": 9})),
    ]
    followed = [Policy(0.5, estimator="filter", covariates=(one,)) for one in series]
    same = replace(followed[0], covariates=(replace(warmth, vouched_by="MeteoSwiss"),))
    assert digest(policy=same) == digest(policy=followed[0]), "who vouches is no term"
    found = [
        digest(),
        *(
            digest(policy=PolicyTable(**({"epsilon": 0.5} | case)).policy)
            for case in POLICIES.values()
        ),
        *(digest(tariff=replace(TARIFF, **{k: v})) for k, v in TARIFFS.items()),
        *(
            digest(consumption=replace(F, elasticity=replace(reacts, **{k: v})))
            for k, v in ELASTICITIES.items()
        ),
        *(digest(policy=policy) for policy in followed),
        digest(zone=Zone("oak", [1000, 600])),
        digest(zone=Zone("elm", [1000, 601])),
        digest(zone=Zone("elm", [600, 1000])),
        digest(zone=Zone("elm", [1000, 600], [0, 9])),
        digest(tariff=replace(TARIFF, feed_in=FeedIn(0.1, 0.2, cap=3.0))),
        digest(tariff=Tariff(curve=Curve(points=[(0, 62.5), (5, 63), (10, 72.5)]))),
        digest(tariff=Tariff(curve=Curve(tiers=[(0, 62.5), (10, 72.5)]))),
        digest(tariff=Tariff(curve=Curve(scarcity=[(0, 62.5), (0.5, 72.5)], capacity=20))),
        digest(tariff=Tariff(curve=Curve(scarcity=[(0, 62.5), (0.5, 72.5)], capacity=21))),
        digest(models=[THETA, THETA]),
        digest(models=[THETA.starting(1), THETA]),
        digest(calibrator=calibrator("A")),
        digest(calibrator=calibrator("B")),
    ]
    assert len(set(found)) == len(found) - 1  # a calendar of one slot looks the same a step later
    assert all(name and len(name) == 64 for name in found)


def calibrator(name: str) -> Any:
    return type(name, (Naive,), {})()


LAWS: list[Law] = [
    Uniform(600), Uniform(599),
    TruncatedNormal(60.0, 20.0, 600), TruncatedNormal(61.0, 20.0, 600),
    TruncatedNormal(60.0, 21.0, 600), TruncatedNormal(60.0, 20.0, 599),
    Gamma(2.0, 20.0, 600), Gamma(2.5, 20.0, 600), Gamma(2.0, 21.0, 600), Gamma(2.0, 20.0, 599),
    LogNormal(60.0, 0.8, 600), LogNormal(61.0, 0.8, 600), LogNormal(60.0, 0.9, 600),
    Histogram([1, 2, 1]), Histogram([1, 2, 2]), Histogram([1, 2, 1, 0]),
    Binned([0, 5, 9], [1, 2], 20), Binned([0, 6, 9], [1, 2], 20), Binned([0, 5, 9], [1, 3], 20),
    Binned([0, 5, 9], [1, 2], 21),
    Mixture([Uniform(5), Uniform(9)], [0.5, 0.5]), Mixture([Uniform(5), Uniform(9)], [0.4, 0.6]),
    Mixture([Uniform(5), Uniform(8)], [0.5, 0.5]), Cut(Uniform(600), 9), Cut(Uniform(600), 8),
]  # fmt: skip


class Own(Gamma):
    """A law of one's own under the parameters of another."""

    def _pmf(self) -> Any:
        return np.full(self.top + 1, 1 / (self.top + 1))


def test_every_law_has_its_own() -> None:
    laws = [*LAWS, Own(2.0, 20.0, 600)]
    found = {replace(F, laws=(Uniform(300), law)).digest for law in laws}
    assert len(found) == len(laws)
    tables = [
        F,
        replace(F, class_of=[0]),
        replace(F, present=[[0]]),
        replace(F, absent=[[1]]),
        F.starting(0),
    ]
    assert len({one.digest for one in tables}) == 4


def test_a_later_version_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more key, named in the digest: unset it moves nothing."""
    from hushgrid.mechanism import digest as digests

    plain = init(ZONE, TARIFF, [THETA], F, POLICY)
    values = digests._policy_values

    def later(policy: Policy) -> dict[str, Any]:
        return values(policy) | {"extra": (getattr(policy, "extra", 0), int)}

    monkeypatch.setattr(digests, "_policy_values", later)
    monkeypatch.setitem(digests._POLICY_USUAL, "extra", 0)
    unset, given = (
        init(ZONE, TARIFF, [THETA], F, LaterPolicy(0.5, extra=extra)) for extra in (0, 3)
    )
    assert unset.digest == plain.digest
    assert given.digest != plain.digest
