"""Records of a ledger: their text, digest and signature, one type for each kind, and the state
that they fold to. docs/ledger.md has the format.

The digest is SHA-256 over six lines, each ended by a line feed: the format, the zone as JSON, the
number, the kind, the digest of the record before, and the body as canonical JSON. The fields of a
type that have a `Rule` are its body; the others are its place in the chain. A release holds no
load, no optimal rate and no reading. It is the mechanism's `Release`, whose fields are declared
there alone. Everything here is pure and public.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, overload

from hushgrid._numbers import (
    CHANCE,
    HASH,
    LOSS,
    TEXT,
    Rule,
    Spent,
    canonical_digest,
    from_json,
    is_hex,
    number,
    one_of,
    optional,
    or_null,
    rules_of,
    to_json,
    whole_number,
)
from hushgrid.accounting.composition import booked
from hushgrid.errors import LedgerError
from hushgrid.mechanism.release import HasRelease, Mode, Release, renumbered

FORMAT = "hushgrid-ledger/1"
KINDS = (
    "genesis", "terms", "release", "transfer", "charge", "gap", "resume", "closed", "opened",
)  # fmt: skip
NOTHING = "0" * 64  # what the first record of a chain has before it
DEPTH = 8  # no record nests deeper
NAMES = ("body", "digest", "kind", "prev", "seq", "signature", "zone")

Body = Mapping[str, Any]
Columns = Sequence[Any]  # of a record in a store: the arguments of `from_fields`
Sign = Callable[[str], str]  # digest -> signature, both in hex


@dataclass(frozen=True, slots=True)
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
        return canonical({name: getattr(self, name) for name in NAMES})


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
    plain = _plain(value)
    text = json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LedgerError(
            "a text in the record is not Unicode; give text of whole characters."
        ) from None
    return text


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


def digest_text(zone: str, seq: int, kind: str, body: Body, prev: str) -> str:
    """The text whose SHA-256 is the record's digest.

    Args:
        zone: The zone.
        seq: The record's number.
        kind: Its kind.
        body: Its fields.
        prev: Digest of the record before (hex).

    Returns:
        Six lines.
    """
    lines = (FORMAT, canonical(zone), str(seq), kind, prev, canonical(body))
    return "".join(f"{line}\n" for line in lines)


def digest_of(record: Record) -> str:
    """The digest that a record should have.

    Args:
        record: The record.

    Returns:
        64 hexadecimal digits.
    """
    text = digest_text(record.zone, record.seq, record.kind, record.body, record.prev)
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
    text = digest_text(zone, seq, kind, body, prev)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return from_fields(zone, seq, kind, canonical(body), prev, digest, sign(digest))


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
    if canonical(record.body) != body:
        raise LedgerError(
            f"the body of record {seq} of zone {zone!r} is not canonical JSON; it was changed."
        )
    return record


def linked(rows: Iterable[Columns]) -> Iterator[Columns]:
    """Columns of a store, checked by their digests alone.

    Where the last of them is known to be valid, so are the others: each has the digest of the one
    before. Signatures are no part of that.

    Args:
        rows: The arguments of `from_fields` for each, from a zone's first record on.

    Yields:
        The same.

    Raises:
        LedgerError: A record does not follow, or does not have the digest it states.
    """
    before, preamble = NOTHING, ""
    for n, row in enumerate(rows, 1):
        zone, seq, kind, body, prev, digest, _ = row
        preamble = preamble or f"{FORMAT}\n{canonical(zone)}\n"
        text = f"{preamble}{seq}\n{kind}\n{prev}\n{body}\n"
        if (seq, prev, digest) != (n, before, hashlib.sha256(text.encode()).hexdigest()):
            raise LedgerError(f"record {n} of zone {zone!r} was changed.")
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


Source = Literal["readings", "forecast", "fallback"]
Direction = Literal["in", "out"]
# witness: a record known here is missing; meters: a closed interval has no release;
# failover: another database server answers than the one last written to; fork: two histories
Cause = Literal["witness", "meters", "failover", "fork"]

# the zone's public number of houses; how many meters report is for operators
COUNTS = ("houses",)


def _are_counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        name in COUNTS and type(count) is int and count >= 0 for name, count in value.items()
    )


HOUSE_DIGITS = 12
_HOUSES = Rule(
    lambda v: isinstance(v, str) and len(v) % HOUSE_DIGITS == 0 and is_hex(v, len(v)),
    f"{HOUSE_DIGITS} small hexadecimal digits for each house",
)
_HEADS = Rule(
    lambda v: isinstance(v, str) and v != "" and len(v) % 64 == 0 and is_hex(v, len(v)),
    "64 small hexadecimal digits for each history",
)
# optional fields that a release without readings may have, where its zone has such figures; a
# fallback has no estimate and so no offset
_FREE = ("feed_in", "offset")
# for each model and chain: loss, known, room, law's ends
AccountRows = tuple[tuple[float, ...], ...]
StatedModels = Sequence[Mapping[str, Any]]  # see `TermsRecord`


def _is_list(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) > 0


def _are_floats(value: Any, count: int, least: float = -math.inf, most: float = math.inf) -> bool:
    return (
        _is_list(value)
        and len(value) == count
        and all(isinstance(figure, float) and math.isfinite(figure) for figure in value)
        and least <= min(value) <= max(value) <= most
    )


class WindowRows(NamedTuple):
    """The account of promises about windows of time, as a record has it.

    Attributes:
        promises: For each promise in force: its window [s], its epsilon, from when on windows begin
            [UTC s], and the last second published before another promise, or -1.
        blocks: For each block that still counts: its first and last second [UTC s], and what
            it loses.
    """

    promises: tuple[tuple[float, ...], ...]
    blocks: tuple[tuple[float, ...], ...]


def _are_windows(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(rows, (tuple, list)) for rows in value)
        and all(_are_numbers(row, 4) and row[0] > 0 and row[1] > 0 for row in value[0])
        and all(_are_numbers(row, 3) and row[0] <= row[1] and row[2] >= 0 for row in value[1])
    )


def _are_numbers(row: Any, count: int) -> bool:
    numbers = isinstance(row, (tuple, list)) and len(row) == count
    return numbers and all(type(n) in (int, float) and math.isfinite(n) for n in row)


_WINDOWS = Rule(_are_windows, "promises about windows, and the blocks of steps that count for them")


_NUMBER = number(-math.inf)


def _are_figures(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and (_NUMBER.fits(figure) or _are_figures(figure))
        for name, figure in value.items()
    )


def _is_promise(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    names = {"secret", "epsilon", "eta", *(["window"] if value.get("secret") == "window" else ())}
    return (
        names <= set(value) <= names | {"eta_set_by"}
        and value["secret"] in ("step", "interval", "window")
        and LOSS.fits(value["epsilon"])
        and CHANCE.fits(value["eta"])
        and whole_number(1).fits(value.get("window", 1))
        and isinstance(value.get("eta_set_by", ""), str)
    )


def _is_plan(value: Any) -> bool:
    blocks = value.get("blocks", ()) if isinstance(value, Mapping) else ()
    return _is_list(blocks) and all(
        _are_numbers(row, 3)
        and whole_number(1).fits(row[0])
        and row[1] >= 0
        and whole_number(1).fits(row[2])
        for row in blocks
    )


_FIGURES = Rule(_are_figures, "numbers by name")
_PROMISE = Rule(_is_promise, "secret, epsilon and eta, and with the secret window its seconds")
_PLAN = Rule(_is_plan, "blocks: rows of their steps, what each loses, and how many follow")


def _are_rows(value: Any) -> bool:
    return _is_list(value) and all(
        _are_floats(row, 5) and min(row[:3]) >= 0 and row[3] <= row[4] for row in value
    )


def _is_chain(value: Any, slots: int) -> bool:
    """Whether a chain has a law, a reach and a matrix for every slot."""
    if not isinstance(value, Mapping) or set(value) != {"law", "moves", "reach"}:
        return False
    moves = value["moves"]
    return (
        _are_floats([value["reach"]], 1, 0)
        and _are_floats(value["law"], 2, 0, 1)
        and _is_list(moves)
        and len(moves) >= slots
        and all(_are_floats(row, 4, 0, 1) for row in moves)
    )


def _are_models(value: Any) -> bool:
    return _is_list(value) and all(
        isinstance(model, Mapping)
        and set(model) == {"chains", "slots"}
        and all(_is_list(part) for part in model.values())
        and all(type(slot) is int and slot >= 0 for slot in model["slots"])
        and all(_is_chain(chain, max(model["slots"]) + 1) for chain in model["chains"])
        for model in value
    )


_ROWS = Rule(_are_rows, "rows of five finite numbers: loss, known, room and the ends of a law")
_MODELS = Rule(_are_models, "models with slots and chains of a law, moves and a reach")
_COUNTS = Rule(_are_counts, f"whole numbers named {', '.join(COUNTS)}")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The content of one record; each kind has its own type.

    Attributes:
        kind: The kind of its records.
    """

    kind: ClassVar[str]

    @classmethod
    def rules(cls) -> Mapping[str, Rule]:
        """Rules of the body's fields, required ones first."""
        return rules_of(cls)

    @classmethod
    def from_record(cls, record: Record, *, checked: bool = False) -> Self:
        """The entry of a record of this kind; checks the body, unless that was done before.

        Raises:
            LedgerError: A field is missing, unknown, or has a wrong value.
        """
        if not checked:
            check_body(cls.kind, record.body)
        return cls(**cls._values(record.body), **cls._place(record))

    @classmethod
    def _values(cls, body: Body) -> dict[str, Any]:
        return from_json(cls, body)

    @classmethod
    def _place(cls, record: Record) -> dict[str, Any]:
        """The fields of the type that say where the record is in its chain."""
        place = {"seq": record.seq, "head": record.digest, "signature": record.signature}
        return {name: place[name] for name in _placed(cls.kind)}

    def to_body(self) -> dict[str, Any]:
        """The body of its record."""
        return to_json(self)


