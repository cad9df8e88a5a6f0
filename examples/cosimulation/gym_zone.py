"""Controllers in Gymnasium: pip install 'hushgrid[gym]', then run this file."""

import sys

import numpy as np

from hushgrid import Policy
from hushgrid.compare.cosimulation import Demand, car_env, price_env
from hushgrid.compare.flexible import Flexibility
from hushgrid.compare.loop import street

ZONE = street(200, 1)


def episode(env, act):
    seen, _ = env.reset(seed=1)
    total, spent, over = 0.0, 0.0, False
    while not over:
        seen, reward, ended, cut, more = env.step(act(seen))
        total, spent, over = total + reward, spent + more.get("epsilon", 0.0), ended or cut
    return total, spent


def main():
    prices = price_env(lambda seed: Demand(ZONE, Flexibility(), seed), Policy(1.0, 96), budget=24)
    for name, act in {
        "all at once": lambda seen: np.array([1.0]),
        "evenly": lambda seen: np.array([0.25]),
        "at most by day": lambda seen: np.array([0.4 if seen[3] < 0 else 0.1]),
    }.items():
        reward, spent = episode(prices, act)
        sys.stdout.write(f"prices, {name}: reward {reward:.2f}, epsilon {spent:.1f}\n")
    day = 0.3 - 0.1 * np.sin(np.arange(288) * 2 * np.pi / 96)
    cars = car_env(lambda seed: day * np.random.default_rng(seed).uniform(0.8, 1.2, 288))
    for name, act in {
        "at once": lambda seen: np.array([1.0]),
        "below the usual price": lambda seen: np.array([float(seen[0] < 0.9)]),
    }.items():
        sys.stdout.write(f"car, {name}: reward {episode(cars, act)[0]:.2f}\n")


if __name__ == "__main__":
    main()
