"""SIGKILL of the whole process at random instants, while readings come in over HTTP."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from hushgrid.curator.clock import FastClock
from hushgrid.operate import serve
from tests.operate.faults import BEGINS, QUARTER, World, service, zone
from tests.web.brokers import until

KILLS = 6
SPEED = 2 * QUARTER  # an interval is half a second


@contextmanager
def running(world: World, clock: FastClock) -> Iterator[int]:
    """The number of the process; it must be killed in the block."""
    pid = os.fork()
    if pid == 0:
        try:
            own = FastClock(clock.now(), SPEED)
            serve(world.made, clock=own, stop=threading.Event())
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        os._exit(7)
    try:
        with world.connected():
            assert until(lambda: _ready(world))
            yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the process ended by itself"


def _ready(world: World) -> bool:
    try:
        return world.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _load(world: World, clock: FastClock) -> None:
    """Readings one by one, and looks at the prices, until nobody answers."""
    while True:
        t = int(clock.now()) // QUARTER
        if not all(world.send(t, (house,)) for house in range(3)):
            return
        try:
            world.look()
        except httpx.TransportError:
            return
        time.sleep(0.01)


@pytest.mark.soak
def test_a_service_killed_at_random(tmp_path: Path) -> None:
    rng, clock = random.Random(5), FastClock(BEGINS, SPEED)
    world = World(service(tmp_path, zone("elm"), zone("oak", 3)))
    for _ in range(KILLS):
        with running(world, clock) as pid:
            killer = threading.Timer(rng.uniform(0.3, 1.2), os.kill, (pid, signal.SIGKILL))
            killer.start()
            _load(world, clock)
            killer.join()
        world.time = clock.now()
        world.judge()
    assert len(world.releases()) >= KILLS, "it made headway"
    assert len(world.shown) >= KILLS