@dataclass(frozen=True, slots=True)
class GenesisRecord(LedgerEntry):
    """The first record of a chain.

    Attributes:
        mode: Whether the releases are real or simulated.
        key: Public key of all signatures (hex).
        created_at: [UTC s]
        format: The ledger's format, 1.
    """

    kind = "genesis"
    mode: Annotated[Mode, one_of(Mode)]
    key: Annotated[str, HASH]
    created_at: Annotated[int, whole_number(0)]
    format: Annotated[int, whole_number(1)] = 1


@dataclass(frozen=True, slots=True)
class TermsRecord(LedgerEntry):
    """Terms that hold from step `first` on, until the next record of terms.

    Attributes:
        digest: Names the terms, whenever they begin: see `terms_name`.
        first: The zone's first step under them.
        seconds: Length of a step [s].
        zone: Digest of the zone's public description.
        tariff: Its figures by the keys of a zone file, and all else that a price needs.
        occupancy: Digest of the occupancy models and of the time zone of their patterns.
        consumption: Digest of the laws of consumption.
        promise: `secret`, `epsilon` and `eta`; of the secret "window" its length `window` [s]; and
            `eta_set_by` where someone set eta.
        plan: The week that repeats: `blocks`, rows of how many steps a block has, what it loses and
            how many such blocks follow each other; and by the keys of a zone file what else the
            noise and the estimate depend on, such as `clamp` and `estimator`.
        roster: Digest of the meters.
        time_zone: IANA name of the zone of local weeks; None: the plan repeats from step `first`
            on.
        houses: The first `HOUSE_DIGITS` digits of every house's name, sorted; the name is that of
            a transfer.
        models: With the secret "interval", what its accounts are computed with. For each model
            `slots`: the slot of each step of its pattern, which is one step, a day or a week from
            Monday in local time; and `chains`, those that houses follow: `law` of away and at home
            at the first step, `moves`: for each slot the matrix into a step of it by rows, and
            `reach`: the largest change of a reading of its houses [Wh].
        seq: The number of its record; head: the record's digest.
    """

    kind = "terms"
    digest: Annotated[str, HASH]
    first: Annotated[int, whole_number(1)]
    seconds: Annotated[int, whole_number(1)]
    zone: Annotated[str, HASH]
    tariff: Annotated[Mapping[str, Any], _FIGURES]
    occupancy: Annotated[str, HASH]
    consumption: Annotated[str, HASH]
    promise: Annotated[Mapping[str, Any], _PROMISE]
    plan: Annotated[Mapping[str, Any], _PLAN]
    roster: Annotated[str | None, or_null(HASH)] = None
    time_zone: Annotated[str | None, or_null(TEXT)] = None
    houses: Annotated[str, _HOUSES] = ""
    models: Annotated[StatedModels | None, optional(_MODELS)] = None
    seq: int = 0
    head: str = ""

    @property
    def interval(self) -> float | None:
        """What all releases may say about one interval of a house; None: not promised."""
        return self._promised("interval")

    @property
    def window(self) -> tuple[int, float] | None:
        """The window [s] and epsilon of a promise about windows; None: not promised."""
        epsilon = self._promised("window")
        return None if epsilon is None else (self.promise["window"], epsilon)

    def _promised(self, secret: str) -> float | None:
        return self.promise["epsilon"] if self.promise["secret"] == secret else None

    @property
    def begins(self) -> int:
        """When they begin [UTC s]."""
        return self.first * self.seconds

    @property
    def turn(self) -> int:
        """After how many steps the plan repeats."""
        return int(sum(length * times for length, _, times in self.plan["blocks"]))

    @property
    def chains(self) -> tuple[Any, ...]:
        """How houses move under its models, whatever the law of its first step."""
        models = [
            (tuple(model["slots"]), *(tuple(map(tuple, c["moves"])) for c in model["chains"]))
            for model in self.models or ()
        ]
        return self.seconds, self.time_zone, models

    @property
    def house_names(self) -> frozenset[str]:
        """The names of its houses."""
        text, n = self.houses, HOUSE_DIGITS
        return frozenset(text[at : at + n] for at in range(0, len(text), n))


