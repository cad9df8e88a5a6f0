"""A broker with logins and certificates."""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.web.brokers import Broker, free_port

ROOT = Path(__file__).parent.parent


DEPLOY = ROOT / "deploy"


class Secured(Broker):
    """mosquitto.conf with the paths and ports of a test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tool = shutil.which("mosquitto_passwd")
        if tool is None:
            pytest.skip("mosquitto_passwd is not installed")
        certify(folder)
        words = folder / "passwords"
        words.touch(0o600)
        for user in ("hushgrid", "meters-north"):
            subprocess.run([tool, "-b", words, user, f"secret of {user}"], check=True)
        self.secure, self.public = free_port(), free_port()
        for name in ("mosquitto.acl", "mosquitto-public.acl"):
            acl = folder / name
            acl.write_text((DEPLOY / name).read_text())
            acl.chmod(0o600)
        told = (DEPLOY / "mosquitto.conf").read_text()
        for old, new in {
            "listener 1883": f"listener {self.port} 127.0.0.1",
            "listener 8883": f"listener {self.secure} 127.0.0.1",
            "listener 8884": f"listener {self.public} 127.0.0.1",
            "/run/secrets/tls_certificate": str(folder / "tls.crt"),
            "/run/secrets/tls_key": str(folder / "tls.key"),
            "/run/secrets/mosquitto_passwords": str(words),
            "/mosquitto/config/": f"{folder}/",
            "/mosquitto/data/": f"{folder}/",
        }.items():
            assert old in told, old
            told = told.replace(old, new)
        self._file.write_text(f"user root\n{told}")


def certify(folder: Path) -> None:
    """A certificate of our own for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
