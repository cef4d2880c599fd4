"""The log is Delta's: another implementation reads what we write, and we read what it writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.log.entry import existing_version
from sigdir.warehouse.log.snapshot import LogTailer, read_snapshot, read_state
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import copied, fold, log_actions, publish, stage


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Ten versions: imports of both collections, folds and a compaction; checkpoints at 4 and 8."""
    paths = Paths(tmp_path_factory.mktemp("delta") / "warehouse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sigdir.warehouse.log.snapshot.CHECKPOINT_VERSIONS", 4)
        for number in range(4):
            publish(paths, [f"f{number}()", f"g{number}()"], [f"E{number}()"])
            stage(paths, SIGNATURES, f"posted{number}()")
            fold(paths)
            if number == 2:
                compact(paths, everything)
        publish(paths, ["last()"])
    assert [file.name[:20] for file in sorted(paths.log.glob("*.parquet"))] == [f"{4:020d}", f"{8:020d}"]
    return paths


@pytest.fixture
def checkpointed(base: Paths, tmp_path: Path) -> Paths:
    return copied(base, tmp_path)


def names_of(files: Iterable[str | Path]) -> set[str]:
    return {Path(file).name for file in files}


def our_files(paths: Paths, version: int | None = None) -> set[str]:
    return names_of(file.path for file in read_state(paths, version).all_files())


def foreign_entry(paths: Paths, *actions: dict[str, Any]) -> None:
    """Commit actions as a program that knows nothing of ours."""
    version = existing_version(paths)
    assert version is not None
    lines = [{"commitInfo": {"timestamp": 1, "operation": "OTHER"}}, *actions]
    paths.log_entry(version + 1).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_deltalake_and_polars_read_every_version(checkpointed: Paths) -> None:
    """The same files at each version, and the same rows at the newest."""
    for version in range(11):
        files = names_of(DeltaTable(checkpointed.table, version=version).file_uris())
        assert files == our_files(checkpointed, version), version
    rows = polars.read_delta(str(checkpointed.table))
    with sigdir.open(checkpointed.root) as warehouse:
        for collection, view in ((SIGNATURES, "signatures"), (EVENT_SIGNATURES, "event_signatures")):
            ours = warehouse.sql(f"SELECT id, text_signature FROM {view} ORDER BY id").rows()
            assert rows.filter(collection=collection).sort("id").select("id", "text_signature").rows() == ours
            assert len(ours) == warehouse.count(collection) > 3


def test_deltalake_begins_at_our_checkpoint(checkpointed: Paths) -> None:
    """Without the entries before it: the files, the watermarks, the table and what was removed."""
    expected = DeltaTable(checkpointed.table).metadata().id
    files = our_files(checkpointed)
    compacted = [action["remove"]["path"] for action in log_actions(checkpointed, 7) if "remove" in action]
    for number in range(8):
        checkpointed.log_entry(number).unlink()
    table = DeltaTable(checkpointed.table)
    assert (table.version(), names_of(table.file_uris())) == (10, files)
    assert (table.metadata().id, table.protocol().min_reader_version) == (expected, 1)
    marks = read_snapshot(checkpointed).high_water
    for collection in COLLECTIONS:
        assert table.transaction_version(f"sigdir:{collection}") == marks[collection].id
    assert our_files(checkpointed) == files
    removed = pq.read_table(checkpointed.checkpoint(8)).column("remove").to_pylist()
    assert sorted(row["path"] for row in removed if row) == sorted(compacted)


def test_a_checkpoint_in_parts_is_passed_over(checkpointed: Paths) -> None:
    """As Spark may write it for a large table: the one before it is read, and the entries."""
    expected = read_snapshot(checkpointed)
    for part in (1, 2):
        (checkpointed.log / f"{8:020d}.checkpoint.{part:010d}.{2:010d}.parquet").write_bytes(b"of no use")
    checkpointed.checkpoint(8).unlink()
    for number in range(4):
        checkpointed.log_entry(number).unlink()
    assert read_snapshot(checkpointed) == expected


def test_rows_that_another_program_adds_and_removes(paths: Paths) -> None:
    """A file of its own, and a file of ours written again without a row; a tailer and a new reader agree."""
    publish(paths, ["f()", "g()"])
    tailer = LogTailer(paths)
    tailer.newest()
    new = DeltaTable(paths.table).to_pyarrow_table().to_pylist()[0] | {"id": 3, "text_signature": "theirs()"}
    schema = pa.schema(DeltaTable(paths.table).schema().to_arrow())
    write_deltalake(paths.table, pa.Table.from_pylist([new], schema), mode="append")
    assert (tailer.newest().count(SIGNATURES), read_snapshot(paths).count(SIGNATURES)) == (3, 3)
    DeltaTable(paths.table).delete("id = 1")
    assert tailer.newest() == read_snapshot(paths)
    assert read_snapshot(paths).count(SIGNATURES) == 2
    assert our_files(paths) == names_of(DeltaTable(paths.table).file_uris())


def test_a_table_that_needs_a_newer_reader_is_refused(paths: Paths) -> None:
    """In one line that says what it needs; the versions before it are read."""
    publish(paths, ["f()"])
    for reader, features, reason in (
        (3, ["deletionVectors"], r"version 3 of Delta's protocol for readers \(deletionVectors\)"),
        (3, ["v2Checkpoint"], "v2Checkpoint"),
        (2, [], "mapped columns"),
    ):
        versions = {"minReaderVersion": reader, "minWriterVersion": 7 if features else 5}
        needs = {"protocol": versions | {"readerFeatures": features, "writerFeatures": features}}
        tailer = LogTailer(paths)
        tailer.newest()
        foreign_entry(paths, needs)
        for read in (tailer.newest, lambda: read_snapshot(paths), lambda: sigdir.open(paths.root)):
            with pytest.raises(UnreadableWarehouse, match=rf"^{paths.table}: [^\n]*{reason}[^\n]*$"):
                read()
        assert read_snapshot(paths, 1).count(SIGNATURES) == 1
        paths.log_entry(2).unlink()


def test_a_table_that_needs_a_newer_writer_is_read_and_not_written(paths: Paths) -> None:
    """deltalake adds a check that each new row must pass; we know no such checks."""
    publish(paths, ["f()"])
    DeltaTable(paths.table).alter.add_constraint({"positive": "id > 0"})
    assert read_snapshot(paths).count(SIGNATURES) == 1
    with pytest.raises(UnreadableWarehouse, match=r"version \d of Delta's protocol for writers; .* only read"):
        publish(paths, ["g()"])
    assert existing_version(paths) == 2


def test_unknown_actions_and_columns_are_ignored(paths: Paths) -> None:
    """A version of another program with an action and a column that we do not know."""
    publish(paths, ["f()"])
    [table] = [action["metaData"] for action in log_actions(paths, 0) if "metaData" in action]
    schema = json.loads(table["schemaString"])
    schema["fields"].append({"name": "note", "type": "string", "nullable": True, "metadata": {}})
    foreign_entry(
        paths, {"domainMetadata": {"domain": "x"}}, {"metaData": table | {"schemaString": json.dumps(schema)}}
    )
    done = publish(paths, ["g()"])
    assert (done.snapshot.count(SIGNATURES), done.import_id) == (2, 2)
    assert set(polars.read_delta(str(paths.table))["text_signature"]) == {"f()", "g()"}
