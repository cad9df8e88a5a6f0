"""Callbacks and the names they go to."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hushgrid.web.openadr import webhooks as module
from hushgrid.web.openadr.webhooks import Callback, Note, Webhooks


def callback(number: int, url: str, **more: Any) -> Callback:
    own: dict[str, Any] = {
        "key": (f"s{number}", 0), "client": "c", "program": None, "objects": frozenset({"EVENT"}),
        "operations": frozenset({"CREATE"}), "url": url, "bearer": None,
    }  # fmt: skip
    return Callback(**(own | more))


NOTE = Note("EVENT", "CREATE", "elm-street", None, b'{"n": 1}')


class Sending:
    """A sender to some callbacks, with what it counted."""

    def __init__(self, *callbacks: Callback, **more: Any) -> None:
        self.callbacks, self.counted = list(callbacks), []
        self.webhooks = Webhooks(
            lambda: self.callbacks,
            counted=self.counted.append,
            **({"private": True, "pause": 0.01, "patience": 5.0} | more),
        )

    counted: list[str]

    def __enter__(self) -> Sending:
        self.webhooks.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.webhooks.stop()


def names(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Name servers that give these addresses, one list after the other; who was asked for."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, 1, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(module.socket, "getaddrinfo", getaddrinfo)
    return asked


def certificate(folder: Path, name: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
