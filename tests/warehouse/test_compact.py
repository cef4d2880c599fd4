"""Compaction: the same rows in fewer files, whoever looks, publishes or kills meanwhile."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import sigdir
from sigdir.cli.fold import Upkeep
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.warehouse import log
from sigdir.warehouse.batch import FILE_ROWS
from sigdir.warehouse.compact import (
    GATHER,
    SMALL_ROWS,
    Files,
    compact,
    due,
    everything,
    small,
)
from sigdir.warehouse.errors import CommitConflict, UnreadableWarehouse
from sigdir.warehouse.files import make_folder
from sigdir.warehouse.index.view import Reader, tidy
from sigdir.warehouse.log import DataFile
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import Publisher
from sigdir.warehouse.snapshot import (
    LogTailer,
    Snapshot,
    read_snapshot,
)
from sigdir.warehouse.staging import Staging
from tests.warehouse.support import (
    REPOSITORY,
    SAFETY_SECONDS,
    Disk,
    assert_sequences_beyond,
    assert_sound,
    assert_told_in_one_line,
    call_command,
    command,
    environment,
    fold,
    log_actions,
    names,
    places,
    publish,
    run_command,
    small_disk,
    stage,
    staged_rows,
    table_of,
    texts,
    visible,
)

POINTS = ("compact_begun", "compact_written", "compact_committed")
"""Where a compaction can be killed by name; the version is there at the last alone."""

Content = dict[Collection, list[dict[str, Any]]]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "warehouse")


@dataclass(frozen=True, slots=True)
class Base:
    """A warehouse of many files, with rows staged, in a folder that is copied for each test."""

    root: Path
    version: int
    content: Content

    def copy(self, folder: Path) -> Paths:
        shutil.copytree(self.root, folder / "warehouse")
        return Paths(folder / "warehouse")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Imports with rejects and folds, of one and of both collections; staged rows at the end."""
    paths = Paths(tmp_path_factory.mktemp("base") / "warehouse")
    publish(paths, names("first", 250), names("First", 30), rejects=["1bad("])
    for number in range(8):
        stage(paths, SIGNATURES, *names(f"posted{number}_", number + 1))
        if number % 2:
            stage(paths, EVENT_SIGNATURES, f"Posted{number}()")
        fold(paths)
        publish(paths, names(f"more{number}_", 5), rejects=[f"{number}bad("])
    stage(paths, SIGNATURES, "staged()", "stagedToo()")
    stage(paths, EVENT_SIGNATURES, "Staged()")
    return Base(paths.root, read_snapshot(paths).version, content_of(paths))


def content_of(paths: Paths, version: int | None = None) -> Content:
    """The rows of a version, as the files have them."""
    snapshot = read_snapshot(paths, version)
    return {collection: table_of(snapshot, collection).to_pylist() for collection in COLLECTIONS}


def files_of(paths: Paths) -> dict[Collection, int]:
    return {collection: len(files) for collection, files in read_snapshot(paths).files.items()}


def segments_of(reader: Reader, collection: Collection) -> pa.Table:
    """All that a server sees of a collection."""
    view = reader.refreshed()
    segments = view.segments[collection]
    found = [segment.text_at(row) for segment in segments for row in range(segment.rows)]
    assert view.count(collection) == len(found)
    columns = {
        "id": np.concatenate([segment.ids[: segment.rows] for segment in segments]),
        "created_at": np.concatenate([segment.created_at[: segment.rows] for segment in segments]),
        "text_signature": found,
        "hash": [segment.hash[row].tobytes() for segment in segments for row in range(segment.rows)],
    }
    return pa.table(columns)


def assert_nothing_left(paths: Paths) -> None:
    """Every data file is one that some version names, and no run is unfinished."""
    named = set()
    for version in range(read_snapshot(paths).version + 1):
        named |= {paths.table / action["add"]["path"] for action in log_actions(paths, version) if "add" in action}
    assert set(paths.table.glob("collection=*/*")) <= named
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        assert transaction.unfinished() == []
    staging.close()


# What is merged.


def files_with(rows: Sequence[int]) -> list[DataFile]:
    """Files of so many rows, one after another."""
    edges = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]).tolist()
    return [
        DataFile(Path(f"{number}.parquet"), SIGNATURES, last - first, 10, first + 1, last, last)
        for number, (first, last) in enumerate(pairwise(edges))
    ]


