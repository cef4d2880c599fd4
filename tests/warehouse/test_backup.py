"""`sigdir backup`: a complete and consistent copy during writes, also after an interruption.

The copy must have every row that was acknowledged before the backup began, with the same id and time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from deltalake import DeltaTable

import sigdir
import sigdir.warehouse.transfer.backup as backup_module
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.compact import compact
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.transaction import PostedSighting
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import FileLock, make_folder
from sigdir.warehouse.table.identity import read_identity
from sigdir.warehouse.table.parquet import sha256_of
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.stores import MissingObject
from sigdir.warehouse.transfer.backup import backup, push
from sigdir.warehouse.transfer.transfer import TransferReport
from sigdir.warehouse.vacuum import vacuum
from tests.conftest import empty_warehouse
from tests.examples import long_except
from tests.warehouse.support import (
    BACKUP_POINTS,
    Disk,
    assert_clean,
    assert_fails_in_one_line,
    assert_sound,
    call_command,
    copied,
    failures,
    flip,
    fold,
    places,
    publish,
    run_command,
    stage,
    staged_rows,
    texts,
    verified,
    visible,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Two imports, one with rejects, a fold, rows in staging, a mirror."""
    own = Paths(tmp_path_factory.mktemp("backup") / "warehouse")
    publish(own, ["a(uint256)", "b(uint256)"], ["A(uint256)"], rejects=["bad("])
    stage(own, SIGNATURES, "folded(uint256)")
    fold(own)
    publish(own, ["c(uint256)"])
    stage(own, SIGNATURES, "waiting(uint256)")
    stage(own, EVENT_SIGNATURES, "Waiting(uint256)")
    mirrored(own, b"spooled\n")
    return own


@pytest.fixture
def paths(base: Paths, tmp_path: Path) -> Paths:
    return copied(base, tmp_path)


def mirrored(paths: Paths, spool: bytes) -> None:
    """The files from which a mirror continues."""
    folder = paths.mirror("example.org-5d41402abc4b")
    make_folder(folder)
    (folder / "signatures.ndjson").write_bytes(spool)
    (folder / "signatures.json").write_text(json.dumps({"spooled": len(spool)}))


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, without locks and what SQLite has beside its file."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.endswith(("lock", "-shm", "-wal"))]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.fixture
def copy(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "backups" / "copy")


def assert_same(paths: Paths, copy: Paths) -> None:
    """Assert that the copy has the same rows, ids, times, history, rejects and mirrors, and is clean."""
    assert visible(copy) == visible(paths)
    assert sigdir.open(copy.root).history() == sigdir.open(paths.root).history()
    assert contents(copy.rejects) == contents(paths.rejects) != {}
    assert read_identity(copy) == read_identity(paths)
    assert contents(copy.mirrors) == contents(paths.mirrors) != {}
    assert_clean(copy)


def assert_same_newest(paths: Paths, copy: Paths) -> None:
    """Assert that the newest version of the copy is that of the warehouse, and that verify finds nothing wrong."""
    assert visible(copy) == visible(paths)
    assert verified(copy).findings == []


def add_more(paths: Paths, name: str) -> None:
    """An import, a fold and staged rows."""
    publish(paths, [f"{name}(uint256)"], rejects=[f"{name}("])
    stage(paths, SIGNATURES, f"{name}folded(uint256)")
    fold(paths)
    stage(paths, SIGNATURES, f"{name}waiting(uint256)")


# The copy.


@pytest.mark.parametrize("link", [False, True], ids=["", "linked"])
def test_a_backup_is_the_same_warehouse(paths: Paths, copy: Paths, link: bool) -> None:
    """By the command, copied, or data files linked; old versions are there with their sources and sightings."""
    command: list[str | Path] = ["backup", copy.root, "--warehouse", paths.root, *(["--link"] if link else [])]
    report = json.loads(call_command(*command, "--json").stdout)
    assert (report["version"], report["rows"], report["staged"]) == (3, 5, 2)
    assert (report["copied"], report["linked"]) == ((0, 9) if link else (9, 0))
    assert_same(paths, copy)
    for file in copy.root.rglob("*"):
        if file.is_file():
            assert (file.stat().st_nlink > 1) == (link and file.suffix == ".parquet"), file
    for version in range(4):
        here, there = read_snapshot(paths, version), read_snapshot(copy, version)
        assert there.high_water == here.high_water
        assert there.evidence.sources == here.evidence.sources
        assert [sha256_of(file.path) for file in there.evidence.all_files()] == [
            file.sha256 for file in here.evidence.all_files()
        ]
    again = call_command(*command).stdout
    assert "version 3, 5 rows and 2 staged" in again
    assert "0 files copied (0.0 MB), 0 linked, 9 there already" in again


