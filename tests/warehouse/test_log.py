"""The log tailer finds what a new reader finds, and remembers nothing of an entry that it could not read."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.jobs.compact import compact
from sigdir.warehouse.log.snapshot import LogTailer, Snapshot, read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files
from tests.warehouse.support import stage


def publish(folder: Path, *names: str) -> None:
    """A version for each name."""
    for name in names:
        lines = folder.with_name("lines.txt")
        lines.write_text(f"{name}(address)\n")
        import_files([lines], folder)


def test_each_version_is_what_a_new_reader_finds(tmp_path: Path) -> None:
    """From an empty folder on, one version at a time and all of them in one step; reading again changes nothing.

    Of folds, merges and imports: files, ids, times and watermarks of both collections are the same.
    """
    folder = tmp_path / "warehouse"
    paths = Paths(folder)
    tailer, late = LogTailer(paths), LogTailer(paths)
    assert tailer.newest() == late.newest() == Snapshot()
    for number in range(6):
        publish(folder, f"event Moved{number}", f"moved{number}")
        assert tailer.newest() == tailer.newest() == read_snapshot(paths)
        for collection in COLLECTIONS:
            stage(paths, collection, f"posted{number}()")
        fold(paths)
        if number % 3 == 2:
            assert compact(paths)
        expected = read_snapshot(paths)
        assert tailer.newest() == expected
    assert late.newest() == expected
    assert expected.version == 20
    assert [len(expected.files[collection]) for collection in COLLECTIONS] == [1, 1]


def test_a_version_that_is_not_ours_is_read(tmp_path: Path) -> None:
    """A version that only renames the table, then one of ours."""
    folder = tmp_path / "warehouse"
    paths = Paths(folder)
    publish(folder, "a", "b")
    tailer = LogTailer(paths)
    tailer.newest()
    DeltaTable(paths.table).alter.set_table_name("renamed")
    assert tailer.newest() == read_snapshot(paths)
    publish(folder, "c")
    assert tailer.newest() == read_snapshot(paths)
    assert tailer.newest().count(SIGNATURES) == 3


def test_a_bad_version_is_refused_and_forgotten(tmp_path: Path) -> None:
    """An entry that lost its bytes is an error; once its bytes are back its rows are there."""
    folder = tmp_path / "warehouse"
    paths = Paths(folder)
    publish(folder, "a", "b")
    tailer = LogTailer(paths)
    tailer.newest()
    publish(folder, "c")
    entry = paths.log_entry(3)
    whole = entry.read_bytes()
    for damage in (b"", b"{", b'{"commitInfo": 1', b"1", b'"add"'):
        entry.write_bytes(damage)
        for _ in range(2):
            with pytest.raises(UnreadableWarehouse):
                tailer.newest()
    entry.write_bytes(whole)
    assert tailer.newest() == read_snapshot(paths)
    assert tailer.newest().version == 3


def test_another_warehouse_in_its_place_is_read_from_its_first_version(tmp_path: Path) -> None:
    """Its log is not read as the continuation of the other one."""
    folder = tmp_path / "warehouse"
    paths = Paths(folder)
    publish(folder, "a")
    tailer = LogTailer(paths)
    tailer.newest()
    folder.rename(tmp_path / "old")
    publish(folder, "x", "y", "z")
    assert tailer.newest() == read_snapshot(paths)
    assert sum(tailer.newest().count(collection) for collection in tailer.newest().files) == 3


def test_a_truncated_entry_is_refused(tmp_path: Path) -> None:
    """Wherever the entry ends, the tailer and a new reader name it."""
    folder = tmp_path / "warehouse"
    paths = Paths(folder)
    publish(folder, "a")
    stage(paths, SIGNATURES, "posted()")
    before = LogTailer(paths)
    before.newest()
    fold(paths)
    entry = paths.log_entry(2)
    whole = entry.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for cut in sorted({*range(0, len(whole), 37), *ends, *(end - 1 for end in ends)}):
        if whole[:cut] == whole:
            continue
        entry.write_bytes(whole[:cut])
        for read in (copy(before).newest, lambda: read_snapshot(paths)):
            with pytest.raises(UnreadableWarehouse, match=f"{entry.name}.*put this file back from a backup"):
                read()
