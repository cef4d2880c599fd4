"""The inputs of an import: the files that the given paths name, and the members of archives among them."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from sigdir.pipeline.archive import is_archive, open_members
from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats.hash_lines import HASH_NAMED_BYTES, is_hash_named, is_tree, joined_source
from sigdir.pipeline.report import (
    DANGLING_LINK,
    HIDDEN,
    LINK,
    REPEATED_FOLDER,
    SPECIAL,
    WAREHOUSE,
    ImportReport,
    UnreadInputs,
)
from sigdir.pipeline.source import STDIN, PieceStream, Source
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.stores import Object, Store, StoreError, is_url, objects_at, open_store


def find(paths: Iterable[str], unread: UnreadInputs | None = None, follow_links: bool = False) -> list[Source]:
    """The inputs that the paths name; raises BadInput, and StoreError for those in a store.

    Folders are searched in name order. Hidden files and folders are skipped, and so are links in folders,
    unless ``follow_links``. The hash-named files of a folder are one input, at the position of the first of
    them. ``unread`` takes what is skipped or cannot be read; without it a fault is raised.
    """
    unread = unread or _raising()
    found: list[Source] = []
    for path in paths:
        if path == STDIN:
            found.append(Source(path, explicit=True))
        elif is_url(path):
            found += store_sources(path, unread)
        elif os.path.isdir(path):
            found += _Search(path, unread, follow_links).sources()
        elif os.path.exists(path):
            found.append(Source(path, explicit=True))
        else:
            raise BadInput(printable(path), _NOT_FETCHED if "://" in path else "no such file or folder")
    return found


_NOT_FETCHED = (
    "addresses are not fetched, but those of stores, such as s3://bucket/list.txt; download it, or copy another"
    " directory with sigdir mirror"
)


def open_each(
    sources: Iterable[Source], advance: Callable[[int], None], format: str | None, unread: UnreadInputs | None = None
) -> Iterator[Source]:
    """The inputs one after the other, each of them open until the next is taken; raises BadInput.

    An archive is replaced by its members. A folder of hash-named files whose texts do not hash to their
    names is replaced by its files. ``format`` is the name that the user gave with --format. ``unread`` takes
    what is skipped or cannot be read; without it a fault is raised.
    """
    unread = unread or _raising()
    for source in sources:
        with unread.faults_of(source), source.open(advance):
            if is_archive(source):
                yield from open_members(source, format, unread)
            elif source.file_names is not None and not _is_tree(source, format):
                files = [_file_of(source, name) for name in source.file_names]
                yield from open_each(files, advance, format, unread)
            else:
                yield source


def _file_of(folder: Source, name: str) -> Source:
    """One of the hash-named files of an input, as an input of its own."""
    path, shown = posixpath.join(folder.path, name), posixpath.join(folder.name, printable(name))
    return input_at(path, False, shown, 0, f"{folder.below}/{printable(name)}")


def input_at(path: str, explicit: bool, name: str, size: int, below: str) -> Source:
    """A file, or an object by its own URL; raises StoreError."""
    if is_url(path):
        return _source(*_object_at(path), explicit, size, below)
    return Source(path, explicit, name, size, below=below)


def folder_at(folder: str, names: Sequence[str], size: int, unread: UnreadInputs, below: str, name: str = "") -> Source:
    """The hash-named files ``names`` of a folder, or objects below a URL, as one input; ``size`` is their total size.

    Messages call the folder ``name``, by default its path.
    """
    name = name or printable(folder)
    return joined_source(folder, name, names, _contents(folder, names, unread, name), size, below)


def _contents(folder: str, names: Sequence[str], unread: UnreadInputs, shown: str) -> Iterator[tuple[str, bytes]]:
    content = _content_of_object if is_url(folder) else _content_of_file

    def read(name: str) -> tuple[str, bytes]:
        try:
            return name, content(folder, name)
        except OSError as error:
            unread.add_fault(BadInput(posixpath.join(shown, printable(name)), error.strerror or str(error)))
            return name, b""  # the line stays, because the lines are numbered as the names are

    if not is_url(folder):
        yield from map(read, names)
        return
    with ThreadPoolExecutor(_REQUESTS) as pool:
        yield from ordered_map(pool, read, names, ahead=4 * _REQUESTS)


def _content_of_file(folder: str, name: str) -> bytes:
    # These three calls take a third of the time of a file object.
    file = os.open(os.path.join(folder, name), os.O_RDONLY)
    try:
        return os.read(file, HASH_NAMED_BYTES)
    finally:
        os.close(file)


def _content_of_object(folder: str, name: str) -> bytes:
    store = open_store(folder)
    with _reading(store, name):
        return store.read(name)


def _raising() -> UnreadInputs:
    return UnreadInputs(ImportReport(), strict=True)


def _is_tree(source: Source, format: str | None) -> bool:
    return is_tree(source) if format is None else format == "tree"


class _Search:
    """Goes through one folder that the user named."""

    def __init__(self, folder: str, unread: UnreadInputs, follow_links: bool) -> None:
        self._folder = folder
        self._unread = unread
        self._follow_links = follow_links
        self._searched: set[tuple[int, int]] = set()
        """Device and inode of each folder, if links are followed: they may lead back."""

    def sources(self) -> Iterator[Source]:
        for parent, folders, files in os.walk(self._folder, onerror=self._fail, followlinks=self._follow_links):
            folders[:] = [name for name in sorted(folders) if self._is_searched(os.path.join(parent, name))]
            yield from self._sources_in(parent, sorted(files))

    def _fail(self, error: OSError) -> None:
        problem = BadInput(printable(error.filename), error.strerror or str(error))
        if error.filename == self._folder:
            raise problem
        self._unread.add_fault(problem)

    def _is_searched(self, folder: str) -> bool:
        reason = self._reason_to_skip(folder)
        if reason:
            self._unread.skip(printable(folder), reason)
        return not reason

    def _reason_to_skip(self, folder: str) -> str:
        if os.path.basename(folder).startswith("."):
            return HIDDEN
        paths = Paths(Path(folder))  # as `./data`, which `sigdir import .` made: its files are no source
        if paths.identity.exists() and paths.log.exists():
            return WAREHOUSE
        if not self._follow_links:
            return LINK if os.path.islink(folder) else ""
        if not self._searched:
            self._searched.add(_identity(self._folder))
        before = len(self._searched)
        self._searched.add(_identity(folder))
        return REPEATED_FOLDER if len(self._searched) == before else ""

    def _sources_in(self, folder: str, names: list[str]) -> Iterator[Source]:
        hash_named: list[str] = []
        hash_named_bytes = 0
        sources: list[Source | None] = []  # None where the hash-named files go
        for name in names:
            path = os.path.join(folder, name)
            size, skip_reason = self._size(path)
            if skip_reason:
                self._unread.skip(printable(path), skip_reason)
            elif is_hash_named(name, size):
                if not hash_named:
                    sources.append(None)
                hash_named.append(name)
                hash_named_bytes += size
            else:
                sources.append(Source(path, explicit=False, size=size, below=self._below(path)))
        for source in sources:
            yield source or folder_at(folder, hash_named, hash_named_bytes, self._unread, self._below(folder))

    def _below(self, path: str) -> str:
        """A path below the folder that the user named, with that folder's name."""
        folder = os.path.abspath(self._folder)
        return printable(os.path.normpath(os.path.join(os.path.basename(folder), os.path.relpath(path, self._folder))))

    def _size(self, path: str) -> tuple[int, str]:
        """The size of a file in bytes, and why it is skipped; the reason is empty if it is read."""
        if os.path.basename(path).startswith("."):
            return 0, HIDDEN
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                if not self._follow_links:
                    return 0, LINK
                status = os.stat(path)
        except OSError:
            return 0, DANGLING_LINK
        return status.st_size, "" if stat.S_ISREG(status.st_mode) else SPECIAL


