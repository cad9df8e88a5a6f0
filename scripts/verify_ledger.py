#!/usr/bin/env python3
"""Verify an exported ledger with Python's standard library alone, no hushgrid needed.

    python3 verify_ledger.py ledger.ndjson [--key HEX] [--head DIGEST ...]

Prints "good" with what each zone promised, what was lost of it and what was not checked, or "bad"
with the first fault; exit 0: every record stands, 1: one does not, 2: the file cannot be read.
Every signature is checked, and every account computed again from the records before it.
The format is in docs/ledger.md, the account in docs/proofs/account.md. This file shares no code
with hushgrid, on purpose.
"""

import argparse
import hashlib
import json
import math
import re
import secrets
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

FORMAT = "hushgrid-ledger/1"
KINDS = {
    "genesis": "created_at format key mode",
    "tariff": "begins figures",
    "terms": "consumption digest first houses occupancy plan promise roster seconds time_zone zone",
    "release": "applies_from applies_start counts digest epsilon epsilon_any estimate"
    " load_hat published_at put_back rate rule scale simulated source start t zone",
    "prices": "digest first published_at rates seconds simulated source zone",
    "transfer": "direction house last other out",
    "charge": "digest epsilon first homes last what",
    "gap": "first last why",
    "resume": "epsilon first last",
    "closed": "goes_on",
    "opened": "closed",
}
OPTIONAL = {
    "terms": {"models", "reach"},
    "release": {
        "noise", "base", "model_share", "covariates", "block", "offset", "feed_in", "account",
        "windows",
    },
    "prices": {"feed_in"},
    "transfer": {"account", "windows"},
    "gap": {"heads", "least"},
    "resume": {"account", "until", "windows"},
}  # fmt: skip
BEGINNINGS = ("digest", "first", "houses")  # of terms: not in their digest
COSTS = ("scale", "epsilon", "epsilon_any", "put_back")

SIGNED_AT_ONCE = 1024
UNSEEN = (
    "that reach, zone, occupancy, consumption and roster of terms are those of the service file"
    " (hushgrid audit compares)",
    "that the noise was drawn with these scales, and nothing else was published",
)


class BadRecordError(Exception):
    """Why a record does not stand, and its line where that is not the one being read."""

    def __init__(self, why, line=None):
        super().__init__(why)
        self.line = line


def need(true, why):
    """Go on only if so."""
    if not true:
        raise BadRecordError(why)


