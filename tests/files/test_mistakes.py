"""Mistakes in zone and service files: each is reported once, at its key and line, and alone.

Files are written key by key from a sound table with one or two changes; the lines expected are
those the writer put the keys on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hushgrid.errors import ConfigError
from hushgrid.files._tables import keys_of
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Service
from hushgrid.files.zone_file import StepKeys, load_zone

Keys = tuple[str | int, ...]
DIGEST = "0" * 64


def deepcopy(content: dict[str, Any]) -> dict[str, Any]:
    """A copy that shares no table, not even with itself."""
    made: dict[str, Any] = json.loads(json.dumps(content))
    return made


PERIODS = [
    {"from": "00:00", "leave": 0.01, "come": 0.05},
    {"from": "07:15", "leave": 0.2, "come": 0.02},
]
GAMMA = {"law": "gamma", "shape": 2.0, "scale": 20.0}
TWO = [
    {"from": "00:00", "law": "normal", "centre": 30.0, "spread": 10.0},
    {"from": "07:00", "law": "lognormal", "median": 60.0, "spread": 0.8},
    {"from": "08:00", "law": "uniform", "top": 90, "months": [6, 7, 8]},
]
ZONE: dict[str, Any] = {
    "format": 1,
    "zone": {"id": "elm", "month": 6},
    "tariff": {
        "alpha": 0.012, "beta": 0.05, "gamma": 0.0, "inelastic": 10, "floor": 0.1, "cap": 2.0,
        "smooth": 0.5,
    },
    "policy": {
        "epsilon": 0.5, "eta": 1.0, "horizon": 4, "publish": "raw", "blocks": "block",
        "models": "union", "on_empty": "protect_all", "clamp": [90, 150],
        "epsilon_t": [0.5, 0.4, 0.3, 0.2],
    },
    "elasticity": {"reference": 0.3, "exponent": 0.5, "low": 0.5, "high": 1.5},
    "learned": {
        "provenance": "pooled",
        "homes": 20,
        "epsilon": 0.5,
        "first_reading": "2025-01-01T00:00:00Z",
        "last_reading": "2025-12-01T00:00:00Z",
    },
    "houses": [
        {
            "count": 2, "bound": 100, "chain": "workers", "provenance": "a survey",
            "absent": GAMMA, "present": TWO,
        },
        {
            "count": 1, "bound": 200, "export": 0, "chain": "at home",
            "absent": {"law": "histogram", "weights": [1, 2, 3]},
            "present": {
                "law": "mixture",
                "parts": [
                    {"law": "uniform", "share": 0.5},
                    {"law": "bins", "edges": [0, 10, 200], "weights": [1, 2], "share": 0.5},
                ],
            },
        },
    ],
    "models": [
        {
            "name": "survey",
            "provenance": "an office",
            "structural_zeros": "declared by nobody",
            "chains": {
                "workers": {"home_at_start": 0.9, "periods": PERIODS, "weekend": PERIODS},
                "at home": {"home_at_start": 0.97, "periods": PERIODS},
            },
        },
    ],
}  # fmt: skip
OWN: dict[str, Any] = {
    "interval": "PT30M",
    "begins": "2026-01-01T00:00:00Z",
    "time_zone": "Europe/Zurich",
    "meter_interval": 900,
    "grace": "PT1M",
    "retention": "P7D",
    "currency": "EUR",
    "fallback_rate": 0.25,
    "accept_error": 0.9,
    "accept_error_set_by": "the engineer",
}
SERVICE: dict[str, Any] = deepcopy(ZONE) | {
    "service": {"mode": "simulation", **OWN, "key": "hushgrid.key", "standby": False},
    "stores": {
        "ledger": "ledger.sqlite", "meters": "meters", "clients": "c.sqlite", "vtn": "v.sqlite",
    },
    "http": {
        "host": "127.0.0.1", "port": 8080, "token_digests": [DIGEST], "limit": 67108864,
        "token_lifetime": "PT1H", "metrics": "public", "rate_limit": 200.0,
        "proxies": ["127.0.0.1"], "connections": 100, "tls_certificate": "c.pem",
        "tls_key": "k.pem", "pages": True,
    },
    "mqtt": {
        "host": "broker", "port": 1883, "readings": "r/#", "prices": "p", "username": "me",
        "password_file": "pw", "home_assistant": True, "home_assistant_prefix": "ha",
    },
    "publish": {"file": "prices.json"},
    "openadr": {
        "enabled": True, "anonymous": True, "webhooks": True, "allow_private_callbacks": False,
        "url": "https://prices.example", "mqtt": True, "mqtt_uris": ["mqtts://broker:8883"],
    },
}  # fmt: skip
for _key in ("blocks", "models", "on_empty", "epsilon_t", "horizon"):
    del SERVICE["policy"][_key]
SERVICE["policy"] |= {"secret": "step", "eta_set_by": "the engineer"}
SERVICE["houses"][0]["meters"] = {"prefix": "elm-", "first": 1}
SERVICE["houses"][1]["meters"] = ["oak-1"]
for _chain in SERVICE["models"][0]["chains"].values():  # steps of half an hour
    for _periods in ("periods", "weekend"):
        if _periods in _chain:
            _chain[_periods] = [PERIODS[0], PERIODS[1] | {"from": "07:30"}]
# each file with the tables that are changed
FILES: dict[str, tuple[dict[str, Any], Callable[[Path], Any], set[str]]] = {
    "zone": (ZONE, load_zone, set(ZONE)),
    "steps": (deepcopy(ZONE) | {"service": {"interval": "PT15M"}}, load_zone, {"service"}),
    "service": (SERVICE, load_deployment, set(SERVICE)),
}
# values of the right kind that no file may hold; every other key is tried with a wrong kind alone
OUT = {
    "alpha": -1.0, "beta": 0.0, "inelastic": -1, "export": -5, "epsilon": 0.0, "eta": 1.5,
    "horizon": 0, "publish": "all", "blocks": "paver", "models": "onion", "on_empty": "no",
    "clamp": [90, 0], "epsilon_t": [0.5, 0.4, -0.3, 0.2], "reference": 0.0,
    "exponent": -1.0, "low": 1.5, "high": 0.5, "count": 0, "bound": -5, "law": "zeta",
    "shape": 0.0, "scale": -1.0, "spread": 0.0, "median": -3.0, "weights": [0, 0, 0],
    "edges": [0, 300, 200], "share": 1.5, "home_at_start": 1.5, "leave": -0.1, "come": 2.0,
    "from": "7:3x", "mode": "live", "interval": "PT1X", "begins": "soon", "time_zone": "Mars",
    "meter_interval": "15 min", "grace": "1 min", "retention": 1, "currency": "Euro",
    "fallback_rate": -1.0, "accept_error": 0.0, "ledger": "mysql://b/c",
    "port": 0, "limit": 1,
    "token_lifetime": 1, "metrics": "me", "rate_limit": 0.0, "proxies": ["nowhere"],
    "connections": 1, "prices": "p/#", "url": "prices", "mqtt_uris": ["http://x"],
    "token_digests": ["x"], "secret": "day", "steps": 0, "by": "luck", "homes": -1,
    "provenance": "mine", "first": -1, "chain": "nobody",
    "host": "a b", "id": "",
}  # fmt: skip
FREE = {"by", "name"}  # of learned and models: a note, of any kind


class Change(NamedTuple):
    """A change of a file and the key that is then at fault."""

    kind: str
    keys: Keys
    value: Any = None

    @property
    def at(self) -> str:
        keys = self.keys
        if keys == ("format",):  # another key than the format's does not count: it is missing
            return "format"
        if self.kind in ("unknown", "misspelt"):
            keys = (*keys[:-1], f"{keys[-1]}{'' if self.kind == 'unknown' else 'q'}")
        return path_of(keys)

    def apply(self, content: dict[str, Any]) -> None:
        holder: Any = content
        for key in self.keys[:-1]:
            holder = holder[key]
        last: Any = self.keys[-1]
        if self.kind == "missing":
            del holder[last]
        elif self.kind == "misspelt":
            holder[f"{last}q"] = holder.pop(last)
        else:
            holder[last] = self.value


def path_of(keys: Keys) -> str:
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def leaves(content: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every key that holds no table."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        here = (*keys, key)
        if isinstance(value, dict) or (isinstance(value, list) and isinstance(value[0], dict)):
            yield from leaves(value, here)
        else:
            yield here, value


def tables(content: dict[str, Any], keys: Keys = ()) -> Iterator[Keys]:
    """Every table whose keys are a fixed set."""
    if keys and keys[-1] != "chains":
        yield keys
    for key, value in content.items():
        for number, inner in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(inner, dict):
                where = (*keys, key, number) if isinstance(value, list) else (*keys, key)
                yield from tables(inner, where)


def wrong_kind(value: Any) -> Any:
    return 7 if isinstance(value, (str, list)) else "x"


def changes(content: dict[str, Any]) -> Iterator[Change]:
    """All single mistakes."""
    for keys, value in leaves(content):
        name = str(keys[-1])
        free = name in FREE and keys[0] in ("learned", "models")
        numbered = name in ("interval", "meter_interval", "grace", "retention", "token_lifetime")
        if not free:
            yield Change("kind", keys, True if numbered else wrong_kind(value))
        told = keys[0] == "learned" or name != "provenance"  # the origin is one of three words
        if name in OUT and told and not (name == "epsilon" and keys[0] == "learned"):
            yield Change("range", keys, OUT[name])
        yield Change("misspelt", keys)
        yield Change("missing", keys)
    for keys in tables(content):
        yield Change("unknown", (*keys, "zzzzzzzzzz"), 1)
        yield Change("table", keys, 7)
    for name in [key for key, value in content.items() if isinstance(value, dict)]:
        yield Change("missing", (name,))
    yield Change("unknown", ("zzzzzzzzzz",), {"a": 1})


def written(content: dict[str, Any]) -> tuple[str, dict[str, int]]:
    """TOML with a line for each key, and the lines."""
    rows: list[str] = []
    lines: dict[str, int] = {}

    def quoted(key: Any) -> str:
        return f'"{key}"'

    def value_of(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, dict):
            return "{" + ", ".join(f"{quoted(k)} = {value_of(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(value_of, value)) + "]"
        return repr(value)

    def put(table: dict[str, Any], keys: Keys) -> None:
        inner = []
        for key, value in table.items():
            many = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
            if isinstance(value, dict) or many:
                inner.append((key, value))
            else:
                rows.append(f"{quoted(key)} = {value_of(value)}")
                lines[path_of((*keys, key))] = len(rows)
        for key, value in inner:
            names = ".".join(quoted(k) for k in (*keys, key) if isinstance(k, str))
            for number, each in enumerate(value if isinstance(value, list) else [value]):
                many = isinstance(value, list)
                rows.append(f"[[{names}]]" if many else f"[{names}]")
                lines.setdefault(path_of((*keys, key)), len(rows))
                here = (*keys, key, number) if many else (*keys, key)
                lines[path_of(here)] = len(rows)
                put(each, here)

    put(content, ())
    return "\n".join(rows) + "\n", lines


def found_in(
    folder: Path, content: dict[str, Any], load: Callable[[Path], Any]
) -> list[tuple[str, int]]:
    """(key, line) of every mistake; the line is held against the writer's."""
    text, lines = written(content)
    path = folder / "file.toml"
    path.write_text(text)
    try:
        load(path)
    except ConfigError as error:
        found = []
        for problem in error.problems:
            assert "\n" not in problem.message
            around = problem.key
            while around and around not in lines:
                around = around[: max(around.rfind("."), around.rfind("["), 0)]
            last = len(text.splitlines())  # where a table that is missing could be
            absent = "missing; add th" in problem.message
            assert problem.line == (last if absent else lines.get(around, 1)), str(problem)
            found.append((problem.key, problem.line))
        return found
    return []


