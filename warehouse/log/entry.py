"""Reading log entries, each checked against its digest."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.identity import usable_identity
from sigdir.warehouse.log.actions import EPOCH, DataFile, changes_of
from sigdir.warehouse.log.chain import Broken, Chain, Vouched, read_vouched, require_same, sha256_of_entry
from sigdir.warehouse.log.damage import DAMAGED, RESTORE, naming_broken, naming_damaged, reason_of
from sigdir.warehouse.paths import Paths

SUMMARY = "sigdir"
"""The field of ``commitInfo`` that holds our summary."""

_ENTRY = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One version's entry: what its commit added, removed and recorded.

    ``summary`` is None if the commit is not one of ours, and in entry 0. ``writer_version`` is None where the commit
    does not change it. ``sha256`` is the digest of the entry's file.
    """

    version: int
    committed_at: datetime
    added: tuple[DataFile, ...]
    removed: tuple[Path, ...]
    watermarks: Mapping[Collection, int]
    writer_version: int | None
    summary: dict[str, Any] | None
    sha256: str
    vouched: Vouched | None


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
    path = paths.log_entry(version)
    read = _read(paths, version)
    with naming_damaged(path):
        changes = changes_of(paths, read.actions)
        if changes.commit is None:
            raise UnreadableWarehouse(f"{path}: holds no commit; {RESTORE}")
        return LogEntry(
            version, _committed_at(changes.commit), tuple(changes.added), tuple(changes.removed), changes.watermarks,
            changes.writer_version, _summary(version, changes.commit), read.sha256, read.vouched,
        )  # fmt: skip


def read_entries(paths: Paths, last: int) -> Iterator[LogEntry]:
    """The entries from the oldest up to version ``last``, each checked against those before it.

    Raises UnreadableWarehouse.
    """
    chain = Chain()
    for version in range(last + 1):
        entry = read_entry(paths, version)
        with naming_broken(paths):
            chain = chain.after(version, entry.sha256, entry.vouched)
        yield entry


def read_summary(paths: Paths, version: int) -> dict[str, Any] | None:
    """A commit's summary, without parsing the rest of its entry; None if it is not one of ours.

    ``version`` and ``committed_at`` (a UTC datetime) are added. Raises UnreadableWarehouse.
    """
    commits = _read(paths, version, containing=b"commitInfo").commits()
    with naming_damaged(paths.log_entry(version)):
        return _summary(version, commits[0]) if commits else None


def read_actions(paths: Paths, version: int) -> list[dict[str, Any]]:
    """An entry's actions as its JSON has them; raises UnreadableWarehouse."""
    return _read(paths, version).actions


def read_digests(paths: Paths, version: int) -> tuple[str, Vouched | None]:
    """The digest of an entry's file, and what it says of those before it; raises UnreadableWarehouse."""
    entry = _read(paths, version, containing=b"commitInfo")
    return entry.sha256, entry.vouched


def require_digest(paths: Paths, version: int, sha256: str) -> None:
    """Raise UnreadableWarehouse if an entry is not the one with this digest, which is kept outside of the log."""
    found, _ = read_digests(paths, version)
    with naming_broken(paths):
        require_same({version: sha256}, {version: found}, "another entry was published")


def vouched_by(paths: Paths, version: int) -> Vouched | None:
    """What an entry says of those before it; None where it is another program's, damaged, or not there."""
    with suppress(OSError, Broken):
        return _parsed(version, paths.log_entry(version).read_bytes(), b"commitInfo").vouched
    return None


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

    The entry's bytes are compared with its own digest, those of another program with the digest in the next entry.
    """
    path = paths.log_entry(version)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}; {RESTORE}") from error
    if not raw:
        raise UnreadableWarehouse(f"{path} is empty; {RESTORE}")
    with naming_broken(paths):
        read = _parsed(version, raw, containing)
        after = vouched_by(paths, version + 1) if read.vouched is None else None
        if after is not None:
            require_same(after.entries, {version: read.sha256}, f"version {version + 1} has another digest of it")
    return read


def _parsed(version: int, raw: bytes, containing: bytes) -> _Read:
    """The parts of an entry; raises Broken."""
    try:
        actions = [json.loads(line) for line in raw.splitlines() if containing in line]
        commits = [action["commitInfo"] for action in actions if "commitInfo" in action]
        vouched = read_vouched(version, raw, commits[0]) if commits else None
    except DAMAGED as error:
        raise Broken(version, reason_of(error)) from error
    return _Read(actions, sha256_of_entry(raw), vouched)


def _summary(version: int, commit: Mapping[str, Any]) -> dict[str, Any] | None:
    if SUMMARY not in commit:
        return None
    summary: dict[str, Any] = json.loads(commit[SUMMARY])
    return summary | {"version": version, "committed_at": _committed_at(commit)}


def _committed_at(commit: Mapping[str, Any]) -> datetime:
    return EPOCH + timedelta(milliseconds=commit["timestamp"])
