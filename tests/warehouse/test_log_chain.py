"""Log entries guard themselves and each other by digests; the newest one's stands in staging."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

import sigdir
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.log.chain import FIELD
from sigdir.warehouse.log.entry import read_entries, read_entry
from sigdir.warehouse.log.history import history
from sigdir.warehouse.log.state import advance, read_state
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.snapshot import LogTailer, read_snapshot
from sigdir.warehouse.staging.writer import Staging
from tests.warehouse.support import call_command, log_actions, publish, remove_digests


def flip(file: Path, at: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def with_versions(paths: Paths, number: int) -> Paths:
    """A warehouse whose imports have one text each: f0(), f1() and so on."""
    for version in range(number):
        publish(paths, [f"f{version}()"])
    return paths


def assert_refused(paths: Paths, file: Path, remedy: str) -> None:
    """Assert that a new reader refuses in one line that names the file and the remedy."""
    with pytest.raises(UnreadableWarehouse, match=f"{re.escape(str(file))}.*{remedy}") as caught:
        read_snapshot(paths)
    assert "\n" not in str(caught.value)


def digests_in(paths: Paths, version: int) -> dict[str, dict[str, str]]:
    [commit] = [action["commitInfo"] for action in log_actions(paths, version) if "commitInfo" in action]
    found: dict[str, dict[str, str]] = json.loads(commit[FIELD])
    return found


def test_each_entry_has_the_digest_of_the_one_before(paths: Paths) -> None:
    """From entry 0 on; the newest one's is in staging, and outside readers read the table as before."""
    with_versions(paths, 3)
    assert digests_in(paths, 0)["entries"] == {}
    for version in (1, 2, 3):
        assert digests_in(paths, version)["entries"] == {str(version - 1): read_entry(paths, version - 1).sha256}
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        assert transaction.newest_entry() == (3, read_entry(paths, 3).sha256)
    staging.close()
    assert DeltaTable(paths.table).to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_any_flipped_byte_of_an_entry_is_noticed(paths: Paths, version: int) -> None:
    """Flip a bit in every thirteenth byte: new readers, the history and the tailer raise, and name the entry."""
    with_versions(paths, 3)
    entry = paths.log_entry(version)
    whole = entry.read_bytes()
    for at in range(version, len(whole), 13):
        flip(entry, at, at % 8)
        assert_refused(paths, entry, "put this file back from a backup")
        with pytest.raises(UnreadableWarehouse, match=re.escape(str(entry))):
            list(read_entries(paths, 3))
        entry.write_bytes(whole)
    assert read_snapshot(paths).count(SIGNATURES) == 3


def test_the_tailer_refuses_an_entry_that_does_not_continue_its_version(paths: Paths, tmp_path: Path) -> None:
    """The entry is whole, but belongs to another log."""
    with_versions(paths, 1)
    other = Paths(tmp_path / "other")
    publish(other, ["f0()"])
    publish(other, ["other()"])
    tailer = LogTailer(paths)
    tailer.newest()
    shutil.copyfile(other.log_entry(2), paths.log_entry(2))
    with pytest.raises(UnreadableWarehouse, match="another digest of it"):
        tailer.newest()
    assert_refused(paths, paths.log_entry(1), "put this file back from a backup")


def test_a_newest_entry_that_was_replaced_is_noticed_by_staging(paths: Paths) -> None:
    """A last entry that continues the log is refused if it is not the one that was published."""
    with_versions(paths, 1)
    copy = Paths(paths.root.with_name("copy"))
    shutil.copytree(paths.root, copy.root)
    publish(paths, ["mine()"])
    publish(copy, ["theirs()"])
    shutil.copyfile(copy.log_entry(2), paths.log_entry(2))
    assert_refused(paths, paths.log_entry(2), "put this file back from a backup")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_entry_of_ours_without_digests_is_damaged(paths: Paths, version: int) -> None:
    """Only other programs write such entries; also the newest one is refused, whose digest only staging has."""
    with_versions(paths, 2)
    with closing(sqlite3.connect(paths.staging)) as connection, connection:
        connection.execute("DELETE FROM newest_entry")
    entry = paths.log_entry(version)
    actions = log_actions(paths, version)
    for action in actions:
        action.get("commitInfo", {}).pop(FIELD, None)
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert_refused(paths, entry, "it has no digests; put this file back from a backup")


