"""The tables of a meter store, and the file of one that is not in PostgreSQL.

A row of `hushgrid_meter_delivery` holds accepted readings of one zone and interval as columns; one
of `hushgrid_meter_interval` counts the deliveries of an interval, so that a lost one is noticed;
one of `hushgrid_meter_noise` holds the size of the noise of an open block of steps, sealed by a key
that is not in the database.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import ExitStack, suppress
from pathlib import Path

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    event,
    insert,
    select,
    text,
)

from hushgrid.errors import MeterError, MeterRetryError
from hushgrid.files.results import sync_folder
from hushgrid.stores.database import Database, Schema, is_postgres
from hushgrid.stores.meters.columns import HeldRoster, Roster

_TABLES = MetaData()
ZONE = Table(
    "hushgrid_meter_zone",
    _TABLES,
    Column("key", Integer, Identity(always=True), primary_key=True),
    Column("zone", Text, nullable=False, unique=True),
    Column("houses", Integer, nullable=False),
    Column("interval_s", Integer, nullable=False),
    Column("roster", Text, nullable=False),
    Column("closed_end", BigInteger, nullable=False),
    Column("floor_s", BigInteger, nullable=False),
    Column("begins_s", BigInteger, nullable=False),
)
DELIVERY = Table(
    "hushgrid_meter_delivery",
    _TABLES,
    Column("zone", Integer, primary_key=True, autoincrement=False),
    Column("opens", BigInteger, primary_key=True, autoincrement=False),  # start of the interval
    Column("number", Integer, primary_key=True, autoincrement=False),  # 0, 1, ... in an interval
    Column("readings", LargeBinary, nullable=False),  # Columns.pack
)
INTERVAL = Table(
    "hushgrid_meter_interval",
    _TABLES,
    Column("zone", Integer, primary_key=True, autoincrement=False),
    Column("opens", BigInteger, primary_key=True, autoincrement=False),
    Column("deliveries", Integer, nullable=False),
)
NOISE = Table(  # never in a backup
    "hushgrid_meter_noise",
    _TABLES,
    Column("zone", Integer, primary_key=True, autoincrement=False),
    Column("terms", Text, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("scale", Float(53), primary_key=True),
    Column("mark", BigInteger, primary_key=True, autoincrement=False),
    Column("sealed", LargeBinary, nullable=False),
)


@event.listens_for(DELIVERY, "after_create")
def _store_uncompressed(_: Table, link: Connection, **__: object) -> None:
    """PostgreSQL would take longer to compress a delivery than for all the rest."""
    if link.dialect.name == "postgresql":
        link.exec_driver_sql(f"ALTER TABLE {DELIVERY.name} ALTER readings SET STORAGE EXTERNAL")


SCHEMA = Schema(
    "meter store",
    MeterError,
    dict.fromkeys(("sqlite", "postgresql"), (ZONE, DELIVERY, INTERVAL, NOISE)),
    retry=MeterRetryError,
)
FIND_ZONE = select(ZONE).where(ZONE.c.zone == bindparam("zone"))
LOCK_ZONE = FIND_ZONE.with_for_update()
DELIVERIES = (
    select(DELIVERY.c.number, DELIVERY.c.readings)
    .where(DELIVERY.c.zone == bindparam("key"), DELIVERY.c.opens == bindparam("opens"))
    .where(DELIVERY.c.number >= bindparam("after"))
    .order_by(DELIVERY.c.number)
)
ADD_DELIVERY = insert(DELIVERY)
COUNTED = select(INTERVAL.c.deliveries).where(
    INTERVAL.c.zone == bindparam("key"), INTERVAL.c.opens == bindparam("opens")
)
# both databases know these, SQLAlchemy has a word for them in each dialect only
COUNT = text(
    "INSERT INTO hushgrid_meter_interval VALUES (:zone, :opens, :deliveries)"
    " ON CONFLICT (zone, opens) DO UPDATE SET deliveries = excluded.deliveries"
)
_NEW_ZONE = text(
    "INSERT INTO hushgrid_meter_zone (zone, houses, interval_s, roster, closed_end, floor_s,"
    " begins_s)"
    " VALUES (:zone, :houses, :interval_s, :roster, :closed_end, :floor_s, :begins_s)"
    " ON CONFLICT (zone) DO NOTHING"
)


def columns_of(held: HeldRoster) -> dict[str, int | str]:
    """A roster as columns of `ZONE`.

    Args:
        held: The roster and what is closed.

    Returns:
        Values by column.
    """
    roster = held.roster
    return {
        "houses": roster.houses,
        "interval_s": roster.interval,
        "roster": roster.digest,
        "closed_end": held.closed_end,
        "floor_s": held.floor,
        "begins_s": held.begins,
    }


def add_zone(link: Connection, zone: str, held: HeldRoster) -> None:
    """Insert a zone unless it is there.

    Args:
        link: A transaction.
        zone: The zone.
        held: Its first roster.
    """
    link.execute(_NEW_ZONE, {"zone": zone, **columns_of(held)})


def find_zone(link: Connection, zone: str, *, lock: bool = False) -> tuple[int, HeldRoster] | None:
    """Look a zone up.

    Args:
        link: A transaction.
        zone: The zone.
        lock: Lock its row until the transaction ends.

    Returns:
        Its key and roster; None where it is not there.
    """
    row = link.execute(LOCK_ZONE if lock else FIND_ZONE, {"zone": zone}).first()
    if row is None:
        return None
    roster = Roster(row.houses, row.interval_s, row.roster)
    return row.key, HeldRoster(roster, row.closed_end, row.floor_s, row.begins_s)


def file_of(place: str) -> Path | None:
    """The SQLite file of a meter store.

    Args:
        place: A path, `sqlite:PATH`, `sqlite:///PATH` or `postgresql://USER@HOST/NAME`.

    Returns:
        The file, `meters.db` within a folder that is given as a path; None for PostgreSQL.

    Raises:
        MeterError: The scheme is unknown.
    """
    if is_postgres(place):
        return None
    path = place.removeprefix("sqlite:///").removeprefix("sqlite:")
    if "://" in path:
        raise MeterError(
            f"meter store has scheme {place.partition('://')[0]!r};"
            " give a path, sqlite:///path or postgresql://user@host/name."
        )
    return Path(path, "meters.db") if path == place and Path(path).is_dir() else Path(path)


def key_folder(place: str, folder: Path | None) -> Path | None:
    """The folder of the keys that seal sizes of noise.

    Args:
        place: As for `file_of`.
        folder: The folder, if one is given.

    Returns:
        That one; else next to an SQLite file, and None for PostgreSQL.

    Raises:
        MeterError: The scheme is unknown.
    """
    if folder is not None or (file := file_of(place)) is None:
        return folder
    return file.with_name(f"{file.name}.keys")


# ---- beside a file: its lock, and notes of what was stored


def opened(place: str, stack: ExitStack) -> Database:
    """Open and lock a store.

    Args:
        place: Its place.
        stack: Holds the lock and the connections.

    Returns:
        The database.
    """
    path = file_of(place)
    if path is not None:
        _make_folder(path.absolute().parent)
        if not place.startswith("sqlite:"):
            stack.callback(os.close, _lock(Path(place), path))
    return stack.enter_context(Database(place if path is None else path, SCHEMA))


def _make_folder(path: Path) -> None:
    """Create a folder for its owner alone, with those above it, durably."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_folder(path.parent)


