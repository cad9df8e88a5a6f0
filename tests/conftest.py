"""One hypothesis profile for all: no deadlines (the machine decides), derandomised in CI.

And the services that tests of the edge start for themselves.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.services import Postgres, postgres_binaries, running_postgres

settings.register_profile(
    "hushgrid",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("hushgrid")

os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # threads that wait sleep, as in the command line


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb")
    with running_postgres() as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Where `open_meters` finds an empty store of a kind."""

    def find(kind: str) -> str:
        if kind == "segments":
            return str(tmp_path / "meters")
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / 'meters.db'}"
        server: Postgres = request.getfixturevalue("postgres")
        return server.fresh()

    return find