def changed(content: dict[str, Any], *edits: Change) -> dict[str, Any]:
    made = deepcopy(content)
    for edit in sorted(edits, key=lambda one: one.keys, reverse=True):
        edit.apply(made)
    return made


REQUIRED = {
    "format",
    "zone", "tariff", "policy", "service", "stores", "zone.id", "tariff.alpha", "tariff.beta",
    "policy.epsilon", "elasticity.reference", "elasticity.exponent", "learned.provenance",
    "houses[0].count", "houses[0].bound", "houses[0].chain", "houses[0].absent.law",
    "houses[0].absent.shape", "houses[0].absent.scale", "houses[0].present[0].centre",
    "houses[0].present[0].spread", "houses[0].present[1].median", "houses[1].absent.weights",
    "houses[1].present.parts[1].edges", "service.mode", "service.begins", "service.time_zone",
    "service.meter_interval", "service.fallback_rate", "service.key", "stores.ledger",
    "stores.meters", "mqtt.host", "publish.file",
    "models[0].chains.workers.home_at_start", "models[0].chains.workers.periods[0].leave",
    "models[0].chains.at home.periods[1].from",
}  # fmt: skip
# other keys that may be blamed instead: of a pair, either may be the one that is missing
PAIRS = {
    "houses[1].meters": "houses[1].meters",
    "mqtt.prices": "mqtt.home_assistant",
    "policy.horizon": "policy.epsilon_t",
    "learned.homes": "learned.provenance",
    "learned.epsilon": "learned.provenance",
}


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_sound(tmp_path: Path, name: str) -> None:
    content, load, _ = FILES[name]
    assert found_in(tmp_path, content, load) == []


