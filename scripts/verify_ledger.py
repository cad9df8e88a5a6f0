#!/usr/bin/env python3
"""Verify an exported ledger with Python's standard library alone, no hushgrid needed.

    python3 verify_ledger.py ledger.ndjson [--key HEX] [--head DIGEST ...]

Prints one line; exit 0: every record stands, 1: one does not, 2: the file cannot be read.
Signatures are checked where the package `cryptography` is installed; the line says whether.
The format is in docs/ledger.md. This file shares no code with hushgrid, on purpose.
"""

import argparse
import hashlib
import json
import re
import sys

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:
    Ed25519PublicKey = None

FORMAT = "hushgrid-ledger/1"
KINDS = {
    "genesis": "created_at format key mode",
    "epoch": "digest exact first horizon houses roster seconds together",
    "schedule": "digest steps",
    "release": "applies_from applies_start counts delta digest epsilon epsilon_any estimate"
    " load_hat published_at put_back rate rule scale simulated source start t zone",
    "transfer": "delta direction epsilon house last other out total",
    "charge": "digest epsilon homes what",
    "gap": "first last why",
    "resume": "delta epsilon first last",
}
OPTIONAL = {
    "epoch": {
        "interval",
        "leakage",
        "accepted",
        "promised_from",
        "forecast_until",
        "occupancy",
    },
    "release": {"noise", "base", "model_share", "covariates", "block", "offset", "feed_in"},
    "gap": {"heads", "least"},
    "resume": {"together", "interval"},
}
COSTS = ("scale", "epsilon", "delta", "epsilon_any", "put_back")


class BadRecordError(Exception):
    """Why a record does not stand."""


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


def check_signature(key, record):
    """Ed25519 over the format and the digest."""
    if Ed25519PublicKey is None:
        return
    message = f"{FORMAT} signature\n{record['digest']}\n".encode()
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(record["signature"]), message)
    except (InvalidSignature, ValueError):
        raise BadRecordError("the signature is not of the key in the genesis") from None


