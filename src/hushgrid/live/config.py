"""A service file (docs/service.md) to a Deployment, or every mistake in it at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushgrid.errors import ConfigError
from hushgrid.live.deployment import Deployment, Http, Mqtt, OpenAdr, ZoneService
from hushgrid.live.settings import OWN, TABLES, Times, fitting_times, read_settings
from hushgrid.live.zones import read_zone
from hushgrid.tables import Faults, Table, known, shown
from hushgrid.tomlfile import TomlFile
from hushgrid.zonefile import BESIDE, SECTIONS

_HTTP = ("limit", "token_lifetime", "metrics", "rate_limit", "proxies", "connections", "pages")
OWN_KEYS = {f"service.{key}" for key in OWN}
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def load_deployment(path: Path | str) -> Deployment:
    """Read a service file and the zone files it names; all problems are in one ConfigError."""
    main = TomlFile(Path(path))
    found = _tables(main)
    settings = found["service"]
    lone = not set(main.content) & SECTIONS and bool(settings.get("zones"))
    times = fitting_times(settings, main.faults)
    files = [] if lone else [main]
    zones = [] if lone else [read_zone(main.content, main.folder, settings, times, main.faults)]
    for i, name in enumerate(settings.get("zones", ())):
        further = TomlFile(main.folder / name)
        if further.unreadable:
            main.faults.add(f"service.zones[{i}]", f"service.zones: {further.unreadable}")
            continue
        files.append(further)
        zones.append(_further_zone(further, settings, times, main.faults))
    _check_apart(zones, files)
    http, mqtt = _http(found, main), _mqtt(found, main)
    _check_shared(found, main.faults)
    problems = [p for file in [main, *(f for f in files if f is not main)] for p in file.problems()]
    if problems:
        raise ConfigError(tuple(problems))
    stores = found["stores"]
    return Deployment(
        zones=tuple(zone for zone in zones if zone is not None),
        mode=settings["mode"],
        ledger=_store(stores["ledger"], main.folder),
        meters=_store(stores["meters"], main.folder),
        clients=_store(stores["clients"], main.folder) if "clients" in stores else "",
        key=main.folder / settings["key"],
        vtn=_store(stores["vtn"], main.folder) if "vtn" in stores else "",
        http=http,
        mqtt=mqtt,
        openadr=_openadr(found),
        share=settings.get("share", False),
        witness=_witness(stores, main),
        witness_needed="witness" in stores,
        price_file=main.folder / found["publish"]["file"] if found.get("publish") else None,
        problems=_remarks(http, mqtt),
    )


def is_service(content: Table) -> bool:
    """Whether a file is a service's, and not a zone's alone."""
    service = content.get("service")
    own = set(service) - set(OWN) if isinstance(service, Mapping) else set()
    return bool(set(content) & set(TABLES) - {"service"} or own & set(TABLES["service"]))


def _tables(main: TomlFile) -> dict[str, dict[str, Any]]:
    """The service's own tables."""
    main.check()
    content, faults = main.content, main.faults
    service = content.get("service")
    named = isinstance(service, Mapping) and bool(service.get("zones"))
    lone = named and not set(content) & SECTIONS
    optional = {
        *("elasticity", "http", "learned", "mqtt", "openadr", "publish"),
        *(SECTIONS if lone else ()),
    }
    known(content, "", SECTIONS | BESIDE | set(TABLES), optional, faults)
    return {
        name: read_settings(content, name, settings, faults, {})
        for name, settings in TABLES.items()
        if name in content
    } | {name: {} for name in ("service", "stores") if name not in content}


def _further_zone(
    file: TomlFile, settings: Table, times: Times | None, main: Faults
) -> ZoneService | None:
    """A zone of another file: what its own [service] does not say, the service's says."""
    if file.broken:
        return None
    known(file.content, "", SECTIONS | BESIDE, {"elasticity", *BESIDE}, file.faults)
    own = {key: value for key, value in settings.items() if key in OWN or key == "mode"}
    table = file.content.get("service", {})
    said = table if isinstance(table, Mapping) else {}
    file.faults.elsewhere |= {
        key for key in OWN_KEYS if main.at(key) and key.removeprefix("service.") not in said
    }
    if "service" in file.content:
        own |= read_settings(file.content, "service", OWN, file.faults, own)
        times = fitting_times(own, file.faults)
    return read_zone(file.content, file.folder, own, times, file.faults)


