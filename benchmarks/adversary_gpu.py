"""The factored adversary on a GPU: a day of a million houses, each with its own chain.

    PYTHONPATH=src python benchmarks/adversary_gpu.py --array torch

Needs numpy, array-api-compat and the array library, nothing else. Prints JSON: the seconds of all
steps together, and the largest difference to numpy in float64, for some houses that see the same
others (`agreement_subset`) and for a whole smaller zone (`agreement_zone`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hushgrid import (
    Calendar,
    Consumption,
    Histogram,
    Knowledge,
    OccupancyModel,
    Release,
    Uniform,
    Zone,
)
from hushgrid.adversary.factored import Factored, house_likelihoods, law_nodes
from hushgrid.adversary.knowledge import Blur, on_host

KINDS = 16  # of laws
SLOTS = 4  # night, morning, day, evening
SCALE = 2000.0  # [Wh]
SUBSET = 1000  # houses checked one by one
SMALLER = 20_000  # houses of the zone that is filtered twice


def knowledge(houses: int, steps: int) -> Knowledge:
    """Every house has its own chain; 16 kinds of laws, uniform and skew."""
    rng = np.random.default_rng(1)
    kinds = rng.integers(KINDS, size=houses)
    leave, come = rng.uniform(0.02, 0.3, (2, SLOTS, houses))
    a = np.stack([np.stack([1 - come, come], -1), np.stack([leave, 1 - leave], -1)], -2)
    home = rng.uniform(0.2, 0.8, houses)
    day = Calendar(np.arange(steps) * SLOTS // steps)
    theta = OccupancyModel.factored(np.stack([1 - home, home], -1), a, calendar=day)
    tops = [1000 + 100 * kind for kind in range(KINDS)]
    absent = [Uniform(u // 2) if u % 200 else skew(u, 12) for u in tops]
    present = [Uniform(u) if u % 200 else skew(u, 4) for u in tops]
    f = Consumption.by_class(absent=absent, present=present, class_of=kinds)
    return Knowledge(Zone("gpu", np.array(tops)[kinds]), [theta], f)


def skew(top: int, share: int) -> Histogram:
    x = np.arange(top + 1)
    return Histogram((x + 1) * np.exp(-x * share / top))


def releases(known: Knowledge, steps: int) -> list[Release]:
    """Noisy loads about their expectation, as far off as the people and the noise make them."""
    rng = np.random.default_rng(2)
    laws = known.laws(1, None)
    means = np.array([[f @ np.arange(f.size) for f in pair] for pair in laws.pairs])
    centre = float(means.mean(axis=1)[laws.kind_of].sum())
    spread = 400 * np.sqrt(known.n_houses)
    off = spread * rng.standard_normal(steps) + rng.laplace(0, SCALE, steps)
    loads = np.rint(centre + off).astype(int).tolist()
    return [
        Release(
            zone="gpu", t=t, applies_from=t + 1, load_hat=load, put_back=0.0, estimate=None,
            rate=62.5, scale=SCALE, epsilon=1.0, epsilon_any=1.0,
            rule="eta=1 block union", digest="gpu", simulated=True, noise="laplace",
        )
        for t, load in enumerate(loads, 1)
    ]  # fmt: skip


def timed(who: Factored, day: list[Release], wait: Callable[[], None]) -> float:
    """Seconds of all steps."""
    who.step(who.start(), day[0])  # whatever is compiled or copied once
    wait()
    start = time.perf_counter()
    beliefs = who.start()
    for release in day:
        beliefs = who.step(beliefs, release)
    wait()
    return time.perf_counter() - start


def subset_difference(known: Knowledge, who: Factored, day: list[Release]) -> float:
    """The first houses again in numpy: the others' mean and variance are all they need."""
    theta, f, few = known.models[0], known.consumption, slice(0, SUBSET)
    piece = theta.chains[0]
    model = OccupancyModel.factored(
        piece.initial[few], piece.transition[:, few], calendar=theta.calendar
    )
    part = Consumption(f.laws, f.absent, f.present, f.class_of[few])
    again = Factored(Knowledge(Zone("gpu", known.zone.bound[few]), [model], part))
    laws = again.knowledge.laws(1, None)
    nodes, kind_of = law_nodes(laws.pairs), laws.kind_of.astype(np.int64)
    beliefs, law, worst = who.start(), again.prior(model), 0.0
    for release in day:
        law = again.predict(law, model, release.t) if release.t > 1 else law
        ahead = who.skip(beliefs).laws[0]
        mean, variance = (on_host(each[few]) for each in who.others_moments(ahead, release.t, None))
        blur = Blur("laplace", release.scale)
        law = again.normalised(
            law + house_likelihoods(nodes, kind_of, mean, variance, release.load_hat, blur, laws)
        )
        beliefs = who.step(beliefs, release)
        found = on_host(who.home(beliefs.laws[0])[few])
        worst = max(worst, float(np.abs(again.home(law) - found).max()))
    return worst


def zone_difference(like: Any, houses: int, steps: int, chunk: int) -> float:
    """A whole zone, here and there."""
    known = knowledge(houses, steps)
    here, there = Factored(known), Factored(known, like=like, chunk=chunk)
    ours, theirs, worst = here.start(), there.start(), 0.0
    for release in releases(known, steps):
        ours, theirs = here.step(ours, release), there.step(theirs, release)
        gap = here.home(ours.laws[0]) - on_host(there.home(theirs.laws[0]))
        worst = max(worst, float(np.abs(gap).max()))
    return worst


def library(name: str) -> tuple[Any, Callable[[], None], str]:
    """An array of the library on its GPU, how to wait for it, and the device's name."""
    if name == "numpy":
        return np.zeros(1), lambda: None, "numpy"
    if name == "cupy":
        cupy = importlib.import_module("cupy")
        device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return cupy.zeros(1), cupy.cuda.Device().synchronize, f"cupy {device}"
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        return torch.zeros(1, dtype=torch.float64), lambda: None, "torch on the processor"
    like = torch.zeros(1, dtype=torch.float64, device="cuda")
    return like, torch.cuda.synchronize, f"torch {torch.cuda.get_device_name(0)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--houses", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--array", choices=["torch", "cupy", "numpy"], default="torch")
    parser.add_argument("--chunk", type=int, default=1 << 18, help="houses looked at together")
    options = parser.parse_args()
    like, wait, device = library(options.array)
    known = knowledge(options.houses, options.steps)
    who = Factored(known, like=like, chunk=options.chunk)
    day: list[Release] = releases(known, options.steps)
    seconds = timed(who, day, wait)
    found = {
        "device": device,
        "houses": options.houses,
        "steps": options.steps,
        "seconds": seconds,
        "house_steps_per_second": options.houses * options.steps / seconds,
        "agreement_subset": subset_difference(known, who, day),
        "agreement_zone": zone_difference(
            like, min(SMALLER, options.houses), options.steps, options.chunk
        ),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