@pytest.mark.parametrize("name", FILES)
@pytest.mark.sampled
def test_one_mistake_is_reported_once_at_its_key_and_line(tmp_path: Path, name: str) -> None:
    content, load, own = FILES[name]
    wrong, missed = [], set(REQUIRED)
    for change in changes(content):
        if change.keys[0] not in own:
            continue
        found = found_in(tmp_path, changed(content, change), load)
        keys = [key for key, _ in found]
        if change.kind == "missing":
            missed -= set(keys)
            if not keys or keys == [PAIRS.get(change.at, change.at)]:
                continue
        if keys != [change.at]:
            wrong.append((change, keys))
    assert not wrong, "\n".join(map(str, wrong))
    if name == "service":
        assert not missed


def independent(one: Change, other: Change) -> bool:
    """Whether each of two mistakes can be seen without the other's value."""
    if one.kind == "missing" or other.kind == "missing":
        return False
    a, b = one.keys, other.keys
    if ("format",) in (a, b):  # a file of another format is not read any further
        return False
    if a[: len(b)] == b or b[: len(a)] == a:
        return False
    pairs = ((one, other), (other, one))
    if any(c.keys[0] == "models" and d.keys[-1] == "chain" for c, d in pairs):
        return False  # a house's chain is one of the models'
    return not any(  # without its law a table's keys say nothing
        c.keys[-1] == "law" and d.keys[: len(c.keys) - 1] == c.keys[:-1] for c, d in pairs
    )