def _check_apart(zones: list[ZoneService | None], files: list[TomlFile]) -> None:
    """Zones have names of their own, and a meter belongs to one zone."""
    names: dict[str, Path] = {}
    meters: dict[str, str] = {}
    for zone, file in zip(zones, files, strict=True):
        if zone is None:
            continue
        if zone.id in names:
            file.faults.add(
                "zone.id",
                f"zone.id is {shown(zone.id)}, as in {names[zone.id]}; give each zone its own.",
            )
        names[zone.id] = file.path
        shared = next((one for one in zone.meters if one in meters), None)
        if shared is not None:
            file.faults.add(
                "houses",
                f"houses has the meter {shown(shared)}, which is of zone {meters[shared]} too;"
                " give each house its own meter.",
            )
        meters |= dict.fromkeys(zone.meters, zone.id)


def _http(found: Mapping[str, dict[str, Any]], main: TomlFile) -> Http | None:
    given = found.get("http")
    if given is None:
        return None
    made = Http(
        host=given.get("host", Http().host),
        port=given.get("port", Http().port),
        tokens=given.get("token_digests", ()),
        tls_certificate=_beside(given.get("tls_certificate"), main),
        tls_key=_beside(given.get("tls_key"), main),
        **{key: given[key] for key in _HTTP if key in given},
    )
    raw = _raw(main, "http")
    for one, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if one in raw and other not in raw:
            main.faults.add(f"http.{other}", f"http.{other} is not set but {one} is; give both.")
    return made


def _beside(name: str | None, main: TomlFile) -> Path | None:
    return None if name is None else main.folder / name


def _raw(main: TomlFile, name: str) -> Table:
    table = main.content.get(name)
    return table if isinstance(table, Mapping) else {}


def _mqtt(found: Mapping[str, dict[str, Any]], main: TomlFile) -> Mqtt | None:
    given = found.get("mqtt")
    if given is None:
        return None
    raw = _raw(main, "mqtt")
    openadr = _openadr(found)
    events = openadr is not None and openadr.mqtt
    if "readings" not in raw and "prices" not in raw and not events:
        main.faults.add(
            "mqtt",
            "mqtt has neither readings nor prices; give the topic of one of them.",
            "mqtt.readings",
            "mqtt.prices",
        )
    if "password_file" in raw and "username" not in raw:
        main.faults.add(
            "mqtt.username", "mqtt.username is not set but password_file is; give both."
        )
    if "host" not in given:
        return None
    told = given.get("home_assistant", False)
    if told and "prices" not in raw:
        main.faults.add(
            "mqtt.home_assistant",
            "mqtt.home_assistant is true but prices is not set; give the topic they go out on.",
            "mqtt.prices",
        )
    return Mqtt(
        host=given["host"],
        port=given.get("port", 1883),
        readings=given.get("readings"),
        prices=given.get("prices"),
        username=given.get("username"),
        password_file=_beside(given.get("password_file"), main),
        home_assistant=given.get("home_assistant_prefix", "homeassistant") if told else None,
    )


def _openadr(found: Mapping[str, dict[str, Any]]) -> OpenAdr | None:
    """On where nothing is said: the prices are public anyway."""
    given = dict(found.get("openadr", {}))
    return OpenAdr(**given) if given.pop("enabled", True) else None


def _check_shared(found: Mapping[str, dict[str, Any]], faults: Faults) -> None:
    """Curators that share zones meet in a database, not in files of one machine."""
    if not found["service"].get("share"):
        return
    for name, value in found["stores"].items():
        if name != "witness" and not value.startswith(("postgresql://", "postgres://")):
            faults.add(
                f"stores.{name}",
                f"stores.{name} is a path but service.share is true; give a postgresql:// URL,"
                " which all curators can reach, or leave out share.",
            )


def _witness(stores: Mapping[str, str], main: TomlFile) -> Path | None:
    """The folder that is named; else one beside the service file for a ledger on a server."""
    if "witness" in stores:
        return main.folder / stores["witness"]
    if "://" in stores["ledger"].removeprefix("sqlite:"):
        return main.path.with_suffix(".witness")
    return None


def _store(value: str, folder: Path) -> str:
    """A URL as it is; a path from the file's folder."""
    if "://" in value:
        return value
    scheme = "sqlite:" if value.startswith("sqlite:") else ""
    return f"{scheme}{folder / value.removeprefix('sqlite:')}"


def _remarks(http: Http | None, mqtt: Mqtt | None) -> tuple[str, ...]:
    """What can be run but deserves a look."""
    found = []
    if http is not None and http.host not in _LOOPBACK and http.tls_certificate is None:
        found.append(
            f"http.host is {shown(http.host)} without tls_certificate: tokens and readings travel"
            " in the clear unless a proxy in front has TLS."
        )
    if http is None and (mqtt is None or mqtt.readings is None):
        found.append("No way in for readings: neither [http] nor mqtt.readings is set.")
    return tuple(found)
