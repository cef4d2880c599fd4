"""The publish protocol on real folders: when rows become visible, who may publish, what a version contains."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from itertools import count, islice
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish import batch
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.staging.transaction import HighWaterMark, StagedRow
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import Busy, CommitConflict, UnreadableWarehouse
from sigdir.warehouse.table.parquet import FILE_SCHEMA
from sigdir.warehouse.table.paths import Paths
from tests.conftest import SAFETY_SECONDS
from tests.torture.points import AFTER_THE_ENTRY, BEFORE_THE_ENTRY
from tests.warehouse.support import (
    Run,
    assert_clean,
    assert_sequences_ahead,
    assert_sound,
    cut,
    digest_of,
    enter_publisher,
    fold,
    names,
    other_process,
    places,
    publish,
    stage,
    staged_rows,
    table_of,
    texts,
    visible,
)


@pytest.fixture
def many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of about 40 rows, so that an import of hundreds of rows has several."""
    monkeypatch.setattr(batch, "FILE_ROWS", 40)


def version(paths: Paths) -> int:
    return read_snapshot(paths).version


# One publish.


def test_one_version_has_the_rows_of_both_collections(tmp_path: Path) -> None:
    """In the order of the input, with ids from 1, hashes of their collection's width, and times within the import."""
    paths = Paths(tmp_path / "not" / "there" / "p%20c")
    before = time.time_ns() // 1000
    done = publish(paths, names("f", 250), names("E", 120))
    snapshot = read_snapshot(paths)
    assert (snapshot.version, done.import_id) == (1, 1)
    for collection, prefix, rows, width in ((SIGNATURES, "f", 250, 4), (EVENT_SIGNATURES, "E", 120, 32)):
        table = table_of(snapshot, collection)
        assert table.schema == FILE_SCHEMA
        assert texts(table) == names(prefix, rows)
        assert table["id"].to_pylist() == list(range(1, rows + 1))
        assert table["hash"].to_pylist() == [digest_of(text)[:width] for text in texts(table)]
        assert set(table["import_id"].to_pylist()) == {1}
        assert np.diff(table["created_at"].cast(pa.int64()).to_numpy()).tolist() == [1] * (rows - 1)
        assert before <= table["created_at"][-1].value <= time.time_ns() // 1000
        assert snapshot.high_water[collection] == HighWaterMark(rows, table["created_at"][-1].value)
        assert snapshot.count(collection) == rows
    assert_clean(paths)
    publish(paths, ["g()"])
    compact(paths, everything)
    assert texts(visible(paths)[SIGNATURES]) == [*names("f", 250), "g()"]
    assert [folder.name for folder in paths.root.parent.iterdir()] == ["p%20c"], "it is not read as what it stands for"


@pytest.mark.parametrize("sizes", [(0, 0, 10), (20, 20, 0, 0, 20, 20, 0)])
def test_a_batch_without_rows_shifts_nothing(paths: Paths, many_files: None, sizes: tuple[int, ...]) -> None:
    """Ids stay within the reserved range if a block of the input has no candidate; files continue each other's ids."""
    wanted = names("f", sum(sizes))
    rest = iter(wanted)
    with Run(paths, [list(islice(rest, size)) for size in sizes]) as run:
        run.publish()
    files = read_snapshot(paths).files[SIGNATURES]
    assert [file.first_id for file in files[1:]] == [file.last_id + 1 for file in files[:-1]]
    assert stage(paths, SIGNATURES, "next()")[0].id == len(wanted) + 1
    table = visible(paths)[SIGNATURES]
    assert_sound(table)
    assert texts(table) == [*wanted, "next()"]


