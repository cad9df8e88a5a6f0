"""w-event budgets: any w consecutive steps of an endless stream lose at most epsilon together.

Half of the budget looks, at every step, whether the load has moved away from what the public
expects; the other half is spent where it has (Kellaris, Papadopoulos, Xiao, Papadias 2014).

distribution  a publication takes half of what the last w - 1 publications have left
absorption    every step has an equal share; a publication takes the shares of the skipped steps
              before it, and the steps after it give up as many

These shares are what a step may take at most. What a release books decides: a look or a
publication that brings any w consecutive steps above epsilon by the exact sum of what they book is
not made, whatever terms and rules the steps before followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from hushgrid.checks import is_whole
from hushgrid.errors import PolicyError

Method = Literal["distribution", "absorption"]

ROUNDING = 1e-9  # of a look's share: what calibration and rounding may add to it


@dataclass(frozen=True, slots=True)
class Window:
    """`steps` is w; `by` says how the half for publications is shared out."""

    steps: int
    by: Method = "distribution"

    def __post_init__(self) -> None:
        if not is_whole(self.steps) or self.steps < 1:
            raise PolicyError(
                f"window steps is {self.steps}; give 1 step or more.", fields=("steps",)
            )
        if self.by not in get_args(Method):
            raise PolicyError(
                f"window by is {self.by!r}; give one of {', '.join(get_args(Method))}.",
                fields=("by",),
            )
        object.__setattr__(self, "steps", int(self.steps))

    def look(self, epsilon: float) -> float:
        """What the look of every step may lose."""
        return epsilon / (2 * self.steps)

    def offer(self, epsilon: float, spent: Sequence[float]) -> float:
        """What a publication now may lose, after what each earlier step spent on one; 0: none.

        >>> Window(4).offer(1.0, []), Window(4).offer(1.0, [0.25, 0.0])
        (0.25, 0.125)
        >>> Window(4, "absorption").offer(1.0, [0.0, 0.0])  # two skipped shares and its own
        0.375
        """
        recent = list(spent)[-(self.steps - 1) :] if self.steps > 1 else []
        if self.by == "distribution":
            return max((epsilon / 2 - sum(recent)) / 2, 0.0)
        unit = self.look(epsilon)
        last = max((i for i, e in enumerate(recent) if e > 0), default=-1)
        skipped = len(recent) - last - 1
        # a publication at the border of an epoch may be a fraction of shares: rounded up
        given_up = math.ceil(recent[last] / unit - ROUNDING) - 1 if last >= 0 else 0
        return unit * max(min(skipped - given_up + 1, self.steps), 0)

    def recent(self, lost: Sequence[float]) -> tuple[float, ...]:
        """Of what each step has lost, latest last, the part that a window with the next one holds.

        >>> Window(3).recent([0.3, 0.2, 0.1]), Window(1).recent([0.3])
        ((0.2, 0.1), ())
        """
        return tuple(lost)[-(self.steps - 1) :] if self.steps > 1 else ()

    def published(self, epsilon: float, lost: Sequence[float]) -> tuple[float, ...]:
        """How much of what each step has lost counts as spent on a publication.

        What is above a look's share; never more than epsilon, so that an infinite loss counts.
        """
        look = self.look(epsilon)
        above = (min(e - look, epsilon) for e in lost)
        return tuple(e if e > ROUNDING * look else 0.0 for e in above)


def largest_so_far(lost: Mapping[int, float]) -> dict[int, float]:
    """Losses of different houses, each by the steps since, as those of one house that has the most.

    Over any last steps they add up to at least the largest loss there, and hardly to more.

    >>> largest_so_far({3: 0.75, 1: 0.5, 2: 0.25})
    {1: 0.5, 3: 0.25000000000000006}
    """
    found: dict[int, float] = {}
    largest = 0.0
    for ago in sorted(lost):
        if lost[ago] > largest:
            more = lost[ago] - largest
            found[ago] = math.nextafter(more, math.inf) if largest else more
            largest = lost[ago]
    return found
