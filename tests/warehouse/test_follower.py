"""The newest version read again and again: what a reader from nothing finds, and nothing remembered of a bad one."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.compact import compact
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.log import open_table
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import fold
from sigdir.warehouse.snapshot import (
    LogTailer,
    Snapshot,
    read_snapshot,
)
from tests.conftest import import_files
from tests.warehouse.support import stage


def publish(folder: Path, *names: str) -> None:
    """A version for each name."""
    for name in names:
        lines = folder.with_name("lines.txt")
        lines.write_text(f"{name}(address)\n")
        import_files([lines], folder)


def test_each_version_is_what_a_reader_from_nothing_finds(tmp_path: Path) -> None:
    """From before the first version over one and several at once, past a checkpoint; asked again nothing changes."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    follower = LogTailer(paths)
    assert follower.newest() == Snapshot()
    for number in range(12):
        publish(folder, f"one{number}")
        assert follower.newest() == follower.newest() == read_snapshot(paths)
    publish(folder, "a", "b", "c")
    assert follower.newest() == read_snapshot(paths)
    assert read_snapshot(paths).version == 15


def test_folds_merges_and_imports_are_followed_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each at once, and all of them in one step; files, ids, times and watermarks of both collections are the same."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "first")
    follower, late = LogTailer(paths), LogTailer(paths)
    late.newest()
    follower.newest()

    def opened(*_: object) -> None:
        raise AssertionError("the log was opened by the library")

    for number in range(13):
        publish(folder, f"event Moved{number}", f"moved{number}")
        for collection in COLLECTIONS:
            stage(paths, collection, f"posted{number}()")
        fold(paths)
        if number % 4 == 3:
            assert compact(paths)
        expected = read_snapshot(paths)
        with monkeypatch.context() as patch:
            patch.setattr("sigdir.warehouse.log.open_table", opened)
            assert follower.newest() == expected
    with monkeypatch.context() as patch:
        patch.setattr("sigdir.warehouse.log.open_table", opened)
        assert late.newest() == expected
    assert [len(expected.files[collection]) for collection in COLLECTIONS] == [3, 3]


def test_a_version_that_is_not_ours_is_read_by_the_library(tmp_path: Path) -> None:
    """One that only renames the table, behind it one of ours."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "a", "b")
    follower = LogTailer(paths)
    follower.newest()
    table = open_table(paths)
    assert table is not None
    table.alter.set_table_name("renamed")
    assert follower.newest() == read_snapshot(paths)
    publish(folder, "c")
    assert follower.newest() == read_snapshot(paths)
    assert follower.newest().count(SIGNATURES) == 3


@pytest.mark.parametrize("damage", [b"", b"{", b'{"commitInfo": 1', b"1", b'"add"'])
def test_a_bad_version_is_refused_and_forgotten(tmp_path: Path, damage: bytes) -> None:
    """An entry that lost its bytes is named; with its bytes back its rows are there."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "a", "b")
    follower = LogTailer(paths)
    follower.newest()
    publish(folder, "c")
    entry = paths.log_entry(3)
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    for _ in range(2):
        with pytest.raises(UnreadableWarehouse):
            follower.newest()
    entry.write_bytes(whole)
    assert follower.newest() == read_snapshot(paths)
    assert follower.newest().version == 3


def test_another_warehouse_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Its log is not taken for the continuation of the other's."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "a")
    follower = LogTailer(paths)
    follower.newest()
    folder.rename(tmp_path / "old")
    publish(folder, "x", "y", "z")
    assert follower.newest() == read_snapshot(paths)
    assert sum(follower.newest().count(collection) for collection in follower.newest().files) == 3


def test_an_entry_cut_anywhere_is_to_a_follower_what_it_is_to_the_library(tmp_path: Path) -> None:
    """A version, the same one, or refused in the same words."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "a")
    stage(paths, SIGNATURES, "posted()")
    before = LogTailer(paths)
    before.newest()
    fold(paths)
    entry = paths.log_entry(2)
    whole = entry.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    found = []
    for cut in sorted({*range(0, len(whole), 37), *ends, *(end - 1 for end in ends)}):
        entry.write_bytes(whole[:cut])
        follower = copy(before)
        found.append(_what(follower.newest))
        assert found[-1] == _what(lambda: read_snapshot(paths)), cut
    assert any(isinstance(one, Snapshot) for one in found)
    assert any(isinstance(one, str) for one in found)


def _what(read: Callable[[], Snapshot]) -> Snapshot | str:
    try:
        return read()
    except UnreadableWarehouse as error:
        return str(error)
