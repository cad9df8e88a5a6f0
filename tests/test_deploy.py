"""What lies in deploy/: every name in it exists, and what can run here is run."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import paho.mqtt.client as paho
import pytest
import yaml
from paho.mqtt.enums import CallbackAPIVersion

from hushgrid.files.service_file import load_deployment
from hushgrid.operate.template import example
from hushgrid.web.http.metrics import CountedPublisher, Metrics
from hushgrid.web.mqtt import hang_up
from tests.secured import DEPLOY, ROOT, Secured, certify
from tests.web.brokers import free_port, until
from tests.web.openadr.setup import World, world

GUIDE = (ROOT / "docs" / "operations.md").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICE = tomllib.loads((DEPLOY / "service.toml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
NGINX = (DEPLOY / "nginx.conf").read_text()
IMAGE = r"(?:[a-z0-9-]+/)?[a-z0-9-]+:[\w.-]+(?:@sha256:[0-9a-f]{64})?"  # no registry's host


def mounted(service: str) -> set[str]:
    """Every path that a container finds besides those of its image."""
    named = {each.split(":")[1] for each in SERVICES[service].get("volumes", ())}
    return named | {f"/run/secrets/{each}" for each in SERVICES[service].get("secrets", ())}


def test_compose_names_only_what_there_is() -> None:
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            there = (DEPLOY / source).exists() if "/" in source else source in COMPOSE["volumes"]
            assert there, (name, volume)
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"]), name
        assert set(service.get("networks", ())) <= set(COMPOSE["networks"]), name
        for other, how in service.get("depends_on", {}).items():
            checks = "healthcheck" in SERVICES[other] or "HEALTHCHECK" in DOCKERFILE
            assert how["condition"] != "service_healthy" or checks
    build = SERVICES["hushgrid"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    used = {one for service in SERVICES.values() for one in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])


def test_no_secret_is_in_the_repository_and_the_guide_says_how_to_make_each() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "deploy/secrets/" in ignored
    for secret in COMPOSE["secrets"].values():
        assert secret["file"].removeprefix("./") in GUIDE, secret
    text = (DEPLOY / "compose.yaml").read_text() + (DEPLOY / "service.toml").read_text()
    assert not re.search(r"password(?!_file|s?:\n|s?\]|s?,|_digests)\s*[:=]\s*\S", text, re.I)


def test_images_are_names_with_versions() -> None:
    images = [service["image"] for service in SERVICES.values() if "image" in service]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert len(images) == 5
    for image in images:
        assert re.fullmatch(IMAGE, image), image
        assert not image.endswith(":latest")


def test_images_are_pinned_by_what_the_registry_says(tmp_path: Path) -> None:
    """The registry is a program that knows a digest for each name."""
    registry = tmp_path / "bin" / "docker"
    registry.parent.mkdir()
    registry.write_text(
        "#!/bin/sh\n"
        '[ "$*" = "buildx imagetools inspect $4 --format {{.Manifest.Digest}}" ] || exit 1\n'
        'printf "%s$TURN" "$4" | sha256sum | sed -E "s/^([0-9a-f]+).*/sha256:\\1/"\n'
    )
    registry.chmod(0o755)
    copy = tmp_path / "deploy"
    shutil.copytree(DEPLOY, copy)
    for turn in ("1", "2"):
        path = f"{registry.parent}:/usr/bin:/bin"
        subprocess.run([copy / "pin-images.sh"], env={"PATH": path, "TURN": turn}, check=True)
        for name in ("Dockerfile", "compose.yaml"):
            text = (copy / name).read_text()
            for image in re.findall(r"^(?:FROM| *image:) (\S+)", text, re.M):
                name_and_version, _, digest = image.partition("@")
                assert (
                    digest == f"sha256:{sha256(f'{name_and_version}{turn}'.encode()).hexdigest()}"
                )
            assert re.sub(r"@sha256:\w+", "", text) == (DEPLOY / name).read_text()


def test_wheels_are_pinned_for_what_the_image_installs() -> None:
    command = "".join(
        re.findall(r"^#   (.*?)\\?$", (DEPLOY / "requirements.txt").read_text(), re.M)
    )
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", DOCKERFILE)
    assert re.findall(r"--extra (\w+)", command) == extras.split(",")
    for file in re.findall(r"[\w/-]+\.(?:toml|txt)", command):
        assert (ROOT / file).exists(), file


def test_only_proxy_and_broker_are_reached_from_outside() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {
        "proxy",
        "mosquitto",
    }
    assert COMPOSE["networks"]["inside"]["internal"] is True
    subnets = [one["subnet"] for one in COMPOSE["networks"]["inside"]["ipam"]["config"]]
    assert SERVICE["http"]["proxies"] == subnets


def test_the_service_file_fits_the_containers(tmp_path: Path) -> None:
    made = load_deployment(DEPLOY / "service.toml")
    assert made.http is not None
    assert made.mqtt is not None
    database = SERVICES["postgres"]["environment"]
    url = f"postgresql://{database['POSTGRES_USER']}@postgres/{database['POSTGRES_DB']}"
    assert {made.ledger, made.meters, made.client_store, made.vtn_store} == {url}
    assert made.mqtt.host in SERVICES
    there = mounted("hushgrid")
    for path in (made.key, made.mqtt.password_file, made.price_file):
        assert any(str(path).startswith(place) for place in there), path
    assert SERVICES["hushgrid"]["environment"]["PGPASSFILE"] in there
    assert "/etc/hushgrid/service.toml" in there
    assert f"http://127.0.0.1:{made.http.port}/readyz" in DOCKERFILE
    assert f"EXPOSE {made.http.port}\n" in DOCKERFILE
    assert f"server hushgrid:{made.http.port};" in NGINX
    # nothing is written but to volumes
    assert SERVICES["hushgrid"]["read_only"] is True
    volumes = {"/var/lib/hushgrid", "/var/cache/hushgrid"}
    assert volumes <= there
    assert all(volume in DOCKERFILE for volume in volumes)


def test_the_example_zone_is_the_one_that_init_writes() -> None:
    source = example(0)
    copy = (DEPLOY / "zones" / "elm-street.toml").read_text()
    assert copy[copy.index("[zone]") :] == source[source.index("[zone]") :]


def test_the_image_has_extras_that_exist_and_runs_as_nobody_special() -> None:
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", DOCKERFILE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert {"serve", "postgres"} <= set(extras.split(","))
    user = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.M)
    assert user == ["10001"]
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M):
        for source in line.split():
            assert (ROOT / source).exists()
            assert f"!{source}" in kept
    (command,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.M)
    assert yaml.safe_load(command) == ["serve", "/etc/hushgrid/service.toml"]
    cache = "NUMBA_CACHE_DIR=/var/cache/hushgrid"
    assert cache in DOCKERFILE
    assert cache in (DEPLOY / "hushgrid.service").read_text()


def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    text = (DEPLOY / "hushgrid.service").read_text()
    wanted = ["ProtectSystem=strict", "StateDirectory=hushgrid", "Restart=on-failure",
              "LimitNOFILE=", "NoNewPrivileges=yes", "User=hushgrid"]  # fmt: skip
    assert all(f"\n{each}" in text for each in wanted)
    for page in ("/etc/hushgrid/service.toml", "/opt/hushgrid"):
        assert page in text
        assert page in GUIDE
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "hushgrid.service"  # with a program that is there, and nothing else changed
    unit.write_text(text.replace("/opt/hushgrid/bin/hushgrid", shutil.which("true") or ""))
    found = subprocess.run([tool, "verify", unit], capture_output=True, text=True, check=False)
    if "Failed to" in found.stderr and "bus" in found.stderr:
        pytest.skip("systemd-analyze cannot run here")
    assert (found.returncode, found.stderr) == (0, "")


# ---- the broker, run as it is configured


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    made.start()
    yield made
    made.stop()


class Line:
    """A client of the broker; what it heard by topic."""

    def __init__(
        self, port: int, user: str | None, word: str = "", trust: Path | None = None
    ) -> None:
        self.heard: dict[str, set[bytes]] = {}
        self.code: int | None = None
        self._there, self._subscribed = threading.Event(), threading.Event()
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        if user:
            self._client.username_pw_set(user, word)
        if trust is not None:
            self._client.tls_set(str(trust))
        self._client.on_connect = self._connected
        self._client.on_message = self._message
        self._client.on_subscribe = self._asked
        self._client.connect("localhost" if trust else "127.0.0.1", port)
        self._client.loop_start()
        assert self._there.wait(30)

    def _connected(self, *found: Any) -> None:
        self.code = found[3].value
        self._there.set()

    def _message(self, _client: Any, _data: Any, message: Any) -> None:
        self.heard.setdefault(message.topic, set()).add(message.payload)

    def _asked(self, *found: Any) -> None:
        self._subscribed.set()

    def subscribe(self, topic: str) -> None:
        self._subscribed.clear()
        self._client.subscribe(topic, 1)
        assert self._subscribed.wait(30)

    def publish(self, topic: str, text: str) -> None:
        self._client.publish(topic, text, 0).wait_for_publish(30)

    def close(self) -> None:
        hang_up(self._client)


def test_the_broker_lets_each_do_its_own_alone(secured: Secured, tmp_path: Path) -> None:
    prices, readings = "hushgrid/prices/elm-street", "hushgrid/readings/meters-north/a"
    events, sensor = "OpenADR/3.1.0/events/create", "homeassistant/sensor/x/config"
    trust = tmp_path / "tls.crt"
    who: list[tuple[Any, ...]] = [
        (secured.port, "hushgrid", "secret of hushgrid"),
        (secured.secure, "meters-north", "secret of meters-north", trust),
        (secured.public, None, "", trust),
        (secured.public, "hushgrid", "secret of hushgrid", trust),
    ]
    service, meters, anybody, claims = lines = [Line(*one) for one in who]
    try:
        for line in lines:
            assert line.code == 0
            line.subscribe("#")
        for topic in (prices, readings, events, "hushgrid/readings/meters-south/a", sensor):
            for k, one in reversed([*enumerate(who)]):  # everybody tries everything
                attempt = Line(*one)  # a new one: some brokers hang up on who may not
                attempt.publish(topic, f"of {k}")
                attempt.close()
        assert until(lambda: set(anybody.heard) == {prices, events, sensor})
        assert until(lambda: service.heard == {readings: {b"of 1"}})
        assert set().union(*anybody.heard.values()) == {b"of 0"}
        assert meters.heard == claims.heard == {}
    finally:
        for line in lines:
            line.close()
    refused: list[tuple[Any, ...]] = [
        (secured.port, "hushgrid", "guessed"),
        (secured.port, None),
        (secured.secure, None, "", trust),
    ]
    for one in refused:
        wrong = Line(*one)
        assert wrong.code != 0
        wrong.close()


# ---- the proxy, run as it is configured


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[World, httpx.Client]]:
    """A service behind the proxy of deploy/."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed")
    certify(tmp_path)
    port, plain = free_port(), free_port()
    with world(tmp_path) as service:
        (tmp_path / "mime.types").write_text("types {}\n")
        told = NGINX
        for old, new in {
            "hushgrid:8080": f"127.0.0.1:{service.server.port}",
            "listen 80;": f"listen 127.0.0.1:{plain};",
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/run/secrets/tls_certificate": str(tmp_path / "tls.crt"),
            "/run/secrets/tls_key": str(tmp_path / "tls.key"),
            "/etc/nginx/mime.types": str(tmp_path / "mime.types"),
            "/var/cache/nginx/pages": str(tmp_path / "pages"),
            "/tmp/nginx.pid": str(tmp_path / "nginx.pid"),
            "client_header_timeout 10s": "client_header_timeout 1s",
            "client_body_timeout 30s": "client_body_timeout 1s",
        }.items():
            assert told.count(old) == 1, old
            told = told.replace(old, new)
        for place in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
            path = f"{place}_temp_path {tmp_path / place};\n"
            told = told.replace("http {\n", f"http {{\n{path}", 1)
        told = f"user root;\ndaemon off;\n{told}".replace("auto;", "1;", 1)
        (tmp_path / "nginx.conf").write_text(told)
        words = [program, "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "errors")]
        trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
        client = httpx.Client(base_url=f"https://localhost:{port}", verify=trust, timeout=30)
        process = subprocess.Popen(words)
        try:
            assert until(lambda: answers(client)), (tmp_path / "errors").read_text()
            yield service, client
        finally:
            client.close()
            process.terminate()
            process.wait(30)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/price HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
    ],
)
def test_slow_clients_are_the_proxys(behind: tuple[World, httpx.Client], sent: bytes) -> None:
    service, client = behind
    state = service.server._server.server_state
    assert until(lambda: state.total_requests > 0), "the answer that the fixture waited for"
    before = state.total_requests
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=30) as plain,
        trust.wrap_socket(plain) as sock,
    ):
        sock.sendall(sent)
        with suppress(ConnectionResetError):
            assert sock.recv(1000)[:12] in (b"", b"HTTP/1.1 408")
    assert state.total_requests == before, "the service never saw it"


