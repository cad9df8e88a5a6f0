"""Databases that earlier versions made, by the statements with which they did."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from hushgrid.service.access.clients import CLIENTS, Client, ClientStore
from hushgrid.service.database import Database, Schema, exists
from hushgrid.service.ledger.records import canonical
from hushgrid.service.ledger.store import LEDGER, PostgresLedger, SqliteLedger
from hushgrid.service.openadr.store import VTN, StoredObject, VtnStore
from tests.service.stores import chain_of
from tests.services import Postgres

VTN_TABLE = """CREATE TABLE hushgrid_vtn (
  seq {}, kind text NOT NULL, id text NOT NULL UNIQUE, client text NOT NULL,
  name text, program text, event text, ven text, only_name text,
  created bigint NOT NULL, modified bigint NOT NULL, body text NOT NULL,
  UNIQUE (kind, only_name));
CREATE INDEX hushgrid_vtn_client ON hushgrid_vtn (kind, client, seq);
INSERT INTO hushgrid_vtn (kind, id, client, name, only_name, created, modified, body)
  VALUES ('VEN', '"v"', '"c"', '"n"', '"n"', 1, 2, '{{"venName": "n"}}');
"""
IN_FILE = {
    "ledger": """
CREATE TABLE records (
  zone TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, t INTEGER, body TEXT NOT NULL,
  prev TEXT NOT NULL, digest TEXT NOT NULL, signature TEXT NOT NULL
);
CREATE UNIQUE INDEX records_by_seq ON records (zone, seq);
CREATE UNIQUE INDEX records_by_t ON records (zone, t) WHERE t IS NOT NULL;
CREATE TRIGGER records_stay BEFORE UPDATE ON records
BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
CREATE TRIGGER records_remain BEFORE DELETE ON records
BEGIN SELECT RAISE(ABORT, 'records are never removed'); END;
PRAGMA application_id = 1212632113; PRAGMA user_version = 1;
""",
    "clients": """
CREATE TABLE clients (
  id TEXT PRIMARY KEY, scopes TEXT NOT NULL, secret TEXT NOT NULL, created INTEGER NOT NULL,
  ven TEXT, revoked INTEGER
) WITHOUT ROWID;
INSERT INTO clients VALUES ('old', 'audit operate', 'a hash', 5, NULL, NULL);
PRAGMA application_id = 1212629809; PRAGMA user_version = 1;
""",
    "vtn": VTN_TABLE.format("integer PRIMARY KEY AUTOINCREMENT")
    + "PRAGMA application_id = 1212634673; PRAGMA user_version = 1;",
}
ON_SERVER = {
    "ledger": """
CREATE TABLE hushgrid_ledger (
  zone text COLLATE "C" NOT NULL, seq bigint NOT NULL, kind text NOT NULL, t bigint,
  body text NOT NULL, prev text NOT NULL, digest text NOT NULL, signature text NOT NULL,
  PRIMARY KEY (zone, seq), UNIQUE (zone, t)
);
CREATE TABLE hushgrid_ledger_version (version integer NOT NULL);
CREATE FUNCTION hushgrid_ledger_grows() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'records are never changed or removed'; END $$;
CREATE TRIGGER hushgrid_ledger_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON hushgrid_ledger
  FOR EACH STATEMENT EXECUTE FUNCTION hushgrid_ledger_grows();
INSERT INTO hushgrid_ledger_version VALUES (1);
""",
    "clients": """
CREATE TABLE hushgrid_clients (
  id text COLLATE "C" PRIMARY KEY, scopes text NOT NULL, secret text NOT NULL,
  created bigint NOT NULL, ven text, revoked bigint
);
CREATE TABLE hushgrid_clients_version (version integer NOT NULL);
INSERT INTO hushgrid_clients_version VALUES (1);
INSERT INTO hushgrid_clients VALUES ('old', 'audit operate', 'a hash', 5, NULL, NULL);
""",
    "vtn": VTN_TABLE.format("bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    + "CREATE TABLE hushgrid_vtn_version (version integer NOT NULL);"
    " INSERT INTO hushgrid_vtn_version VALUES (1);",
}


class Places:
    """Databases of one kind: made by an earlier version, or to be made now."""

    def __init__(self, folder: Path, postgres: Postgres | None) -> None:
        self._folder, self._postgres = folder, postgres

    def old(self, name: str) -> str:
        if self._postgres is None:
            path = self._folder / name
            with sqlite3.connect(path) as file:
                file.executescript(IN_FILE[name])
            file.close()
            return str(path)
        url = self._postgres.fresh()
        with psycopg.connect(url) as link:
            link.execute(ON_SERVER[name].encode())
        return url

    def new(self, name: str) -> str:
        return (
            str(self._folder / f"new-{name}") if self._postgres is None else self._postgres.fresh()
        )


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Places:
    file = request.param == "sqlite"
    return Places(tmp_path, None if file else request.getfixturevalue("postgres"))


def columns(url: str, schema: Schema) -> dict[str, list[str]]:
    """Names of columns by table, in order."""
    with Database(url, schema) as database:
        found = sa.inspect(database.engine)
        names = [name for name in found.get_table_names() if "sqlite" not in name]
        return {name: [one["name"] for one in found.get_columns(name)] for name in names}


@pytest.mark.parametrize("schema", [LEDGER, CLIENTS, VTN], ids=lambda schema: schema.name)
@pytest.mark.sampled
def test_the_same_columns(places: Places, schema: Schema) -> None:
    old, new = places.old(schema.name), places.new(schema.name)
    assert exists(old, schema)
    assert not exists(new, schema)
    assert columns(old, schema) == columns(new, schema)
    assert exists(new, schema)


def test_clients(places: Places) -> None:
    with ClientStore(places.old("clients"), create=False) as store:
        assert store.all() == [Client("old", ("audit", "operate"), "a hash", 5)]
        store.add(Client("new", ("audit",), "another", 6, "a ven"))
        assert store.revoke("old", 7)
        assert [one.id for one in store.all()] == ["new", "old"]


def test_openadr_objects(places: Places) -> None:
    with VtnStore(places.old("vtn")) as store:
        assert store.find("VEN") == [StoredObject("VEN", "v", "c", 1, 2, {"venName": "n"})]
        store.add(StoredObject("VEN", "w", "c", 3, 3, {"venName": "m"}))
        assert [one.id for one in store.find("VEN")] == ["v", "w"]


def test_a_ledger(places: Places) -> None:
    url, chain = places.old("ledger"), chain_of("elm", 3)
    rows = [
        (r.zone, r.seq, r.kind, r.t, canonical(r.body), r.prev, r.digest, r.signature)
        for r in chain[:-1]
    ]
    if url.startswith("postgresql"):
        with psycopg.connect(url) as link, link.cursor() as cursor:
            insert = "INSERT INTO hushgrid_ledger VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
            cursor.executemany(insert, rows)
        store: PostgresLedger | SqliteLedger = PostgresLedger(url)
    else:
        with sqlite3.connect(url) as file:
            file.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        file.close()
        store = SqliteLedger(url)
    with store, store.writer("elm"):
        assert list(store.records("elm")) == chain[:-1]
        store.append(chain[-1])
        store.settle("elm")
        assert store.head("elm") == chain[-1]
        if isinstance(store, PostgresLedger):
            assert store.moved("elm") is False
