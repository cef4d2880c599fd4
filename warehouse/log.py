"""The table's log: the only module that knows Delta's JSON and the library that writes it.

Invariants
    An entry is never changed, and its version number is never given twice: it is linked into place, and a link
    fails where the name is taken.
    An entry has its name only once its bytes are on stable storage: an entry without bytes would end the log.
    Entries are never cleaned up: they are the history of imports.

An entry is one file of JSON lines, one action a line. We write four kinds:

- ``add``: a data file with its size, its partition and statistics (rows, smallest and largest id and time);
- ``remove``: a data file that compaction replaced;
- ``txn``: a collection's watermark, its highest id, under the name ``sigdir:<collection>``;
- ``commitInfo``: the time, and our summary as JSON in the field ``sigdir``.

Entry 0 makes the table (``protocol`` and ``metaData``) and has no summary. deltalake opens a version, which may
start at a checkpoint; everything about single commits is read from the entries here. deltalake gives the history
too, but numbers it wrongly for a table that was opened at an older version (1.6).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.errors import CommitConflict, UnreadableWarehouse
from sigdir.warehouse.files import make_folder, run_name, sync
from sigdir.warehouse.identity import usable_identity
from sigdir.warehouse.parquet import WrittenFile
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.schema import TABLE_SCHEMA

CHECKPOINT_VERSIONS = 100
"""A checkpoint is written every so many versions."""

_SUMMARY_KEY = "sigdir"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHECKED_ENTRIES = 200  # some more than lie after the last checkpoint: 0.3 ms

_DAMAGED = (AttributeError, KeyError, TypeError, ValueError)
"""What parsing raises where an entry's JSON is not of the expected shape."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table. Ids are inclusive; they rise inside it but may have gaps.

    ``size`` is in bytes, ``last_created_at`` in microseconds since 1970, UTC.
    """

    path: Path
    collection: Collection
    rows: int
    size: int
    first_id: int
    last_id: int
    last_created_at: int


@dataclass(frozen=True, slots=True)
class TableState:
    """The table at one version: its data files by their paths, and each collection's watermark."""

    version: int
    files: Mapping[Path, DataFile]
    watermarks: Mapping[Collection, int]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version's entry: what its commit added, removed and recorded.

    ``summary`` is None if the commit is not one of ours, and in entry 0. ``has_foreign_actions`` is set if
    the entry holds actions that our commits never write.
    """

    version: int
    committed_at: datetime
    added: tuple[DataFile, ...]
    removed: tuple[Path, ...]
    watermarks: Mapping[Collection, int]
    summary: dict[str, Any] | None
    has_foreign_actions: bool


# Reading a state.


def open_table(paths: Paths, version: int | None = None) -> DeltaTable | None:
    """The Delta table at a version, the newest by default; None if there is none yet. Raises UnreadableWarehouse."""
    if paths.root.exists() and not paths.root.is_dir():
        raise UnreadableWarehouse(f"{paths.root} is a file, not a warehouse's folder")
    usable_identity(paths)
    # Given a version that is far away, deltalake would look for all the entries up to it.
    if version is not None and (version < 0 or not paths.log_entry(version).exists()):
        raise UnreadableWarehouse(f"{paths.root} has no version {version}")
    if not paths.log.is_dir():
        return None
    try:
        return DeltaTable(paths.table, version=version)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableWarehouse(f"{paths.table}: the log cannot be read: {reason}") from error


def read_state(paths: Paths, version: int | None = None) -> TableState | None:
    """The state at a version, the newest by default; None if there is no table yet. Raises UnreadableWarehouse."""
    table = open_table(paths, version)
    if table is None:
        return None
    _refuse_empty_entries(paths, table.version())
    try:
        files = {file.path: file for file in _files_of(paths, table)}
        watermarks = {c: table.transaction_version(_transaction_name(c)) or 0 for c in COLLECTIONS}
    except (DeltaError, *_DAMAGED) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableWarehouse(f"{paths.table}: not a table of signatures: {reason}") from error
    return TableState(table.version(), files, watermarks)


def advance(paths: Paths, state: TableState) -> TableState | None:
    """The newest state, by the entries after ``state``; None if one of them is not ours. Raises UnreadableWarehouse."""
    files, watermarks, version = dict(state.files), dict(state.watermarks), state.version
    while paths.log_entry(version + 1).exists():
        version += 1
        entry = read_entry(paths, version)
        if entry.summary is None or entry.has_foreign_actions or not files.keys() >= set(entry.removed):
            return None
        files |= {file.path: file for file in entry.added}
        for path in entry.removed:
            del files[path]
        watermarks |= entry.watermarks
    return TableState(version, files, watermarks) if version > state.version else state


def _files_of(paths: Paths, table: DeltaTable) -> Iterator[DataFile]:
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    # Times as microseconds: for a datetime pyarrow loads pandas, a quarter of a second of a start.
    kinds = [field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in actions.schema]
    for action in actions.cast(pa.schema(kinds)).to_pylist():
        yield DataFile(
            path=paths.table / action["path"],
            collection=Collection.of_name(action["partition.collection"]),
            rows=action["num_records"],
            size=action["size_bytes"],
            first_id=action["min.id"],
            last_id=action["max.id"],
            last_created_at=int(action["max.created_at"]),
        )


def _refuse_empty_entries(paths: Paths, version: int) -> None:
    """Raise UnreadableWarehouse for an entry that lost its bytes: deltalake reads it as a version without changes."""
    for number in range(version, max(version - _CHECKED_ENTRIES, -1), -1):
        entry = paths.log_entry(number)
        with suppress(FileNotFoundError):  # a checkpoint has what was in it
            if entry.stat().st_size == 0:
                raise UnreadableWarehouse(f"{entry} is empty")


def _transaction_name(collection: Collection) -> str:
    """The name under which a commit records a collection's watermark."""
    return f"sigdir:{collection}"


