"""What is promised: the guarantee of each release and the rules it follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from hushgrid.checks import is_real, is_whole
from hushgrid.errors import PolicyError
from hushgrid.window import Window

BlockRule = Literal["block", "minimal", "paper"]
ModelsRule = Literal["union", "paper"]
EmptyRule = Literal["protect_all", "publish_exact"]
PublishRule = Literal["raw", "estimate"]
NoiseName = Literal["laplace", "gaussian", "none"]

MIN_SCALE = 0.1  # [Wh]; no release goes out with less noise than this
MAX_CLAMP = 2**31 - 1  # [Wh]
MAX_SCALE = 1e15  # [Wh]; beyond it the noise would outgrow 64-bit whole numbers


@dataclass(frozen=True, slots=True)
class Policy:
    """The promise of every step and how far the consumption model is trusted.

    `epsilon`: bound on the log-odds one release gives away about one house, to an adversary who
    knows the occupancy of all others.
    `eta`: share of every reading's law that may be anything; 1 assumes no consumption law, 0 that
    the law is exact. The occupancy models are assumed at every eta.
    `blocks`: how correlated houses count; `models`: how Theta counts; `on_empty`: what to do
    when no house is uncertain ("publish_exact" trusts Theta absolutely).
    `epsilon_t`: a smaller epsilon for each step of the horizon, where they differ; `clamp` [Wh]:
    one for each density class, below the contract bound, or none; `publish`: the rate of the
    noisy load, or of the public's best estimate of it.
    `gaussian`: integer Gaussian noise with this multiple of a house's bound as its standard
    deviation, instead of Laplace noise. No release then has an epsilon of its own: epsilon and
    `delta` are what the whole horizon promises about a house's day.
    `window`: epsilon is what any so many consecutive steps may lose together, for endless streams.
    `negligible`: a house is left out once what is public leaves at most this to one of its states;
    the promise of a step is then (epsilon, negligible).
    """

    epsilon: float
    horizon: int = 96
    eta: float = 1.0
    blocks: BlockRule = "block"
    models: ModelsRule = "union"
    on_empty: EmptyRule = "protect_all"
    min_scale: float = MIN_SCALE
    epsilon_t: tuple[float, ...] = ()
    clamp: tuple[int, ...] = ()
    publish: PublishRule = "raw"
    gaussian: float | None = None
    delta: float = 0.0
    window: Window | None = None
    negligible: float = 0.0

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
        object.__setattr__(self, "epsilon_t", _checked_epsilons(self))
        object.__setattr__(self, "clamp", _checked_clamp(self.clamp))
        if self.gaussian is None:
            if self.delta != 0:
                raise PolicyError(
                    f"policy delta is {self.delta}; it goes with gaussian noise only.",
                    fields=("delta", "gaussian"),
                )
        else:
            _check_gaussian(self)
        _check_window(self)
        _check_negligible(self)

    def epsilon_at(self, t: int) -> float:
        """What release t may lose."""
        if self.gaussian is not None:
            return math.inf
        return self.epsilon_t[t - 1] if self.epsilon_t else self.epsilon

    def noise_at(self, scale: float) -> NoiseName:
        """The law of a release's noise of this scale [Wh]; none where the scale is 0."""
        if scale == 0:
            return "none"
        return "laplace" if self.gaussian is None else "gaussian"

    @property
    def rule(self) -> str:
        """The rules in a few words for people, such as `eta=1 block union`."""
        clamped = " clamped" if self.clamp else ""
        gaussian = " gaussian" if self.gaussian is not None else ""
        window = f" {self.window.by} over {self.window.steps}" if self.window else ""
        negligible = f" negligible={self.negligible:g}" if self.negligible else ""
        words = f"eta={self.eta:g} {self.blocks} {self.models}"
        return f"{words}{clamped}{gaussian}{window}{negligible}"


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


