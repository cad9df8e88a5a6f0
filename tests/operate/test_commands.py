"""The commands around a service: import, status, meters, serve."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from hushgrid.curator.clock import SystemClock
from hushgrid.curator.ingest import UNKNOWN, Ingest
from hushgrid.files.service_file import load_deployment
from hushgrid.files.settings import Http
from hushgrid.stores.clients import Client, ClientStore, hash_secret, new_secret
from hushgrid.stores.meters import open_meters
from hushgrid.web.http.app import make_app
from hushgrid.web.http.metrics import Metrics, ZoneStates
from hushgrid.web.http.server import Server
from hushgrid.web.mqtt import MqttReadings
from hushgrid.web.tokens import Access
from tests.curator.worlds import TOKEN, MemoryMeters
from tests.operate.reading_files import DIGEST, NOTHING, run
from tests.web.brokers import Broker, until
from tests.web.http.faces import FORMATS, table


def rows(file: Path, count: int = 5) -> list[tuple[str, int, int, int]]:
    zone = load_deployment(file).zones[0]
    start = int(time.time()) // 900 * 900
    known = [(meter, start, 900, 50 + i) for i, meter in enumerate(zone.meters[:count])]
    return [*known, ("stranger", start, 900, 8)]


SUFFIXES = {
    ".json": "application/json",
    ".ndjson": "application/x-ndjson",
    ".csv": "text/csv; charset=utf-8",
    ".arrows": "application/vnd.apache.arrow.stream",
}


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".parquet"])
def test_import_takes_every_kind_of_file(
    file: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = file.parent / f"readings{suffix}"
    if suffix == ".parquet":
        pq.write_table(table(rows(file)), made)
    else:
        made.write_bytes(FORMATS[SUFFIXES[suffix]](rows(file)))
    status, out, err = run(capsys, "import", made, "--config", file, "--json", "-")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        **NOTHING,
        "accepted": 5,
        "unknown": 1,
        "outside": 0,
        "problems": [],
        "reasons": {UNKNOWN: {"count": 1, "first": "reading 6"}},
    }
    _, out, _ = run(capsys, "import", made, made, "--config", file)
    assert "accepted 0" in out
    assert "duplicate 10" in out


def test_import_takes_readings_of_later_weeks(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan is one week that repeats: it ends nothing."""
    zone = load_deployment(file).zones[0]
    later, before = zone.ends + 30 * 86_400, zone.begins - 900
    made = file.parent / "later.ndjson"
    told = [(zone.meters[0], start, 900, 50) for start in (later, before)]
    made.write_bytes(FORMATS["application/x-ndjson"](told))
    _, out, _ = run(capsys, "import", made, "--config", file, "--json", "-")
    values = json.loads(out)
    assert (values["accepted"], values["outside"]) == (1, 1)


def test_import_says_what_is_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd, wrong = file.parent / "readings.doc", file.parent / "wrong.csv"
    odd.write_text("hello")
    wrong.write_text("a,b\n")
    for given, says in (
        ([odd], "'.doc'"),
        ([wrong], "wrong.csv: CSV header"),
        ([file.parent / "absent.csv"], "absent.csv cannot be read"),
        ([wrong, "--mapping", "other"], "mapping is 'other'"),
    ):
        status, out, err = run(capsys, "import", *given, "--config", file)
        assert (status, out) == (2, "")
        assert says in err
        assert err.count("\n") == 1
    with open_meters(load_deployment(file).meters):
        status, _, err = run(capsys, "import", wrong, "--config", file)
        assert status == 2
        assert "in use by another process" in err