_WATERMARKS = {_transaction_name(collection): collection for collection in COLLECTIONS}


# Reading entries.


def read_entry(paths: Paths, version: int) -> LogEntry:
    """Parse a version's entry; raises UnreadableWarehouse, naming the file."""
    path = paths.log_entry(version)
    actions = _actions(path)
    try:
        added: list[DataFile] = []
        removed: list[Path] = []
        watermarks: dict[Collection, int] = {}
        commit, is_foreign = None, False
        for action in actions:
            ((kind, values),) = action.items()
            if kind == "add":
                added.append(_added_file(paths, values))
            elif kind == "remove":
                removed.append(paths.table / unquote(values["path"]))
            elif kind == "txn":
                watermarks |= _watermark(values)
            elif kind == "commitInfo":
                commit = values
            else:
                is_foreign = True
        if commit is None:
            raise UnreadableWarehouse(f"{path}: holds no commit")
        return LogEntry(
            version, _committed_at(commit), tuple(added), tuple(removed), watermarks, _summary(version, commit),
            is_foreign,
        )  # fmt: skip
    except _DAMAGED as error:
        raise UnreadableWarehouse(f"{path}: damaged: {type(error).__name__}: {error}") from error


def read_entries(paths: Paths, last: int) -> Iterator[LogEntry]:
    """The entries from the oldest up to version ``last``; raises UnreadableWarehouse."""
    return (read_entry(paths, version) for version in range(last + 1))


def read_summary(paths: Paths, version: int) -> dict[str, Any] | None:
    """A commit's summary, without parsing the rest of its entry; None if it is not one of ours.

    ``version`` and ``committed_at`` (a UTC datetime) are added. Raises UnreadableWarehouse.
    """
    path = paths.log_entry(version)
    try:
        commits = [
            action["commitInfo"] for action in _actions(path, containing=b"commitInfo") if "commitInfo" in action
        ]
        return _summary(version, commits[0]) if commits else None
    except _DAMAGED as error:
        raise UnreadableWarehouse(f"{path}: damaged: {type(error).__name__}: {error}") from error


def history(paths: Paths, version: int | None = None, newest: int | None = None) -> list[dict[str, Any]]:
    """The summaries of the commits up to ``version``, oldest first; of the ``newest`` N versions if given.

    Each is what ``read_summary`` gives. Raises UnreadableWarehouse.
    """
    table = open_table(paths, version)
    if table is None:
        return []
    last = table.version()
    first = max(0, last + 1 - newest) if newest is not None else 0
    summaries = (read_summary(paths, number) for number in range(first, last + 1))
    return [summary for summary in summaries if summary is not None]


