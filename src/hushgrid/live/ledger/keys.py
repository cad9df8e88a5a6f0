"""Keys that sign records: Ed25519, in a file that only its owner may read."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hushgrid.checks import is_hex
from hushgrid.errors import ExtraError, LedgerError
from hushgrid.files import sync_folder
from hushgrid.live.ledger.record import signed_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    raise ExtraError(
        "cryptography is not installed; get it with pip install 'hushgrid[serve]'."
    ) from None


class Key:
    """A private key; what prints of it is its public half."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw().hex()

    def __repr__(self) -> str:
        return f"Key(public={self.public})"

    def sign(self, digest: str) -> str:
        """The signature (hex) of a record's digest."""
        return self._private.sign(signed_text(digest)).hex()

    def derive(self, purpose: str) -> bytes:
        """A secret key (32 bytes) for something else, the same each time; tells nothing of ours."""
        text = f"hushgrid/1 derived\n{purpose}\n".encode()
        return hmac.digest(self._private.private_bytes_raw(), text, "sha256")


def create(path: Path | str) -> Key:
    """A new key in a new file of mode 0600; durable on return."""
    path = Path(path)
    private = ed25519.Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as stream:
            os.fchmod(stream.fileno(), 0o600)  # whatever the umask
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(path.parent)
    except FileExistsError:
        raise LedgerError(
            f"key file {path} exists; a key is never overwritten, give another name."
        ) from None
    except OSError as error:
        raise LedgerError(
            f"key file {path} cannot be written ({error.strerror}); give a writable place."
        ) from None
    return Key(private)


def load(path: Path | str) -> Key:
    """The key in a file that nobody but its owner may read or write."""
    try:
        with Path(path).open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode & 0o777
            if mode & 0o077:
                raise LedgerError(
                    f"key file {path} has mode {mode:04o}; make it its owner's alone with"
                    f" chmod 600 {path}."
                )
            text = stream.read(10_000)
    except OSError as error:
        raise LedgerError(
            f"key file {path} cannot be read ({error.strerror}); give the file of the key."
        ) from None
    try:
        private = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError):
        private = None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise LedgerError(f"key file {path} holds no Ed25519 key in PEM; give the file of the key.")
    return Key(private)


def verify(public: str, digest: str, signature: str) -> bool:
    """Whether the signature of a digest is of the public key; all in hex."""
    if not (is_hex(public, 64) and is_hex(signature, 128)):
        return False
    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), signed_text(digest))
    except (InvalidSignature, ValueError):
        return False
    return True
