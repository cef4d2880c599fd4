"""Exports of one file per hash, as a folder or as a tar."""

from __future__ import annotations

import errno
import os
import tarfile
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from sigdir.pipeline.export_rows import ExportRows

_TREE = "signatures"
_TAR_BLOCK = 512


def write_tree(export: ExportRows, folder: Path) -> None:
    """Write one file per hash into a folder."""
    export.report.files = export.report.bytes = 0
    (folder / _TREE).mkdir()
    handle = os.open(folder / _TREE, os.O_RDONLY)
    try:
        for name, content in chain.from_iterable(map(export.texts_by_hash, export.collections)):
            _write_small(handle, name, content)
            export.report.files += 1
            export.report.bytes += len(content)
    finally:
        os.close(handle)


def _write_small(folder: int, name: str, content: bytes) -> None:
    """Create a file in half the time of Path.write_bytes; there may be a million."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    try:
        if os.write(file, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    finally:
        os.close(file)


def write_tar(export: ExportRows, out: BinaryIO) -> None:
    """Write the tree as a tar. Headers differ in a few fields only: tarfile takes 40 us for each."""
    export.report.files = 0
    for collection in export.collections:
        info = tarfile.TarInfo(f"{_TREE}/{'0' * 2 * collection.hash_bytes}")
        info.mtime = export.snapshot.high_water[collection].created_at // 1_000_000
        header = info.tobuf(tarfile.USTAR_FORMAT)
        name_at, name_ends = len(_TREE) + 1, len(info.name)
        before, after = header[name_ends:124], header[136:148]
        rest = header[156:]
        for name, content in export.texts_by_hash(collection):
            head = b"%s%s%s%011o\0%s" % (header[:name_at], name.encode(), before, len(content), after)
            checksum = sum(head) + 8 * 0x20 + sum(rest)
            out.write(b"%s%06o\0 %s%s%s" % (head, checksum, rest, content, bytes(-len(content) % _TAR_BLOCK)))
            export.report.files += 1
    out.write(bytes(2 * _TAR_BLOCK))