def test_the_log_has_the_statistics_of_each_file(paths: Paths, many_files: None) -> None:
    """numRecords, size and the least and greatest id and created_at are those of the file, whose metadata has them too."""
    stage(paths, SIGNATURES, "posted()", "posted2()")
    with Run(paths, cut(names("f", 100), 10), [["E()"]]) as run:
        run.publish()
    entries = [json.loads(line) for line in paths.log_entry(1).read_text().splitlines()]
    adds = [entry["add"] for entry in entries if "add" in entry]
    assert len(adds) == 6  # one of folded rows, four of a hundred rows by two threads, one of events
    for add in adds:
        file = paths.table / add["path"]
        assert (add["size"], add["dataChange"]) == (file.stat().st_size, True)
        assert add["partitionValues"] == {"collection": file.parent.name.removeprefix("collection=")}
        with pq.ParquetFile(file) as parquet:
            table = parquet.read()
        stats = json.loads(add["stats"])
        assert stats["numRecords"] == table.num_rows
        for edge, place in (("minValues", 0), ("maxValues", -1)):
            assert stats[edge]["id"] == table["id"][place].as_py()
            moment = table["created_at"][place].as_py()
            assert stats[edge]["created_at"] == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert_clean(paths)
    with pq.ParquetFile(read_snapshot(paths).files[EVENT_SIGNATURES][0].path) as parquet:
        group = parquet.metadata.row_group(0)
    columns = {group.column(k).path_in_schema: group.column(k) for k in range(group.num_columns)}
    assert all(columns[name].statistics.has_min_max for name in ("id", "created_at", "hash"))
    query = f"SELECT DISTINCT bloom_filter_offset FROM parquet_metadata('{paths.table}/*/*.parquet')"
    assert duckdb.connect().execute(query).fetchall() == [(None,)]  # DuckDB 1.5 finds no row by a hash that is there


# Staged rows that fold with an import.


def test_staged_rows_fold_with_an_import(paths: Paths) -> None:
    """Folded rows keep id and time, have import_id 0, and come before the rows of the import, in which they are duplicates."""
    publish(paths, ["old()"])
    posted = stage(paths, SIGNATURES, "z()", "a()", "m()")
    event = stage(paths, EVENT_SIGNATURES, "E()")
    publish(paths, [*names("f", 25), "a()", *names("f", 50)])
    table = table_of(read_snapshot(paths), SIGNATURES)
    assert_sound(table)
    assert texts(table) == ["old()", "z()", "a()", "m()", *names("f", 50)]
    assert table["import_id"].to_pylist() == [1, 0, 0, 0, *[2] * 50]
    where = places(table)
    assert [where[row.text] for row in posted] == [(row.id, row.created_at) for row in posted]
    events = table_of(read_snapshot(paths), EVENT_SIGNATURES)
    assert places(events) == {"E()": (event[0].id, event[0].created_at)}
    assert events["hash"].to_pylist() == [digest_of("E()")]
    assert (staged_rows(paths, SIGNATURES), staged_rows(paths, EVENT_SIGNATURES)) == ([], [])
    first, last = sigdir.open(paths.root).history()
    assert (first["folded"], last["folded"]) == (dict.fromkeys(COLLECTIONS, 0), {SIGNATURES: 3, EVENT_SIGNATURES: 1})
    assert_clean(paths)


def test_a_fold_alone_is_a_version_and_no_import(paths: Paths) -> None:
    """A fold makes a version, takes no import number, and is not among the imports."""
    posted = stage(paths, SIGNATURES, "a()", "b()")
    assert fold(paths).import_id == 0
    warehouse = sigdir.open(paths.root)
    assert warehouse.version == 1
    assert places(table_of(warehouse.snapshot, SIGNATURES)) == {r.text: (r.id, r.created_at) for r in posted}
    assert warehouse.sql("SELECT count(*) FROM imports").rows() == [(0,)]
    assert publish(paths, ["c()"]).import_id == 1
    assert_clean(paths)


# Rows that are POSTed during an import.


@pytest.mark.parametrize(
    "late",
    [
        pytest.param([0, 7, 150, 151, 152, 299], id="the first, the last and in several files"),
        pytest.param([*range(150, 190)], id="more than a whole file"),
        pytest.param([*range(300)], id="all of the batch"),
    ],
)
def test_a_text_posted_between_dedupe_and_publish_keeps_its_id(paths: Paths, many_files: None, late: list[int]) -> None:
    """The row of the batch is dropped, because the POSTed row was acknowledged; in the batch of its collection only."""
    batch = names("f", 300)
    with Run(paths, cut(batch, 10), [["f0(uint256)", "y()"]]) as run:
        posted = stage(paths, SIGNATURES, *(batch[number] for number in late))
        stage(paths, EVENT_SIGNATURES, "y()")
        done = run.publish()
    table = table_of(done.snapshot, SIGNATURES)
    assert_sound(table)
    left = [text for number, text in enumerate(batch) if number not in set(late)]
    assert texts(table) == [*(row.text for row in posted), *left]
    where = places(table)
    assert [where[row.text] for row in posted] == [(row.id, row.created_at) for row in posted]
    assert table["import_id"].to_pylist() == [0] * len(posted) + [1] * len(left)
    assert texts(table_of(done.snapshot, EVENT_SIGNATURES)) == ["y()", "f0(uint256)"]
    entry = sigdir.open(paths.root).history()[-1]
    assert (entry["rows"][SIGNATURES], entry["totals"]["imported"]) == (len(left), len(left) + 1)
    assert_sequences_ahead(paths)
    assert_clean(paths)


