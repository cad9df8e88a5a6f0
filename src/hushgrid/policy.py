"""What is promised: the guarantee of each release and the rules it follows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from hushgrid.checks import is_real, is_whole
from hushgrid.errors import PolicyError
from hushgrid.schedules import Even, Schedule

BlockRule = Literal["block", "minimal", "paper"]
ModelsRule = Literal["union", "paper"]
EmptyRule = Literal["protect_all", "publish_exact"]
PublishRule = Literal["raw", "estimate"]

MIN_SCALE = 0.1  # [Wh]; no release goes out with less noise than this
MAX_CLAMP = 2**31 - 1  # [Wh]
MAX_SCALE = 1e15  # [Wh]; beyond it the noise would outgrow 64-bit whole numbers


@dataclass(frozen=True, slots=True)
class Policy:
    """A promise, how far the consumption model is trusted, and one schedule.

    Attributes:
        epsilon: Bound on the log-odds that one release gives away about one house, to an adversary
            who knows the occupancy of all others. A schedule may share it out over many releases.
        horizon: How many steps the policy is for.
        eta: Share of every reading's law that may be anything; 1 assumes no consumption law, 0
            that the law is exact. The occupancy models are assumed at every eta.
        blocks: How correlated houses count.
        models: How Theta counts.
        on_empty: What to do when no house is uncertain ("publish_exact" trusts Theta absolutely).
        min_scale: The least noise of a release [Wh].
        clamp: One bound for each density class [Wh], below the contract bound, or none.
        publish: The rate of the noisy load, or of the public's best estimate of it.
        schedule: How epsilon is shared out over the releases, and the law of the noise.
    """

    epsilon: float
    horizon: int = 96
    eta: float = 1.0
    blocks: BlockRule = "block"
    models: ModelsRule = "union"
    on_empty: EmptyRule = "protect_all"
    min_scale: float = MIN_SCALE
    clamp: tuple[int, ...] = ()
    publish: PublishRule = "raw"
    schedule: Schedule = field(default_factory=Even)

    def __post_init__(self) -> None:
        if not (is_real(self.epsilon) and self.epsilon > 0):
            raise PolicyError(
                f"policy epsilon is {self.epsilon}; give a positive number.", fields=("epsilon",)
            )
        if not is_whole(self.horizon) or self.horizon < 1:
            raise PolicyError(
                f"policy horizon is {self.horizon}; give 1 step or more.", fields=("horizon",)
            )
        if not (is_real(self.eta) and 0 <= self.eta <= 1):
            raise PolicyError(
                f"policy eta is {self.eta}; give a share from 0 to 1.", fields=("eta",)
            )
        if not (is_real(self.min_scale) and MIN_SCALE <= self.min_scale <= MAX_SCALE):
            raise PolicyError(
                f"policy min_scale is {self.min_scale}; give {MIN_SCALE} Wh or more.",
                fields=("min_scale",),
            )
        object.__setattr__(self, "horizon", int(self.horizon))
        for name, kind in _RULES.items():
            if getattr(self, name) not in get_args(kind):
                raise PolicyError(
                    f"policy {name} is {getattr(self, name)!r}; give one of"
                    f" {', '.join(get_args(kind))}.",
                    fields=(name,),
                )
        object.__setattr__(self, "clamp", _checked_clamp(self.clamp))
        if not isinstance(self.schedule, Schedule):
            raise PolicyError(
                f"policy schedule is {self.schedule!r}; give a Window such as Window(96), or"
                " another schedule.",
                fields=("schedule",),
            )
        self.schedule.check(self)

    def epsilon_at(self, t: int) -> float:
        """What release t may lose; infinite where no release has an epsilon of its own."""
        return self.schedule.epsilon_at(self.epsilon, t)

    def first(self, steps: int) -> Policy:
        """The policy of the first steps, at most the horizon."""
        horizon = min(self.horizon, steps)
        schedule = self.schedule.with_epsilons(self.schedule.epsilons[:horizon])
        return replace(self, horizon=horizon, schedule=schedule)

    def at_even_share(self) -> Policy:
        """The policy with epsilon shared out evenly, where steps spend by what they see."""
        if not self.schedule.adaptive:
            return self
        return replace(self, epsilon=self.epsilon / self.schedule.shared_by, schedule=Even())

    @property
    def rule(self) -> str:
        """The rules in a few words for people, such as `eta=1 block union`."""
        clamped = " clamped" if self.clamp else ""
        return f"eta={self.eta:g} {self.blocks} {self.models}{clamped}{self.schedule.words}"


_RULES = {
    "blocks": BlockRule,
    "models": ModelsRule,
    "on_empty": EmptyRule,
    "publish": PublishRule,
}


def weaker_promise(policy: Policy, models: int = 2) -> tuple[str, ...]:
    """What the policy's rules do not promise, in sentences; none for the default rules.

    The rules set the noise. What is booked for a release is the loss of the house most is learnt
    about under the default rules, at the noise used: more than epsilon, and possibly infinite.

    Args:
        policy: The rules.
        models: How many models Theta has; with one, the rule for several plays no part.

    >>> weaker_promise(Policy(0.5))
    ()
    """
    found = [_WEAKER[policy.blocks]] if policy.blocks in _WEAKER else []
    if policy.models == "paper" and models > 1:
        found.append(_WEAKER_MODELS)
    if policy.on_empty == "publish_exact":
        found.append(_WEAKER_EXACT)
    return tuple(found)


_BOOKED = "about one home a price can say more, and that larger loss is what each release states"
_WEAKER = {
    "minimal": (
        "Where homes move together, the rule minimal bounds only how well a price separates"
        f" neighbouring joint states, those with no possible state between them; {_BOOKED}."
    ),
    "paper": (
        "Where homes move together, the rule paper bounds only how well a price separates joint"
        f" states that differ in one home; {_BOOKED}."
    ),
}
_WEAKER_MODELS = (
    "A home whose occupancy each model alone makes certain, though they disagree, is not protected"
    f" by the rule paper for models; {_BOOKED}."
)
_WEAKER_EXACT = (
    "Where the rules find no home's occupancy uncertain, the price is exact: this trusts the models"
    " absolutely, and nothing is promised where they are wrong."
)


def _checked_clamp(clamp: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(clamp, (tuple, list)):
        raise PolicyError(
            f"policy clamp is {clamp!r}; give a list of Wh, one a density class.", fields=("clamp",)
        )
    each = tuple(clamp)
    for kind, at in enumerate(each):
        if not is_whole(at) or not 1 <= at <= MAX_CLAMP:
            raise PolicyError(
                f"policy clamp of class {kind} is {at}; give whole Wh, 1 to {MAX_CLAMP}.",
                fields=("clamp",),
            )
    return tuple(int(at) for at in each)
