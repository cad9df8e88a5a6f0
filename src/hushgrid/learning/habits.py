"""Occupancy chains by time of day: from time-use surveys, or assumed; priors for fits.

Sleep looks like an empty home, so a meter indicates activity, not presence. Three states model it:
away and quiet at home share one law, active has its own; only the chain distinguishes a quiet night
from an empty noon. Slots are the steps of a weekday, then those of a weekend day.

A survey gives probabilities for each of its slots: `come` (away to home, often p01) and `leave`
(p10) lead from its slot to the next. Here moves belong to the slot they arrive in. A probability of
0 or 1 in a finite survey is a sampling zero; smoothing with a stated pseudo-count removes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike

from hushgrid._numbers import Floats
from hushgrid.errors import ModelError
from hushgrid.model.occupancy import Calendar, OccupancyModel, possible_states

DAY = 86_400  # [s]
AWAY, QUIET, ACTIVE = 0, 1, 2
ARRIVE_ACTIVE = 0.8  # share of comings and goings between away and active, not quiet
USES = 0.75  # share of waking time at home in which more is used than standby; assumed
SPELL = 1.5  # [h] such a spell lasts
_LEAST = 1e-4  # no move is impossible


@dataclass(frozen=True, slots=True, eq=False)
class Habits:
    """A Markov chain of occupancy over a weekday and a weekend day.

    Attributes:
        transition: (2 * steps of a day, K, K) moves into every slot, rows from the old state.
        share: (2 * steps, K) probability of each state; state 0 is away.
        source: Where they come from.
    """

    transition: Floats
    share: Floats
    source: str

    def __post_init__(self) -> None:
        k = self.share.shape[-1]
        if self.transition.shape != (len(self.share), k, k):
            raise ModelError(
                f"habits have moves of shape {self.transition.shape} and shares of shape"
                f" {self.share.shape}; give (slots, states, states) and (slots, states)."
            )
        rows = self.transition.sum(axis=-1)
        if not ((self.transition >= 0).all() and np.allclose(rows, 1, atol=1e-9)):
            raise ModelError(f"habits of {self.source} have a row that is no law; fix the chain.")

    @property
    def steps(self) -> int:
        """Steps of a day."""
        return len(self.share) // 2

    @property
    def home(self) -> Floats:
        """(slots,) probability of being at home."""
        return np.asarray(1 - self.share[:, AWAY])

    def moves(self, days: float) -> Floats:
        """(slots, K, K) pseudo-counts of moves, worth `days` days of these habits."""
        before = np.stack([np.roll(part, 1, axis=0) for part in np.split(self.share, 2)])
        counts = days * before.reshape(self.share.shape)[:, :, None] * self.transition
        return np.asarray(counts + 0.1 / self.share.shape[1])


def week_calendar(steps: int) -> Calendar:
    """Slots of a week from Monday: five weekdays, two weekend days.

    Args:
        steps: Steps of a day.

    Returns:
        The calendar.
    """
    return Calendar.week(weekday=list(range(steps)), weekend=list(range(steps, 2 * steps)))


def stationary(transition: Floats) -> Floats:
    """Periodic distribution of a day repeated for ever, separately for weekday and weekend.

    Args:
        transition: (slots, K, K) moves.

    Returns:
        (slots, K) probabilities.
    """
    parts = []
    for day in np.split(transition, 2):
        share = np.full(day.shape[-1], 1 / day.shape[-1])
        for _ in range(200):
            before = share
            for a in day:
                share = share @ a
            if np.abs(share - before).max() < 1e-12:
                break
        shares = []
        for a in day:
            share = share @ a
            shares.append(share)
        parts.append(np.array(shares))
    return np.concatenate(parts)


def two_state(leave: ArrayLike, come: ArrayLike, source: str) -> Habits:
    """A chain of away and at home.

    Args:
        leave: (slots,) probabilities of leaving.
        come: (slots,) probabilities of arriving.
        source: Where they come from.

    Returns:
        The chain.
    """
    out, back = np.asarray(leave, np.float64), np.asarray(come, np.float64)
    rows = np.stack([np.stack([1 - back, back], -1), np.stack([out, 1 - out], -1)], 1)
    return Habits(rows, stationary(rows), source)


def three_state(present: Habits, awake: Habits, *, seconds: int, uses: float = USES) -> Habits:
    """Away, quiet, active from the chain of being at home and the chain of being awake there.

    Active means using more than an empty home does: a person awake does so for a share `uses` of
    the time, in spells of `SPELL`. `ARRIVE_ACTIVE` of arrivals and departures are between away and
    active. Quiet turns to active at the rate that keeps these shares.

    Args:
        present: Two-state chain of being at home.
        awake: Two-state chain of being awake at home.
        seconds: Length of a step [s].
        uses: Share of waking time at home with use above standby.

    Returns:
        The chain.

    Raises:
        ModelError: The chains differ in their slots, or have other than two states.
    """
    if present.share.shape != awake.share.shape or present.share.shape[1] != 2:
        raise ModelError(
            "present and awake habits differ in slots or states; give two states and equal slots."
        )
    after = np.clip(present.home, 0.02, 0.98), uses * awake.home
    p, e = _before(after[0]), _before(after[1])
    p, e = p, np.clip(e, 0.01, p - 0.01)
    come, leave = present.transition[:, 0, 1], present.transition[:, 1, 0]
    quieten = awake.transition[:, 1, 0] + (1 - uses) * (1 - np.exp(-seconds / 3600 / SPELL))
    a = np.zeros((len(p), 3, 3))
    a[:, AWAY, ACTIVE], a[:, AWAY, QUIET] = come * ARRIVE_ACTIVE, come * (1 - ARRIVE_ACTIVE)
    a[:, ACTIVE, AWAY] = np.minimum(p * leave * ARRIVE_ACTIVE / e, 0.9)
    a[:, ACTIVE, QUIET] = quieten
    a[:, QUIET, AWAY] = np.minimum(p * leave * (1 - ARRIVE_ACTIVE) / (p - e), 0.9)
    staying = e * (1 - np.minimum(a[:, ACTIVE].sum(axis=1), 0.95))
    needed = after[1] - staying - (1 - p) * a[:, AWAY, ACTIVE]
    a[:, QUIET, ACTIVE] = np.clip(needed / (p - e), 0.005, 0.9)
    for k in range(3):
        away = np.maximum(a[:, k], _LEAST)
        away[:, k] = 0.0
        away *= np.minimum(1.0, 0.95 / away.sum(axis=1))[:, None]
        a[:, k] = away
        a[:, k, k] = 1 - away.sum(axis=1)
    return Habits(a, stationary(a), present.source)


def _before(share: Floats) -> Floats:
    return np.concatenate([np.roll(part, 1) for part in np.split(share, 2)])


# Assumed, not measured: probabilities by the hour of being at home, and awake there.
_HOME = [0.97] * 7 + [0.88, 0.7, 0.55, 0.5, 0.5, 0.52, 0.5, 0.5, 0.55, 0.62, 0.72]
_HOME += [0.8, 0.85, 0.87, 0.9, 0.93, 0.96]
_AWAKE = [0.15, 0.08, 0.05, 0.05, 0.06, 0.15, 0.4, 0.65, 0.65, 0.52, 0.48, 0.48, 0.5, 0.48, 0.48]
_AWAKE += [0.52, 0.6, 0.7, 0.78, 0.83, 0.85, 0.8, 0.6, 0.35]
_STAY = (3.0, 2.0)  # [h] after which presence and waking are forgotten


def assumed_habits(seconds: int) -> Habits:
    """Assumed habits: round numbers for a working household, not measured.

    >>> assumed_habits(1800).share.shape
    (96, 3)

    Args:
        seconds: Length of a step [s].

    Returns:
        The three-state chain.
    """
    awake = _tracking(_AWAKE, 0.65, _STAY[1], seconds)
    return three_state(assumed_presence(seconds), awake, seconds=seconds)


def assumed_presence(seconds: int) -> Habits:
    """The assumed chain of away and at home.

    Args:
        seconds: Length of a step [s].

    Returns:
        The two-state chain.
    """
    return _tracking(_HOME, 0.7, _STAY[0], seconds)


def _tracking(level: list[float], lift: float, hold: float, seconds: int) -> Habits:
    """A chain that forgets within `hold` [h] and tends to the level of the hour."""
    if not 1 <= seconds <= DAY or DAY % seconds:
        raise ModelError(f"a step is {seconds} s; give one that divides a day.")
    hours = (np.arange(DAY // seconds) * seconds / 3600).astype(int)
    mix = 1 - np.exp(-seconds / 3600 / hold)
    weekday = np.array(level)[hours]
    weekend = np.maximum(weekday, lift * (hours >= 8))
    goal = np.concatenate([weekday, weekend])
    return two_state((1 - goal) * mix, goal * mix, "assumed habits, not measured")


COLUMNS = ("n_residents", "daytype", "definition", "step_min", "slot", "p01", "p10")
PSEUDO_COUNT = 0.5  # added to each side of a chance
RESPONDENTS = 100.0  # taken for the number of diaries behind a chance where no number is given
_DAYS = ("wd", "we")


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Probabilities of a time-use survey.

    Attributes:
        chances: (leave, come), each (2, survey slots) with rows weekday and weekend, by (source,
            residents, definition, step_min).
    """

    chances: Mapping[tuple[str, int, str, int], tuple[Floats, Floats]]

    @property
    def residents(self) -> tuple[int, ...]:
        """Numbers of residents with chains."""
        return tuple(sorted({key[1] for key in self.chances}))