def test_a_price_goes_through_the_proxy_once(behind: tuple[World, httpx.Client]) -> None:
    service, client = behind
    for path in ("/v1/price", "/v1/prices", "/v1/evcc", "/v1/evcc/feed_in", "/v1/vse/tariffs"):
        first = client.get(f"{path}?zone=elm-street")
        assert first.status_code == 200, path
        assert first.headers["cache-control"] == "no-cache"
        assert "max-age" in first.headers["strict-transport-security"]
        own = httpx.get(f"{service.root}{path}?zone=elm-street")
        assert (first.content, first.headers["etag"]) == (own.content, own.headers["etag"])
    stream = client.stream("GET", "/v1/stream?zone=elm-street")
    with stream as lines:
        assert next(lines.iter_lines()).startswith(("id:", "retry:", ":", "event:", "data:"))
    for hidden in ("/metrics", "/readyz"):
        assert client.get(hidden).status_code == 404
    assert client.get("/openadr3/3.1.0/programs").status_code == 200
    service.server.stop()  # what follows comes from the proxy alone
    again = client.get("/v1/price?zone=elm-street")
    assert again.status_code == 200
    same = {"If-None-Match": again.headers["etag"]}
    assert client.get("/v1/price?zone=elm-street", headers=same).status_code == 304
    assert client.get("/v1/price?zone=oak-lane").status_code == 502