def newest_run(paths: Paths) -> str | None:
    """The run that committed the newest version."""
    newest = history(paths, newest=1)
    return newest[-1].get("run") if newest else None


def last_import(paths: Paths) -> int:
    """The number of the newest import, 0 for none. Reads the log from its end up to that import."""
    table = open_table(paths)
    for number in range(table.version(), -1, -1) if table is not None else ():
        summary = read_summary(paths, number)
        if summary is not None and "import" in summary:
            return int(summary["import"])
    return 0


class Summaries:
    """The summaries of one log, each read at most once: an entry never changes."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._read: dict[int, dict[str, Any] | None] = {}

    def at(self, version: int) -> dict[str, Any] | None:
        """What ``read_summary`` gives; raises UnreadableWarehouse."""
        if version not in self._read:
            self._read[version] = read_summary(self._paths, version)
        return self._read[version]

    def first_since(self, milliseconds: int, newest: int) -> int:
        """The first version up to ``newest`` committed at or after a time since 1970; ``newest`` + 1 where none is.

        Found by bisection: of a log of 10,000 versions 14 entries are read. Commits that are not ours count as
        earlier. Raises UnreadableWarehouse.
        """
        return bisect_left(range(newest + 1), milliseconds, key=self._committed_at)

    def _committed_at(self, version: int) -> int:
        summary = self.at(version)
        return round(summary["committed_at"].timestamp() * 1000) if summary else 0


def version_at(paths: Paths, time: datetime) -> int | None:
    """The version that was the newest at a time (UTC where it has no zone); None if there is no table.

    Version 0, which has no rows, where nothing was published by then. Raises UnreadableWarehouse.
    """
    table = open_table(paths)
    if table is None:
        return None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    milliseconds = (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    return max(0, Summaries(paths).first_since(milliseconds + 1, table.version()) - 1)


def _actions(path: Path, containing: bytes = b"") -> list[dict[str, Any]]:
    """The actions of an entry, of the lines that contain some bytes; raises UnreadableWarehouse."""
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines() if containing in line]
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error


def _added_file(paths: Paths, add: Mapping[str, Any]) -> DataFile:
    stats = json.loads(add["stats"])
    return DataFile(
        path=paths.table / unquote(add["path"]),
        collection=Collection.of_name(add["partitionValues"]["collection"]),
        rows=stats["numRecords"],
        size=add["size"],
        first_id=stats["minValues"]["id"],
        last_id=stats["maxValues"]["id"],
        last_created_at=_microseconds(datetime.fromisoformat(stats["maxValues"]["created_at"])),
    )


def _watermark(transaction: Mapping[str, Any]) -> dict[Collection, int]:
    collection = _WATERMARKS.get(transaction["appId"])
    return {collection: transaction["version"]} if collection is not None else {}


def _summary(version: int, commit: Mapping[str, Any]) -> dict[str, Any] | None:
    if _SUMMARY_KEY not in commit:
        return None
    summary: dict[str, Any] = json.loads(commit[_SUMMARY_KEY])
    return summary | {"version": version, "committed_at": _committed_at(commit)}


def _committed_at(commit: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)


def _microseconds(moment: datetime) -> int:
    """Since 1970. Whole: a float of seconds would round them."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


# Writing.


