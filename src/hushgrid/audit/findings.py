"""What one check found, and how several findings of the same check add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

CheckStatus = Literal["passed", "failed", "noted", "not_checked", "not_applicable"]

# a finding further left outweighs one further right
_WEIGHT: tuple[CheckStatus, ...] = ("failed", "noted", "passed", "not_checked", "not_applicable")

CHECKS = {
    "noise_scale": "The noise is as wide as stated, and no test certifies more than is promised.",
    "data_dependent_scale": "The scale of the noise depends on nothing but public models.",
    "float_noise": "Noise is a whole number of Wh and the rate follows from the noisy load.",
    "post_processing": "Estimates, forecasts and energy put back follow from public figures.",
    "republication": "A step that is shown again is the same, never drawn anew.",
    "protected_set": "The scale covers every house whose occupancy the public cannot know.",
    "budget": "All releases together spend no more than was set.",
    "seed_reuse": "No two streams of noise are the same.",
    "chain": "Every record follows from the one before, is signed, and nothing is missing.",
    "terms": "Every release was made under the terms given.",
    "schedule": "The scales are those committed to before the first reading.",
    "roster": "The meters are those of the epoch.",
    "steps": "Steps are in order; those without a release are named.",
    "fifteen_fifteen": "At least 15 customers, none above 15 % of the expected load.",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check: `first_bad` is the record (in a ledger or trace) or step that fails first."""

    id: str
    status: CheckStatus
    text: str
    first_bad: int | None = None


def merged(found: Iterable[Check]) -> tuple[Check, ...]:
    """One check for each id, in the order of `CHECKS`: the weightiest finding, all their words."""
    by_id: dict[str, list[Check]] = {}
    for check in found:
        by_id.setdefault(check.id, []).append(check)
    return tuple(_one(by_id[name]) for name in CHECKS if name in by_id)


def _one(several: list[Check]) -> Check:
    ranked = sorted(several, key=lambda check: _WEIGHT.index(check.status))
    words = dict.fromkeys(check.text for check in ranked if check.status == ranked[0].status)
    also = [
        check.text
        for check in ranked
        if check.status != ranked[0].status and check.status != "not_applicable"
    ]
    return replace(ranked[0], text=" ".join(dict.fromkeys([*words, *also])))


def verdict(checks: Iterable[Check]) -> str:
    """failed, incomplete (nothing failed, but something could not be checked) or passed."""
    found = {check.status for check in checks}
    if "failed" in found:
        return "failed"
    return "incomplete" if "not_checked" in found else "passed"