# ---- Prometheus and Grafana

RULES = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DEPLOY / "grafana.json").read_text())
WORDS = {"sum", "by", "increase", "delta", "clamp_min", "absent", "time"}


NAME = r"(?:hushgrid_\w+|\bup\b)"  # of a figure


def figures() -> dict[str, set[str]]:
    """The labels of each figure of a service, by the name Prometheus has."""
    found = {"up": {"job", "instance"}}  # Prometheus's own
    metrics = Metrics()
    for registry in (metrics.registry, metrics._operator):
        for one in registry._collector_to_names:
            name = f"{one._name}_total" if one._type == "counter" else one._name
            found[name] = set(one._labelnames)
    return found


def expressions() -> list[str]:
    panels = [one["expr"] for panel in DASHBOARD["panels"] for one in panel["targets"]]
    return [rule["expr"] for rule in RULES] + panels


def test_rules_and_panels_name_what_there_is() -> None:
    known = figures()
    assert len(expressions()) > 20
    for expr in expressions():
        assert all(expr.count(a) == expr.count(b) for a, b in ("()", "[]", "{}"))
        used = re.findall(NAME, expr)
        assert used
        assert set(used) <= set(known), expr
        labels = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!=|=)", expr)
        labels += [
            one.strip() for part in re.findall(r"by \((.*?)\)", expr) for one in part.split(",")
        ]
        for label in labels:
            assert all(label in known[name] for name in used), expr
        rest = re.sub(rf"\{{.*?\}}|\[.*?\]|by \(.*?\)|{NAME}", " ", expr)
        assert set(re.findall(r"[a-z_]+", rest)) <= WORDS, expr
    for rule in RULES:
        wanted = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = re.search(r"by \((.*?)\)", rule["expr"])
        names = re.findall(NAME, rule["expr"])
        there = {grouped[1]} if grouped else set.intersection(*(known[one] for one in names))
        assert wanted <= there, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_the_dashboard_lays_its_panels_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "zone"}


