"""Where rows are written to: a file or an object that appears when it is complete, a device, or standard output."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, cast
from urllib.parse import unquote

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.warehouse.table.files import replacing, sync
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.stores import is_url, open_store

STDOUT = "-"
_REQUESTS = 16


@contextmanager
def open_target(target: str, packs: bool) -> Iterator[BinaryIO]:
    """The target to write to, packed with gzip or zstd if it ends so. A regular file appears when it is complete."""
    if target == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    if is_url(target):
        with _object(target, packs) as out:
            yield out
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
def _object(url: str, packs: bool) -> Iterator[BinaryIO]:
    """An object of a store, written as a file first. Raises StoreError."""
    folder, _, name = url.rpartition("/")
    if not name or folder.endswith("/"):
        raise BadTarget(printable(url), "names no object; write s3://bucket/name")
    store = open_store(folder)
    with TemporaryDirectory(prefix="sigdir-") as scratch:
        file = Path(scratch) / name
        with open_target(str(file), packs) as out:
            yield out
        store.put(unquote(name), file)


@contextmanager
def open_folder(target: str) -> Iterator[Path]:
    """A folder to fill, which appears when it is complete; of a store's URL the files become objects.

    Raises BadTarget where there is one already, StoreError.
    """
    if not is_url(target):
        with _new_folder(Path(target)) as folder:
            yield folder
        return
    with TemporaryDirectory(prefix="sigdir-") as scratch:
        yield Path(scratch)
        _put_tree(Path(scratch), target)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when that is done. Raises BadTarget where there is one already."""
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise BadTarget(printable(str(target)), "exists already; name a new folder")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        yield part
        os.sync()  # one sync per file would take a hundred times as long
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync(target.absolute().parent)


def _put_tree(folder: Path, url: str) -> None:
    """Write the files of a folder into a store; raises BadTarget where there are objects already, StoreError."""
    store = open_store(url)
    if store.list():
        raise BadTarget(printable(url), "has objects already; name a new prefix")
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    for_each(lambda file: store.put(file.relative_to(folder).as_posix(), file), files, _REQUESTS)


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