def terms_name(fields: Mapping[str, Any]) -> str:
    """The digest of terms, whenever they begin: SHA-256 over canonical JSON of what they state.

    Args:
        fields: Of a `TermsRecord`; those in which beginnings differ are left out.

    Returns:
        64 hexadecimal digits.
    """
    terms = {name: fields[name] for name in _NAMED}
    return canonical_digest({"format": "hushgrid-terms/3", **terms})


_NAMED = (
    "seconds", "zone", "tariff", "occupancy", "consumption", "promise", "plan", "roster",
    "time_zone",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReleaseRecord(HasRelease, LedgerEntry):
    """A release as the ledger keeps it; its fields can be read here as well: `record.rate`.

    Attributes:
        release: What is published; its steps are the zone's. A forecast or a
            fallback has no load_hat, costs nothing, and a fallback has no digest either.
        source: What it is made from.
        start: When its interval began [UTC s].
        applies_start: When its rate begins [UTC s].
        published_at: [UTC s]
        counts: Public counts, see `COUNTS`.
        account: Under an interval promise, in the first release of a block of steps: for each
            model and chain what the block loses about its houses, and the account after the block,
            about its last step.
        windows: Where a promise about windows is in force, in the same releases: its account.
        seq: The number of its record; head: the record's digest; signature: the record's.
    """

    kind = "release"
    release: Release
    source: Annotated[Source, one_of(Source)]
    start: Annotated[int, whole_number(0)]
    applies_start: Annotated[int, whole_number(0)]
    published_at: Annotated[int, whole_number(0)]
    counts: Annotated[Mapping[str, int], _COUNTS]
    account: Annotated[AccountRows | None, optional(_ROWS)] = None
    windows: Annotated[WindowRows | None, optional(_WINDOWS)] = None
    seq: int = 0
    head: str = ""
    signature: str = ""

    @classmethod
    def of(
        cls,
        release: Release,
        source: Source = "readings",
        *,
        mode: Mode,
        start: int,
        applies_start: int,
        published_at: float,
        first: int = 1,
        applies_from: int | None = None,
        counts: Mapping[str, int] | None = None,
        account: AccountRows | None = None,
        windows: WindowRows | None = None,
    ) -> Self:
        """A release of the interval that began at `start` [UTC s].

        Args:
            release: The mechanism's, which counts its steps from 1.
            source: What it is made from.
            mode: Every release of a simulation is marked as simulated.
            start: [UTC s]
            applies_start: When its rate begins [UTC s].
            published_at: [UTC s]
            first: The zone's step that is the mechanism's step 1.
            applies_from: The zone's step that its rate begins with, where the release does not say.
            counts: Public counts.
            account: See the class.
            windows: See the class.
        """
        due = release.applies_from + first - 1 if applies_from is None else applies_from
        simulated = release.simulated or mode == "simulation"
        zone_release = replace(
            renumbered(release, first - 1), applies_from=due, simulated=simulated
        )
        when = (start, applies_start, math.floor(published_at))
        return cls(zone_release, source, *when, dict(counts or {}), account, windows)

    @classmethod
    def stand_in(
        cls,
        zone: str,
        source: Literal["forecast", "fallback"],
        *,
        t: int,
        rate: float,
        digest: str | None = None,
        estimate: float | None = None,
        feed_in: float | None = None,
        offset: int | None = None,
        **when: Any,
    ) -> Self:
        """A release that no reading went into and that costs nothing.

        A forecast (the account admits no block, or no meter reported) names its terms; a fallback
        (no usable model) none.

        Args:
            zone: The zone.
            source: What it is made from.
            t: The zone's step.
            rate: [currency/kWh]
            digest: Of its terms.
            estimate: The load expected [Wh].
            feed_in: [currency/kWh], where the tariff has a feed-in rate.
            offset: Sum of all export limits [Wh], which is in `estimate`, where houses export.
            **when: The other arguments of `of`.
        """
        figures = {"load_hat": None, "rate": float(rate), "estimate": estimate, "simulated": False}
        figures |= {"feed_in": feed_in, "offset": offset}
        release = Release.free(
            zone=zone, t=t, applies_from=t + 1, rule=source, digest=digest, **figures
        )
        return cls.of(release, source, **when)

    @classmethod
    def rules(cls) -> Mapping[str, Rule]:
        """Rules of the release, which may lack load and digest, and of the record's own fields."""
        release_rules = rules_of(Release)
        null = {name: or_null(release_rules[name]) for name in ("load_hat", "digest")}
        all_rules = {**release_rules, **null, **rules_of(cls)}
        return dict(sorted(all_rules.items(), key=lambda item: item[1].optional))

    @classmethod
    def _values(cls, body: Body) -> dict[str, Any]:
        release_fields, source = from_json(Release, body), body["source"]
        rules = rules_of(Release) if source != "readings" else {}
        free = {*_FREE} if source == "forecast" else {"feed_in"}
        later = [
            name
            for name, rule in rules.items()
            if rule.optional and name in {*release_fields} - free
        ]
        if later:
            raise LedgerError(
                f"step {body['t']} is a {source} but has {later[0]}; only what comes from readings"
                " has it."
            )
        return {"release": Release(**release_fields), **from_json(cls, body)}

    def to_body(self) -> dict[str, Any]:
        """The fields of release and record; without readings no optional ones but `_FREE`."""
        rules = rules_of(Release)
        from_readings = self.source == "readings"
        values = to_json(self.release)
        release_fields = {
            name: values[name]
            for name in values
            if from_readings or name in _FREE or not rules[name].optional
        }
        return {**release_fields, **to_json(self)}

    def in_week(self, first: int) -> Release:
        """The mechanism's release, its steps counted from the zone's step `first`, its step 1.

        Raises:
            LedgerError: It is not from readings.
        """
        release = self.release
        if self.source != "readings":
            raise LedgerError(
                f"step {release.t} of zone {release.zone!r} was published from a {self.source};"
                " only a release from readings is the mechanism's."
            )
        return renumbered(release, 1 - first)


def first_step(release: Release | ReleaseRecord) -> int:
    """The first step of a release's block of steps: its own where its noise is its own."""
    return int(release.block["first"] if release.block else release.t)


def last_step(release: Release | ReleaseRecord) -> int:
    """The last step of a release's block of steps: its own where its noise is its own."""
    return first_step(release) + (release.block["length"] if release.block else 1) - 1


class UnreadRelease:
    """A release that was verified before, as its store has it until it is asked for.

    Args:
        row: Its columns.
    """

    __slots__ = ("_read", "_row")

    def __init__(self, row: Columns) -> None:
        self._row: Columns | None = row
        self._read: ReleaseRecord | None = None

    def read(self) -> ReleaseRecord:
        """The release."""
        row = self._row  # two threads may read it at the same time
        if row is not None:
            self._read = ReleaseRecord.from_record(from_verified(row), checked=True)
            self._row = None
        assert self._read is not None
        return self._read

    def has(self, name: str) -> bool:
        """Whether it has a value of an optional field."""
        row = self._row
        if row is not None and f'"{name}"' not in row[3]:  # it need not be read
            return False
        return getattr(self.read(), name) is not None


class Releases(Sequence[ReleaseRecord]):
    """Releases in order; a start reads few of those that were verified before.

    Args:
        items: The releases.

    Attributes:
        items: The same, read or not.
    """

    __slots__ = ("_newest", "items")

    def __init__(self, items: Iterable[ReleaseRecord | UnreadRelease] = ()) -> None:
        releases, self._newest = items, dict[str, tuple[int, int]]()
        if isinstance(items, Releases):
            releases, self._newest = items.items, dict(items._newest)
        self.items: list[ReleaseRecord | UnreadRelease] = list(releases)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, place: int) -> ReleaseRecord: ...

    @overload
    def __getitem__(self, place: slice) -> Releases: ...

    def __getitem__(self, place: int | slice) -> ReleaseRecord | Releases:
        if isinstance(place, slice):
            return Releases(self.items[place])
        release = self.items[place]
        return release.read() if isinstance(release, UnreadRelease) else release

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Releases({len(self)})"

    def append(self, release: ReleaseRecord | UnreadRelease) -> None:
        """Add the next release."""
        self.items.append(release)

    def clear(self) -> None:
        """Forget all."""
        self.items.clear()
        self._newest.clear()

    def newest(self, name: Literal["account", "windows"]) -> ReleaseRecord | None:
        """The newest release with an account of that name; None without one.

        Releases that were looked at before are not looked at again.
        """
        place, looked = self._newest.get(name, (-1, 0))
        for n in range(len(self.items) - 1, looked - 1, -1):
            release = self.items[n]
            unread = isinstance(release, UnreadRelease)
            if release.has(name) if unread else getattr(release, name) is not None:
                place = n
                break
        self._newest[name] = (place, len(self.items))
        return None if place < 0 else self[place]


