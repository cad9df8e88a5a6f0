"""A broker of the demo's own on a free port, where mosquitto is installed."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"
PATIENCE, LOOK = 10.0, 0.05  # [s] until it answers, and between two looks


@contextmanager
def private_broker(folder: Path) -> Iterator[int | None]:
    """The port of a broker that only this machine reaches; None where there is none to be had."""
    program = shutil.which("mosquitto", path=PLACES) or shutil.which("mosquitto")
    if program is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    file = folder / "mosquitto.conf"
    file.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nuser {getpass.getuser()}\n"
        "persistence false\n"
    )
    with subprocess.Popen(
        [program, "-c", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for us: we end it when prices no longer go out
    ) as process:
        try:
            yield port if _answers(port, process) else None
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(LOOK)
        else:
            return True
    return False
