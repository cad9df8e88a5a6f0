"""One hypothesis profile for all: no deadlines (the machine decides), the same examples in every
run but those of make soak.

And the services that tests of the edge start for themselves.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.services import Postgres, in_memory, postgres_binaries, running_postgres

settings.register_profile(
    "hushgrid",
    deadline=None,
    derandomize="HUSHGRID_RANDOM" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("hushgrid")

os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # threads that wait sleep, as in the command line


# The ledgers and stores of a run sync thousands of times, and what a kill leaves is the same
# wherever they lie; tests of full and failing disks mount their own.
if (memory := in_memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory)

# A client of httpx reads the certificates of public authorities when it is made, 40 ms each time,
# and tests make hundreds, in polls too. They talk to this machine alone: no authority is trusted.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent / "data")

# What judges the output of make soak has nothing to judge without it.
collect_ignore = [] if "HUSHGRID_COMPARED" in os.environ else ["compare/test_compare_soak.py"]

# The longest files, longest first: a worker that takes the last one is not left alone with it.
LONGEST = (
    "service/batch/test_batch_spark.py",
    "browser/test_pages.py",
    "service/test_two_worlds.py",
    "audit/test_faults.py",
    "planning/test_plan.py",
    "planning/test_clamp.py",
    "belief/test_estimate_days.py",
    "learn/test_learn_zone.py",
    "cli/test_cli.py",
    "compare/test_compare_cli.py",
    "compare/test_paper.py",
    "accounting/test_leakage_oracle.py",
    "intake/test_memory.py",
    "audit/test_records.py",
    "service/batch/test_batch.py",
    "service/test_border.py",
    "service/cluster/test_two_curators.py",
    "service/meters/test_meter_crashes.py",
    "service/test_serve.py",
    "service/test_kill.py",
    "mechanism/test_support.py",
    "adversary/test_factored.py",
    "compare/test_compare.py",
    "audit/test_command.py",
    "intake/test_lines.py",
    "compare/test_attack.py",
    "adversary/test_population.py",
    "service/http/test_openapi.py",
    "service/openadr/test_description.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / name: i for i, name in enumerate(LONGEST)}
    assert all(path.exists() for path in rank), "LONGEST names a file that is not there"
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


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
        if kind == "file":
            return str(tmp_path / "meters")
        if kind == "sqlite":
            return f"sqlite:///{tmp_path / 'meters.db'}"
        server: Postgres = request.getfixturevalue("postgres")
        return server.fresh()

    return find