@dataclass(frozen=True, slots=True)
class TransferRecord(LedgerEntry):
    """A house leaves for zone `other` or comes from there, with the account of what was published.

    Attributes:
        house: A name that both zones' publishers know and the public need not.
        direction: Whether it comes in or goes out.
        other: The other zone.
        out: The digest of the record by which a house that comes in has left.
        last: When the step that the account is about ended [UTC s]; 0 where nothing was.
            The zone that it comes to publishes nothing about it before.
        account: What the zone that it leaves has published and may still be published about it, as
            an interval promise needs it: a row as in a release, of no loss. None where nothing was.
        windows: The same of promises about windows.
    """

    kind = "transfer"
    house: Annotated[str, TEXT]
    direction: Annotated[Direction, one_of(Direction)]
    other: Annotated[str, TEXT]
    out: Annotated[str | None, or_null(HASH)] = None
    seq: int = 0
    head: str = ""
    last: Annotated[int, whole_number(0)] = 0
    account: Annotated[AccountRows | None, optional(_ROWS)] = None
    windows: Annotated[WindowRows | None, optional(_WINDOWS)] = None


@dataclass(frozen=True, slots=True)
class ChargeRecord(LedgerEntry):
    """What every house has spent on something else than releases, such as models of many homes.

    Attributes:
        what: What it was spent on.
        epsilon: What was spent.
        digest: Of what was made of the readings; the same thing is charged once.
        homes: How many they came from.
        first: When the first of these readings begins [UTC s].
        last: The last second of the last one [UTC s].
    """

    kind = "charge"
    what: Annotated[str, TEXT]
    epsilon: Annotated[float, LOSS]
    digest: Annotated[str, HASH]
    homes: Annotated[int, whole_number(1)]
    first: Annotated[int, whole_number(0)]
    last: Annotated[int, whole_number(0)]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class GapRecord(LedgerEntry):
    """Steps that may have been published and whose records are lost.

    After it no release comes from readings until a `ResumeRecord` books what they can have cost.

    Attributes:
        first: The first step.
        last: The last step.
        why: Evidence of the loss, see `Cause`.
        least: What lost records that are known state that they cost; it is booked in addition.
        heads: Digests of the last ones of these records, one for each history that is lost.
        seq: The number of its record.
        head: The record's digest.
    """

    kind = "gap"
    first: Annotated[int, whole_number(1)]
    last: Annotated[int, whole_number(1)]
    why: Annotated[Cause, one_of(Cause)]
    least: Annotated[float | None, optional(LOSS)] = None
    heads: Annotated[str | None, optional(_HEADS)] = None
    seq: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRecord(LedgerEntry):
    """Ends the gap `first` to `last`: what its steps may have lost, booked in full.

    Attributes:
        first: The first step.
        last: The last step.
        epsilon: What was booked. Infinity is written as null: no bound is known.
        seq: The number of its record.
        account: Under an interval promise, the account after the block that the last step is in,
            with what is booked for that block.
        until: The last step of that block.
        windows: Where a promise about windows is in force, its account after that block.
    """

    kind = "resume"
    first: Annotated[int, whole_number(1)]
    last: Annotated[int, whole_number(1)]
    epsilon: Annotated[float, or_null(LOSS, infinite=True)]
    seq: int = 0
    account: Annotated[AccountRows | None, optional(_ROWS)] = None
    until: Annotated[int | None, optional(whole_number(1))] = None
    windows: Annotated[WindowRows | None, optional(_WINDOWS)] = None