def canonical(value):
    """Sorted keys, no spaces, finite numbers."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def parse(line):
    """The record on a line, if the line is exactly how a record is written."""
    need(line.endswith(b"\n"), "the line has no end")
    try:
        text = line[:-1].decode()
        record = json.loads(text)
        need(isinstance(record, dict), "the line is no record")
        need(canonical(record) == text, "the line is not canonical JSON")
    except (ValueError, RecursionError):
        raise BadRecordError("the line is not JSON") from None
    need(" ".join(record) == "body digest kind prev seq signature zone", "the line is no record")
    need(isinstance(record["zone"], str), "zone is no text")
    need(type(record["seq"]) is int, "seq is no whole number")
    for name, length in (("prev", 64), ("digest", 64), ("signature", 128)):
        fits = len(str(record[name])) == length and re.fullmatch("[0-9a-f]+", str(record[name]))
        need(fits, f"{name} is not {length} hexadecimal digits")
    fields = KINDS.get(str(record["kind"]))
    need(fields is not None, "the kind is unknown")
    body = record["body"]
    need(isinstance(body, dict), "the body has other fields")
    known = set(fields.split())
    later = OPTIONAL.get(record["kind"], set())
    need(known <= set(body) <= known | later, "the body has other fields")
    return record


def digest_of(record):
    """SHA-256 over six lines."""
    lines = (
        FORMAT,
        canonical(record["zone"]),
        str(record["seq"]),
        record["kind"],
        record["prev"],
        canonical(record["body"]),
    )
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def terms_digest(body):
    """SHA-256 over what terms state whenever they begin: it is in each of their releases."""
    stated = {name: part for name, part in body.items() if name not in BEGINNINGS}
    stated["models"] = [
        {
            **model,
            "chains": [
                {name: part for name, part in chain.items() if name != "law"}
                for chain in model["chains"]
            ],
        }
        for model in body.get("models", [])
    ]
    text = canonical({"format": "hushgrid-terms/3", **stated})
    return hashlib.sha256(text.encode()).hexdigest()


# ---- signatures: Ed25519 (RFC 8032, 5.1), with the equation that is multiplied by 8
#
# A point is (x, y, 1, x y) times any number. Many signatures of a key are checked in one sum with
# random factors: where one is wrong the sum is right with a chance of 2^-128.

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
CURVE = -121665 * pow(121666, -1, PRIME) % PRIME
ROOT = pow(2, (PRIME - 1) // 4, PRIME)  # of -1
NEUTRAL = (0, 1, 1, 0)


def add(p, q):
    """The sum of two points."""
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % PRIME, (p[1] + p[0]) * (q[1] + q[0]) % PRIME
    c, d = 2 * p[3] * q[3] * CURVE % PRIME, 2 * p[2] * q[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % PRIME, g * h % PRIME, f * g % PRIME, e * h % PRIME


@lru_cache(maxsize=8)
def decoded(text):
    """The point that 32 bytes are, or None."""
    number = int.from_bytes(text, "little")
    y, odd = number % 2**255, number >> 255
    if y >= PRIME:
        return None
    u, v = (y * y - 1) % PRIME, (CURVE * y * y + 1) % PRIME
    x = u * v**3 * pow(u * v**7, (PRIME - 5) // 8, PRIME) % PRIME
    if v * x * x % PRIME == -u % PRIME:
        x = x * ROOT % PRIME
    if v * x * x % PRIME != u or (x == 0 and odd):
        return None
    x = x if x % 2 == odd else PRIME - x
    return x, y, 1, x * y % PRIME


BASE = decoded((4 * pow(5, -1, PRIME) % PRIME).to_bytes(32, "little"))


def summed(multiples):
    """The sum of points, each as often as the number beside it says."""
    width = max(2, len(multiples).bit_length() - 3)
    bits = max(number.bit_length() for number, _ in multiples)
    total = NEUTRAL
    for shift in reversed(range(0, bits, width)):
        for _ in range(width):
            total = add(total, total)
        sums = [NEUTRAL] * 2**width
        for number, point in multiples:
            if digit := number >> shift & 2**width - 1:
                sums[digit] = add(sums[digit], point)
        running = part = NEUTRAL
        for point in reversed(sums[1:]):
            running = add(running, point)
            part = add(part, running)
        total = add(total, part)
    return total


def first_forged(key, signed):
    """The place of the first of these pairs of signature and text that the key did not sign."""
    public = decoded(key)
    multiples, of_base, of_key = [], 0, 0
    for at, (signature, text) in enumerate(signed):
        point, s = decoded(signature[:32]), int.from_bytes(signature[32:], "little")
        if point is None or public is None or s >= ORDER:
            before = first_forged(key, signed[:at])
            return at if before is None else before
        factor = secrets.randbits(128) + 1
        challenge = hashlib.sha512(signature[:32] + key + text).digest()
        of_base += factor * s
        of_key += factor * int.from_bytes(challenge, "little")
        multiples.append((factor, (PRIME - point[0], point[1], 1, PRIME - point[3])))
    if not multiples:
        return None
    negative = (PRIME - public[0], public[1], 1, PRIME - public[3])
    known = summed([(of_base % ORDER, BASE), (of_key % ORDER, negative)])
    total = add(known, summed(multiples))
    for _ in range(3):
        total = add(total, total)
    if total[0] % PRIME == 0 and (total[1] - total[2]) % PRIME == 0:
        return None
    if len(signed) == 1:
        return 0
    half = len(signed) // 2
    before = first_forged(key, signed[:half])
    if before is not None:
        return before
    after = first_forged(key, signed[half:])
    return None if after is None else half + after


class Signatures:
    """Signatures of a key that are still to be checked, with the lines of their records."""

    def __init__(self):
        self.key, self.lines, self.signed = None, [], []

    def add(self, line, key, record):
        """One more; they are checked together where it is of another key, or they are many."""
        if key != self.key or len(self.lines) == SIGNED_AT_ONCE:
            self.check()
        self.key = key
        self.lines.append(line)
        text = f"{FORMAT} signature\n{record['digest']}\n".encode()
        self.signed.append((bytes.fromhex(record["signature"]), text))

    def check(self):
        """Check what is there."""
        lines, signed, self.lines, self.signed = self.lines, self.signed, [], []
        forged = first_forged(bytes.fromhex(self.key), signed) if signed else None
        if forged is not None:
            raise BadRecordError("the signature is not of the key in the genesis", lines[forged])


# ---- the account of a promise about an interval (docs/proofs/account.md)
#
# A row is about the houses of one chain of one model: b, the most that all outputs so far say about
# its last step; the room, the most that later ones may say about that step; and the smallest and
# largest log odds of being at home there by the model alone. m is a matrix by rows: m[2 s + j] is
# the chance of state j after state s; 0 is away, 1 at home.

INFINITE = sys.float_info.max  # as which records write infinity
CLOSE = 1e-9
SILENT = 40_000  # steps without a block that are followed one by one
STAYS = (1.0, 0.0, 0.0, 1.0)
NOTHING = (0.0, math.inf, -math.inf, math.inf)  # was published


def times(m, n):
    """The moves of m, then those of n."""
    return tuple(m[s] * n[j] + m[s + 1] * n[2 + j] for s in (0, 2) for j in (0, 1))


def log_ratio(x, y):
    """log(x / y), one of which may be 0."""
    return math.log(x / y) if x > 0 < y else math.inf if x > 0 else -math.inf


def share(odds):
    """The chance with these log odds."""
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def room_after(x, m):
    """The most that may be said about a step so that the one before m learns at most x."""
    least = math.inf
    for column in ((m[0], m[2]), (m[1], m[3])):
        high, low = max(column), min(column)
        grown = math.expm1(min(x, 700.0))
        if x < math.inf and high - low > grown * low:
            least = min(least, math.log1p(grown / (high - low - grown * low)))
    return least


def softplus(z):
    """log(1 + e^z)."""
    return max(z, 0.0) + math.log1p(math.exp(-abs(z)))


def says_after(b, m, low, high):
    """The most that outputs which say b about the step before m say about the one after it."""
    if b == 0 or 0 in (m[0] + m[2], m[1] + m[3]) or (low == high and math.isinf(low)):
        return 0.0
    c0, c1 = log_ratio(m[2], m[0]), log_ratio(m[3], m[1])
    if math.isinf(c0) and math.isinf(c1):
        return b
    if b == math.inf:  # the state before is as good as known
        if math.isinf(c0) or math.isinf(c1) or low == -math.inf or high == math.inf:
            return abs(c1 - c0)
        home = softplus(-low - c0) - softplus(-low - c1)
        away = softplus(high + c1) - softplus(high + c0)
        return max(abs(home), abs(away))
    most = 0.0
    for s in (b, -b):
        z = min(max(-(c0 + c1) / 2 - s / 2, low), high)
        said = []
        for at in (c if math.isinf(c) else z + c for c in (c0, c1)):
            ends = {math.inf: s, -math.inf: 0.0}
            said.append(ends[at] if math.isinf(at) else softplus(at + s) - softplus(at))
        most = max(most, abs(said[1] - said[0]))
    return min(most, b, abs(c1 - c0))


def after_block(row, loss, chain, promise, lost=False):
    """The row after a block; None where a promise could be broken, unless it is lost anyway."""
    b, room, low, high = row
    ahead = [STAYS]
    for m in reversed(chain[1:]):
        ahead.append(times(m, ahead[-1]))
    left = room_after(room, chain[0]) - loss
    if left < -CLOSE * loss and not lost:
        return None
    room, inward = room_after(max(left, 0.0), ahead[-1]), STAYS
    for m, outward in zip(chain, reversed(ahead), strict=True):
        inward = times(inward, m)
        said = says_after(b, inward, low, high)
        left = math.inf if promise == math.inf else promise - loss - said
        if left < -CLOSE * promise and not lost:
            return None
        room = min(room, room_after(max(left, 0.0), outward))
    ends = []
    for home, away in ((share(low), share(-low)), (share(high), share(-high))):
        chances = [away * inward[j] + home * inward[2 + j] for j in (0, 1)]
        ends.append(log_ratio(chances[1], chances[0]))
    return loss + said, room, min(ends), max(ends)


def near(x, y):
    """Equal but for rounding."""
    return x == y or math.isclose(x, y, rel_tol=CLOSE, abs_tol=CLOSE)


def read_rows(account):
    """The losses and the rows of a record."""
    rows = [
        [x if abs(x) < INFINITE else math.copysign(math.inf, x) for x in row] for row in account
    ]
    need(all(len(row) == 5 and min(row[:3]) >= 0 for row in rows), "its account has other figures")
    return [row[0] for row in rows], [tuple(row[1:]) for row in rows]


def no_better(row, due):
    """Whether a row promises the houses no less than is due."""
    pairs = ((due[0], row[0]), (row[1], due[1]), (row[2], due[2]), (due[3], row[3]))
    return all(x <= y or near(x, y) for x, y in pairs)


def merged(rows, unknown):
    """A row that holds for all of these under any model, or if none is believed any more."""
    known = math.inf if unknown else max(row[0] for row in rows)
    return known, min(row[1] for row in rows), -math.inf, math.inf


zone_named = lru_cache(ZoneInfo)


def are_figures(part):
    """Whether a part of a tariff is a finite number, pairs of them, or figures by name."""
    if isinstance(part, dict):
        return all(map(are_figures, part.values()))
    if isinstance(part, list):
        return all(isinstance(pair, list) and all(map(are_figures, pair)) for pair in part)
    return type(part) in (int, float) and math.isfinite(part)


def promised(terms, secret):
    """What terms promise about a secret: epsilon, or None."""
    return terms["promise"]["epsilon"] if terms["promise"]["secret"] == secret else None


def place(terms, t, length):
    """The step of a pattern that the zone's step t is: in local time from Monday on."""
    if terms["time_zone"] is None:
        return (t - terms["first"]) % length
    now = datetime.fromtimestamp(t * terms["seconds"], zone_named(terms["time_zone"]))
    local = ((now.weekday() * 24 + now.hour) * 60 + now.minute) * 60 + now.second
    return local // terms["seconds"] % length


