"""An adversary that knows a device's rule: worst releases, and typical ones.

The interval promise assumes that readings of different blocks of steps are linked through occupancy
alone. A device with memory violates it: it starts when its home is entered and then draws the
home's bound for so many steps. The adversary knows all other readings, so a release is the home's
reading plus noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from hushgrid._numbers import Bools, Floats, UInt8s
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.policy import Policy
from hushgrid.model.occupancy import OccupancyModel
from hushgrid.statistics import Scores, scores

MEMORIES = {"none": 0, "appliance": 4, "car": 48}  # steps that a device runs once it has started
HOMES = 64  # independent homes of an attack on typical releases
_GUESSED = 0x6E55  # what a random stream is for


class _Device:
    """The chain of (occupancy, steps left); beliefs are (..., 2, run + 1).

    Args:
        model: Occupancy; the first chain is the home's.
        run: Steps that the device runs; 0: it draws while the home is occupied.
        waits: (T,): steps at which it waits, as a price above its threshold makes it do.
    """

    def __init__(self, model: OccupancyModel, run: int, waits: Bools) -> None:
        self.chains, self.slots, self.run = model.chains[0], model.calendar.slots, run
        self.waits = waits
        self.on = np.zeros((2, run + 1), np.bool_)
        self.on[1 if run == 0 else slice(None), 0 if run == 0 else slice(1, None)] = True

    def _moves(self, t: int) -> Floats:
        """(2, 2): the transition to step t, which is not the first."""
        slot = int(self.slots[t % len(self.slots)])
        return np.asarray(self.chains.transition[slot, 0])

    def begin(self) -> Floats:
        """(2, run + 1): the law of the first step; nothing runs."""
        law = np.zeros((2, self.run + 1))
        law[:, 0] = self.chains.initial[0]
        return law

    def forward(self, law: Floats, t: int) -> Floats:
        """The law of step t from that of the step before."""
        a, remaining = self._moves(t), law
        if self.run and not self.waits[t - 1]:
            remaining = np.concatenate([law[..., 1:], np.zeros_like(law[..., :1])], axis=-1)
            remaining[..., 0] += law[..., 0]
        stay = a[0, 0] * remaining[..., 0, :] + a[1, 0] * remaining[..., 1, :]
        occupied = a[1, 1] * remaining[..., 1, :]
        if self.run:
            occupied[..., -1] += a[0, 1] * law[..., 0, :].sum(axis=-1)
        else:
            occupied = occupied + a[0, 1] * remaining[..., 0, :]
        return np.stack([stay, occupied], axis=-2)

    def backward(self, message: Floats, t: int) -> Floats:
        """E[message of step t given the state of the step before]."""
        a = self._moves(t)
        entry = message[..., 1, -1:] if self.run else message[..., 1, :]
        stack = np.stack([
            a[0, 0] * self._previous(message[..., 0, :], t) + a[0, 1] * entry,
            a[1, 0] * self._previous(message[..., 0, :], t)
            + a[1, 1] * self._previous(message[..., 1, :], t),
        ], axis=-2)  # fmt: skip
        return np.asarray(stack)

    def _previous(self, message: Floats, t: int) -> Floats:
        if not self.run or self.waits[t - 1]:
            return message
        return np.concatenate([message[..., :1], message[..., :-1]], axis=-1)

    def live(self, homes: int, rng: np.random.Generator) -> tuple[UInt8s, Bools]:
        """Occupancy and whether the device draws, (T, homes) each."""
        steps = len(self.waits)
        home, remaining = np.zeros(homes, np.uint8), np.zeros(homes, np.int64)
        lived, on = np.zeros((steps, homes), np.uint8), np.zeros((steps, homes), np.bool_)
        for t in range(steps):
            present = self.chains.initial[0, 1] if t == 0 else self._moves(t)[home, 1]
            new_home = (rng.random(homes) < present).astype(np.uint8)
            if t and not self.waits[t - 1]:
                remaining = np.maximum(remaining - 1, 0)
            remaining[(new_home > home) & (t > 0)] = self.run
            home = new_home
            drawing = remaining > 0 if self.run else home > 0
            lived[t], on[t] = home, drawing & ~self.waits[t]
        return lived, on


def _chances(
    device: _Device, lengths: Sequence[int], off: Sequence[Floats], on: Sequence[Floats],
    parts: Sequence[Floats],
) -> Floats:  # fmt: skip
    """(T, R): chance of being at home after the evidence of all steps, for R sequences.

    The likelihood of a block is a sum over parts k of parts[r, k] times a product over its steps of
    off[t][r, k] or on[t][r, k]: whether the device draws decides. Memory holds one block.
    """
    starts = [0, *accumulate(lengths)]
    steps, rows = starts[-1], len(parts[0])

    def weigh(law: Floats, t: int) -> Floats:
        draws = device.on & ~device.waits[t]
        return np.asarray(law * np.where(draws, on[t][..., None, None], off[t][..., None, None]))

    def through(block: int, law: Floats) -> list[Floats]:
        """(R, K, 2, run + 1): the laws of a block's steps, by part."""
        laws = list[Floats]()
        current = parts[block][..., None, None] * law[:, None]
        for t in range(starts[block], starts[block + 1]):
            current = weigh(current if t == 0 else device.forward(current, t), t)
            laws.append(current)
        return laws

    priors = [np.broadcast_to(device.begin(), (rows, *device.on.shape))]
    for block in range(len(lengths) - 1):
        posterior = through(block, priors[-1])[-1].sum(axis=1)
        priors.append(posterior / posterior.sum(axis=(1, 2), keepdims=True))
    chance, message = np.empty((steps, rows)), np.ones((rows, *device.on.shape))
    for block in range(len(lengths) - 1, -1, -1):
        laws = through(block, priors[block])
        messages = np.broadcast_to(message[:, None], laws[-1].shape)
        for t in range(starts[block + 1] - 1, starts[block] - 1, -1):
            joint = (laws[t - starts[block]] * messages).sum(axis=(1, 3))
            chance[t] = joint[:, 1] / joint.sum(axis=1)
            messages = weigh(messages, t)
            if t:
                messages = device.backward(messages, t)
        message = (parts[block][..., None, None] * messages).sum(axis=1)
        message = message / message.max(axis=(1, 2), keepdims=True)
    return chance


