"""Keys that seal the size M of a block's noise: outside the database, and erased with the block.

    keys = BlockKeys(Path("/var/lib/hushgrid/block-keys"))
    key = keys.at("elm-street", start)  # of the block that begins then; None: erased, or not there
    keys.erase("elm-street", before=start)

The keys of a zone are the leaves of a binary tree over the seconds since 1970. A node gives its two
children by HKDF, and nothing can be said of a node from its children. A zone's file has the nodes
above all seconds from the start of its open block on, and none above an earlier one. The file
`first` has, in the same way, the nodes above all zones that have no file yet. So curators with
copies of one `first` derive the same keys, whenever each of them needs one, and what is erased on
all of them cannot be derived again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hushgrid.files.results import sync_folder

log = logging.getLogger("hushgrid.meters")

BITS = 40  # depth of a tree: seconds since 1970, or the first bits of a zone's digest
FIRST = "first"  # the file of the zones to come
_FORMAT, _PURPOSE = "hushgrid-block-keys/1", b"hushgrid block keys"
_NONCE, _SIZE = 12, 16  # [bytes]


class Node(NamedTuple):
    """A node of a tree of keys.

    Attributes:
        depth: 0 is the root.
        place: At that depth, from 0 on the left.
        key: 32 bytes.
    """

    depth: int
    place: int
    key: bytes

    @property
    def span(self) -> tuple[int, int]:
        """The first leaf below it, and the one after the last."""
        width = 1 << (BITS - self.depth)
        return self.place * width, (self.place + 1) * width

    @property
    def children(self) -> list[Node]:
        """The two nodes below it."""
        keys = HKDF(SHA256(), 64, salt=None, info=_PURPOSE).derive(self.key)
        depth, index = self.depth + 1, 2 * self.place
        return [Node(depth, index, keys[:32]), Node(depth, index + 1, keys[32:])]


def split(nodes: Sequence[Node], leaf: int) -> tuple[list[Node], list[Node]]:
    """Divide a tree.

    Args:
        nodes: What is there of it.
        leaf: A leaf.

    Returns:
        The nodes above the leaves before it, and those above it and the leaves after it.
    """
    before, after, stack = list[Node](), list[Node](), list(nodes)
    while stack:
        node = stack.pop()
        first, end = node.span
        if end <= leaf:
            before.append(node)
        elif first >= leaf:
            after.append(node)
        else:
            stack += node.children
    return sorted(before), sorted(after)


def without_leaf(nodes: Sequence[Node], leaf: int) -> tuple[list[Node], bytes | None]:
    """Take a leaf out of a tree.

    Args:
        nodes: What is there of it.
        leaf: The leaf.

    Returns:
        What is left, and the leaf's key; None where it is not there.
    """
    before, after = split(nodes, leaf)
    alone, after = split(after, leaf + 1)
    return before + after, alone[0].key if alone else None


def seal(key: bytes, size: int, about: str) -> bytes:
    """Encrypt the size M of a block's noise; all have the same length.

    Args:
        key: The block's key.
        size: M.
        about: What it belongs to; `unseal` needs the same.

    Returns:
        The bytes to store.
    """
    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, size.to_bytes(_SIZE, "big"), about.encode())


def unseal(key: bytes, sealed: bytes, about: str) -> int | None:
    """Decrypt the size M of a block's noise.

    Args:
        key: The block's key.
        sealed: What `seal` returned.
        about: What it belongs to.

    Returns:
        M; None where key, bytes or `about` are others.
    """
    try:
        plain = AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], about.encode())
    except (InvalidTag, ValueError):
        return None
    return int.from_bytes(plain, "big")


class BlockKeys:
    """The keys of a service's blocks, in a folder. Safe for threads and processes.

    A key that cannot be had is never replaced: its block is lost. A folder without any key gets a
    new first one.

    Args:
        folder: The folder; made with mode 0700 when it is first needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._mutex = folder, threading.Lock()
        self._apart: set[str] = set()  # zones that `first` no longer has

    def make(self) -> Path:
        """Make the first key, unless the folder has keys.

        Returns:
            Its file.

        Raises:
            OSError: It cannot be written.
        """
        with self._held():
            return self._make()

    def at(self, zone: str, start: int) -> bytes | None:
        """The key of a zone's block.

        Args:
            zone: The zone.
            start: When the block begins [UTC s].

        Returns:
            The key; None where it is erased, or its file absent or damaged, which is logged.
        """
        try:
            with self._held():
                _, key = without_leaf(self._nodes(zone), start)
        except (OSError, ValueError) as error:
            fields = {"zone": zone, "error": type(error).__name__}
            log.error("block key cannot be read", extra=fields)
            return None
        return key

    def erase(self, zone: str, before: int) -> None:
        """Erase the keys of blocks that began earlier; a failure is logged.

        Args:
            zone: The zone; nothing is done where no key of it was ever used here.
            before: [UTC s]
        """
        file = self._file(zone)
        if not file.exists():
            return
        try:
            with self._held():
                old, nodes = split(self._nodes(zone), before)
                if old:
                    _replace(file, nodes)
        except (OSError, ValueError) as error:
            fields = {"zone": zone, "error": type(error).__name__}
            log.error("block keys not erased", extra=fields)

    def follow(self, zone: str, start: int) -> None:
        """Erase the keys of blocks before one that another curator has begun.

        Args:
            zone: The zone.
            start: When that block began [UTC s].
        """
        if self.at(zone, start) is not None:
            self.erase(zone, start)

    def files(self) -> list[Path]:
        """The folder and all files in it that hold keys."""
        return [self.folder, *sorted(self.folder.iterdir())] if self.folder.is_dir() else []

    def unfinished(self) -> list[Path]:
        """Files that a replacement makes for a moment; they may hold keys that are erased."""
        return [path for path in self.files() if path.suffix in (".new", ".old")]

    def finish(self) -> None:
        """End what killed processes left of replacements.

        Raises:
            OSError: A file cannot be written.
        """
        with self._held():
            for path in self.unfinished():
                _finish(path.with_suffix(""))

    def _file(self, zone: str) -> Path:
        return self.folder / hashlib.sha256(zone.encode()).hexdigest()[:16]

    @contextmanager
    def _held(self) -> Iterator[None]:
        """One thread of one process at a time."""
        with self._mutex:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _make(self) -> Path:
        first = self.folder / FIRST
        if {entry.name for entry in self.folder.iterdir()} <= {"lock", f"{FIRST}.new"}:
            _replace(first, [Node(0, 0, secrets.token_bytes(32))])
            log.info("first block key made")
        return first

    def _nodes(self, zone: str) -> list[Node]:
        """A zone's nodes, taken from the first file when they are first needed."""
        file, first = self._file(zone), self._make()
        if zone not in self._apart and (first.exists() or not file.exists()):
            # once: a kill may have left the zone in both
            place = int.from_bytes(hashlib.sha256(zone.encode()).digest()[: BITS // 8], "big")
            nodes, root = without_leaf(_read(first), place)
            if root is not None:
                if not file.exists():
                    _replace(file, [Node(0, 0, root)])
                _replace(first, nodes)
            self._apart.add(zone)
        return _read(file)


def _read(file: Path) -> list[Node]:
    """The nodes of a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    _finish(file)
    try:
        content = json.loads(file.read_bytes())
        nodes = [Node(depth, index, bytes.fromhex(key)) for depth, index, key in content["nodes"]]
        if content["format"] != _FORMAT:
            raise ValueError(content["format"])
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
    return nodes


def _replace(file: Path, nodes: Sequence[Node]) -> None:
    """Write a file of nodes as a whole, durably, then overwrite the bytes of the one before."""
    _finish(file)
    rows = [[node.depth, node.place, node.key.hex()] for node in nodes]
    new, old = file.with_name(f"{file.name}.new"), file.with_name(f"{file.name}.old")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        json.dump({"format": _FORMAT, "nodes": rows}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    if file.exists():
        os.link(file, old)
    new.replace(file)
    sync_folder(file.parent)
    _finish(file)


def _finish(file: Path) -> None:
    """End what a killed process left of a replacement."""
    new, old = file.with_name(f"{file.name}.new"), file.with_name(f"{file.name}.old")
    for leftover in (new, old):
        if not leftover.exists():
            continue
        if not (file.exists() and leftover.samefile(file)):
            with leftover.open("r+b", buffering=0) as stream:
                stream.write(bytes(os.fstat(stream.fileno()).st_size))
                os.fsync(stream.fileno())
        leftover.unlink()
        sync_folder(file.parent)