def survey_of(columns: Mapping[str, ArrayLike]) -> Survey:
    """A survey from columns; every slot of the day must be there once for both day types.

    Args:
        columns: n_residents, daytype (wd, we), definition, step_min, slot, p01, p10; optionally
            source.

    Returns:
        The survey.

    Raises:
        ModelError: A column or a number is missing, a value is out of range, or a slot repeats.
    """
    lacking = [name for name in COLUMNS if name not in columns]
    if lacking:
        raise ModelError(f"the survey has no column {lacking[0]!r}; give {', '.join(COLUMNS)}.")
    data = {name: np.asarray(values) for name, values in columns.items()}
    rows = len(data["slot"])
    source = data.get("source", np.full(rows, "survey"))
    tables: dict[tuple[str, int, str, int], dict[tuple[str, int], tuple[float, float]]] = {}
    for i in range(rows):
        try:
            key = (
                str(source[i]),
                int(data["n_residents"][i]),
                str(data["definition"][i]),
                int(data["step_min"][i]),
            )
            at = (str(data["daytype"][i]), int(data["slot"][i]))
            chance = (float(data["p10"][i]), float(data["p01"][i]))
        except (TypeError, ValueError):
            raise ModelError(f"row {i + 1} of the survey lacks a number; fill it in.") from None
        if not all(0 <= p <= 1 for p in chance):
            raise ModelError(f"row {i + 1} of the survey has a chance outside 0..1; fix it.")
        if at in tables.setdefault(key, {}):
            raise ModelError(f"row {i + 1} of the survey repeats slot {at[1]} of {at[0]}.")
        tables[key][at] = chance
    if not tables:
        raise ModelError("the survey has no rows; give chances for every slot of a day.")
    return Survey({key: _days(key, chances) for key, chances in tables.items()})


