"""Nothing public depends on a reading but through the noisy load: two worlds, byte for byte.

Equal presence, clamping and noisy load, other readings: logs, figures, answers, errors, records
and prices must not differ in one byte. Each kind of leak, put in on purpose, does make them differ.

Other presence, clamping, fractions and malformed rows, equal noisy load: everything but logs, the
operator's figures and what senders are answered about their own rows must not differ in one byte.
The one exception is whether any meter of the zone reported at all: `test_the_one_public_bit`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hushgrid import Noise, Policy, SimulatedNoise
from hushgrid.belief.filter import Expectations
from hushgrid.curator import ingest
from hushgrid.curator.curator import Curator
from hushgrid.curator.ingest import Receipt
from hushgrid.mechanism.policy import Blocks
from hushgrid.operate import process as serve
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import create
from tests.curator.worlds import START, TOKEN, MemoryMeters, service
from tests.examples import SOAK
from tests.operate.twins import AWAY, EMPTY, OTHERS, STEPS, ZONES, Leak, Seen
from tests.web.http.faces import Face
from tests.web.http.ways import ways

log = logging.getLogger("hushgrid.curator")

PLAIN = Policy(0.5, horizon=500)
BLOCKS = Blocks((5,) * 100, (0.5,) * 100)
POLICIES = {
    "blocks": Policy(0.5, horizon=500, clamp=(700,), publish="estimate", schedule=BLOCKS),
    "clamp": Policy(0.5, horizon=500, eta=0.3, clamp=(700,), publish="estimate"),
    "estimate": Policy(0.5, horizon=500, eta=0.3, publish="estimate"),
}


def both(folder: Path, policy: Policy = PLAIN, leak: Leak | None = None) -> tuple[Seen, Seen]:
    create(folder / "key.pem")
    key = (folder / "key.pem").read_bytes()
    one, other = (Seen(w, folder / f"world-{w}", key, policy, leak) for w in (0, 1))
    return one, other


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seen, Seen]:
    return both(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def others(plain: tuple[Seen, Seen], tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The world in which other meters report."""
    key = (plain[0].folder / "key.pem").read_bytes()
    return Seen(OTHERS, tmp_path_factory.mktemp("others") / "world", key, PLAIN)


def test_who_reports_changes_nothing_public(plain: tuple[Seen, Seen], others: Seen) -> None:
    one, _ = plain
    assert one.missing != others.missing
    assert differing(one, others) == {"logs", "receipts", "operator figures"}


def differing(one: Seen, other: Seen) -> set[str]:
    """The channels that tell the worlds apart."""
    here, there = one.all(), other.all()
    assert all(here.values()), "a channel is silent"
    return {name for name in here if here[name] != there[name]}


@pytest.mark.parametrize(
    "name", ["plain", *(pytest.param(name, marks=pytest.mark.soak) for name in POLICIES)]
)
def test_readings_change_nothing_but_the_noisy_load(
    tmp_path: Path,
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda _: 1)  # the mark of a draw is public chance
    policy = POLICIES.get(name)
    one, other = both(tmp_path, policy) if policy else request.getfixturevalue("plain")
    apart = [a != b for a, b in zip(one.loads, other.loads, strict=True)]
    assert apart.count(False) == len(ZONES), "the loads are equal only where all are missing"
    assert one.inside != other.inside, "an operator sees the loads themselves"
    assert differing(one, other) == set()


def test_the_worlds_have_seen_everything(plain: tuple[Seen, Seen]) -> None:
    """What the comparison stands on: all kinds of readings, releases and refusals occurred."""
    seen, _ = plain
    public = seen.all()
    records = [json.loads(line) for line in public["ledger"].splitlines()]
    releases = [r["body"] for r in records if r["kind"] == "release"]
    sources = {(r["zone"], r["source"]) for r in releases}
    assert sources == {(zone, source) for zone in ZONES for source in ("readings", "forecast")}
    assert {1, 6} <= seen.missing
    assert all(r["counts"] == {"houses": ZONES[r["zone"]]} for r in releases)
    first = releases[0]["t"]
    silent = {r["source"] for r in releases if r["t"] - first + 1 == EMPTY}
    assert silent == {"forecast"}, "of an interval without readings"
    published = {r["t"] - releases[0]["t"] + 1 for r in releases}
    assert {EMPTY, STEPS} < published, "an interval without readings is published"
    assert not published & set(AWAY[:2]), "what is long past is left out"
    answers = (public["answers"] + public["receipts"]).decode()
    for way in ways(Face().app):
        assert f"{way.method} {way.path}" in answers, "every path is compared"
    for page in ("/", "/zones/oak-lane", "/how", "/operator"):
        assert f"GET {page} 200" in answers, "every page is compared"
    assert "event: price" in answers
    assert '"forecast":[{"start"' in answers
    for status in (200, 400, 401, 404, 413, 415):
        assert f" {status} [" in answers
    lines = [json.loads(line) for line in public["logs"].splitlines()]
    for kind in ("accepted", "duplicate", "late", "unknown", "malformed"):
        assert sum(line.get(kind, 0) for line in lines) > 0, kind
    assert '"clamped":0' in answers
    assert '"clamped":1' in answers
    assert TOKEN.encode() not in b"".join(public.values())


