"""evcc as it reads a tariff: requests and expressions of its templates, its times and slots."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus
from zoneinfo import ZoneInfo

JQ = shutil.which("jq")
PLACE = ZoneInfo("Europe/Zurich")
SLOT = 900  # [s]
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")  # as Go reads it


class Template(NamedTuple):
    """What a template of evcc asks for at an instant [UTC], and its expression."""

    query: Callable[[datetime, str], str]
    jq: str


def _rows(start: str, end: str, value: str, then: str = "") -> str:
    return f"[.prices[] | {{start: ({start}), end: ({end}), value: ({value})}}{then}] | tostring"


def _hour(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H}:00:00"


def _ckw(now: datetime, tariff: str) -> str:
    first, last = (now.astimezone(PLACE) + timedelta(days) for days in (-1, 3))
    stamps = f"start_timestamp={first:%Y-%m-%d}T00:00:00Z&end_timestamp={last:%Y-%m-%d}T00:00:00Z"
    return f"tariff_type=integrated&tariff_name={tariff}&{stamps}"


def _ekz(now: datetime, tariff: str) -> str:
    first = now.astimezone(PLACE)  # always with the offset of summer, and the end without any
    stamps = f"{_hour(first)}%2B02%3A00&end_timestamp={_hour(first + timedelta(2))}"
    return f"tariff_name={tariff}&start_timestamp={stamps}"


def _groupe_e(now: datetime, tariff: str) -> str:
    first, last = now - timedelta(hours=1), now + timedelta(2)
    del tariff
    return f"start_timestamp={_hour(first)}Z&end_timestamp={_hour(last)}Z"


INTEGRATED = '.integrated[] | select(.unit == "CHF_kWh") | .value'
PLAIN = (".start_timestamp", ".end_timestamp")
TEMPLATES = {
    "ckw": Template(_ckw, _rows(*(f'{at} | sub("Z$"; ":00Z")' for at in PLAIN), INTEGRATED)),
    "ekz": Template(_ekz, _rows(*PLAIN, INTEGRATED)),
    "groupe-e": Template(_groupe_e, _rows(*PLAIN, INTEGRATED)),
    "bkw": Template(
        lambda _now, _tariff: "",
        _rows(
            *PLAIN, INTEGRATED.replace("integrated[]", "feed_in[]?"), " | select(.value != null)"
        ),
    ),
}


def query(name: str, now: float, tariff: str) -> str:
    """The query of a template, to which only the tariff's name is added where it has none."""
    made = TEMPLATES[name].query(datetime.fromtimestamp(now, UTC), tariff)
    return made if "tariff_name" in made else f"{made}&zone={quote(tariff)}".lstrip("&")


def slots(name: str, bodies: Sequence[bytes]) -> Iterator[dict[int, float]]:
    """Prices by the start of a quarter hour [UTC s], as evcc has them of each body."""
    assert JQ is not None
    words = [JQ, "-r", TEMPLATES[name].jq]
    done = subprocess.run(words, input=b"\n".join(bodies), capture_output=True, check=True)
    for line in done.stdout.splitlines():
        found: dict[int, float] = {}
        for row in json.loads(line):
            assert set(row) == {"start", "end", "value"}
            assert RFC_3339.fullmatch(row["start"]), row
            assert RFC_3339.fullmatch(row["end"]), row
            stamps = (datetime.fromisoformat(row[key]) for key in ("start", "end"))
            start, end = (int(stamp.timestamp()) for stamp in stamps)
            assert start % SLOT == 0 < end - start
            for slot in range(start, end, SLOT):
                assert slot not in found, "rates overlap"
                found[slot] = row["value"]
        yield found


# ---- a template by evcc's own rules (util/templates: template.go, types.go, defaults.yaml)

TOP = {
    "template", "deprecated", "auth", "group", "covers", "link", "products", "capabilities",
    "countries", "requirements", "caveats", "discovery", "params", "render",
}  # fmt: skip
PARAM = {
    "name", "description", "help", "preset", "required", "mask", "private", "advanced",
    "deprecated", "default", "example", "value", "values", "unit", "usages", "type", "choice",
    "service", "pattern",
}  # fmt: skip
TYPES = {"string", "bool", "choice", "chargemodes", "duration", "float", "int", "list", "zones"}
REQUIREMENTS = {"eebus", "mqtt", "sponsorship", "skiptest"}
GROUPS = {"price", "co2", "solar", "temperature"}
# what its defaults say of the parameters that are named here
DEFAULTS: dict[str, dict[str, Any]] = {
    "uri": {"description": {"generic": "URI"}, "private": True},
    "interval": {"type": "duration", "description": {"de": "Intervall", "en": "Interval"}},
}
PRESETS: dict[str, list[dict[str, Any]]] = {
    "tariff-base": [
        {"name": name, "advanced": True, "description": {"generic": name}}
        for name in ("charges", "chargesZones", "tax", "formula")
    ]
}
INCLUDED = {  # without charges between days, hours and months
    "base": "".join(
        f"{{{{ if .{name} }}}}\n{name}: {{{{ .{name} }}}}{{{{ end }}}}"
        for name in ("charges", "tax", "formula")
    )
}


def validated(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of a template that evcc would take, presets and defaults among them."""
    assert set(template) <= TOP
    assert template["group"] in GROUPS
    assert all(re.fullmatch("[A-Z]{2}", code) for code in template["countries"])
    assert set(template["requirements"].get("evcc", ())) <= REQUIREMENTS
    products = template["products"]
    assert products
    assert all(product["brand"] for product in products)
    links = [template.get("link", ""), *(product.get("link", "") for product in products)]
    assert all(link.startswith("https://") for link in links if link)
    params: list[dict[str, Any]] = []
    for written in template["params"]:
        assert set(written) <= PARAM, written
        names = {param["name"] for param in params}
        if "preset" in written:
            preset = PRESETS[written["preset"]]
            assert not names & {param["name"] for param in preset}, "the preset comes first"
            params += preset
            continue
        assert written["name"] not in names
        params.append(DEFAULTS.get(written["name"], {}) | written)
    for param in params:
        assert param.get("type", "string") in TYPES
        assert not (param.get("mask") and param.get("private"))
        description = param["description"]
        for language in ("de", "en"):
            text = description.get(language) or description.get("generic", "")
            assert 0 < len(text.encode()) <= 50, param
        if "choice" in param:
            assert param["default"] in param["choice"]
    return params


def rendered(template: dict[str, Any], **values: str) -> str:
    """The configuration of a template, for what its text needs of Go's templates."""
    params = validated(template)
    names = {param["name"] for param in params}
    assert set(values) <= names
    filled = {param["name"]: str(param.get("default", "")) for param in params} | values
    for param in params:
        assert filled[param["name"]] or not param.get("required"), f"missing {param['name']}"
    text = re.sub(
        r'\{\{ include "(\w+)" \. \}\}', lambda found: INCLUDED[found[1]], template["render"]
    )
    assert set(re.findall(r"\.(\w+)(?= |\}\})", text)) <= names
    text = re.sub(
        r'\{\{ if (?:eq )?\.(\w+)(?: "(\w+)")? \}\}(.*?)\{\{ end \}\}',
        lambda found: found[3] * (filled[found[1]] == (found[2] or filled[found[1]] or None)),
        text,
        flags=re.S,
    )
    text = re.sub(r"\{\{ urlquery \.(\w+) \}\}", lambda found: quote_plus(filled[found[1]]), text)
    text = re.sub(r"\{\{ \.(\w+) \}\}", lambda found: filled[found[1]], text)
    assert "{{" not in text
    return text