def test_a_publish_ends_although_rows_keep_coming(paths: Paths, many_files: None) -> None:
    """A text of the batch is POSTed during each rewrite; the last lookup runs while POSTs wait. Those rows stay staged."""
    batch = names("f", 100)
    late = ["f15(uint256)", "f35(uint256)", "f55(uint256)", "f75(uint256)"]
    wanted = iter(late)
    posted: list[StagedRow] = []
    ticks = count(1)

    def post(_: int) -> None:
        # Once while files are written, then once for each file that is rewritten.
        tick = next(ticks)
        if tick == 1 or tick > 10:
            posted.extend(stage(paths, SIGNATURES, *islice(wanted, 1), f"other{tick}()"))

    with Run(paths, cut(batch, 10), threads=1) as run:
        done = run.publish(progress=post)
    assert {*late} < {row.text for row in posted}
    assert done.snapshot.count(SIGNATURES) == 96
    assert done.snapshot.high_water[SIGNATURES].id == 100
    assert staged_rows(paths, SIGNATURES) == posted
    table = visible(paths)[SIGNATURES]
    assert_sound(table)
    assert texts(table) == [*(text for text in batch if text not in late), *(row.text for row in posted)]
    assert_clean(paths)
    fold(paths)
    assert table_of(read_snapshot(paths), SIGNATURES).to_pylist() == table.to_pylist()


# Readers during a publish.