def merged(files: Files, pieces: Sequence[Files]) -> list[DataFile]:
    """The files after a compaction. Each piece must be a run of neighbours, none in two pieces."""
    left = list(files)
    for piece in pieces:
        at = left.index(piece[0])
        assert left[at : at + len(piece)] == list(piece)
        left[at : at + len(piece)] = files_with([sum(file.rows for file in piece)])
        left[at] = DataFile(Path("merged"), SIGNATURES, left[at].rows, 10, piece[0].first_id, piece[-1].last_id, 0)
    return left


sizes = st.lists(
    st.integers(1, 9) | st.integers(1, SMALL_ROWS) | st.sampled_from([SMALL_ROWS, SMALL_ROWS - 1, FILE_ROWS])
    | st.integers(SMALL_ROWS, 2 * FILE_ROWS),
    max_size=40,
)  # fmt: skip


@given(sizes, st.sampled_from([small, everything, due]))
def test_neighbours_are_merged_into_files_that_are_not_too_large(
    rows: list[int], choose: Callable[[Files], list[Files]]
) -> None:
    """Whatever is chosen: at least two files, side by side, of FILE_ROWS rows at most."""
    files = files_with(rows)
    pieces = choose(files)
    assert all(len(piece) >= 2 and sum(file.rows for file in piece) <= FILE_ROWS for piece in pieces)
    after = merged(files, pieces)
    assert sum(file.rows for file in after) == sum(rows)
    assert [file.first_id for file in after] == sorted(file.first_id for file in after)


@given(sizes, st.sampled_from([small, everything]))
def test_once_is_enough(rows: list[int], choose: Callable[[Files], list[Files]]) -> None:
    """After a compaction there is nothing to compact."""
    files = files_with(rows)
    assert choose(merged(files, choose(files))) == []


@given(sizes)
def test_small_files_alone_are_merged_unless_all_are(rows: list[int]) -> None:
    """No large file is written again by default or by a server, and no two small neighbours stay."""
    files = files_with(rows)
    for choose in (small, due):
        assert all(file.rows < SMALL_ROWS for piece in choose(files) for file in piece)
    after = merged(files, small(files))
    beside = [pair for pair in pairwise(after) if max(file.rows for file in pair) < SMALL_ROWS]
    assert all(sum(file.rows for file in pair) > FILE_ROWS for pair in beside)


@pytest.mark.parametrize("rows_of_a_fold", [1, 30, 2000])
def test_folds_for_days_leave_few_files_and_little_work(rows_of_a_fold: int) -> None:
    """The figures of the module: 27 files a collection beside the large ones, each row written few times."""
    files: list[DataFile] = []
    written = most = 0
    folds = 5000
    for _ in range(folds):
        files = files_with([*(file.rows for file in files), rows_of_a_fold])
        pieces = due(files)
        written += sum(file.rows for piece in pieces for file in piece)
        files = merged(files, pieces)
        most = max(most, sum(file.rows < SMALL_ROWS for file in files))
    assert sum(file.rows for file in files) == folds * rows_of_a_fold
    assert most <= 3 * (GATHER - 1) + 1
    lowest = SMALL_ROWS // GATHER**2
    assert written <= folds / (GATHER - 1) * (lowest + GATHER * rows_of_a_fold) + 2 * folds * rows_of_a_fold


# The rows.


@pytest.mark.parametrize("choose", [small, everything])
def test_every_row_stays_as_it_is(base: Base, tmp_path: Path, choose: Callable[[Files], list[Files]]) -> None:
    """In the files, in SQL and for a server: ids, times, texts, hashes, import numbers, order."""
    paths = base.copy(tmp_path)
    query = "SELECT * FROM {} ORDER BY id"
    before = [sigdir.open(paths.root).sql(query.format(v)).rows() for v in ("signatures", "event_signatures")]
    reader = Reader(paths)
    served = {collection: segments_of(reader, collection) for collection in COLLECTIONS}
    staged = {collection: staged_rows(paths, collection) for collection in COLLECTIONS}

    done = compact(paths, choose)
    assert done is not None
    assert (done.snapshot.version, done.snapshot) == (base.version + 1, read_snapshot(paths))
    assert files_of(paths) == {SIGNATURES: 1, EVENT_SIGNATURES: 1}
    assert content_of(paths) == base.content
    after = [sigdir.open(paths.root).sql(query.format(v)).rows() for v in ("signatures", "event_signatures")]
    assert after == before
    assert {collection: segments_of(reader, collection) for collection in COLLECTIONS} == served
    reader.close()
    fresh = Reader(paths)
    assert {collection: segments_of(fresh, collection) for collection in COLLECTIONS} == served
    fresh.close()
    assert {collection: staged_rows(paths, collection) for collection in COLLECTIONS} == staged
    assert_nothing_left(paths)
    assert_sequences_beyond(paths)