@dataclass(frozen=True, slots=True)
class ClosedRecord(LedgerEntry):
    """The last record of a ledger: nothing can be appended to it.

    Attributes:
        goes_on: Where the zone goes on, in words.
        seq: The number of its record.
        head: The record's digest.
    """

    kind = "closed"
    goes_on: Annotated[str, TEXT]
    seq: int = 0
    head: str = ""


@dataclass(frozen=True, slots=True)
class OpenedRecord(LedgerEntry):
    """The first record of an imported ledger: all before it are those of a ledger that was closed.

    Attributes:
        closed: Digest of the last record of that ledger.
    """

    kind = "opened"
    closed: Annotated[str, HASH]
    seq: int = 0


TYPES: Mapping[str, type[LedgerEntry]] = {
    entry_type.kind: entry_type
    for entry_type in (
        GenesisRecord,
        TermsRecord,
        ReleaseRecord,
        TransferRecord,
        ChargeRecord,
        GapRecord,
        ResumeRecord,
        ClosedRecord,
        OpenedRecord,
    )
}


@cache
def _placed(kind: str) -> tuple[str, ...]:
    names = (member.name for member in fields(TYPES[kind]))
    return tuple(name for name in names if name in ("seq", "head", "signature"))


@cache
def _rules(kind: str) -> Mapping[str, Rule]:
    return TYPES[kind].rules()