def _days(
    key: tuple[str, int, str, int], chances: Mapping[tuple[str, int], tuple[float, float]]
) -> tuple[Floats, Floats]:
    steps = 1440 // key[3] if key[3] > 0 and 1440 % key[3] == 0 else 0
    places = [[(day, slot) for slot in range(steps)] for day in _DAYS]
    if not steps or {at for row in places for at in row} != set(chances):
        raise ModelError(
            f"the survey of {key[1]} residents, {key[2]}, has {len(chances)} rows of {key[3]}"
            " minutes; give every slot of a day for daytype wd and we."
        )
    leave = np.array([[chances[at][0] for at in row] for row in places])
    come = np.array([[chances[at][1] for at in row] for row in places])
    return leave, come


def survey_chain(
    survey: Survey,
    residents: int,
    *,
    seconds: int,
    definition: str = "present",
    source: str | None = None,
    pseudo_count: float = PSEUDO_COUNT,
    respondents: float = RESPONDENTS,
) -> Habits:
    """The two-state chain of a number of residents.

    Args:
        survey: The survey.
        residents: Number of residents.
        seconds: Length of a step [s].
        definition: "present" or "active".
        source: Source of the survey; None for any.
        pseudo_count: Added to each side of a probability; 0 keeps sampling zeros.
        respondents: Number of diaries behind a probability.

    Returns:
        The chain.

    Raises:
        ModelError: The survey has no such chain, or the step does not divide a day.
    """
    fitting = [
        key
        for key in survey.chances
        if key[1] == residents and key[2] == definition and source in (None, key[0])
    ]
    if not fitting:
        raise ModelError(
            f"the survey has no chain of {residents} residents, {definition}; there are residents"
            f" {survey.residents}."
        )
    if not 1 <= seconds <= DAY or DAY % seconds:
        raise ModelError(f"a step is {seconds} s; give one that divides a day.")
    # the longest survey step that divides the step needs no root of a matrix
    key = max(fitting, key=lambda k: (seconds % (60 * k[3]) == 0, k[3]))
    leave, come = (smooth(p, pseudo_count, respondents) for p in survey.chances[key])
    parts = [
        _resampled(out, back, 60 * key[3], seconds) for out, back in zip(leave, come, strict=True)
    ]
    transition = np.concatenate(parts)
    origin = f"{key[0]}, {residents} residents, {definition}, pseudo-count {pseudo_count:g}"
    return Habits(transition, stationary(transition), origin)


