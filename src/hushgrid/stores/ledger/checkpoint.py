"""A checkpoint of a replay: the state after a record, which opening the ledger need not compute.

It is no part of the ledger and proves nothing to others: the ledger's own key signs it, and it is
used only where the ledger has the record that it names. Releases before that record are checked
when they are read, most of them never; `hushgrid check` checks every record and computes the state
again.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hushgrid.errors import LedgerError
from hushgrid.stores.ledger.chain import Verify
from hushgrid.stores.ledger.duties import Checkpointed, LedgerStore
from hushgrid.stores.ledger.records import Head, canonical

# incremented where a replay computes something else than before, or names it otherwise
FORMAT = "hushgrid-checkpoint/1"

log = logging.getLogger("hushgrid.ledger")


class Checkpoint(NamedTuple):
    """What a store keeps of a zone's replay; all of it is public.

    Attributes:
        zone: The zone.
        seq: The number of the record after which it was taken: a release.
        head: That record's digest (hex).
        terms: The digest of its terms (hex).
        format: `FORMAT` of the version that wrote it.
        state: The state, as `encode` makes it.
        signature: By the ledger's key, of all the others (hex).
    """

    zone: str
    seq: int
    head: str
    terms: str
    format: str
    state: bytes
    signature: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 over six lines: what the signature covers."""
        lines = (self.format, canonical(self.zone), str(self.seq), self.head, self.terms)
        text = "".join(f"{line}\n" for line in (*lines, hashlib.sha256(self.state).hexdigest()))
        return hashlib.sha256(text.encode()).hexdigest()


def encode(state: Mapping[str, NDArray[Any]]) -> bytes:
    """A state as bytes: an .npz file, bit for bit.

    Args:
        state: Arrays of numbers by name.

    Returns:
        The bytes.
    """
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **dict(state))
    return file.getvalue()


def decode(state: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of `encode`, read-only.

    Args:
        state: The bytes, of a verified checkpoint.

    Returns:
        Arrays by name.
    """
    with np.load(io.BytesIO(state), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def write(
    store: LedgerStore,
    zone: str,
    head: Head,
    terms: str,
    state: Mapping[str, NDArray[Any]],
    sign: Callable[[str], str],
) -> None:
    """Sign and keep a checkpoint in place of the zone's last one.

    Args:
        store: The ledger's store; nothing is kept where it has no place for it.
        zone: The zone.
        head: The release after which the state is.
        terms: The digest of its terms (hex).
        state: Public arrays by name.
        sign: The key's signature of a digest.

    Raises:
        LedgerError: The store cannot be written.
    """
    if isinstance(store, Checkpointed):
        checkpoint = Checkpoint(zone, head.seq, head.digest, terms, FORMAT, encode(state))
        store.keep_checkpoint(checkpoint._replace(signature=sign(checkpoint.digest)))


def read(store: LedgerStore, zone: str, key: str, verify: Verify) -> Checkpoint | None:
    """The zone's checkpoint, if it can be used with the ledger as it is.

    Args:
        store: The ledger's store.
        zone: The zone.
        key: The public key of the ledger (hex).
        verify: Verifies signatures.

    Returns:
        The checkpoint; None where there is none, or where it is of another format, key or history,
        which is logged.
    """
    try:
        row = store.checkpoint(zone) if isinstance(store, Checkpointed) else None
        checkpoint = None if row is None else Checkpoint(*row)
        reason = None if checkpoint is None else misfit(checkpoint, store, zone, key, verify)
    except LedgerError as error:  # the records are read next
        checkpoint, reason = None, str(error)
    if reason is None:
        return checkpoint
    log.warning("checkpoint not used", extra={"zone": zone, "why": reason})
    return None


def misfit(
    checkpoint: Checkpoint, store: LedgerStore, zone: str, key: str, verify: Verify
) -> str | None:
    """Why a checkpoint cannot be used with a ledger.

    Args:
        checkpoint: The checkpoint.
        store: The ledger's store.
        zone: The zone.
        key: The public key of the ledger (hex).
        verify: Verifies signatures.

    Returns:
        The reason in words; None where it can be used.
    """
    if checkpoint.format != FORMAT:
        return "it has another format"
    if checkpoint.zone != zone or not verify(key, checkpoint.digest, checkpoint.signature):
        return "the ledger's key has not signed it"
    record = next(store.records(zone, checkpoint.seq - 1), None)
    if record is None or (record.seq, record.digest) != (checkpoint.seq, checkpoint.head):
        return "the ledger does not have its record"
    return None
