"""A meter store in the plainest words: one dictionary, one reading at a time, no arrays."""

from __future__ import annotations

Reading = tuple[int, int, int, int]  # house, start, duration, wh


class MeterOracle:
    def __init__(self, houses: int, interval: int) -> None:
        self.houses, self.interval = houses, interval
        self.kept: dict[tuple[int, int, int], int] = {}
        self.closed_end = -1
        self.purged: set[int] = set()

    def put(self, readings: list[Reading], marked: list[bool] | None = None) -> tuple[int, ...]:
        kinds = ("accepted", "duplicate", "conflicting", "late", "malformed", "damaged", "marked")
        found = dict.fromkeys(kinds, 0)
        for reading, mark in zip(readings, marked or [False] * len(readings), strict=True):
            kind = self._one(*reading)
            found[kind] += 1
            found["marked"] += kind == "accepted" and mark
        return tuple(found.values())

    def _one(self, house: int, start: int, duration: int, wh: int) -> str:
        if not 0 <= house < self.houses or duration <= 0 or start < 0:
            return "malformed"
        if self.interval % duration or start % duration:
            return "malformed"
        opens = start // self.interval * self.interval
        if opens < self.closed_end:
            return "late"
        of_house = {
            (s, d): value
            for (h, s, d), value in self.kept.items()
            if h == house and opens <= s < opens + self.interval
        }
        if (start, duration) in of_house:
            return "duplicate" if of_house[start, duration] == wh else "conflicting"
        if any(d != duration for _, d in of_house):
            if duration != self.interval or sum(d for _, d in of_house) == self.interval:
                return "conflicting"
            for s, d in of_house:
                del self.kept[house, s, d]
        self.kept[house, start, duration] = wh
        return "accepted"

    def get(self, opens: int) -> list[int | None]:
        found: list[int | None] = []
        for house in range(self.houses):
            pieces = {
                (s, d): wh
                for (h, s, d), wh in self.kept.items()
                if h == house and opens <= s < opens + self.interval
            }
            covered = {second for s, d in pieces for second in range(s, s + d)}
            total = min(max(sum(pieces.values()), -(2**63)), 2**63 - 1)
            found.append(total if len(covered) == self.interval else None)
        return found

    def close(self, opens: int) -> None:
        self.closed_end = max(self.closed_end, opens + self.interval)

    def open_intervals(self) -> tuple[int, ...]:
        starts = {s // self.interval * self.interval for _, s, _ in self.kept}
        return tuple(sorted(s for s in starts if s >= self.closed_end))

    def purge(self, before: int) -> None:
        ended = {
            opens
            for opens in range(0, max(self.closed_end, 0), self.interval)
            if opens + self.interval <= before
        }
        self.purged |= ended
        self.kept = {
            key: wh
            for key, wh in self.kept.items()
            if key[1] // self.interval * self.interval not in ended
        }