def check_body(kind: str, body: Body) -> None:
    """Refuse a body that lacks a field, has an unknown one, or a wrong value.

    Args:
        kind: The record's kind.
        body: Its fields.

    Raises:
        LedgerError: Names the field and never its value, which may be anything.
    """
    rules = _rules(kind)
    required = [name for name, rule in rules.items() if not rule.optional]
    for name in required:
        if name not in body:
            raise LedgerError(f"{kind} has no {name}; give {', '.join(required)}.")
    for name in body:
        if name not in rules:
            raise LedgerError(f"{kind} has a field {name!r}; give {', '.join(rules)} alone.")
    for name, rule in rules.items():
        if name in body and not rule.fits(body[name]):
            # the message leaves a wrong value out, since it may be anything
            raise LedgerError(f"{name} of {kind} does not fit; give {rule.give}.")


class Head(NamedTuple):
    """Number and digest of a record.

    Attributes:
        seq: Its number in the chain, from 1.
        digest: Its digest (hex).
    """

    seq: int
    digest: str


class RecordedAccount(NamedTuple):
    """The newest account on record.

    Attributes:
        rows: Its figures, as in `ReleaseRecord`.
        step: The zone's step that they are about, in the terms' length of steps.
        terms: The terms of its record.
        seq: The number of its record.
    """

    rows: AccountRows
    step: int
    terms: TermsRecord
    seq: int

    @property
    def promise(self) -> float | None:
        """What was promised about the steps of its block."""
        return self.terms.interval

    @property
    def end(self) -> int:
        """When its step ends [UTC s]."""
        return (self.step + 1) * self.terms.seconds


