"""What `hushgrid serve` would refuse at its start, found without writing anything; also the example
service file, placeholders left in one, and the status of a service.

Stores are opened for reading, or it is checked that they can be created; a port is bound and
released at once. serve does not refuse to start without a broker, so none is contacted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from hushgrid._numbers import Floats
from hushgrid.belief.filter import Expectations
from hushgrid.errors import (
    ExtraError,
    HushgridError,
    LedgerError,
    MeterError,
    Problem,
    ServiceError,
)
from hushgrid.files.deployment import Deployment, Mqtt, ZoneService
from hushgrid.files.toml import Table, TomlFile, display, masked
from hushgrid.learn.habits import Habits
from hushgrid.mechanism.noise import SimulatedNoise
from hushgrid.mechanism.release import step
from hushgrid.service.access.clients import CLIENTS, ClientStore, check_bound
from hushgrid.service.border import check_models_agree, opening
from hushgrid.service.curator import Status, status_of
from hushgrid.service.database import Database, exists, is_postgres
from hushgrid.service.epoch import check_all_here, check_moves, check_new, check_same, first_state
from hushgrid.service.ledger import open_store
from hushgrid.service.ledger.chain import LedgerStore, check
from hushgrid.service.ledger.store import LEDGER, lock_of
from hushgrid.service.ledger.witness import sidecar_path, witness_to_read
from hushgrid.service.ledger.writer import Ledger, Signer, load, verify_signature
from hushgrid.service.meters.block_keys import BlockKeys
from hushgrid.service.meters.columns import Interval, Roster, RosterEpoch
from hushgrid.service.meters.store import stored_rosters
from hushgrid.service.meters.tables import SCHEMA as METERS
from hushgrid.service.meters.tables import file_of, key_folder
from hushgrid.service.openadr.store import VTN
from hushgrid.service.prices import SLOT
from hushgrid.service.promise import Running
from hushgrid.service.same_terms import zone_as_begun
from hushgrid.service.transfer import check_arrived

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

    Its blocks of steps are left out: their epsilon is for its own chain alone.

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
    plan = "# block_steps, block_epsilon:       hushgrid plan --blocks finds them, for less noise\n"
    parts, first = [re.sub(r"block_steps.*\nblock_epsilon.*\n", plan, head)], 1
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


# ---- what serve would refuse

_MODULES = ("uvicorn", "starlette", "paho.mqtt.client", "prometheus_client", "sqlalchemy")


def refusals(
    deployment: Deployment,
    *,
    new_epoch: bool = False,
    running: dict[str, Running] | None = None,
) -> tuple[list[str], list[str]]:
    """What keeps a service from starting, and warnings.

    Args:
        deployment: The service as its file describes it.
        new_epoch: Whether it would be started with `--new-epoch`.
        running: Gets the epoch of every zone whose ledger serve would continue.

    Returns:
        Problems, on each of which serve stops; and remarks. One sentence each, after its key.
    """
    found = _Found()
    with found.at("hushgrid"):
        _modules()
    key: Signer | None = None
    with found.at("service.key"):
        key = load(deployment.key)
    with found.at("stores.ledger"):
        _ledger(deployment, key, new_epoch, found, {} if running is None else running)
    if deployment.witness_needed:
        with found.at("stores.witness"):
            _witness(deployment.witness_folder)
    with found.at("stores.meters"):
        _meters(deployment, new_epoch, found)
    with found.at("stores.block_keys"):
        _block_keys(deployment, found)
    with found.at("stores.clients"):
        if exists(deployment.client_store, CLIENTS):
            with ClientStore(deployment.client_store, create=False, read_only=True) as clients:
                check_bound(deployment, clients.all())
        else:
            check_bound(deployment, ())
    if deployment.http is not None:
        if deployment.openadr is not None:
            with found.at("stores.vtn"):
                exists(deployment.vtn_store, VTN)
        with found.at("http"):
            _http(deployment, found)
        for zone in deployment.zones:
            if zone.seconds % SLOT:
                found.remarks.append(
                    f"zone {zone.id}: the interval is {zone.seconds} s and evcc has quarter hours"
                    " alone, so /v1/evcc gives the mean of each; let evcc read /v1/price for the"
                    " price in force."
                )
    if deployment.mqtt is not None:
        with found.at("mqtt"):
            _broker(deployment.mqtt, found)
    for name, path in _secret_files(deployment):
        if path is not None and path.is_file() and path.stat().st_mode & 0o007:
            found.remarks.append(
                f"{name}: anyone on this machine can use {path}; chmod 600 {path}."
            )
    if deployment.price_file is not None and not deployment.price_file.parent.is_dir():
        folder = deployment.price_file.parent
        found.remarks.append(f"publish.file: folder {folder} does not exist; make it.")
    return found.problems, found.remarks


def _secret_files(deployment: Deployment) -> Iterator[tuple[str, Path | None]]:
    """Secrets that are read besides the key, which must be its owner's alone."""
    if deployment.mqtt is not None:
        yield "mqtt.password_file", deployment.mqtt.password_file
        yield "mqtt.tls_key", deployment.mqtt.tls_key
    if deployment.http is not None:
        yield "http.tls_key", deployment.http.tls_key


