"""Policies and schedules: what is promised, and how epsilon is shared out over releases.

A policy has one schedule. The schedule alone defines the noise law, the epsilon of a step, its keys
in a file and its sentences; no other module tests its class, except `zone_file`, which chooses a
schedule from the keys of a file. A new schedule is a final class here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast, final, get_args

import numpy as np

from hushgrid._numbers import Floats, brief, is_real, is_whole
from hushgrid.errors import PolicyError
from hushgrid.model.consumption import Consumption
from hushgrid.model.covariate import Covariate
from hushgrid.model.laws import Clamp

NoiseLaw = Literal["laplace", "block"]
# of a release, those of other methods included
NoiseName = Literal["laplace", "gaussian", "block", "none"]
Wh = TypeVar("Wh", float, Floats)


class _Policy(Protocol):
    """The fields of a policy that a schedule reads."""

    @property
    def epsilon(self) -> float: ...
    @property
    def horizon(self) -> int: ...
    @property
    def eta(self) -> float: ...
    @property
    def on_empty(self) -> str: ...
    @property
    def blocks(self) -> str: ...
    @property
    def models(self) -> str: ...


class Schedule:
    """How epsilon is shared out. By default every release may lose epsilon, by Laplace noise.

    Attributes:
        noise: The law of the noise.
        noise_words: The law and its scale, for sentences.
        assumption: A sentence for the list of assumptions; or empty.
        epsilons: The epsilon of each step of the horizon, where they differ; else empty.
        lengths: Steps of each block with one common noise; empty: noise of its own at every step.
    """

    __slots__ = ()
    noise: ClassVar[NoiseLaw] = "laplace"
    noise_words: ClassVar[str] = "Laplace, scale"
    assumption: ClassVar[str] = ""
    epsilons: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()

    @property
    def terms(self) -> Mapping[str, Any]:
        """The schedule under its keys of [policy] in a zone file."""
        return {}

    @property
    def words(self) -> str:
        """The schedule in a policy's rule, after a space; or empty."""
        return ""

    @property
    def caveat(self) -> str:
        """A sentence that goes with every promise, without its full stop; or empty."""
        return ""

    def epsilon_at(self, epsilon: float, t: int) -> float:
        """What release t may lose at most, of a policy's epsilon."""
        return self.epsilons[t - 1] if self.epsilons else epsilon

    def noise_at(self, scale: float) -> NoiseName:
        """The law of a release's noise of this scale [Wh]; `none` where the scale is 0."""
        return self.noise if scale else "none"

    def variance(self, scale: Wh) -> Wh:
        """Variance of the noise at this scale [Wh^2]."""
        return 2 * scale**2

    def span(self, t: int) -> tuple[int, int]:
        """The first and the last step of the block with the noise of step t."""
        return t, t

    def block(self, t: int) -> Mapping[str, int]:  # noqa: ARG002
        """The `first` step of the block of steps with step t, and its `length`; empty without."""
        return {}

    def over(self, steps: int) -> Schedule:  # noqa: ARG002
        """The schedule again and again over so many steps, whose epsilons are given one by one."""
        return self.with_epsilons(())

    def with_epsilons(self, epsilons: tuple[float, ...]) -> Schedule:  # noqa: ARG002
        """The schedule with these epsilons, or one for all steps; unchanged where it has none."""
        return self

    def check(self, policy: _Policy) -> None:
        """Refuse a policy that is incompatible with the schedule.

        Raises:
            PolicyError: With the keys of a zone file as its fields.
        """
        for t, epsilon in enumerate(self.epsilons, 1):
            number = is_real(epsilon) and epsilon > 0
            if not (number and epsilon <= policy.epsilon):
                raise PolicyError(
                    f"policy epsilon_t of step {t} is {epsilon}; give a positive number, at most"
                    f" epsilon = {policy.epsilon:g}.",
                    fields=("epsilon_t", "epsilon") if number else ("epsilon_t",),
                )
        if self.epsilons and len(self.epsilons) != policy.horizon:
            raise PolicyError(
                f"policy epsilon_t has {len(self.epsilons)} entries but the horizon is"
                f" {policy.horizon}; give one for each step, or none.",
                fields=("epsilon_t", "horizon"),
            )


