"""Log entries: reading them, each checked against its digest, what their actions say, and the bytes of new ones.

Each file of ours, entry or checkpoint, has in FIELD the sha256 of its bytes without the 64 digits themselves. So a
flipped bit is found by whoever reads the file. Another whole file in its place is not found by it. Damage is reported by
the file's name, in one line, with what to do.

Delta lets a writer put anything into an entry's ``commitInfo`` and into the metadata of a checkpoint's footer. Files of
other programs have no digest. ``warehouse/publish/commit.py`` gives new entries their names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.table.errors import UnreadableWarehouse, first_line
from sigdir.warehouse.table.fields import PARTITION, STORED, DataFile, iso, microseconds, moment
from sigdir.warehouse.table.identity import usable_identity
from sigdir.warehouse.table.paths import Paths

FIELD = "sigdirSha256"


def new_mark() -> str:
    """What stands in the place of the digits until they are known: no other part of a file is like it."""
    return secrets.token_hex(32)


def with_digest(raw: bytes, mark: str) -> bytes:
    """The bytes of a file with its digest in the place of the mark."""
    return raw.replace(mark.encode(), _digest(raw, mark).encode())


def is_whole(raw: bytes, digest: str) -> bool:
    """Whether the bytes of a file are those that were written; ``digest`` is the one that it holds."""
    return _digest(raw, digest) == digest


def _digest(raw: bytes, digits: str) -> str:
    return hashlib.sha256(raw.replace(digits.encode(), b"")).hexdigest()


DAMAGED = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What parsing raises where JSON is not of the expected shape."""

RESTORE = "put this file back from a backup"


def damaged_entry(path: Path, why: str) -> UnreadableWarehouse:
    """The error for an entry that cannot be used."""
    return UnreadableWarehouse(f"{path}: damaged: {why}; {RESTORE}")


@contextmanager
def naming_damaged(path: Path) -> Iterator[None]:
    """Raise UnreadableWarehouse for what an entry's JSON lacks, with the entry's file."""
    try:
        yield
    except DAMAGED as error:
        raise damaged_entry(path, f"{type(error).__name__}: {first_line(error)}") from error


def damaged_checkpoint(paths: Paths, file: Path, error: Exception) -> UnreadableWarehouse:
    """The error for a checkpoint that cannot be used."""
    return UnreadableWarehouse(
        f"{file}: damaged: {first_line(error)}; remove this file and {paths.last_checkpoint.name} beside it,"
        " because the entries have what is in it"
    )


SUMMARY = "sigdir"
"""The field of ``commitInfo`` that holds our summary."""

ENGINE = "signature-directory"
"""The ``engineInfo`` of our entries, which all have a digest."""

_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version's entry: what its commit added, removed and recorded.

    ``summary`` is None if the commit is not one of ours, and in entry 0. ``writer_version`` is None where the commit
    does not change it.
    """

    version: int
    committed_at: datetime
    added: tuple[DataFile, ...]
    removed: tuple[Path, ...]
    watermarks: Mapping[Collection, int]
    writer_version: int | None
    summary: dict[str, Any] | None


def existing_version(paths: Paths, version: int | None = None) -> int | None:
    """The newest version, or ``version`` if the log has it; None if there is no table yet. Raises UnreadableWarehouse."""
    if paths.root.exists() and not paths.root.is_dir():
        raise UnreadableWarehouse(f"{paths.root} is a file, not a warehouse's folder")
    usable_identity(paths)
    if version is not None and (version < 0 or not paths.log_entry(version).exists()):
        raise UnreadableWarehouse(f"{paths.root} has no version {version}")
    if version is not None:
        return version
    with suppress(FileNotFoundError):
        return max((int(found[1]) for found in map(_ENTRY.fullmatch, os.listdir(paths.log)) if found), default=None)
    return None


def read_entry(paths: Paths, version: int) -> LogEntry:
    """Parse a version's entry; raises UnreadableWarehouse, naming the file."""
    actions, commit = _read(paths, version)
    with naming_damaged(paths.log_entry(version)):
        changes = changes_of(paths, actions)
        return LogEntry(
            version, _committed_at(commit), tuple(changes.added), tuple(changes.removed), changes.watermarks,
            changes.writer_version, _summary(version, commit),
        )  # fmt: skip


def read_entries(paths: Paths, last: int) -> Iterator[LogEntry]:
    """The entries from the oldest up to version ``last``; raises UnreadableWarehouse."""
    return (read_entry(paths, version) for version in range(last + 1))


def read_summary(paths: Paths, version: int) -> dict[str, Any] | None:
    """A commit's summary, without parsing the rest of its entry; None if it is not one of ours.

    ``version`` and ``committed_at`` (a UTC datetime) are added. Raises UnreadableWarehouse.
    """
    _, commit = _read(paths, version, containing=b"commitInfo")
    with naming_damaged(paths.log_entry(version)):
        return _summary(version, commit)


def read_actions(paths: Paths, version: int) -> list[dict[str, Any]]:
    """An entry's actions as its JSON has them; raises UnreadableWarehouse."""
    return _read(paths, version)[0]


def sha256_of_entry(paths: Paths, version: int) -> str:
    """The digest of an entry's file, in hex; raises UnreadableWarehouse."""
    return hashlib.sha256(_bytes_of(paths.log_entry(version))).hexdigest()


