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
from hushgrid.model.zone import Tariff
from hushgrid.planning.windows import longest_window

KEY_FILE, BLOCK_KEYS = "hushgrid.key", "meters.sqlite.keys"  # as the example has them


WINDOWS = {"P1D": "24 hours", "P3D": "3 days in a row", "P7D": "week", "P14D": "two weeks"}
MOST_ERROR = 0.08  # of the price, planned, that the window of a new file may have
_USUAL, _GROWING = 94.0, 0.1  # Wh of a home; the part of the price that grows [currency/kWh]


def example(begins: int, homes: int = 1000, errors: Mapping[str, float] | None = None) -> str:
    """The service file that `hushgrid init` writes.

    Args:
        begins: Start of its first interval [UTC epoch s].
        homes: Number of homes.
        errors: Planned relative error of the price under each of `WINDOWS`; None: not stated.

    Returns:
        TOML. Its window is the longest whose error is small enough, or else the shortest.
    """
    window = chosen_window(errors or {})
    source = files("hushgrid.service").joinpath("example.toml").read_text("utf-8")
    values = {
        "begins": datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "count": str(homes),
        "alpha": f"{float(f'{_GROWING * 1000 / (homes * _USUAL):.2g}'):<28}",
        "words": WINDOWS[window],
        "window": window,
        "costs": _costs(errors) if errors else "",
    }
    for name, value in values.items():
        source = source.replace(f"{{{name}}}", value)
    return source


def chosen_window(errors: Mapping[str, float]) -> str:
    """The longest window whose planned price error is at most `MOST_ERROR`, or else the shortest.

    >>> chosen_window({"P1D": 0.05, "P3D": 0.07, "P7D": 0.09, "P14D": 0.11})
    'P3D'
    """
    small = [name for name in WINDOWS if errors.get(name, 1.0) <= MOST_ERROR]
    return small[-1] if small else next(iter(WINDOWS))


def _costs(errors: Mapping[str, float]) -> str:
    each = ", ".join(f"{name} {100 * errors[name]:.1f} %" for name in WINDOWS)
    return f"# planned price error by window: {each} (hushgrid plan)\n"


def planned_errors(homes: int) -> dict[str, float]:
    """The planned relative error of the price of a new file under each of `WINDOWS`.

    Args:
        homes: Number of homes.

    Returns:
        The error by window, root mean square.
    """
    content = tomllib.loads(example(0, homes))
    (group,), policy = content["houses"], content["policy"]
    tariff = Tariff(**content["tariff"])
    return longest_window(homes, policy["usual"], tariff, bound=group["bound"])


def with_survey(
    text: str, houses: Mapping[int, int], chains: Mapping[str, Mapping[int, Habits]]
) -> str:
    """The example with a survey's chains as models of its homes.

    Args:
        text: The example.
        houses: Houses by number of residents.
        chains: Chains of the example's intervals by source and number of residents.

    Returns:
        TOML.
    """
    head, _, group = text.partition("[[houses]]\n")
    parts, first = [head.replace("needs no model of them", "has a survey's model of them")], 1
    for n, count in houses.items():
        own = re.sub(r"(?m)^count = .*$", f"count = {count}", group)
        own = re.sub(r"(?m)^meters = .*$", f'meters = {{ prefix = "elm-", first = {first} }}', own)
        parts.append(f'[[houses]]\n{own.rstrip()}\nchain = "residents-{n}"\n\n')
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
    first = {"first": 1, **template["houses"][0]["meters"]}
    for i, group in enumerate(content.get("houses", ())):
        texts[f"houses[{i}].provenance"] = group.get("provenance", "")
        meters = group.get("meters")
        if isinstance(meters, Mapping) and {"first": 1, **meters} == first:
            yield f"houses[{i}].meters", f'{{prefix = "{first["prefix"]}", first = 1}}'
    for i, model in enumerate(content.get("models", ())):
        texts[f"models[{i}].provenance"] = model.get("provenance", "")
        texts[f"models[{i}].structural_zeros"] = model.get("structural_zeros", "")
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
