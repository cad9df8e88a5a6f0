"""How long until `hushgrid --help` has printed, and until `hushgrid serve` answers?

The zone is the one that `hushgrid init` writes; it answers when /healthz does.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.measure import Question, Result, sized

COMMAND = [str(Path(sys.executable).with_name("hushgrid"))]
TURNS = sized(5, 1)


def _help() -> float:
    begin = time.perf_counter()
    subprocess.run([*COMMAND, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def _serve() -> float:
    with tempfile.TemporaryDirectory() as place, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        subprocess.run([*COMMAND, "init", place], check=True, stdout=subprocess.DEVNULL)
        free.close()
        begin = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, "serve", str(Path(place) / "service.toml"), "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not _answers(port):
                assert process.poll() is None
                time.sleep(0.02)
            return time.perf_counter() - begin
        finally:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def help_seconds() -> Result:
    found = min(_help() for _ in range(TURNS))
    return Result(found, "s", found, "<= 0.4")


def serve_seconds() -> Result:
    found = min(_serve() for _ in range(TURNS))
    return Result(found, "s", found, "<= 2.5")


QUESTIONS: dict[str, Question] = {"help_start": help_seconds, "serve_start": serve_seconds}