class RecordedWindows(NamedTuple):
    """The newest account of promises about windows on record.

    Attributes:
        rows: The account, as in `ReleaseRecord`.
        seq: The number of its record.
        end: When its last block ends [UTC s].
    """

    rows: WindowRows
    seq: int
    end: int


@dataclass(frozen=True, slots=True)
class LedgerState:
    """The state that a zone's records fold to; nothing in it is secret.

    Attributes:
        zone: The zone.
        mode: Whether the releases are real or simulated.
        key: Public key of all signatures (hex).
        head: The last record.
        signature: Its signature.
        terms: The present terms.
        terms_records: All terms, in order.
        releases: All releases, in order.
        transfers: All transfers of houses, in order.
        charged: What every house spent on models, by their digests.
        charges: The same in the order of their records.
        gap: The gap that is not booked yet.
        gaps: All gaps, in order.
        booked: The records that ended gaps, in order.
        closed: The record by which the ledger was closed; None while it is open.
    """

    zone: str
    mode: str
    key: str
    head: Head
    signature: str
    terms: TermsRecord | None
    terms_records: tuple[TermsRecord, ...]
    releases: Sequence[ReleaseRecord]
    transfers: tuple[TransferRecord, ...]
    charged: Mapping[str, float] = field(default_factory=dict)
    charges: tuple[ChargeRecord, ...] = ()
    gap: GapRecord | None = None  # the one that is not booked yet
    gaps: tuple[GapRecord, ...] = ()
    booked: tuple[ResumeRecord, ...] = ()
    closed: ClosedRecord | None = None

    @property
    def last_t(self) -> int:
        """The last step published; 0 before any."""
        return self.releases[-1].t if self.releases else 0

    @property
    def current(self) -> Sequence[ReleaseRecord]:
        """The releases under the present terms, in order."""
        return self.current_from(0)

    @property
    def newest(self) -> ReleaseRecord | None:
        """The last release under the present terms; None before any."""
        last = self.releases[-1] if self.releases else None
        since = 0 if self.terms is None else self.terms.seq
        return None if last is None or last.seq < since else last

    def current_from(self, t: int) -> Sequence[ReleaseRecord]:
        """The releases under the present terms from a step on, in order."""
        if self.terms is None:
            return ()
        after = bisect_right(self.releases, self.terms.seq, key=lambda release: release.seq)
        return self.releases[
            bisect_left(self.releases, t, lo=after, key=lambda release: release.t) :
        ]

    def terms_of(self, record: ReleaseRecord | GapRecord | ResumeRecord) -> TermsRecord:
        """The terms of a record: the last that were recorded before it.

        Steps of different length are numbered differently, so numbers are compared under the same
        terms only.
        """
        after = bisect_left(self.terms_records, record.seq, key=lambda terms: terms.seq)
        if not after:
            raise LedgerError(f"record {record.seq} of zone {self.zone!r} is under no terms.")
        return self.terms_records[after - 1]

    @property
    def reach_step(self) -> int:
        """The last step under the present terms that is published or lost in a gap.

        The step before their first where there is none.
        """
        terms = self.terms
        if terms is None:
            return 0
        lost = [gap.last for gap in self.gaps if gap.seq > terms.seq]
        last = terms.first - 1 if self.newest is None else self.newest.t
        return max([last, *lost])

    @property
    def reach(self) -> int:
        """End of all that is published or lost in a gap [UTC s]; 0 before any."""
        ends = [last.start + self.terms_of(last).seconds for last in self.releases[-1:]]
        ends += [(gap.last + 1) * self.terms_of(gap).seconds for gap in self.gaps]
        return max(ends, default=0)

    @property
    def booked_now(self) -> tuple[ResumeRecord, ...]:
        """The gaps under the present terms that are booked."""
        if self.terms is None:
            return ()
        return tuple(resume for resume in self.booked if resume.seq > self.terms.seq)

    @property
    def moved(self) -> Mapping[str, TransferRecord]:
        """The last transfer of each house that ever moved."""
        return {transfer.house: transfer for transfer in self.transfers}

    @property
    def counts(self) -> Mapping[str, int]:
        """How many releases came from each source."""
        return dict(Counter(release.source for release in self.releases))

    @property
    def epsilon(self) -> float:
        """The sum of what all releases, charges and booked gaps may lose at most, rounded up.

        Infinite where a release has no epsilon of its own.
        """
        releases = Spent().add(
            *booked(release for release in self.releases if release.source == "readings")
        )
        gaps = (resume.epsilon for resume in self.booked)
        return releases.add(*self.charged.values(), *gaps).total

    @property
    def latest_account(self) -> RecordedAccount | None:
        """The newest account on record; None before any."""
        opened = Releases(self.releases).newest("account")
        lost = next(
            (resume for resume in reversed(self.booked) if resume.account is not None), None
        )
        newer = lost is not None and (opened is None or opened.seq < lost.seq)
        if newer and lost is not None and lost.account is not None and lost.until is not None:
            return RecordedAccount(lost.account, lost.until, self.terms_of(lost), lost.seq)
        if opened is None or opened.account is None:
            return None
        last = last_step(opened)
        return RecordedAccount(opened.account, last, self.terms_of(opened), opened.seq)

    @property
    def latest_windows(self) -> RecordedWindows | None:
        """The newest account of promises about windows; None before any."""
        booked = next(
            (resume for resume in reversed(self.booked) if resume.windows is not None), None
        )
        newest = (Releases(self.releases).newest("windows"), booked)
        last = max(
            (record for record in newest if record is not None), key=lambda r: r.seq, default=None
        )
        if last is None or last.windows is None:
            return None
        if isinstance(last, ResumeRecord):
            _, blocks = last.windows
            end = max((int(block[1]) + 1 for block in blocks), default=0)
        else:
            end = (last_step(last) + 1) * self.terms_of(last).seconds
        return RecordedWindows(last.windows, last.seq, end)

    def at(self, t: int) -> ReleaseRecord | None:
        """The release of step t, to be published again as it is."""
        return next((release for release in reversed(self.releases) if release.t == t), None)


