"""Disks that tests fill up and break; they need root, and are skipped without."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _ran(*command: object) -> bool:
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    """A disk in memory that is soon full."""
    folder.mkdir()
    if not _ran("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder):
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left; remove the file to give it back."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while stream.write(b"\0" * 4096) == 4096:
                pass
        except OSError:
            pass
    return filler


class FailingDisk:
    """A file system that turns read-only under those who write, as Linux does after an error."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._image = folder, folder.with_name(f"{folder.name}.img")
        folder.mkdir()
        with self._image.open("wb") as stream:
            stream.truncate(8 << 20)
        if not (_ran("mkfs.ext4", "-q", "-F", self._image) and self._mounted()):
            pytest.skip("mounting an image of a disk needs root and loop devices")

    def _mounted(self) -> bool:
        return _ran("mount", "-o", "loop", self._image, self.folder)

    def fails(self) -> None:
        """Read-only from now on, whatever is open."""
        assert _ran("mount", "-o", "remount,abort", self.folder)

    def mended(self) -> None:
        """A copy, checked, in its place; whoever still holds files of the old one can only read."""
        self.gone()
        self._image = Path(shutil.copy(self._image, f"{self._image}.copy"))
        _ran("e2fsck", "-p", self._image)
        assert self._mounted()

    def gone(self) -> None:
        """Take it away."""
        assert _ran("umount", "-l", self.folder)


@contextmanager
def failing_disk(folder: Path) -> Iterator[FailingDisk]:
    """A disk of one's own that can fail and be mended."""
    disk = FailingDisk(folder)
    try:
        yield disk
    finally:
        disk.gone()
