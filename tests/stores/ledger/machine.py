"""A machine with a ledger and its witness."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hushgrid.stores.ledger.chain import check
from hushgrid.stores.ledger.records import Record
from hushgrid.stores.ledger.sidecar import sidecar_path
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.witness import Witnesses
from hushgrid.stores.ledger.writer import Ledger, verify_signature
from tests.stores.ledger.ledgers import KEY, START, ZONE, instead, opening, read


class Machine:
    """A ledger file and a witness folder."""

    def __init__(self, folder: Path) -> None:
        self.path, self.folder = folder / "ledger.db", folder / "witness"

    @contextmanager
    def opened(self, *, seen: bool = True, **more: Any) -> Iterator[Ledger]:
        with SqliteLedger(self.path) as store, Witnesses(self.folder) as witnesses:
            one = witnesses.of(ZONE) if seen else None
            with Ledger.open(
                store, ZONE, KEY, "production", START - 60, witness=one, **more
            ) as ledger:
                yield ledger

    def begin(self) -> None:
        with self.opened() as ledger:
            for kind, body in opening()[1:]:
                ledger.append(kind, body)
            ledger.settle()

    def grow(self, *steps: int, source: str = "fallback", seen: bool = True) -> None:
        with self.opened(seen=seen) as ledger:
            for t in steps:
                ledger.publish(read(t) if source == "readings" else instead(t, source))

    def records(self) -> list[Record]:
        with SqliteLedger(self.path) as store:
            found = list(store.records(ZONE))
        assert check(found, verify_signature).first_bad is None
        return found

    def put_back(self, copy: Path) -> None:
        """An older copy by hand; nothing on this disk but the witness folder knows better."""
        self.lose()
        shutil.copy(copy, self.path)

    def lose(self) -> None:
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        sidecar_path(self.path, ZONE).unlink()

    def copy(self, name: str = "copy.db") -> Path:
        copy = self.path.with_name(name)
        with SqliteLedger(self.path) as store:
            store.copy_to(copy)
        return copy
