"""Reading log entries, each checked against its digest."""

from __future__ import annotations

import hashlib
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
from sigdir.warehouse.log.actions import EPOCH, changes_of
from sigdir.warehouse.log.damage import FIELD, RESTORE, damaged_entry, is_whole, naming_damaged
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.identity import usable_identity
from sigdir.warehouse.table.paths import Paths

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
    return EPOCH + timedelta(milliseconds=commit["timestamp"])