def test_publishing_goes_on_behind_a_compaction(base: Base, tmp_path: Path) -> None:
    """Staged rows keep their ids when they are folded; new texts are new, old ones are known."""
    paths = base.copy(tmp_path)
    before = {collection: places(table) for collection, table in visible(paths).items()}
    compact(paths)
    fold(paths)
    done = publish(paths, ["staged()", "first7(uint256)", "new()"], ["First7(uint256)", "New()"])
    for collection, new in ((SIGNATURES, "new()"), (EVENT_SIGNATURES, "New()")):
        table = visible(paths)[collection]
        assert_sound(table)
        after = places(table)
        assert before[collection] == {text: place for text, place in after.items() if text != new}
        assert new in after
    assert done.import_id == 10
    assert_nothing_left(paths)


def test_old_versions_read_as_they_were(paths: Paths) -> None:
    """Files stay until they are vacuumed, so --as-of sees what it saw."""
    contents = []
    for number in range(6):
        publish(paths, names(f"f{number}_", 3), [f"E{number}()"])
        if number % 2:
            compact(paths)
        contents.append((read_snapshot(paths).version, content_of(paths)))
    for version, content in contents:
        assert content_of(paths, version) == content
        assert sigdir.open(paths.root, version).count(SIGNATURES) == len(content[SIGNATURES])


def test_nothing_to_compact_is_no_version(paths: Paths, tmp_path: Path) -> None:
    """Nothing there, one file, and once more after a compaction."""
    assert compact(paths) is None
    assert not paths.root.exists()
    publish(paths, ["f()"], ["E()"])
    assert compact(paths) is None
    publish(paths, ["g()"])
    assert compact(paths) is not None
    assert compact(paths) is None
    assert compact(paths, everything) is None
    assert read_snapshot(paths).version == 3


def test_a_collection_of_one_file_is_left_alone(paths: Paths) -> None:
    """The other's merge does not write it again."""
    publish(paths, ["f()"], ["E()"])
    publish(paths, ["g()"])
    (event_file,) = read_snapshot(paths).files[EVENT_SIGNATURES]
    compact(paths)
    assert read_snapshot(paths).files[EVENT_SIGNATURES] == (event_file,)
    assert files_of(paths) == {SIGNATURES: 1, EVENT_SIGNATURES: 1}


