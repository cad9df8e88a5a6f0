"""hushgrid itself at three trusts, the forecast without readings, and its policies of others.

`wevent`: budgets for any w steps (Kellaris et al. 2014); `dphmm`: a house all but certain is left
out (Xiao and Xiong's location sets, docs/proofs/unlikely.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hushgrid.arrays import Floats, Ints
from hushgrid.baselines.method import (
    FRESH,
    Method,
    MethodSetting,
    Outcome,
    Ready,
    Refusal,
    noisy,
)
from hushgrid.calibration import schedule
from hushgrid.mechanism import Release, init, releases
from hushgrid.noise import SimulatedNoise
from hushgrid.planning import plan
from hushgrid.policy import Policy
from hushgrid.schedules import Negligible, Window

_TRUST = {
    0.0: "if the occupancy model is true and every reading follows its public law",
    1.0: "if the occupancy model is true, whatever anyone consumes",
}


def hushgrid(name: str, eta: float) -> Method:
    """Our plan for the promise, at a trust eta and the contract bounds."""
    return Method(name, f"hushgrid eta = {eta:g}", True, eta, partial(_planned, eta))


def _planned(eta: float, setting: MethodSetting) -> Ready:
    scenario, promise = setting.scenario, setting.promise
    exceptions = promise.delta if promise.secret == "trajectory" else 0.0
    normal = eta == 1 and exceptions > 0
    found = plan(
        scenario.zone,
        scenario.tariff,
        scenario.models,
        scenario.consumption,
        secret=promise.secret,
        epsilon=promise.epsilon,
        delta=exceptions,
        terms=Policy(promise.epsilon, setting.horizon, eta=eta),
        rho=None,
        gaussian=normal,
    )
    trust = _TRUST.get(eta, f"{_TRUST[0.0]} but for a share of {eta:g}")
    kind = "(epsilon, delta)" if exceptions else "pure epsilon"
    fresh = "" if promise.secret == "step" else FRESH
    law = found.policy.schedule.noise
    return noisy(setting, found.scale, f"{kind}, {trust}{fresh}", law)


def _forecast(setting: MethodSetting) -> Ready:
    moments = [setting.public.moments.at(t) for t in range(1, setting.horizon + 1)]
    means = np.array([np.mean([m.mean for m in each]) for each in moments])  # models alike

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:  # noqa: ARG001
        return Outcome(means, means, None, np.zeros(len(means)))

    return Ready("no reading is used, so nothing is given away", 0.0, publish)


def _windowed(setting: MethodSetting) -> Ready:
    promise = setting.promise
    w = 1 if promise.secret == "step" else setting.horizon
    scenario = setting.scenario
    zone = (scenario.zone, scenario.tariff, scenario.models, scenario.consumption)
    states = [
        init(*zone, Policy(promise.epsilon, setting.horizon, schedule=Window(w), publish=how))
        for how in ("raw", "estimate")
    ]
    states = [
        state if state.public is None else replace(state, public=setting.public) for state in states
    ]

    def publish(load: Ints, seed: np.random.SeedSequence) -> Outcome:
        raw, guessed = (
            list(releases(state, load.tolist(), SimulatedNoise(seed))) for state in states
        )
        seen = np.array([release.load_hat for release in raw], np.float64)
        guess = np.array([release.estimate for release in guessed], np.float64)
        return Outcome(_held(raw), guess, seen, np.array([release.scale for release in raw]))

    widest = 2 * w * setting.largest / promise.epsilon
    return Ready(
        f"pure epsilon for any {w} steps in a row, whatever anyone consumes", widest, publish
    )


def _held(releases: Sequence[Release]) -> Floats:
    """The loads [Wh] behind the raw rates: a step that publishes nothing anew holds the last."""
    out = [float(releases[0].load_hat)]
    for release in releases[1:]:
        out.append(float(release.load_hat) if release.look > 0 else out[-1])
    return np.array(out)


def _unlikely(setting: MethodSetting) -> Ready | Refusal:
    promise, scenario = setting.promise, setting.scenario
    if promise.delta == 0:
        return Refusal("its constraint leaves out houses that are all but certain: give a delta")
    parts = 1 if promise.secret == "step" else setting.horizon
    leaving = Negligible(promise.delta / parts)
    policy = Policy(promise.epsilon / parts, setting.horizon, schedule=leaving)
    made = schedule(scenario.models, scenario.zone, scenario.consumption, policy)
    return noisy(
        setting,
        [calibration.scale for calibration in made],
        "epsilon, unless the house is in a state that had at most delta"
        + ("" if parts == 1 else " in all; steps add up"),
    )


HUSHGRID_ETA0 = hushgrid("hushgrid_eta0", 0.0)
HUSHGRID_ETA05 = hushgrid("hushgrid_eta05", 0.05)
BOUND = hushgrid("bound", 1.0)
FORECAST = Method("forecast", "forecast, no readings", True, None, _forecast)
WEVENT = Method("wevent", "w-event", True, 1.0, _windowed)
DPHMM = Method("dphmm", "probabilistic constraint", True, 1.0, _unlikely)
