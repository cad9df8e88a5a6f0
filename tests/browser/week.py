"""A week of steps fed to a page as fast as it takes them; what is asked for is made up here.

The page's own scripts run unchanged: only the stream, the answers and the pauses are ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

STEPS = 96  # of a day

WORLD = (Path(__file__).parent / "world.js").read_text()


class Week:
    """A page in the made-up world, and what it holds."""

    def __init__(self, page: Any, path: str, ready: str) -> None:
        self._page = page
        page.add_init_script(WORLD)
        page.goto(path)
        self.play(1 / STEPS)
        page.locator(ready).wait_for()
        self._client = page.context.new_cdp_session(page)
        self._client.send("Performance.enable")

    def play(self, days: float) -> float:
        """Strokes that a day took."""
        return float(self._page.evaluate("(days) => window.days(days)", days))

    def held(self) -> dict[str, float]:
        """Nodes, listeners and heap [bytes] after the garbage is gone."""
        for _ in range(2):
            self._client.send("HeapProfiler.collectGarbage")
        found = self._client.send("Performance.getMetrics")["metrics"]
        by_name = {one["name"]: float(one["value"]) for one in found}
        return {name: by_name[name] for name in ("Nodes", "JSEventListeners", "JSHeapUsedSize")}
