"""What is promised: the guarantee of each release and the rules it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hushgrid.checks import is_real, is_whole
from hushgrid.errors import PolicyError

BlockRule = Literal["block", "minimal", "paper"]
ModelsRule = Literal["union", "paper"]
EmptyRule = Literal["protect_all", "publish_exact"]

MIN_SCALE = 0.1  # [Wh]; no release goes out with less noise than this
MAX_SCALE = 1e15  # [Wh]; beyond it the noise would outgrow 64-bit whole numbers


@dataclass(frozen=True, slots=True)
class Policy:
    """The promise of every step and how far the consumption model is trusted.

    `epsilon`: bound on the log-odds one release gives away about one house.
    `eta`: share of every reading's law that may be anything; 1 trusts nothing, 0 trusts all.
    `blocks`: how correlated houses count; `models`: how Theta counts; `on_empty`: what to do
    when no house is uncertain ("publish_exact" trusts Theta absolutely).
    """

    epsilon: float
    horizon: int = 96
    eta: float = 1.0
    blocks: BlockRule = "block"
    models: ModelsRule = "union"
    on_empty: EmptyRule = "protect_all"
    min_scale: float = MIN_SCALE

    def __post_init__(self) -> None:
        if not (is_real(self.epsilon) and self.epsilon > 0):
            raise PolicyError(f"policy epsilon is {self.epsilon}; give a positive number.")
        if not is_whole(self.horizon) or self.horizon < 1:
            raise PolicyError(f"policy horizon is {self.horizon}; give 1 step or more.")
        if not (is_real(self.eta) and 0 <= self.eta <= 1):
            raise PolicyError(f"policy eta is {self.eta}; give a share from 0 to 1.")
        if not (is_real(self.min_scale) and MIN_SCALE <= self.min_scale <= MAX_SCALE):
            raise PolicyError(f"policy min_scale is {self.min_scale}; give {MIN_SCALE} Wh or more.")
        object.__setattr__(self, "horizon", int(self.horizon))
        for name, kind in (("blocks", BlockRule), ("models", ModelsRule), ("on_empty", EmptyRule)):
            if getattr(self, name) not in get_args(kind):
                raise PolicyError(
                    f"policy {name} is {getattr(self, name)!r}; give one of"
                    f" {', '.join(get_args(kind))}."
                )

    @property
    def rule(self) -> str:
        """The rules in one word for a release, such as `eta=1 block union`."""
        return f"eta={self.eta:g} {self.blocks} {self.models}"
