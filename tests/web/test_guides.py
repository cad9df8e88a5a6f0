"""What consumers copy from the guides works against a running service, as it is written there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from hushgrid.cli import main
from hushgrid.files.service_file import load_deployment
from hushgrid.stores.clients import KINDS
from hushgrid.web.mqtt import topic_of
from tests.curator.setups import example
from tests.services import free_port
from tests.web import evcc
from tests.web.brokers import until
from tests.web.guides import DOCS, FEEDS, OPENADR, ROOT, blocks, read_by_evcc
from tests.web.openadr.setup import SECRET, World, world
from tests.web.running import found_by_discovery

FLOW = ROOT / "deploy" / "node-red" / "flow.json"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("guides")
    with world(folder, clients={"house-7": KINDS["ven"]}, fill=1200) as made:
        yield made


def here(text: str, service: World) -> str:
    return re.sub(r"(HOST|127\.0\.0\.1):8080", f"127.0.0.1:{service.server.port}", text)


def shell(text: str, **more: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    words = ["bash", "-euo", "pipefail", "-c", text]
    env = {**os.environ, "no_proxy": "127.0.0.1", **more}
    found = subprocess.run(words, capture_output=True, text=True, check=True, env=env, timeout=60)
    return found.stdout


def is_utc(text: str) -> bool:
    return text.endswith("Z") and datetime.fromisoformat(text).utcoffset() is not None


def test_curl(service: World) -> None:
    price, prices, table, stream = here(blocks(FEEDS, "sh")[0], service).strip().splitlines()
    assert json.loads(shell(price))["zone"] == "elm-street"
    assert set(json.loads(shell(prices))) >= {"published", "forecast", "next"}
    assert shell(table).startswith("start,end,price,currency,kind,total\n")
    first = shell(f"{stream.replace('curl', 'curl -s --max-time 2', 1)} || true")
    assert "event: price\ndata: {" in first


def evcc_blocks() -> list[dict[str, Any]]:
    """Every tariff of evcc in the guide."""
    texts = [one for one in blocks(FEEDS, "yaml") if "tariffs" in one]
    found = [yaml.safe_load(text)["tariffs"] for text in texts]
    return [one for each in found for name, one in each.items() if name in ("grid", "feedin")]


def test_evcc_keeps_no_price_beyond_a_minute() -> None:
    assert [sorted({"price", "forecast"} & set(one)) for one in evcc_blocks()] == [
        ["forecast"], ["forecast"], ["price"],
    ]  # fmt: skip
    for tariff in evcc_blocks():
        read_by_evcc(tariff)


def test_evcc(service: World) -> None:
    texts = [one for one in blocks(FEEDS, "yaml") if "tariffs" in one]
    grids = [yaml.safe_load(here(text, service))["tariffs"]["grid"] for text in texts]
    rows = httpx.get(grids[0]["forecast"]["uri"]).json()
    assert rows
    for row in rows:
        assert set(row) == {"start", "end", "value"}
        assert is_utc(row["start"])
        assert is_utc(row["end"])
        assert isinstance(row["value"], float)
    price = read_by_evcc(grids[1])
    found = httpx.get(price["uri"]).json()
    assert price["jq"] == ".total"
    assert found["total"] in [row["value"] for row in rows if row["start"] == found["start"]]


TEMPLATE = ROOT / "deploy" / "evcc"


def examples(template: dict[str, Any]) -> dict[str, str]:
    """What evcc's own test of templates fills in."""
    return {one["name"]: one["example"] for one in template["params"] if "example" in one}


def test_the_template_for_evcc_reads_the_prices(service: World) -> None:
    """By evcc's rules of templates, rendered as its test does and as a home has it."""
    template = yaml.safe_load((TEMPLATE / "hushgrid.yaml").read_text())
    assert (TEMPLATE / "hushgrid.yaml").stem == template["template"]
    expected = yaml.safe_load((TEMPLATE / "rendered.yaml").read_text())
    assert yaml.safe_load(evcc.rendered(template, **examples(template))) == expected
    with pytest.raises(AssertionError, match="missing zone"):
        evcc.rendered(template, uri="http://hushgrid.local:8080")
    for direction, path in (("grid", "/v1/evcc"), ("feedin", "/v1/evcc/feed_in")):
        values = {"uri": service.root, "zone": "elm-street", "direction": direction}
        tariff = yaml.safe_load(evcc.rendered(template, **values, tax="0.081"))
        assert tariff["tax"] == 0.081
        answer = httpx.get(read_by_evcc(tariff)["uri"])
        assert answer.content == httpx.get(f"{service.root}{path}?zone=elm-street").content
    odd = yaml.safe_load(evcc.rendered(template, uri="http://h", zone="Ulmenstraße 7&8"))
    assert odd["forecast"]["uri"] == "http://h/v1/evcc?zone=Ulmenstra%C3%9Fe+7%268"