def _checked_epsilons(policy: Policy) -> tuple[float, ...]:
    if not isinstance(policy.epsilon_t, (tuple, list)):
        raise PolicyError(
            f"policy epsilon_t is {policy.epsilon_t!r}; give a list, one a step.",
            fields=("epsilon_t",),
        )
    each = tuple(policy.epsilon_t)
    for t, epsilon in enumerate(each, 1):
        number = is_real(epsilon) and epsilon > 0
        if not (number and epsilon <= policy.epsilon):
            raise PolicyError(
                f"policy epsilon_t of step {t} is {epsilon}; give a positive number, at most"
                f" epsilon = {policy.epsilon:g}.",
                fields=("epsilon_t", "epsilon") if number else ("epsilon_t",),
            )
    if each and len(each) != policy.horizon:
        raise PolicyError(
            f"policy epsilon_t has {len(each)} entries but the horizon is {policy.horizon};"
            " give one for each step, or none.",
            fields=("epsilon_t", "horizon"),
        )
    return each


def _check_gaussian(policy: Policy) -> None:
    multiple = policy.gaussian
    if not (is_real(multiple) and multiple is not None and multiple > 0):
        raise PolicyError(
            f"policy gaussian is {multiple}; give a positive multiple of the bound.",
            fields=("gaussian",),
        )
    if not (is_real(policy.delta) and 0 < policy.delta < 1):
        raise PolicyError(
            f"policy delta is {policy.delta}; give a probability between 0 and 1.",
            fields=("delta",),
        )
    if policy.eta != 1 or policy.epsilon_t:
        raise PolicyError(
            f"policy gaussian is {multiple:g} with eta {policy.eta:g} and"
            f" {len(policy.epsilon_t)} epsilons a step; Gaussian noise goes with eta = 1 and one"
            " epsilon for the whole horizon.",
            fields=("gaussian", "eta", "epsilon_t"),
        )
    left = gaussian_delta(policy.epsilon, policy.horizon, multiple)
    if left > policy.delta:
        raise PolicyError(
            f"policy gaussian is {multiple:g}, which leaves delta = {left:.3g} at epsilon ="
            f" {policy.epsilon:g} over {policy.horizon} steps where {policy.delta:g} is promised;"
            " give a larger multiple, as plan computes it.",
            fields=("gaussian", "epsilon", "horizon", "delta"),
        )


def _check_window(policy: Policy) -> None:
    if policy.window is None:
        return
    if not isinstance(policy.window, Window):
        raise PolicyError(
            f"policy window is {policy.window!r}; give a Window such as Window(96).",
            fields=("window",),
        )
    if policy.gaussian is not None or policy.epsilon_t:
        raise PolicyError(
            f"policy window is {policy.window.steps} steps with another schedule of the budget;"
            " give one of window, epsilon_t and gaussian.",
            fields=("window", "epsilon_t", "gaussian"),
        )
    if policy.on_empty == "publish_exact":
        raise PolicyError(
            "policy on_empty is publish_exact with a window; an endless stream protects all.",
            fields=("on_empty", "window"),
        )
    if policy.eta != 1:  # two sights of one reading: their losses add up at eta = 1 alone
        raise PolicyError(
            f"policy eta is {policy.eta:g} with a window, which may look at a load twice;"
            " give eta = 1.",
            fields=("eta", "window"),
        )


def _check_negligible(policy: Policy) -> None:
    if not (is_real(policy.negligible) and 0 <= policy.negligible < 0.5):
        raise PolicyError(
            f"policy negligible is {policy.negligible}; give a probability from 0 to below 0.5.",
            fields=("negligible",),
        )
    if policy.negligible and (policy.gaussian is not None or policy.window is not None):
        raise PolicyError(
            f"policy negligible is {policy.negligible:g} with a window or Gaussian noise;"
            " give one of them.",
            fields=("negligible", "window", "gaussian"),
        )
    if policy.negligible and policy.on_empty == "publish_exact":
        raise PolicyError(
            f"policy negligible is {policy.negligible:g} with on_empty publish_exact;"
            " a house that is only unlikely to surprise needs noise: give protect_all.",
            fields=("negligible", "on_empty"),
        )


def gaussian_delta(epsilon: float, steps: int, multiple: float) -> float:
    """delta of `steps` Gaussian releases at `multiple` (the balanced closed form).

    >>> f"{gaussian_delta(1.0, 96, 41.4):.1e}"
    '1.0e-06'
    """
    mu = math.sqrt(steps) / multiple
    above, below = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    if epsilon > 700:  # beyond floats; leaving the second term out is on the safe side
        return _phi(above)
    return _phi(above) - math.exp(epsilon) * _phi(below)


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


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
