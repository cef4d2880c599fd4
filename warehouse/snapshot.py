"""One version of the table: which files it has, up to which id staged rows are folded into it.

A Snapshot is immutable. Everything that a reader or a publisher derives from the log goes through
``read_snapshot``, so both see the same thing.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.identity import Identity, usable_identity
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.staging import NO_HIGH_WATER, HighWaterMark, Staging

_LOOKED_AT = 200  # entries, some more than a checkpoint leaves to be read: 0.3 ms

SUMMARY_KEY = "sigdir"
"""The commit's field that carries what it did, as JSON."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a snapshot; ids inclusive, they rise inside it but may have gaps."""

    path: Path
    rows: int
    size: int
    first_id: int
    last_id: int
    last_created_at: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Version ``version`` of the table; -1 for a folder where nothing was published yet.

    ``files`` are in id order. ``high_water`` holds each collection's highest id and time; its id is
    also the watermark: staged rows at or below it are folded.
    """

    version: int = -1
    files: Mapping[Collection, tuple[DataFile, ...]] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, ()))
    high_water: Mapping[Collection, HighWaterMark] = field(default_factory=lambda: NO_HIGH_WATER)

    def count(self, collection: Collection) -> int:
        return sum(file.rows for file in self.files[collection])

    def parquet_files(self, collection: Collection) -> list[str]:
        return [str(file.path) for file in self.files[collection]]


def open_table(paths: Paths, version: int | None = None) -> DeltaTable | None:
    """The Delta table at a version, the newest by default; None where there is none yet."""
    if paths.root.exists() and not paths.root.is_dir():
        raise UnreadableWarehouse(f"{paths.root} is a file, not a warehouse's folder")
    usable_identity(paths)
    # Asked for a version that is far away, deltalake would look for all the entries before it.
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


def transaction_name(collection: Collection) -> str:
    """The name under which a commit records a collection's watermark."""
    return f"sigdir:{collection}"


