"""hushgrid check finds what hushgrid serve refuses at its start, and changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hushgrid import SimulatedNoise
from hushgrid.curator.clock import SystemClock
from hushgrid.curator.curator import Curator
from hushgrid.files.service_file import load_deployment
from hushgrid.operate import serve
from hushgrid.operate.template import example as template
from hushgrid.stores.ledger import open_store
from hushgrid.stores.ledger.writer import create, load
from hushgrid.stores.meters import MeterStore
from tests.bodies import transfer
from tests.operate.ready_folder import PRODUCTION, REAL, Folder
from tests.services import Postgres


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def no_pem(made: Folder) -> None:
    made.key.write_text("this is no key")


def other_key(made: Folder) -> None:
    made.key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def database(path: Path) -> None:
    with sqlite3.connect(path) as link:
        link.execute("CREATE TABLE t (x)")
    link.close()


def begun(made: Folder) -> None:
    """A first start, which makes the stores."""
    assert made.serve() == ""


def of_another_key(made: Folder) -> None:
    begun(made)
    made.key.unlink()
    create(made.key)


def of_other_terms(made: Folder) -> None:
    begun(made)
    made.edit(("epsilon = 0.5", "epsilon = 0.4"))


def of_other_meters(made: Folder) -> None:
    begun(made)
    made.edit(('prefix = "elm-", first = 1 }', 'prefix = "oak-", first = 1 }'))


def of_another_mode(made: Folder) -> None:
    begun(made)
    made.edit(('mode = "simulation"', 'mode = "production"'))


def damaged(made: Folder) -> None:
    begun(made)
    with sqlite3.connect(made.path / "ledger.sqlite") as link:
        link.execute("DROP TRIGGER records_stay")
        link.execute("UPDATE records SET signature = digest || digest WHERE seq = 2")
    link.close()


def forked(made: Folder) -> None:
    """A copy of the folder went on by itself; its ledger is put back beside the witness of ours."""
    begun(made)
    for one in made.path.glob("ledger.sqlite*"):
        if one.is_file():
            one.unlink()
    kept = next(made.path.glob("*.witness"))
    kept.rename(made.path / "aside")
    made.edit(("horizon = 12", "horizon = 11"))
    begun(made)
    shutil.rmtree(kept)
    (made.path / "aside").rename(kept)


def unseen(made: Folder) -> None:
    """The ledger is gone and the key is another; the witness knows of both."""
    of_another_key(made)
    for one in made.path.glob("ledger.sqlite*"):
        if one.is_file():
            one.unlink()


def with_tls(made: Folder) -> None:
    for name in ("c.pem", "k.pem"):
        (made.path / name).write_text("none")
    made.edit(("limit = 67108864", 'tls_certificate = "c.pem"\ntls_key = "k.pem"'))


def with_broker(made: Folder) -> None:
    more = '[mqtt]\nhost = "127.0.0.1"\nreadings = "r"\nusername = "me"\npassword_file = "pw"\n'
    made.edit(("[publish]", f"{more}[publish]"))


BROKEN: dict[str, Callable[[Folder], Any]] = {
    "no key": lambda made: made.key.unlink(),
    "a key that is no key": no_pem,
    "a key of another kind": other_key,
    "a key that others may read": lambda made: made.key.chmod(0o644),
    "a folder for a key": lambda made: (made.key.unlink(), made.key.mkdir()),
    "a ledger in no folder": lambda made: made.edit(("ledger.sqlite", "away/ledger.sqlite")),
    "a ledger that is text": lambda made: (made.path / "ledger.sqlite").write_text("x" * 5000),
    "a ledger that is a folder": lambda made: (made.path / "ledger.sqlite").mkdir(),
    "a database of something else": lambda made: database(made.path / "ledger.sqlite"),
    "a file for meters": lambda made: (made.path / "meters.sqlite").write_text("x" * 5000),
    "meters below a file": lambda made: made.edit(('"meters.sqlite"', '"service.toml/meters"')),
    "clients of something else": lambda made: database(made.path / "clients.sqlite"),
    "vtn of something else": lambda made: (made.path / "vtn.sqlite").write_text("x" * 5000),
    "a certificate that is none": with_tls,
    "no password": with_broker,
    "a ledger of another key": of_another_key,
    "a ledger of another mode": of_another_mode,
    "a damaged ledger": damaged,
    "two histories": forked,
    "a witness of another key": unseen,
    "a witness below a file": lambda made: made.edit(
        ("[http]", 'witness = "service.toml/w"\n[http]')
    ),
}


OTHERWISE = {  # check says the same in other words: the key it names
    "a ledger that is a folder": "stores.ledger: ",
    "a witness below a file": "stores.witness: ",
    "a file for meters": "stores.meters: ",
    "meters below a file": "stores.meters: ",
    "clients of something else": "stores.clients: ",
    "vtn of something else": "stores.vtn: ",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.sampled
def test_check_refuses_what_serve_refuses(
    folder: Folder, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    BROKEN[kind](folder)
    before = folder.content()
    code = folder.check("--json", "-")
    assert folder.content() == before
    assert code == 1
    values = json.loads(capsys.readouterr().out)
    assert values["ok"] is False
    said = folder.serve()
    assert said, "serve started"
    words = OTHERWISE.get(kind, said)
    assert any(words in one for one in values["problems"]), (said, values["problems"])


def test_check_accepts_what_serve_starts_before_and_after_a_start(folder: Folder) -> None:
    for _ in range(2):
        before = folder.content()
        assert folder.check() == 0
        assert folder.content() == before
        begun(folder)


def test_a_port_that_is_taken(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", folder.port))
        other.listen()
        assert folder.check() == 1
        assert f"{folder.port}, which cannot be bound" in capsys.readouterr().out
        assert "cannot be bound" in folder.serve()


def test_a_service_that_runs_can_be_checked(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = threading.Event()
    deployment = load_deployment(folder.file)
    running = threading.Thread(
        target=serve, args=(deployment,), kwargs={"clock": SystemClock(), "stop": stop}
    )
    running.start()
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", folder.port)) == 0:
                    break
            time.sleep(0.05)
        assert folder.check() == 0
        assert "The service runs already." in capsys.readouterr().out
    finally:
        stop.set()
        running.join()


def test_check_says_what_other_terms_would_change(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    of_other_terms(folder)
    assert folder.check("--json", "-") == 0
    values = json.loads(capsys.readouterr().out)
    assert values["running_terms"] is False
    (said,) = [one for one in values["remarks"] if "other terms than the ledger" in one]
    assert "hushgrid serve --yes begins them" in said
    assert "other terms than the ledger" in folder.serve(), "and without --yes it does not start"


def test_values_of_the_template_are_no_production(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder.check("--json", "-") == 0
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    keys = ("policy.eta_set_by", "houses[0].meters")
    assert all(any(key in one for one in remarks) for key in keys)
    folder.edit(PRODUCTION)
    assert folder.check("--json", "-") == 1
    values = json.loads(capsys.readouterr().out)
    assert len(values["problems"]) == 2
    for key, problem in zip(keys, values["problems"], strict=True):
        assert problem.startswith(f"{folder.file}:")
        assert key in problem
    folder.edit(*REAL)
    assert folder.check() == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("token_digests = []", f'token_digests = ["{sha256(b"change me").hexdigest()}"]',
         "http.token_digests is the digest of the token 'change me'"),
        ("[publish]", '[openadr]\nurl = "https://prices.example"\n[publish]', "openadr.url is"),
        ("[publish]", '[openadr]\nmqtt_uris = ["mqtts://b.example.com:8883"]\n[publish]',
         "openadr.mqtt_uris is"),
        ('name = "survey"', 'provenance = "TODO: who counted?"', "models[0].provenance is"),
    ],
)  # fmt: skip
@pytest.mark.sampled
def test_other_examples_are_no_production(
    folder: Folder, old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.edit(PRODUCTION, *REAL, (old, new))
    assert folder.check("--json", "-") == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any(words in problem for problem in problems)


def test_a_price_that_is_mostly_noise_is_a_problem(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.edit(
        ('publish = "estimate"', 'publish = "raw"'),
        ("\neta = 0.05", "\neta = 1"),
        ("epsilon = 0.5", "epsilon = 0.05"),
    )
    assert folder.check("--json", "-") == 0, "a simulation may be as wrong as it likes"
    (remark,) = [
        one for one in json.loads(capsys.readouterr().out)["remarks"] if "accept_error" in one
    ]
    folder.edit(PRODUCTION, *REAL)
    assert folder.check("--json", "-") == 1
    values = json.loads(capsys.readouterr().out)
    assert values["expected_error"] > 0.5
    (problem,) = values["problems"]
    for one in (remark, problem):
        assert "above the 20.0% of service.accept_error; what lowers it: policy.rho" in one
        assert "more homes" in one
        assert "a larger epsilon" in one
    folder.edit(('currency = "EUR"', 'currency = "EUR"\naccept_error = 1e6'))
    assert folder.check("--json", "-") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "accept_error_set_by is not set; say who accepts that" in problem
    folder.edit(("accept_error = 1e6", 'accept_error = 1e6\naccept_error_set_by = "TODO"'))
    assert folder.check("--json", "-") == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert "service.accept_error_set_by is 'TODO'" in problem
    folder.edit(('"TODO"', '"J. Smith, grid operation"'))
    assert folder.check() == 0


def test_the_template_passes_and_is_no_production(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enough homes for a price within a fifth, as planned; the meters are no one's."""
    made = Folder(tmp_path)
    text = template(int(time.time()) // 86_400 * 86_400)
    made.file.write_text(text.replace("port = 8080", f"port = {made.port}"))
    assert made.check("--json", "-") == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["secret"], values["epsilon"], values["eta"]) == ("window", 1.0, 1.0)
    assert values["publish"] == values["publish_advised"] == "estimate", "as the plan chooses"
    assert values["expected_error"] < min(0.2, 0.95 * values["forecast_error"])
    assert values["promise"]["step"] == pytest.approx(1 / 5), "a day touches five blocks of 6 h"
    made.edit(PRODUCTION)
    assert made.check("--json", "-") == 1
    problems = " ".join(json.loads(capsys.readouterr().out)["problems"])
    assert "houses[0].meters" in problems