def test_home_assistant(service: World) -> None:
    (text,) = (one for one in blocks(FEEDS, "yaml") if "rest:" in one)
    (rest,) = yaml.safe_load(here(text, service))["rest"]
    (sensor,) = rest["sensor"]
    found = httpx.get(rest["resource"]).json()
    assert sensor["value_template"] == "{{ value_json.total }}"
    assert isinstance(found["total"], float)
    assert set(sensor["json_attributes"]) <= set(found)
    assert sensor["unit_of_measurement"] == f"{found['currency']}/kWh"
    assert sensor["state_class"] == "measurement"


# for Home Assistant's Python: its schema of discovery, and its core with the block of the guide
HOME_ASSISTANT = """
import asyncio, json, sys
from homeassistant.components.mqtt.sensor import DISCOVERY_SCHEMA
from homeassistant.setup import async_setup_component
from pytest_homeassistant_custom_component.common import async_test_home_assistant

async def taken(discovery, rest):
    async with async_test_home_assistant() as hass:
        made = DISCOVERY_SCHEMA(discovery)
        assert await async_setup_component(hass, "rest", {"rest": rest})
        await hass.async_block_till_done(wait_background_tasks=True)
        states = [one.as_dict() for one in hass.states.async_all("sensor")]
        await hass.async_stop(force=True)
    return [sorted(map(str, made)), made["state_topic"], states]

print(json.dumps(asyncio.run(taken(*json.load(sys.stdin))), default=str))
"""


def test_home_assistant_of_any_version_has_the_entity_of_the_guide() -> None:
    discovery = found_by_discovery()
    (entity,) = re.findall(r"energy dashboard choose .* and `(sensor\.\w+)`\.", FEEDS)
    assert discovery["default_entity_id"] == f"sensor.{discovery['object_id']}" == entity


def test_home_assistant_itself_takes_discovery_and_block(service: World, tmp_path: Path) -> None:
    python = ROOT / ".venv-ha" / "bin" / "python"
    if not python.exists():
        pytest.skip("Home Assistant is not installed (make consumers, with Python 3.13)")
    (text,) = (one for one in blocks(FEEDS, "yaml") if "rest:" in one)
    rest, discovery = yaml.safe_load(here(text, service))["rest"], found_by_discovery()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", HOME_ASSISTANT],
        input=json.dumps([discovery, rest]),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    keys, topic, states = json.loads(done.stdout)
    assert topic == discovery["state_topic"]
    # the schema leaves out what it does not know: one id is for 2025.10 and later, one for before
    assert set(discovery) - set(keys) in ({"default_entity_id"}, {"object_id"}, set())
    (state,) = states
    found = httpx.get(rest[0]["resource"]).json()
    assert state["entity_id"] == "sensor.electricity_price"
    assert float(state["state"]) == found["total"]
    wanted = {name: found[name] for name in rest[0]["sensor"][0]["json_attributes"]}
    wanted |= {"unit_of_measurement": "EUR/kWh", "state_class": "measurement"}
    assert {name: state["attributes"].get(name) for name in wanted} == wanted


def test_mqtt_of_the_service_file(tmp_path: Path) -> None:
    (text,) = blocks(FEEDS, "toml")
    file = tmp_path / "service.toml"
    file.write_text(f"{example(1_767_571_200)}\n{text}")
    found = load_deployment(file).mqtt
    assert found is not None
    assert (found.tls, found.username, found.home_assistant) == (True, "hushgrid", True)
    rows = dict(re.findall(r"^\| `(hushgrid/\S+)` \| (.*) \|$", FEEDS, re.M))
    topic = topic_of(found.prices or "", "elm-street")
    base = topic.removesuffix("/price")
    assert list(rows)[:3] == [topic, f"{base}/next", f"{base}/forecast"]