def _identity(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


# Inputs that lie in an object store: each object is an input like a file in a folder, in the order of a folder's files.


_REQUESTS = 16
"""Small objects that are fetched at the same time."""


def store_sources(url: str, unread: UnreadInputs) -> list[Source]:
    """The inputs that a URL names: one object, or all below a prefix. Raises BadInput, StoreError."""
    store, found = objects_at(url)
    top = unquote(url.rstrip("/").rpartition("/")[2])
    if not found:
        raise BadInput(printable(url), "no such object, and none below this prefix")
    if store.url != url.rstrip("/"):
        return [_source(store, found[0].name, True, found[0].size, top)]
    sources: list[Source] = []
    for folder, objects in _by_folder(found):
        hash_named = [each for each in objects if is_hash_named(posixpath.basename(each.name), each.size)]
        names = {each.name for each in hash_named}
        for each in objects:
            if any(part.startswith(".") for part in each.name.split("/")):
                unread.skip(printable(store.where(each.name)), HIDDEN)
            elif each.name not in names:
                sources.append(_source(store, each.name, False, each.size, f"{top}/{each.name}"))
            elif each is hash_named[0]:
                of_folder = [posixpath.basename(each.name) for each in hash_named]
                where, size = store.where(folder) if folder else store.url, sum(each.size for each in hash_named)
                sources.append(folder_at(where, of_folder, size, unread, f"{top}/{folder}".rstrip("/")))
    return sources


def read_object(url: str, start: int, length: int) -> bytes:
    """Some of an object's bytes. A failure is an error of reading, as it would be for a file."""
    store, name = _object_at(url)
    with _reading(store, name):
        return store.read_range(name, start, length)


def _object_at(url: str) -> tuple[Store, str]:
    folder, _, name = url.rpartition("/")
    return open_store(folder), unquote(name)


def _by_folder(objects: Sequence[Object]) -> Iterator[tuple[str, list[Object]]]:
    """The objects of each folder, in the order in which a folder on disk is searched: its files, then its folders."""
    folders: dict[str, list[Object]] = {}
    for each in objects:
        if not each.name.endswith("/"):  # some tools make such an object for a folder
            folders.setdefault(each.name.rpartition("/")[0], []).append(each)
    for folder in sorted(folders, key=lambda folder: folder.split("/") if folder else []):
        yield folder, folders[folder]


def _source(store: Store, name: str, explicit: bool, size: int, below: str) -> Source:

    def stream() -> PieceStream:
        return PieceStream(_pieces(store, name))

    return Source(store.where(name), explicit, size=size, stream=stream, below=printable(below))


def _pieces(store: Store, name: str) -> Iterator[bytes]:
    """An object's bytes. A failure is an error of reading, as it would be for a file."""
    with _reading(store, name):
        yield from store.pieces(name)


@contextmanager
def _reading(store: Store, name: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        # Without the object's URL, which the text begins with.
        raise OSError(str(error).removeprefix(f"{store.where(name)}: ")) from error