@final
@dataclass(frozen=True, slots=True)
class Even(Schedule):
    """Every release may lose epsilon."""


@final
@dataclass(frozen=True, slots=True)
class PerStep(Schedule):
    """A smaller epsilon for each step of the horizon.

    Attributes:
        epsilons: One for each step, each at most the policy's epsilon.
    """

    epsilons: tuple[float, ...] = field()

    __repr__ = brief

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilons", _listed(self.epsilons))

    @property
    def terms(self) -> Mapping[str, Any]:
        """`epsilon_t`."""
        return {"epsilon_t": self.epsilons}

    def with_epsilons(self, epsilons: tuple[float, ...]) -> Schedule:
        """An even schedule without them."""
        return per_step(epsilons)


@final
@dataclass(frozen=True, slots=True)
class Blocks(Schedule):
    """One joint noise for each block of steps (docs/proofs/blocks-of-steps.md).

    The law is Pr[n] ~ e^(-max |n_t| / scale) over the steps of a block. Its releases lose the
    epsilon of the block all together, and a single one of them no less.

    Attributes:
        lengths: Steps of each block, in order; together the horizon.
        losses: Epsilon of each block, each at most the policy's epsilon.
    """

    noise = "block"
    noise_words = "joint over each block of steps, scale"
    assumption = (
        "Readings may hang together within a block of steps and depend on occupancy from its first"
        " step to its last price; given occupancy, those of different blocks are drawn afresh."
    )

    lengths: tuple[int, ...] = field()
    losses: tuple[float, ...] = field()
    epsilons: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole_steps = all(is_whole(length) and length >= 1 for length in self.lengths)
        if not self.lengths or not whole_steps or len(self.losses) != len(self.lengths):
            raise PolicyError(
                f"policy block_steps is {list(self.lengths)[:8]} with {len(self.losses)} entries of"
                " block_epsilon; give 1 step or more and one epsilon for each block.",
                fields=("block_steps", "block_epsilon"),
            )
        object.__setattr__(self, "lengths", tuple(int(length) for length in self.lengths))
        object.__setattr__(self, "losses", tuple(self.losses))
        object.__setattr__(self, "_ends", tuple(accumulate(self.lengths)))
        blocks = zip(self.losses, self.lengths, strict=True)
        object.__setattr__(self, "epsilons", tuple(e for e, n in blocks for _ in range(n)))

    @property
    def terms(self) -> Mapping[str, Any]:
        """`block_steps` and `block_epsilon`."""
        return {"block_steps": self.lengths, "block_epsilon": self.losses}

    @property
    def words(self) -> str:
        """How many blocks."""
        return f" {len(self.lengths)} blocks of steps"

    @property
    def caveat(self) -> str:
        """What a single release loses."""
        return "A single price can say as much as its whole block of steps may"

    def span(self, t: int) -> tuple[int, int]:
        """The block of step t."""
        k = bisect_left(self._ends, t)
        if k == len(self._ends):
            raise PolicyError(
                f"step t is {t} but the blocks end at step {self._ends[-1]}; give longer blocks."
            )
        return self._ends[k] - self.lengths[k] + 1, self._ends[k]

    def block(self, t: int) -> Mapping[str, int]:
        """By the blocks before step t."""
        first, last = self.span(t)
        return {"first": first, "length": last - first + 1}

    def variance(self, scale: Wh) -> Wh:
        """(L + 1)(L + 2)/3 scale^2 of the blocks' lengths L; `scale` is (T,), one a step."""
        steps = np.repeat(self.lengths, self.lengths)
        return cast("Wh", (steps + 1) * (steps + 2) / 3 * scale**2)

    def with_epsilons(self, epsilons: tuple[float, ...]) -> Schedule:
        """The blocks that these steps begin; an even schedule without any."""
        if not epsilons:
            return Even()
        lengths, steps = list[int](), len(epsilons)
        for length in self.lengths:
            lengths.append(min(length, steps))
            steps -= lengths[-1]
            if not steps:
                break
        starts = [sum(lengths[:k]) for k in range(len(lengths))]
        return Blocks(tuple(lengths), tuple(epsilons[start] for start in starts))

    def over(self, steps: int) -> Schedule:
        """The same blocks in every horizon; the last one may be cut off."""
        times = -(-steps // sum(self.lengths))
        horizon_blocks = Blocks(self.lengths * times, self.losses * times)
        return horizon_blocks.with_epsilons(horizon_blocks.epsilons[:steps])

    def check(self, policy: _Policy) -> None:
        """eta = 1, the rules that bound what is lost about a house, and blocks that fit."""
        if policy.eta != 1:
            raise PolicyError(
                f"policy eta is {policy.eta:g} with blocks of steps; no bound on a block's loss is"
                " proved below eta = 1: give eta = 1, or no blocks.",
                fields=("eta", "block_steps"),
            )
        rules = (policy.blocks, policy.models, policy.on_empty)
        if rules != ("block", "union", "protect_all"):
            raise PolicyError(
                f"policy blocks, models and on_empty are {', '.join(rules)} with blocks of steps;"
                " give block, union and protect_all.",
                fields=("blocks", "models", "on_empty", "block_steps"),
            )
        for k, epsilon in enumerate(self.losses, 1):
            number = is_real(epsilon) and epsilon > 0
            if not (number and epsilon <= policy.epsilon):
                raise PolicyError(
                    f"policy block_epsilon of block {k} is {epsilon}; give a positive number, at"
                    f" most epsilon = {policy.epsilon:g}.",
                    fields=("block_epsilon", "epsilon") if number else ("block_epsilon",),
                )
        if sum(self.lengths) != policy.horizon:
            raise PolicyError(
                f"policy block_steps add up to {sum(self.lengths)} but the horizon is"
                f" {policy.horizon}; give blocks that add up to it, or to a part of it that"
                " repeats, such as a day.",
                fields=("block_steps", "horizon"),
            )


def per_step(epsilons: Sequence[float]) -> Schedule:
    """The schedule with these epsilons.

    Args:
        epsilons: One for each step, or none.

    Returns:
        A `PerStep` schedule; an `Even` one where there are none.
    """
    return PerStep(tuple(epsilons)) if epsilons else Even()


def _listed(epsilons: Sequence[float]) -> tuple[float, ...]:
    if not isinstance(epsilons, (tuple, list)):
        raise PolicyError(
            f"policy epsilon_t is {epsilons!r}; give a list, one a step.", fields=("epsilon_t",)
        )
    return tuple(epsilons)


# ---- the policy


BlockRule = Literal["block", "minimal", "paper"]
ModelsRule = Literal["union", "paper"]
EmptyRule = Literal["protect_all", "publish_exact"]
PublishRule = Literal["raw", "estimate"]
EstimatorRule = Literal["model", "filter", "releases"]

MIN_SCALE = 0.1  # [Wh]; no release goes out with less noise than this
MAX_CLAMP = 2**31 - 1  # [Wh]
MAX_SCALE = 1e15  # [Wh]; beyond it the noise would outgrow 64-bit whole numbers


@dataclass(frozen=True, slots=True)
class Policy:
    """A promise, how far the consumption model is trusted, and one schedule.

    Attributes:
        epsilon: Bound on the change of log-odds by one release about one house [nats], for an
            adversary who knows the occupancy of all others. A schedule may share it out over many
            releases.
        horizon: Number of steps.
        eta: Share of every reading's law that may be anything; 1 assumes no consumption law, 0
            that the law is exact. The occupancy models are assumed at every eta.
        blocks: How correlated houses count.
        models: How several models count.
        on_empty: What to do when no house is uncertain ("publish_exact" trusts Theta absolutely).
        min_scale: The least noise of a release [Wh].
        clamp: One for each group of houses, or none: readings are cut at these Wh, below the
            contract bound; a pair of a lower and an upper end where houses export, in offset Wh.
        publish: The rate of the noisy load, or of the public's best estimate of it.
        estimator: What the public's estimate and forecast come from: the model, the model and a
            filter of the releases weighed against each other, or the releases alone.
        usual: What a house usually consumes in a step [Wh], by published figures; for `releases`.
        schedule: How epsilon is shared out over the releases, and the law of the noise.
        covariates: Public series that the estimate may use, where it follows releases.
    """

    epsilon: float
    horizon: int = 96
    eta: float = 1.0
    blocks: BlockRule = "block"
    models: ModelsRule = "union"
    on_empty: EmptyRule = "protect_all"
    min_scale: float = MIN_SCALE
    clamp: Clamp = ()
    publish: PublishRule = "raw"
    estimator: EstimatorRule = "model"
    usual: float = 0.0
    schedule: Schedule = field(default_factory=Even)
    covariates: tuple[Covariate, ...] = ()

    def __repr__(self) -> str:
        usual = Policy(self.epsilon)
        names = (f.name for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name))
        return brief(self, self.promise, names=names)

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
        alone = self.estimator == "releases"
        if not (is_real(self.usual) and (self.usual > 0 if alone else self.usual == 0)):
            raise PolicyError(
                f"policy usual is {self.usual} with estimator {self.estimator!r}; give the usual Wh"
                " of a house in a step where the estimator is 'releases', else leave it out.",
                fields=("usual", "estimator"),
            )
        object.__setattr__(self, "covariates", tuple(self.covariates))
        if len({covariate.name for covariate in self.covariates}) < len(self.covariates):
            raise PolicyError(
                "policy covariates have the same name twice; give each its own.",
                fields=("covariates",),
            )
        if self.covariates and self.estimator == "model":
            raise PolicyError(
                "policy estimator is 'model', which uses no covariate; give 'filter' or 'releases',"
                " or leave the covariates out.",
                fields=("estimator", "covariates"),
            )
        if not isinstance(self.schedule, Schedule):
            raise PolicyError(
                f"policy schedule is {self.schedule!r}; give a schedule such as Even().",
                fields=("schedule",),
            )
        self.schedule.check(self)

    def epsilon_at(self, t: int) -> float:
        """What release t may lose at most."""
        return self.schedule.epsilon_at(self.epsilon, t)

    def first(self, steps: int) -> Policy:
        """The policy of the first steps, at most the horizon."""
        horizon = min(self.horizon, steps)
        schedule = self.schedule.with_epsilons(self.schedule.epsilons[:horizon])
        return replace(self, horizon=horizon, schedule=schedule)

    @property
    def promise(self) -> str:
        """What is promised in words, such as "any price, epsilon 0.5"."""
        schedule = self.schedule
        unit = "block of steps" if schedule.lengths else "price"
        return f"any {unit}, epsilon {max(schedule.epsilons, default=self.epsilon):g}"

    @property
    def rule(self) -> str:
        """The rules in a few words, such as `eta=1 block union`."""
        clamped = " clamped" if self.clamp else ""
        return f"eta={self.eta:g} {self.blocks} {self.models}{clamped}{self.schedule.words}"


