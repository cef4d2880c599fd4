"""The table's log: the only module that knows Delta's JSON and the library that writes it.

Invariants
    An entry is never changed, and its version number is never given twice: it is linked into place, and a link
    fails where the name is taken.
    An entry has its name only once its bytes are on stable storage: an entry without bytes would end the log.
    Entries are never cleaned up: they are the history of imports.
    Each entry that is read is what was written, and follows the one before it (``log_chain.py``).

An entry is one file of JSON lines, one action a line. We write four kinds:

- ``add``: a data file with its size, its partition and statistics (rows, smallest and largest id and time);
- ``remove``: a data file that compaction replaced;
- ``txn``: a collection's watermark, its highest id, under the name ``sigdir:<collection>``;
- ``commitInfo``: the time, our summary as JSON in the field ``sigdir``, and the digests of ``log_chain.py``.

Entry 0 makes the table (``protocol`` and ``metaData``) and has no summary. deltalake opens a version, which may
start at a checkpoint; everything about single commits is read from the entries here. deltalake gives the history
too, but numbers it wrongly for a table that was opened at an older version (1.6).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from operator import index
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import make_folder, run_name, sync
from sigdir.warehouse.home import place_entry
from sigdir.warehouse.identity import usable_identity
from sigdir.warehouse.log_chain import (
    FIELD,
    Broken,
    Chain,
    Vouched,
    read_vouched,
    require_same,
    sealed,
    sha256_of_entry,
)
from sigdir.warehouse.parquet import WrittenFile, sha256_of
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.schema import TABLE_SCHEMA

CHECKPOINT_VERSIONS = 100
"""A checkpoint is written every so many versions."""

_SUMMARY_KEY = "sigdir"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RESTORE = "put this file back from a backup"

_DAMAGED = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What parsing raises where an entry's JSON is not of the expected shape."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table. Ids are inclusive; they rise inside it but may have gaps.

    ``size`` is in bytes, ``last_created_at`` in microseconds since 1970, UTC. Raises TypeError if a number is none,
    as in a damaged entry.
    """

    path: Path
    collection: Collection
    rows: int
    size: int
    first_id: int
    last_id: int
    last_created_at: int

    def __post_init__(self) -> None:
        for number in (self.rows, self.size, self.first_id, self.last_id):
            index(number)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The file that describes a version's evidence, and its digest in hex."""

    path: Path
    sha256: str


def evidence_entry(manifest: ManifestFile | None, sightings: int = 0) -> dict[str, Any]:
    """What a commit's summary says of its version's evidence; ``sightings`` is how many the commit brings."""
    if manifest is None:
        return {}
    return {"evidence": {"manifest": manifest.path.name, "sha256": manifest.sha256, "sightings": sightings}}


