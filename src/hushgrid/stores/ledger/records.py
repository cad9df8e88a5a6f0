"""Records of a ledger: their text, digest and signature. docs/ledger.md has the format.

The digest is SHA-256 over six lines, each ended by a line feed: the format, the zone as JSON, the
number, the kind, the digest of the record before, and the body as canonical JSON. What bodies hold
is in `entries.py`. Everything here is pure and public.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from hushgrid._numbers import is_hex
from hushgrid.errors import LedgerError

FORMAT = "hushgrid-ledger/1"
KINDS = (
    "genesis", "tariff", "terms", "release", "prices", "transfer", "charge", "gap", "resume",
    "closed", "opened",
)  # fmt: skip
NOTHING = "0" * 64  # what the first record of a chain has before it
DEPTH = 8  # no record nests deeper
NAMES = ("body", "digest", "kind", "prev", "seq", "signature", "zone")

Body = Mapping[str, Any]
Columns = Sequence[Any]  # of a record in a store: the arguments of `from_fields`
Sign = Callable[[str], str]  # digest -> signature, both in hex


class Head(NamedTuple):
    """Number and digest of a record.

    Attributes:
        seq: Its number in the chain, from 1.
        digest: Its digest (hex).
    """

    seq: int
    digest: str


@dataclass(frozen=True)
class Record:
    """One record of a zone's chain.

    Attributes:
        zone: The zone.
        seq: Its number in the zone's chain, from 1.
        kind: One of `KINDS`.
        body: Its fields.
        prev: Digest of the record before; `NOTHING` for the first.
        digest: Its own digest (hex).
        signature: Ed25519 signature of the digest (hex).
    """

    zone: str
    seq: int
    kind: str
    body: Body
    prev: str
    digest: str
    signature: str

    @property
    def t(self) -> int | None:
        """The step of a release; None for other records."""
        return self.body.get("t") if self.kind == "release" else None

    @property
    def line(self) -> str:
        """The record as one line of an export, without its line feed."""
        rest = canonical({name: getattr(self, name) for name in NAMES if name != "body"})
        return f'{{"body":{self.text},{rest[1:]}'

    @cached_property
    def text(self) -> str:
        """The body as canonical JSON."""
        return canonical(self.body)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; floats as Python's repr, so that none changes.

    >>> canonical({"rate": 0.1, "counts": {"missing": 2}, "load_hat": None})
    '{"counts":{"missing":2},"load_hat":null,"rate":0.1}'

    Args:
        value: None, booleans, text, finite numbers below 2^63, lists and mappings of them.

    Returns:
        The text.

    Raises:
        LedgerError: The value has another type, is nested too deep, or a text is not Unicode.
    """
    text = _JSON.encode(_plain(value))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LedgerError(
            "a text in the record is not Unicode; give text of whole characters."
        ) from None
    return text


