"""The log tailer finds what a new reader finds, and remembers nothing of an entry that it could not read."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.jobs.compact import compact, everything
from sigdir.warehouse.log.snapshot import LogTailer, Snapshot, read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.warehouse.support import stage


def publish(paths: Paths, *names: str) -> None:
    """A version for each name."""
    for name in names:
        import_lines(paths.root, f"{name}(address)")


def test_each_version_is_what_a_new_reader_finds(paths: Paths) -> None:
    """From an empty folder on, one version at a time and all of them in one step; reading again changes nothing.

    Of folds, merges and imports: files, ids, times and watermarks of both collections are the same.
    """
    tailer, late = LogTailer(paths), LogTailer(paths)
    assert tailer.newest() == late.newest() == Snapshot()
    for number in range(3):
        publish(paths, f"event Moved{number}", f"moved{number}")
        assert tailer.newest() == tailer.newest() == read_snapshot(paths)
        for collection in COLLECTIONS:
            stage(paths, collection, f"posted{number}()")
        fold(paths)
        if number == 1:
            assert compact(paths, everything)
        expected = read_snapshot(paths)
        assert tailer.newest() == expected
    assert late.newest() == expected
    assert expected.version == 10
    DeltaTable(paths.table).alter.set_table_name("renamed")  # a version that is not ours, and one of ours
    assert tailer.newest() == read_snapshot(paths)
    publish(paths, "last")
    assert tailer.newest() == read_snapshot(paths)
    assert (tailer.newest().version, tailer.newest().count(SIGNATURES)) == (12, expected.count(SIGNATURES) + 1)


def test_another_warehouse_in_its_place_is_read_from_its_first_version(paths: Paths, tmp_path: Path) -> None:
    """Its log is not read as the continuation of the other one."""
    publish(paths, "a")
    tailer = LogTailer(paths)
    tailer.newest()
    paths.root.rename(tmp_path / "old")
    publish(paths, "x", "y", "z")
    assert tailer.newest() == read_snapshot(paths)
    assert tailer.newest().count(SIGNATURES) == 3


def test_a_damaged_entry_is_refused_and_forgotten(paths: Paths) -> None:
    """Wherever it ends, the tailer and a new reader name it; once its bytes are back its rows are there."""
    publish(paths, "a")
    stage(paths, SIGNATURES, "posted()")
    before = LogTailer(paths)
    before.newest()
    fold(paths)
    entry = paths.log_entry(2)
    whole = entry.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole[:-1]) if byte == ord("\n")]
    cuts = sorted({*range(0, len(whole), 37), *ends, *(end - 1 for end in ends)})
    for damaged in (*(whole[:cut] for cut in cuts), b"{", b"1", b'"add"'):
        entry.write_bytes(damaged)
        tailer = copy(before)
        for read in (tailer.newest, tailer.newest, lambda: read_snapshot(paths)):
            with pytest.raises(UnreadableWarehouse, match=f"{entry.name}.*put this file back from a backup"):
                read()
    entry.write_bytes(whole)
    assert tailer.newest() == before.newest() == read_snapshot(paths)
    assert tailer.newest().version == 2
