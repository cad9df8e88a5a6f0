"""Small ledgers with a fixed key, for tests of everything that reads one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hushgrid.errors import LedgerError
from hushgrid.mechanism.release import Release
from hushgrid.stores.ledger.chain import ChainReport, check
from hushgrid.stores.ledger.records import NOTHING, Record, seal
from hushgrid.stores.ledger.store import SqliteLedger
from hushgrid.stores.ledger.writer import Key, Ledger, verify_signature
from tests import bodies

KEY = Key(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
LAWS, OTHER_LAWS = "ab" * 32, "cd" * 32
OTHER_ROSTER = "ef" * 32
TERMS = bodies.terms_of(LAWS, 1, 900).digest
OTHER_TERMS = bodies.terms_of(OTHER_LAWS, 1, 900, roster=OTHER_ROSTER).digest
ROOT = Path(__file__).parents[3]
ZONE = "elm-street"
START = 900  # [UTC s], of step 1
SCALES = (1000.0, 812.5, 1 / 3 * 1000)
MOST = sys.float_info.max  # stands for infinity
ALL_KNOWN = ((0.0, MOST, MOST, -MOST, MOST),)  # of a house whose zone had no interval promise


def released(t: int, *, zone: str = "elm-street", **changes: Any) -> Release:
    """A mechanism's release of step t."""
    fields: dict[str, Any] = {
        "zone": zone,
        "t": t,
        "applies_from": t + 1,
        "load_hat": 40_000 - 7 * t,
        "put_back": 0.0,
        "estimate": None,
        "rate": 0.05 + 0.1 * t,
        "scale": SCALES[(t - 1) % 3],
        "epsilon": 0.5,
        "epsilon_any": 2.5,
        "rule": "eta=1 block union",
        "digest": TERMS,
        "simulated": False,
        "noise": "laplace",
    }
    return Release(**(fields | changes))


def times(t: int) -> dict[str, Any]:
    """When step t began, when its rate begins, when it went out."""
    start = START + 900 * (t - 1)
    return {"start": start, "applies_start": start + 1800, "published_at": start + 903.7}


def read(t: int, *, first: int = 1, mode: Any = "production", **changes: Any) -> dict[str, Any]:
    """The body of a release from readings of the zone's step t."""
    published = released(t - first + 1, **changes)
    return dict(
        bodies.release(published, mode=mode, first=first, counts={"houses": 120}, **times(t))
    )


def instead(t: int, source: Any, *, zone: str = "elm-street", **changes: Any) -> dict[str, Any]:
    """The body of a forecast or fallback of the zone's step t."""
    fields = {"mode": "production", "rate": 0.25, **times(t), **changes}
    if source == "forecast":
        fields.setdefault("digest", TERMS)
    return dict(bodies.stand_in(zone, source, t=t, **fields))


def terms(laws: str = LAWS, *, first: int = 1, **more: Any) -> dict[str, Any]:
    return dict(bodies.terms(laws, first=first, seconds=900, **more))


def genesis(mode: Any = "production") -> dict[str, Any]:
    return dict(bodies.genesis(mode, KEY.public, START - 60))


Story = list[tuple[str, dict[str, Any]]]


def opening(mode: Any = "production") -> Story:
    """Genesis and terms."""
    return [
        ("genesis", genesis(mode)),
        ("terms", terms()),
    ]


def story() -> Story:
    """Genesis, terms, a transfer, and every kind of release."""
    moved = bodies.transfer("house-17", "out", other="oak-street", account=ALL_KNOWN)
    return [
        *opening(),
        ("release", read(1)),
        ("release", read(2)),
        ("transfer", dict(moved)),
        ("release", read(3)),
        ("release", instead(4, "forecast", estimate=39_000.5)),
        ("release", instead(5, "fallback")),
        ("terms", terms(OTHER_LAWS, first=6, roster=OTHER_ROSTER)),
        ("release", read(6, first=6, digest=OTHER_TERMS, epsilon=float("inf"))),
    ]


def sealed(told: Story, *, zone: str = "elm-street", key: Key = KEY) -> list[Record]:
    """The records of a story; nothing is checked."""
    records: list[Record] = []
    for kind, body in told:
        prev = records[-1].digest if records else NOTHING
        records.append(seal(zone, len(records) + 1, kind, body, prev, key.sign))
    return records


def lines_of(records: list[Record]) -> bytes:
    return "".join(f"{record.line}\n" for record in records).encode()


@contextmanager
def opened(path: Path, zone: str = "elm-street", mode: Any = "production") -> Iterator[Ledger]:
    with SqliteLedger(path) as store, Ledger.open(store, zone, KEY, mode, START - 60) as ledger:
        yield ledger


def write_story(path: Path, told: Story | None = None) -> list[Record]:
    """A ledger file with a story in it; its records."""
    with opened(path) as ledger:
        for kind, body in (story() if told is None else told)[1:]:
            ledger.append(kind, body)
    with SqliteLedger(path) as store:
        return list(store.records("elm-street"))


def checked(path: Path) -> ChainReport:
    """All records of a file against its witness."""
    with SqliteLedger(path, create=False) as store:
        noted = store.witness(ZONE)
        return check(store.records(ZONE), verify_signature, {noted: ZONE} if noted else {})


def refusal(path: Path) -> str | None:
    """Why a file is not opened for writing, if it is not."""
    try:
        with opened(path):
            return None
    except LedgerError as error:
        return str(error)


def child(code: str, *words: Any) -> subprocess.Popen[bytes]:
    """A process of its own that runs the code."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stdout=subprocess.PIPE, cwd=ROOT
    )
