"""What a store of records must do for a ledger, and what it refuses in the same words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, runtime_checkable

from hushgrid.errors import LedgerError, LedgerHeldError
from hushgrid.stores.ledger.records import NOTHING, Record, digest_of


@runtime_checkable
class LedgerStore(Protocol):
    """Chains of records by zone, which only grow.

    After an error of `append` the record may be there or not: read `head` to know.
    """

    def append(self, record: Record) -> None:
        """Add the next record of a zone whose `writer` is held here; durable on return.

        Raises:
            LedgerError: The number exists, the record does not follow, the step has a release, or
                the store cannot be written.
        """
        ...

    def append_all(self, records: Sequence[Record]) -> None:
        """Add the next records of a zone whose `writer` is held here: all of them, or none.

        Raises:
            LedgerError: One does not follow, its step has a release, or the store cannot be
                written.
        """
        ...

    def records(self, zone: str, after_seq: int = 0) -> Iterator[Record]:
        """A zone's records in order.

        Args:
            zone: The zone.
            after_seq: The first is the one after this number.
        """
        ...

    def head(self, zone: str) -> Record | None:
        """A zone's last record."""
        ...

    def witness(self, zone: str) -> str | None:
        """The digest of the last record known to be durable, where that is kept apart from them.

        Read it before the records: they can then only be ahead of it, unless some were lost.
        """
        ...

    def zones(self) -> tuple[str, ...]:
        """The zones that have records, sorted."""
        ...

    def writer(self, zone: str) -> AbstractContextManager[None]:
        """The right to append to a zone, held by one at a time.

        Raises:
            LedgerHeldError: Another one holds it.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@runtime_checkable
class Judged(Protocol):
    """A store that keeps, apart from the records, what shows that some are missing."""

    def settle(self, zone: str) -> None:
        """What may be missing is judged: note the zone as it is; its `writer` is held here.

        Until then nothing that shows a loss may be overwritten.
        """
        ...


@runtime_checkable
class Replicated(Judged, Protocol):
    """A store whose server may be replaced by a standby that lacks the last records."""

    def moved(self, zone: str) -> bool | None:
        """Whether another server answers than at the last `settle`, or another timeline of it.

        Also where the ledger's table was made anew since. None where that is not known.
        """
        ...


@runtime_checkable
class Dated(Replicated, Protocol):
    """A store that knows since when the ledger is on its server."""

    def timeline(self) -> str | None:
        """System identifier and timeline of the server; None where it does not say."""
        ...

    def since(self) -> int:
        """When the ledger was noted on the server that answers [UTC s]; 0: it began there."""
        ...


@runtime_checkable
class Checkpointed(Protocol):
    """A store that keeps a checkpoint of each zone's replay, apart from the records."""

    def checkpoint(self, zone: str) -> Sequence[Any] | None:
        """The fields of the zone's `Checkpoint` as they are kept; None where there is none."""
        ...

    def keep_checkpoint(self, checkpoint: Sequence[Any]) -> None:
        """Keep a checkpoint in place of the zone's last one."""
        ...

    def newest(self, zone: str, kind: str) -> Record | None:
        """A zone's last record of a kind; None without one."""
        ...

    def columns(self, zone: str, after_seq: int = 0) -> Iterator[Sequence[Any]]:
        """A zone's records in order, each as its columns: the arguments of `from_fields`."""
        ...

    def others(self, zone: str) -> Iterator[Record]:
        """A zone's records that are no releases, in order; no release is read for them."""
        ...


def check_next(zone: str, head: Record | None, record: Record) -> None:
    """What every store asks of a record before it takes it.

    Args:
        zone: The zone.
        head: Its last record.
        record: The next one.

    Raises:
        LedgerError: It does not follow, or does not have the digest it states.
    """
    seq, digest = (head.seq, head.digest) if head else (0, NOTHING)
    if record.digest != digest_of(record):
        raise LedgerError(
            f"record {record.seq} of zone {zone!r} does not have the digest it states;"
            " make records with seal."
        )
    if head is not None and head.kind == "closed" and record.kind != "opened":
        raise LedgerError(f"the ledger of zone {zone!r} is closed; nothing can be appended to it.")
    if record.seq <= seq:
        raise LedgerError(
            f"record {record.seq} of zone {zone!r} exists already, up to {seq};"
            " another writer was here, open the ledger again."
        )
    if record.seq != seq + 1 or record.prev != digest:
        raise LedgerError(
            f"record {record.seq} of zone {zone!r} does not follow record {seq}"
            f" ({digest[:12]}); open the ledger again."
        )


def not_held(zone: str) -> LedgerError:
    """The error of an append without the lock.

    Args:
        zone: The zone's name.

    Returns:
        The error, to be raised.
    """
    return LedgerError(f"zone {zone!r} has no writer here; append inside `with writer(zone)`.")


def held_elsewhere(zone: str) -> LedgerHeldError:
    """The error of a second writer.

    Args:
        zone: The zone's name.

    Returns:
        The error, to be raised.
    """
    return LedgerHeldError(
        f"zone {zone!r} has a writer already; a zone has one at a time, stop the other one."
    )


def twice(record: Record) -> LedgerError:
    """The error of a second release of a step.

    Args:
        record: The second one.

    Returns:
        The error, to be raised.
    """
    return LedgerError(
        f"step {record.t} of zone {record.zone!r} is published already; show the stored release."
    )
