"""Promises, plans and outlooks as text, JSON and a figure.

A promise has one text in plan, check, certificate, pages and API. It names the adversary for which
the bound holds and the assumptions it rests on; docs/adversary.md has a world in which a single
price shifts the odds by more than e^epsilon. An outlook is what a service promises about a zone,
what it publishes, and the expected error of the price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hushgrid.accounting.composition import Cover
from hushgrid.mechanism.policy import Policy, weaker_promise
from hushgrid.report._figures import table

if TYPE_CHECKING:
    pass


_BOUNDS = {
    "step": (
        "For an adversary who knows the occupancy of all other homes, one price shifts the odds"
        " that a home is occupied in that interval by at most a factor of {factor}"
    ),
    "interval": (
        "All {steps} prices together shift the odds that a home is occupied in any one interval by"
        " at most a factor of {factor}"
    ),
    "continued": (
        "All prices together, past and future, shift the odds that a home is occupied in any one"
        " interval by at most a factor of {factor}"
    ),
    "window": (
        "All prices ever published shift the odds between any two stories about what a home does in"
        " any {window} by at most a factor of {factor}"
    ),
}
_MORE = {
    "step": (
        "An adversary without that knowledge can learn more from one price once it has seen earlier"
        " ones; what all prices together give away is larger"
    ),
    "interval": (
        "An absence of several days is not covered: it spans many intervals, and all prices"
        " together can say more about it"
    ),
    "window": "What lasts longer than {window} is hidden less",
}


_HOME = "a second meter", "neighbours who act with you", "your bill"
_FOR_HOMES = {  # the words, and what they do not cover
    "step": (
        "Someone who thinks it equally likely that you are home or away, and knows the occupancy of"
        " all other homes, can at most come to {odds} by one price.",
        ("what several prices say together", *_HOME),
    ),
    "interval": (
        "Someone who thinks it equally likely that you are home or away can at most come to"
        " {odds}.",
        ("an absence of several days, about which all prices together can say more", *_HOME),
    ),
    "window": (
        "Pick any {window}. Someone who thinks two stories about your home in those {unit} equally"
        " likely, and knows everything else, can be brought to {odds} at most by all prices ever"
        " published. Longer absences are hidden less.",
        (
            "what you do before or after because of it (a car charged later, a house heated up"
            " again)",
            *_HOME,
        ),
    ),
}


class HomeWords(NamedTuple):
    """A promise in a householder's words; the exact sentence is `promise_sentence`.

    Attributes:
        words: What is promised; empty where it is about no home's question.
        not_covered: What is not, a phrase each.
    """

    words: str
    not_covered: tuple[str, ...]

    @property
    def content(self) -> dict[str, Any]:
        """Both under their public keys."""
        return {"words": self.words, "not_covered": list(self.not_covered)}

    @property
    def lines(self) -> list[str]:
        """Both, a line each."""
        uncovered = f"Not covered: {', '.join(self.not_covered)}."
        return [f"Promise: {self.words}", uncovered] if self.words else []


def home_words(secret: str, epsilon: float, window: str = "") -> HomeWords:
    """A promise in a householder's words, the same on all pages.

    Args:
        secret: "step", "interval" or "window".
        epsilon: Bound on the shift of the log odds.
        window: Of the secret window, its length in words, such as "24 hours".

    Returns:
        The words, and what they do not cover.

    >>> home_words("interval", 1.0).words[-25:]
    ' at most come to 73 : 27.'
    """
    words, not_covered = _FOR_HOMES.get(secret, ("", ()))
    unit = window.rpartition(" ")[2]
    unit = unit if unit.endswith("s") else f"{unit}s"
    return HomeWords(
        words.format(odds=_odds(epsilon), window=window, unit=unit), tuple(not_covered)
    )


def _odds(epsilon: float) -> str:
    """What even odds become at most, in parts of a hundred.

    >>> _odds(1.0), _odds(0.1), _odds(8.0)
    ('73 : 27', '52 : 48', '99.97 : 0.03')
    """
    less = 100 / (1 + math.exp(min(epsilon, 700.0)))
    digits = max(-math.floor(math.log10(less)), 0)
    less = round(less, digits)
    return f"{100 - less:.{digits}f} : {less:.{digits}f}"


def promise_sentence(
    policy: Policy,
    secret: str,
    epsilon: float,
    *,
    steps: int | None = None,
    continued: bool = False,
    window: str = "",
) -> str:
    """State a promise, the adversary it holds for and what it assumes.

    Args:
        policy: the policy that keeps it; its eta, horizon and schedule are used.
        secret: "step", "interval" or "window".
        epsilon: bound on the shift of the log odds.
        steps: how many releases it is about; by default those of the horizon.
        continued: whether an interval promise is about all prices ever published.
        window: of the secret window, its length in words.

    Returns:
        Plain sentences, each ended by a full stop. Beside every interval promise one says that an
        absence of several days is not covered.

    >>> promise_sentence(Policy(0.04), "interval", 1.0)[:57]
    'All 96 prices together shift the odds that a home is occu'
    """
    if steps is None:
        steps = policy.horizon
    bound = _BOUNDS[secret]
    if continued and secret == "interval":
        bound = _BOUNDS["continued"]
    values = {
        "factor": f"{factor_words(epsilon)} (e^{epsilon:g})",
        "steps": f"{steps:,}",
        "window": window,
    }
    parts = [f"{bound}, if {_conditions(policy, secret)}"]
    if secret in _MORE:
        parts.append(_MORE[secret])
    if policy.schedule.caveat and secret != "window":
        parts.append(policy.schedule.caveat)
    return " ".join([*(f"{part.format(**values)}." for part in parts), *weaker_promise(policy)])


def _conditions(policy: Policy, secret: str) -> str:
    """The assumptions of the bound, as the end of a sentence; `planning.assumptions` lists all."""
    if secret == "window":
        return (
            "neither what it does before and after nor what others do depends on it except through"
            " prices"
        )
    parts = ["the published occupancy model is true"]
    if policy.eta == 0:
        parts.append("every reading follows its published law")
    elif policy.eta < 1:
        parts.append(f"at least {100 * (1 - policy.eta):g} % of each reading's law is as published")
    if secret != "step":
        parts.append("readings of different intervals are linked only through occupancy")
    return " and ".join(parts) if len(parts) < 3 else f"{parts[0]}, {parts[1]} and {parts[2]}"


def factor_words(epsilon: float) -> str:
    """e^epsilon, rounded up to three digits, so that it is never stated too small.

    Args:
        epsilon: A loss [nats].

    Returns:
        The factor.

    >>> factor_words(0.5), factor_words(1.0), factor_words(0.1), factor_words(12.0)
    ('1.65', '2.72', '1.11', '163,000')
    """
    if epsilon > 700:
        return f"e^{epsilon:g}"
    value = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    top = math.ceil(value / unit - 1e-9) * unit
    return f"{top:.2f}".rstrip("0").rstrip(".") if top < 1000 else f"{top:,.0f}"


def covers_json(covers: Sequence[Cover]) -> list[dict[str, Any]]:
    """What a promise covers under its public keys.

    Args:
        covers: Figures of each duration.

    Returns:
        The values; a shift without a bound is None.
    """
    return [cover._asdict() | {"shift": finite_or_none(cover.shift)} for cover in covers]


def covers_lines(covers: Sequence[Cover], words: str = "") -> list[str]:
    """What a promise covers, in sentences and a table.

    Args:
        covers: Figures of each duration.
        words: The sentences; empty: all of them.

    Returns:
        Lines of text.
    """
    rows = [covers_head(), *covers_rows(covers_json(covers))]
    return [words or COVERS_WORDS, *table(rows).splitlines()]


COVERS_BRIEF = "What all prices say about a home; AUC of the best attack, 0.5 is a guess:"
COVERS_WORDS = (
    "What all prices can say about a home in a stretch of time, by someone who knows all else."
    " Longer absences are hidden less. The shift of odds is a bound, as a power of e. So is the AUC"
    " of the best attack (0.5 is a guess, 1 is certainty) on a home that uses its limit; a typical"
    " home is an example."
)


def covers_head() -> tuple[str, ...]:
    """The head of the table of `covers_rows`."""
    return ("stretch", "shift of odds", "AUC, at the limit", "AUC, typical home")


def covers_rows(covers: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Cells of each duration.

    Args:
        covers: As `covers_json` has them.

    Returns:
        A row for each; figures are rounded up.
    """

    def up(value: float | None, digits: int) -> str:
        unit = 10**digits
        return "-" if value is None else f"{math.ceil(value * unit - 1e-6) / unit:.{digits}f}"

    return [
        (
            _STRETCHES[cover["duration"]],
            up(cover["shift"], 2),
            up(cover["auc_limit"], 3),
            up(cover["auc_typical"], 3),
        )
        for cover in covers
    ]


_STRETCHES = {
    "PT15M": "15 minutes",
    "P1D": "a day",
    "P7D": "a week",
    "P14D": "two weeks",
    "P30D": "a month",
}


def finite_or_none(value: float | None) -> float | None:
    """The value, or None where it is None, infinite or not a number.

    Args:
        value: A number or None.

    Returns:
        The finite number or None.
    """
    return value if value is not None and math.isfinite(value) else None
