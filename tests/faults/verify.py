"""What was acknowledged and seen, against what the stores hold: python verify.py SEEN.json

Prints one JSON object; exit 1 where `problems` has any. It shares no code with the service: its own
SQL, hash chain, signatures and form of a delivery, from docs/ledger.md and docs/stores.md.
"""

import hashlib
import json
import shutil
import sqlite3
import struct
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def rows(place, query):
    """All rows of a query, of a server or of a copy of a file and its log."""
    if place.startswith("postgresql://"):
        import psycopg

        with psycopg.connect(place) as link:
            return link.execute(query).fetchall()
    with tempfile.TemporaryDirectory() as name:
        for end in ("", "-wal"):
            if Path(place + end).exists():
                shutil.copy(place + end, Path(name, "copy" + end))
        link = sqlite3.connect(Path(name, "copy"))
        try:
            assert link.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return link.execute(query).fetchall()
        finally:
            link.close()


def text(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def chains(place):
    """The records of each zone, every link and signature checked."""
    table = "hushgrid_ledger" if "://" in place else "records"
    found = {}
    columns = "zone, seq, kind, body, prev, digest, signature"
    for zone, seq, kind, body, prev, digest, signature in rows(
        place, f"SELECT {columns} FROM {table} ORDER BY zone, seq"
    ):
        chain = found.setdefault(zone, [])
        value = json.loads(body)
        key = value["key"] if not chain else chain[0]["body"]["key"]
        lines = ("hushgrid-ledger/1", text(zone), str(seq), kind, prev, text(value))
        whole = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
        assert digest == whole, f"{zone} {seq}: its digest is not that of its text"
        assert seq == len(chain) + 1, f"{zone} {seq}: a record is missing"
        assert prev == (chain[-1]["digest"] if chain else "0" * 64), f"{zone} {seq}: no chain"
        message = f"hushgrid-ledger/1 signature\n{digest}\n".encode()
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(
            bytes.fromhex(signature), message
        )
        chain.append({"seq": seq, "kind": kind, "digest": digest, "body": value})
    return found


def readings(place):
    """How often (zone, house, start, Wh) is stored."""
    found = Counter()
    for zone, data in rows(
        place,
        "SELECT z.zone, d.readings FROM hushgrid_meter_delivery d"
        " JOIN hushgrid_meter_zone z ON z.key = d.zone",
    ):
        data = bytes(data)
        assert zlib.crc32(data[8:]) == int.from_bytes(data[:8], "little"), "a damaged delivery"
        sizes, at, columns = struct.unpack_from("<4I", data, 8), 24, []
        for size, letter in zip(sizes, "qqii", strict=True):
            columns.append(struct.unpack_from(f"<{size}{letter}", data, at))
            at += struct.calcsize(f"<{size}{letter}")
        n = max(sizes)
        start, wh, house, _ = (one * n if len(one) == 1 else one for one in columns)
        found.update(zip([zone] * n, house, start, wh, strict=True))
    return found


def judge(seen):
    """(what is wrong, figures)."""
    problems, seconds = [], seen["seconds"]
    ledger, stored = chains(seen["ledger"]), readings(seen["meters"])
    acknowledged = {tuple(one) for one in seen["acknowledged"]}
    problems += [f"lost: {one}" for one in sorted(acknowledged) if not stored[one]]
    places = Counter()
    for one, times in stored.items():
        places[one[:3]] += times
    problems += [f"stored {n} times: {one}" for one, n in places.items() if n > 1]
    releases, gaps = 0, 0
    known = {(zone, r["digest"]): r for zone, chain in ledger.items() for r in chain}
    for zone, chain in ledger.items():
        made = [r["body"] for r in chain if r["kind"] == "release"]
        releases += len(made)
        gaps += sum(r["kind"] == "gap" for r in chain)
        steps = [one["t"] for one in made]
        if steps != sorted(set(steps)):
            problems.append(f"{zone}: a step is published twice, or out of order")
        problems += [f"{zone} {r['t']}: start" for r in made if r["start"] != r["t"] * seconds]
        there = {(z, start) for z, _, start, _ in acknowledged}
        problems += [
            f"{zone} {r['t']}: {r['source']} in place of acknowledged readings"
            for r in made
            if (zone, r["start"]) in there and r["source"] != "readings" and not gaps
        ]
        if seen["last"][zone] not in {one["t"] for one in made}:
            problems.append(f"{zone}: the status has step {seen['last'][zone]}, the ledger not")
    last = Counter()
    for way, zone, head, start, price in seen["shown"]:
        record = known.get((zone, head))
        if record is None or record["kind"] != "release":
            problems.append(f"{zone}: {way} had {head}, which the ledger lacks")
        elif (record["body"]["applies_start"], record["body"]["rate"]) != (start, price):
            problems.append(f"{zone}: {way} had another price than record {record['seq']}")
        elif record["seq"] < last[way, zone]:
            problems.append(f"{zone}: {way} went back to record {record['seq']}")
        else:
            last[way, zone] = record["seq"]
    figures = {
        "acknowledged": len(acknowledged),
        "stored": sum(stored.values()),
        "releases": releases,
        "shown": len(seen["shown"]),
        "gaps": gaps,
    }
    return problems, figures


def main():
    problems, figures = judge(json.loads(Path(sys.argv[1]).read_text()))
    sys.stdout.write(json.dumps({**figures, "problems": problems}) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
