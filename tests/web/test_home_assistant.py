"""The component for Home Assistant: its client, its texts, and Home Assistant itself with it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import httpx
import pytest
import yaml

from tests.services import free_port
from tests.web.guides import ROOT
from tests.web.openadr.setup import World, world

PLACE = ROOT / "deploy" / "home-assistant"
CODE = PLACE / "custom_components" / "hushgrid"
TEXTS = {path.stem: json.loads(path.read_text()) for path in (CODE / "translations").iterdir()}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("home-assistant"), clients={}, fill=12) as made:
        yield made


@pytest.fixture(scope="module")
def client() -> ModuleType:
    """The one module that needs no Home Assistant."""
    spec = importlib.util.spec_from_file_location("hushgrid_client", CODE / "client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(
    client: ModuleType, url: str, zone: str, ask: Callable[[Any], Awaitable[Any]]
) -> dict[str, Any]:
    async def reading() -> Any:
        async with aiohttp.ClientSession() as session:
            return await ask(client.Client(session, url, zone))

    return dict(asyncio.run(reading()))


def test_the_client_reads_price_and_lists(service: World, client: ModuleType) -> None:
    url = f" {service.root}/"  # as people paste it
    price = read(client, url, "elm-street", lambda it: it.price())
    assert price == httpx.get(f"{service.root}/v1/price?zone=elm-street").json()
    lists = read(client, url, "elm-street", lambda it: it.prices(None, None))
    assert lists == httpx.get(f"{service.root}/v1/prices?zone=elm-street").json()
    assert lists["published"]
    assert lists["forecast"]
    start, end = lists["published"][2]["start"], lists["published"][5]["start"]
    for first in (start, start.replace("Z", "+00:00")):
        part = read(client, url, "elm-street", lambda it, first=first: it.prices(first, end))
        assert part["published"] == lists["published"][2:5]


def test_the_client_says_why_it_cannot_read(service: World, client: ModuleType) -> None:
    root, nowhere = service.root, f"http://127.0.0.1:{free_port()}"
    for url, zone, ask, key in (
        (root, "none", lambda it: it.price(), "unknown_zone"),
        (root, "", lambda it: it.price(), "unknown_zone"),  # there are two
        (root, "elm-street", lambda it: it.prices("soon", None), "refused"),
        (nowhere, "elm-street", lambda it: it.price(), "cannot_connect"),
        ("no address", "elm-street", lambda it: it.price(), "cannot_connect"),
        (f"{root}/how", "elm-street", lambda it: it.price(), "cannot_connect"),
    ):
        with pytest.raises(client.AnswerError) as raised:
            read(client, url, zone, ask)
        assert raised.value.key == key, (url, zone)
        assert key in TEXTS["en"]["config"]["error"]
        assert key in TEXTS["en"]["exceptions"]


def test_its_files_are_laid_out_for_hacs() -> None:
    """https://hacs.xyz/docs/publish/integration and Home Assistant's rules of a manifest."""
    assert {"name", "homeassistant"} <= set(json.loads((PLACE / "hacs.json").read_text()))
    assert (PLACE / "README.md").exists()
    assert (CODE / "brand" / "icon.png").read_bytes()[16:24] == bytes((0, 0, 1, 0, 0, 0, 1, 0))
    assert [path.name for path in (PLACE / "custom_components").iterdir()] == ["hushgrid"]
    manifest = json.loads((CODE / "manifest.json").read_text())
    needed = {"domain", "documentation", "issue_tracker", "codeowners", "name", "version"}
    assert needed <= set(manifest)
    assert list(manifest) == ["domain", "name", *sorted(set(manifest) - {"domain", "name"})]
    assert manifest["domain"] == CODE.name
    assert manifest["requirements"] == []
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert manifest["config_flow"] == (CODE / "config_flow.py").exists()


def keys(text: Any) -> Any:
    return {name: keys(part) for name, part in text.items()} if isinstance(text, dict) else None


def test_every_language_has_every_text() -> None:
    assert set(TEXTS) == {"de", "en", "fr"}
    assert all(keys(text) == keys(TEXTS["en"]) for text in TEXTS.values())
    actions = yaml.safe_load((CODE / "services.yaml").read_text())
    assert {name: set(one["fields"]) for name, one in actions.items()} == {
        name: set(one["fields"]) for name, one in TEXTS["en"]["services"].items()
    }
    code = (CODE / "__init__.py").read_text()
    schema = re.findall(r'vol\.\w+\("(\w+)"\)', code)
    assert schema == list(actions["get_prices"]["fields"])
    assert set(re.findall(r'translation_key="(\w+)"', code)) <= set(TEXTS["en"]["exceptions"])