def _evidence(
    releases: Floats, lengths: Sequence[int], scale: Floats, reach: int
) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """`off`, `on` and `parts` of (R, T) releases less all other readings.

    Noise of a block has the weight e^-m, m the largest size of it over the scale: a sum over the
    values that m can have of the fall of e^-m there, times whether every step is within that value.
    Noise of one step is Laplace, a block of one.
    """
    off, on, parts = list[Floats](), list[Floats](), list[Floats]()
    for first, length in zip(accumulate((0, *lengths)), lengths, strict=False):
        block, b = releases[:, first : first + length], scale[first]
        off_size, on_size = np.abs(block) / b, np.abs(block - reach) / b
        smallest = np.minimum(off_size, on_size).max(axis=1, keepdims=True)
        values = np.sort(np.concatenate([off_size, on_size], axis=1), axis=1)
        heights = np.exp(np.minimum(smallest - values, 0.0))
        falls = heights - np.concatenate([heights[:, 1:], np.zeros((len(block), 1))], axis=1)
        parts.append(np.where(values >= smallest, falls, 0.0))
        for size, into in ((off_size, off), (on_size, on)):
            into += list((size[:, None] <= values[..., None]).astype(np.float64).transpose(2, 0, 1))
    return off, on, parts


def _no_waits(steps: int) -> Bools:
    return np.zeros(steps, np.bool_)


def attained_leakage(
    model: OccupancyModel, policy: Policy, scale: Floats, reach: int, run: int
) -> float:
    """What an adversary that knows a device's rule learns from the most telling releases.

    Without memory a home draws its bound while occupied, and nothing else. With it, a device starts
    when the home is entered and then draws the bound for `run` steps: readings of different blocks
    then hang together, which the interval promise excludes. The adversary knows all other readings.
    Its releases lie far above (or below) any load, where Laplace noise loses most; of a block of
    steps the first or the last release decides. Such releases are possible, if rare, so the figure
    is a lower bound on the leakage in that world.

    Args:
        model: Occupancy of homes that move alone; the first chain is the target's.
        policy: The policy, over as many steps as there are scales.
        scale: Scales of the noise, (T,) [Wh].
        reach: The bound of the target [Wh].
        run: Steps that the device runs; 0: none, without memory.

    Returns:
        The largest change of the log-odds of occupancy at any step [nats].
    """
    horizon = len(scale)
    lengths = policy.schedule.lengths or (1,) * horizon
    ends = np.cumsum(lengths)
    rows = [np.zeros(horizon)]  # without any release first
    for deciding in dict.fromkeys((tuple(ends - 1), tuple(ends - lengths))):
        evidence = np.zeros(horizon)
        evidence[list(deciding)] = reach / scale[list(deciding)]
        rows += [evidence, -evidence]
    ones, single_steps = np.ones((len(rows), 1)), (1,) * horizon
    on = np.exp(np.stack(rows, axis=1))[..., None]
    device = _Device(model, run, _no_waits(horizon))
    chance = _chances(device, single_steps, [ones] * horizon, list(on), [ones] * horizon)
    odds = np.log(chance) - np.log1p(-chance)
    return float(np.abs(odds[:, 1:] - odds[:, :1]).max())


def guess_scores(
    model: OccupancyModel,
    policy: Policy,
    scale: Floats,
    reach: int,
    run: int,
    *,
    seed: int,
    waits: Bools | None = None,
    homes: int = HOMES,
) -> Scores:
    """How well the same adversary guesses occupancy from typical releases, after all of them.

    Args:
        model: Occupancy of homes that move alone; the first chain is the targets'.
        policy: The policy, over as many steps as there are scales.
        scale: Scales of the noise, (T,) [Wh].
        reach: What the device draws in a step [Wh].
        run: Steps that the device runs; 0: it draws while the home is occupied.
        seed: Seed of occupancy and noise.
        waits: (T,): public: steps at which the device waits for a lower price; None: it never does.
        homes: Number of independent targets, each with noise of its own.

    Returns:
        The scores of its belief, and of the public model's without any release.
    """
    steps = len(scale)
    lengths = policy.schedule.lengths or (1,) * steps
    device = _Device(model, run, _no_waits(steps) if waits is None else waits)
    occupancy, draws = device.live(homes, np.random.default_rng([seed, _GUESSED, run]))
    noise = SimulatedNoise(np.random.SeedSequence([seed, _GUESSED, run, 1]))
    blocks = list[Floats]()
    for first, length in zip(accumulate((0, *lengths)), lengths, strict=False):
        b = float(scale[first])
        block_noise = (
            noise.blocks(b, length, homes) if length > 1 else noise.draws(b, homes)[:, None]
        )
        blocks.append(block_noise + reach * draws[first : first + length].T)
    releases = np.concatenate(blocks, axis=1)
    belief = _chances(device, lengths, *_evidence(releases, lengths, scale, reach))
    ones = np.ones((1, 1))
    single_steps = (1,) * steps
    prior = _chances(device, single_steps, [ones] * steps, [ones] * steps, [ones] * steps)
    return scores(belief.clip(0, 1), occupancy, np.broadcast_to(prior, belief.shape).clip(0, 1))