def test_a_large_file_is_cut_into_row_groups(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are held in memory at a time, from files that do not end where a group does."""
    monkeypatch.setattr("sigdir.warehouse.parquet.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr("sigdir.warehouse.compact.ROW_GROUP_ROWS", 40)
    for number in range(4):
        publish(paths, names(f"f{number}_", 65))
    before = content_of(paths)
    compact(paths)
    (file,) = read_snapshot(paths).files[SIGNATURES]
    with pq.ParquetFile(file.path) as parquet:
        groups = parquet.metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [100, 100, 60]
    assert content_of(paths) == before


# What is told.


def test_history_tells_of_a_compaction_and_imports_do_not(base: Base, tmp_path: Path) -> None:
    """The commit has its own account; imports, sources, rejects and counts are what they were."""
    paths = base.copy(tmp_path)
    queries = [
        "SELECT * FROM imports ORDER BY import_id",
        "SELECT * FROM rejects ORDER BY import_id, line",
        "SELECT count(*), max(id), max(created_at) FROM signatures",
    ]
    warehouse = sigdir.open(paths.root)
    before = [warehouse.sql(query).rows() for query in queries]
    stats = json.loads(call_command("stats", "--json", "--warehouse", paths.root).stdout)
    compact(paths)
    warehouse = sigdir.open(paths.root)
    assert [warehouse.sql(query).rows() for query in queries] == before
    told = warehouse.history()[-1]
    assert (told["kind"], told["version"]) == ("compact", base.version + 1)
    assert told["collections"][SIGNATURES] == {
        "files_before": 17, "files_after": 1, "rows": len(base.content[SIGNATURES])
    }  # fmt: skip
    assert {"import", "totals", "sources", "folded"}.isdisjoint(told)
    after = json.loads(call_command("stats", "--json", "--warehouse", paths.root).stdout)
    for collection in COLLECTIONS:
        assert after["collections"][collection] | {"files": 0, "bytes": 0} == stats["collections"][collection] | {
            "files": 0, "bytes": 0
        }  # fmt: skip
    assert after["collections"][SIGNATURES]["files"] == 1


def test_the_log_says_that_no_data_changed(base: Base, tmp_path: Path) -> None:
    """Followers of the table's changes need not read the rows again; the watermarks are carried on."""
    paths = base.copy(tmp_path)
    before = read_snapshot(paths)
    compact(paths)
    actions = log_actions(paths, base.version + 1)
    adds, removes = ([action[kind] for action in actions if kind in action] for kind in ("add", "remove"))
    assert {paths.table / remove["path"] for remove in removes} == {f.path for fs in before.files.values() for f in fs}
    assert len(adds) == 2
    assert not any(action["dataChange"] for action in [*adds, *removes])
    marks = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    assert marks == {f"sigdir:{collection}": before.high_water[collection].id for collection in COLLECTIONS}


def test_another_reader_of_the_table_sees_the_same_rows(base: Base, tmp_path: Path) -> None:
    """deltalake's own list of files, and a checkpoint on top."""
    paths = base.copy(tmp_path)
    compact(paths)
    table = DeltaTable(paths.table)
    assert set(table.file_uris()) == {str(f.path) for fs in read_snapshot(paths).files.values() for f in fs}
    table.create_checkpoint()
    assert content_of(paths) == base.content
    assert read_snapshot(paths).high_water[SIGNATURES].id == base.content[SIGNATURES][-1]["id"]


def test_checkpoints_are_written_beside_the_commit(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever makes the version, without holding up POST; what is read is the same, the log stays whole."""
    monkeypatch.setattr(log, "CHECKPOINT_VERSIONS", 3)
    real = DeltaTable.create_checkpoint
    written = []

    def create(table: DeltaTable) -> None:
        with closing(sqlite3.connect(paths.staging, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # fails where a transaction is open
        real(table)
        written.append(table.version())

    monkeypatch.setattr(DeltaTable, "create_checkpoint", create)
    for number in range(3):
        publish(paths, [f"f{number}()"], [f"E{number}()"])
        publish(paths, [f"g{number}()"])
        compact(paths)
    assert written == [3, 6, 9]
    assert len(list(paths.log.glob("*.checkpoint.parquet"))) == 3
    assert [entry["version"] for entry in sigdir.open(paths.root).history()] == list(range(1, 10))
    assert texts(visible(paths)[SIGNATURES]) == [f"{name}{number}()" for number in range(3) for name in "fg"]
    fold(paths)
    assert read_snapshot(paths).high_water[EVENT_SIGNATURES].id == 3


def test_the_command_tells_what_it_did(base: Base, tmp_path: Path) -> None:
    paths = base.copy(tmp_path)
    done = call_command("compact", "--json", "--warehouse", paths.root)
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["version"] == base.version + 1
    assert told["collections"][EVENT_SIGNATURES]["files_before"] == 5
    again = call_command("compact", "--warehouse", paths.root)
    assert (again.exit_code, again.stdout) == (0, "nothing to compact\n")
    assert json.loads(call_command("compact", "--json", "--warehouse", paths.root).stdout)["version"] is None
    publish(paths, ["new()"])
    assert call_command("compact", "--warehouse", paths.root).stdout.startswith(f"version {base.version + 3} published")


# Servers.


def test_indexes_are_there_before_the_version(base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server reads, no request waits for an index; where none does, none is built."""
    paths = base.copy(tmp_path)
    compact(paths)
    assert not paths.cache.exists()
    publish(paths, ["new()"], ["New()"])
    make_folder(paths.cache)
    seen: list[Path] = []

    def look(name: str) -> None:
        if name == "compact_committed":
            snapshot = read_snapshot(paths)
            seen.extend(paths.index(c, file.path) for c in COLLECTIONS for file in snapshot.files[c])
            assert all(folder.is_dir() for folder in seen)

    monkeypatch.setattr("sigdir.warehouse.failpoints.reach", look)
    compact(paths)
    assert len(seen) == 2


def test_a_server_s_files_may_go_while_it_maps_them(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that was compacted and vacuumed between the look at the log and the files is let go."""
    paths = base.copy(tmp_path)
    calls: list[int] = []

    class Late(LogTailer):
        def newest(self) -> Snapshot:
            snapshot = super().newest()
            if not calls:
                compact(paths)
                for files in snapshot.files.values():
                    for file in files:
                        file.path.unlink()
            calls.append(snapshot.version)
            return snapshot

    monkeypatch.setattr("sigdir.warehouse.index.view.LogTailer", Late)
    reader = Reader(paths)
    assert calls == [base.version, base.version + 1]
    for collection in COLLECTIONS:
        assert texts(segments_of(reader, collection)) == texts(visible(paths)[collection])
    reader.close()


def test_a_missing_file_of_the_newest_version_is_told(base: Base, tmp_path: Path) -> None:
    """That is damage, and asking again would not end."""
    paths = base.copy(tmp_path)
    read_snapshot(paths).files[SIGNATURES][3].path.unlink()
    with pytest.raises(UnreadableWarehouse, match="parquet"):
        Reader(paths)


def test_a_server_folds_and_merges_by_itself(paths: Paths) -> None:
    """Ten small files become one in the round that makes the tenth; a busy lock ends a round quietly."""
    rounds = Upkeep(paths)
    rounds.run_once()
    for number in range(GATHER):
        stage(paths, SIGNATURES, f"posted{number}()")
        rounds.run_once()
        assert files_of(paths)[SIGNATURES] == (number + 1) % GATHER + number // (GATHER - 1)
    assert [entry["kind"] for entry in sigdir.open(paths.root).history()] == ["fold"] * GATHER + ["compact"]
    assert texts(visible(paths)[SIGNATURES]) == [f"posted{number}()" for number in range(GATHER)]
    stage(paths, SIGNATURES, "posted()")
    with Publisher(paths):
        rounds.run_once()
    assert len(staged_rows(paths, SIGNATURES)) == 1
    rounds.run_once()
    assert staged_rows(paths, SIGNATURES) == []


# Crashes.


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_point_changes_no_row(base: Base, tmp_path: Path, point: str) -> None:
    """The version is there or not, staging is as it was, and the next publisher clears up."""
    paths = base.copy(tmp_path)
    make_folder(paths.cache)
    seen = visible(paths)
    killed = run_command("compact", "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = point == "compact_committed"
    assert read_snapshot(paths).version == base.version + published
    assert content_of(paths) == base.content
    assert visible(paths) == seen
    done = compact(paths)
    assert (done is None) == published
    publish(paths, ["new()"])
    assert_nothing_left(paths)
    assert texts(visible(paths)[SIGNATURES]) == [*texts(seen[SIGNATURES]), "new()"]
    assert content_of(paths, base.version) == base.content
    assert_sequences_beyond(paths)


def test_a_damaged_file_is_named_and_nothing_changes(base: Base, tmp_path: Path) -> None:
    """A flipped byte, a file that is cut, one that is missing: never merged, and nothing is left behind."""
    damages: list[Callable[[Path], None]] = [flip, cut_off, Path.unlink]
    for number, damage in enumerate(damages):
        paths = base.copy(tmp_path / str(number))
        file = read_snapshot(paths).files[SIGNATURES][0].path
        damage(file)
        with pytest.raises(UnreadableWarehouse, match=file.name):
            compact(paths)
        assert read_snapshot(paths).version == base.version
        assert_nothing_left(paths)
        result = call_command("compact", "--warehouse", paths.root)
        assert_told_in_one_line(result)
        assert file.name in result.stderr


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


def test_a_full_disk_is_told_and_left_as_it_was(base: Base, disk: Disk) -> None:
    """Status 2 with one line, the room given back at once; with room it works."""
    paths = base.copy(disk.path)
    make_folder(paths.cache)
    free = 4
    while True:
        disk.resize(disk.used() + free)
        before = disk.used()
        result = call_command("compact", "--warehouse", paths.root)
        if result.exit_code == 0:
            break
        assert_told_in_one_line(result)
        assert read_snapshot(paths).version == base.version
        named = {file.path for files in read_snapshot(paths).files.values() for file in files}
        assert set(paths.table.glob("collection=*/*")) == named
        assert disk.used() <= before + 64
        free += 16
    assert free > 4
    assert content_of(paths) == base.content
    disk.resize(64 * 1024)
    publish(paths, ["new()"])
    assert_nothing_left(paths)


# Several at once.


def test_a_compactor_with_a_stale_snapshot_is_refused(base: Base, tmp_path: Path) -> None:
    """Should the lock fail, the log refuses who missed a commit: rows cannot double."""
    paths = base.copy(tmp_path)
    stale = read_snapshot(paths)
    publish(paths, ["new()"])
    newest = read_snapshot(paths)
    marks = {collection: stale.high_water[collection].id for collection in COLLECTIONS}
    with pytest.raises(CommitConflict):
        log.append(paths, stale.version, [], marks, {"run": "stale"}, stale.all_files())
    assert read_snapshot(paths) == newest


def test_one_of_two_compactions_at_once_is_refused(base: Base, tmp_path: Path) -> None:
    """Both upon the same version, without a lock: the log takes one."""
    paths = base.copy(tmp_path)
    for number in range(5):
        publish(paths, [f"new{number}()"])
        snapshot = read_snapshot(paths)
        marks = {collection: snapshot.high_water[collection].id for collection in COLLECTIONS}
        replaced = snapshot.files[SIGNATURES][-1:]
        together = threading.Barrier(2)
        won: list[str] = []

        def work(run: str) -> None:
            together.wait()  # noqa: B023 - joined within the round
            try:
                log.append(paths, snapshot.version, [], marks, {"run": run}, replaced)  # noqa: B023
                won.append(run)  # noqa: B023
            except CommitConflict:
                pass

        threads = [threading.Thread(target=work, args=(f"{who}{number}",)) for who in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert read_snapshot(paths).version == snapshot.version + 1


def started(paths: Paths, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments, "--warehouse", paths.root),
        cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=SAFETY_SECONDS)
    assert process.returncode == 0, errors
    return output


def test_compactors_and_importers_in_processes(base: Base, tmp_path: Path) -> None:
    """One of two compactors finds nothing left to do, or what came between; no row is lost or doubled."""
    paths = base.copy(tmp_path)
    before = {collection: places(table) for collection, table in visible(paths).items()}
    lines = tmp_path / "lines.txt"
    new = [f"imported{number}(uint256)" for number in range(5000)]
    lines.write_text("\n".join(new) + "\n")
    processes = [
        started(paths, "compact", "--json"),
        started(paths, "import", lines, "--json", "--quiet"),
        started(paths, "compact", "--all", "--json"),
        started(paths, "fold"),
    ]
    for process in processes:
        finished(process)
    after = {collection: places(table) for collection, table in visible(paths).items()}
    for collection in COLLECTIONS:
        assert before[collection].items() <= after[collection].items()
        assert_sound(visible(paths)[collection])
    assert after[SIGNATURES].keys() - before[SIGNATURES].keys() == set(new)
    kinds = [entry["kind"] for entry in sigdir.open(paths.root).history()][base.version :]
    assert "import" in kinds
    assert 1 <= kinds.count("compact") <= 2
    assert_nothing_left(paths)
    assert content_of(paths, base.version) == base.content


def test_a_second_compactor_does_not_wait_if_told_so(base: Base, tmp_path: Path) -> None:
    """Status 3 and the holder's name, as for an import."""
    paths = base.copy(tmp_path)
    with Publisher(paths):
        result = call_command("compact", "--no-wait", "--warehouse", paths.root)
    assert result.exit_code == 3
    assert "is held by process" in result.stderr


def test_a_reader_sees_every_row_once_while_files_come_and_go(paths: Paths) -> None:
    """Pages walked while rows are folded, merged and vacuumed: whole, in order, nothing missing."""
    publish(paths, names("old", 300))
    acknowledged = set(names("old", 300))
    reader = Reader(paths)
    stopped = threading.Event()
    failures: list[BaseException] = []
    looks: set[tuple[int, int]] = set()

    def watch() -> None:
        try:
            while not stopped.is_set():
                expected = set(acknowledged)
                view = reader.current()
                segments = view.segments[SIGNATURES]
                found = [segment.text_at(row) for segment in segments for row in range(segment.rows)]
                assert len(found) == len(set(found)) == view.count(SIGNATURES)
                assert expected <= set(found)
                ids = np.concatenate([segment.ids[: segment.rows] for segment in segments])
                assert (np.diff(ids) > 0).all()
                looks.add((view.snapshot.version, len(segments)))
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(9):
            for row in stage(paths, SIGNATURES, *names(f"posted{number}_", 3)):
                acknowledged.add(row.text)
            fold(paths)
            if number % 3 == 2:
                compact(paths)
                tidy(paths)
                assert call_command("vacuum", "--keep", "0s", "--warehouse", paths.root).exit_code == 0
    finally:
        stopped.set()
        watcher.join()
        reader.close()
    assert failures == []
    assert len(looks) > 3
    assert set(texts(visible(paths)[SIGNATURES])) == acknowledged
