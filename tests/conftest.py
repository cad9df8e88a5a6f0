"""One hypothesis profile for all: no deadlines (the machine decides), the same examples in every
run but those of make soak.

And the services that tests of the edge start for themselves.
"""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.examples import SOAK, examples
from tests.services import Postgres, in_memory, postgres_binaries, running_postgres

settings.register_profile(
    "hushgrid",
    deadline=None,
    derandomize=not SOAK,
    max_examples=examples(100),
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

# A client waits 5 s for an answer by default, and a busy machine may need more; limits are for
# failures.
_PATIENT = httpx._config.DEFAULT_TIMEOUT_CONFIG
_PATIENT.connect = _PATIENT.read = _PATIENT.write = _PATIENT.pool = 60.0

# What judges the output of make soak has nothing to judge without it.
collect_ignore = [] if "HUSHGRID_COMPARED" in os.environ else ["lab/test_compare_soak.py"]
if not SOAK:  # Java starts for a minute
    collect_ignore.append("operate/batch/test_batch_spark.py")

# The longest files, longest first: a worker that takes the last one is not left alone with it. The
# first day waits most of its time, while other workers have the cores.
LONGEST = (
    "test_first_day.py",
    "test_benchmarks.py",
    "browser/test_pages.py",
    "curator/test_account.py",
    "learning/test_learn_zone.py",
    "planning/test_windows.py",
    "adversary/test_absence.py",
    "operate/test_check.py",
    "files/test_either.py",
    "accounting/test_account_worlds.py",
    "curator/test_lost_ends.py",
    "operate/test_serve.py",
    "web/test_evcc.py",
    "curator/test_windows.py",
    "demo/test_demo_once.py",
    "operate/test_ready.py",
    "curator/test_gaps.py",
    "stores/ledger/test_accounts_verified.py",
    "cli/test_bars.py",
    "operate/test_two_worlds.py",
    "lab/test_compare.py",
    "files/test_files.py",
    "stores/ledger/test_standby.py",
    "audit/test_faults.py",
    "operate/standby/test_failover.py",
    "curator/test_blocks.py",
    "web/test_aged_feeds.py",
    "test_deploy.py",
    "planning/test_clamp.py",
    "stores/ledger/test_ledger_crash.py",
    "lab/test_window.py",
    "audit/test_command.py",
    "test_package.py",
    "web/test_in_force.py",
    "lab/test_consecutive_days.py",
    "belief/test_load_filter.py",
    "operate/batch/test_batch.py",
    "files/test_config.py",
    "curator/test_kill.py",
    "test_exports.py",
    "operate/attack/test_crowds.py",
    "operate/attack/test_shares.py",
    "operate/attack/test_time.py",
    "operate/test_announced_window.py",
    "web/http/test_whole_bodies.py",
    "web/test_mqtt.py",
    "stores/ledger/test_ledger_postgres.py",
    "demo/test_demo.py",
    "lab/test_cosimulation.py",
    "curator/test_transfer.py",
    "planning/test_plan.py",
    "curator/test_moves.py",
    "operate/test_away.py",
    "stores/meters/test_meter_crashes.py",
    "cli/test_cli.py",
    "lab/test_compare_cli.py",
    "operate/attack/test_damage.py",
    "operate/standby/test_fenced.py",
    "planning/test_prospect.py",
    "web/openadr/test_routes.py",
    "operate/standby/test_database_fails_over.py",
    "operate/test_clocks.py",
    "operate/test_disks.py",
    "operate/test_two_curators.py",
    "web/http/test_operator.py",
    "web/openadr/test_description.py",
    "accounting/test_leakage_oracle.py",
    "web/test_feeds.py",
    "web/http/test_front.py",
    "learning/test_learn_refusals.py",
    "belief/test_estimate_days.py",
    "audit/test_records.py",
    "stores/test_database.py",
    "operate/test_commands.py",
    "lab/test_paper.py",
    "mechanism/test_support.py",
    "stores/meters/test_meter_conformance.py",
)


def _without_most_of_the_sampled(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of a test marked `sampled` every eighth of its parameters, from the first on."""
    seen: Counter[str] = Counter()
    kept = []
    for one in items:
        if one.get_closest_marker("sampled") is not None:
            name = one.nodeid.partition("[")[0]
            seen[name] += 1
            if seen[name] % 8 != 1:
                continue
        kept.append(one)
    return kept


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what is marked `soak` or `sampled` to make soak; put the longest files first."""
    if not SOAK:
        items[:] = [one for one in items if one.get_closest_marker("soak") is None]
        items[:] = _without_most_of_the_sampled(items)
    rank = {Path(__file__).parent / name: i for i, name in enumerate(LONGEST)}
    assert all(path.exists() for path in rank), "LONGEST names a file that is not there"
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_collection_finish() -> None:
    """All modules are there for good: the collector need not visit them again and again.

    Nor need it look at every few hundred objects that a test makes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True, scope="session")
def patience() -> Iterator[None]:
    """Feeds wait for their forecast, however slow the machine is."""
    from hushgrid.web import prices

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prices, "PATIENCE", 60.0)
        yield


@pytest.fixture
def loop_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop waits for forecasts as well: what publishers show does not depend on threads."""
    monkeypatch.setattr("hushgrid.web.prices.LOOP_PATIENCE", 60.0)


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
