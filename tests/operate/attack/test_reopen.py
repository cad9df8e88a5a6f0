"""A long ledger is opened without computing what no step needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hushgrid.belief.estimate import PublicKnowledge
from hushgrid.curator.curator import Curator
from hushgrid.curator.replay import PublicReplay, Replay, initial_state
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.release import replay, skip
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import create, load
from hushgrid.stores.meters import open_meters
from tests.curator.setups import BEGINS, service


def test_a_zone_is_opened_without_its_public_knowledge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone, learnt = service(), [0]
    create(tmp_path / "key")
    with open_meters(str(tmp_path / "meters")) as meters:

        def play(steps: int, away: int, now: int) -> None:
            with (
                open_store(str(tmp_path / "ledger.db")) as store,
                Curator.open(
                    zone, store, meters, SimulatedNoise(1), load(tmp_path / "key"), [],
                    "simulation", now=now,
                ) as curator,
            ):  # fmt: skip
                assert learnt == [0], "public knowledge was computed to open the zone"
                for _ in range(steps):
                    at = curator.start_of(curator.t)
                    if curator.t % 3:  # the others get a forecast
                        meters.put(zone.id, range(6), [at] * 6, [900] * 6, [500] * 6)
                    curator.tick(curator.next_due())
                curator.leave_out_until(curator.start_of(curator.t + away))
                # as computed one release after the other
                standing = curator._ledger.standing
                first = standing.current[0].t - zone.begins // 900
                state = skip(initial_state(zone, standing), zone.fallback_rate, first)
                public = PublicReplay(zone, zone.begins // 900)
                for one in standing.current:
                    public.take(one)
                    behind = one.t - zone.begins // 900 - len(state.rates)
                    if behind:
                        state = skip(state, state.rates[-1], behind)
                    if one.source == "readings":
                        state = replay(state, one.in_week(curator._replay._first))
                    else:
                        state = skip(state, one.rate)
                found = Replay(zone).follow(standing)
                assert found.state == state
                np.testing.assert_array_equal(found.public.weights, public.knowledge.weights)
                found.reach(curator.t)
                public.reach(curator.t)
                assert found.state == curator._replay.state
                assert found.public.t == public.knowledge.t == found.state.t
                np.testing.assert_array_equal(found.public.weights, public.knowledge.weights)

        play(5, 2, BEGINS)
        play(4, 0, BEGINS + 7 * 900)
        learn = PublicKnowledge.learn

        def counted(*given: object) -> object:
            learnt[0] += 1
            return learn(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(PublicKnowledge, "learn", counted)
        play(0, 0, BEGINS + 11 * 900)
        assert learnt != [0]
