"""The sha256 of data files, for who fetches them.

A commit tells those of the files that it added. Commits that were made before they did tell none: what such
a file has is computed once, and kept in the cache beside its index.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

from warehouse.mapped import index_name
from warehouse.parquet import sha256_of
from warehouse.paths import Paths
from warehouse.schema import COLLECTIONS, Collection
from warehouse.snapshot import DataFile, Snapshot, commit_summary

COMPUTED_BYTES = 1 << 30
"""What is read at most to compute digests for one question, about a second; the others are told the next time."""


class Digests:
    """What is known of one warehouse; may be asked by several threads."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._written: dict[str, str] = {}
        self._first, self._last = 0, -1  # the entries of the log that were read

    def of(self, snapshot: Snapshot) -> dict[Path, str]:
        """The digests of a snapshot's files in hex; a file may be missing. Raises Unusable."""
        names = {file.path: self._paths.in_table(file.path) for files in snapshot.files.values() for file in files}
        with self._lock:
            self._read(snapshot.version, set(names.values()))
            found = {path: self._written[name] for path, name in names.items() if name in self._written}
        left = COMPUTED_BYTES
        for collection in COLLECTIONS:
            for file in snapshot.files[collection]:
                if file.path not in found and left > 0 and file.path.exists():
                    found[file.path] = self._computed(collection, file)
                    left -= file.size
        return found

    def _read(self, version: int, wanted: set[str]) -> None:
        """Read what the log has of the wanted files, from its end: most files are of the last entries."""
        if self._last < 0:
            self._first, self._last = version + 1, version
        for number in range(self._last + 1, version + 1):
            self._read_entry(number)
            self._last = number
        while self._first > 0 and not wanted <= self._written.keys():
            self._first -= 1
            self._read_entry(self._first)

    def _read_entry(self, version: int) -> None:
        summary = commit_summary(self._paths, version) or {}
        self._written.update(summary.get("sha256", {}))

    def _computed(self, collection: Collection, file: DataFile) -> str:
        """A data file never changes and its name is never used again, so neither does what is kept."""
        kept = self._paths.cache / digest_name(index_name(collection, file.path))
        with suppress(OSError):
            return kept.read_text()
        found = sha256_of(file.path)
        written = kept.with_name(f".{kept.name}.{os.getpid()}")
        with suppress(OSError):  # on a full disk it is computed again
            written.write_text(found)
            written.rename(kept)
        return found


def digest_name(index: str) -> str:
    """The file in the cache that keeps a data file's sha256, by the name of its index."""
    return f"{index}.sha256"
