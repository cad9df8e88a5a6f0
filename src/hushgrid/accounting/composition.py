"""Composition of many releases, per house: pure sums and privacy-loss distributions (Theorem 2).

An account is an append-only fold over releases. Its state is what was published; everything else
is computed again from public models, so a saved account is a list of releases. `noise_multiple`
gives the Gaussian noise that a whole horizon needs, as a multiple of the distance it hides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hushgrid._numbers import Floats, is_real, is_whole, sum_up
from hushgrid.accounting.events import (
    Event,
    GaussianEvent,
    Laws,
    Pure,
    loss_distribution,
    noise_event,
)
from hushgrid.errors import PlanError, PolicyError
from hushgrid.mechanism.calibrators import case_loss, loss_of_pmfs
from hushgrid.mechanism.exposure import Exposure
from hushgrid.mechanism.policy import MAX_SCALE
from hushgrid.mechanism.release import Release, State
from hushgrid.mechanism.scheduler import cases_of


def compose(losses: Iterable[float | Event], delta: float = 0.0) -> float:
    """The epsilon of all releases together: a sum at delta = 0, less at delta > 0.

    See: docs/proofs/composition.md.

    Args:
        losses: For each release an event, or its pure loss [nats] where only that is known.
        delta: Probability of exceeding epsilon, 0 to below 1.

    Returns:
        Epsilon [nats].

    Raises:
        ExtraError: If delta is above 0 and dp_accounting is not installed.

    >>> compose([0.5] * 96)
    48.0
    >>> round(compose([0.5] * 96, 1e-6), 2)
    32.39
    """
    _check_delta(delta)
    events = _events(losses)
    if delta == 0:
        return sum_up(event.pure for event in events)
    if not events:
        return 0.0
    pure = sum_up(event.pure for event in events)  # the grid can cost more than it saves
    return min(float(_composed(events).get_epsilon_for_delta(delta)), pure)


def delta_of(losses: Iterable[float | Event], epsilon: float) -> float:
    """The delta of all releases together at an epsilon.

    Args:
        losses: For each release an event, or its pure loss [nats] where only that is known.
        epsilon: Epsilon [nats], 0 or more.

    Returns:
        The probability delta.

    Raises:
        PolicyError: If epsilon is not a finite number of 0 or more.
    """
    events = _events(losses)
    if not (is_real(epsilon) and epsilon >= 0):
        raise PolicyError(f"epsilon is {epsilon}; give a finite number, 0 or more.")
    if not events or sum_up(event.pure for event in events) <= epsilon:
        return 0.0
    return float(_composed(events).get_delta_for_epsilon(epsilon))


def _events(losses: Iterable[float | Event]) -> list[Event]:
    return [loss if isinstance(loss, Event) else Pure(loss) for loss in losses]


def _composed(events: Sequence[Event]) -> Any:
    """Equal events are composed at once, then in pairs: the order plays no part.

    In pairs each distribution is convolved log T times; one after the other, the growing total
    would be convolved T times.
    """
    parts = [loss_distribution(event).self_compose(n) for event, n in Counter(events).items()]
    while len(parts) > 1:
        pairs = [
            first.compose(second) for first, second in zip(parts[::2], parts[1::2], strict=False)
        ]
        parts = pairs + parts[2 * len(pairs) :]
    return parts[0]


def _check_delta(delta: float) -> None:
    if not (is_real(delta) and 0 <= delta < 1):
        raise PolicyError(f"delta is {delta}; give 0, or a probability between 0 and 1.")


def check_fields(value: Any, names: Sequence[str], label: str) -> None:
    """Check that a value is a mapping with exactly these fields.

    Args:
        value: The value.
        names: The field names.
        label: Name of the value in messages.

    Raises:
        PolicyError: If it is no mapping, or a field is missing or unknown.
    """
    if not isinstance(value, Mapping):
        raise PolicyError(
            f"{label} is of type {type(value).__name__}; give a mapping of {', '.join(names)}."
        )
    missing = [name for name in names if name not in value]
    if missing:
        raise PolicyError(f"{label} has no {missing[0]}; give {', '.join(names)}.")
    unknown = [str(name) for name in value if name not in names]
    if unknown:
        raise PolicyError(f"{label} has a field {unknown[0]!r}; give {', '.join(names)} alone.")


class AccountEntry(NamedTuple):
    """What an account keeps of a release: enough to compute its loss again.

    Attributes:
        t: The step.
        scale: Scale of the noise [Wh].
        rate: Published rate [currency/kWh].
    """

    t: int
    scale: float
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseAccount:
    """The losses of a zone's releases, per house. Without entries every loss is 0.

    Attributes:
        first: The state before step 1.
        entries: The releases so far.
    """

    first: State
    entries: tuple[AccountEntry, ...] = ()

    def add(self, release: Release) -> ReleaseAccount:
        """The account with the next release of its zone, made under its terms."""
        self._check_mine(release.zone, release.digest)
        expected = len(self.entries) + 1
        if release.t != expected:
            raise PolicyError(
                f"release is of step {release.t} but the account is before step {expected};"
                " add releases in order, each once."
            )
        entry = AccountEntry(release.t, release.scale, release.rate)
        return replace(self, entries=(*self.entries, self._checked(entry)))

    def losses(self, entry: AccountEntry) -> Floats:
        """Loss of one release for every house, (N,): 0 where its occupancy is certain.

        Infinite where it is uncertain and the policy's rules allow a release without noise.
        """
        return self.first.scheduler.losses(entry.t, entry.scale, self._rates_before(entry))

    @property
    def pure(self) -> Floats:
        """Theorem 2, per house: the sum of its losses over the steps that protect it, (N,)."""
        if not self.entries:
            return np.zeros(self.first.zone.n_houses)
        rows = np.array([self.losses(entry) for entry in self._counted])
        return np.array([sum_up(column) for column in rows.T.tolist()])

    def probable(self, house: int) -> tuple[float, float]:
        """(epsilon, delta) under a probabilistic constraint, in the sense of DPHMM.

        The losses of the steps that protected the house, and for each step that left it out the
        probability of its negligible state. `pure` counts those steps' losses too.
        """
        self._check_house(house)
        losses, delta = [], []
        for entry in self.entries:
            rates, exposure = self._rates_before(entry), self._exposure(entry)
            left_out = house not in self.first.scheduler.at(entry.t, rates).protected
            alone = not any(house in block for block in exposure.blocks)
            if left_out and alone and house in exposure.protected:
                delta.append(self.first.policy.schedule.negligible)
            else:
                losses.append(float(self.losses(entry)[house]))
        return sum_up(losses), min(sum_up(delta), 1.0)

    def events(self, house: int) -> list[Event]:
        """The events of each release for one house; none where its occupancy was certain."""
        self._check_house(house)
        if (bare := self._bare(house)) is not None:
            raise PolicyError(
                f"step {bare} went out without noise while house {house} was uncertain, so its loss"
                " has no bound and there is no event for it."
            )
        return [
            self._event(house, entry)
            for entry in self._counted
            if entry.scale and self._is_exposed(house, self._exposure(entry))
        ]

    @property
    def _counted(self) -> list[AccountEntry]:
        """The releases whose losses add up: of a block of steps the first."""
        span = self.first.policy.schedule.span
        return list({span(entry.t): entry for entry in reversed(self.entries)}.values())[::-1]

    def _check_house(self, house: int) -> None:
        last = self.first.zone.n_houses - 1
        if not (is_whole(house) and 0 <= house <= last):
            raise PolicyError(f"house is {house}; give a house of the zone, 0 to {last}.")

    @staticmethod
    def _is_exposed(house: int, exposure: Exposure) -> bool:
        """Whether a release can disclose a house: it, or one of its block, is uncertain."""
        if house in exposure.protected:
            return True
        mates = [block for block in exposure.blocks if house in block]
        return any(cases_of(exposure, block) for block in mates)

    def epsilon(self, house: int, delta: float = 0.0) -> float:
        """The epsilon of everything published, for one house."""
        self._check_house(house)
        _check_delta(delta)
        return math.inf if self._bare(house) is not None else compose(self.events(house), delta)

    def delta(self, house: int, epsilon: float) -> float:
        """The delta left at an epsilon, for one house."""
        self._check_house(house)
        return 1.0 if self._bare(house) is not None else delta_of(self.events(house), epsilon)

    def _bare(self, house: int) -> int | None:
        """The first step published without noise while a house was uncertain."""
        bare = (entry for entry in self.entries if entry.scale == 0)
        return next(
            (entry.t for entry in bare if self._is_exposed(house, self._exposure(entry))), None
        )

    def save(self) -> dict[str, Any]:
        """The zone, the digest, and the releases' steps, scales and rates, as JSON values."""
        entries = [entry._asdict() for entry in self.entries]
        return {"zone": self.first.zone.id, "digest": self.first.digest, "entries": entries}

    @classmethod
    def resume(cls, first: State, saved: Mapping[str, Any]) -> ReleaseAccount:
        """Restore a saved account; the terms must be the same and no entry damaged."""
        check_fields(saved, ("zone", "digest", "entries"), "saved account")
        account = cls(first)
        account._check_mine(saved["zone"], saved["digest"])
        if not isinstance(saved["entries"], Sequence) or isinstance(saved["entries"], str):
            raise PolicyError(
                f"entries of the saved account are of type {type(saved['entries']).__name__};"
                " give a list."
            )
        for t, fields in enumerate(saved["entries"], start=1):
            check_fields(fields, AccountEntry._fields, f"entry {t} of the saved account")
            if fields["t"] is True or fields["t"] != t:
                raise PolicyError(
                    f"entry {t} of the saved account is of step {fields['t']!r};"
                    " give the steps 1, 2, 3, ... in order, each once."
                )
            account = replace(
                account, entries=(*account.entries, account._checked(AccountEntry(**fields)))
            )
        return account

    def _checked(self, entry: AccountEntry) -> AccountEntry:
        """The entry, if a release of this zone can have these values."""
        t, scale, rate = entry
        policy = self.first.policy
        if t > policy.horizon:
            raise PolicyError(
                f"step t is {t} but the policy's horizon is {policy.horizon};"
                " an account holds the releases of its policy alone."
            )
        exact = policy.on_empty == "publish_exact" and is_real(scale) and scale == 0
        if not (exact or (is_real(scale) and policy.min_scale <= scale <= MAX_SCALE)):
            raise PolicyError(
                f"scale of step {t} is {scale!r}; give the release's own,"
                f" {policy.min_scale:g} Wh or more."
            )
        if not is_real(rate):
            raise PolicyError(f"rate of step {t} is {rate!r}; give the release's own, a number.")
        self._check_scale(entry)
        return AccountEntry(t, float(scale), float(rate))

    def _check_scale(self, entry: AccountEntry) -> None:
        """Refuse a scale that does not follow from the terms."""
        due = self.first.scheduler.at(entry.t, self._rates_before(entry)).scale
        if entry.scale != due:
            raise PolicyError(
                f"scale of step {entry.t} is {entry.scale!r} where the terms lead to {due:g};"
                " the record is damaged or of other terms."
            )

    def _check_mine(self, zone: str, digest: str) -> None:
        if not isinstance(digest, str):
            raise PolicyError(f"digest is {digest!r}; give the text that names the terms.")
        if zone != self.first.zone.id:
            raise PolicyError(
                f"release is of zone {zone!r} but the account is of {self.first.zone.id!r};"
                " keep one account a zone."
            )
        if digest != self.first.digest:
            raise PolicyError(
                f"release has digest {digest[:12]} but the account {self.first.digest[:12]};"
                " open a new account when zone, models or policy change."
            )

    def _rates_before(self, entry: AccountEntry) -> list[float]:
        return [earlier.rate for earlier in self.entries[: entry.t - 1]]

    def _exposure(self, entry: AccountEntry) -> Exposure:
        return self.first.scheduler.booked(entry.t, self._rates_before(entry))

    def _event(self, house: int, entry: AccountEntry) -> Event:
        """The tightest event known for a house: its own pair of laws, or a pure loss in a block."""
        eta, scale = self.first.policy.eta, entry.scale
        exposure, f = self._exposure(entry), self.first.scheduler.consumption
        blocks = [block for block in exposure.blocks if house in block]
        cases = [case for block in blocks for case in cases_of(exposure, block)]
        bound = int(self.first.zone.bound[house])
        if eta == 1:
            reach = max((case.reach for case in cases), default=bound)
            return noise_event(self.first.policy.schedule.noise, reach, scale)
        if cases:
            return Pure(max(case_loss(case, scale, eta) for case in cases))
        laws = [f.law(entry.t, int(f.class_of[house]), occupied=o) for o in (False, True)]
        if (factor := f.factor(self._rates_before(entry))) != 1:
            laws = [law.scaled(factor, bound) for law in laws]
        if eta == 0:
            return Laws(laws[0], laws[1], scale)
        return Pure(loss_of_pmfs(laws[0].pmf, laws[1].pmf, bound, scale, eta))


