"""Writing log entries: the bytes of an entry, and how it gets its name."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sigdir.signatures.collections import Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import make_folder, sync
from sigdir.warehouse.home import place_entry
from sigdir.warehouse.log.actions import (
    COLUMN_TYPES,
    EPOCH,
    READER_VERSION,
    WRITER_VERSION,
    DataFile,
    transaction_name,
)
from sigdir.warehouse.log.chain import ENGINE, FIELD, Chain, sealed, sha256_of_entry
from sigdir.warehouse.log.entry import SUMMARY
from sigdir.warehouse.parquet import WrittenFile
from sigdir.warehouse.paths import Paths

_PARTITION = ["collection"]


def data_file(file: WrittenFile) -> DataFile:
    """The file as the log describes it after the commit."""
    return DataFile(file.path, file.collection, file.rows, file.size, file.first_id, file.last_id, file.last_created_at)


def append(
    paths: Paths,
    base: int,
    files: Iterable[WrittenFile],
    watermarks: Mapping[Collection, int],
    summary: Mapping[str, Any],
    replaced: Sequence[DataFile] = (),
    *,
    chain: Chain,
    data_change: bool = True,
) -> tuple[int, str]:
    """Commit one version on version ``base`` (-1 for none) and sync it; returns the version and its entry's sha256.

    ``summary`` gets the digests of ``files`` as ``sha256``. ``replaced`` are files of ``base`` that the version does
    not have. Without ``data_change`` their rows are in ``files``. ``chain`` is the end of the log at ``base``. Raises
    CommitConflict if another committed on ``base``, and UnreadableWarehouse where the entry cannot be written.
    """
    files = sorted(files, key=lambda file: file.first_id)
    now = _now()
    actions = [
        *(_add(paths, file, now, data_change) for file in files),
        *(_remove(paths, file, now, data_change) for file in replaced),
        *(_watermark(collection, highest, now) for collection, highest in watermarks.items()),
    ]
    complete = {**summary, "sha256": {paths.in_table(file.path): file.sha256 for file in files}}
    commit = {
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(_PARTITION)},
        SUMMARY: json.dumps(complete),
    }
    try:
        if base < 0:
            make_folder(paths.log)
            first = entry_bytes(_new_table(), {"operation": "CREATE TABLE", "operationParameters": {}}, Chain())
            chain = Chain({0: commit_entry(paths, 0, first)})
        version = max(base, 0) + 1
        return version, commit_entry(paths, version, entry_bytes(actions, commit, chain), summary["run"])
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.table}: the commit cannot be written: {error.strerror}") from error


def entry_bytes(actions: Iterable[Mapping[str, Any]], commit: Mapping[str, Any], chain: Chain) -> bytes:
    """The bytes of the entry after ``chain``; ``commit`` are the fields of its ``commitInfo`` beside time and digests."""
    digests = chain.to_field()
    info = {"timestamp": _now(), **commit, "engineInfo": ENGINE, FIELD: digests}
    lines = (json.dumps(action, separators=(",", ":")) + "\n" for action in ({"commitInfo": info}, *actions))
    return sealed("".join(lines).encode(), digests)


def commit_entry(paths: Paths, version: int, entry: bytes, run: str = "") -> str:
    """Sync an entry and give it its name, in the log and in the warehouse's store; returns the digest of its file.

    ``run`` is the one that wrote its files. Raises CommitConflict if the version is taken, StoreError and OSError.
    """
    part = paths.log_part(version, uuid.uuid4().hex[:8])
    try:
        part.write_bytes(entry)
        sync(part)
        place_entry(paths, version, part, run)
    finally:
        part.unlink(missing_ok=True)
    return sha256_of_entry(entry)


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


def _add(paths: Paths, file: WrittenFile, now: int, data_change: bool) -> dict[str, Any]:
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
