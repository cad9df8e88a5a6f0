"""Whether noise on record was used before: within a zone, or in another week or zone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from hushgrid.audit.bounds import FALSE_ALARM, Check, p_repeated_noise, p_similar_noise
from hushgrid.audit.recompute import Recomputed

LEAST = 3  # steps in common from which two streams are compared


def seed_reuse(streams: Sequence[Recomputed]) -> Check:
    """Whether two streams of noise on record are the same, by step of the clock or by position.

    Args:
        streams: The recomputed weeks.

    Returns:
        The check.
    """
    name = "seed_reuse"
    usable = [
        stream for stream in streams if len(stream.releases) >= LEAST and stream.scale.min() > 0
    ]
    for stream in usable:
        lag, p = p_repeated_noise(stream.residual, stream.scale, block=stream.block)
        if p < FALSE_ALARM / len(usable):
            place = stream.releases[lag].place
            text = (
                f"From record {place} on, the noise of zone {stream.terms.zone.id!r} is that of"
                f" {lag} releases before (p = {p:.1e})."
            )
            return Check(name, "failed", text, place)
    if len(usable) < 2:
        return Check(name, "not_applicable", "One stream of noise: nothing to compare it with.")
    pairs = list(combinations(usable, 2))
    level, least = FALSE_ALARM / (2 * len(pairs)), 1.0
    for first, second in pairs:
        for common in (_by_clock(first, second), _by_order(first, second)):
            if len(common) < LEAST:
                continue
            i, j = np.array(common).T
            block = None if first.block is None else first.block[i]
            if block is None and second.block is not None:
                block = second.block[j]
            p = p_similar_noise(
                first.residual[i] / first.scale[i],
                second.residual[j] / second.scale[j],
                1 / first.scale[i] + 1 / second.scale[j],
                block,
            )
            if p < level:
                place = second.releases[int(j[0])].place
                text = (
                    f"From record {place} on, zone {second.terms.zone.id!r} (week"
                    f" {second.week.first}) draws the noise of zone {first.terms.zone.id!r} (week"
                    f" {first.week.first}): {len(common)} steps, p = {p:.1e}."
                )
                return Check(name, "failed", text, place)
            least = min(least, p)
    text = f"{len(usable)} streams of noise differ (smallest p = {least:.2g})."
    return Check(name, "passed", text)


def _by_clock(first: Recomputed, second: Recomputed) -> list[tuple[int, int]]:
    places = {second.week.first + entry.step: j for j, entry in enumerate(second.releases)}
    return [
        (i, places[first.week.first + entry.step])
        for i, entry in enumerate(first.releases)
        if first.week.first + entry.step in places
    ]


def _by_order(first: Recomputed, second: Recomputed) -> list[tuple[int, int]]:
    return [(i, i) for i in range(min(len(first.releases), len(second.releases)))]
