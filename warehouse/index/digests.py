"""The sha256 of data files, for clients that fetch them.

The log has the digest of each file that we wrote. That of another program's file, and of a file without suppressed rows,
is computed once and kept in the cache beside its index.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.files import write_file
from sigdir.warehouse.table.parquet import sha256_of
from sigdir.warehouse.table.paths import Paths

COMPUTED_BYTES = 1 << 30
"""At most so many bytes are read to compute digests in one call, about a second; the next call goes on."""


def digests_of(paths: Paths, snapshot: Snapshot) -> dict[Path, str]:
    """The digests of a snapshot's files in hex; a file may be missing."""
    found = {}
    left = COMPUTED_BYTES
    for file in snapshot.all_files():
        sha256 = file.sha256
        if sha256 is None and left > 0 and file.path.exists():
            left -= file.size
            sha256 = _computed(paths, file)
        if sha256 is not None:
            found[file.path] = sha256
    return found


def _computed(paths: Paths, file: DataFile) -> str:
    """A data file never changes and its name is never used again, so its digest is kept for good."""
    kept = paths.digest(file.collection, file.path)
    with suppress(OSError):
        return kept.read_text()
    found = sha256_of(file.path)
    with suppress(OSError):  # on a full disk it is computed again
        write_file(kept, found.encode())
    return found
