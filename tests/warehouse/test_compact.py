"""Compaction: the same rows in fewer files, with readers, publishers and kills at the same time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sigdir
from sigdir.serve.servers.upkeep import Upkeep
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.compact import GATHER, SMALL_ROWS, Choose, Files, compact, due, everything, small
from sigdir.warehouse.index.view import Reader, unused_indexes
from sigdir.warehouse.log import snapshot
from sigdir.warehouse.log.entry import read_actions
from sigdir.warehouse.log.snapshot import LogTailer, Snapshot, read_snapshot
from sigdir.warehouse.publish.batch import FILE_ROWS
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import make_folder
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.vacuum import vacuum
from tests.conftest import empty_warehouse
from tests.examples import long_except
from tests.warehouse.support import (
    Disk,
    assert_clean,
    assert_fails_in_one_line,
    assert_sequences_ahead,
    call_command,
    content_of,
    copied,
    failures,
    flip,
    fold,
    log_actions,
    names,
    publish,
    served_texts,
    stage,
    staged_rows,
    texts,
    visible,
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A warehouse of many files, which each test copies: imports with rejects, folds of one and of both collections, and staged rows."""
    paths = Paths(tmp_path_factory.mktemp("base") / "warehouse")
    publish(paths, names("first", 250), names("First", 30), rejects=["1bad("])
    for number in range(4):
        stage(paths, SIGNATURES, *names(f"posted{number}_", number + 1))
        if number % 2:
            stage(paths, EVENT_SIGNATURES, f"Posted{number}()")
        fold(paths)
        publish(paths, names(f"more{number}_", 5), rejects=[f"{number}bad("])
    stage(paths, SIGNATURES, "staged()", "stagedToo()")
    stage(paths, EVENT_SIGNATURES, "Staged()")
    return paths


def file_counts(paths: Paths) -> dict[Collection, int]:
    return {collection: len(files) for collection, files in read_snapshot(paths).files.items()}


def served(reader: Reader) -> list[tuple[int, int, str, bytes]]:
    """The rows that a server has."""
    return [
        (segment.ids[row], segment.created_at[row], segment.text_at(row), segment.hash[row].tobytes())
        for segments in reader.refreshed().segments.values()
        for segment in segments
        for row in range(segment.rows)
    ]


def data_files(paths: Paths) -> set[Path]:
    return {*paths.table.glob("collection=*/*")}


# The choice of files.


def files_with(rows: Sequence[int]) -> list[DataFile]:
    """Files with these numbers of rows, one after another."""
    edges = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]).tolist()
    return [
        DataFile(Path(f"{number}.parquet"), SIGNATURES, last - first, 10, first + 1, last, first + 1, last)
        for number, (first, last) in enumerate(pairwise(edges))
    ]


def merged(files: Files, pieces: Sequence[Files]) -> list[DataFile]:
    """The files after a compaction. Asserts that each piece is a run of neighbours and no file is in two pieces."""
    left = list(files)
    for piece in pieces:
        at = left.index(piece[0])
        assert left[at : at + len(piece)] == list(piece)
        left[at : at + len(piece)] = [replace(piece[0], rows=sum(file.rows for file in piece))]
    return left


sizes = st.lists(
    st.integers(1, 9) | st.integers(1, SMALL_ROWS) | st.sampled_from([SMALL_ROWS, SMALL_ROWS - 1, FILE_ROWS])
    | st.integers(SMALL_ROWS, 2 * FILE_ROWS),
    max_size=40,
)  # fmt: skip


@given(sizes, st.sampled_from([small, everything, due]))
def test_neighbours_are_merged_into_files_of_bounded_size(rows: list[int], choose: Choose) -> None:
    """Any choice merges neighbours that fit into a file, and leaves none; only ``everything`` rewrites large files."""
    files = files_with(rows)
    pieces = choose(files)
    assert all(len(piece) >= 2 and sum(file.rows for file in piece) <= FILE_ROWS for piece in pieces)
    after = merged(files, pieces)
    if choose is not due:
        assert choose(after) == []
        neighbours = [pair for pair in pairwise(after) if max(file.rows for file in pair) < SMALL_ROWS]
        assert all(sum(file.rows for file in pair) > FILE_ROWS for pair in neighbours)
    if choose is not everything:
        assert all(file.rows < SMALL_ROWS for piece in pieces for file in piece)


@pytest.mark.parametrize("rows_of_a_fold", long_except({30}, [1, 30, 2000]))
def test_folds_for_days_leave_few_files_and_little_work(rows_of_a_fold: int) -> None:
    """The figures of the module hold: at most 27 small files per collection, each row written a few times."""
    files: list[DataFile] = []
    written = most = 0
    folds = 2000
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