def append(
    paths: Paths,
    base: int,
    files: Iterable[WrittenFile],
    watermarks: Mapping[Collection, int],
    summary: Mapping[str, Any],
    replaced: Sequence[DataFile] = (),
) -> None:
    """Commit one version on version ``base`` (-1 for none) and sync it.

    ``summary`` gets the digests of ``files`` as ``sha256``. ``replaced`` are the files whose rows are in
    ``files`` now: the version then changes no data. Raises CommitConflict if another committed on ``base``,
    and UnreadableWarehouse where the entry cannot be written.
    """
    files = sorted(files, key=lambda file: file.first_id)
    digests = {paths.in_table(file.path): file.sha256 for file in files}
    now = time.time_ns() // 1_000_000
    adds = [_add_action(paths, file, now, data_change=not replaced) for file in files]
    removes = [_remove_action(paths, file, now) for file in replaced]
    # deltalake writes the entry in a table of its own that has no other one. We link it into the log once
    # it is synced: deltalake never syncs.
    scratch = paths.scratch(run_name())
    try:
        table = _new_table(scratch)
        if base < 0:
            make_folder(paths.log)
            _link_newest_entry(scratch, paths, 0)
        table.create_write_transaction(
            [*adds, *removes],
            mode="append",
            schema=TABLE_SCHEMA,
            partition_by=["collection"],
            commit_properties=CommitProperties(
                custom_metadata={_SUMMARY_KEY: json.dumps({**summary, "sha256": digests})},
                max_commit_retries=0,
                app_transactions=[
                    Transaction(_transaction_name(collection), watermark, now)
                    for collection, watermark in watermarks.items()
                ],
            ),
            # A checkpoint would block POST, and the entries must stay.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
        _link_newest_entry(scratch, paths, max(base, 0) + 1)
    except (DeltaError, OSError) as error:
        raise UnreadableWarehouse(
            f"{paths.table}: the commit cannot be written: {' '.join(str(error).split())}"
        ) from error
    finally:
        shutil.rmtree(scratch.root, ignore_errors=True)


def _add_action(paths: Paths, file: WrittenFile, now: int, data_change: bool) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {"id": file.first_id, "created_at": _iso(file.first_created_at)},
        "maxValues": {"id": file.last_id, "created_at": _iso(file.last_created_at)},
        "nullCount": {},
    }
    return AddAction(
        path=paths.in_table(file.path),
        size=file.size,
        partition_values={"collection": file.collection},
        modification_time=now,
        data_change=data_change,
        stats=json.dumps(stats),
    )


def _remove_action(paths: Paths, file: DataFile, now: int) -> RemoveAction:
    return RemoveAction(paths.in_table(file.path), False, now, file.size, {"collection": file.collection})


def _iso(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _new_table(scratch: Paths) -> DeltaTable:
    return DeltaTable.create(
        scratch.table,
        TABLE_SCHEMA,
        partition_by=["collection"],
        name="signatures",
        description="Text signatures and their keccak-256 hashes",
        # The log is the history of imports: old entries must stay.
        configuration={"delta.enableExpiredLogCleanup": "false"},
    )


def _link_newest_entry(scratch: Paths, paths: Paths, version: int) -> None:
    """Sync a scratch table's newest entry and link it into the log; raises CommitConflict if the version is taken."""
    entry = scratch.log_entries()[-1]
    sync(entry)
    try:
        os.link(entry, paths.log_entry(version))
    except FileExistsError:
        raise CommitConflict(f"{paths.table} has a version {version} already") from None
    sync(paths.log)


# Checkpoints.


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest checkpoint: ``files`` hold the state at ``version``, ``pointer`` the bytes of the file that names it."""

    version: int
    files: tuple[Path, ...]
    pointer: bytes


def newest_checkpoint(paths: Paths) -> Checkpoint | None:
    """The checkpoint from which the log is read, None if there is none yet."""
    try:
        pointer = paths.last_checkpoint.read_bytes()
    except FileNotFoundError:
        return None
    version = int(json.loads(pointer)["version"])
    return Checkpoint(version, tuple(paths.checkpoint_files(version)), pointer)


def write_checkpoint(paths: Paths, version: int) -> None:
    """Every CHECKPOINT_VERSIONS versions, write a checkpoint, which is read instead of the entries up to it.

    With it a thousand versions are opened in 9 ms, in 25 ms where they have a thousand files. deltalake writes it
    in a scratch folder over links to the end of the log; we move it into place once it is synced. It takes 0.1 to
    0.2 s, so it is written after the commit, which blocks POST. A version is complete without it.
    """
    if version % CHECKPOINT_VERSIONS:
        return
    scratch = paths.scratch(run_name())
    with suppress(OSError, DeltaError, ValueError):
        scratch.log.mkdir(parents=True)
        last = newest_checkpoint(paths)
        first = last.version if last is not None else 0
        for file in [*map(paths.log_entry, range(first, version + 1)), *paths.checkpoint_files(first)]:
            os.link(file, scratch.log / file.name)
        DeltaTable(scratch.table).create_checkpoint()
        for file in [*scratch.checkpoint_files(version), scratch.last_checkpoint]:
            sync(file)
            file.replace(paths.log / file.name)
            sync(paths.log)
    shutil.rmtree(scratch.root, ignore_errors=True)