def smooth(chance: Floats, pseudo_count: float, respondents: float) -> Floats:
    """Probabilities of `respondents` diaries with `pseudo_count` added to each side.

    >>> smooth(np.array([0.0, 0.5]), 0.5, 99.0)
    array([0.005, 0.5  ])

    Args:
        chance: Probabilities.
        pseudo_count: Pseudo-count of each side.
        respondents: Number of diaries.

    Returns:
        Smoothed probabilities.
    """
    return np.asarray((chance * respondents + pseudo_count) / (respondents + 2 * pseudo_count))


def _resampled(leave: Floats, come: Floats, slot_s: int, seconds: int) -> Floats:
    """(steps, 2, 2) moves into each step: the survey's moves over the step before it."""
    steps = DAY // seconds
    moves = np.empty((steps, 2, 2))
    for s in range(steps):
        begin = (s - 1) % steps * seconds  # what happens between the two starts
        a, at = np.eye(2), begin
        while at < begin + seconds:
            slot = at // slot_s
            until = min((slot + 1) * slot_s, begin + seconds)
            a = a @ _part(leave[slot], come[slot], (until - at) / slot_s)
            at = until
        moves[s] = a / a.sum(axis=1, keepdims=True)
    return moves


def _part(leave: float, come: float, share: float) -> Floats:
    """The chain of a part of a slot: the matrix to a power between 0 and 1."""
    total = leave + come
    if share < 1:
        remaining = max(1 - total, 1e-9) ** share  # two states that swap at once have no root
        factor = (1 - remaining) / total if total > 0 else 0.0
        leave, come = leave * factor, come * factor
    return np.array([[1 - come, come], [leave, 1 - leave]])


def survey_habits(survey: Survey, residents: int, *, seconds: int) -> Habits:
    """Away, quiet and active where the survey has active occupancy, else away and at home.

    Without presence in the survey, presence is assumed.

    Args:
        survey: The survey.
        residents: Number of residents.
        seconds: Length of a step [s].

    Returns:
        The chain.
    """
    definitions = {key[2] for key in survey.chances if key[1] == residents}
    if "active" not in definitions:
        return survey_chain(survey, residents, seconds=seconds)
    awake = survey_chain(survey, residents, seconds=seconds, definition="active")
    if "present" not in definitions:
        habits = three_state(assumed_presence(seconds), awake, seconds=seconds)
        return replace(habits, source=f"{awake.source}; presence assumed, not measured")
    present = survey_chain(survey, residents, seconds=seconds)
    habits = three_state(present, awake, seconds=seconds)
    return replace(habits, source=present.source + ", with active")


