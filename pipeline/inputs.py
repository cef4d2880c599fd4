"""The inputs of an import: the files that the given paths name, and the members of archives among them."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator

from sigdir.pipeline.archive import is_archive, open_members
from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats import tree
from sigdir.pipeline.hash_named import folder_source, is_hash_named
from sigdir.pipeline.source import STDIN, Source


def find(paths: list[str]) -> list[Source]:
    """The inputs that the paths name; raises BadInput.

    Folders are searched in name order. Hidden files and folders are skipped, and links to folders are
    not followed. The hash-named files of a folder are one input, at the position of the first of them.
    """
    found: list[Source] = []
    for path in paths:
        if path == STDIN:
            found.append(Source(path, explicit=True))
        elif os.path.isdir(path):
            found += _walk(path)
        elif os.path.exists(path):
            found.append(Source(path, explicit=True))
        else:
            raise BadInput(printable(path), "no such file or folder")
    return found


def open_each(sources: Iterable[Source], advance: Callable[[int], None], format: str | None) -> Iterator[Source]:
    """The inputs one after the other, each of them open until the next is taken; raises BadInput.

    An archive is replaced by its members. A folder of hash-named files whose texts do not hash to their
    names is replaced by its files. ``format`` is the name that the user gave with --format.
    """
    for source in sources:
        with source.open(advance):
            if is_archive(source):
                yield from open_members(source, format)
            elif source.file_names is not None and not _is_tree(source, format):
                files = [Source(posixpath.join(source.path, name), explicit=False) for name in source.file_names]
                yield from open_each(files, advance, format)
            else:
                yield source


def _is_tree(source: Source, format: str | None) -> bool:
    return tree.looks_like(source) if format is None else format == "tree"


def _walk(folder: str) -> Iterator[Source]:
    def fail(error: OSError) -> None:
        raise BadInput(printable(error.filename), error.strerror or str(error))

    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from _sources_in(parent, sorted(name for name in files if not name.startswith(".")))


def _sources_in(folder: str, names: list[str]) -> Iterator[Source]:
    hash_named: list[str] = []
    hash_named_bytes = 0
    sources: list[Source | None] = []  # None where the hash-named files go
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = os.stat(path)
        except OSError:  # a dangling link
            continue
        if not stat.S_ISREG(status.st_mode):
            continue
        if is_hash_named(name, status.st_size):
            if not hash_named:
                sources.append(None)
            hash_named.append(name)
            hash_named_bytes += status.st_size
        else:
            sources.append(Source(path, explicit=False, size=status.st_size))
    for source in sources:
        yield source or folder_source(folder, hash_named, hash_named_bytes)
