"""Where rows are written to: a file that appears when it is complete, a device, or standard output."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.warehouse.files import replacing

STDOUT = "-"


@contextmanager
def open_target(target: str, packs: bool) -> Iterator[BinaryIO]:
    """The target to write to, packed with gzip or zstd if it ends so. A regular file appears when it is complete."""
    if target == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    path = Path(os.path.realpath(target))  # replaces the file that a link points to, not the link
    ending = path.suffix if packs else ""
    if path.is_dir():
        raise BadTarget(printable(target), "is a folder")
    if path.exists() and not path.is_file():  # a pipe or a device is not replaced
        with path.open("wb") as device, _packed(device, ending) as packed:
            yield packed
        return
    with replacing(path) as out, _packed(out, ending) as packed:
        yield packed


@contextmanager
def _packed(out: BinaryIO, ending: str) -> Iterator[BinaryIO]:
    if ending == ".gz":
        # Without name and time the same rows give the same bytes.
        with gzip.GzipFile("", "wb", 6, out, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif ending == ".zst":
        from backports import zstd  # a query to standard output does without it

        parameter = zstd.CompressionParameter
        options: dict[int, int] = {parameter.compression_level: 3, parameter.nb_workers: os.cpu_count() or 1}
        with zstd.ZstdFile(out, "wb", options=options) as packed:
            yield cast(BinaryIO, packed)
    else:
        yield out
