"""Commands of a service: init, check, doctor, serve, status, resume, client ..., and demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hushgrid.cli import _common as common


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write.")] = Path(),
    homes: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of homes.")] = 1000,
    survey: Annotated[
        str | None, typer.Option(help="CSV or Parquet of chains, or the word richardsonpy.")
    ] = None,
    mix: Annotated[
        str | None, typer.Option(help="With a survey: houses by residents, such as 1:300,2:700.")
    ] = None,
) -> None:
    """Write a commented service file that runs as it is, and its keys: of the ledger, of blocks.

    It promises about any window of time and needs no model of the homes. The window is the longest
    of P1D, P3D, P7D and P14D whose planned price error is at most 8 %. With --survey the file has a
    model of the homes too.

    Example: hushgrid init my-zone --homes 5000 && hushgrid check my-zone/service.toml

    \f
    Args: see the help of each option.

    Raises:
        FileError: If the service file or the key exists, or the survey cannot be read.
    """
    from dataclasses import replace
    from datetime import UTC, datetime

    from hushgrid.cli.learn import read_mix, survey_files
    from hushgrid.errors import FileError
    from hushgrid.files.results import make_folder, write_text
    from hushgrid.files.service_file import load_deployment
    from hushgrid.model.occupancy import OccupancyModel
    from hushgrid.operate.check import rehearse
    from hushgrid.operate.template import (
        BLOCK_KEYS,
        KEY_FILE,
        NewZone,
        new_file,
        planned_errors,
    )
    from hushgrid.stores.ledger.writer import create
    from hushgrid.stores.meters.block_keys import BlockKeys

    if mix is not None and survey is None:
        raise FileError(f"mix is {mix!r} but survey is not set; give --survey, or leave it out.")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    zone, models = NewZone(homes), tuple[OccupancyModel, ...]()
    if survey is not None:
        from hushgrid.learning.habits import survey_models

        survey_table, counts, definition = read_mix(survey, mix or f"2:{homes}")
        houses = [n for n, count in counts.items() for _ in range(count)]
        models = survey_models(survey_table, houses, seconds=zone.seconds, definition=definition)
        zone = replace(zone, homes=len(houses))
    make_folder(folder)
    service, key = folder / "service.toml", folder / KEY_FILE
    for path in (service, key):
        if path.exists():
            raise FileError(f"{path} exists already; give another folder, or move it away.")
    sources, paths = survey_files(folder, models)
    create(key)
    blocks = BlockKeys(folder / BLOCK_KEYS).make()
    with common.progress("planning windows, and the first price", 1) as tick:
        zone = replace(zone, models=sources)
        write_text(service, new_file(int(today.timestamp()), zone, planned_errors(zone)))
        rehearse(load_deployment(service).zones[0])
        tick()
    common.echo_written([service, *paths, key, blocks], None)


def check(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    full: Annotated[
        bool,
        typer.Option("--full", help="The exact promise, all assumptions, all that was checked."),
    ] = False,
    json: common.Json = None,
) -> None:
    """Check the file, keys and every stored record and reading; say what is promised and costs.

    Nothing is written or created, and the service may run meanwhile. Exit 1 where `hushgrid serve`
    would not start or a store is damaged, and for production where others can use a secret file,
    the file still has values of the template, or prices would be too wrong (service.accept_error);
    exit 2 where the file itself is wrong. What can be repaired `hushgrid doctor` repairs.

    Example: hushgrid check service.toml

    \f
    Args: see the help of each option.

    Raises:
        FileError: If the file has a mistake.
        typer.Exit: With code 1 if something is wrong.
    """

    from hushgrid.curator.promise import (
        deployment_prose,
        error_problem,
        name_problem,
        outlook,
        zone_brief,
        zone_json,
        zone_prose,
    )
    from hushgrid.errors import FileError, HushgridError
    from hushgrid.files.service_file import load_deployment
    from hushgrid.operate.check import examine, rehearse
    from hushgrid.operate.template import placeholders
    from hushgrid.stores.ledger import standby_remark

    try:
        deployment = load_deployment(file)
        outlooks, failures = [], []
        for zone in deployment.zones:
            try:
                outlooks.append((zone, outlook(zone)))
                rehearse(zone)
            except HushgridError as error:
                failures.append(f"{file}: zone {zone.id}: {error}")
        if failures:
            raise FileError("\n".join(failures))
    except FileError as error:
        common.write_json({"ok": False, "problems": str(error).splitlines()}, json)
        raise
    findings = examine(deployment)
    problems, remarks, running = findings.problems, findings.remarks, findings.running
    remarks += deployment.problems
    if (remark := standby_remark(deployment.ledger)) is not None:
        remarks.append(remark)
    unready = [str(problem) for problem in placeholders(file)]
    for zone, figures in outlooks:
        unready += filter(None, (error_problem(zone, figures), name_problem(zone)))
    (problems if deployment.mode == "production" else remarks).extend(unready)
    words = zone_prose if full else zone_brief
    prose = [words(zone, figures, running.get(zone.id)) for zone, figures in outlooks]
    good = [finding.sentence for finding in findings.checks if finding.problem is None]
    things = "; ".join(good) if full else f"{len(good)} things (--full names them)"
    prose.append(f"Checked, and nothing is wrong with it: {things}.")
    common.echo(deployment_prose(deployment, prose, problems, remarks), json)
    zones = [zone_json(zone, figures, running.get(zone.id)) for zone, figures in outlooks]
    values = {
        "ok": not problems,
        "problems": problems,
        "mode": deployment.mode,
        **(zones[0] if len(zones) == 1 else {}),
        "zones": zones,
        "remarks": remarks,
        "checks": [
            {
                "what": finding.subject,
                "problem": finding.problem,
                "fix": finding.fix,
                "note": finding.note,
            }
            for finding in findings.checks
        ],
    }
    common.echo_written(common.write_json(values, json), json, "\n")
    if problems:
        raise typer.Exit(1)


def doctor(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    json: common.Json = None,
) -> None:
    """Repair what is safe to repair in the stores and files of a service; say what is left.

    Rights of other users on secret files are taken away, the first block key is made where there is
    none, temporary files of block keys and checkpoints that do not fit the records are removed.
    The service may run meanwhile. Exit 1 where something is left to do for a person.

    Example: hushgrid doctor service.toml

    \f
    Args: see the help of each option.

    Raises:
        typer.Exit: With code 1 if something is left to do.
    """
    from hushgrid.files.service_file import load_deployment
    from hushgrid.operate.check import repair

    repairs, findings = repair(load_deployment(file))
    lines = [f"Repaired: {subject}: {action}." for subject, action in repairs]
    lines = lines or ["Nothing to repair."]
    lines += [f"Warning: {remark}" for remark in findings.remarks]
    lines += [f"Left to you: {problem}" for problem in findings.problems]
    common.echo("\n".join(lines), json)
    values = {
        "ok": not findings.problems,
        "repaired": [{"what": subject, "done": action} for subject, action in repairs],
        "problems": findings.problems,
        "remarks": findings.remarks,
    }
    common.write_json(values, json)
    if findings.problems:
        raise typer.Exit(1)


def serve(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    yes: common.Yes = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Instead of the file's http.port.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Of this curator among those that stand by (service.standby)."),
    ] = None,
) -> None:
    """Take readings, publish prices and keep the ledger; SIGTERM or Ctrl-C stops it cleanly.

    Without a terminal SIGHUP makes it read its file again, as `systemctl reload` does: other terms
    begin at the border of the present block, and no interval is left without a price.

    Example: hushgrid serve service.toml

    \f
    Args: see the help of each option.
    """
    import gc
    import signal
    import sys
    import threading

    gc.disable()  # imports leave no garbage; to look for it is a fifth of the start
    for module in ("uvicorn", "starlette", "paho.mqtt.client", "prometheus_client", "sqlalchemy"):
        common.require(module, "serve")
    from hushgrid.curator.clock import SystemClock, WatchedClock, log_lines
    from hushgrid.files.deployment import as_curator
    from hushgrid.files.service_file import load_deployment
    from hushgrid.operate import serve as run
    from hushgrid.operate.reload import Reload

    gc.freeze()
    gc.enable()
    reload = Reload(lambda: as_curator(load_deployment(file), port, name))
    if not sys.stdin.isatty():
        signal.signal(signal.SIGHUP, lambda *_: reload.request())
    deployment = as_curator(load_deployment(file), port, name)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if log_lines().stream.isatty() and deployment.http is not None:
        common.echo(_addresses(deployment), None)
    clock = WatchedClock(SystemClock())
    if not yes and sys.stdin.isatty():
        yes = _confirm(deployment, clock.now())
    run(deployment, clock=clock, stop=stop, changed=yes, reload=reload)


def _confirm(deployment: Any, now: float) -> bool:
    """Ask whether terms of the file begin that the ledger does not have."""
    from hushgrid.curator.changes import changes_of

    changes = changes_of(deployment, now).zones
    for sentence in changes.values():
        common.echo(sentence, None)
    return bool(changes) and typer.confirm("Begin them?")


def _addresses(deployment: Any) -> str:
    """Where a service answers, for people at a terminal."""
    http = deployment.http
    scheme = "https" if http.tls_certificate else "http"
    host = f"[{http.host}]" if ":" in http.host else http.host
    root = f"{scheme}://{host}:{http.port}"
    rows = [("prices", f"/v1/prices?zone={zone.id}") for zone in deployment.zones[:3]]
    rows += [("readings", "/v1/readings (POST)"), ("description", "/v1/openapi.json")]
    rows += [("pages", "/")] if http.pages else []
    rows += [("OpenADR", "/openadr3/3.1.0")] if deployment.openadr else []
    lines = [f"{name:<12} {root}{path}" for name, path in rows]
    return "\n".join([*lines, "Ctrl-C stops it."])


def status(
    service: Annotated[
        str, typer.Argument(metavar="FILE|URL", help="Service file, or http://HOST:PORT.")
    ],
    token_file: common.TokenFile = None,
    json: common.Json = None,
) -> None:
    """Show each zone's last step, the room of its account, and state.

    How many meters were missing in the last interval is for operators: give a URL and a token.

    Example: hushgrid status service.toml

    \f
    Args: see the help of each option.
    """
    import time
    from dataclasses import asdict

    from hushgrid.curator.status import from_ledger, from_service
    from hushgrid.files.service_file import load_deployment

    if service.startswith(("http://", "https://")):
        common.require("httpx", "serve")
        statuses = from_service(service, common.tokens_of(token_file, service)())
    else:
        statuses = from_ledger(load_deployment(Path(service), planned=False), time.time())
    common.echo(f"{'zone':<20} {'t':>7} {'room':>10} {'missing':>8} state", json)
    for zone_status in statuses:
        missing = "-" if zone_status.missing is None else str(zone_status.missing)
        figures = f"{zone_status.t:7d} {zone_status.room:10.0%} {missing:>8}"
        common.echo(f"{zone_status.zone:<20} {figures} {zone_status.state}", json)
    zones = [asdict(zone_status) for zone_status in statuses]
    common.write_json({**(zones[0] if len(zones) == 1 else {}), "zones": zones}, json)


def resume(
    file: Annotated[Path, typer.Argument(help="Service file (TOML).")],
    zone: common.OneZone = None,
    lost_terms: Annotated[
        list[Path] | None,
        typer.Option(
            "--lost-terms",
            help="Service file of terms that may have begun and been lost; once for each. The"
            " service must be stopped.",
        ),
    ] = None,
    json: common.Json = None,
) -> None:
    """End a zone's forecasts after a fail-over lost releases: book the most they can have cost.

    A zone that waits since the clock was set goes on: the running service takes its clock for
    right. Works while the service runs on this machine, and while it is stopped. The file must
    have the terms of the ledger.

    Example: hushgrid resume service.toml --zone elm-street

    \f
    Args: see the help of each option.

    Raises:
        typer.Exit: With code 1 if the running service has not answered yet.
    """
    import time

    from hushgrid.curator.gaps import resume_zones
    from hushgrid.files.service_file import load_deployment

    deployment = load_deployment(file)
    lost_deployments = [
        deployment if path.resolve() == file.resolve() else load_deployment(path)
        for path in lost_terms or ()
    ]
    results = resume_zones(deployment, zone, time.time(), lost_terms=lost_deployments)
    for result in results:
        if result.state == "resumed":
            cost = (
                "no epsilon of their own"
                if result.epsilon is None
                else f"epsilon {result.epsilon:g}"
            )
            common.echo(
                f"zone {result.zone}: steps {result.first} to {result.last} are booked with {cost}",
                json,
            )
        elif result.state == "asked":
            common.echo(f"zone {result.zone}: the service is asked and has not answered yet", json)
        elif result.state == "confirmed":
            text = "nothing is missing, and the service takes its clock for right"
            common.echo(f"zone {result.zone}: {text}", json)
        else:
            common.echo(
                f"zone {result.zone}: no gap is on record, so there is nothing to book", json
            )
    common.write_json({"zones": [result._asdict() for result in results]}, json)
    if any(result.state == "asked" for result in results):
        raise typer.Exit(1)


app = typer.Typer(
    help="Add, list and revoke the clients of a service.",
    no_args_is_help=True,
)

Service = Annotated[Path, typer.Option("--config", help="Service file (TOML).")]
Name = Annotated[str, typer.Argument(metavar="ID", help="The client's id.")]
Meters = Annotated[
    list[str] | None,
    typer.Option(help="Meter id, or prefix and asterisk, that it may send; repeatable."),
]


@app.command()
def add(
    name: Name,
    config: Service = Path("service.toml"),
    scope: Annotated[
        list[str] | None,
        typer.Option(help="meters, operator, auditor, ven, business, or a scope; repeatable."),
    ] = None,
    ven: Annotated[str | None, typer.Option(help="Name of the client's VEN.")] = None,
    meters: Meters = None,
    json: common.Json = None,
) -> None:
    """Add a client and print its secret once; only a hash of it is stored.

    Example: hushgrid client add meters-north --scope meters --meters 'north-*' --config
    service.toml

    \f
    Args: see the help of each option.

    Raises:
        AccessError: If no scope is given, or the client is not allowed.
        ServiceError: If it may send readings to a production service and is bound to no meters.
    """
    import time
    from dataclasses import replace

    from hushgrid.errors import AccessError
    from hushgrid.files.service_file import load_deployment
    from hushgrid.stores.clients import (
        KINDS,
        Client,
        ClientStore,
        check_bound,
        expand_scopes,
        hash_secret,
        new_secret,
    )

    if not scope:
        raise AccessError(
            "invalid_scope", f"--scope is missing; give one of {', '.join(KINDS)}, or a scope."
        )
    scopes, secret = expand_scopes(scope), new_secret()
    client = Client(
        name, scopes, hash_secret(secret), int(time.time()), ven, meters=tuple(meters or ())
    )
    deployment = load_deployment(config, planned=False)
    check_bound(replace(deployment, http=None), [client])
    with ClientStore(deployment.client_store) as store:
        store.add(client)
    common.echo(
        f"client_id      {name}\nclient_secret  {secret}\nscope          {' '.join(scopes)}", json
    )
    common.echo(
        "Store this secret now: it cannot be printed again. If lost, revoke the client and add a"
        " new one.",
        json,
    )
    values = {"client_id": name, "client_secret": secret, "scopes": scopes, "ven": ven}
    common.write_json({**values, "meters": client.meters}, json)


@app.command()
def bind(
    name: Name,
    meters: Meters = None,
    config: Service = Path("service.toml"),
    json: common.Json = None,
) -> None:
    """Bind a client to these meters and no others; their readings are taken from no one else.

    Example: hushgrid client bind meters-north --meters 'north-*' --config service.toml

    \f
    Args: see the help of each option.

    Raises:
        AccessError: If no meters are given, or there is no such active client.
    """
    from hushgrid.errors import AccessError
    from hushgrid.files.service_file import load_deployment
    from hushgrid.stores.clients import ClientStore

    if not meters:
        raise AccessError("invalid_client", "--meters is missing; give an id or a prefix.")
    with ClientStore(load_deployment(config, planned=False).client_store) as store:
        if not store.bind(name, meters):
            raise _no_such(name)
    common.echo(f"{name} is bound to {' '.join(meters)}.", json)
    common.write_json({"client_id": name, "meters": meters}, json)


def _no_such(name: str) -> Exception:
    from hushgrid.errors import AccessError
    from hushgrid.files.toml import display

    return AccessError(
        "invalid_client",
        f"client id is {display(name)}; give one that hushgrid client list shows as active.",
    )


@app.command("list")
def list_(config: Service = Path("service.toml"), json: common.Json = None) -> None:
    """List all clients, the revoked ones too.

    Example: hushgrid client list --config service.toml

    \f
    Args: see the help of each option.
    """
    from hushgrid.curator.clock import utc
    from hushgrid.files.service_file import load_deployment
    from hushgrid.stores.clients import ClientStore

    with ClientStore(load_deployment(config, planned=False).client_store) as store:
        clients = store.all()
    rows: list[dict[str, Any]] = [
        {
            "client_id": client.id,
            "scopes": client.scopes,
            "ven": client.ven,
            "meters": client.meters,
            "created": utc(client.created),
            "revoked": None if client.revoked is None else utc(client.revoked),
        }
        for client in clients
    ]
    for row in rows:
        state = " ".join([*row["scopes"], *row["meters"]])
        if row["revoked"] is not None:
            state = f"revoked {row['revoked']}"
        common.echo(f"{row['client_id']:<24} {row['created']}  {state}", json)
    common.write_json({"clients": rows}, json)


@app.command()
def revoke(name: Name, config: Service = Path("service.toml"), json: common.Json = None) -> None:
    """Revoke a client; its tokens end within seconds, and its id is never used again.

    Example: hushgrid client revoke meters-north --config service.toml

    \f
    Args: see the help of each option.

    Raises:
        AccessError: If there is no such active client.
    """
    import time

    from hushgrid.files.service_file import load_deployment
    from hushgrid.stores.clients import ClientStore

    with ClientStore(load_deployment(config, planned=False).client_store) as store:
        if not store.revoke(name, int(time.time())):
            raise _no_such(name)
    common.echo(f"{name} is revoked.", json)
    common.write_json({"client_id": name, "revoked": True}, json)


_SPEED = "Speed-up over real time (720 = one day in 2 minutes)."
_PIECES = 96 + 24 + 2  # of work: releases, days foreseen, a plan and an audit


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Play one day without a page, and judge it.")
    ] = False,
    epsilon: Annotated[float, typer.Option(help="Promised about any 24 hours of any home.")] = 1.0,
    seed: common.Seed = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
    speed: Annotated[float, typer.Option(min=1, max=1e6, help=_SPEED)] = 720.0,
    browser: Annotated[
        bool | None,
        typer.Option(help="Open the page of the adversaries; by default where a terminal is."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for what --once writes.")] = Path("out/demo"),
    json: common.Json = None,
) -> None:
    """Run a zone of 1,000 simulated houses, with two adversaries that see its prices.

    Curator, ledger, price server and pages are the real ones, on this machine only.

    Example: hushgrid demo --once --json -

    \f
    Args: see the help of each option.
    """
    for module in ("uvicorn", "starlette", "paho.mqtt.client", "prometheus_client", "httpx"):
        common.require(module, "serve")
    if once:
        common.require("matplotlib", "plot")
        _play_once(epsilon, out, seed, json)
    else:
        _live(epsilon, seed, port, speed, browser)


def _live(epsilon: float, seed: int, port: int, speed: float, browser: bool | None) -> None:
    """One day after another, until a signal stops it."""
    import sys
    import time
    import webbrowser
    from contextlib import ExitStack

    with ExitStack() as bar:
        tick = bar.enter_context(common.progress("opening 1,000 houses", 2))
        from hushgrid.demo.living import EVENING, DemoOptions, check_epsilon, run_demo
        from hushgrid.demo.panel import DAY

        tick()
        begins = int(time.time()) // DAY * DAY + EVENING
        options = DemoOptions(check_epsilon(epsilon), begins, seed=seed, port=port, speed=speed)
        show_page = sys.stdout.isatty() if browser is None else browser

        def report(line: str) -> None:
            nonlocal show_page
            tick()
            bar.close()
            common.echo(line, None)
            if show_page:  # with the first line, which has the address
                show_page = False
                webbrowser.open(line.partition(": ")[2].split()[0])

        run_demo(options, _requests(), report)


def _play_once(epsilon: float, out: Path, seed: int, json: str | None) -> None:
    """One day, judged and written."""
    import time

    start = time.monotonic()
    with common.progress("one day of 1,000 houses", _PIECES) as tick:
        from hushgrid.demo.living import check_epsilon, play_once
        from hushgrid.files.results import json_text, make_folder, save_figures, write_text
        from hushgrid.lab.simulation import errors_of_days
        from hushgrid.report import demo as report

        check_epsilon(epsilon)
        make_folder(out)
        result = play_once(epsilon, out, _requests(), errors_of_days, seed=seed, tick=tick)
    figures = save_figures(out, {"demo": report.demo_figure(result.day)})
    values = report.demo_json(result.day) | {
        "seconds": round(time.monotonic() - start, 3),
        "ledger": str(result.ledger),
        "files": [str(path) for path in (*figures, *result.files)],
    }
    paths = [write_text(out / "demo.json", json_text(values)), *figures, *result.files]
    paths += common.write_json(values, json)
    common.echo(f"{report.demo_prose(result.day)}\n\n{report.demo_table(result.day)}\n", json)
    common.echo_written(paths, json)
    if not all(result.day.holds.values()):
        raise typer.Exit(1)


def _requests() -> Any:
    """Requests to the demo: signals stop it. Warnings are logged."""
    import logging
    import signal

    from hushgrid.curator.clock import log_lines
    from hushgrid.demo.living import DemoRequests

    requests = DemoRequests()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: requests.stop())
    log_lines(level=logging.WARNING)
    return requests