def test_import_of_a_file_without_a_usable_row_fails(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, each reason with its count and first row; the rows of other files are stored."""
    good, other = file.parent / "good.ndjson", file.parent / "other.ndjson"
    good.write_bytes(FORMATS["application/x-ndjson"](rows(file)))
    meter, start, _, _ = rows(file)[0]
    other.write_bytes(
        FORMATS["application/x-ndjson"](
            [(meter, start // 3600 * 3600, 3600, 8), ("x", start, 900, 8)]
        )
        + b'{"meter": "x"}\n' * 2
    )
    status, out, err = run(capsys, "import", good, other, "--config", file, "--json", "-")
    found = json.loads(out)
    assert status == 1
    assert err.startswith(f"{other}: no row is a reading of a meter of this service (2 rows, first")
    assert (found["accepted"], found["malformed"], found["unknown"]) == (5, 3, 2)
    assert {
        text[:40]: (each["count"], each["first"]) for text, each in found["reasons"].items()
    } == {
        UNKNOWN[:40]: (2, "good.ndjson reading 6"),
        "field meter_id is missing (perhaps 'mete": (2, "other.ndjson line 3"),
        "lasts 3600 s, but the intervals of zone ": (1, "other.ndjson reading 1"),
    }
    status, out, _ = run(capsys, "import", good, "--config", file)
    assert (status, "duplicate 5" in out) == (0, True)


def test_import_takes_an_export_by_its_mapping(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meter, start, _, _ = rows(file)[0]
    times = [datetime.fromtimestamp(start + s, UTC).isoformat() for s in (0, 900, 1800)]
    export, own = file.parent / "export.csv", file.parent / "own.toml"
    export.write_text(
        f" Consumption (kwh), Start, End\n0.1,{times[0]},{times[1]}\n0.2,{times[1]},{times[2]}\n"
    )
    given = ("import", export, "--config", file, "--json", "-", "--meter-id", meter, "--mapping")
    status, out, err = run(capsys, *given, "octopus")
    assert (status, err) == (0, "")
    assert json.loads(out)["accepted"] == 2
    own.write_text('base = "octopus"\nend = "Until"\n')
    export.write_text(export.read_text().replace("End", "Until"))
    status, out, _ = run(capsys, *given, own)
    assert (status, json.loads(out)["duplicate"]) == (0, 2)
    file.write_text(f'{file.read_text()}\n[mappings]\nacme = "own.toml"\n')
    status, out, _ = run(capsys, *given, "acme")
    assert (status, json.loads(out)["duplicate"]) == (0, 2)
    for mapping, says in ((own, "--meter-id ID"), (file.parent / "no.toml", "no.toml")):
        status, out, err = run(capsys, "import", export, "--config", file, "--mapping", mapping)
        assert (status, out) == (2, "")
        assert says in err


class Curious:
    """A service's ingest behind a real server, with a store in memory."""

    def __init__(self, file: Path) -> None:
        made = load_deployment(file)
        self.meters = MemoryMeters(*made.zones)
        self.ingest = Ingest(made.zones, self.meters)
        self.clients = ClientStore(str(file.parent / "clients.sqlite"))
        app = make_app(
            self.ingest,
            ZoneStates(z.id for z in made.zones),
            Metrics(),
            Http(tokens=(DIGEST,)),
            access=Access(self.clients, b"k" * 32, SystemClock(), lifetime=1, static=(DIGEST,)),
        )
        self.server = Server(app, "127.0.0.1", 0)
        self.server.start()
        self.url = f"http://127.0.0.1:{self.server.port}"


@pytest.fixture
def curious(file: Path) -> Iterator[Curious]:
    made = Curious(file)
    yield made
    made.server.stop()
    made.clients.close()


def test_a_fleet_feeds_a_curator_over_http(
    file: Path,
    curious: Curious,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HUSHGRID_TOKEN", TOKEN)
    call = ("meters", "--config", file, "--to", curious.url, "--speed", 1e6, "--steps", 3)
    status, out, err = run(capsys, *call, "--seed", 5, "--json", "-")
    assert (status, err) == (0, "")
    assert json.loads(out) == {**NOTHING, "intervals": 3, "readings": 120, "accepted": 120}
    starts = sorted({start for _, _, start in curious.meters.rows})
    assert [start - starts[0] for start in starts] == [0, 900, 1800]
    assert len({house for _, house, _ in curious.meters.rows}) == 40
    assert len(set(curious.meters.rows.values())) > 20, "houses differ"


def test_a_fleet_logs_in_with_the_file_of_its_client(
    file: Path, curious: Curious, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tokens end after a second, so that it gets another one on the way."""
    secret, fleet = new_secret(), file.parent / "fleet.json"
    curious.clients.add(Client("fleet", ("write_readings",), hash_secret(secret), 1))
    fleet.write_text(json.dumps({"client_id": "fleet", "client_secret": secret, "ven": None}))
    call = ("meters", "--config", file, "--to", curious.url, "--speed", 600, "--steps", 3)
    status, out, err = run(capsys, *call, "--token-file", fleet, "--json", "-")
    assert (status, err) == (0, "")
    assert json.loads(out)["accepted"] == 120
    fleet.write_text(json.dumps({"client_id": "fleet", "client_secret": f"{secret}x"}))
    status, _, err = run(capsys, *call, "--token-file", fleet)
    assert (status, err.count("\n")) == (2, 1)
    assert "gave client 'fleet' no token (401" in err
    assert secret not in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"client_id": "fleet"}', "lacks 'client_secret'; give the file of hushgrid client add"),
        ('{"client_id"', "is no whole JSON object; give the file of hushgrid client add"),
        ("client_secret  of-the-fleet", "holds no token: it has spaces"),
        ("of-the-fleet\nof-the-fleet", "holds no token: it has spaces, several lines"),
    ],
)
def test_a_token_file_that_is_none_is_told(
    file: Path, text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = file.parent / "fleet.json"
    wrong.write_text(text)
    for call in (
        ("meters", "--config", file, "--to", "http://127.0.0.1:1"),
        ("status", "http://127.0.0.1:1"),
    ):
        status, _, err = run(capsys, *call, "--token-file", wrong)
        assert (status, err.count("\n")) == (2, 1)
        assert f"token file {wrong} {says}" in err
        assert "of-the-fleet" not in err


def test_a_fleet_without_a_token_is_told(
    file: Path, curious: Curious, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["meters", "--config", file, "--speed", 1e6, "--steps", 1, "--to"]
    status, _, err = run(capsys, *call, curious.url)
    assert status == 2
    assert "401" in err
    assert TOKEN not in err
    for target in ("ftp://x", "http://", "127.0.0.1:8080", "mqtt://x:y"):
        status, _, err = run(capsys, *call, target)
        assert (status, err.count("\n")) == (2, 1)
        assert "give http://HOST:PORT or mqtt://HOST:PORT" in err


def test_a_fleet_without_a_service_is_told_why(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushgrid.demo.simulated_meters.PAUSE", 0.0)
    for target in ("http://127.0.0.1:1", "mqtt://127.0.0.1:1"):
        status, _, err = run(capsys, "meters", "--config", file, "--steps", 1, "--to", target)
        assert status == 2
        assert "(connection refused)" in err


def test_a_fleet_asks_before_its_first_interval_ends(file: Path, curious: Curious) -> None:
    """At this speed an interval lasts for days."""
    code = "from hushgrid.cli import main; main()"
    call = ["meters", "--config", str(file), "--speed", "0.001", "--to", curious.url]
    ended = subprocess.run(
        [sys.executable, "-c", code, *call], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "401" in ended.stderr


def test_a_fleet_feeds_a_broker(
    file: Path, curious: Curious, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Broker(tmp_path)
    broker.start()
    text = file.read_text()
    where = f'host = "127.0.0.1"\nport = {broker.port}\nreadings = "hushgrid/+/readings"\n'
    file.write_text(f"{text}\n[mqtt]\n{where}")
    mqtt = load_deployment(file).mqtt
    assert mqtt is not None
    inlet = MqttReadings(mqtt, curious.ingest)
    inlet.start()
    try:
        assert inlet.listening.wait(60)
        target = f"mqtt://127.0.0.1:{broker.port}"
        call = ("meters", "--config", file, "--to", target, "--speed", 1e6, "--steps", 2)
        status, _, err = run(capsys, *call)
        assert (status, err) == (0, "")
        assert until(lambda: len(curious.meters.rows) == 80)
    finally:
        inlet.stop()
        broker.stop()


def test_serve_and_status_of_a_fresh_service(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "status", file)
    assert status == 2
    assert "does not exist" in err
    http = load_deployment(file).http
    assert http is not None
    url = f"http://127.0.0.1:{http.port}"
    command = [sys.executable, "-W", "error", "-m", "hushgrid.cli", "serve", str(file)]
    code = "from hushgrid.cli import main; main()"
    command[3:5] = ["-c", code]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_WAIT_POLICY": "passive"}
    )
    try:
        assert until(lambda: _ready(url, process), 120)
        for where in (url, file):
            status, out, err = run(capsys, "status", where, "--json", "-")
            assert (status, err) == (0, "")
            found: dict[str, Any] = json.loads(out)
            assert found["zone"] == "elm-street"
            assert {"t", "room", "missing", "state", "zones"} <= set(found)
            assert found["room"] == 1.0
        # by the ledger: nothing is late that never was due
        assert found["state"].startswith("not begun; first price")
        _, out, _ = run(capsys, "status", url)
        assert "elm-street" in out
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, log
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"
    status, _, err = run(capsys, "status", url)
    assert status == 2
    assert f"cannot get the status of service {url} (connection refused)" in err


def _ready(url: str, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False