_RULES = {
    "blocks": BlockRule,
    "models": ModelsRule,
    "on_empty": EmptyRule,
    "publish": PublishRule,
    "estimator": EstimatorRule,
}


def weaker_promise(policy: Policy, models: int = 2) -> tuple[str, ...]:
    """What the policy's rules do not promise, in sentences.

    The rules set the noise. The booked loss of a release is that of the most exposed house under
    the default rules, at the noise used: more than epsilon, and possibly infinite.

    Args:
        policy: The rules.
        models: Number of models in Theta; with one, the rule for several plays no part.

    Returns:
        One sentence for each weaker rule; none for the default rules.

    >>> weaker_promise(Policy(0.5))
    ()
    """
    sentences = [_WEAKER[policy.blocks]] if policy.blocks in _WEAKER else []
    if policy.models == "paper" and models > 1:
        sentences.append(_WEAKER_MODELS)
    if policy.on_empty == "publish_exact":
        sentences.append(_WEAKER_EXACT)
    return tuple(sentences)


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


def _checked_clamp(clamp: Clamp) -> Clamp:
    if not isinstance(clamp, (tuple, list)):
        raise PolicyError(
            f"policy clamp is {clamp!r}; give a list of Wh, one a density class.", fields=("clamp",)
        )
    ends = [tuple(at) if isinstance(at, list) else at for at in clamp]
    for kind, at in enumerate(ends):
        if isinstance(at, tuple):  # in a file the lower end is at most 0, in offset Wh at least 0
            if (
                len(at) != 2
                or not all(map(is_whole, at))
                or not -MAX_CLAMP <= at[0] < at[1] <= MAX_CLAMP
                or at[1] < 1
            ):
                raise PolicyError(
                    f"policy clamp of class {kind} is {list(at)}; give a lower and an upper end in"
                    f" whole Wh, the upper one 1 to {MAX_CLAMP}.",
                    fields=("clamp",),
                )
        elif not is_whole(at) or not 1 <= at <= MAX_CLAMP:
            raise PolicyError(
                f"policy clamp of class {kind} is {at}; give whole Wh, 1 to {MAX_CLAMP}.",
                fields=("clamp",),
            )
    return tuple((int(at[0]), int(at[1])) if isinstance(at, tuple) else int(at) for at in ends)