def _read(paths: Paths, version: int, containing: bytes = b"") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The actions of an entry, those whose lines contain some bytes, and its ``commitInfo``.

    The entry's bytes are compared with its digest. Raises UnreadableWarehouse.
    """
    path = paths.log_entry(version)
    raw = _bytes_of(path)
    with naming_damaged(path):
        actions = [json.loads(line) for line in raw.splitlines() if containing in line]
        commits: list[dict[str, Any]] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        if not commits:
            raise damaged_entry(path, "it holds no commit")
        digest = commits[0].get(FIELD)
        if digest is None and commits[0].get("engineInfo") == ENGINE:
            raise damaged_entry(path, "it has no digest")
        if digest is not None and not is_whole(raw, digest):
            raise damaged_entry(path, "not the bytes that were written")
    return actions, commits[0]


def _bytes_of(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except PermissionError as error:
        advice = "this user may not read it; run every command as the user of the server"
        raise UnreadableWarehouse(f"{path}: {error.strerror}: {advice}") from error
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}; {RESTORE}") from error
    if not raw:
        raise UnreadableWarehouse(f"{path} is empty; {RESTORE}")
    return raw


def _summary(version: int, commit: Mapping[str, Any]) -> dict[str, Any] | None:
    if SUMMARY not in commit:
        return None
    summary: dict[str, Any] = json.loads(commit[SUMMARY])
    return summary | {"version": version, "committed_at": _committed_at(commit)}


def _committed_at(commit: Mapping[str, Any]) -> datetime:
    return moment(1000 * commit["timestamp"])


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
        *(_watermark_action(collection, highest, now) for collection, highest in watermarks.items()),
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
        "minValues": {"id": file.first_id, "created_at": iso(moment(file.first_created_at), "microseconds")},
        "maxValues": {"id": file.last_id, "created_at": iso(moment(file.last_created_at), "microseconds")},
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


def _watermark_action(collection: Collection, highest: int, now: int) -> dict[str, Any]:
    return {"txn": {"appId": transaction_name(collection), "version": highest, "lastUpdated": now}}


def _now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


# What actions say.

READER_VERSION = 1
"""Delta's protocol for readers. From 2 on a table may have mapped columns, from 3 on deletion vectors and the like."""

WRITER_VERSION = 2
"""Delta's protocol for writers. From 3 on a writer may have to check or compute values that it does not know."""

SHA256 = "sha256"
"""The tag of an ``add`` that holds the digest of the data file."""

COLUMN_TYPES: Final = {field.name: field.type.delta for field in (PARTITION, *STORED)}
"""The table's columns and their types as Delta names them."""


@dataclass(slots=True)
class LogChanges:
    """What actions add, remove and record. ``writer_version`` is that of ``protocol``."""

    added: list[DataFile] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    watermarks: dict[Collection, int] = field(default_factory=dict)
    writer_version: int | None = None


def changes_of(paths: Paths, actions: Iterable[Mapping[str, Any]]) -> LogChanges:
    """Read actions. Kinds that are not known are ignored, as Delta demands: ``protocol`` says what a reader must know.

    Raises UnreadableWarehouse for a table that this program cannot read, and the errors in ``DAMAGED`` for an action
    of another shape.
    """
    changes = LogChanges()
    for action in actions:
        ((kind, values),) = action.items()
        if kind == "add":
            changes.added.append(_added_file(paths, values))
        elif kind == "remove":
            changes.removed.append(paths.table / unquote(values["path"]))
        elif kind == "txn":
            changes.watermarks |= _watermark(values)
        elif kind == "protocol":
            changes.writer_version = _writer_version(paths, values)
        elif kind == "metaData":
            _require_table_of_signatures(paths, values)
    return changes


def transaction_name(collection: Collection) -> str:
    """The name under which a commit records a collection's watermark."""
    return f"sigdir:{collection}"


_WATERMARKS = {transaction_name(collection): collection for collection in COLLECTIONS}


def _added_file(paths: Paths, add: Mapping[str, Any]) -> DataFile:
    stats = json.loads(add["stats"])
    return DataFile(
        path=paths.table / unquote(add["path"]),
        collection=Collection.of_name(add["partitionValues"]["collection"]),
        rows=stats["numRecords"],
        size=add["size"],
        first_id=stats["minValues"]["id"],
        last_id=stats["maxValues"]["id"],
        first_created_at=microseconds(datetime.fromisoformat(stats["minValues"]["created_at"])),
        last_created_at=microseconds(datetime.fromisoformat(stats["maxValues"]["created_at"])),
        sha256=(add.get("tags") or {}).get(SHA256),
    )


def _watermark(transaction: Mapping[str, Any]) -> dict[Collection, int]:
    collection = _WATERMARKS.get(transaction["appId"])
    return {collection: index(transaction["version"])} if collection is not None else {}


def _writer_version(paths: Paths, protocol: Mapping[str, Any]) -> int:
    needed = index(protocol["minReaderVersion"])
    if needed > READER_VERSION:
        features = ", ".join(map(str, protocol.get("readerFeatures") or ())) or "mapped columns"
        raise UnreadableWarehouse(
            f"{paths.table}: another program changed the table to version {needed} of Delta's protocol for readers"
            f" ({features}); this program reads version {READER_VERSION}"
        )
    return index(protocol["minWriterVersion"])


def _require_table_of_signatures(paths: Paths, table: Mapping[str, Any]) -> None:
    types = {column["name"]: column["type"] for column in json.loads(table["schemaString"])["fields"]}
    if table["partitionColumns"] != ["collection"] or not COLUMN_TYPES.items() <= types.items():
        raise UnreadableWarehouse(f"{paths.table}: not a table of signatures: its columns are {', '.join(types)}")