@dataclass(frozen=True, slots=True)
class TableState:
    """The table at one version: its data files by their paths, each collection's watermark, and the log's end.

    ``manifest`` is None for a version from before the evidence.
    """

    version: int
    files: Mapping[Path, DataFile]
    watermarks: Mapping[Collection, int]
    chain: Chain
    manifest: ManifestFile | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version's entry: what its commit added, removed and recorded.

    ``summary`` is None if the commit is not one of ours, and in entry 0. ``has_foreign_actions`` is set if
    the entry holds actions that our commits never write. ``sha256`` is the digest of the entry's file.
    """

    version: int
    committed_at: datetime
    added: tuple[DataFile, ...]
    removed: tuple[Path, ...]
    watermarks: Mapping[Collection, int]
    summary: dict[str, Any] | None
    has_foreign_actions: bool
    sha256: str
    vouched: Vouched | None


# Reading a state.


def open_table(paths: Paths, version: int | None = None) -> DeltaTable | None:
    """The Delta table at a version, the newest by default; None if there is none yet. Raises UnreadableWarehouse."""
    version = existing_version(paths, version)
    if version is None:
        return None
    try:
        return DeltaTable(paths.table, version=version)
    except (DeltaError, OSError, ValueError) as error:
        raise UnreadableWarehouse(f"{paths.table}: the log cannot be read: {_reason(error)}") from error


def existing_version(paths: Paths, version: int | None = None) -> int | None:
    """The newest version, or ``version`` if the log has it; None if there is no table yet. Raises UnreadableWarehouse."""
    if paths.root.exists() and not paths.root.is_dir():
        raise UnreadableWarehouse(f"{paths.root} is a file, not a warehouse's folder")
    usable_identity(paths)
    # Given a version that is far away, deltalake would look for all the entries up to it.
    if version is not None and (version < 0 or not paths.log_entry(version).exists()):
        raise UnreadableWarehouse(f"{paths.root} has no version {version}")
    if version is not None:
        return version
    return max(_listed(paths)[0], default=None)


def read_state(paths: Paths, version: int | None = None) -> TableState | None:
    """The state at a version, the newest by default; None if there is no table yet. Raises UnreadableWarehouse.

    deltalake reads the log from the newest checkpoint on, so as much of it is checked first: 50 us an entry.
    """
    last = existing_version(paths, version)
    if last is None:
        return None
    checkpoint = max((number for number in _listed(paths)[1] if number <= last), default=-1)
    chain = _checked_chain(paths, checkpoint, last)
    _require_readable_pointer(paths)
    if checkpoint in chain.checkpoints and _has_digests(paths, checkpoint):
        # No entry has its digest yet, so the entries are read that it was made from, if they are whole.
        with suppress(UnreadableWarehouse):
            before = read_state(paths, checkpoint - 1)
            state = advance(paths, before, last) if before is not None else None
            if state is not None:
                return replace(state, chain=chain)
    table = open_table(paths, last)
    assert table is not None
    try:
        files = {file.path: file for file in _files_of(paths, table)}
        watermarks = {c: table.transaction_version(_transaction_name(c)) or 0 for c in COLLECTIONS}
    except (DeltaError, pa.ArrowException, *_DAMAGED) as error:
        raise UnreadableWarehouse(f"{paths.table}: not a table of signatures: {_reason(error)}") from error
    return TableState(table.version(), files, watermarks, chain, manifest_at(paths, last))


def advance(paths: Paths, state: TableState, last: int | None = None) -> TableState | None:
    """The newest state, or that of version ``last``, by the entries after ``state``; None if one of them is not ours.

    Raises UnreadableWarehouse.
    """
    files, watermarks, version, chain = dict(state.files), dict(state.watermarks), state.version, state.chain
    manifest = state.manifest
    while version != last and paths.log_entry(version + 1).exists():
        version += 1
        entry = read_entry(paths, version)
        if entry.summary is None or entry.has_foreign_actions or not files.keys() >= set(entry.removed):
            return None
        with _naming_the_broken(paths):
            chain = chain.after(version, entry.sha256, entry.vouched)
        files |= {file.path: file for file in entry.added}
        for path in entry.removed:
            del files[path]
        watermarks |= entry.watermarks
        manifest = manifest_of_summary(paths, version, entry.summary)
    return TableState(version, files, watermarks, chain, manifest) if version > state.version else state


def manifest_at(paths: Paths, version: int) -> ManifestFile | None:
    """The manifest that a version names, None if it is from before the evidence; raises UnreadableWarehouse.

    A commit of another program names none: the version before it has the same evidence.
    """
    for number in range(version, 0, -1):
        summary = read_summary(paths, number)
        if summary is not None:
            return manifest_of_summary(paths, number, summary)
    return None


def manifest_of_summary(paths: Paths, version: int, summary: Mapping[str, Any]) -> ManifestFile | None:
    """The manifest that a commit's summary names; raises UnreadableWarehouse."""
    if "evidence" not in summary:
        return None
    try:
        name, sha256 = summary["evidence"]["manifest"], summary["evidence"]["sha256"]
        if not _MANIFEST_NAME.fullmatch(name) or not isinstance(sha256, str):
            raise ValueError("not the name and the digest of a manifest")
    except _DAMAGED as error:
        path = paths.log_entry(version)
        raise UnreadableWarehouse(f"{path}: damaged: its evidence: {_reason(error)}; {_RESTORE}") from error
    return ManifestFile(paths.evidence / name, sha256)


def manifest_of_entry(paths: Paths, entry: LogEntry) -> ManifestFile | None:
    """The manifest that a commit names, None for one that names none; raises UnreadableWarehouse."""
    return manifest_of_summary(paths, entry.version, entry.summary or {})


_MANIFEST_NAME = re.compile(r"[\w-]+\.json")


