"""What consumers copy from the guides works against a running service, as it is written there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from hushgrid.service.access.clients import KINDS
from tests.service.openadr.setup import SECRET, World, world

DOCS = Path(__file__).parents[2] / "docs"
FEEDS, OPENADR = (DOCS / "feeds.md").read_text(), (DOCS / "openadr.md").read_text()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("guides"), clients={"house-7": KINDS["ven"]}) as made:
        yield made


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.S)


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
    assert shell(table).startswith("start,end,price,currency,kind\n")
    first = shell(f"{stream.replace('curl', 'curl -s --max-time 2', 1)} || true")
    assert "event: price\ndata: {" in first


def test_evcc(service: World) -> None:
    (text,) = (one for one in blocks(FEEDS, "yaml") if "tariffs" in one)
    grid = yaml.safe_load(here(text, service))["tariffs"]["grid"]
    assert grid["type"] == "custom"
    rows = httpx.get(grid["forecast"]["uri"]).json()
    assert rows
    for row in rows:
        assert set(row) == {"start", "end", "value"}
        assert is_utc(row["start"])
        assert is_utc(row["end"])
        assert isinstance(row["value"], float)
    (line,) = re.findall(r"`price: (\{.*?\})`", FEEDS)
    price = yaml.safe_load(here(line, service))
    found = httpx.get(price["uri"]).json()
    assert price["jq"] == ".price"
    assert isinstance(found["price"], float)


def test_home_assistant(service: World) -> None:
    (text,) = (one for one in blocks(FEEDS, "yaml") if "rest:" in one)
    (rest,) = yaml.safe_load(here(text, service))["rest"]
    (sensor,) = rest["sensor"]
    found = httpx.get(rest["resource"]).json()
    assert sensor["value_template"] == "{{ value_json.price }}"
    assert isinstance(found["price"], float)
    assert set(sensor["json_attributes"]) <= set(found)
    assert sensor["unit_of_measurement"] == f"{found['currency']}/kWh"


def test_emhass(service: World) -> None:
    came: list[Any] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    (text,) = (one for one in blocks(FEEDS, "sh") if "EMHASS" in one)
    with HTTPServer(("127.0.0.1", 0), Taking) as emhass:
        thread = threading.Thread(target=emhass.serve_forever)
        thread.start()
        try:
            shell(here(text, service).replace("EMHASS:5000", f"127.0.0.1:{emhass.server_port}"))
        finally:
            emhass.shutdown()
            thread.join()
    ((path, media, body),) = came
    assert (path, media) == ("/action/dayahead-optim", "application/json")
    assert set(body) == {"load_cost_forecast"}
    assert body["load_cost_forecast"]
    assert all(is_utc(time) for time in body["load_cost_forecast"])
    assert all(isinstance(rate, float) for rate in body["load_cost_forecast"].values())


def test_octopus(service: World) -> None:
    (path,) = re.findall(r"`(/v1/octopus\?[^`]*)`", FEEDS)
    found = httpx.get(f"{service.root}{path}").json()
    assert found["count"] == len(found["results"]) > 0
    wanted = {"value_exc_vat", "value_inc_vat", "valid_from", "valid_to"}
    assert all(set(row) == wanted for row in found["results"])
    starts = [row["valid_from"] for row in found["results"]]
    assert starts == sorted(starts, reverse=True)


def test_openadr(service: World) -> None:
    public, own = (here(one, service) for one in blocks(OPENADR, "sh")[:2])
    programs, events = (json.loads(shell(line)) for line in public.strip().splitlines())
    assert programs[0]["id"] == "elm-street"
    assert [len(events), events[0]["objectType"]] == [1, "EVENT"]
    _, token, register = own.split("\n", 1)[0], *own.split("\n", 1)[1].split("\n", 1)
    got = json.loads(shell(token, SECRET=SECRET))
    assert set(got) == {"access_token", "token_type", "expires_in", "scope"}
    made = json.loads(shell(register, TOKEN=got["access_token"]))
    assert (made["objectType"], made["venName"]) == ("VEN", "house 7")
