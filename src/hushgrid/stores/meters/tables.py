"""The tables of a meter store, and the file of one that is not in PostgreSQL.

A row of `hushgrid_meter_delivery` holds accepted readings of one zone and interval as columns; one
of `hushgrid_meter_interval` counts the deliveries of an interval, so that a lost one is noticed;
one of `hushgrid_meter_noise` holds the size of the noise of an open block of steps, sealed by a key
that is not in the database.
"""

from __future__ import annotations

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
from hushgrid.stores.database import Schema, is_postgres
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