class Level(Noise):
    """Makes every noisy load the same: it is given the load beforehand."""

    def __init__(self, load: int) -> None:
        self._load = load

    def draw(self, scale: float) -> int:
        return 1234 - self._load


def test_the_one_public_bit(tmp_path: Path) -> None:
    """Of all patterns of who reports, the public sees whether anybody did, and nothing else.

    An interval without any reading gets the public forecast: no noise, no loss, nothing spent.
    """
    zone = service(houses=3)
    key = create(tmp_path / "key.pem")
    guess = Expectations(zone.scenario).at(1)
    seen: dict[bool, list[Any]] = {True: [], False: []}
    for n, present in enumerate(product([False, True], repeat=3)):
        wh = [100 * (k + 1) if here else int(guess[k]) for k, here in enumerate(present)]
        meters = MemoryMeters(zone)
        meters.rows |= {(zone.id, k, START): wh[k] for k, here in enumerate(present) if here}
        with (
            open_store(str(tmp_path / f"{n}.db")) as store,
            Curator.open(
                zone, store, meters, Level(sum(wh)), key, [], "simulation", now=START
            ) as it,
        ):
            made = it.tick(it.next_due())
            assert it.status.missing == present.count(False)
        status = {k: v for k, v in asdict(it.status).items() if k != "missing"}
        with open_store(str(tmp_path / f"{n}.db")) as store:
            records = [record.line for record in store.records(zone.id)]
        seen[any(present)].append((records, status, made.source, made.epsilon, made.scale))
    assert len(seen[True]) == 7
    assert all(one == seen[True][0] for one in seen[True]), "who reports does not show"
    assert seen[True][0][2:] == ("readings", 0.5, 2000.0)
    ((_, status, *free),) = seen[False]
    assert free == ["forecast", 0.0, 0.0]
    assert (status["room"], status["state"]) == (1.0, "no readings")


def _reading(process: Any, patch: pytest.MonkeyPatch, tell: Callable[[int], None]) -> None:
    """Tell the sum of what is read for an interval."""
    get = process._meters.get

    def told(*place: Any) -> Any:
        interval = get(*place)
        tell(int(interval.wh.sum()))
        return interval

    patch.setattr(process._meters, "get", told)


def field_of_a_log(process: Any, patch: pytest.MonkeyPatch) -> None:
    """The load in a field that may be told."""
    _reading(process, patch, lambda load: log.info("read", extra={"t": load}))


def text_of_a_log(process: Any, patch: pytest.MonkeyPatch) -> None:
    """The load in the text of an event."""
    _reading(process, patch, lambda load: log.info(f"load {load}"))


def hidden_in_a_log(process: Any, patch: pytest.MonkeyPatch) -> None:
    """The load in a field that the formatter does not know: that is held shut."""
    _reading(process, patch, lambda load: log.info("load %s", load, extra={"load": load}))


def publisher(process: Any, patch: pytest.MonkeyPatch) -> None:
    """A publisher that reads the meter store and shows the load as a figure."""

    class Leaking:
        def publish(self, zone: Any, release: Any) -> None:
            load = process._meters.get(zone.id, release.start).wh.sum()
            process._metrics._step.labels("load").set(load)

    process._publishers.append(Leaking())


def noise(process: Any, patch: pytest.MonkeyPatch) -> None:
    """Noise that is the same in both worlds: the noisy load is not, and all that follows it."""
    patch.setattr(serve, "make_noise", lambda _: SimulatedNoise(1))


def repeats(process: Any, patch: pytest.MonkeyPatch) -> None:
    """A receipt that tells whether a repeated reading agrees with the one that is stored."""

    def told(counts: Any, known: int) -> Receipt:
        return Receipt(counts.accepted, counts.duplicate, counts.late, counts.marked, -known)

    patch.setattr(ingest, "_receipt", told)


LEAKS: dict[Leak, set[str]] = {
    field_of_a_log: {"logs"},
    text_of_a_log: {"logs"},
    hidden_in_a_log: set(),
    publisher: {"metrics", "answers", "operator figures"},
    # make soak asks for figures after every step, also where the price in force is of readings
    noise: {"ledger", "answers", "mqtt", "price file"}
    | ({"metrics", "operator figures"} if SOAK else set()),
    repeats: {"receipts", "logs", "operator figures"},
}


# by a channel that another one takes
AGAIN = (field_of_a_log, text_of_a_log, hidden_in_a_log, repeats)


@pytest.mark.parametrize(
    "leak",
    [
        pytest.param(leak, id=leak.__name__, marks=[pytest.mark.soak] if leak in AGAIN else [])
        for leak in LEAKS
    ],
)
@pytest.mark.sampled
def test_a_leak_would_be_seen(tmp_path: Path, leak: Leak) -> None:
    assert differing(*both(tmp_path, leak=leak)) == LEAKS[leak]
