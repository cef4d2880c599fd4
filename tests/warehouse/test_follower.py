"""The newest version read again and again: what a reader from nothing finds, and nothing remembered of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import import_files
from warehouse.errors import Unusable
from warehouse.paths import Paths
from warehouse.snapshot import Follower, Snapshot, read_snapshot


def publish(folder: Path, *names: str) -> None:
    """A version for each name."""
    for name in names:
        lines = folder.with_name("lines.txt")
        lines.write_text(f"{name}()\n")
        import_files([lines], folder)


def test_each_version_is_what_a_reader_from_nothing_finds(tmp_path: Path) -> None:
    """From before the first version over one and several at once, past a checkpoint; asked again nothing changes."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    follower = Follower(paths)
    assert follower.newest() == Snapshot()
    for number in range(12):
        publish(folder, f"one{number}")
        assert follower.newest() == follower.newest() == read_snapshot(paths)
    publish(folder, "a", "b", "c")
    assert follower.newest() == read_snapshot(paths)
    assert read_snapshot(paths).version == 15


@pytest.mark.parametrize("damage", [b"", b"{", b'{"commitInfo": 1'])
def test_a_bad_version_is_refused_and_forgotten(tmp_path: Path, damage: bytes) -> None:
    """An entry that lost its bytes is named; with its bytes back its rows are there."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "a", "b")
    follower = Follower(paths)
    follower.newest()
    publish(folder, "c")
    entry = paths.log_entry(3)
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    for _ in range(2):
        with pytest.raises(Unusable):
            follower.newest()
    entry.write_bytes(whole)
    assert follower.newest() == read_snapshot(paths)
    assert follower.newest().version == 3


def test_another_warehouse_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Its log is not taken for the continuation of the other's."""
    folder = tmp_path / "house"
    paths = Paths(folder)
    publish(folder, "a")
    follower = Follower(paths)
    follower.newest()
    folder.rename(tmp_path / "old")
    publish(folder, "x", "y", "z")
    assert follower.newest() == read_snapshot(paths)
    assert sum(follower.newest().count(collection) for collection in follower.newest().files) == 3