class _Found:
    """Problems and remarks so far."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.remarks: list[str] = []

    @contextmanager
    def at(self, key: str) -> Iterator[None]:
        """Errors raised inside are problems of this key."""
        try:
            yield
        except HushgridError as error:
            self.problems.append(f"{key}: {masked(str(error))}")
        except OSError as error:
            self.problems.append(f"{key}: {error.strerror or type(error).__name__}.")


def _modules() -> None:
    for module in _MODULES:
        try:
            import_module(module)
        except ImportError:
            raise ExtraError(
                f"{module} is not installed; get it with pip install 'hushgrid[serve]'."
            ) from None


# ---- the ledger


def _ledger(
    deployment: Deployment,
    key: Signer | None,
    new_epoch: bool,
    found: _Found,
    running: dict[str, Running],
) -> None:
    """Check every record as serve reads it, and the terms against those of the epoch."""
    url = deployment.ledger
    opened: AbstractContextManager[LedgerStore | None] = nullcontext()
    if exists(url, LEDGER):
        opened = open_store(url, create=False, still=True)
    moves = {}
    with opened as store:
        for zone in deployment.zones:
            if key is None:
                break
            with found.at(f"zone {zone.id}"):
                witness = witness_to_read(deployment.witness_folder, zone.id)
                ledger = Ledger.read(store, zone.id, key, deployment.mode, witness)
                if ledger is None:
                    check_models_agree(zone)
                    continue
                running[zone.id] = _terms(zone, ledger, key, new_epoch)
                moves[zone.id] = ledger.standing.transfers
        if store is not None and key is not None:
            check_moves(deployment.zones, store, key, new_epoch=new_epoch)
    check_arrived(moves)


def _terms(zone: ZoneService, ledger: Ledger, key: Signer, new_epoch: bool) -> Running:
    """Check a zone as its curator would; the epoch it would continue."""
    standing, stated = ledger.standing, dict[str, Any]()
    if new_epoch or standing.epoch is None:
        stated = opening(zone, standing)
    else:
        zone = zone_as_begun(zone, standing.epoch)
    check_all_here(zone, standing, key, new_epoch=new_epoch)
    if new_epoch:
        check_new(zone, standing)
    elif standing.epoch is not None:
        check_same(zone, standing)
        return Running(zone, standing)
    return Running.beginning(zone, standing, stated)


def _witness(folder: Path) -> None:
    there = folder if folder.exists() else folder.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise LedgerError(
            f"the witness folder {folder} cannot be used; set stores.witness to a folder on a local"
            " disk that the service can write."
        )


# ---- meters


def _meters(deployment: Deployment, new_epoch: bool, found: _Found) -> None:
    """Check that a file or database can be used, and the rosters in it."""
    url = deployment.meters
    path = file_of(url)
    if path is not None:
        there = next(one for one in (path, *path.absolute().parents) if one.exists())
        if not os.access(there, os.W_OK) or not (there == path or there.is_dir()):
            raise MeterError(f"meter store {path} cannot be written; give a path that can.")
    elif not exists(url, METERS):
        return
    kept = stored_rosters(url)
    for zone in deployment.zones:
        if zone.id in kept and not new_epoch:
            with found.at("stores.meters"):
                roster = Roster.of(*zone.roster)
                RosterEpoch(kept[zone.id]).check_same(roster, zone.id)


def _block_keys(deployment: Deployment, found: _Found) -> None:
    """Warn where zones with blocks of steps have no key yet, or others can read the keys."""
    folder = key_folder(deployment.meters, deployment.block_key_folder)
    if folder is None or not any(zone.policy.schedule.lengths for zone in deployment.zones):
        return
    files = BlockKeys(folder).files()
    if len(files) < 2:
        found.remarks.append(
            f"stores.block_keys: folder {folder} has no key, so that serve makes one; where several"
            " curators run these zones, copy the folder of one to all before they start."
        )
    for file in files:
        if (mode := file.stat().st_mode & 0o777) & 0o077:
            found.remarks.append(
                f"stores.block_keys: {file} has mode {mode:04o}: others can use its keys;"
                f" chmod {'700' if file.is_dir() else '600'} {file}."
            )
    if not os.access(folder if files else folder.parent, os.W_OK):
        found.remarks.append(
            f"stores.block_keys: folder {folder} cannot be written, so that blocks get forecasts;"
            " give one that can."
        )


# ---- ways in


def _broker(mqtt: Mqtt, found: _Found) -> None:
    """Require usable files, and warn of what anyone on the way could read or send."""
    from hushgrid.service.mqtt import password_of, tls_of

    password_of(mqtt)
    if mqtt.tls:
        tls_of(mqtt)
    else:
        found.remarks.append(
            "mqtt.tls is not set, so readings and the password pass in the clear; set it to true,"
            " with the broker's port for TLS."
        )
    if mqtt.password_file is None and mqtt.tls_certificate is None:
        found.remarks.append(
            "mqtt has neither username and password_file nor tls_certificate, so the broker lets"
            " anyone in; give one of them."
        )


def _http(deployment: Deployment, found: _Found) -> None:
    """Require usable certificates and a port that is free, or taken by this very service."""
    from hushgrid.service.http.server import bind_socket, check_tls

    assert deployment.http is not None
    check_tls(deployment.http)
    try:
        bind_socket(deployment.http.host, deployment.http.port).close()
    except ServiceError as error:
        if not _running(deployment):
            raise
        found.remarks.append(f"http: {error} The service runs already.")


def _running(deployment: Deployment) -> bool:
    """Whether a process holds the ledger of one of the zones."""
    zones = [zone.id for zone in deployment.zones]
    if not is_postgres(deployment.ledger):
        path = Path(deployment.ledger.removeprefix("sqlite:").removeprefix("//"))
        return any(_locked(sidecar_path(path, zone)) for zone in zones)
    with (
        suppress(HushgridError),
        Database(deployment.ledger, LEDGER, read_only=True, check=False) as database,
    ):
        held = {row.key for row in database.rows(sa.text(_HELD))}
        return any(lock_of(zone) in held for zone in zones)
    return False


_HELD = """
SELECT (CAST(classid AS bigint) << 32) | CAST(objid AS bigint) AS key FROM pg_locks
WHERE locktype = 'advisory'
"""


def _locked(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# ---- status of zones, from a ledger that others may be writing, or from a running service


def rehearse(zone: ZoneService) -> None:
    """Play two intervals in memory, so that the loops which a tick compiles are in their cache.

    Without it the first price after an installation waits for the compiler.

    Args:
        zone: The zone; simulated noise is used, and no reading.
    """
    state, noise = first_state(zone), SimulatedNoise(1)
    expected = Expectations(zone.scenario)
    low = zone.scenario.zone.low_ends(state.zone)
    nothing = Interval(np.zeros(len(zone.meters), np.int64), np.zeros(len(zone.meters), np.bool_))
    for t in (1, 2)[: zone.policy.horizon]:
        load = nothing.tally(state.zone, lambda t=t: expected.at(t) - low)  # type: ignore[misc]
        _, state = step(state, load, noise)


def from_ledger(deployment: Deployment, now: float) -> list[Status]:
    """Status of every zone from its records, each verified; takes no lock.

    Args:
        deployment: The service.
        now: The time [UTC epoch s].

    Returns:
        A status for each zone.

    Raises:
        LedgerError: A record is bad.
    """
    with open_store(deployment.ledger, create=False) as store:
        found = []
        for zone in deployment.zones:
            report = check(store.records(zone.id), verify_signature, {})
            if report.first_bad is not None:
                raise LedgerError(
                    f"the ledger of zone {zone.id!r} is bad at record {report.first_bad}"
                    f" ({report.reason}); see hushgrid ledger verify."
                )
            found.append(status_of(zone, report.standings.get(zone.id), now))
    return found


def from_service(url: str, token: str = "") -> list[Status]:
    """Status of every zone as a running service answers.

    Args:
        url: The service's address.
        token: A bearer token; with an operator's, `missing` is included.

    Returns:
        A status for each zone.

    Raises:
        ServiceError: The service cannot be reached, or gives another answer.
    """
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url.rstrip("/") + "/v1/status", timeout=10, headers=headers)
        answer.raise_for_status()
        zones: list[dict[str, Any]] = answer.json()["zones"]
        for zone in zones:
            zone["spent"] = math.inf if zone["spent"] is None else zone["spent"]  # without a bound
        return [Status(**({"missing": None} | zone)) for zone in zones]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise ServiceError(
            f"cannot get the status of service {url} ({type(error).__name__}); give the address"
            " of a running hushgrid serve, or its service file."
        ) from None
