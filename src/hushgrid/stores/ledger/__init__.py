"""The ledger: records, the rules of their chain, and stores by URL (SQLite or PostgreSQL)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hushgrid._numbers import is_hex
from hushgrid.errors import ExtraError, LedgerError
from hushgrid.stores.ledger.chain import Verify
from hushgrid.stores.ledger.duties import LedgerStore
from hushgrid.stores.ledger.records import Record, from_line

__all__ = ["LedgerStore", "open_records", "open_store", "standby_remark", "verifier"]


def open_store(
    url: str, *, create: bool = True, still: bool = False, patience: float = 30.0
) -> LedgerStore:
    """Open a ledger store.

    Args:
        url: A path, `sqlite:PATH` or `postgresql://USER@HOST/DATABASE`.
        create: Create the store where it is absent; False: open it for reading only.
        still: Reading a file that nothing writes leaves no further file.
        patience: How long an append waits for a server that went away [s].

    Returns:
        The store, a context manager.

    Raises:
        ExtraError: PostgreSQL is asked for and psycopg is not installed.
        LedgerError: The scheme is unknown, or the store cannot be opened.
    """
    from hushgrid.stores.database import is_postgres
    from hushgrid.stores.ledger.store import PostgresLedger, SqliteLedger

    if is_postgres(url):
        return PostgresLedger(url, create=create, patience=patience)
    return SqliteLedger(url, create=create, still=still)


def is_there(url: str) -> bool:
    """Whether the file of a ledger store exists; True for a database server.

    Args:
        url: As for `open_store`.

    Returns:
        False where there is no such file.
    """
    return "://" in url or Path(url.removeprefix("sqlite:")).exists()


@contextmanager
def open_records(
    store: str, zone: str | None
) -> Iterator[tuple[Iterator[Record], dict[str, str | None]]]:
    """Open a store or an export for reading.

    Args:
        store: A URL as for `open_store`, or the path of an export.
        zone: Read this zone only; None: every zone.

    Yields:
        The records, and the zone of each digest that the store knows to be durable.

    Raises:
        LedgerError: The store cannot be opened, or a line is no record.
    """
    if _is_export(Path(store)):
        with Path(store).open("rb") as lines:
            records = map(from_line, lines)
            yield (record for record in records if zone in (None, record.zone)), {}
        return
    with open_store(store, create=False) as ledger:
        zones = ledger.zones() if zone is None else (zone,)
        durable = {digest: name for name in zones if (digest := ledger.witness(name))}
        yield (record for name in zones for record in ledger.records(name)), {**durable}


def _is_export(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.suffix in (".ndjson", ".jsonl"):
        return True
    with path.open("rb") as stream:
        return stream.read(1) == b"{"


def verifier(key: str | None) -> Verify:
    """A function that verifies signatures.

    Args:
        key: Public key (hex) that all of them must have; None: the key in the genesis.

    Returns:
        The function.

    Raises:
        ExtraError: cryptography is not installed.
        LedgerError: The key has another form.
    """
    try:
        from hushgrid.stores.ledger.writer import verify_signature as verify
    except ImportError:
        raise ExtraError(
            "cryptography is not installed, so no signature can be checked; get it with"
            " pip install 'hushgrid[serve]'."
        ) from None
    if key is None:
        return verify
    check_digits("key", key)
    return lambda public, digest, signature: public == key and verify(public, digest, signature)


def check_digits(name: str, value: str) -> None:
    """Refuse what is not 64 hexadecimal digits.

    Args:
        name: What the value is called in the message.
        value: The value.

    Raises:
        LedgerError: It has another form.
    """
    if not is_hex(value, 64):
        raise LedgerError(f"{name} is {value!r}; give its 64 small hexadecimal digits.")


def standby_remark(url: str) -> str | None:
    """A warning about the ledger's standby servers; queries the database.

    Args:
        url: The ledger's URL.

    Returns:
        One sentence; None for a file, or where commits wait for a standby.
    """
    from hushgrid.stores.database import is_postgres
    from hushgrid.stores.ledger.store import standbys

    if not is_postgres(url):
        return None
    try:
        names, connected = standbys(url)
    except ExtraError:
        return None  # opening the ledger will say so
    except LedgerError as error:
        return (
            f"stores.ledger: {str(error).partition(';')[0]}, so it is not known whether commits"
            " wait for a standby."
        )
    if names:
        return None
    fix = "set synchronous_standby_names on the server, see docs/operations.md."
    if connected:
        return (
            f"stores.ledger: {connected} standby servers follow and synchronous_standby_names is"
            f" empty: a fail-over loses the newest releases; {fix}"
        )
    return (
        "stores.ledger: no standby follows this PostgreSQL server. Keep stores.witness on another"
        f" disk than the database; before a standby is added, {fix}"
    )