@pytest.mark.parametrize("field", ["numRecords", "id", "created_at"])
def test_an_entry_without_digests_whose_statistics_are_null_is_damaged(paths: Paths, field: str) -> None:
    with_versions(paths, 2)
    state = read_state(paths, 1)
    assert state is not None
    remove_digests(paths)
    [entry] = paths.log_entries()[2:]
    text = re.sub(rf'(\\"{field}\\": )[^,}}]+', r"\1null", entry.read_text())
    assert "null" in text
    entry.write_text(text)
    for read in (lambda: read_snapshot(paths), lambda: advance(paths, state)):
        with pytest.raises(UnreadableWarehouse, match=re.escape(str(paths.root))):
            read()


def test_a_commit_of_another_program_is_vouched_for_by_the_next_of_ours(paths: Paths) -> None:
    """Such a commit has no digest of its own."""
    with_versions(paths, 1)
    DeltaTable(paths.table).alter.set_table_properties({"delta.appendOnly": "false"})
    assert read_snapshot(paths).version == 2
    publish(paths, ["after()"])
    assert set(digests_in(paths, 3)["entries"]) == {"1", "2"}
    entry = paths.log_entry(2)
    entry.write_text(entry.read_text().replace("false", "true "))
    assert_refused(paths, entry, "put this file back from a backup")


def test_a_publisher_that_died_before_it_noted_its_entry_is_made_up_for(paths: Paths) -> None:
    """The next publisher notes it; until then the entry's own digest guards it."""
    with_versions(paths, 2)
    with closing(sqlite3.connect(paths.staging)) as connection, connection:
        connection.execute("DELETE FROM newest_entry")
        connection.execute("UPDATE about SET version = 1")
    flip(paths.log_entry(2), 300)
    assert_refused(paths, paths.log_entry(2), "put this file back from a backup")
    flip(paths.log_entry(2), 300)
    call_command("fold", "--warehouse", paths.root)
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        assert (transaction.version(), transaction.newest_entry()) == (2, (2, read_entry(paths, 2).sha256))
    staging.close()


@pytest.fixture
def checkpointed(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A warehouse with a checkpoint at version 4."""
    monkeypatch.setattr("sigdir.warehouse.log.checkpoint.CHECKPOINT_VERSIONS", 4)
    return with_versions(paths, 4)


def test_a_damaged_checkpoint_is_noticed_and_can_be_removed(checkpointed: Paths) -> None:
    """The entry after it has its digest. Without the checkpoint the entries are read."""
    publish(checkpointed, ["after()"])
    [file] = checkpointed.checkpoint_files(4)
    assert set(digests_in(checkpointed, 5)["checkpoints"]) == {"4"}
    for at in range(0, file.stat().st_size, 97):
        flip(file, at)
        assert_refused(checkpointed, file, "remove this file and _last_checkpoint")
        flip(file, at)
    flip(file, 100)
    file.unlink()
    checkpointed.last_checkpoint.unlink()
    assert read_snapshot(checkpointed).count(SIGNATURES) == 5


def test_a_checkpoint_that_no_entry_vouches_for_is_not_believed(checkpointed: Paths) -> None:
    """At its own version the entries are read: the checkpoint may be damaged, and every answer stays right."""
    expected = read_snapshot(checkpointed)
    [file] = checkpointed.checkpoint_files(4)
    for at in range(0, file.stat().st_size, 97):
        flip(file, at)
        assert read_snapshot(checkpointed) == expected
        flip(file, at)
    assert expected.count(SIGNATURES) == 4


def test_older_versions_across_a_checkpoint_are_read(checkpointed: Paths) -> None:
    """With compactions in between, before and after it."""
    compact(checkpointed, everything)
    publish(checkpointed, ["more()", "last()"])
    counts = [read_snapshot(checkpointed, version).count(SIGNATURES) for version in range(7)]
    assert counts == [0, 1, 2, 3, 4, 4, 6]
    assert len(history(checkpointed)) == 6


@pytest.mark.parametrize("content", [b"", b"{", b'{"version":8}', b'{"versioo":4,"size":1}', b"\xff"])
def test_a_damaged_pointer_to_the_checkpoint_is_named(checkpointed: Paths, content: bytes) -> None:
    """Its remedy is to remove it."""
    publish(checkpointed, ["after()"])
    checkpointed.last_checkpoint.write_bytes(content)
    assert_refused(checkpointed, checkpointed.last_checkpoint, "remove this file")
    checkpointed.last_checkpoint.unlink()
    assert sigdir.open(checkpointed.root).count(SIGNATURES) == 5
