"""The service file that `hushgrid init` writes, and the values of it that are still in another."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hushgrid._numbers import Floats
from hushgrid.errors import Problem
from hushgrid.files.toml import Table, TomlFile, display
from hushgrid.learn.habits import Habits

KEY_FILE, BLOCK_KEYS = "hushgrid.key", "meters.sqlite.keys"  # as the example has them


def example(begins: int) -> str:
    """The service file that `hushgrid init` writes.

    Args:
        begins: Start of its first interval [UTC epoch s].

    Returns:
        TOML.
    """
    source = files("hushgrid.service").joinpath("example.toml").read_text("utf-8")
    at = datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return source.replace("{begins}", at)


def with_survey(
    text: str, houses: Mapping[int, int], chains: Mapping[str, Mapping[int, Habits]]
) -> str:
    """The example with a survey's chains in place of its own.

    Args:
        text: The example.
        houses: Houses by number of residents.
        chains: Chains of the example's intervals by source and number of residents.

    Returns:
        TOML.
    """
    head, _, rest = text.partition("[[houses]]\n")
    head = re.sub(r"(?m)^# The placeholder .*\n", "", head)
    head = head.replace("a placeholder for occupancy", "occupancy by a survey")
    group = rest.partition("[[models]]\n")[0]
    parts, first = [head], 1
    for n, count in houses.items():
        own = re.sub(r"(?m)^count = .*$", f"count = {count}", group)
        own = re.sub(r"first = .*", f"first = {first} }}", own)
        parts.append("[[houses]]\n" + own.replace('"household"', f'"residents-{n}"'))
        first += count
    for source, found in chains.items():
        stated = json.dumps("; ".join(one.source for one in found.values()), ensure_ascii=False)
        parts.append(f"[[models]]\nname = {json.dumps(source)}\nprovenance = {stated}\n\n")
        for n, one in found.items():
            parts.append(f"[models.chains.residents-{n}]\nhome_at_start = {one.home[0]:.6g}\n")
            for key, day in zip(("periods", "weekend"), np.split(one.transition, 2), strict=True):
                parts.append(f"{key} = [\n{''.join(_periods(day))}]\n")
            parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def _periods(day: Floats) -> Iterator[str]:
    for i, a in enumerate(day):
        hour, minute = divmod(i * 1440 // len(day), 60)
        at = f"{hour:02d}:{minute:02d}"
        yield f'  {{ from = "{at}", leave = {a[1, 0]:.6g}, come = {a[0, 1]:.6g} }},\n'


# ---- example values that are still in a service file

_WORDS = re.compile(
    r"\b(change[ _-]?me|todo|tbd|fixme|placeholder|nobody yet|this is an example|your name)\b",
    re.I,
)
# names reserved for documentation and tests (RFC 2606, RFC 6761)
_NOWHERE = re.compile(
    r"://([^/]*\.)?(example|example\.(com|net|org)|invalid|test)(:\d+)?(/|$)", re.I
)
_SECRETS = ("", "change me", "changeme", "change-me", "secret", "token", "password", "hushgrid")
_DIGESTS = {hashlib.sha256(word.encode()).hexdigest(): word for word in _SECRETS}


def placeholders(path: Path) -> list[Problem]:
    """Every value of a service file, and of the zone files it names, that is only an example.

    Args:
        path: The service file.

    Returns:
        A problem for each, with its line.
    """
    main = TomlFile(path)
    service = main.content.get("service")
    names = service.get("zones", ()) if isinstance(service, Mapping) else ()
    found: list[Problem] = []
    for file in (main, *(TomlFile(main.folder / name) for name in names)):
        for key, value in _of_zone(file.content):
            file.faults.add(key, f"{key} is {value}, which is an example's; give your own.")
        for key, value in _of_service(file.content):
            file.faults.add(key, f"{key} is {value}, which is only an example; give your own.")
        found += file.problems()
    return found


def _of_zone(content: Table) -> Iterator[tuple[str, str]]:
    """Values of the template's zone, and texts that call themselves placeholders."""
    template = tomllib.loads(example(0))
    policy = content.get("policy", {})
    texts = {
        "policy.eta_set_by": policy.get("eta_set_by", "") if policy.get("eta", 1) < 1 else "",
        "service.accept_error_set_by": content.get("service", {}).get("accept_error_set_by", ""),
    }
    first = template["houses"][0]["meters"]
    for i, group in enumerate(content.get("houses", ())):
        texts[f"houses[{i}].provenance"] = group.get("provenance", "")
        meters = group.get("meters")
        if isinstance(meters, Mapping) and {"first": 1, **meters} == first:
            yield f"houses[{i}].meters", f'{{prefix = "{first["prefix"]}", first = 1}}'
    for i, model in enumerate(content.get("models", ())):
        texts[f"models[{i}].provenance"] = model.get("provenance", "")
        texts[f"models[{i}].structural_zeros"] = model.get("structural_zeros", "")
        chains = model.get("chains")
        if chains in [one["chains"] for one in template["models"]]:
            yield f"models[{i}].chains", "the occupancy of the template"
    for key, text in texts.items():
        if _WORDS.search(str(text)):
            yield key, display(text)


def _of_service(content: Table) -> Iterator[tuple[str, str]]:
    """Reserved addresses (RFC 2606, RFC 6761), and tokens that are easy to guess."""
    openadr: Any = content.get("openadr", {})
    for key in ("url", "mqtt_uris"):
        given = openadr.get(key, ())
        for address in [given] if isinstance(given, str) else given:
            if _NOWHERE.search(address):
                yield f"openadr.{key}", display(address)
    for digest in content.get("http", {}).get("token_digests", ()):
        if digest.lower() in _DIGESTS:
            word = _DIGESTS[digest.lower()]
            yield "http.token_digests", f"the digest of the token {word!r}"
