"""The promise of a zone in one text, the same for plan, check, certificate, pages and API.

It names the adversary the bound holds for and the assumptions it rests on. docs/adversary.md shows
a world in which a single price shifts the odds by more than e^epsilon.
"""

from __future__ import annotations

import math

from hushgrid.policy import Policy, weaker_promise

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
        "All prices together, of this epoch and of those before and after it under the same terms,"
        " shift the odds that a home is occupied in any one interval by at most a factor of"
        " {factor}"
    ),
    "trajectory": (
        "All {steps} prices together shift the odds between any two courses of a home's occupancy"
        " by at most a factor of {factor}"
    ),
    "window": (
        "All prices together shift the odds between any two courses of a home's occupancy that"
        " differ only within {steps} intervals in a row by at most a factor of {factor}"
    ),
}
_APPROXIMATE = (
    "For any two courses of a home's occupancy and any set of outcomes of all {steps} prices, the"
    " probability under one course is at most {factor} times the probability under the other plus"
    " {delta:g}"
)
_MORE = {
    "step": (
        "An adversary without that knowledge can learn more from one price once it has seen earlier"
        " ones; what all prices together give away is larger"
    ),
    "approximate": (
        "The odds can shift by more than that factor, with a probability that can exceed {delta:g}"
    ),
}


def promise_sentence(
    policy: Policy,
    secret: str,
    epsilon: float,
    *,
    delta: float = 0.0,
    steps: int | None = None,
    continued: bool = False,
) -> str:
    """State a promise, the adversary it holds for and what it assumes.

    Args:
        policy: the policy that keeps it; its eta, horizon and schedule are used.
        secret: "step", "interval", "trajectory" or "window".
        epsilon: bound on the shift of the log odds.
        delta: of a trajectory promise; 0 for a pure one.
        steps: how many releases it is about; by default those of the window, or of the horizon.
        continued: whether an interval promise counts the epochs before and after.

    Returns:
        One to three plain sentences, each ended by a full stop.

    >>> promise_sentence(Policy(0.04), "interval", 1.0)[:57]
    'All 96 prices together shift the odds that a home is occu'
    """
    if steps is None:
        steps = policy.schedule.covers(policy.horizon)
    bound = _APPROXIMATE if delta else _BOUNDS[secret]
    if continued and secret == "interval":
        bound = _BOUNDS["continued"]
    values = {
        "factor": f"{factor(epsilon)} (e^{epsilon:g})",
        "steps": f"{steps:,}",
        "delta": delta,
    }
    said = [f"{bound}, if {_conditions(policy, secret)}"]
    if secret == "step":
        said.append(_MORE["step"])
    if delta:
        said.append(_MORE["approximate"])
    if policy.schedule.caveat:
        said.append(policy.schedule.caveat)
    return " ".join([*(f"{one.format(**values)}." for one in said), *weaker_promise(policy)])


def _conditions(policy: Policy, secret: str) -> str:
    """What the bound rests on, as the end of a sentence; `planning.assumptions` lists all of it."""
    parts = ["the published occupancy model is true"]
    if policy.eta == 0:
        parts.append("every reading follows its published law")
    elif policy.eta < 1:
        parts.append(f"at least {100 * (1 - policy.eta):g} % of each reading's law is as published")
    if secret != "step":
        parts.append("readings of different intervals are linked only through occupancy")
    return " and ".join(parts) if len(parts) < 3 else f"{parts[0]}, {parts[1]} and {parts[2]}"


def factor(epsilon: float) -> str:
    """e^epsilon, rounded up to three digits, so that it is never stated too small.

    >>> factor(0.5), factor(1.0), factor(0.1), factor(12.0)
    ('1.65', '2.72', '1.11', '163,000')
    """
    if epsilon > 700:
        return f"e^{epsilon:g}"
    value = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    top = math.ceil(value / unit - 1e-9) * unit
    return f"{top:.2f}".rstrip("0").rstrip(".") if top < 1000 else f"{top:,.0f}"