def chains_of(terms):
    """The chain of each row with its slots."""
    return [(model["slots"], chain) for model in terms["models"] for chain in model["chains"]]


def matrices(terms, first, last, new=False):
    """For each row the matrices into the steps first to last; new: its houses begin with them."""
    rows = []
    for slots, chain in chains_of(terms):
        at = [slots[place(terms, t, len(slots))] for t in range(first, last + 1)]
        into = [chain["moves"][slot] for slot in at]
        rows.append([STAYS, *into[1:]] if new else into)
    return rows


def moves(terms):
    """All by which two terms have the same houses under the same models."""
    chains = [(slots, chain["moves"]) for slots, chain in chains_of(terms)]
    names = ("seconds", "time_zone", "roster", "occupancy")
    return chains, [terms[name] for name in names]


def certain(law, chain, steps):
    """Whether one state alone is possible at each of a chain's last `steps`."""
    states = [chance > 0 for chance in law]
    alone = [sum(states) < 2]
    for m in chain[1:]:
        states = [any(states[s] and m[2 * s + j] > 0 for s in (0, 1)) for j in (0, 1)]
        alone.append(sum(states) < 2)
    return all(alone[-steps:])


class Account:
    """A zone's account so far."""

    def __init__(self):
        self.arrivals = []  # of houses that came since the terms were recorded
        self.set(None, None, 0)

    def set(self, rows, terms, last, cut=None):
        """The newest rows, about the step `last` of their terms, and what they were made of."""
        self.rows, self.terms, self.last, self.cut = rows, terms, last, cut
        self.brought, self.ends, self.unknown = [], [], False  # what they do not hold

    def begin(self):
        """Terms are recorded: houses that came before them count from now on."""
        for rows, end in self.arrivals:
            self.brought += rows
            self.ends.append(end)
        self.arrivals = []

    def goes_on(self, terms):
        """Whether the rows are of the same houses under the same models."""
        return self.rows is not None and moves(self.terms) == moves(terms)

    def settled(self, terms):
        """The last step that the rows hold, as terms count: no block begins until it ends."""
        ends = [*self.ends]
        if self.rows is not None:
            ends.append((self.last + 1) * self.terms["seconds"])
        return -(-max(ends, default=0) // terms["seconds"]) - 1

    def before(self, terms, first):
        """The rows before a step, and whether nothing was ever published before it."""
        done, chains, border = self.settled(terms), chains_of(terms), terms["first"] - 1
        need(first > done, "a block begins before the last one has ended")
        new = self.rows is None and not self.unknown and not self.brought
        if new:
            odds = [log_ratio(chain["law"][1], chain["law"][0]) for _, chain in chains]
            rows, done = [(0.0, math.inf, y, y) for y in odds], max(done, border)
            silent = self.silent(terms, rows, done, first - 1, math.inf, new=True)
            return silent, new and first - 1 <= done
        if self.goes_on(terms) and not self.unknown and not self.brought:
            rows = self.rows
        else:
            rows = [merged([NOTHING, *(self.rows or ()), *self.brought], self.unknown)]
            rows, done = rows * len(chains), max(done, border)
        before = None if self.rows is None else promised(self.terms, "interval")
        promise = math.inf if before is None else before
        begun = min(border, first - 1)  # steps before the terms keep the promise of then
        rows = self.silent(terms, rows, done, begun, promise)
        promise = max(promise, promised(terms, "interval"))
        return self.silent(terms, rows, max(done, begun), first - 1, promise), False

    def silent(self, terms, rows, done, last, promise, new=False):
        """The rows after steps in which nothing from readings was published."""
        if last - done > SILENT:
            rows = [(*row[:2], -math.inf, math.inf) for row in rows]
            done = last - SILENT
        if last <= done:
            return rows
        silent = list(zip(rows, matrices(terms, done + 1, last, new), strict=True))
        rows = [after_block(row, 0.0, into, promise) for row, into in silent]
        models = [n for n, model in enumerate(terms["models"]) for _ in model["chains"]]
        over = {n for n, row in zip(models, rows, strict=True) if row is None}
        for at, (row, into) in enumerate(silent):
            if models[at] in over:  # steps before the first block that is admitted again
                rows[at] = after_block(row, 0.0, into, math.inf)
        return rows

    def blocks(self, terms, first, last):
        """For each row what it was before a block, and the matrices into the block's steps."""
        rows, new = self.before(terms, first)
        return list(zip(rows, matrices(terms, first, last, new), strict=True))

    def open(self, terms, body, first, last):
        """The rows of the release that opens a block; returns the most said about a step of it."""
        losses, rows = read_rows(body["account"])
        need(body["t"] > self.settled(terms), "a block begins before the last one has ended")
        first = max(first, self.settled(terms) + 1)
        cut = self.blocks(terms, first, last)
        need(len(rows) == len(cut), "its account has another number of rows")
        for n, (row, into) in enumerate(cut):
            due = after_block(row, losses[n], into, promised(terms, "interval"))
            need(due, f"the account does not admit the block of step {body['t']} (row {n + 1})")
            fits = all(map(near, rows[n], due))
            need(fits, f"row {n + 1} of its account does not follow from the records before")
            chain = chains_of(terms)[n][1]
            lost = chain["reach"] / body["scale"] if body["scale"] else math.inf
            if terms["promise"]["eta"] == 1 and not near(losses[n], lost):
                since = matrices(terms, terms["first"], last)[n]
                alone = certain(chain["law"], since, last - first + 1)
                need(alone, f"row {n + 1} of its account states another loss")
        self.set(rows, terms, last, (first, cut, losses))
        return max(
            losses[n] + says_after(row[0], into[0], *row[2:]) for n, (row, into) in enumerate(cut)
        )

    def resume(self, terms, body, twice):
        """The rows that book steps whose records are lost; returns the most they may have said.

        After two histories nothing is believed of the past. What was planned is not on record.
        """
        losses, rows = read_rows(body["account"])
        first, last = max(body["first"], self.settled(terms) + 1), body["until"]
        need(last >= body["last"], "its account is of an earlier step")
        if first > last:
            due = self.before(terms, first)[0]
        else:
            due = []
            for row, into in self.blocks(terms, first, last):
                silent = after_block(row, 0.0, into, promised(terms, "interval"))
                due.append(silent or after_block(row, 0.0, into, math.inf, lost=True))
        need(len(rows) == len(due), "its account has another number of rows")
        for n, (said, *others) in enumerate(due):
            booked = max(said, min(said + losses[n], promised(terms, "interval")))
            booked, others = (math.inf, merged([due[n]], True)[1:]) if twice else (booked, others)
            fits = no_better(rows[n], (booked, *others))
            need(fits, f"row {n + 1} of its account is better than the records before allow")
        self.set(rows, terms, last)
        return max(row[0] for row in rows)

    def leave(self, terms, body, last):
        """The row that a house takes along when it leaves after a step."""
        rows = list(self.rows or ())
        due = bool(rows or self.brought or self.unknown)
        need(due == ("account" in body), "an account too many, or none")
        settled = self.last
        if self.cut and last < self.last and self.goes_on(terms):
            first, cut, losses = self.cut  # the house has no part in the rest of the block
            settled, steps = max(last, first), max(last, first) - first + 1
            for n, ((row, into), loss) in enumerate(zip(cut, losses, strict=True)):
                rows[n] = (
                    after_block(row, loss, into[:steps], promised(terms, "interval")) or rows[n]
                )
        ends = [] if self.rows is None else [(settled + 1) * self.terms["seconds"]]
        need(body["last"] >= max(self.ends + ends, default=0), "it leaves before its last step")
        if due:
            (row,) = read_rows(body["account"])[1]
            fits = no_better(row, merged([NOTHING, *rows, *self.brought], self.unknown))
            need(fits, "a house leaves with a better account than its zone's")


def takes_along(body):
    """What a house that moves takes along, by its record."""
    return body.get("account"), body.get("windows"), body["last"]


def lost_in(promise, blocks, start):
    """What the windows of a promise that hold the second `start` have lost by then."""
    window, _, since, _ = promise
    return math.fsum(e for a, b, e in blocks if b >= start - window + 1 and a >= since)


def joined(blocks, others):
    """All blocks of both lists; one that a list has twice was drawn twice."""
    more = Counter(map(tuple, others)) - Counter(map(tuple, blocks))
    return [list(block) for block in sorted([*map(tuple, blocks), *more.elements()])]


def carried(old, new):
    """Whether each old block is among the new ones, or in the first of 64, which has the oldest."""
    missing = sorted((Counter(map(tuple, old)) - Counter(map(tuple, new))).elements())
    if not missing:
        return True
    if len(new) < 64:
        return False
    first, last, loss = new[0]
    whole = math.fsum(e for _, _, e in missing) * (1 - CLOSE)
    return loss >= whole and all(a <= first and b <= last for a, b, _ in missing)


def kept_promises(old, new, blocks):
    """Whether each promise stays in force for the windows that hold one of the blocks."""
    end = max((b for _, b, _ in blocks), default=-1)
    return all(
        any(
            promise[:2] == [window, epsilon]
            and promise[2] <= since
            and (promise[3] == -1 or promise[3] >= (end if until == -1 else until))
            for promise in new
        )
        for window, epsilon, since, until in old
        if blocks or until != -1
    )


class Kept:
    """What terms promise, and what was lost of it."""

    def __init__(self, number, terms):
        self.number, self.terms, self.most = number, terms, 0.0
        self.releases = dict.fromkeys(("readings", "forecast", "fallback"), 0)
        begins = datetime(1970, 1, 1, tzinfo=UTC)
        begins += timedelta(seconds=terms["first"] * terms["seconds"])
        self.begins = begins.isoformat().replace("+00:00", "Z")

    def lose(self, loss):
        """The most that was lost of it so far."""
        self.most = max(self.most, loss)

    @property
    def broken(self):
        """Whether more was lost than promised."""
        return self.most > self.terms["promise"]["epsilon"] * (1 + CLOSE)

    def lines(self):
        """In words, two lines."""
        promise, seconds = self.terms["promise"], self.terms["seconds"]
        secret, epsilon, eta = promise["secret"], promise["epsilon"], promise["eta"]
        factor = f"by at most a factor of {math.exp(min(epsilon, 700.0)):.4g} (e^{epsilon:g})"
        trust = "whatever homes consume" if eta == 1 else "as far as consumption follows its laws"
        if secret == "window":
            hours = f"{promise['window'] / 3600:g} hours"
            words = (
                "all prices ever published shift the odds between any two stories about what a"
                f" home does in any {hours} {factor}"
            )
            of = f"what any {hours} lost"
            figures = f"window {promise['window']} s, reach {self.terms['reach']:g} Wh, "
        elif secret == "interval":
            words = (
                "all prices ever published shift the odds of whether somebody is at home in any"
                f" interval of {seconds} s {factor}, {trust}"
            )
            of, figures = "what an interval had lost by the end of its block", ""
        else:
            words = (
                f"each price shifts the odds of whether somebody is at home in its {seconds} s"
                f" {factor}, {trust}; nothing is promised about several prices together"
            )
            of, figures = "what a price lost", ""
        readings, forecasts, fallbacks = self.releases.values()
        yield (
            f"terms of record {self.number}, from {self.begins} (step {self.terms['first']}):"
            f" {words} (secret {secret}, {figures}epsilon {epsilon:g}, eta {eta:g})"
        )
        yield (
            f"  {of}, at most: {self.most:.6g} of {epsilon:g}"
            f"{', MORE than promised' if self.broken else ''}; releases from readings {readings},"
            f" forecasts {forecasts}, fallbacks {fallbacks}"
        )


class Chain:
    """One zone's records so far."""

    def __init__(self, zone):
        self.zone, self.seq, self.head = zone, 0, "0" * 64
        self.mode = self.key = self.terms = self.tariff = None
        self.t = self.end = self.reach = self.listed = 0
        self.charged = set()
        self.gap = self.opened = None
        self.lost, self.steps = {}, []  # the open gap; steps read or lost under the present terms
        self.account, self.left, self.came = Account(), {}, {}
        self.windows, self.closed = ([], []), None
        self.read = False  # a release from readings came
        self.kept = []  # for each record of terms

    def take(self, record, wanted_key):
        """The next record, or why not."""
        need(record["zone"] == self.zone, "the zone is out of order")
        need(record["seq"] == self.seq + 1, f"record {self.seq + 1} is not where it should be")
        need(record["prev"] == self.head, "it does not follow the record before")
        need(record["digest"] == digest_of(record), "its digest is not that of its text")
        body, kind = record["body"], record["kind"]
        need(self.closed is None or kind == "opened", "a record after the ledger was closed")
        need((kind == "genesis") == (self.seq == 0), "a chain begins with its one genesis")
        try:
            getattr(self, f"take_{kind}")(body)
        except ZoneInfoNotFoundError:
            raise BadRecordError("its time zone is not known on this machine") from None
        except (TypeError, ValueError, KeyError, IndexError, OverflowError):
            raise BadRecordError("a field is not of its type") from None
        if kind == "transfer" and body["direction"] == "out":
            self.left[record["digest"]] = takes_along(body)
        elif kind == "transfer":
            self.came[body["out"]] = takes_along(body)
        need(wanted_key in (None, self.key), "it is signed with another key than the one given")
        self.seq, self.head = record["seq"], record["digest"]
        self.closed = record["digest"] if kind == "closed" else None

    def take_closed(self, body):
        """Nothing follows, but in an import."""
        need(self.gap is None, "the ledger is closed while a gap is not booked")
        need(isinstance(body["goes_on"], str), "where it goes on is no text")

    def take_opened(self, body):
        """An import goes on."""
        need(self.closed == body["closed"] is not None, "it opens a ledger that was not closed")

    def take_genesis(self, body):
        """Mode and key."""
        form = body["format"]
        need(type(form) is int and form == 1, f"the ledger has format {form}; give one of format 1")
        need(body["mode"] in ("production", "simulation"), "the mode is unknown")
        need(re.fullmatch("[0-9a-f]{64}", body["key"]), "the key is not 64 hexadecimal digits")
        self.mode, self.key = body["mode"], body["key"]

    def take_tariff(self, body):
        """What a load costs from now on: of prices alone, so at any interval."""
        need(type(body["begins"]) is int, "when the tariff begins is no whole second")
        need(body["begins"] >= self.reach, "a tariff begins before what is published ends")
        need(isinstance(body["figures"], dict), "the figures of a tariff are no mapping")
        need(all(map(are_figures, body["figures"].values())), "a tariff has no finite figures")
        self.tariff = body

    def take_terms(self, body):
        """New terms, for steps not yet published."""
        later = body["first"] * body["seconds"] >= self.reach
        need(later, "terms begin before what is published ends")
        need(self.gap is None, "terms while a gap is not booked")
        need(body["digest"] == terms_digest(body), "its digest is not that of what terms state")
        interval = promised(body, "interval")
        need((interval is None) == ("models" not in body), "models without a promise, or without")
        need(interval is None or 0 < interval < math.inf, "no promise about an interval")
        need(promised(body, "window") is None or "reach" in body, "windows without a reach")
        reaches = [chain["reach"] for _, chain in chains_of(body)] if "models" in body else []
        if "reach" in body:
            ends = [at if isinstance(at, list) else (0, at) for at in body["plan"].get("clamp", [])]
            clamp = max((high - low for low, high in ends), default=math.inf)
            need(0 < body["reach"] <= clamp, "its reach is not above 0, or above the clamp")
            need(max(reaches, default=0) <= body["reach"], "its models have a larger reach")
        self.opened, self.steps = None, []
        self.account.begin()
        self.terms, self.t = body, min(self.t, body["first"] - 1)
        self.kept.append(Kept(self.seq + 1, body))

    def take_release(self, body):
        """One value a step, in order, under terms recorded before."""
        t, source = body["t"], body["source"]
        need(body["zone"] == self.zone, "the release is of another zone")
        need(body["simulated"] is (self.mode == "simulation"), f"simulated in a {self.mode} ledger")
        need(t > self.t, f"step {t} is not after step {self.t}")
        need(body["start"] >= self.end, "its interval begins before the last one's end")
        priced = self.tariff is None or body["start"] >= self.tariff["begins"]
        need(priced, "its interval begins before its tariff")
        need(body["applies_from"] > t, "its rate is for the past")
        need(body["applies_start"] > body["start"], "its rate is for the past")
        need(source in ("readings", "forecast", "fallback"), "the source is unknown")
        if source == "fallback":
            need(body["digest"] is None, "a fallback has terms")
        else:
            need(self.terms and t >= self.terms["first"], "a release under no terms")
            need(body["digest"] == self.terms["digest"], "other terms than those on record")
        if source == "readings":
            need(self.gap is None, "a release from readings while a gap is not booked")
            need(type(body["load_hat"]) is int, "no load_hat")
            need(body["scale"] > 0, "no noise")
            need(body.get("noise") in ("laplace", "block"), "the noise is unknown")
            need(("block" in body) == (body.get("noise") == "block"), "noise and block disagree")
            self.take_block(body)
        else:
            need("account" not in body and "windows" not in body, f"a {source} with an account")
            need("noise" not in body and "block" not in body, f"a {source} with noise")
            free = body["load_hat"] is None and not any(body[name] for name in COSTS)
            need(free, f"a {source} with a load or a cost")
        if source == "readings":
            self.read = True
            self.steps.append((t, t))
        if self.kept:
            self.kept[-1].releases[source] += 1
        self.t = t
        self.end = body["start"] + (self.terms["seconds"] if self.terms else 1)
        self.reach = max(self.reach, self.end)

    def take_prices(self, body):
        """A list of prices, for intervals after its publication that no list has."""
        terms, first, rates = self.terms, body["first"], body["rates"]
        ahead = terms and self.tariff and "ahead" in self.tariff["figures"]
        need(ahead, "a list under a tariff without prices ahead")
        need(body["zone"] == self.zone, "the list is of another zone")
        need(body["simulated"] is (self.mode == "simulation"), f"simulated in a {self.mode} ledger")
        need(body["source"] in ("ahead", "carried", "fallback"), "the source is unknown")
        digest = None if body["source"] == "fallback" else terms["digest"]
        need(body["digest"] == digest, "other terms than those on record")
        need(body["seconds"] == terms["seconds"], "intervals of another length")
        need(first % body["seconds"] == 0, "a list that does not begin on a border of intervals")
        need(first > body["published_at"], "its prices are for the past")
        need(first >= self.listed, "an interval is listed twice")
        for column in (rates, body.get("feed_in", rates)):
            need(0 < len(column) == len(rates), "rates and feed_in differ in number")
            need(all(isinstance(rate, float) for rate in column), "a rate is no number")
        self.listed = first + len(rates) * body["seconds"]

    def take_block(self, body):
        """The block of steps that a release is in; its first release has the account after it."""
        first = last = body["t"]
        if "block" in body:
            block = body["block"]
            need(isinstance(block, dict), "its block is no place")
            names = {"first", "length"}
            need(names <= set(block) <= {*names, "mark"}, "its block is no place")
            fits = all(type(value) is int and value > 0 for value in block.values())
            first, last = block["first"], block["first"] + block["length"] - 1
            need(fits and first <= body["t"] <= last, "its block is no place")
            need(first >= self.terms["first"], "its block begins before its terms")
        interval = promised(self.terms, "interval") is not None
        opens = self.opened is None or self.opened[0] != first
        if self.terms["promise"]["secret"] == "step":
            need("account" not in body, "an account without a promise about an interval")
        if interval:
            need(opens == ("account" in body), "an account too many, or none")
        else:
            self.account.unknown = True
        if opens and interval:
            self.kept[-1].lose(self.account.open(self.terms, body, first, last))
        if self.terms["promise"]["secret"] == "step":
            self.kept[-1].lose(math.inf if body["epsilon"] is None else body["epsilon"])
        if opens:
            self.take_windows(body, last)
        need(opens or "windows" not in body, "an account too many, or none")
        if opens:
            self.opened = first, last, body["scale"]
        need(self.opened == (first, last, body["scale"]), "other terms than its block's")

    def take_windows(self, body, last):
        """Every window of time that holds the block loses what is promised about it at most."""
        seconds, epsilon = self.terms["seconds"], promised(self.terms, "window")
        present = None if epsilon is None else [self.terms["promise"]["window"], epsilon]
        promises, blocks = body.get("windows", ([], []))
        need(present is None or "windows" in body, "no account of the promise about windows")
        if "windows" not in body:
            return
        start, end, loss = blocks[-1]
        need(end == (last + 1) * seconds - 1, "its windows end with another block")
        need(start <= body["start"], "its windows end with another block")
        need("reach" in self.terms, "windows without a reach")
        due = self.terms["reach"] / body["scale"] * (1 - CLOSE)
        need(body["epsilon_any"] >= due, "its epsilon_any is less than the reach over the scale")
        need(loss >= due, "its windows state less than the reach over the scale")
        need(loss >= body["epsilon_any"] * (1 - CLOSE), "its windows state another loss")
        made = [promise for promise in promises if promise[3] == -1]
        stated = [promise[:2] for promise in made]
        need(stated == ([] if present is None else [present]), "its windows state another promise")
        need(all(promise[2] <= start for promise in made), "its promise begins after its block")
        old_promises, old_blocks = self.windows
        for window, epsilon, since, until in old_promises:
            stays = until == -1 or start - window + 1 <= until
            kept = [p for p in promises if p[:2] == [window, epsilon] and p[2] <= since]
            need(kept or not stays, "its windows drop a promise that is in force")
            need(not stays or kept[0][3] == -1 or kept[0][3] >= until, "a promise ends too early")
        reach = max((window for window, *_ in promises), default=0)
        if old_promises and made:
            need(made[-1][2] >= self.renewed(), "a promise goes on through terms without it")
        elif made and self.read:  # charges alone
            since = made[-1][2]
            old_blocks = [[min(max(a, since), start), b, e] for a, b, e in old_blocks if b >= since]
        else:
            old_blocks = [[min(a, start), b, e] for a, b, e in old_blocks]
        still = [block for block in old_blocks if block[1] >= start - reach + 1]
        need(carried(still, blocks), "its windows drop a block that still counts")
        for promise in promises:
            window, epsilon, _, until = promise
            if until == -1 or start - window + 1 <= until:
                lost = lost_in(promise, blocks, start)
                need(lost <= epsilon * (1 + CLOSE), "a window loses too much")
                self.lose(promise, lost)
        if not self.windows[0] and not self.read:
            firsts = [first for first, _, _ in self.windows[1]]
            since = [promise[2] for promise in promises]
            need(not firsts or max(since) <= min(firsts), "a promise leaves out what models cost")
        self.windows = promises, blocks

    def renewed(self):
        """When the present terms' promise about windows began, after terms without it [UTC s]."""
        stated = [(kept.terms["promise"], kept.terms) for kept in self.kept]
        made = [(p["secret"], p.get("window"), p["epsilon"]) for p, _ in stated]
        begins = -1
        for place, promise in enumerate(made):
            if promise == made[-1] and place and made[place - 1] != promise:
                begins = stated[place][1]["first"] * stated[place][1]["seconds"]
        return begins

    def lose(self, promise, lost):
        """The most that windows lost of a promise, of the newest terms that make it."""
        for kept in reversed(self.kept):
            stated = kept.terms["promise"]
            if [stated.get("window"), stated["epsilon"]] == promise[:2]:
                kept.lose(lost)
                return

    def take_transfer(self, body):
        """A house takes along what is still counted about it."""
        need(body["direction"] in ("in", "out"), "the direction is unknown")
        need((body["direction"] == "in") == (body["out"] is not None), "no record of leaving")
        need(body["direction"] == "in" or self.gap is None, "a house leaves an open gap")
        if body["direction"] == "out":
            self.account.leave(self.terms, body, self.t)
            promises, taken = body.get("windows", ([], []))
            blocks = self.windows[1]
            need(carried(blocks, taken), "it leaves without its blocks")
            need(kept_promises(self.windows[0], promises, blocks), "it leaves without its promises")
        else:
            if "account" in body:
                rows = read_rows(body["account"])[1]
                self.account.arrivals.append((rows, body["last"]))
            if "windows" in body:
                promises, blocks = body["windows"]
                new = [promise for promise in promises if promise not in self.windows[0]]
                self.windows = self.windows[0] + new, joined(self.windows[1], blocks)

    def take_charge(self, body):
        """What everybody spent on models, once for each."""
        need(body["epsilon"] >= 0, "a charge below 0")
        need(body["digest"] not in self.charged, "the same thing is charged twice")
        self.charged.add(body["digest"])
        first, last = body["first"], body["last"]
        need(0 <= first <= last, "the readings of a charge are out of order")
        for window, _, since, until in self.windows[0]:
            apart = last < since or (until != -1 and first - window + 1 > until)
            need(apart, "a charge shares windows with prices that spend their promise")
        if not self.windows[0]:
            self.windows[1].append([first, last, body["epsilon"]])

    def take_gap(self, body):
        """Steps that may have been published and lost."""
        if self.gap is not None:  # it may be extended
            now, (first, last) = [body["first"], body["last"]], self.gap
            need(
                now[0] <= first and last <= now[1] and now != self.gap,
                "a second gap before the first is booked",
            )
        need(self.terms, "a gap under no terms")
        need(self.terms["first"] <= body["first"] <= body["last"], "a gap of no steps")
        need(body["why"] in ("witness", "meters", "failover", "fork"), "the cause is unknown")
        self.gap, self.t = [body["first"], body["last"]], max(self.t, body["last"])
        self.lost = body
        self.reach = max(self.reach, (body["last"] + 1) * self.terms["seconds"])

    def take_resume(self, body):
        """What they may have cost; null has no epsilon of its own."""
        need(self.gap == [body["first"], body["last"]], "it books no open gap")
        least = self.lost.get("least", 0.0)
        need(body["epsilon"] is None or body["epsilon"] >= least, "it books less than was lost")
        first, last = self.gap
        on_record = any(a <= last and first <= b for a, b in self.steps)
        twice = bool(self.lost.get("heads")) or on_record  # two histories
        self.steps.append((first, last))
        interval = promised(self.terms, "interval") is not None
        need(not interval or "account" in body, "an account too many, or none")
        accounts = "account" in body or "windows" in body
        need(accounts == ("until" in body), "an account too many, or none")
        if interval:
            self.kept[-1].lose(self.account.resume(self.terms, body, twice))
        self.account.unknown |= not interval
        need("windows" in body or not self.bound(), "no account of a promise about windows")
        if "windows" in body:
            promises, blocks = body["windows"]
            need(carried(self.windows[1], blocks), "lost blocks")
            need(kept_promises(self.windows[0], promises, self.windows[1]), "lost promises")
            need(self.books_all(blocks, twice), "its windows leave out a block that may be lost")
            self.windows = promises, blocks
            for promise in promises:
                self.lose(promise, max(lost_in(promise, blocks, a) for a, _, _ in blocks))
        self.gap = self.opened = None

    def bound(self):
        """Whether a promise about windows is in force in the open gap."""
        start, (promises, blocks) = self.gap[0] * self.terms["seconds"], self.windows
        end = max((last for _, last, _ in blocks), default=-1)
        return promised(self.terms, "window") is not None or any(
            start - window + 1 <= (end if until == -1 else until)
            for window, _, _, until in promises
        )

    def books_all(self, blocks, twice):
        """Whether each second of the open gap is in a block that is booked for it.

        In two histories a block on record was drawn twice; in one it was opened once.
        """
        seconds, least = self.terms["seconds"], min(row[1] for row in self.terms["plan"]["blocks"])
        at, stop = self.gap[0] * seconds, (self.gap[1] + 1) * seconds
        begun = self.terms["first"] * seconds
        old = [block for block in self.windows[1] if block[0] >= begun and block[1] >= at]
        booked = [*(Counter(map(tuple, blocks)) - Counter(map(tuple, self.windows[1]))).elements()]
        again = [block for block in old if twice and block[0] < stop]
        at = at if twice else max([at, *(block[1] + 1 for block in old)])
        while at < stop:
            again.append((at, at, least))
            at = max((b + 1 for a, b, _ in booked if a <= at <= b), default=stop)
        return all(
            any(a <= first and last <= b and e >= loss * (1 - CLOSE) for a, b, e in booked)
            for first, last, loss in again
        )


def verify(lines, key=None, heads=()):
    """(good, text): what was promised and lost, or the first fault."""
    chains, n, missing, signatures = [], 0, set(heads), Signatures()
    try:
        for line in lines:
            record = parse(line)
            if not chains or record["zone"] > chains[-1].zone:
                chains.append(Chain(record["zone"]))
            chains[-1].take(record, key)
            n += 1
            signatures.add(n, chains[-1].key, record)
            missing.discard(record["digest"])
        signatures.check()
        need(n, "there is no record")
        left = {out: account for chain in chains for out, account in chain.left.items()}
        for chain in chains:
            fits = all(left.get(out, account) == account for out, account in chain.came.items())
            need(
                fits, f"a house came to zone {chain.zone!r} with another account than it left with"
            )
    except BadRecordError as why:
        return False, f"bad: line {why.line or n + 1}: {why}"
    if missing:
        return False, (
            f"bad: no record has the digest {min(missing)}: the chain was written anew, or its end"
            " was cut"
        )
    return True, "\n".join(said(chains, n, key, heads))


def said(chains, n, key, heads):
    """The lines about chains that stand."""
    broken = any(kept.broken for chain in chains for kept in chain.kept)
    yield (
        f"good: {n} records, all {n} signatures checked;"
        f" {'NOT every' if broken else 'every'} promise was kept by their own account"
    )
    for chain in chains:
        yield f"zone {chain.zone}: {chain.seq} records, the last {chain.head}, key {chain.key}"
        for kept in chain.kept:
            yield from kept.lines()
    unseen = [*UNSEEN]
    if any(kept.terms["promise"]["eta"] < 1 for chain in chains for kept in chain.kept):
        unseen.append(
            "what prices lose below eta 1, which is as recorded (hushgrid audit computes)"
        )
    if any(kept.terms["promise"]["secret"] == "step" for chain in chains for kept in chain.kept):
        unseen.append("what prices lose under the secret step, which is as recorded")
    if not heads:
        unseen.append("that the end is there (--head)")
    if key is None:
        unseen.append("whose the ledger is (--key)")
    yield from (f"not checked: {what}" for what in unseen)


def main():
    """Read the arguments and the file."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("file", help="an export, one record a line; - for standard input")
    arguments.add_argument("--key", help="public key (hex) that must have signed everything")
    arguments.add_argument("--head", action="append", default=[], help="a digest known before")
    asked = arguments.parse_args()
    try:
        if asked.file == "-":
            good, text = verify(sys.stdin.buffer, asked.key, asked.head)
        else:
            with open(asked.file, "rb") as lines:  # noqa: PTH123
                good, text = verify(lines, asked.key, asked.head)
    except OSError as error:
        sys.stderr.write(f"{asked.file} cannot be read ({error.strerror}).\n")
        return 2
    sys.stdout.write(f"{text}\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