def read_snapshot(paths: Paths, version: int | None = None) -> Snapshot:
    """Read the newest version, or the one asked for; raises UnreadableWarehouse."""
    table = open_table(paths, version)
    if table is None:
        return Snapshot()
    _refuse_empty_entries(paths, table.version())
    try:
        snapshot = snapshot_of(paths, table)
    except (DeltaError, KeyError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableWarehouse(f"{paths.table}: not a table of signatures: {reason}") from error
    if version is not None and paths.log_entry(version + 1).exists():
        _require_whole(paths, snapshot)
    return snapshot


class LogTailer:
    """Reads the newest version again and again, of the log only the entries that came since the last time.

    The readers of a server wait for that at each publish: 0.2 ms. The library takes 2 ms for the same and 4 to
    16 to open the table, on threads of its own: 10 to 38 while an import has all cores. So it is asked for the
    first version, and wherever an entry is not one of ours.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._last: tuple[Identity, Snapshot] | None = None

    def newest(self) -> Snapshot:
        """The newest version; raises UnreadableWarehouse."""
        identity = usable_identity(self._paths)
        last, self._last = self._last, None
        snapshot = None
        if last is not None and last[0] == identity:
            with suppress(
                UnreadableWarehouse, AttributeError, KeyError, TypeError, ValueError
            ):  # the library says what is wrong
                snapshot = _followed(self._paths, last[1])
        if snapshot is None:
            snapshot = read_snapshot(self._paths)
        self._last = identity, snapshot
        return snapshot


def _followed(paths: Paths, snapshot: Snapshot) -> Snapshot | None:
    """The newest version by the entries behind a snapshot; None where one is not ours."""
    files = {file.path: (collection, file) for collection in COLLECTIONS for file in snapshot.files[collection]}
    watermarks = {collection: snapshot.high_water[collection].id for collection in COLLECTIONS}
    version = snapshot.version
    while paths.log_entry(version + 1).exists():
        version += 1
        actions = log_actions(paths, version)
        if version == 0 or _summary(version, actions) is None:
            return None
        for action in actions:
            ((kind, told),) = action.items()
            if kind == "add":
                stats = json.loads(told["stats"])
                file = DataFile(
                    path=paths.table / unquote(told["path"]),
                    rows=stats["numRecords"],
                    size=told["size"],
                    first_id=stats["minValues"]["id"],
                    last_id=stats["maxValues"]["id"],
                    last_created_at=_microseconds(datetime.fromisoformat(stats["maxValues"]["created_at"])),
                )
                files[file.path] = told["partitionValues"]["collection"], file
            elif kind == "remove":
                del files[paths.table / unquote(told["path"])]
            elif kind == "txn":
                watermarks |= {c: told["version"] for c in COLLECTIONS if transaction_name(c) == told["appId"]}
            elif kind != "commitInfo":
                return None
    return _snapshot(version, list(files.values()), watermarks) if version > snapshot.version else snapshot


def _require_whole(paths: Paths, snapshot: Snapshot) -> None:
    """Raise UnreadableWarehouse where data files of an old version are gone."""
    files = [file for files in snapshot.files.values() for file in files]
    gone = sum(not file.path.exists() for file in files)
    if gone:
        raise UnreadableWarehouse(
            f"version {snapshot.version} of {paths.root} was vacuumed: {gone} of its {len(files)} data files are gone;"
            " `sigdir vacuum --dry-run` names the oldest version that is whole"
        )


def require_newest(paths: Paths, snapshot: Snapshot, staging: Staging) -> None:
    """Raise UnreadableWarehouse where the log has lost its end: the library opens what is left as if it were all."""
    with staging.reading() as transaction:
        published = transaction.version()
    # One that came since the snapshot was read has its entry.
    if published > snapshot.version and not paths.log_entry(published).exists():
        raise UnreadableWarehouse(
            f"{paths.log} ends at version {snapshot.version}, but version {published} was published"
        )


def _refuse_empty_entries(paths: Paths, version: int) -> None:
    """The log's library reads an entry that lost its bytes as a version without changes. Raises UnreadableWarehouse."""
    for number in range(version, max(version - _LOOKED_AT, -1), -1):
        entry = paths.log_entry(number)
        with suppress(FileNotFoundError):  # a checkpoint has what was in it
            if entry.stat().st_size == 0:
                raise UnreadableWarehouse(f"{entry} is empty")


def snapshot_of(paths: Paths, table: DeltaTable) -> Snapshot:
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    # Times as microseconds: for a datetime pyarrow loads pandas, a quarter of a second of a start.
    kinds = [field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in actions.schema]
    files = [
        (action["partition.collection"], _data_file(paths, action))
        for action in actions.cast(pa.schema(kinds)).to_pylist()
    ]
    watermarks = {c: table.transaction_version(transaction_name(c)) or 0 for c in COLLECTIONS}
    return _snapshot(table.version(), files, watermarks)


def _snapshot(version: int, files: Sequence[tuple[str, DataFile]], watermarks: Mapping[Collection, int]) -> Snapshot:
    found = {c: sorted((file for of, file in files if of == c), key=lambda file: file.first_id) for c in COLLECTIONS}
    high_water = {
        c: HighWaterMark(watermarks[c], max((file.last_created_at for file in found[c]), default=0))
        for c in COLLECTIONS
    }
    return Snapshot(version, {c: tuple(found[c]) for c in COLLECTIONS}, high_water)


def _data_file(paths: Paths, action: Mapping[str, Any]) -> DataFile:
    return DataFile(
        path=paths.table / action["path"],
        rows=action["num_records"],
        size=action["size_bytes"],
        first_id=action["min.id"],
        last_id=action["max.id"],
        last_created_at=int(action["max.created_at"]),
    )


def _microseconds(moment: datetime) -> int:
    """Since 1970. Whole: a float of seconds would round them."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def history(paths: Paths, version: int | None = None, newest: int | None = None) -> list[dict[str, Any]]:
    """What each commit up to ``version`` says of itself, oldest first; the ``newest`` N if given.

    Each entry is the commit's summary with ``version`` and ``committed_at`` (a UTC datetime) added.
    Read from the log's own entries: deltalake tells them too, but numbers them wrongly for a table
    that was opened at an older version (1.6).
    """
    table = open_table(paths, version)
    if table is None:
        return []
    last = table.version()
    first = max(0, last + 1 - newest) if newest is not None else 0
    entries = (commit_summary(paths, number) for number in range(first, last + 1))
    return [entry for entry in entries if entry is not None]


def written_digests(paths: Paths, snapshot: Snapshot) -> dict[str, str]:
    """The sha256 of the snapshot's data files as their commits tell it, in hex, by the name in the table.

    A run's name begins with its time and its commit comes soon after, so an entry is found by halving: of
    a log of 10,000 versions 100 are read, in 10 ms instead of 600. A file that no entry tells is left out.
    """
    found: dict[str, str] = {}
    entry = cache(partial(commit_summary, paths))

    def committed(version: int) -> int:
        told = entry(version)
        return round(told["committed_at"].timestamp() * 1000) if told else 0

    for file in sorted(file.path for files in snapshot.files.values() for file in files):
        name = paths.in_table(file)
        began = file.name.partition("-")[0]
        versions = range(snapshot.version + 1)
        first = bisect_left(versions, int(began) // 1000, key=committed) if began.isdecimal() else 0
        # The clock may have been set back, so what is not behind is looked for before.
        for version in (*versions[first:], *versions[:first]):
            if name in found:
                break
            found |= (entry(version) or {}).get("sha256", {})
    return found


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version's entry in the log. ``added`` has the rows of each data file that came, by its name.

    ``summary`` is the commit's account of itself; None where it is not one of ours.
    """

    version: int
    added: Mapping[str, int]
    removed: Sequence[str]
    summary: dict[str, Any] | None


def log_entries(paths: Paths, last: int) -> Iterator[LogEntry]:
    """The log's entries from the oldest up to version ``last``; raises UnreadableWarehouse."""
    for version in range(last + 1):
        actions = log_actions(paths, version)
        if not any("commitInfo" in action for action in actions):
            raise UnreadableWarehouse(f"{paths.log_entry(version)}: holds no commit")
        added = {unquote(a["add"]["path"]): json.loads(a["add"]["stats"])["numRecords"] for a in actions if "add" in a}
        removed = [unquote(a["remove"]["path"]) for a in actions if "remove" in a]
        yield LogEntry(version, added, removed, _summary(version, actions))


def log_actions(paths: Paths, version: int, only: tuple[str, ...] = ("",)) -> list[dict[str, Any]]:
    """The lines of a log entry, without those that name none of ``only``; raises UnreadableWarehouse."""
    path = paths.log_entry(version)
    words = [word.encode() for word in only]
    try:
        lines = path.read_bytes().splitlines()
        return [json.loads(line) for line in lines if any(word in line for word in words)]
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error


def _summary(version: int, actions: list[dict[str, Any]]) -> dict[str, Any] | None:
    commit: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    if SUMMARY_KEY not in commit:
        return None
    summary: dict[str, Any] = json.loads(commit[SUMMARY_KEY])
    summary["version"] = version
    summary["committed_at"] = datetime.fromtimestamp(commit["timestamp"] / 1000, UTC)
    return summary


def commit_summary(paths: Paths, version: int) -> dict[str, Any] | None:
    """A commit's account of itself; None where it is not one of ours."""
    return _summary(version, log_actions(paths, version, only=("commitInfo",)))


def newest_run(paths: Paths) -> str | None:
    """The run that made the newest version."""
    newest = history(paths, newest=1)
    return newest[-1].get("run") if newest else None


def last_import(paths: Paths) -> int:
    """The number of the last import that the log names; reads it from its end up to there."""
    table = open_table(paths)
    for number in range(table.version(), -1, -1) if table is not None else ():
        entry = commit_summary(paths, number)
        if entry is not None and "import" in entry:
            return int(entry["import"])
    return 0