@pytest.mark.parametrize("name", ["zone", "service"])
def test_two_mistakes_are_both_reported_and_nothing_else(tmp_path: Path, name: str) -> None:
    content, load, _ = FILES[name]
    every, chosen, wrong = list(changes(content)), random.Random(1), []
    for _ in range(200):
        one, other = chosen.sample(every, 2)
        if not independent(one, other):
            continue
        found = found_in(tmp_path, changed(content, one, other), load)
        if sorted(key for key, _ in found) != sorted([one.at, other.at]):
            wrong.append((one, other, found))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_mistake_in_the_service_is_not_repeated_for_its_zones(tmp_path: Path) -> None:
    """A further zone file takes the service's times; where those are wrong it is not blamed."""
    oak = deepcopy(ZONE) | {"zone": {"id": "oak"}, "policy": {"epsilon": 0.5}}
    oak["houses"][0]["meters"], oak["houses"][1]["meters"] = ["a", "b"], ["c"]
    (tmp_path / "oak.toml").write_text(written(oak)[0])
    both = deepcopy(SERVICE)
    both["service"] |= {"zones": ["oak.toml"], "interval": "PT15M"}
    assert found_in(tmp_path, both, load_deployment) == []
    for key, value in (("interval", "PT1X"), ("begins", "soon"), ("grace", "x"), ("mode", 1)):
        change = Change("range", ("service", key), value)
        found = found_in(tmp_path, changed(both, change), load_deployment)
        assert [at for at, _ in found] == [change.at]


@pytest.mark.parametrize("interval", ["PT1H", "PT60M", "PT15M", "PT900S", "PT1H30M", "P1D", 1800])
def test_zone_and_service_files_take_the_same_intervals(
    tmp_path: Path, interval: str | int
) -> None:
    zone, service = deepcopy(ZONE), deepcopy(SERVICE)
    zone["service"] = {"interval": interval}
    service["service"] |= {"interval": interval}
    for content in (zone, service):
        content["houses"][0]["present"] = GAMMA
        for chain in content["models"][0]["chains"].values():
            for name in set(chain) & {"periods", "weekend"}:
                chain[name] = PERIODS[:1]
    assert found_in(tmp_path, zone, load_zone) == []
    alone = load_zone(tmp_path / "file.toml").seconds
    assert found_in(tmp_path, service, load_deployment) == []
    assert [one.seconds for one in load_deployment(tmp_path / "file.toml").zones] == [alone]


@pytest.mark.parametrize("interval", ["PT7M", "15min", "PT", 0, -900, 7000, 900.0, "PT0S", "P2D"])
def test_zone_and_service_files_refuse_the_same_intervals(
    tmp_path: Path, interval: str | float
) -> None:
    change = Change("range", ("service", "interval"), interval)
    for name in ("steps", "service"):
        content, load, _ = FILES[name]
        assert [key for key, _ in found_in(tmp_path, changed(content, change), load)] == [change.at]


def test_a_zone_file_knows_the_keys_of_a_service() -> None:
    assert set(keys_of(Service)) == set(keys_of(StepKeys)) | StepKeys.unread


def test_a_key_with_a_line_break_is_named_on_one_line(tmp_path: Path) -> None:
    content = deepcopy(ZONE)
    content["models"][0]["chains"]["a\\nb"] = {"home_at_start": 1.5, "periods": PERIODS}
    (tmp_path / "file.toml").write_text(written(content)[0])
    with pytest.raises(ConfigError) as caught:
        load_zone(tmp_path / "file.toml")
    (problem,) = caught.value.problems
    assert "\n" not in problem.message
    assert problem.message.startswith(r"models[0].chains.'a\nb'.home_at_start is 1.5; give")


def test_groups_of_one_zone_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgrid.files.settings.MOST_HOUSES", 2)
    ((key, _),) = found_in(tmp_path, SERVICE, load_deployment)
    assert key == "houses"
