"""The log: the tailer finds what a new reader finds; entries and checkpoints hold digests, and staging the newest entry's."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from contextlib import closing
from copy import copy
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.log.entry import FIELD, read_entries, read_entry
from sigdir.warehouse.log.snapshot import LogTailer, Snapshot, advance, read_snapshot, read_state
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.staging.transaction import NotedEntry
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import flip, fold, log_actions, publish, remove_digests, stage


def with_versions(paths: Paths, number: int, first: int = 0) -> Paths:
    """A warehouse whose imports have one text each: f0(), f1() and so on."""
    for version in range(first, number):
        publish(paths, [f"f{version}()"])
    return paths


def test_each_version_is_what_a_new_reader_finds(paths: Paths) -> None:
    """After folds, merges, imports and foreign commits, one version at a time and all in one step."""
    tailer, late = LogTailer(paths), LogTailer(paths)
    assert tailer.newest() == late.newest() == Snapshot()
    for number in range(2):
        publish(paths, [f"moved{number}()"], [f"Moved{number}()"])
        assert tailer.newest() == tailer.newest() == read_snapshot(paths)
        for collection in COLLECTIONS:
            stage(paths, collection, f"posted{number}()")
        fold(paths)
        if number == 1:
            assert compact(paths, everything)
        expected = read_snapshot(paths)
        assert tailer.newest() == expected
    assert late.newest() == expected
    assert expected.version == 5
    DeltaTable(paths.table).alter.set_table_name("renamed")  # a version that is not ours, and one of ours
    assert tailer.newest() == read_snapshot(paths)
    publish(paths, ["last()"])
    assert tailer.newest() == read_snapshot(paths)
    assert (tailer.newest().version, tailer.newest().count(SIGNATURES)) == (7, expected.count(SIGNATURES) + 1)


def test_another_warehouse_in_its_place_is_read_from_its_first_version(paths: Paths, tmp_path: Path) -> None:
    """Its log is not read as the continuation of the other one."""
    publish(paths, ["a()"])
    tailer = LogTailer(paths)
    tailer.newest()
    paths.root.rename(tmp_path / "old")
    with_versions(paths, 2)
    assert tailer.newest() == read_snapshot(paths)
    assert tailer.newest().count(SIGNATURES) == 2


def test_a_damaged_entry_is_refused_and_forgotten(paths: Paths) -> None:
    """Wherever it ends, the tailer and a new reader name it; once its bytes are back its rows are there."""
    publish(paths, ["a()"])
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


def test_a_closed_entry_is_not_called_damaged(paths: Paths) -> None:
    """Another user wrote it: no backup helps."""
    publish(paths, ["a()"])
    paths.log_entry(1).chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(
            UnreadableWarehouse, match="Permission denied: this user may not read it; run every command"
        ):
            read_entry(paths, 1)
    finally:
        os.seteuid(user)


# Digests.


@pytest.fixture
def checkpointed(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A warehouse with a checkpoint at version 4."""
    monkeypatch.setattr("sigdir.warehouse.log.snapshot.CHECKPOINT_VERSIONS", 4)
    return with_versions(paths, 4)


def assert_refused(paths: Paths, file: Path, remedy: str) -> None:
    """Assert that a new reader refuses in one line that names the file and the remedy."""
    with pytest.raises(UnreadableWarehouse, match=f"{re.escape(str(file))}.*{remedy}") as caught:
        read_snapshot(paths)
    assert "\n" not in str(caught.value)


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def test_any_flipped_byte_of_an_entry_is_noticed(paths: Paths) -> None:
    """Flip a bit in every 13th byte: new readers and the history raise, and name the entry."""
    with_versions(paths, 2)
    for version, entry in enumerate(sorted(paths.log.glob("*.json"))):
        whole = entry.read_bytes()
        for at in range(version, len(whole), 13):
            flip(entry, at, at % 8)
            assert_refused(paths, entry, "put this file back from a backup")
            with pytest.raises(UnreadableWarehouse, match=re.escape(str(entry))):
                list(read_entries(paths, 2))
            entry.write_bytes(whole)
    assert (version, read_snapshot(paths).count(SIGNATURES)) == (2, 2)


