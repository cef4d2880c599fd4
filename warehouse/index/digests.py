"""The sha256 of data files, for clients that fetch them.

The log has the digest of each file that we wrote. That of another program's file, and of a file without suppressed rows,
is computed once a process.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.parquet import sha256_of

COMPUTED_BYTES = 1 << 30
"""At most so many bytes are read to compute digests in one call, about a second; the next call goes on."""


def digests_of(snapshot: Snapshot) -> dict[Path, str]:
    """The digests of a snapshot's files in hex; a file may be missing."""
    found = {}
    left = COMPUTED_BYTES
    for file in snapshot.all_files():
        sha256 = file.sha256
        if sha256 is None and left > 0 and file.path.exists():
            left -= file.size
            sha256 = _computed(file.path)
        if sha256 is not None:
            found[file.path] = sha256
    return found


@lru_cache(maxsize=4096)
def _computed(path: Path) -> str:
    """A data file never changes and its name is never used again."""
    return sha256_of(path)