def _lock(place: Path, path: Path) -> int:
    """Lock a store for this process until the descriptor is closed: two services with the same
    readings and ledgers of their own would spend twice what each promises."""
    name = place / "lock" if place.is_dir() else path.with_name(f"{path.name}.lock")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise MeterError(
            f"meter store {place} is in use by another process; stop that one first."
        ) from None
    return descriptor


def _note_path(path: Path, zone: str) -> Path:
    return path.with_name(f"{path.name}.{hashlib.sha256(zone.encode()).hexdigest()[:16]}")


def note_delivery(path: Path | None, zone: str, opens: int, deliveries: int) -> None:
    """Note the last delivery outside an SQLite file: a log that is cut short loses its end.

    Not synced: after a power cut an older note finds less, and is never wrong.

    Args:
        path: The store's file; None: a server.
        zone: The zone.
        opens: The interval of the delivery [UTC s].
        deliveries: How many that interval has.
    """
    if path is not None:
        with suppress(OSError):
            file = os.open(_note_path(path, zone), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, b"%20d %10d\n" % (opens, deliveries), 0)
            finally:
                os.close(file)


def noted_delivery(path: Path | None, zone: str) -> tuple[int, int] | None:
    """Read the note of the last delivery.

    Args:
        path: The store's file; None: a server.
        zone: The zone.

    Returns:
        Its interval [UTC s], and how many that interval has; None without a note.
    """
    try:
        note = b"" if path is None else _note_path(path, zone).read_bytes()
        opens, deliveries = map(int, note.split())
    except (OSError, ValueError):
        return None
    return opens, deliveries