class Chain:
    """One zone's records so far."""

    def __init__(self, zone):
        self.zone, self.seq, self.head = zone, 0, "0" * 64
        self.mode = self.key = self.epoch = None
        self.committed = False
        self.t = self.end = self.reach = 0
        self.spent = {}
        self.charged = set()
        self.gap = None

    def take(self, record, wanted_key):
        """The next record, or why not."""
        need(record["zone"] == self.zone, "the zone is out of order")
        need(record["seq"] == self.seq + 1, f"record {self.seq + 1} is not where it should be")
        need(record["prev"] == self.head, "it does not follow the record before")
        need(record["digest"] == digest_of(record), "its digest is not that of its text")
        body, kind = record["body"], record["kind"]
        need((kind == "genesis") == (self.seq == 0), "a chain begins with its one genesis")
        try:
            getattr(self, f"take_{kind}")(body)
        except (TypeError, ValueError):
            raise BadRecordError("a field is not of its type") from None
        need(wanted_key in (None, self.key), "it is signed with another key than the one given")
        check_signature(self.key, record)
        self.seq, self.head = record["seq"], record["digest"]

    def take_genesis(self, body):
        """Mode and key."""
        form = body["format"]
        need(type(form) is int and form == 1, f"the ledger has format {form}; give one of format 1")
        need(body["mode"] in ("production", "simulation"), "the mode is unknown")
        need(re.fullmatch("[0-9a-f]{64}", body["key"]), "the key is not 64 hexadecimal digits")
        self.mode, self.key = body["mode"], body["key"]

    def take_epoch(self, body):
        """New terms, for steps not yet published."""
        later = body["first"] * body["seconds"] >= self.reach
        need(later, "an epoch begins before what is published ends")
        need(self.gap is None, "an epoch while a gap is not booked")
        self.epoch, self.committed, self.t = body, False, min(self.t, body["first"] - 1)

    def take_schedule(self, _):
        """One commitment an epoch."""
        need(self.epoch and not self.committed, "a schedule without epoch, or a second one")
        self.committed = True

    def take_release(self, body):
        """One value a step, in order, on terms committed to before."""
        t, source = body["t"], body["source"]
        need(body["zone"] == self.zone, "the release is of another zone")
        need(body["simulated"] is (self.mode == "simulation"), f"simulated in a {self.mode} ledger")
        need(t > self.t, f"step {t} is not after step {self.t}")
        need(body["start"] >= self.end, "its interval begins before the last one's end")
        need(body["applies_from"] > t, "its rate is for the past")
        need(body["applies_start"] > body["start"], "its rate is for the past")
        need(source in ("readings", "forecast", "fallback"), "the source is unknown")
        if source == "fallback":
            need(body["digest"] is None, "a fallback has terms")
        else:
            need(self.epoch and t >= self.epoch["first"], "a release outside any epoch")
            need(self.committed, "a release before the epoch's schedule")
            need(body["digest"] == self.epoch["digest"], "other terms than its epoch's")
        if source == "readings":
            need(self.gap is None, "a release from readings while a gap is not booked")
            need(t < self.epoch["first"] + self.epoch["horizon"], "beyond the horizon")
            silent = self.epoch.get("forecast_until", 0)
            need(body["start"] >= silent, "readings before its epoch's forecast_until")
            need(type(body["load_hat"]) is int, "no load_hat")
            need(body["scale"] > 0 or self.epoch["exact"] is True, "no noise")
            if "noise" in body:
                known = ("laplace", "gaussian", "block", "none")
                need(body["noise"] in known, "the noise is unknown")
                need((body["noise"] == "none") == (body["scale"] == 0), "noise without a scale")
            need(("block" in body) == (body.get("noise") == "block"), "noise and block disagree")
            if "block" in body:
                first = self.block(t, body["block"])
                need(first >= self.epoch["first"], "its block begins before its epoch")
        else:
            need("noise" not in body and "block" not in body, f"a {source} with noise")
            free = body["load_hat"] is None and not any(body[name] for name in COSTS)
            need(free, f"a {source} with a load or a cost")
        self.t = t
        self.end = body["start"] + (self.epoch["seconds"] if self.epoch else 1)
        self.reach = max(self.reach, self.end)

    def block(self, t, block):
        """The first step of a release's block."""
        need(isinstance(block, dict), "its block is no place")
        known = {"length", "number", "place"}
        need(known <= set(block) <= {*known, "mark"}, "its block is no place")
        need(all(type(one) is int and one > 0 for one in block.values()), "its block is no place")
        need(block["place"] <= block["length"], "its place is beyond its block")
        return t - block["place"] + 1

    def take_transfer(self, body):
        """What a house has spent stays spent."""
        need(body["direction"] in ("in", "out"), "the direction is unknown")
        need((body["direction"] == "in") == (body["out"] is not None), "no record of leaving")
        need(body["direction"] == "in" or self.gap is None, "a house leaves an open gap")
        now = [body["epsilon"], body["delta"]]
        before = self.spent.get(body["house"], [0, 0])
        need(now[0] >= before[0] and now[1] >= before[1], "a house has spent less than before")
        self.spent[body["house"]] = now

    def take_charge(self, body):
        """What everybody spent on models, once for each."""
        need(body["epsilon"] >= 0, "a charge below 0")
        need(body["digest"] not in self.charged, "the same thing is charged twice")
        self.charged.add(body["digest"])

    def take_gap(self, body):
        """Steps that may have been published and lost."""
        if self.gap is not None:  # it may be extended
            now, (first, last) = [body["first"], body["last"]], self.gap
            need(
                now[0] <= first and last <= now[1] and now != self.gap,
                "a second gap before the first is booked",
            )
        need(self.epoch, "a gap outside any epoch")
        need(self.epoch["first"] <= body["first"] <= body["last"], "a gap of no steps")
        need(body["why"] in ("witness", "meters", "failover", "fork"), "the cause is unknown")
        self.gap, self.t = [body["first"], body["last"]], max(self.t, body["last"])
        self.reach = max(self.reach, (body["last"] + 1) * self.epoch["seconds"])

    def take_resume(self, body):
        """What they may have cost; null has no epsilon of its own."""
        need(self.gap == [body["first"], body["last"]], "it books no open gap")
        need(body["epsilon"] is None or body["epsilon"] >= 0, "it books less than nothing")
        need(0 <= body["delta"] <= 1, "its delta is no probability")
        self.gap = None


def verify(lines, key=None, heads=()):
    """(good, one line of text)."""
    chains, n, missing = [], 0, set(heads)
    try:
        for line in lines:
            record = parse(line)
            if not chains or record["zone"] > chains[-1].zone:
                chains.append(Chain(record["zone"]))
            chains[-1].take(record, key)
            missing.discard(record["digest"])
            n += 1
        need(n, "there is no record")
        need(not missing, f"record {min(missing, default='')} is not in there: its end was cut")
    except BadRecordError as why:
        return False, f"bad: line {n + 1}: {why}"
    signed = "checked" if Ed25519PublicKey else "NOT checked (cryptography is not installed)"
    ends = "; ".join(f"{chain.zone} {chain.seq} {chain.head}" for chain in chains)
    return True, f"good: {n} records, signatures {signed}; {ends}"


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
