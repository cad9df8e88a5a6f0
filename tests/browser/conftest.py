"""A browser, and a demo that runs fast: one of each for all tests of a file.

Not for the session: Playwright's event loop goes on in this thread until the browser is closed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hushgrid.curator.clock import FastClock
from hushgrid.files.settings import Http
from hushgrid.operate import serve
from hushgrid.stores.clients import Client, ClientStore, expand_scopes, hash_secret
from tests.browser.watching import Watched
from tests.curator.worlds import START, deployment, service
from tests.services import free_port
from tests.web.brokers import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
SPEED = 600.0  # times as fast as life: a quarter hour in 1.5 s
PATIENCE = 120.0  # [s] for a demo to start on a machine with other things to do


class Demo:
    """`hushgrid demo` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "demo.log"
        command = "from hushgrid.cli import main; main()"
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, "demo", "--port", "0", "--speed", str(SPEED)],
                stdout=stream,
                stderr=stream,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
            )
        self.url = self._said(r"(http://127\.0\.0\.1:\d+)")
        self.client, self.secret = "operator", self._said(r"secret (\S+)")

    def _said(self, pattern: str) -> str:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.log.read_text()


@pytest.fixture(scope="module")
def demo(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    del browser  # without one there is nothing to show
    running = Demo(tmp_path_factory.mktemp("demo"))
    assert until(lambda: priced(running.url, "elm-street"), PATIENCE)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    where = shutil.which("chromium")
    if where is None:
        pytest.skip("chromium is not installed: pages are not tried in a browser")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)

    with sync_playwright() as playwright:
        # root has no sandbox; our own pages are all it ever loads
        made = playwright.chromium.launch(executable_path=where, args=["--no-sandbox"])
        yield made
        made.close()


def priced(url: str, *zones: str) -> bool:
    """Whether every zone has a price: before that a page asks in vain, and the console says so."""
    try:
        return all(httpx.get(f"{url}/v1/price?zone={zone}").is_success for zone in zones)
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def many(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service with two zones, in a thread, on a fast clock."""
    del browser
    folder = tmp_path_factory.mktemp("many")
    made = deployment(folder, service(), service("oak-lane", 3), http=Http(port=free_port()))
    with ClientStore(made.client_store) as store:
        store.add(Client("operator", expand_scopes(["operator"]), hash_secret("a secret"), 0))
    stop = threading.Event()
    running = threading.Thread(
        target=serve, args=(made,), kwargs={"clock": FastClock(START, SPEED), "stop": stop}
    )
    running.start()
    assert made.http is not None
    url = f"http://127.0.0.1:{made.http.port}"
    assert until(lambda: priced(url, "elm-street", "oak-lane"), PATIENCE)
    yield url
    stop.set()
    running.join(60)
    assert not running.is_alive()


@pytest.fixture
def page_of(browser: Browser, demo: Demo) -> Iterator[Callable[..., Page]]:
    """Open pages; afterwards nothing may have gone wrong in any of them."""
    opened: list[tuple[Any, Watched]] = []

    def make(
        width: int = 1440, expected: tuple[str, ...] = (), url: str = demo.url, **options: Any
    ) -> Page:
        size = {"width": width, "height": 800}
        context = browser.new_context(viewport=size, base_url=url, **options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        opened.append((context, Watched(context, page, url, expected)))
        return page

    yield make
    for context, watched in opened:
        context.close()
        watched.judge()
