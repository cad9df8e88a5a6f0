"""Example values that are still in a service file: those of the template, and others like them."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hushgrid.errors import Problem
from hushgrid.live.example import example
from hushgrid.tables import Table, shown
from hushgrid.tomlfile import TomlFile

_WORDS = re.compile(
    r"\b(change[ _-]?me|todo|tbd|fixme|placeholder|nobody yet|this is an example|your name)\b",
    re.I,
)
# names that belong to nobody (RFC 2606, RFC 6761)
_NOWHERE = re.compile(
    r"://([^/]*\.)?(example|example\.(com|net|org)|invalid|test)(:\d+)?(/|$)", re.I
)
_SECRETS = ("", "change me", "changeme", "change-me", "secret", "token", "password", "hushgrid")
_DIGESTS = {hashlib.sha256(word.encode()).hexdigest(): word for word in _SECRETS}


def placeholders(path: Path) -> list[Problem]:
    """Every value of a service file, and of the zone files it names, that is only an example."""
    main = TomlFile(path)
    service = main.content.get("service")
    names = service.get("zones", ()) if isinstance(service, Mapping) else ()
    found: list[Problem] = []
    for file in (main, *(TomlFile(main.folder / name) for name in names)):
        for key, value in _of_zone(file.content):
            fix = "which is an example's; give your own"
            file.faults.add(key, f"{key} is {value}, {fix}.")
        for key, value in _of_service(file.content):
            file.faults.add(key, f"{key} is {value}, which belongs to nobody; give your own.")
        found += file.problems()
    return found


def _of_zone(content: Table) -> Iterator[tuple[str, str]]:
    """What a zone of the template has, and texts that say so themselves."""
    template = tomllib.loads(example(0))
    policy = content.get("policy", {})
    texts = {"policy.eta_set_by": policy.get("eta_set_by", "") if policy.get("eta", 1) < 1 else ""}
    first = template["houses"][0]["meters"]
    for i, group in enumerate(content.get("houses", ())):
        texts[f"houses[{i}].provenance"] = group.get("provenance", "")
        meters = group.get("meters")
        if isinstance(meters, Mapping) and {"first": 1, **meters} == first:
            yield f"houses[{i}].meters", f'{{prefix = "{first["prefix"]}", first = 1}}'
    for i, model in enumerate(content.get("models", ())):
        texts[f"models[{i}].provenance"] = model.get("provenance", "")
        texts[f"models[{i}].structural_zeros"] = model.get("structural_zeros", "")
        if any(model.get("chains") == one["chains"] for one in template["models"]):
            yield f"models[{i}].chains", "the occupancy of the template"
    for key, text in texts.items():
        if _WORDS.search(str(text)):
            yield key, shown(text)


def _of_service(content: Table) -> Iterator[tuple[str, str]]:
    """Addresses of nobody, and tokens that anybody would try."""
    openadr: Any = content.get("openadr", {})
    for key in ("url", "mqtt_uris"):
        given = openadr.get(key, ())
        for address in [given] if isinstance(given, str) else given:
            if _NOWHERE.search(address):
                yield f"openadr.{key}", shown(address)
    for digest in content.get("http", {}).get("token_digests", ()):
        if digest.lower() in _DIGESTS:
            word = _DIGESTS[digest.lower()]
            yield "http.token_digests", f"the digest of the token {word!r}"