def _of_any_window(policy: Policy) -> tuple[str, ...]:
    """What a promise about windows assumes: neither an occupancy model nor a law of readings."""
    sentences = [
        "What a home does before and after the window, and what other homes do, does not depend on"
        " what it does in the window except through published prices.",
        "That no meter of the zone reports at all does not depend on any one home.",
        "Meters of one household that are listed as homes count as several homes: their epsilons"
        " add.",
    ]
    if policy.clamp:
        sentences.append("Readings are cut at the clamp before anything is added.")
    sentences += [
        f"The covariate {covariate.name} depends on no reading of this zone (vouched for by"
        f" {covariate.vouched_by or 'no one'})."
        for covariate in policy.covariates
    ]
    return tuple(sentences)


def assumptions(
    secret: str,
    policy: Policy,
    consumption: Consumption | None,
    models: int,
    *,
    exports: bool = False,
) -> tuple[str, ...]:
    """What must hold for the promise to hold, in sentences.

    Args:
        secret: What the promise protects.
        policy: The policy that keeps it.
        consumption: The laws of a reading; None at eta = 1, where none is assumed.
        models: Number of models in Theta.
        exports: Whether houses export.

    Returns:
        The sentences.
    """
    if secret == "window":
        return _of_any_window(policy)
    sentences = [
        "Readings of different houses are independent given occupancy, published rates and public"
        " covariates.",
        (
            "One of the models of Theta is true, and an adversary who is unsure between them can"
            " learn more."
            if models > 1
            else "The occupancy model is true."
        ),
        "Whether a meter reports does not depend on occupancy.",
    ]
    if policy.eta < 1:
        share = "" if policy.eta == 0 else f" but for a share of at most {policy.eta:g}"
        sentences.append(f"Every reading follows its public law{share}.")
    if policy.eta < 1 and exports:
        sentences.append(
            "Given occupancy and the time of day, the panels of different homes generate"
            " independently: weather that they share needs eta = 1."
        )
    if secret == "step":
        sentences.append(
            "The adversary knows the occupancy of all other houses, or has seen no earlier release."
        )
    if (secret != "step" or policy.eta < 1) and not policy.schedule.lengths:
        sentences.append("Given occupancy, a reading is drawn afresh at each step (no carry-over).")
    if secret != "step":
        sentences.append("Occupancy does not react to published rates.")
    if secret == "interval":
        sentences.append(
            "Where terms change, each model is true in its time, and a smaller promise begins with"
            " the first price from readings that is published under it."
        )
    if policy.eta < 1 and consumption is not None and consumption.reacts:
        sentences.append(
            "Scales are given for demand as modelled; each step's follows the last rate."
        )
    if policy.clamp:
        sentences.append("Readings are cut at the clamp before anything is added.")
    if policy.schedule.assumption:
        sentences.append(policy.schedule.assumption)
    sentences += [
        f"The covariate {covariate.name} depends on no reading of this zone (vouched for by"
        f" {covariate.vouched_by or 'no one'}), and models and laws hold given its values."
        for covariate in policy.covariates
    ]
    sentences += weaker_promise(policy, models)
    return tuple(sentences)