def test_the_next_backup_copies_only_new_files(paths: Paths, copy: Paths) -> None:
    """A second backup copies the new files alone, and a third one none; a checkpoint and the entries around it come along."""
    first = backup(paths, copy)
    add_more(paths, "more")
    second = backup(paths, copy)
    assert second.present == first.copied
    assert (second.copied, second.log_entries) == (9, 2)
    third = backup(paths, copy)
    assert (third.copied, third.log_entries, third.bytes) == (0, 0, 0)
    assert_same(paths, copy)
    DeltaTable(paths.table).create_checkpoint()
    add_more(paths, "evenmore")
    backup(paths, copy)
    assert copy.last_checkpoint.read_bytes() == paths.last_checkpoint.read_bytes()
    assert_same(paths, copy)


def test_a_warehouse_with_only_staged_rows_is_backed_up(tmp_path: Path, copy: Paths) -> None:
    """Staged rows are copied before there is a version."""
    own = Paths(tmp_path / "new")
    stage(own, SIGNATURES, "waiting(uint256)")
    report = backup(own, copy)
    assert (report.version, report.staged) == (-1, 1)
    assert staged_rows(copy, SIGNATURES) == staged_rows(own, SIGNATURES)


def test_a_restored_copy_takes_writes(paths: Paths, copy: Paths) -> None:
    """A copy takes rows, folds and imports, gives ids above its own, and can be backed up."""
    backup(paths, copy)
    add_more(copy, "restored")
    seen = visible(copy)[SIGNATURES]
    assert_sound(seen)
    assert {"restored(uint256)", "restoredwaiting(uint256)", "waiting(uint256)"} <= set(texts(seen))
    other = Paths(copy.root.with_name("of the copy"))
    backup(copy, other)
    assert_same(copy, other)


# Writes during a backup.


