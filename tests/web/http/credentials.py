"""Secrets of clients and their hashes."""

from __future__ import annotations

from hushgrid.stores.clients import hash_secret

KEY = b"k" * 32


SECRET = "a secret that is long enough"


KEPT = hash_secret(SECRET)  # once: it takes a while on purpose


HOSTILE = [
    "'; DROP TABLE clients; --", "x' OR '1'='1", 'x" OR ""="', "%s %(a)s ?1 :a", "a\0b", "\ud800",
    "\r\nSet-Cookie: a=b", "../../etc/passwd", "ｆｕｌｌ", "", " ", "a" * 5000,
]  # fmt: skip
