"""The sha256 of data files, for who fetches them.

A commit tells those of the files that it added. Commits that were made before they did tell none: what such
a file has is computed once, and kept in the cache beside its index.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.build import index_name
from sigdir.warehouse.parquet import sha256_of
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.snapshot import DataFile, Snapshot, written_digests

COMPUTED_BYTES = 1 << 30
"""What is read at most to compute digests for one question, about a second; the others are told the next time."""


class Digests:
    """What is known of one warehouse; may be asked by several threads."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._written: dict[Path, str | None] = {}

    def of(self, snapshot: Snapshot) -> dict[Path, str]:
        """The digests of a snapshot's files in hex; a file may be missing. Raises UnreadableWarehouse."""
        found = {}
        left = COMPUTED_BYTES
        if not self._written.keys() >= {file.path for files in snapshot.files.values() for file in files}:
            written = written_digests(self._paths, snapshot)
            for files in snapshot.files.values():
                self._written.update({file.path: written.get(self._paths.in_table(file.path)) for file in files})
        for collection in COLLECTIONS:
            for file in snapshot.files[collection]:
                sha256 = self._written[file.path]
                if sha256 is None and left > 0 and file.path.exists():
                    left -= file.size
                    sha256 = self._computed(collection, file)
                if sha256 is not None:
                    found[file.path] = sha256
        return found

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