def _files_of(paths: Paths, table: DeltaTable) -> Iterator[DataFile]:
    for actions in pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)):
        if not actions.num_rows:
            continue
        names = ("path", "partition.collection", "num_records", "size_bytes", "min.id", "max.id")
        columns = [actions.column(name).to_pylist() for name in names]
        # Times as microseconds: for a datetime pyarrow loads pandas, a quarter of a second of a start. A cast loads
        # pyarrow.compute, 30 ms.
        created_at = actions.column("max.created_at").view(pa.int64()).to_pylist()
        for path, collection, rows, size, first_id, last_id, last in zip(*columns, created_at, strict=True):
            yield DataFile(paths.table / path, Collection.of_name(collection), rows, size, first_id, last_id, int(last))


def _transaction_name(collection: Collection) -> str:
    """The name under which a commit records a collection's watermark."""
    return f"sigdir:{collection}"


def _reason(error: Exception) -> str:
    """An error's first line; a damaged entry may have any character that ends a line in what the error quotes."""
    return " ".join(str(error).partition("\n")[0].split())


def _listed(paths: Paths) -> tuple[list[int], list[int]]:
    """The versions that have an entry, and those that have a checkpoint, by one look into the log's folder."""
    entries: list[int] = []
    checkpoints: list[int] = []
    with suppress(FileNotFoundError), os.scandir(paths.log) as listed:
        for file in listed:
            if found := _LOG_FILE.fullmatch(file.name):
                (checkpoints if found[2] else entries).append(int(found[1]))
    return entries, checkpoints


_LOG_FILE = re.compile(r"(\d{20})(?:\.json|(\.checkpoint\b.*\.parquet))")


def _checked_chain(paths: Paths, checkpoint: int, last: int) -> Chain:
    """The end of the log at version ``last``, whose newest checkpoint is given, -1 for none.

    Raises UnreadableWarehouse for the first entry, or the checkpoint, that is not as it was written.
    """
    files = paths.checkpoint_files(checkpoint) if checkpoint >= 0 else []
    chain = Chain(checkpoints={checkpoint: sha256_of(files[0])} if len(files) == 1 else {})
    with _naming_the_broken(paths):
        first = checkpoint if checkpoint >= 0 and paths.log_entry(checkpoint).exists() else checkpoint + 1
        for version in range(first, last + 1):
            chain = chain.after(version, *_digests(paths, version))
        after = _vouched_by(paths, last + 1)  # there is one where an older version is asked for
        if after is not None:
            require_same(after.entries, chain.entries, f"version {last + 1} has another digest of it")
            require_same(after.checkpoints, chain.checkpoints, f"version {last + 1} has another digest of it", True)
    return chain


def require_digest(paths: Paths, version: int, sha256: str) -> None:
    """Raise UnreadableWarehouse if an entry is not the one with this digest, which is kept outside of the log."""
    found, _ = _digests(paths, version)
    with _naming_the_broken(paths):
        require_same({version: sha256}, {version: found}, "another entry was published")


def _digests(paths: Paths, version: int) -> tuple[str, Vouched | None]:
    """An entry's digest, and what it says of those before it; raises UnreadableWarehouse."""
    entry = _read(paths, version, containing=b"commitInfo")
    return entry.sha256, entry.vouched


def _has_digests(paths: Paths, version: int) -> bool:
    return _digests(paths, version)[1] is not None


@contextmanager
def _naming_the_broken(paths: Paths) -> Iterator[None]:
    """Raise UnreadableWarehouse for what is not as it was written, with its file and what to do."""
    try:
        yield
    except Broken as broken:
        if broken.is_checkpoint:
            [file, *_] = paths.checkpoint_files(broken.version)
            raise UnreadableWarehouse(
                f"{file}: damaged: {broken}; remove this file and {paths.last_checkpoint.name} beside it,"
                " because the entries have what is in it"
            ) from broken
        raise UnreadableWarehouse(f"{paths.log_entry(broken.version)}: damaged: {broken}; {_RESTORE}") from broken


def _require_readable_pointer(paths: Paths) -> None:
    """Raise UnreadableWarehouse where the file that names the newest checkpoint names none that is there."""
    try:
        newest_checkpoint(paths)
    except (OSError, *_DAMAGED) as error:
        raise UnreadableWarehouse(
            f"{paths.last_checkpoint}: damaged; remove this file, which only saves readers a look into the folder"
        ) from error


_WATERMARKS = {_transaction_name(collection): collection for collection in COLLECTIONS}


# Reading entries.