def test_a_reader_sees_every_text_once_at_each_point(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot and the staged rows above its high water are whole at every failpoint."""
    publish(paths, ["old()"])
    posted = stage(paths, SIGNATURES, "posted()")
    seen: dict[str, list[str]] = {}
    reader = Staging(paths.staging)

    def look(name: str) -> None:
        table = visible(paths, reader)[SIGNATURES]
        assert_sound(table)
        assert places(table)["posted()"] == (posted[0].id, posted[0].created_at)
        seen[name] = texts(table)

    with Run(paths, [["new()", "newer()"]]) as run:
        monkeypatch.setattr(failpoints, "reach", look)
        run.publish()
    reader.close()
    old = ["old()", "posted()"]
    assert seen == dict.fromkeys(BEFORE_THE_ENTRY, old) | {name: [*old, "new()", "newer()"] for name in AFTER_THE_ENTRY}


# Publishers.


def test_a_second_publisher_learns_who_holds_the_lock_or_waits(paths: Paths, tmp_path: Path) -> None:
    """Busy names the holder; one that waits says for whom, and starts from the version of the first."""
    publish(paths, ["f()"])
    message_file = tmp_path / "message"
    with other_process() as pool:
        with Publisher(paths):
            error = pool.submit(enter_publisher, paths.root, False, message_file).result(SAFETY_SECONDS)
            assert error.startswith(f"Busy: {paths.lock} is held by process {os.getpid()} since 20")
            assert "\n" not in error
            with pytest.raises(Busy, match=f"process {os.getpid()}"), Publisher(paths, wait=False):
                pass
        assert version(paths) == 1
        with Run(paths, [["g()"]]) as run:
            second = pool.submit(enter_publisher, paths.root, True, message_file)
            while not message_file.exists() or not message_file.read_text():
                time.sleep(0.02)
                assert not second.done()
            message = message_file.read_text()
            assert message == f"waiting: {paths.lock} is held by process {os.getpid()} " + message[-26:]
            run.publish()
            assert not second.done()
        assert second.result(SAFETY_SECONDS) == "2"


def test_a_publisher_with_a_stale_snapshot_publishes_nothing(paths: Paths) -> None:
    """If the lock fails because its file was deleted, the log refuses the publisher that missed a commit."""
    publish(paths, ["old()"])
    stage(paths, SIGNATURES, "posted()")
    with Run(paths, [["mine()", "stale()"]]) as stale:
        paths.lock.unlink()
        publish(paths, ["mine()", "theirs()"])
        before = {c: table.to_pylist() for c, table in visible(paths).items()}
        with pytest.raises(CommitConflict) as caught:
            stale.publish(rejects=["1bad("])
    assert "\n" not in str(caught.value)
    assert version(paths) == 2
    assert {c: table.to_pylist() for c, table in visible(paths).items()} == before
    publish(paths, ["stale()"])
    table = visible(paths)[SIGNATURES]
    assert_sound(table)
    assert sorted(texts(table)) == ["mine()", "old()", "posted()", "stale()", "theirs()"]
    assert_clean(paths)


def test_a_publish_whose_files_another_publisher_removed_publishes_nothing(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock's file it takes the live run for a dead one; the version would name files that are gone."""
    publish(paths, ["old()"])
    with Run(paths, [["mine()"]]) as run, monkeypatch.context() as patch:

        def enter_another(point: str) -> None:
            if point == "indexed":
                paths.lock.unlink()
                Publisher(paths).__enter__().__exit__()

        patch.setattr(failpoints, "reach", enter_another)
        with pytest.raises(UnreadableWarehouse, match="was removed while this process held it"):
            run.publish()
    assert version(paths) == 1
    assert_clean(paths)


def test_a_publish_that_fails_leaves_nothing(paths: Paths) -> None:
    """Nothing becomes visible, ids are not reused, and the next publish removes the files and has the next import's number."""
    publish(paths, ["old()"])
    before = visible(paths)[SIGNATURES].to_pylist()

    def fail(_: int) -> None:
        raise RuntimeError("no more")

    with Run(paths, [names("f", 50)]) as run, pytest.raises(RuntimeError, match="no more"):
        run.publish(progress=fail)
    assert version(paths) == 1
    assert visible(paths)[SIGNATURES].to_pylist() == before
    assert stage(paths, SIGNATURES, "posted()")[0].id == 52
    paths.log_part(2, "killed").write_bytes(b"{}")
    assert publish(paths, names("f", 50)).import_id == 2
    assert not paths.nameless_entries()
    table = visible(paths)[SIGNATURES]
    assert_sound(table)
    assert texts(table) == ["old()", "posted()", *names("f", 50)]
    assert_clean(paths)


# Without the staging file.


def test_no_id_is_reused_after_restoring_an_older_staging_file(paths: Paths, tmp_path: Path) -> None:
    """An older staging file repeats no id, no time and no import number."""
    publish(paths, names("f", 3))
    stage(paths, SIGNATURES, "posted()")
    with closing(sqlite3.connect(paths.staging)) as staging, closing(sqlite3.connect(tmp_path / "backup")) as backup:
        staging.backup(backup)
    publish(paths, names("g", 3))
    for file in paths.root.glob("staging.sqlite*"):
        file.unlink()
    shutil.copy(tmp_path / "backup", paths.staging)
    assert publish(paths, names("h", 3)).import_id == 3
    table = visible(paths)[SIGNATURES]
    assert_sound(table)
    assert texts(table) == [*names("f", 3), "posted()", *names("g", 3), *names("h", 3)]


# Other readers.


def test_other_readers_see_the_same_rows(tmp_path: Path) -> None:
    """Delta readers and the views agree with the files, whatever the names of the folders; so does a compaction."""
    paths = Paths(tmp_path / "with space" / "it's" / "w[1]" / "st*r" / "id=7" / "ünï" / "100%")
    stage(paths, SIGNATURES, "posted()")
    publish(paths, names("f", 150), names("E", 20))
    publish(paths, names("g", 15))
    for _ in range(2):
        delta = DeltaTable(paths.table.as_uri()).to_pyarrow_table()
        warehouse = sigdir.open(paths.root)
        for collection, view in ((SIGNATURES, "signatures"), (EVENT_SIGNATURES, "event_signatures")):
            own = table_of(warehouse.snapshot, collection).to_pylist()
            assert len(own) > 10
            theirs = delta.filter(pc.equal(delta["collection"], collection)).sort_by("id").drop_columns(["collection"])
            assert theirs.to_pylist() == own
            viewed = warehouse.sql(f"SELECT {', '.join(FILE_SCHEMA.names)} FROM {view} ORDER BY id")
            assert viewed.arrow().to_pylist() == own
        assert warehouse.count(SIGNATURES) == 166
        compact(paths, everything)