# ---- Gaussian noise of a horizon


_WIDE = 20_000  # [Wh]; at such widths the integer law depends on the multiple alone
_MOST = 5_000.0  # times the distance; beyond it the grid of losses is too coarse
_WIDTH = 1e-4  # relative width at which the search stops; the answer is the end that holds


@lru_cache(maxsize=256)
def noise_multiple(epsilon: float, delta: float, steps: int) -> float:
    """Smallest sigma/distance with (epsilon, delta) over `steps` integer Gaussian releases.

    Args:
        epsilon: Loss of all releases together [nats].
        delta: Probability of exceeding it, between 0 and 1.
        steps: Number of releases.

    Returns:
        Standard deviation of the noise over the distance of the loads.

    Raises:
        PolicyError: If delta is not between 0 and 1.
        PlanError: If epsilon is too small for any multiple that can be computed.

    >>> round(noise_multiple(1.0, 1e-6, 96), 1)
    41.4
    """
    if not 0 < delta < 1:
        raise PolicyError(f"delta is {delta}; Gaussian noise needs one between 0 and 1.")

    def holds(multiple: float) -> bool:
        distance = max(round(_WIDE / multiple), 1)
        return compose([GaussianEvent(distance, multiple * distance)] * steps, delta) <= epsilon

    high = 1.0
    while not holds(high):
        high *= 2
        if high > _MOST:
            raise PlanError(
                f"epsilon is {epsilon:g} at delta = {delta:g} over {steps} steps, which takes noise"
                f" above {_MOST:g} times the bound; give a larger epsilon."
            )
    low = high / 2
    while low > 1e-3 and holds(low):
        low, high = low / 2, low
    while high - low > _WIDTH * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