@pytest.mark.parametrize("moment", ["before", "after"])
def test_rows_that_are_folded_during_a_backup_are_in_it_once(
    paths: Paths, copy: Paths, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A fold right before the backup reads the log, or right after it with new rows, neither loses nor doubles a row."""
    acknowledged = visible(paths)

    def read_and_fold(own: Paths) -> Snapshot:
        if moment == "before":
            fold(own)
        snapshot = read_snapshot(own)
        if moment == "after":
            add_more(own, "meanwhile")
        return snapshot

    monkeypatch.setattr(backup_module, "read_snapshot", read_and_fold)
    backup(paths, copy)
    monkeypatch.undo()
    for collection, table in visible(copy).items():
        assert places(table) == places(acknowledged[collection])
        assert_sound(table)
    assert_clean(copy)
    assert bool(staged_rows(copy, SIGNATURES)) == (moment == "after")
    backup(paths, copy)
    assert_same(paths, copy)


def test_a_vacuum_during_a_backup_takes_old_versions_only(paths: Paths, copy: Paths) -> None:
    """The backup leaves out what a vacuum deletes meanwhile or, killed halfway, left without its sources."""
    compact(paths)
    sources = read_snapshot(paths, 1).evidence.sources_file
    assert sources is not None
    halfway = copied(paths, copy.root.with_name("halfway"))
    (halfway.evidence / sources[0]).unlink()
    other = Paths(copy.root.with_name("other"))
    result = call_command("backup", other.root, "--warehouse", halfway.root)  # reads the manifests anew
    assert result.exit_code == 0, result.stderr
    assert_same_newest(halfway, other)
    gone: list[str] = []

    def meanwhile(report: TransferReport) -> None:
        gone.extend(waste.path.name for waste in vacuum(paths, timedelta(0)).waste)

    report = backup(paths, copy, progress=meanwhile)
    assert any(name.endswith(".sources.json") for name in gone)
    assert report.left_out >= len(gone) - 1
    assert_same_newest(paths, copy)
    backup(paths, copy)
    assert_same_newest(paths, copy)


# Interrupted backups. `tests.torture` makes backups under load.


@pytest.mark.parametrize("point", ["copied", "replaced"])
def test_an_interrupted_first_backup_is_refused(paths: Paths, copy: Paths, point: str) -> None:
    """No command opens an unfinished backup; the next backup into the folder finishes it."""
    killed = run_command("backup", copy.root, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL
    for command in (["stats"], ["verify"], ["fold"], ["sql", "SELECT 1"], ["import", "--quiet", "samples"]):
        result = call_command(*command, "--warehouse", copy.root)
        assert_fails_in_one_line(result, f"{copy.root} is an unfinished backup")
    add_more(paths, "more")
    backup(paths, copy)
    assert_same(paths, copy)


@pytest.mark.parametrize("point", long_except({"copied", "replaced"}, BACKUP_POINTS))
def test_an_interrupted_later_backup_opens(paths: Paths, copy: Paths, point: str) -> None:
    """It has the earlier or a later state, with no row missing or doubled."""
    backup(paths, copy)
    before = visible(copy)
    add_more(paths, "more")
    mirrored(paths, b"spooled\nand more\n")
    killed = run_command("backup", copy.root, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL
    kept = copied(copy, copy.root.with_name("kept"))
    held, now = visible(kept), visible(paths)
    for collection in COLLECTIONS:
        assert_sound(held[collection])
        assert places(before[collection]).items() <= places(held[collection]).items()
        assert places(held[collection]).items() <= places(now[collection]).items()
    assert (read_snapshot(kept).version == 3) == (point == "copied")
    found = verified(kept).findings
    # Verify may find one thing only: a log that is newer than staging.
    assert {finding.what for finding in found} == ({"sequence"} if point == "logged" else set())
    backup(paths, copy)
    assert_same(paths, copy)


# Refusals.


def assert_refused(paths: Paths, copy: Paths, why: str) -> None:
    """Assert that the backup fails in one line and changes nothing in the folder."""
    before = contents(copy.root)
    assert_fails_in_one_line(call_command("backup", copy.root, "--warehouse", paths.root), why)
    assert contents(copy.root) == before


def test_a_folder_of_something_else_is_refused(paths: Paths, copy: Paths) -> None:
    """What is no backup of this warehouse stays as it is, also a folder within it and one that another backup writes."""
    other, foreign, letters = (Paths(copy.root.with_name(name)) for name in ("other", "foreign", "letters"))
    publish(other, ["other(uint256)"])
    backup(other, foreign)
    make_folder(letters.root)
    (letters.root / "letter.txt").write_text("dear")
    assert_refused(paths, letters, f"{letters.root} is neither empty nor a backup")
    push(paths, f"file://{copy.root}")
    assert_refused(paths, copy, f"name a store as file://{copy.root}")
    shutil.rmtree(copy.root)
    for folder in (other, foreign):
        assert_refused(paths, folder, f"{folder.root} is another warehouse")
    for where in (".", "below", ".."):
        assert_refused(paths, Paths(paths.root / where), "is not apart from")
        assert not (paths.root / "below").exists()
    backup(paths, copy)
    with FileLock(copy.lock):
        assert_refused(paths, copy, f"{copy.lock} is held by process {os.getpid()}")


def sight(copy: Paths) -> None:
    """POST the declaration of a text that is stored already."""
    with closing(Staging(copy.staging)) as staging, staging.exclusive() as transaction:
        transaction.note_sightings([PostedSighting(SIGNATURES, 1, 1, "function a(uint256 amount)")])


USES: tuple[Callable[[Paths], object], ...] = (
    lambda copy: stage(copy, SIGNATURES, "own(uint256)"),
    sight,
    fold,
    lambda copy: copy.staging.unlink(),
)


@pytest.mark.parametrize("use", USES, ids=["posted", "sighted", "folded", "lost staging"])
def test_a_copy_that_was_written_to_is_refused(paths: Paths, copy: Paths, use: Callable[[Paths], object]) -> None:
    """It may have rows of its own, which a backup would remove; also after the warehouse went on."""
    backup(paths, copy)
    use(copy)
    assert_refused(paths, copy, str(copy.root))
    add_more(paths, "more")
    assert_refused(paths, copy, str(copy.root))


def test_a_row_that_is_posted_into_the_copy_during_a_backup_stays(paths: Paths, copy: Paths) -> None:
    """The backup is refused before its first entry, which would give the row's id to another text."""
    backup(paths, copy)
    add_more(paths, "more")

    numbers = count()

    def post(_: TransferReport) -> None:
        stage(copy, SIGNATURES, f"own{next(numbers)}(uint256)")

    before = read_snapshot(copy).version
    with pytest.raises(UnreadableWarehouse, match="rows of its own"):
        backup(paths, copy, progress=post)
    assert read_snapshot(copy).version == before
    assert staged_rows(copy, SIGNATURES)[-1].text.startswith("own")


def test_a_missing_warehouse_is_an_error(tmp_path: Path, copy: Paths) -> None:
    """No folder is made, neither for it nor for the copy."""
    with pytest.raises(UnreadableWarehouse, match="there is no such folder"):
        backup(Paths(tmp_path / "nowhere"), copy)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_by_the_side_that_is_full(paths: Paths, disk: Disk) -> None:
    """In one line, wherever the space ends; with enough room the backup goes on."""
    copy = Paths(disk.path / "copy")
    for line in failures(disk, "backup", copy.root, "--warehouse", paths.root):
        assert str(copy.root) in line
        assert str(paths.root) not in line
    assert read_identity(copy) == read_identity(paths)


def test_a_full_disk_of_the_source_is_named(disk: Disk, tmp_path: Path) -> None:
    """SQLite needs a file beside the staging file, and calls a disk without room for it `disk I/O error`."""
    warehouse = empty_warehouse(disk.path / "source")
    disk.resize(disk.used())
    for command in (["backup", tmp_path / "copy"], ["decode", "0xa9059cbb"], ["fold"]):
        assert_fails_in_one_line(
            call_command(*command, "--warehouse", warehouse), "source/staging.sqlite: disk I/O error; the disk is full"
        )


def test_a_damaged_or_lost_file_is_named(paths: Paths, copy: Paths) -> None:
    """A backup takes no damaged file along, and the older one stays good. A first backup stays unfinished."""
    backup(paths, copy)
    add_more(paths, "more")
    snapshot = read_snapshot(paths)
    data, evidence = snapshot.files[SIGNATURES][-1].path, snapshot.evidence.files[SIGNATURES][-1].path
    flip(data, -20)
    with pytest.raises(UnreadableWarehouse, match=f"{data}: damaged: not what was written"):
        backup(paths, copy)
    assert read_snapshot(copy).version == 3
    flip(data, -20)
    whole = evidence.read_bytes()
    evidence.unlink()
    fresh = Paths(copy.root.with_name("fresh"))
    with pytest.raises(MissingObject, match=str(evidence)):
        backup(paths, fresh)
    with pytest.raises(UnreadableWarehouse, match="unfinished backup"):
        read_snapshot(fresh)
    evidence.write_bytes(whole)
    backup(paths, copy)
    assert_same(paths, copy)


def test_a_damaged_file_of_an_older_version_is_named(paths: Paths, tmp_path: Path) -> None:
    """No backup leaves it out as if it were vacuumed; once it is vacuumed, the backup has the newest version."""
    older = read_snapshot(paths)
    compact(paths)
    data, evidence = older.files[SIGNATURES][0].path, older.evidence.files[SIGNATURES][0].path
    for file, target in ((data, tmp_path / "copy"), (evidence, f"file://{tmp_path}/store")):
        whole = file.read_bytes()
        flip(file, -20)
        assert_fails_in_one_line(
            call_command("backup", target, "--warehouse", paths.root),
            f"{file}: damaged: not what was written",
            "only older versions need it",
        )
        file.write_bytes(whole)
    flip(data, -20)
    vacuum(paths, timedelta(0))
    for target in (tmp_path / "copy", f"file://{tmp_path}/store"):
        result = call_command("backup", target, "--warehouse", paths.root)
        assert result.exit_code == 0, result.stderr