def read_entry(paths: Paths, version: int) -> LogEntry:
    """Parse a version's entry; raises UnreadableWarehouse, naming the file."""
    path = paths.log_entry(version)
    read = _read(paths, version)
    try:
        added: list[DataFile] = []
        removed: list[Path] = []
        watermarks: dict[Collection, int] = {}
        commit, is_foreign = None, False
        for action in read.actions:
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
            raise UnreadableWarehouse(f"{path}: holds no commit; {_RESTORE}")
        return LogEntry(
            version, _committed_at(commit), tuple(added), tuple(removed), watermarks, _summary(version, commit),
            is_foreign, read.sha256, read.vouched,
        )  # fmt: skip
    except _DAMAGED as error:
        raise UnreadableWarehouse(f"{path}: damaged: {type(error).__name__}: {_reason(error)}; {_RESTORE}") from error


def read_entries(paths: Paths, last: int) -> Iterator[LogEntry]:
    """The entries from the oldest up to version ``last``, each checked against those before it.

    Raises UnreadableWarehouse.
    """
    chain = Chain()
    for version in range(last + 1):
        entry = read_entry(paths, version)
        with _naming_the_broken(paths):
            chain = chain.after(version, entry.sha256, entry.vouched)
        yield entry


def read_summary(paths: Paths, version: int) -> dict[str, Any] | None:
    """A commit's summary, without parsing the rest of its entry; None if it is not one of ours.

    ``version`` and ``committed_at`` (a UTC datetime) are added. Raises UnreadableWarehouse.
    """
    commits = _read(paths, version, containing=b"commitInfo").commits()
    try:
        return _summary(version, commits[0]) if commits else None
    except _DAMAGED as error:
        path = paths.log_entry(version)
        raise UnreadableWarehouse(f"{path}: damaged: {type(error).__name__}: {_reason(error)}; {_RESTORE}") from error


def history(paths: Paths, version: int | None = None, newest: int | None = None) -> list[dict[str, Any]]:
    """The summaries of the commits up to ``version``, oldest first; of the ``newest`` N versions if given.

    Each is what ``read_summary`` gives. Raises UnreadableWarehouse.
    """
    last = existing_version(paths, version)
    if last is None:
        return []
    first = max(0, last + 1 - newest) if newest is not None else 0
    summaries = (read_summary(paths, number) for number in range(first, last + 1))
    return [summary for summary in summaries if summary is not None]


def newest_run(paths: Paths) -> str | None:
    """The run that committed the newest version."""
    newest = history(paths, newest=1)
    return newest[-1].get("run") if newest else None


def last_import(paths: Paths) -> int:
    """The number of the newest import, 0 for none. Reads the log from its end up to that import."""
    newest = existing_version(paths)
    for number in range(newest, -1, -1) if newest is not None else ():
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
    newest = existing_version(paths)
    if newest is None:
        return None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    milliseconds = (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    return max(0, Summaries(paths).first_since(milliseconds + 1, newest) - 1)


@dataclass(frozen=True, slots=True)
class _Read:
    """An entry's actions as JSON, the digest of its file, and what it says of the entries before it."""

    actions: list[dict[str, Any]]
    sha256: str
    vouched: Vouched | None

    def commits(self) -> list[dict[str, Any]]:
        return [action["commitInfo"] for action in self.actions if "commitInfo" in action]


def _read(paths: Paths, version: int, containing: bytes = b"") -> _Read:
    """Read an entry, and parse the lines that contain some bytes; raises UnreadableWarehouse.

    The entry's bytes are compared with its own digest. If it has none, because it is old or because a flipped bit
    hides it, they are compared with the digest in the next entry.
    """
    path = paths.log_entry(version)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}; {_RESTORE}") from error
    if not raw:
        raise UnreadableWarehouse(f"{path} is empty; {_RESTORE}")
    with _naming_the_broken(paths):
        read = _parsed(version, raw, containing)
        after = _vouched_by(paths, version + 1) if read.vouched is None else None
        if after is not None:
            require_same(after.entries, {version: read.sha256}, f"version {version + 1} has another digest of it")
    return read


def _vouched_by(paths: Paths, version: int) -> Vouched | None:
    """What an entry says of those before it; None where it has no digests, is damaged, or is not there."""
    with suppress(OSError, Broken):
        return _parsed(version, paths.log_entry(version).read_bytes(), b"commitInfo").vouched
    return None


