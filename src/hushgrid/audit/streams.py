"""Whether two streams of noise on record are the same one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from hushgrid.audit.bounds import FALSE_ALARM, repeated, too_alike
from hushgrid.audit.findings import Check
from hushgrid.audit.ledger import Recomputed

LEAST = 3  # steps in common from which two streams are compared


def seed_reuse(streams: Sequence[Recomputed]) -> Check:
    """Compare all streams, step by step of the clock and from each one's own beginning."""
    name = "seed_reuse"
    usable = [
        made
        for made in streams
        if len(made.used) >= LEAST
        and made.scale.min() > 0
        and not made.terms.policy.schedule.adaptive
    ]
    for made in usable:
        lag, p = repeated(made.residual, made.scale)
        if p < FALSE_ALARM / len(usable) and made.terms.policy.schedule.noise == "laplace":
            place = made.used[lag].place
            return Check(
                name,
                "failed",
                f"From record {place} on, the noise of zone {made.terms.zone.id!r} is that of"
                f" {lag} releases before (p = {p:.1e}).",
                place,
            )
    if len(usable) < 2:
        return Check(name, "not_applicable", "One stream of noise: nothing to compare it with.")
    pairs = list(combinations(usable, 2))
    level, least = FALSE_ALARM / (2 * len(pairs)), 1.0
    for one, other in pairs:
        for common in (_by_clock(one, other), _by_order(one, other)):
            if len(common) < LEAST:
                continue
            i, j = np.array(common).T
            p = too_alike(
                one.residual[i] / one.scale[i],
                other.residual[j] / other.scale[j],
                1 / one.scale[i] + 1 / other.scale[j],
            )
            if p < level:
                place = other.used[int(j[0])].place
                return Check(
                    name,
                    "failed",
                    f"From record {place} on, zone {other.terms.zone.id!r} (epoch"
                    f" {other.epoch.first}) draws the noise of zone {one.terms.zone.id!r} (epoch"
                    f" {one.epoch.first}): {len(common)} steps, p = {p:.1e}.",
                    place,
                )
            least = min(least, p)
    text = f"{len(usable)} streams of noise are not alike (smallest p = {least:.2g})."
    return Check(name, "passed", text)


def _by_clock(one: Recomputed, other: Recomputed) -> list[tuple[int, int]]:
    places = {other.epoch.first + entry.step: j for j, entry in enumerate(other.used)}
    return [
        (i, places[one.epoch.first + entry.step])
        for i, entry in enumerate(one.used)
        if one.epoch.first + entry.step in places
    ]


def _by_order(one: Recomputed, other: Recomputed) -> list[tuple[int, int]]:
    return [(i, i) for i in range(min(len(one.used), len(other.used)))]
