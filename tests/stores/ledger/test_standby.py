"""A database that fails over to an asynchronous standby without the last records: what was shown
is put back as it was; where nobody has it, the forecast goes out until the loss is booked."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.operate.check_files import put, run
from tests.operate.faults import FIRST, World, no_pauses, service
from tests.services import Standby, postgres_binaries, replicated
from tests.web.brokers import until

__all__ = ["no_pauses"]


@pytest.fixture
def standby() -> Iterator[Standby]:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb")
    with replicated() as made:
        yield made


def ready(world: World) -> bool:
    return world.get("/readyz").status_code == 200


def lose_one(world: World, standby: Standby) -> Iterator[None]:
    """Two releases; the standby that takes over lacks the second."""
    yield from world.whole(1)
    standby.hold_back()
    yield from world.whole(1)
    standby.take_over()


@pytest.mark.usefixtures("no_pauses")
def test_the_running_service_puts_back_what_the_standby_lacks(
    tmp_path: Path, standby: Standby, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(service(tmp_path, ledger=standby.both()))

    def story(world: World) -> Iterator[None]:
        yield from lose_one(world, standby)
        assert world.send() == 200
        world.ahead()
        yield  # the append fails: it does not follow
        yield from world.until(lambda: ready(world))
        world.look()
        yield from world.whole(1)

    world.play(story)
    world.judge()  # nothing was shown that the ledger lacks: no step has a second release
    assert list(world.releases()) == list(range(FIRST, FIRST + 4))
    assert {one.source for one in world.releases().values()} == {"readings"}
    assert caplog.messages.count("records put back") == 1


@pytest.mark.usefixtures("no_pauses")
def test_a_restarted_service_puts_back_what_the_standby_lacks(
    tmp_path: Path, standby: Standby
) -> None:
    world = World(service(tmp_path, ledger=standby.both(), meters=standby.both()))
    world.play(lambda world: lose_one(world, standby))

    def again(world: World) -> Iterator[None]:
        yield from world.until(lambda: ready(world))
        world.look()
        world.accepted.clear()  # the standby lacks readings as well
        world.unsure = {("elm", t) for t in range(FIRST, FIRST + 3)}
        yield from world.whole(1)

    world.play(again)
    world.judge()
    assert list(world.releases()) == list(range(FIRST, FIRST + 3))


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("apart", [True, False], ids=["meters apart", "meters with it"])
@pytest.mark.sampled
def test_without_a_witness_the_forecast_goes_out_until_the_loss_is_booked(
    tmp_path: Path, standby: Standby, apart: bool
) -> None:
    from hushgrid.curator.gaps import Resumed, resume_zones

    places = {} if apart else {"meters": standby.both()}
    world = World(service(tmp_path, ledger=standby.both(), **places))
    world.play(lambda world: lose_one(world, standby))
    shutil.rmtree(world.made.witness_folder)  # a new machine
    lost = list(world.shown.values())[-1]
    done: list[Resumed] = []

    def again(world: World) -> Iterator[None]:
        yield from world.until(lambda: ready(world))
        assert "hushgrid resume" in world.get("/v1/status").json()["zones"][0]["state"]
        yield from world.whole(1)
        asking = threading.Thread(
            target=lambda: done.extend(resume_zones(world.made, "elm", world.time))
        )
        asking.start()
        yield from world.until(lambda: not asking.is_alive())
        yield from world.whole(2)

    world.play(again)
    standing = world.standing()
    sources = {one.t: one.source for one in standing.releases}
    t = FIRST + 1  # published, lost, and never again
    assert sources == {
        FIRST: "readings",
        FIRST + 2: "forecast",
        FIRST + 3: "readings",
        FIRST + 4: "readings",
    }
    assert lost["head"] not in {one.head for one in standing.releases}
    assert [(one.first, one.last) for one in standing.booked] == [(t, t)]
    (gap,) = standing.booked
    assert 0.5 <= gap.epsilon <= 0.5 * (1 + 1e-6)  # the policy's
    assert done == [Resumed("elm", "resumed", t, t, gap.epsilon)]
    assert standing.epsilon == pytest.approx(4 * 0.5)


def remark(url: str) -> str | None:
    from hushgrid.stores.ledger import standby_remark

    return standby_remark(url)


@pytest.mark.soak
def test_check_warns_where_a_standby_is_not_waited_for(
    tmp_path: Path, standby: Standby, capsys: pytest.CaptureFixture[str]
) -> None:
    file = put(tmp_path, ('"ledger.sqlite"', f'"{standby.both()}"'))
    assert run("check", file, "--json", "-") == 0
    (said,) = [
        one for one in json.loads(capsys.readouterr().out)["remarks"] if "stores.ledger" in one
    ]
    assert "1 standby servers follow and synchronous_standby_names is empty" in said
    with psycopg.connect(standby.both(), autocommit=True) as link:
        link.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        link.execute("SELECT pg_reload_conf()")
    assert until(lambda: remark(standby.both()) is None)
    with psycopg.connect(standby.both(), autocommit=True) as link:
        link.execute("ALTER SYSTEM RESET synchronous_standby_names")
        link.execute("SELECT pg_reload_conf()")
    standby.hold_back()
    assert until(lambda: "no standby follows" in str(remark(standby.both())))
    away = str(remark("postgresql://hushgrid:hunter2@127.0.0.1:1/postgres"))
    assert "cannot be used" in away
    assert "hunter2" not in away
    assert remark(str(tmp_path / "ledger.sqlite")) is None