def _parsed(version: int, raw: bytes, containing: bytes) -> _Read:
    """The parts of an entry; raises Broken."""
    try:
        actions = [json.loads(line) for line in raw.splitlines() if containing in line]
        commits = [action["commitInfo"] for action in actions if "commitInfo" in action]
        vouched = read_vouched(version, raw, commits[0]) if commits else None
    except _DAMAGED as error:
        raise Broken(version, _reason(error)) from error
    return _Read(actions, sha256_of_entry(raw), vouched)


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
    return {collection: index(transaction["version"])} if collection is not None else {}


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
    not have. Without ``data_change`` their rows are in ``files``. ``chain`` is the end of the log at ``base``. Raises CommitConflict if another committed on ``base``,
    and UnreadableWarehouse where the entry cannot be written.
    """
    files = sorted(files, key=lambda file: file.first_id)
    digests = {paths.in_table(file.path): file.sha256 for file in files}
    now = time.time_ns() // 1_000_000
    adds = [_add_action(paths, file, now, data_change) for file in files]
    removes = [_remove_action(paths, file, now, data_change) for file in replaced]
    # deltalake writes the entry in a table of its own that has no other one. We link it into the log once
    # it is synced: deltalake never syncs.
    scratch = paths.scratch(run_name())
    try:
        first = Chain().to_field()
        table = _new_table(scratch, first)
        if base < 0:
            make_folder(paths.log)
            chain = Chain({0: _link_newest_entry(scratch, paths, 0, first)})
        digests_field = chain.to_field()
        table.create_write_transaction(
            [*adds, *removes],
            mode="append",
            schema=TABLE_SCHEMA,
            partition_by=["collection"],
            commit_properties=CommitProperties(
                custom_metadata={_SUMMARY_KEY: json.dumps({**summary, "sha256": digests}), FIELD: digests_field},
                max_commit_retries=0,
                app_transactions=[
                    Transaction(_transaction_name(collection), watermark, now)
                    for collection, watermark in watermarks.items()
                ],
            ),
            # A checkpoint would block POST, and the entries must stay.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
        version = max(base, 0) + 1
        return version, _link_newest_entry(scratch, paths, version, digests_field, summary.get("run", ""))
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


def _remove_action(paths: Paths, file: DataFile, now: int, data_change: bool) -> RemoveAction:
    return RemoveAction(paths.in_table(file.path), data_change, now, file.size, {"collection": file.collection})


def _iso(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _new_table(scratch: Paths, digests_field: str) -> DeltaTable:
    return DeltaTable.create(
        scratch.table,
        TABLE_SCHEMA,
        partition_by=["collection"],
        name="signatures",
        description="Text signatures and their keccak-256 hashes",
        # The log is the history of imports: old entries must stay.
        configuration={"delta.enableExpiredLogCleanup": "false"},
        commit_properties=CommitProperties(custom_metadata={FIELD: digests_field}),
    )


def _link_newest_entry(scratch: Paths, paths: Paths, version: int, digests_field: str, run: str = "") -> str:
    """Seal and sync a scratch table's newest entry and commit it; returns the digest of its file.

    Raises CommitConflict if the version is taken.
    """
    entry = scratch.log_entries()[-1]
    raw = sealed(entry.read_bytes(), digests_field)
    entry.write_bytes(raw)
    sync(entry)
    place_entry(paths, version, entry, run)
    return sha256_of_entry(raw)


# Checkpoints.


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest checkpoint: ``files`` hold the state at ``version``, ``pointer`` the bytes of the file that names it."""

    version: int
    files: tuple[Path, ...]
    pointer: bytes


def newest_checkpoint(paths: Paths) -> Checkpoint | None:
    """The checkpoint that readers are told to begin with, None if there is none yet.

    Raises OSError, ValueError, KeyError or TypeError where the file that names it is damaged.
    """
    try:
        pointer = paths.last_checkpoint.read_bytes()
    except FileNotFoundError:
        return None
    version = int(json.loads(pointer)["version"])
    files = tuple(paths.checkpoint_files(version))
    if not files:
        raise ValueError(f"there is no checkpoint of version {version}")
    return Checkpoint(version, files, pointer)


def write_checkpoint(paths: Paths, version: int) -> None:
    """Every CHECKPOINT_VERSIONS versions, write a checkpoint, which is read instead of the entries up to it.

    With it a thousand versions are opened in 9 ms, in 25 ms where they have a thousand files. deltalake writes it
    in a scratch folder over links to the end of the log; we move it into place once it is synced. It takes 0.1 to
    0.2 s, so it is written after the commit, which blocks POST. A version is complete without it.
    """
    if version % CHECKPOINT_VERSIONS:
        return
    scratch = paths.scratch(run_name())
    with suppress(OSError, DeltaError, *_DAMAGED):
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