# what a healthy service has every five minutes for six hours, and what each alert is for
UP = 'up{job="hushgrid",instance="curator:8080"}'
HEALTHY = {
    UP: "1x72",
    'hushgrid_zone_open{zone="a"}': "1x72",
    'hushgrid_prices_until_seconds{zone="a"}': "90000x72",
    'hushgrid_clock_in_doubt{zone="a"}': "0x72",
    'hushgrid_readings_lost{zone="a"}': "0x72",
    'hushgrid_releases_total{zone="a",source="readings"}': "0+1x72",
    'hushgrid_releases_total{zone="a",source="forecast"}': "0x72",
    'hushgrid_zone_errors_total{zone="a"}': "0x72",
    'hushgrid_publisher_failures_total{publisher="MqttPrices"}': "0x72",
    'hushgrid_readings_total{kind="new"}': "0+50x72",
    'hushgrid_readings_total{kind="late"}': "0x72",
    'hushgrid_webhooks_total{outcome="delivered"}': "0+1x72",
    'hushgrid_webhooks_total{outcome="dropped"}': "0x72",
}
FAULTS = {
    "HushgridZoneClosed": ('hushgrid_zone_open{zone="a"}', "1x12 0x60"),
    "HushgridNoPrice": ('hushgrid_releases_total{zone="a",source="readings"}', "5x72"),
    "HushgridPricesEnd": ('hushgrid_prices_until_seconds{zone="a"}', "15000x72"),
    "HushgridClockInDoubt": ('hushgrid_clock_in_doubt{zone="a"}', "0x12 1x60"),
    "HushgridReadingsLost": ('hushgrid_readings_lost{zone="a"}', "0x12 3x60"),
    "HushgridWithoutReadings": (
        'hushgrid_releases_total{zone="a",source="forecast"}', "0x40 1+1x32",
    ),
    "HushgridZoneErrors": ('hushgrid_zone_errors_total{zone="a"}', "0x40 1+1x32"),
    "HushgridNotPublished": (
        'hushgrid_publisher_failures_total{publisher="MqttPrices"}', "0x40 1+1x32",
    ),
    "HushgridSenders": ('hushgrid_readings_total{kind="late"}', "0x20 1+1x52"),
    "HushgridSubscribersAway": ('hushgrid_webhooks_total{outcome="dropped"}', "0x40 1+1x32"),
}  # fmt: skip