def test_no_row_changes(base: Paths, tmp_path: Path) -> None:
    """Ids, times, texts, hashes, import numbers and order stay the same in the files and for a server."""
    paths = copied(base, tmp_path)
    with closing(Reader(paths)) as reader:
        before = served(reader)
        done = compact(paths)
        assert served(reader) == before
    with closing(Reader(paths)) as fresh:
        assert served(fresh) == before
    assert done is not None
    assert (done.snapshot.version, done.snapshot) == (read_snapshot(base).version + 1, read_snapshot(paths))
    assert file_counts(paths) == {SIGNATURES: 1, EVENT_SIGNATURES: 1}
    assert content_of(paths) == content_of(base)
    for collection in COLLECTIONS:
        assert staged_rows(paths, collection) == staged_rows(base, collection)
    assert_sequences_ahead(paths)
    vacuum(paths, timedelta())
    assert_clean(paths)


def test_nothing_to_compact_makes_no_version(paths: Paths) -> None:
    """Compacting a missing folder, one file, or a compacted table makes no version."""
    assert compact(paths) is None
    assert not paths.root.exists()
    publish(paths, ["f()"], ["E()"])
    assert compact(paths) is None
    publish(paths, ["g()"])
    assert compact(paths) is not None
    assert compact(paths) is None
    assert compact(paths, everything) is None
    assert read_snapshot(paths).version == 3