def test_an_entry_without_digests_is_damaged(paths: Paths) -> None:
    """Also the newest one, which staging has not noted. In another program's entry, statistics that are null are damage."""
    with_versions(paths, 2)
    state = read_state(paths, 1)
    with closing(sqlite3.connect(paths.staging)) as connection, connection:
        connection.execute("UPDATE about SET version = -1")
    for version, entry in enumerate(sorted(paths.log.glob("*.json"))):
        whole, actions = entry.read_bytes(), log_actions(paths, version)
        for action in actions:
            action.get("commitInfo", {}).pop(FIELD, None)
        entry.write_text("\n".join(map(json.dumps, actions)))
        assert_refused(paths, entry, "it has no digest; put this file back from a backup")
        entry.write_bytes(whole)
    remove_digests(paths)
    theirs = paths.log_entry(2).read_text()
    for field in ("numRecords", "id", "created_at"):
        text = re.sub(rf'(\\"{field}\\": )[^,}}]+', r"\1null", theirs)
        assert "null" in text
        paths.log_entry(2).write_text(text)
        for read in (partial(read_snapshot, paths), partial(advance, paths, state)):
            with pytest.raises(UnreadableWarehouse, match=re.escape(str(paths.root))):
                read()


def test_a_publisher_that_died_before_it_noted_its_entry_is_made_up_for(paths: Paths) -> None:
    """The next publisher notes it; until then the entry's own digest guards it."""
    with_versions(paths, 2)
    with closing(sqlite3.connect(paths.staging)) as connection, connection:
        connection.execute("UPDATE about SET version = 1, entry = ?", (sha256(paths.log_entry(1).read_bytes()),))
    flip(paths.log_entry(2), 300)
    assert_refused(paths, paths.log_entry(2), "put this file back from a backup")
    flip(paths.log_entry(2), 300)
    with Publisher(paths):
        pass
    with closing(Staging(paths.staging)) as staging, staging.reading() as transaction:
        assert transaction.newest_entry() == NotedEntry(2, sha256(paths.log_entry(2).read_bytes()))


@pytest.mark.parametrize("rows", [4, 5], ids=["of the newest version", "of an older version"])
def test_a_damaged_checkpoint_is_noticed_and_can_be_removed(checkpointed: Paths, rows: int) -> None:
    """It has a digest of its bytes. Without the checkpoint the entries are read."""
    with_versions(checkpointed, rows, first=4)
    file = checkpointed.checkpoint(4)
    raw = file.read_bytes()
    name = range(raw.index(FIELD.encode()), raw.index(FIELD.encode()) + len(FIELD))
    for at in range(0, len(raw), 97):
        if at not in name:  # where the digest has another name the file counts as another program's
            flip(file, at)
            assert_refused(checkpointed, file, "remove this file and _last_checkpoint")
            flip(file, at)
    file.unlink()
    checkpointed.last_checkpoint.unlink()
    assert read_snapshot(checkpointed).count(SIGNATURES) == rows


def test_a_checkpoint_has_the_digests_of_the_data_files(checkpointed: Paths) -> None:
    """Read from it, from the entries, and from a checkpoint that deltalake makes of it they are the same."""
    from_checkpoint = read_snapshot(checkpointed).all_files()
    assert [file.sha256 for file in from_checkpoint] == [sha256(file.path.read_bytes()) for file in from_checkpoint]
    theirs = DeltaTable(checkpointed.table)
    checkpointed.checkpoint(4).unlink()
    checkpointed.last_checkpoint.unlink()
    assert read_snapshot(checkpointed).all_files() == from_checkpoint
    theirs.create_checkpoint()
    assert FIELD.encode() not in checkpointed.checkpoint(4).read_bytes()
    for version in range(4):
        checkpointed.log_entry(version).unlink()
    assert read_snapshot(checkpointed).all_files() == from_checkpoint