def test_the_figures_that_others_read(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    assert folder.check("--json", "-") == 0
    values = json.loads(capsys.readouterr().out)
    (zone,) = values["zones"]
    assert values["ok"]
    assert values["problems"] == []
    for found in (values, zone):
        assert (found["promise"]["secret"], found["promise"]["epsilon"]) == ("step", 0.5)
        assert found["promise"]["step"] == 0.5
        assert 0.5 < found["promise"]["day"] <= found["promise"]["week"]
        assert 0 < found["expected_error"] < found["forecast_error"] < 1


def test_mistakes_of_the_file_are_in_the_json_as_well(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.edit(("cap = 2.0", "cap = -2.0"))
    assert folder.check("--json", "-") == 2
    caught = capsys.readouterr()
    values = json.loads(caught.out)
    assert values["ok"] is False
    assert "tariff cap is -2.0" in values["problems"][0]
    assert "tariff cap is -2.0" in caught.err


def test_the_files_of_deploy_pass_in_their_mode(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With local stores in place of the containers'."""
    deploy = Path(__file__).parents[2] / "deploy"
    (tmp_path / "zones").mkdir()
    (tmp_path / "zones" / "elm-street.toml").write_text(
        (deploy / "zones" / "elm-street.toml").read_text()
    )
    (tmp_path / "mqtt_password").write_text("x")
    folder.file.write_text((deploy / "service.toml").read_text())
    folder.edit(
        ("/run/secrets/hushgrid.key", "hushgrid.key"),
        ("/run/secrets/mqtt_password", "mqtt_password"),
        ("postgresql://hushgrid@postgres/hushgrid", "ledger.sqlite"),
        ("postgresql://hushgrid@postgres/hushgrid", "meters"),
        ("port = 8080", f"port = {folder.port}"),
        ("/var/lib/hushgrid/witness", "witness"),
    )
    assert folder.check("--json", "-") == 0
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    assert any("elm-street.toml:" in one and "houses[0].meters" in one for one in remarks)
    assert any("openadr.url is 'https://prices.example'" in one for one in remarks)


def test_an_empty_ledger_file_is_a_new_one(folder: Folder) -> None:
    (folder.path / "ledger.sqlite").touch()
    assert folder.check() == 0
    assert folder.serve() == ""


@pytest.mark.soak
def test_stores_in_a_database(
    folder: Folder, postgres: Postgres, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new database, one in use, another roster, and one that is not there."""
    url = postgres.fresh()

    def tables() -> list[Any]:
        with psycopg.connect(url) as session:
            query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
            return session.execute(query).fetchall()

    folder.edit(('"ledger.sqlite"', f'"{url}"'), ('"meters.sqlite"', f'"{url}"'))
    folder.edit(('secret = "step"', 'secret = "interval"'))
    assert folder.check() == 0
    assert tables() == []
    begun(folder)
    made = tables()
    assert made
    assert folder.check() == 0
    assert tables() == made
    folder.edit(('prefix = "elm-", first = 1 }', 'prefix = "oak-", first = 1 }'))
    assert folder.check() == 1
    assert folder.serve()
    away = url.replace(f":{postgres.port}/", ":1/")
    folder.edit((url, away), (url, away))
    capsys.readouterr()
    assert folder.check() == 1
    assert "stores.meters: meter store 127.0.0.1:1/" in capsys.readouterr().out
    assert folder.serve()


def publish(folder: Folder, steps: int, brought: bool = False) -> int:
    """How many of some steps the real curator makes from readings; a house may come in before."""
    made = load_deployment(folder.file)
    (zone,) = made.zones
    with (
        open_store(made.ledger) as store,
        MeterStore(made.meters) as meters,
        Curator.open(
            zone, store, meters, SimulatedNoise(1), load(made.key), [], made.mode, now=zone.begins
        ) as it,
    ):
        if brought:
            it._ledger.append("transfer", transfer("x", "in", other="oak", out=OUT))
        found = 0
        for _ in range(steps):
            meters.put(zone.id, [0], [it.start_of(it.t)], [zone.seconds], [5])
            found += sum(one.source == "readings" for one in it.run(it.next_due()))
        return found


OUT = "ab" * 32


def test_check_knows_the_running_terms(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    publish(folder, 0, brought=True)
    assert publish(folder, 1) == 1
    before = folder.content()
    assert folder.check("--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["running_terms"] is True
    assert folder.content() == before


def test_a_later_begins_alone_changes_no_terms(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(folder, 0, brought=True)
    publish(folder, 2)
    (zone,) = load_deployment(folder.file).zones
    text = folder.file.read_text()
    old = re.search("^begins = .*$", text, re.MULTILINE)
    assert old is not None
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(zone.begins + 2 * 900))
    folder.edit((old[0], f'begins = "{later}"'))
    folder.check("--json", "-")
    values = json.loads(capsys.readouterr().out)
    assert values["running_terms"] is True
