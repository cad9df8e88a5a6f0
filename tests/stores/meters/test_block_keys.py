"""The keys of blocks: the same for all curators, and never again once they are erased."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.stores.meters import block_keys
from hushgrid.stores.meters.block_keys import BITS, BlockKeys, Node, seal, split, unseal

ROOT = Node(0, 0, bytes(range(32)))
TIMES = st.integers(0, (1 << BITS) - 1)


def key_of(node: Node, leaf: int) -> bytes:
    """Down the tree by the bits of the leaf."""
    for bit in f"{leaf:0{BITS}b}":
        node = node.children[int(bit)]
    return node.key


@given(st.lists(TIMES, min_size=1, max_size=5), TIMES)
def test_what_is_left_of_a_tree_gives_the_later_keys_alone(cuts: list[int], leaf: int) -> None:
    nodes = [ROOT]
    for cut in cuts:
        nodes = split(nodes, cut)[1]
    assert all(node.span[0] >= max(cuts) for node in nodes), "no node above an earlier leaf"
    assert len(nodes) <= BITS + 1
    _, key = block_keys.without_leaf(nodes, leaf)
    assert key == (key_of(ROOT, leaf) if leaf >= max(cuts) else None)


def test_curators_derive_the_same_keys_whenever_they_need_them(tmp_path: Path) -> None:
    one, two = BlockKeys(tmp_path / "one"), BlockKeys(tmp_path / "two")
    one.make()
    shutil.copytree(one.folder, two.folder)
    mine = [one.at("elm", start) for start in (900, 1800)]
    one.erase("elm", 1800)
    one.at("oak", 900)  # a zone that is new there
    assert [one.at("elm", start) for start in (900, 1800)] == [None, mine[1]]
    assert [two.at("elm", start) for start in (900, 1800)] == mine
    assert two.at("oak", 2700) == one.at("oak", 2700) != two.at("elm", 2700)
    assert len(set(mine)) == 2


def test_no_file_has_an_erased_key_or_a_node_above_it(tmp_path: Path) -> None:
    keys = BlockKeys(tmp_path)
    keys.at("elm", 900)
    (first,) = [node for node in block_keys._read(tmp_path / "first") if node.depth == 1]
    (zone,) = block_keys._read(keys._file("elm"))
    keys.erase("elm", 1 << 30)
    left = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert zone.key.hex().encode() not in left
    assert first.key.hex().encode() in left, "the search finds what is there"
    assert keys.at("elm", (1 << 30) - 1) is None
    assert all(one.stat().st_mode & 0o077 == 0 for one in keys.files())


class Kill(BaseException):
    """The end of the process."""


@pytest.mark.parametrize("act", [*range(40)])
def test_a_kill_at_any_step_loses_no_later_key(
    act: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call to the disk in turn is the last; what comes after finds the old keys or the new."""
    shown, keys = BlockKeys(tmp_path / "shown"), BlockKeys(tmp_path / "keys")
    shown.make()
    shutil.copytree(shown.folder, keys.folder)
    left, real = [act], {name: getattr(os, name) for name in ("open", "fsync", "link", "unlink")}
    real |= {"replace": Path.replace, "Path.unlink": Path.unlink}

    def counted(name: str) -> Callable[..., Any]:
        def call(*values: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Kill
            return real[name](*values, **more)

        return call

    with monkeypatch.context() as patched:
        for name in ("open", "fsync", "link"):
            patched.setattr(os, name, counted(name))
        patched.setattr(Path, "replace", counted("replace"))
        patched.setattr(Path, "unlink", counted("Path.unlink"))
        try:
            keys.at("elm", 900)
            keys.erase("elm", 900)
            keys.erase("elm", 1800)
            keys.erase("elm", 2700)
        except Kill:
            pass
        else:
            assert act > 30, "there are more steps than that"
    again = BlockKeys(keys.folder)
    assert again.at("elm", 2700) == shown.at("elm", 2700) is not None
    again.erase("elm", 2700)
    assert again.at("elm", 1800) is None
    assert again.at("oak", 900) == shown.at("oak", 900)
    names = {one.name for one in keys.folder.iterdir()}
    assert not any(name.endswith((".new", ".old")) for name in names)


@pytest.mark.parametrize("damage", ["absent", "cut", "folder"])
def test_a_key_that_cannot_be_had_is_not_replaced(damage: str, tmp_path: Path) -> None:
    keys = BlockKeys(tmp_path / "keys")
    keys.at("elm", 900)
    keys.erase("elm", 900)
    file = keys._file("elm")
    if damage == "absent":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    else:
        shutil.rmtree(keys.folder)
        keys.folder.write_text("no folder")
    again = BlockKeys(tmp_path / "keys")
    assert again.at("elm", 900) is None
    again.erase("elm", 1800)
    assert again.at("elm", 1800) is None


def test_a_size_is_opened_by_its_own_key_for_its_own_block_alone() -> None:
    one, two = bytes(32), bytes([1] * 32)
    sealed = seal(one, 12345, "elm 1")
    assert unseal(one, sealed, "elm 1") == 12345
    assert unseal(one, sealed, "elm 2") is unseal(two, sealed, "elm 1") is None
    assert unseal(one, sealed[:-1], "elm 1") is unseal(one, b"", "elm 1") is None
    assert len(seal(one, 0, "elm 1")) == len(sealed) == len(seal(one, 1 << 100, "elm 1"))
