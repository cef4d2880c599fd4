"""The bytes of log entries; ``warehouse/publish/commit.py`` gives them their names."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from sigdir.signatures.collections import Collection
from sigdir.warehouse.log.actions import (
    COLUMN_TYPES,
    EPOCH,
    READER_VERSION,
    SHA256,
    WRITER_VERSION,
    transaction_name,
)
from sigdir.warehouse.log.damage import FIELD, new_mark, with_digest
from sigdir.warehouse.log.entry import ENGINE, SUMMARY
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.paths import Paths

_PARTITION = ["collection"]


def first_entry() -> bytes:
    """The bytes of entry 0, which makes the table."""
    return _entry(_new_table(), {"operation": "CREATE TABLE", "operationParameters": {}})


def version_entry(
    paths: Paths,
    files: Iterable[DataFile],
    watermarks: Mapping[Collection, int],
    summary: Mapping[str, Any],
    replaced: Iterable[DataFile] = (),
    data_change: bool = True,
) -> bytes:
    """The bytes of the entry of a version, which has ``files`` in place of those of ``replaced``.

    Without ``data_change`` the rows are the same.
    """
    now = _now()
    actions = [
        *(_add(paths, file, now, data_change) for file in sorted(files, key=lambda file: file.first_id)),
        *(_remove(paths, file, now, data_change) for file in replaced),
        *(_watermark(collection, highest, now) for collection, highest in watermarks.items()),
    ]
    commit = {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(_PARTITION)},
        SUMMARY: json.dumps(dict(summary)),
    }
    return _entry(actions, commit)


def _entry(actions: Iterable[Mapping[str, Any]], commit: Mapping[str, Any]) -> bytes:
    """The bytes of an entry; ``commit`` are the fields of its ``commitInfo`` beside time and digest."""
    mark = new_mark()
    info = {"timestamp": _now(), **commit, "engineInfo": ENGINE, FIELD: mark}
    lines = (json.dumps(action, separators=(",", ":")) + "\n" for action in ({"commitInfo": info}, *actions))
    return with_digest("".join(lines).encode(), mark)


def _new_table() -> list[dict[str, Any]]:
    columns = [{"name": name, "type": kind, "nullable": False, "metadata": {}} for name, kind in COLUMN_TYPES.items()]
    table = {
        "id": str(uuid.uuid4()),
        "name": "signatures",
        "description": "Text signatures and their keccak-256 hashes",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": _PARTITION,
        "createdTime": _now(),
        # The log is the history of imports: old entries must stay.
        "configuration": {"delta.enableExpiredLogCleanup": "false"},
    }
    protocol = {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}
    return [{"protocol": protocol}, {"metaData": table}]


def _add(paths: Paths, file: DataFile, now: int, data_change: bool) -> dict[str, Any]:
    stats = {
        "numRecords": file.rows,
        "minValues": {"id": file.first_id, "created_at": _iso(file.first_created_at)},
        "maxValues": {"id": file.last_id, "created_at": _iso(file.last_created_at)},
        "nullCount": {},
    }
    return {
        "add": {
            "path": paths.in_table(file.path),
            "partitionValues": {"collection": file.collection},
            "size": file.size,
            "modificationTime": now,
            "dataChange": data_change,
            "stats": json.dumps(stats),
            "tags": {SHA256: file.sha256},
        }
    }


def _remove(paths: Paths, file: DataFile, now: int, data_change: bool) -> dict[str, Any]:
    return {
        "remove": {
            "path": paths.in_table(file.path),
            "deletionTimestamp": now,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": {"collection": file.collection},
            "size": file.size,
        }
    }


def _watermark(collection: Collection, highest: int, now: int) -> dict[str, Any]:
    return {"txn": {"appId": transaction_name(collection), "version": highest, "lastUpdated": now}}


def _iso(microseconds: int) -> str:
    return (EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
