"""Services that tests start for themselves, on a free port in a folder of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        self._make()
        self.start()

    def _make(self) -> None:
        words = ("-U", "hushgrid", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._run("initdb", "-D", str(self._data), *words)

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

    def kill(self) -> None:
        """SIGKILL to the server and all its processes, as if its machine lost power."""
        parent = (self._data / "postmaster.pid").read_text().split()[0]
        listed = subprocess.run(
            ["pgrep", "-P", parent], capture_output=True, text=True, check=False
        ).stdout
        subprocess.run(["kill", "-KILL", parent, *listed.split()], check=False)
        until_gone = time.monotonic() + 30
        while Path(f"/proc/{parent}").exists() and time.monotonic() < until_gone:
            time.sleep(0.02)
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._user, str(self._binaries / program), *arguments]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd="/"
        )


class Standby(Postgres):
    """An asynchronous standby of another server, made with pg_basebackup."""

    def __init__(self, primary: Postgres, folder: Path) -> None:
        self._primary = primary
        super().__init__(primary._binaries, folder)

    def _make(self) -> None:
        source = f"host=127.0.0.1 port={self._primary.port} user=hushgrid"
        words = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._run("pg_basebackup", "-d", source, "-D", str(self._data), *words)

    def wait_for(self) -> None:
        """Let the primary confirm nothing that this one lacks."""
        import psycopg

        with psycopg.connect(self._primary.url, autocommit=True) as link:
            link.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            link.execute("SELECT pg_reload_conf()")

    def hold_back(self) -> None:
        """Take all that the primary has, and stop: what it commits from now on is lost here."""
        import psycopg

        with psycopg.connect(self._primary.url, autocommit=True) as link:
            (there,) = link.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
        with psycopg.connect(self.url, autocommit=True) as link:
            taken = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
            while link.execute(taken, (there,)).fetchone() != (True,):
                time.sleep(0.02)
        self.stop("fast")

    def take_over(self) -> None:
        """The primary dies, and this one goes on in its place."""
        self._primary.kill()
        if not (self._data / "postmaster.pid").exists():  # it was held back
            self.start()
        self._run("pg_ctl", "promote", "-w", "-D", str(self._data))

    def both(self, name: str = "postgres", first: int | None = None) -> str:
        """The URL of whichever of the two is the primary; `first` is a proxy's port."""
        hosts = f"127.0.0.1:{first or self._primary.port},127.0.0.1:{self.port}"
        return f"postgresql://hushgrid@{hosts}/{name}?target_session_attrs=read-write"


@contextmanager
def replicated() -> Iterator[Standby]:
    """A primary and its standby."""
    with running_postgres() as primary, _folder() as name:
        standby = Standby(primary, Path(name))
        try:
            yield standby
        finally:
            with suppress(subprocess.CalledProcessError):  # held back
                standby.stop()


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
    with _folder() as name:
        server = Postgres(binaries, Path(name))
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # it was killed
                server.stop()


@contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(
        prefix="hushgrid-pg-", dir=in_memory(), ignore_cleanup_errors=True
    ) as name:
        if os.geteuid() == 0:
            shutil.chown(name, "postgres")
        yield name