def test_charges_of_a_file(tmp_path: Path) -> None:
    (text,) = (one for one in blocks((DOCS / "files.md").read_text(), "toml") if "seasons" in one)
    file = tmp_path / "service.toml"
    file.write_text(f"{example(1_767_571_200)}\n{text}")
    (zone,) = load_deployment(file).zones
    winter, summer = (
        int(datetime(2026, month, 7, 11, 30, tzinfo=UTC).timestamp()) for month in (1, 7)
    )
    assert zone.time_zone == "Europe/Zurich"
    assert zone.total(0.2, winter) == pytest.approx((0.2 + 0.11) * 1.081)
    assert zone.total(0.2, summer) == pytest.approx((0.2 + 0.05) * 1.081)
    assert zone.total(0.2, winter - 8 * 3600) == pytest.approx((0.2 + 0.07) * 1.081)


class Posted(NamedTuple):
    """What a consumer was sent."""

    path: str
    headers: Mapping[str, str]
    body: Any


def posted(name: str, service: World) -> Posted:
    """What the block of the guide with the name of a consumer sends to it."""
    came: list[Posted] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append(Posted(self.path, dict(self.headers), json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    (text,) = (one for one in blocks(FEEDS, "sh") if name in one)
    with HTTPServer(("127.0.0.1", 0), Taking) as consumer:
        thread = threading.Thread(target=consumer.serve_forever)
        thread.start()
        place = f"127.0.0.1:{consumer.server_port}"
        try:
            shell(here(text, service).replace(f"{name}:5000", place), TOKEN="a token")
        finally:
            consumer.shutdown()
            thread.join()
    (sent,) = came
    assert sent.headers["Content-Type"] == "application/json"
    return sent


def test_emhass(service: World) -> None:
    path, _, body = posted("EMHASS", service)
    assert path == "/action/dayahead-optim"
    assert set(body) == {"load_cost_forecast"}
    assert body["load_cost_forecast"]
    assert all(is_utc(time) for time in body["load_cost_forecast"])
    assert all(isinstance(rate, float) for rate in body["load_cost_forecast"].values())
    # EMHASS's rule for values by time: each holds until the next one, from before the first step on
    by_time = {datetime.fromisoformat(at): one for at, one in body["load_cost_forecast"].items()}
    assert list(by_time) == sorted(by_time)
    steps = [service.clock.now() + 1800 * step for step in range(48)]
    held = [[rate for at, rate in by_time.items() if at.timestamp() <= step] for step in steps]
    assert all(held), "a day of half hours has a price in each"
    assert held[0][-1] == httpx.get(f"{service.root}/v1/price?zone=elm-street").json()["total"]
    assert max(by_time).timestamp() + 900 >= steps[-1]


def test_flexmeasures(service: World) -> None:
    sent = posted("FLEXMEASURES", service)
    assert sent.path == "/api/v3_0/sensors/1/data"
    assert sent.headers["Authorization"] == "a token"
    assert set(sent.body) == {"values", "start", "duration", "unit"}
    rows = httpx.get(f"{service.root}/v1/evcc?zone=elm-street").json()
    assert sent.body["values"] == [row["value"] for row in rows]
    assert sent.body["start"] == rows[0]["start"]


def test_shapes_of_markets(service: World) -> None:
    """The commands of the guide, and the day that they are asked for."""
    for name, days in (
        ("vse", ("2026-01-31", "2026-02-01")),
        ("getPricing", ("20260131", "20260201")),
    ):
        (text,) = (one for one in blocks(FEEDS, "sh") if name in one)
        assert all(day in text for day in days)
        now = datetime.fromtimestamp(service.clock.now(), UTC)
        pattern = "%Y%m%d" if name == "getPricing" else "%Y-%m-%d"
        for day, shift in zip(days, (-1, 1), strict=True):
            text = text.replace(day, f"{now + timedelta(shift):{pattern}}")
        body = json.loads(shell(here(text, service)))
        if name == "vse":
            assert body["prices"][-1]["integrated"][0]["unit"] == "EUR_kWh"
        else:
            assert body["data"][0]["priceHeader"]["priceCurveName"] == "elm-street"


# for EMHASS's Python: its own judgement of the values, and its own prices of each half hour
EMHASS = """
import json, sys
import pandas as pd
from emhass.utils import _align_runtime_forecast_mapping, describe_invalid_forecast_value

body, begins = json.load(sys.stdin)
key, costs = next(iter(body.items()))
dates = pd.date_range(pd.Timestamp(begins, unit="s", tz="UTC").floor("30min"), periods=48,
                      freq="30min").tz_convert("Europe/Zurich")
step = pd.Timedelta("30min")
print(json.dumps([key, describe_invalid_forecast_value(key, costs.items()),
                  list(_align_runtime_forecast_mapping(costs, dates, step, dates.tz))]))
"""


@pytest.mark.soak
def test_emhass_itself_takes_the_answer(service: World) -> None:
    python = ROOT / ".venv-emhass" / "bin" / "python"
    if not python.exists():
        pytest.skip("EMHASS is not installed (make consumers, with Python 3.12)")
    body = httpx.get(f"{service.root}/v1/emhass?zone=elm-street").json()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", EMHASS],
        input=json.dumps([body, service.clock.now()]),
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    key, invalid, costs = json.loads(done.stdout.splitlines()[-1])
    assert (key, invalid, len(costs)) == ("load_cost_forecast", None, 48)
    begins = int(service.clock.now()) // 1800 * 1800
    rates = {datetime.fromisoformat(at).timestamp(): one for at, one in body[key].items()}
    for i, cost in enumerate(costs):  # of two quarter hours
        own = [rates[begins + 1800 * i + s] for s in (0, 900) if begins + 1800 * i + s in rates]
        assert min(own) <= cost + 1e-9 <= max(own) + 2e-9


def test_node_reds_flow_names_what_there_is(service: World) -> None:
    """Each wire ends at a node, and the number it takes is there."""
    text = FLOW.read_text()
    nodes = {one["id"]: one for one in json.loads(here(text, service))}
    wires = [end for one in nodes.values() for ends in one.get("wires", []) for end in ends]
    assert set(wires) == set(nodes) - {"hushgrid", "hushgrid-ask"}
    found = httpx.get(nodes["hushgrid-get"]["url"]).json()
    (rule,) = nodes["hushgrid-price"]["rules"]
    assert isinstance(found[rule["to"].removeprefix("payload.")], float)


@pytest.mark.soak
def test_node_red_runs_the_flow(service: World, tmp_path: Path) -> None:
    """As it is written, without a screen; what it shows goes to its log as well."""
    own = ROOT / ".node-red" / "node_modules" / ".bin" / "node-red"
    program = shutil.which("node-red") or (str(own) if own.exists() else None)
    if program is None:
        pytest.skip("Node-RED is not installed (make consumers)")
    text = FLOW.read_text()
    flow, log = tmp_path / "flow.json", tmp_path / "log"
    flow.write_text(here(text, service))
    words = [program, "--no-telemetry", "--userDir", str(tmp_path), "--port", str(free_port())]
    wanted = str(httpx.get(f"{service.root}/v1/price?zone=elm-street").json()["total"])
    with log.open("wb") as out:
        running = subprocess.Popen([*words, str(flow)], stdout=out, stderr=out)
    try:
        assert until(lambda: f"[debug:shown] {wanted}\n" in log.read_text(), 120), log.read_text()
    finally:
        running.terminate()
        running.wait(30)


def test_octopus(service: World) -> None:
    (path,) = re.findall(r"`(/v1/octopus\?[^`]*)`", FEEDS)
    found = httpx.get(f"{service.root}{path}").json()
    assert found["count"] == len(found["results"]) > 0
    wanted = {"value_exc_vat", "value_inc_vat", "valid_from", "valid_to"}
    assert all(set(row) == wanted for row in found["results"])
    starts = [row["valid_from"] for row in found["results"]]
    assert starts == sorted(starts, reverse=True)


def test_openadr(
    service: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.toml").write_text(example(1_767_571_200))
    public, own = (here(one, service) for one in blocks(OPENADR, "sh")[:2])
    programs, events = (json.loads(shell(line)) for line in public.strip().splitlines())
    assert programs[0]["id"] == "elm-street"
    assert [len(events), events[0]["objectType"]] == [1, "EVENT"]
    add, rest = own.split("\n", 1)
    token, register = rest.split("\n", 1)
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(add, comments=True)[1:])
    assert not ended.value.code
    assert "house-7" in capsys.readouterr().out
    got = json.loads(shell(token, SECRET=SECRET))
    assert set(got) == {"access_token", "token_type", "expires_in", "scope"}
    made = json.loads(shell(register, TOKEN=got["access_token"]))
    assert (made["objectType"], made["venName"]) == ("VEN", "house 7")