def test_its_sensors_are_fields_of_the_price(service: World) -> None:
    text = (CODE / "sensor.py").read_text()
    fields = dict(re.findall(r'"(\w+)": "(\w+)"', text.partition("FIELDS = ")[2].partition("}")[0]))
    assert set(fields) == set(TEXTS["en"]["entity"]["sensor"])
    attributes = re.findall(r'"(\w+)"', text.partition("ATTRIBUTES = ")[2].partition(")")[0])
    price = httpx.get(f"{service.root}/v1/price?zone=elm-street").json()
    assert {fields["price"], *attributes} <= set(price)


def test_its_code_is_python_of_home_assistant() -> None:
    for path in CODE.glob("*.py"):
        compile(path.read_text(), path.name, "exec")
    assert sum(len(path.read_text().splitlines()) for path in CODE.glob("*.py")) < 300


# for Home Assistant's Python: its own core sets the component up as a user does, reads the state
# again without a service, and asks for the lists
HOME_ASSISTANT = """
import asyncio, json, os, sys
sys.path.insert(0, sys.argv[1])
from homeassistant import loader
from homeassistant.exceptions import HomeAssistantError
from homeassistant.setup import async_setup_component
from pytest_homeassistant_custom_component.common import async_test_home_assistant

async def used(url):
    async with async_test_home_assistant(config_dir=os.getcwd()) as hass:
        hass.data.pop(loader.DATA_CUSTOM_COMPONENTS, None)
        assert await async_setup_component(hass, "hushgrid", {})
        flows, said = hass.config_entries.flow, []
        for zone in ("none", "elm-street", "elm-street"):
            form = await flows.async_init("hushgrid", context={"source": "user"})
            end = await flows.async_configure(form["flow_id"], {"url": url, "zone": zone})
            said.append([form["type"], end["type"], end.get("errors"), end.get("reason")])
            if end["type"] == "form":
                flows.async_abort(form["flow_id"])
        await hass.async_block_till_done()
        (entry,) = hass.config_entries.async_entries("hushgrid")
        states = [one.as_dict() for one in hass.states.async_all("sensor")]
        call = {"config_entry": entry.entry_id, "start": "2025-06-15T15:00:00+00:00"}
        lists = await hass.services.async_call(
            "hushgrid", "get_prices", call, blocking=True, return_response=True)
        try:
            await hass.services.async_call("hushgrid", "get_prices", call | {
                "end": "2025-06-15T14:00:00+00:00"}, blocking=True, return_response=True)
        except HomeAssistantError as error:
            said.append(error.translation_key)
        coordinator = entry.runtime_data
        said.append(coordinator.update_interval.total_seconds())
        coordinator.client.url = "http://127.0.0.1:9"
        await coordinator.async_refresh()
        said.append(hass.states.get(states[0]["entity_id"]).state)
        assert await hass.config_entries.async_unload(entry.entry_id)
        await hass.async_stop(force=True)
    return [said, states, lists]

print(json.dumps(asyncio.run(used(sys.argv[2])), default=str))
"""


def test_home_assistant_itself_runs_the_component(service: World, tmp_path: Path) -> None:
    python = ROOT / ".venv-ha" / "bin" / "python"
    if not python.exists():
        pytest.skip("Home Assistant is not installed (make consumers, with Python 3.13)")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-c", HOME_ASSISTANT, str(PLACE), service.root],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=env, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said, (state,), lists = json.loads(done.stdout.splitlines()[-1])
    assert said == [
        ["form", "form", {"base": "unknown_zone"}, None],
        ["form", "create_entry", None, None],
        ["form", "abort", None, "already_configured"],
        "refused", 5.0, "unavailable",  # its clock is behind: it asks again soon
    ]  # fmt: skip
    price = httpx.get(f"{service.root}/v1/price?zone=elm-street").json()
    assert state["entity_id"] == "sensor.hushgrid_elm_street_electricity_price"
    assert float(state["state"]) == price["total"]
    # the energy dashboard wants a number, in a currency for a kWh (components/energy/validate.py)
    assert state["attributes"]["unit_of_measurement"] == "EUR/kWh"
    assert state["attributes"]["state_class"] == "measurement"
    assert state["attributes"]["next"] == price["next"]
    wanted = httpx.get(f"{service.root}/v1/prices?zone=elm-street&from=2025-06-15T15:00:00Z").json()
    assert lists == wanted


def test_the_guide_names_its_entity() -> None:
    guide = (ROOT / "docs" / "feeds.md").read_text()
    assert f"`{PLACE.relative_to(ROOT)}`" in guide
    assert "sensor.hushgrid_elm_street_electricity_price" in (PLACE / "README.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", (PLACE / "README.md").read_text(), re.S)
    assert yaml.safe_load(text)["action"] == "hushgrid.get_prices"
