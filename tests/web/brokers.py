"""A mosquitto of our own on a free port, which can be stopped and started again."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something becomes true; the limit is for failures only."""
    end = time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        if true():
            return True
        # what is waited for needs the machine more than a look that takes long
        time.sleep(min(max(0.02, 2 * (time.monotonic() - begin)), 0.5))
    return False


class Broker:
    """Keeps sessions and retained messages on disk, so that a restart loses nothing."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if found is None:
            pytest.skip("mosquitto is not installed.")
        self._program, self.port = found, free_port()
        self._file = folder / "mosquitto.conf"
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\n"
            f"persistence true\npersistence_location {folder}/\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [self._program, "-c", str(self._file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert until(self._answers), "mosquitto does not answer"

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None