def test_a_large_file_is_cut_into_row_groups(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merged file has full row groups, whatever the sizes of the merged files and of the reads are."""
    monkeypatch.setattr("sigdir.warehouse.table.parquet.ROW_GROUP_ROWS", 100)
    monkeypatch.setattr("sigdir.warehouse.table.parquet._PIECE_ROWS", 40)
    for number in range(4):
        publish(paths, names(f"f{number}_", 65))
    before = content_of(paths)
    compact(paths)
    (file,) = read_snapshot(paths).files[SIGNATURES]
    with pq.ParquetFile(file.path) as parquet:
        groups = parquet.metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [100, 100, 60]
    assert content_of(paths) == before


# Reports.


def test_history_has_a_compaction_and_imports_do_not(base: Paths, tmp_path: Path) -> None:
    """It has its own entry, whose actions change no data; imports, rejects and counts stay."""
    paths = copied(base, tmp_path)
    version = read_snapshot(paths).version
    queries = [
        "SELECT * FROM imports ORDER BY import_id",
        "SELECT * FROM rejects ORDER BY import_id, line",
        "SELECT count(*), max(id), max(created_at) FROM signatures",
    ]
    warehouse = sigdir.open(paths.root)
    before = [warehouse.sql(query).rows() for query in queries]
    done = call_command("compact", "--json", "--warehouse", paths.root)
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["version"] == version + 1
    assert report["collections"][EVENT_SIGNATURES]["files_before"] == 3
    old, warehouse = warehouse.snapshot, sigdir.open(paths.root)
    assert [warehouse.sql(query).rows() for query in queries] == before
    entry = warehouse.history()[-1]
    assert (entry["kind"], entry["version"]) == ("compact", version + 1)
    assert entry["collections"][SIGNATURES] == {
        "files_before": 9, "files_after": 1, "rows": len(content_of(base)[SIGNATURES])
    }  # fmt: skip
    assert {"import", "totals", "sources", "folded"}.isdisjoint(entry)

    actions = log_actions(paths, version + 1)
    adds, removes = ([action[kind] for action in actions if kind in action] for kind in ("add", "remove"))
    assert {paths.table / remove["path"] for remove in removes} == {f.path for fs in old.files.values() for f in fs}
    assert len(adds) == 2
    assert not any(action["dataChange"] for action in [*adds, *removes])
    assert read_snapshot(paths).high_water == old.high_water

    again = call_command("compact", "--warehouse", paths.root)
    assert (again.exit_code, again.stdout) == (0, "nothing to compact\n")
    assert json.loads(call_command("compact", "--json", "--warehouse", paths.root).stdout)["version"] is None
    publish(paths, ["new()"])
    assert call_command("compact", "--warehouse", paths.root).stdout.startswith(f"version {version + 3} published")
    publish(paths, ["newer()"])
    rows = read_snapshot(paths).count(SIGNATURES)
    lines = [f"version {version + 5} published", f"signatures              2 files -> 1, {rows} rows written again"]
    assert call_command("compact", "--warehouse", paths.root).stdout.splitlines() == lines  # events have one file


def test_checkpoints_are_written_beside_the_commit(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third version has a checkpoint, written without blocking POSTs; rows and history are the same."""
    monkeypatch.setattr(snapshot, "CHECKPOINT_VERSIONS", 3)

    def read_unblocked(paths: Paths, version: int) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(paths.staging, timeout=0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # fails where a transaction is open
        return read_actions(paths, version)

    monkeypatch.setattr(snapshot, "read_actions", read_unblocked)
    for number in range(2):
        publish(paths, [f"f{number}()"], [f"E{number}()"])
        publish(paths, [f"g{number}()"])
        compact(paths)
    assert len(list(paths.log.glob("*.checkpoint.parquet"))) == 2
    assert [entry["version"] for entry in sigdir.open(paths.root).history()] == list(range(1, 7))
    assert texts(visible(paths)[SIGNATURES]) == ["f0()", "g0()", "f1()", "g1()"]


# Servers.


def test_indexes_are_built_before_the_commit(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server uses the folder, each new file has its index at the commit; otherwise none is built."""
    for number in range(2):
        publish(paths, [f"f{number}()"], [f"E{number}()"])
    compact(paths)
    assert not paths.cache.exists()
    publish(paths, ["new()"], ["New()"])
    make_folder(paths.cache)
    seen: list[Path] = []

    def check(name: str) -> None:
        if name == "committed":
            snapshot = read_snapshot(paths)
            seen.extend(paths.index(c, file.path) for c in COLLECTIONS for file in snapshot.files[c])
            assert all(folder.is_dir() for folder in seen)

    monkeypatch.setattr("sigdir.warehouse.table.failpoints.reach", check)
    compact(paths)
    assert len(seen) == 2


def test_a_server_retries_when_its_files_are_vacuumed(
    base: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose files are compacted and vacuumed after it read the log takes the newer version."""
    paths = copied(base, tmp_path)
    calls: list[int] = []

    class OvertakenTailer(LogTailer):
        def newest(self) -> Snapshot:
            snapshot = super().newest()
            if not calls:
                compact(paths)
                for files in snapshot.files.values():
                    for file in files:
                        file.path.unlink()
            calls.append(snapshot.version)
            return snapshot

    monkeypatch.setattr("sigdir.warehouse.index.view.LogTailer", OvertakenTailer)
    with closing(Reader(paths)) as reader:
        assert calls == [read_snapshot(base).version, read_snapshot(base).version + 1]
        for collection in COLLECTIONS:
            assert served_texts(reader.current(), collection) == texts(visible(paths)[collection])


def test_a_server_folds_and_merges_by_itself(paths: Paths) -> None:
    """The round that makes the tenth small file merges them; a round with a busy lock does nothing."""
    empty_warehouse(paths.root)
    upkeep = Upkeep(paths)
    upkeep.run_once()
    for number in range(GATHER):
        stage(paths, SIGNATURES, f"posted{number}()")
        upkeep.run_once()
        assert file_counts(paths)[SIGNATURES] == (number + 1) % GATHER + number // (GATHER - 1)
    assert [entry["kind"] for entry in sigdir.open(paths.root).history()] == ["fold"] * GATHER + ["compact"]
    assert texts(visible(paths)[SIGNATURES]) == [f"posted{number}()" for number in range(GATHER)]
    stage(paths, SIGNATURES, "posted()")
    with Publisher(paths):
        upkeep.run_once()
    assert len(staged_rows(paths, SIGNATURES)) == 1
    upkeep.run_once()
    assert staged_rows(paths, SIGNATURES) == []


def test_a_server_removes_unused_indexes_whoever_merged(paths: Paths) -> None:
    """After a compaction of another process the next round does it, or the one after a busy lock."""
    make_folder(paths.cache)
    upkeep = Upkeep(paths)
    publish(paths, ["f()"])
    publish(paths, ["g()"])
    upkeep.run_once()
    compact(paths)
    paths.compile_lock.touch()  # a worker may hold it
    with Publisher(paths):
        upkeep.run_once()
    assert unused_indexes(paths, read_snapshot(paths)) != []
    upkeep.run_once()
    assert unused_indexes(paths, read_snapshot(paths)) == []
    assert paths.compile_lock.exists()


# Crashes.


def test_a_damaged_file_is_named_and_nothing_changes(base: Paths, tmp_path: Path) -> None:
    """A file with a flipped byte, a truncated one or a missing one stops the compaction, which leaves no files."""
    paths = copied(base, tmp_path)
    file = read_snapshot(paths).files[SIGNATURES][0].path
    files = data_files(paths)
    whole = file.read_bytes()
    for damage in (lambda: flip(file, len(whole) // 3), lambda: file.write_bytes(whole[:-200]), file.unlink):
        damage()
        assert_fails_in_one_line(call_command("compact", "--warehouse", paths.root), file.name)
        assert read_snapshot(paths).version == read_snapshot(base).version
        assert data_files(paths) | {file} == files


def test_a_full_disk_ends_the_command_in_one_line(base: Paths, disk: Disk) -> None:
    """The command ends with status 2 and frees its space at once; with enough room it succeeds."""
    paths = copied(base, disk.path)
    make_folder(paths.cache)
    files, used = data_files(paths), disk.used()
    for _ in failures(disk, "compact", "--warehouse", paths.root):
        assert read_snapshot(paths).version == read_snapshot(base).version
        assert data_files(paths) == files
        assert disk.used() <= used + 64
    assert content_of(paths) == content_of(base)
    publish(paths, ["new()"])
    vacuum(paths, timedelta())
    assert_clean(paths)
