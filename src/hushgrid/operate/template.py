"""The service file that `init` and `learn` write, and its values that are still in another."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from hushgrid.errors import Problem
from hushgrid.files.toml import Table, TomlFile, display
from hushgrid.model.zone import Tariff
from hushgrid.planning.windows import longest_window

KEY_FILE, BLOCK_KEYS = "hushgrid.key", "meters.sqlite.keys"  # as the example has them
WINDOWS = {"P1D": "24 hours", "P3D": "3 days in a row", "P7D": "week", "P14D": "two weeks"}
MOST_ERROR = 0.08  # of the price, planned, that the window of a new file may have
_GROWING = 0.1  # the part of the price that grows with the load, at the usual load [currency/kWh]
_COMMENTS = 36  # column of the comments


class ModelSource(NamedTuple):
    """A model file of a new service file.

    Attributes:
        file: Its name in the folder of the service file.
        provenance: Where the model comes from; empty: the pool of `NewZone.learned`.
    """

    file: str
    provenance: str = ""


@dataclass(frozen=True, slots=True)
class NewZone:
    """The zone of a new service file.

    Attributes:
        homes: Number of homes.
        id: Its name.
        time_zone: IANA name.
        seconds: Length of an interval [s].
        usual: What a home usually uses in an interval, by published figures [Wh].
        bound: Contract bound of a home [Wh an interval].
        bound_by: Basis of the bound, in words.
        meters: Ids of the homes' meters; none: made up from `prefix`.
        prefix: What made-up ids begin with.
        models: Models of the homes.
        learned: What noisy sums over the homes' readings cost; none: no reading was used.
        laws: Lines of laws of a reading that a large pool is good for; none: the estimate follows
            releases alone.
    """

    homes: int = 1000
    id: str = "elm-street"
    time_zone: str = "Europe/Zurich"
    seconds: int = 900
    usual: float = 94.0
    bound: int = 2500
    bound_by: str = "a 10 kW contract"
    meters: tuple[str, ...] = ()
    prefix: str = "elm-"
    models: tuple[ModelSource, ...] = ()
    learned: Mapping[str, Any] = field(default_factory=dict)
    laws: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """What is promised: 1, or what the models have cost already where that is more."""
        return max(1.0, float(self.learned.get("epsilon", 0.0)))

    @property
    def tariff(self) -> Tariff:
        """The usual load costs beta and a tenth more, far below the cap."""
        return Tariff(float(f"{_GROWING * 1000 / (self.homes * self.usual):.2g}"), 0.05, cap=1.0)


def example(begins: int, homes: int = 1000, errors: Mapping[str, float] | None = None) -> str:
    """The service file that `hushgrid init` writes.

    Args:
        begins: Start of its first interval [UTC s].
        homes: Number of homes.
        errors: Planned relative error of the price under each of `WINDOWS`; None: not stated.

    Returns:
        TOML. Its window is the longest whose error is small enough, or else the shortest.
    """
    return new_file(begins, NewZone(homes), errors)


def new_file(
    begins: int,
    zone: NewZone,
    errors: Mapping[str, float] | None = None,
    promise: tuple[str, float] | None = None,
) -> str:
    """The service file of a new zone, as `init`, `learn` and `replay` write it.

    Args:
        begins: Start of its first interval [UTC s].
        zone: The zone.
        errors: Planned relative error of the price under each of `WINDOWS`; None: not stated.
        promise: Window and epsilon; None: they are chosen.

    Returns:
        TOML. Where it is chosen, its window is the longest whose error is small enough, or else the
        shortest.
    """
    window, epsilon = promise or (chosen_window(errors or {}), zone.epsilon)
    source = files("hushgrid.operate").joinpath("example.toml").read_text("utf-8")
    values: dict[str, str] = {
        "head": _head(zone, WINDOWS[window]),
        "begins": datetime.fromtimestamp(begins, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "time_zone": _text(zone.time_zone),
        "id": _text(zone.id),
        "words": WINDOWS[window],
        "window": _text(window),
        "epsilon": f"{epsilon}",
        "estimate": _estimate(zone) + (_costs(errors) if errors else ""),
        "houses": "\n".join(_houses(zone)),
        "models": "".join(_models(zone)),
    }
    interval = f"PT{zone.seconds // 60}M" if zone.seconds % 60 == 0 else f"PT{zone.seconds}S"
    comments = {
        "interval": _text(interval),
        "meter_interval": _text(interval),
        "alpha": str(zone.tariff.alpha),
    }
    for key, value in comments.items():
        values[key] = f"{value} ".ljust(_COMMENTS - len(f"{key} = "))
    return re.sub(r"\{(\w+)\}", lambda place: values[place[1]], source)


def _estimate(zone: NewZone) -> str:
    """Where the price comes from: laws and past prices, or past prices and the usual load."""
    if zone.laws:
        estimator = 'estimator = "filter"'.ljust(_COMMENTS)
        return f'publish = "estimate"\n{estimator}# weighs the laws against past prices\n'
    usual = f"usual = {zone.usual} ".ljust(_COMMENTS)
    return f"{usual}# Wh of a home in an interval, mean over a year\n"


def _text(value: str) -> str:
    """A string of TOML; JSON's escapes are TOML's."""
    return json.dumps(value, ensure_ascii=False)


def _head(zone: NewZone, words: str) -> str:
    if not zone.models:
        needs = f"It needs no model of them: the promise speaks of any {words}."
    elif zone.laws:
        needs = f"The promise of any {words} needs no model; models and laws are for the estimate."
    else:
        needs = f"The promise of any {words} needs no model; interval and step do."
    return f"# A zone of {zone.homes} homes. {needs}"


def _houses(zone: NewZone) -> list[str]:
    meters = f"meters = {{ prefix = {_text(zone.prefix)} }}".ljust(_COMMENTS)
    count_lines = [f"count = {zone.homes}", f"{meters}# {zone.prefix}0001 and so on"]
    list_lines = [f"meters = [{', '.join(map(_text, zone.meters))}]"]
    bound = f"bound = {zone.bound}".ljust(_COMMENTS)
    lines = [
        *(list_lines if zone.meters else count_lines),
        f"{bound}# Wh in an interval: {zone.bound_by}",
    ]
    return [*lines, *zone.laws]


def _models(zone: NewZone) -> Iterator[str]:
    for model in zone.models:
        provenance = f"provenance = {_text(model.provenance)}\n" if model.provenance else ""
        yield f"\n[[models]]\nfile = {_text(model.file)}\n{provenance}"
    if zone.learned:
        pairs = (f"{key} = {json.dumps(value)}\n" for key, value in zone.learned.items())
        head = "[learned]".ljust(_COMMENTS)
        head += "# what the models cost every home, in each window of these readings"
        yield f"\n{head}\n{''.join(pairs)}"


def chosen_window(errors: Mapping[str, float]) -> str:
    """The longest window whose planned price error is at most `MOST_ERROR`, or else the shortest.

    Args:
        errors: Planned relative errors by window.

    Returns:
        The window, one of `WINDOWS`.

    >>> chosen_window({"P1D": 0.05, "P3D": 0.07, "P7D": 0.09, "P14D": 0.11})
    'P3D'
    """
    small = [name for name in WINDOWS if errors.get(name, 1.0) <= MOST_ERROR]
    return small[-1] if small else next(iter(WINDOWS))


def _costs(errors: Mapping[str, float]) -> str:
    listing = ", ".join(f"{name} {100 * errors[name]:.1f} %" for name in WINDOWS)
    most = f"{100 * MOST_ERROR:.0f} %"
    is_small = min(errors[name] for name in WINDOWS) <= MOST_ERROR
    rule = f"the longest with at most {most}" if is_small else f"the shortest: none is below {most}"
    return f"# planned price error by window: {listing} (hushgrid plan)\n# chosen: {rule}\n"


def planned_errors(zone: NewZone) -> dict[str, float]:
    """The planned relative error of the price of a new file under each of `WINDOWS`.

    Args:
        zone: The zone; its models and laws have no part in it.

    Returns:
        The error by window, root mean square.
    """
    return longest_window(
        zone.homes,
        zone.usual,
        zone.tariff,
        bound=zone.bound,
        epsilon=zone.epsilon,
        seconds=zone.seconds,
    )


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
    problems: list[Problem] = []
    for file in (main, *(TomlFile(main.folder / name) for name in names)):
        for key, value in _of_zone(file.content):
            file.faults.add(key, f"{key} is {value}, which is an example's; give your own.")
        for key, value in _of_service(file.content):
            file.faults.add(key, f"{key} is {value}, which is only an example; give your own.")
        problems += file.problems()
    return problems


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
        addresses = openadr.get(key, ())
        for address in [addresses] if isinstance(addresses, str) else addresses:
            if _NOWHERE.search(address):
                yield f"openadr.{key}", display(address)
    for digest in content.get("http", {}).get("token_digests", ()):
        if digest.lower() in _DIGESTS:
            word = _DIGESTS[digest.lower()]
            yield "http.token_digests", f"the digest of the token {word!r}"