_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any, depth: int = 0) -> Any:
    """The value in JSON's own types; refuses what would not be read back unchanged."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)) and depth < DEPTH:
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and depth < DEPTH and all(isinstance(key, str) for key in value):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    raise LedgerError(
        f"a value in the record is of type {type(value).__name__}, not finite, or nested too deep;"
        " give text, finite numbers below 2^63, lists and mappings of them."
    )


def _frozen(value: Any, depth: int = 0) -> Any:
    """What JSON was read to, unchangeable."""
    if depth > DEPTH:
        raise LedgerError("the record is nested too deep; it was changed.")
    if isinstance(value, dict):
        parts = (pair for pair in value.items() if isinstance(pair[1], (dict, list)))
        return MappingProxyType(value | {key: _frozen(part, depth + 1) for key, part in parts})
    if isinstance(value, list):
        return tuple(_frozen(item, depth + 1) for item in value)
    return value


def digest_text(zone: str, seq: int, kind: str, body: str, prev: str) -> str:
    """The text whose SHA-256 is the record's digest.

    Args:
        zone: The zone.
        seq: The record's number.
        kind: Its kind.
        body: Its fields as canonical JSON.
        prev: Digest of the record before (hex).

    Returns:
        Six lines.
    """
    lines = (FORMAT, canonical(zone), str(seq), kind, prev, body)
    return "".join(f"{line}\n" for line in lines)


def digest_of(record: Record) -> str:
    """The digest that a record should have.

    Args:
        record: The record.

    Returns:
        64 hexadecimal digits.
    """
    text = digest_text(record.zone, record.seq, record.kind, record.text, record.prev)
    return hashlib.sha256(text.encode()).hexdigest()


def signed_text(digest: str) -> bytes:
    """The bytes that a record's signature covers.

    Args:
        digest: The record's digest (hex).

    Returns:
        The digest after a line that names the purpose.
    """
    return f"{FORMAT} signature\n{digest}\n".encode()


def seal(zone: str, seq: int, kind: str, body: Body, prev: str, sign: Sign) -> Record:
    """Make a record with its digest and signature.

    Args:
        zone: The zone.
        seq: The record's number.
        kind: Its kind.
        body: Its fields.
        prev: Digest of the record before (hex).
        sign: Signs a digest.

    Returns:
        The record.
    """
    body_text = canonical(body)
    text = digest_text(zone, seq, kind, body_text, prev)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return from_fields(zone, seq, kind, body_text, prev, digest, sign(digest))


def from_fields(
    zone: str, seq: int, kind: str, body: str, prev: str, digest: str, signature: str
) -> Record:
    """A record from the columns of a store.

    Args:
        zone: The zone.
        seq: The record's number.
        kind: Its kind.
        body: Its fields as canonical JSON.
        prev: Digest of the record before (hex).
        digest: Its digest (hex).
        signature: Its signature (hex).

    Returns:
        The record. Its digest and signature are not verified.

    Raises:
        LedgerError: A field has the wrong form, or the body is not canonical.
    """
    record = Record(zone, seq, kind, _frozen(_parsed(body)), prev, digest, signature)
    _check_form(record)
    if record.text != body:
        raise LedgerError(
            f"the body of record {seq} of zone {zone!r} is not canonical JSON; it was changed."
        )
    return record


def linked(rows: Iterable[Columns], after: Head) -> Iterator[Columns]:
    """Columns of a store, checked by their digests alone.

    Where the last of them is known to be valid, so are the others: each has the digest of the one
    before. Signatures are no part of that.

    Args:
        rows: The arguments of `from_fields` for each.
        after: The record before them.

    Yields:
        The same.

    Raises:
        LedgerError: A record does not follow, or does not have the digest it states.
    """
    (last, before), preamble = after, ""
    for n, row in enumerate(rows, last + 1):
        zone, seq, kind, body, prev, digest, _ = row
        preamble = preamble or f"{FORMAT}\n{canonical(zone)}\n"
        text = f"{preamble}{seq}\n{kind}\n{prev}\n{body}\n"
        if (seq, prev, digest) != (n, before, hashlib.sha256(text.encode()).hexdigest()):
            raise LedgerError(f"record {n} of zone {zone!r} was changed; put back a copy.")
        before = digest
        yield row


def from_verified(row: Columns) -> Record:
    """The record of columns that were verified before.

    Args:
        row: The arguments of `from_fields`.

    Returns:
        The record; its form is not checked again.
    """
    zone, seq, kind, body, prev, digest, signature = row
    return Record(zone, seq, kind, _frozen(_parsed(body)), prev, digest, signature)


def from_line(line: bytes) -> Record:
    """A record from a line of an export.

    Args:
        line: The line with its line feed.

    Returns:
        The record. Its digest and signature are not verified.

    Raises:
        LedgerError: The line is cut, not canonical JSON, or no record.
    """
    if not line.endswith(b"\n"):
        raise LedgerError("the line has no end; it was cut short.")
    try:
        text = line[:-1].decode()
    except UnicodeDecodeError:
        raise LedgerError("the line is not UTF-8; it was changed.") from None
    fields = _parsed(text)
    if not isinstance(fields, dict) or tuple(sorted(fields)) != NAMES:
        raise LedgerError(f"the line is no record; give an object of {', '.join(NAMES)}.")
    record = Record(**{**fields, "body": _frozen(fields["body"])})
    _check_form(record)
    if record.line != text:
        raise LedgerError("the line is not canonical JSON; it was changed.")
    return record


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # a NaN passes here and is refused as not canonical
        raise LedgerError("the record is not JSON; it was cut short or changed.") from None


def _check_form(record: Record) -> None:
    zone, seq = record.zone, record.seq
    if not (isinstance(zone, str) and zone and zone.isprintable()):
        raise LedgerError(f"zone is {zone!r}; give a name of printable characters.")
    if type(seq) is not int or not 1 <= seq < 2**53:
        raise LedgerError(f"seq of the record is {seq!r}; records are numbered 1, 2, 3, ...")
    if record.kind not in KINDS:
        raise LedgerError(
            f"kind of record {seq} is {record.kind!r}; give one of {', '.join(KINDS)}."
        )
    if not isinstance(record.body, Mapping):
        raise LedgerError(f"the body of record {seq} is no mapping; it was changed.")
    for name, length in (("prev", 64), ("digest", 64), ("signature", 128)):
        if not is_hex(getattr(record, name), length):
            raise LedgerError(
                f"{name} of record {seq} is not {length} small hexadecimal digits; it was changed."
            )
