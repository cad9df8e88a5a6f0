"""hushgrid batch killed before one of its commits, and run again."""

from __future__ import annotations

import os
import shutil
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from hushgrid import Policy
from hushgrid.files.deployment import Deployment
from hushgrid.mechanism.policy import Blocks
from hushgrid.operate.batch import run as batch
from hushgrid.operate.batch.engines import engine_at
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.writer import Ledger
from hushgrid.stores.meters import MeterStore
from tests.curator.setups import BEGINS, service
from tests.curator.worlds import deployment
from tests.examples import SOAK
from tests.operate.batch.batches import lines, rows_of, write

ZONE = service(policy=Policy(0.5, horizon=24, schedule=Blocks((3,) * 8, (0.5,) * 8)))
COMMITS = range(1, 40)  # of a run there are fewer
DAY = 7200  # [s] what is aggregated at once here: eight intervals


class LaterClock:
    def now(self) -> float:
        return BEGINS + 90.0 * DAY


def run(made: Deployment, rows: Path) -> None:
    job = batch.Job(made, (str(rows),), BEGINS, BEGINS + 2 * DAY, seed=3, gaps="publish")
    with engine_at("duckdb?threads=1&memory_limit=1GB") as engine:
        batch.run(job, engine, LaterClock())


def run_until(made: Path, rows: Path, commit: int) -> None:
    """A run that ends without a word before a commit, that of the meter store or the ledger."""
    batch.CHUNK, batch.CHUNKS, left = DAY, 1, commit  # type: ignore[misc]

    @sa.event.listens_for(sa.Engine, "commit")
    def _count(_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(9)

    run(deployment(made, ZONE), rows)


@pytest.mark.parametrize("commit", COMMITS if SOAK else [4, 9, 12])
@pytest.mark.sampled
def test_a_batch_that_is_killed_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: int
) -> None:
    """Two days of eight intervals, in blocks of three: the records of a run in one go."""
    monkeypatch.setattr(batch, "CHUNK", DAY)
    monkeypatch.setattr(batch, "CHUNKS", 1)
    rows, made = tmp_path / "rows", tmp_path / "killed"
    write(rows / "a.parquet", rows_of(ZONE, 16))
    (tmp_path / "whole").mkdir()
    made.mkdir()
    whole = deployment(tmp_path / "whole", ZONE)
    run(whole, rows)
    shutil.copy(whole.key, made)
    process = get_context("spawn").Process(target=run_until, args=(made, rows, commit))
    process.start()
    process.join(600)
    assert process.exitcode in ((0, 9) if SOAK else (9,))
    again = deployment(made, ZONE)
    run(again, rows)
    assert lines(again, ZONE.id) == lines(whole, ZONE.id)


def test_records_are_durable_before_the_size_of_a_noise_is_drawn_or_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kill between would leave an M that is gone for a block that is published again."""
    made = deployment(tmp_path, ZONE)
    write(tmp_path / "rows" / "a.parquet", rows_of(ZONE, 16))
    appended, looks = [0], list[int]()
    append, erase = Ledger.append, MeterStore.erase_noise

    def count(ledger: Ledger, *args: Any) -> Record:
        record = append(ledger, *args)
        appended[0] = record.seq
        return record

    def look(meters: MeterStore, *args: Any, **named: Any) -> None:
        looks.append(appended[0])
        assert len(lines(made, ZONE.id)) >= appended[0]
        erase(meters, *args, **named)

    monkeypatch.setattr(Ledger, "append", count)
    monkeypatch.setattr(MeterStore, "erase_noise", look)
    run(made, tmp_path / "rows")
    assert len({*looks}) >= 4, "blocks end within what is recorded together"