def mean_habits(survey: Survey, residents: Sequence[int], *, seconds: int) -> Habits:
    """The habits of a survey, averaged over numbers of residents.

    Args:
        survey: The survey.
        residents: Numbers of residents.
        seconds: Length of a step [s].

    Returns:
        The chain.
    """
    priors = [survey_habits(survey, number, seconds=seconds) for number in residents]
    if len(priors) == 1:
        return priors[0]
    transition = np.mean([prior.transition for prior in priors], axis=0)
    source = "; ".join(prior.source for prior in priors)
    return Habits(transition, stationary(transition), f"mean of {source}")


def survey_models(
    survey: Survey,
    residents: Sequence[int],
    *,
    seconds: int,
    pseudo_count: float = PSEUDO_COUNT,
    definition: str = "present",
) -> tuple[OccupancyModel, ...]:
    """Theta of houses with known numbers of residents, one model per source.

    Args:
        survey: The survey.
        residents: Number of residents of each house.
        seconds: Length of a step [s].
        pseudo_count: Pseudo-count of smoothing.
        definition: "present" or "active".

    Returns:
        The models.

    Raises:
        ModelError: No source has chains of all these numbers.
    """
    chains_of = survey_chains(
        survey, residents, seconds=seconds, pseudo_count=pseudo_count, definition=definition
    )
    chain_of = np.searchsorted(sorted(set(residents)), residents)
    return tuple(
        model_of(list(chains.values()), chain_of, f"{source} {definition}")
        for source, chains in chains_of.items()
    )


def survey_chains(
    survey: Survey,
    residents: Iterable[int],
    *,
    seconds: int,
    pseudo_count: float = PSEUDO_COUNT,
    definition: str = "present",
) -> dict[str, dict[int, Habits]]:
    """Two-state chains by source and number of residents.

    Args:
        survey: The survey.
        residents: Numbers of residents.
        seconds: Length of a step [s].
        pseudo_count: Pseudo-count of smoothing.
        definition: "present" or "active".

    Returns:
        The chains of every source that has all these numbers, fewest residents first.

    Raises:
        ModelError: No source has chains of all these numbers.
    """
    kinds = sorted(set(residents))
    sources = [
        source
        for source in dict.fromkeys(key[0] for key in survey.chances)
        if all((source, n, definition) in {key[:3] for key in survey.chances} for n in kinds)
    ]
    if not sources:
        raise ModelError(
            f"no source of the survey has chains of {kinds} residents, {definition}; there are"
            f" residents {survey.residents}."
        )
    return {
        source: {
            n: survey_chain(
                survey,
                n,
                seconds=seconds,
                definition=definition,
                source=source,
                pseudo_count=pseudo_count,
            )
            for n in kinds
        }
        for source in sources
    }


def model_of(chains: Sequence[Habits], chain_of: ArrayLike, name: str) -> OccupancyModel:
    """An occupancy model of houses that follow two-state chains by time of the week.

    Args:
        chains: The chains.
        chain_of: (houses,) chain of each house.
        name: Name of the model.

    Returns:
        The model.
    """
    steps = chains[0].steps
    initial = np.array([chain.share[0] for chain in chains])
    initial /= initial.sum(axis=1, keepdims=True)
    return OccupancyModel.factored(
        initial,
        np.stack([chain.transition for chain in chains], axis=1),
        calendar=week_calendar(steps),
        chain_of=chain_of,
        name=name,
    )


def slots_unprotected(models: Sequence[OccupancyModel]) -> int:
    """Steps of a week in which at least one house's occupancy is certain under all models.

    Args:
        models: Theta; independent houses.

    Returns:
        The number of steps.

    Raises:
        ModelError: A model has blocks.
    """
    week = len(models[0].calendar.slots)
    n = models[0].n_houses
    can = np.zeros((week, n, 2), bool)
    for model in models:
        for t, states in enumerate(islice(possible_states(model), week)):
            for piece, possible in zip(model.chains, states, strict=True):
                if piece.size != 1:
                    raise ModelError(f"model {model.name} has blocks; give independent houses.")
                can[t, piece.members[:, 0]] |= possible[piece.chain_of]
    sure = ~(can[:, :, 0] & can[:, :, 1])
    return int(np.count_nonzero(sure.sum(axis=1)))
