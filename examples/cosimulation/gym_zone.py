"""Controllers in Gymnasium: pip install 'hushgrid[gym]', then run this file."""

import sys

import gymnasium
import numpy as np

from hushgrid.lab.environments import CAR, PRICES


def episode(env, act):
    seen, _ = env.reset(seed=1)
    total, spent, over = 0.0, 0.0, False
    while not over:
        seen, reward, ended, cut, more = env.step(act(seen))
        total, spent, over = total + reward, spent + more.get("epsilon", 0.0), ended or cut
    return total, spent


def main():
    prices = gymnasium.make(PRICES, budget=24.0)
    for name, act in {
        "all at once": lambda seen: np.array([1.0], np.float32),
        "evenly": lambda seen: np.array([0.25], np.float32),
        "at most by day": lambda seen: np.array([0.4 if seen[3] < 0 else 0.1], np.float32),
    }.items():
        reward, spent = episode(prices, act)
        sys.stdout.write(f"prices, {name}: reward {reward:.2f}, epsilon {spent:.1f}\n")
    cars = gymnasium.make(CAR)
    for name, act in {
        "at once": lambda seen: np.array([1.0], np.float32),
        "below the usual price": lambda seen: np.array([float(seen[0] < 0.9)], np.float32),
    }.items():
        sys.stdout.write(f"car, {name}: reward {episode(cars, act)[0]:.2f}\n")


if __name__ == "__main__":
    main()
