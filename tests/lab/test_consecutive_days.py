"""Days that follow each other: what all their releases say about one step is what is promised."""

from __future__ import annotations

import numpy as np
import pytest

from hushgrid.accounting.temporal import worst_leakage
from hushgrid.lab.baselines import FOURIER, WAVELET
from hushgrid.lab.bench import Bench
from hushgrid.lab.datasets import Recorded
from hushgrid.lab.methods import (
    BOUND,
    BOUND_INDEPENDENT,
    GROUP,
    HUSHGRID_ETA0,
    HUSHGRID_ETA05,
    Method,
    MethodPromise,
    MethodRefusal,
    MethodSetting,
    Ready,
)
from hushgrid.lab.pufferfish import QUILT, WASSERSTEIN
from hushgrid.planning.task import Secret
from tests.lab.day_source import DAYS, T, U, source


def leaked(method: Method, days: Recorded) -> float:
    """The worst log odds about one step from the releases of all days, at any consumption."""
    bench = Bench(days, MethodPromise("interval", 1.0), 1, (method,))
    losses, lengths = [], ()
    for number in range(DAYS):
        ready = bench.ready(days.zone_of(number))[method.name]
        assert isinstance(ready, Ready)
        made = ready.publish(np.zeros(T, np.int64), np.random.SeedSequence([1, number]))
        reach = min((U, *(c for c in ready.clamp if isinstance(c, int))))
        losses.append(reach / made.scale)
        lengths += made.lengths
    first = days.scenarios[0].models
    return worst_leakage(first, np.concatenate(losses), lengths=lengths).total


@pytest.mark.parametrize("weekly", [False, True])
@pytest.mark.parametrize("method", [BOUND, BOUND_INDEPENDENT, GROUP], ids=lambda m: m.name)
@pytest.mark.sampled
def test_all_days_together_keep_the_promise(method: Method, weekly: bool) -> None:
    assert 0.3 < leaked(method, source(weekly=weekly)) <= 1.0 + 1e-6


def test_a_day_on_its_own_would_not() -> None:
    """The oracle can fail: the noise that suffices for one day says too much over many."""
    days = source()
    setting = MethodSetting.of(days.scenarios[0], MethodPromise("interval", 1.0), T)
    alone = BOUND_INDEPENDENT.prepare(setting)
    assert isinstance(alone, Ready)
    theta = days.scenarios[0].models
    assert worst_leakage(theta, np.full(T, U / alone.scale)).total <= 1.0 + 1e-6
    assert worst_leakage(theta, np.full(DAYS * T, U / alone.scale)).total > 1.1


@pytest.mark.parametrize("method", [FOURIER, WAVELET], ids=lambda m: m.name)
def test_a_whole_day_counts_as_one_block(method: Method) -> None:
    """What a day loses about a house's whole day, day after day."""
    days = source()
    bench = Bench(days, MethodPromise("interval", 1.0), 1, (method,))
    alone = method.prepare(MethodSetting.of(days.scenarios[0], MethodPromise("interval", 1.0), T))
    ready = bench.ready()[method.name]
    assert isinstance(alone, Ready)
    assert isinstance(ready, Ready)
    setting = MethodSetting.of(
        days.scenarios[0], MethodPromise("interval", 1.0), T, run=days.scenarios[0]
    )
    lost, blocks = setting.day_epsilon, (T,) * DAYS
    total = worst_leakage(days.scenarios[0].models, np.full(DAYS * T, lost), lengths=blocks).total
    assert total == pytest.approx(1.0, rel=1e-4)
    assert total <= 1.0
    assert ready.scale > alone.scale
    assert "all days before and after" in ready.guarantee


def test_less_trust_counts_all_days_too() -> None:
    days = source(weekly=True)
    bench = Bench(days, MethodPromise("interval", 1.0), 1, (HUSHGRID_ETA05, WASSERSTEIN, QUILT))
    alone = HUSHGRID_ETA05.prepare(
        MethodSetting.of(days.scenarios[0], MethodPromise("interval", 1.0), T, 0.2)
    )
    ready = bench.ready()
    assert isinstance(alone, Ready)
    assert isinstance(ready["hushgrid_eta05"], Ready)
    assert ready["hushgrid_eta05"].scale > 1.1 * alone.scale
    assert isinstance(ready["wasserstein"], Ready)
    assert isinstance(ready["quilt"], MethodRefusal)


def test_a_promise_about_a_step_is_of_that_step() -> None:
    scenario = source().scenarios[0]
    terms = (scenario, MethodPromise("step", 1.0), T, 0.2)
    apart, run = (BOUND.prepare(MethodSetting.of(*terms, run)) for run in (None, scenario))
    assert isinstance(apart, Ready)
    assert isinstance(run, Ready)
    assert run.scale == apart.scale


@pytest.mark.parametrize("secret", ["step", "interval"])
def test_every_kind_of_day_has_noise_for_its_own_laws(secret: Secret) -> None:
    days = source(weekly=True, quiet=True)
    bench = Bench(days, MethodPromise(secret, 1.0), 1, (HUSHGRID_ETA0,))
    both = [bench.ready(kind)[HUSHGRID_ETA0.name] for kind in (0, 1)]
    scales = [ready.scale for ready in both if isinstance(ready, Ready)]
    assert scales[1] < 0.8 * scales[0]
