"""Services that tests start for themselves, on a free port in a folder of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Postgres:
    """A PostgreSQL server that can be stopped like a crash and started again."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._data = binaries, folder / "data"
        self.port, self._count = free_port(), 0
        # PostgreSQL refuses to run as root
        self._user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        words = ("-U", "hushgrid", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._run("initdb", "-D", str(self._data), *words)
        self.start()

    @property
    def url(self) -> str:
        return self._url("postgres")

    def fresh(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._count += 1
        name = f"meters_{self._count}"
        with psycopg.connect(self.url, autocommit=True) as link:
            link.execute(f"CREATE DATABASE {name}")
        return self._url(name)

    def in_schema(self, schema: str = "public", port: int | None = None) -> str:
        """The URL of a schema, perhaps through a proxy's port."""
        place = f"hushgrid@127.0.0.1:{port or self.port}/postgres"
        return f"postgresql://{place}?options=-csearch_path%3D{schema}"

    def _url(self, name: str) -> str:
        return f"postgresql://hushgrid@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        self._control("start")

    def restart(self) -> None:
        """As an operator does who wants it back soon: what is to be written is written before."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as link:
            link.execute("CHECKPOINT")
        self._control("restart", "-m", "fast")

    def _control(self, *what: str) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
        log = str(self._data / "server.log")
        self._run("pg_ctl", *what, "-w", "-D", str(self._data), "-l", log, "-o", options)

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is a crash: what was not committed to disk is gone."""
        self._run("pg_ctl", "stop", "-w", "-D", str(self._data), "-m", mode)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._user, str(self._binaries / program), *arguments]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd="/"
        )


def postgres_binaries() -> Path | None:
    """Where the newest PostgreSQL lies; None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return None if on_path is None else Path(on_path).parent


def in_memory(room: int = 4 << 30) -> str | None:
    """A folder in which a sync costs nothing, if it has room [bytes].

    Whoever is killed leaves there what it would leave on a disk. A PostgreSQL that starts after a
    crash syncs every file it has.
    """
    memory = "/dev/shm"
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < room:
        return None
    return memory


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server of one's own, in a folder of the server's user."""
    binaries = postgres_binaries()
    if binaries is None:
        raise FileNotFoundError("PostgreSQL is not installed: no initdb")
    with tempfile.TemporaryDirectory(
        prefix="hushgrid-pg-", dir=in_memory(), ignore_cleanup_errors=True
    ) as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres")
        server = Postgres(binaries, Path(name))
        try:
            yield server
        finally:
            server.stop()