@pytest.fixture
def promtool() -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed (package prometheus)")
    return tool


def test_promtool_takes_the_rules(promtool: str) -> None:
    rules = str(DEPLOY / "alerts.yml")
    subprocess.run([promtool, "check", "rules", rules], check=True, timeout=60)


def trial(
    name: str, figures: dict[str, str], raised: dict[str, dict[str, str]], at: str = "4h"
) -> dict[str, object]:
    """A test of rules: figures every five minutes, and the labels of each alert they raise."""

    def alert(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
        text = rule["annotations"]["summary"]
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
        return {"exp_labels": rule["labels"] | labels, "exp_annotations": {"summary": summary}}

    assert set(raised) <= {rule["alert"] for rule in RULES}
    return {
        "name": name,
        "interval": "5m",
        "input_series": [{"series": a, "values": b} for a, b in figures.items()],
        "alert_rule_test": [
            {
                "eval_time": at,
                "alertname": rule["alert"],
                "exp_alerts": [alert(rule, raised[rule["alert"]])]
                if rule["alert"] in raised
                else [],
            }
            for rule in RULES
        ],
    }


def test_each_alert_is_raised_by_its_fault_and_by_no_other(promtool: str, tmp_path: Path) -> None:
    """By Prometheus's own evaluation, in the fifth hour: a healthy service raises none."""
    assert set(FAULTS) | set(DEAD) == {rule["alert"] for rule in RULES}
    tests = [trial("healthy", HEALTHY, {})]
    for fault, (series, values) in FAULTS.items():
        labels = dict(re.findall(r'(zone|publisher|kind|outcome)="(\w+)"', series)[:1])
        tests.append(trial(fault, HEALTHY | {series: values}, {fault: labels}))
    check_rules(promtool, tmp_path, tests)


# the alerts of a service that died in the second hour: all its other figures end
DEAD = {"HushgridDown": {"job": "hushgrid", "instance": "curator:8080"}, "HushgridAbsent": {}}


def test_a_dead_service_raises_an_alert_that_lasts(promtool: str, tmp_path: Path) -> None:
    ended = {name: f"{values.split('x')[0]}x12 stale" for name, values in HEALTHY.items()}
    died = ended | {UP: "1x12 0x60"}
    tests = [trial(f"dead at {at}", died, DEAD, at) for at in ("2h30m", "4h", "6h")]
    lost = {"HushgridAbsent": DEAD["HushgridAbsent"]}
    tests.append(trial("no longer asked", ended, lost))
    one_of_two = died | {name.replace("curator", "second"): "1x72" for name in (UP,)}
    one_of_two |= {'hushgrid_zone_open{zone="a",instance="second:8080"}': "1x72"}
    tests.append(trial("one of two", one_of_two, {"HushgridDown": DEAD["HushgridDown"]}))
    check_rules(promtool, tmp_path, tests)


def test_the_first_failure_of_a_service_is_seen(promtool: str, tmp_path: Path) -> None:
    """Counters exist before anything fails; with the first failure alone they would be too late."""
    metrics = Metrics(["a"])
    CountedPublisher(type("MqttPrices", (), {})(), metrics)
    lines = metrics.text().decode().splitlines()
    began = {tuple(sorted(labels_of(line))): line.endswith(" 0.0") for line in lines}
    tests = []
    for fault in ("HushgridZoneErrors", "HushgridNotPublished", "HushgridWithoutReadings"):
        series, _ = FAULTS[fault]
        there = began.get(tuple(sorted(labels_of(series))), False)
        labels = dict(re.findall(r'(zone|publisher)="(\w+)"', series)[:1])
        once = HEALTHY | {series: f"{'0' if there else '_'}x46 1x24"}
        tests.append(trial(fault, once, {fault: labels}, at="4h"))
    check_rules(promtool, tmp_path, tests)


def labels_of(line: str) -> list[str]:
    """The name of a series and its labels."""
    name, _, rest = line.partition("{")
    return [name, *re.findall(r'\w+="[^"]*"', rest)]


def check_rules(promtool: str, tmp_path: Path, tests: list[dict[str, object]]) -> None:
    file = tmp_path / "alerts.test.yml"
    said = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "5m", "tests": tests}
    file.write_text(yaml.safe_dump(said))
    done = subprocess.run(
        [promtool, "test", "rules", str(file)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
