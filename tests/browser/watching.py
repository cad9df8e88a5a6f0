"""What a page may not do, watched; and what a canvas shows."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import Image

from tests.web.brokers import until


class Watched:
    """Requests to other hosts, errors on the console, exceptions."""

    def __init__(self, context: Any, page: Any, url: str, expected: tuple[str, ...]) -> None:
        self._url, self._expected = url, expected
        self.requests: list[str] = []
        self.wrong: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.text} {message.location}")

    def judge(self) -> None:
        away = [one for one in self.requests if not one.startswith((self._url + "/", "data:"))]
        assert away == [], away
        wrong = [one for one in self.wrong if not any(words in one for words in self._expected)]
        assert wrong == [], wrong


def drawn(page: Any, figure: str, colour: str) -> bool:
    """Whether a line of this custom property's colour comes into the chart."""
    canvas = page.locator(f"{figure} canvas")
    canvas.wait_for()
    script = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    wanted = [*bytes.fromhex(page.evaluate(script, colour).removeprefix("#")), 255]
    return until(lambda: bool((_pixels(canvas) == wanted).all(axis=2).sum() > 20), 20.0)


def _pixels(canvas: Any) -> Any:
    picture = base64.b64decode(canvas.evaluate("(it) => it.toDataURL()").partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGBA"))


def scrolls_sideways(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def faults(page: Any) -> list[str]:
    """What axe-core finds by all its rules."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in found]