class Misfit(NamedTuple):
    """A record that contradicts another zone's ledger.

    Attributes:
        zone: The zone of the record.
        seq: Its number.
        reason: What is wrong, in words.
    """

    zone: str
    seq: int
    reason: str


def unmatched(standings: Mapping[str, LedgerState]) -> Misfit | None:
    """The first house that came in with another account than it left with, or that never left.

    Only the given zones are compared: a house may come from anywhere else. Where the record by
    which it left was lost with the end of its zone's ledger, that zone has a gap and, after it,
    another transfer of the house.

    Args:
        standings: Ledger state of each zone.

    Returns:
        The record at fault; None where all transfers match.
    """
    departures = {
        out.head: (zone, out) for zone, s in standings.items() for out in _moves(s, "out")
    }
    used_heads: set[str] = set()
    for zone, standing in standings.items():
        for arrival in _moves(standing, "in"):
            if arrival.other not in standings:
                continue
            source, out = departures.get(arrival.out or "", (None, None))
            if out is None and _has_moved_since_gap(standings[arrival.other], arrival.house):
                continue
            if out is None or (source, out.other, out.house) != (
                arrival.other,
                zone,
                arrival.house,
            ):
                reason = (
                    f"zone {arrival.other!r} has no record by which the house left; if it was lost,"
                    " book the gap and run the same hushgrid ledger transfer again"
                )
            elif (arrival.account, arrival.windows, arrival.last) != (
                out.account,
                out.windows,
                out.last,
            ):
                reason = (
                    f"the house came from {arrival.other!r} with another account than it had there"
                )
            elif out.head in used_heads:
                reason = f"the house left {arrival.other!r} once and came in twice"
            else:
                used_heads.add(out.head)
                continue
            return Misfit(zone, arrival.seq, reason)
    return None


def _has_moved_since_gap(standing: LedgerState, house: str) -> bool:
    """Whether a house moved after a gap in the ledger of its zone."""
    first = min((gap.seq for gap in standing.gaps), default=math.inf)
    return any(move.house == house and move.seq > first for move in standing.transfers)


def _moves(standing: LedgerState, direction: str) -> list[TransferRecord]:
    return [transfer for transfer in standing.transfers if transfer.direction == direction]
