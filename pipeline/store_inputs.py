"""Inputs that lie in an object store: each object is an input like a file in a folder, in the order of a folder's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from urllib.parse import unquote

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.hash_named import is_hash_named, joined_source
from sigdir.pipeline.report import HIDDEN, UnreadInputs
from sigdir.pipeline.source import Source
from sigdir.pipeline.streams import PieceStream
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.stores import Object, Store, StoreError, objects_at, open_store

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
        hash_named = [each for each in objects if is_hash_named(_base(each.name), each.size)]
        names = {each.name for each in hash_named}
        for each in objects:
            if any(part.startswith(".") for part in each.name.split("/")):
                unread.skip(printable(store.where(each.name)), HIDDEN)
            elif each.name not in names:
                sources.append(_source(store, each.name, False, each.size, f"{top}/{each.name}"))
            elif each is hash_named[0]:
                sources.append(_hash_named(store, folder, hash_named, unread, f"{top}/{folder}".rstrip("/")))
    return sources


def store_member(source: Source, name: str) -> Source:
    """One file of a source of hash-named files, as an input of its own; raises StoreError."""
    store = open_store(source.path)
    found = store.find(name)
    size = found.size if found is not None else 0
    return _source(store, name, False, size, f"{source.below}/{name}")


def store_source(url: str, explicit: bool, size: int, below: str) -> Source:
    """One object by its own URL, as an input."""
    store, name = _object_at(url)
    return _source(store, name, explicit, size, below)


def read_object(url: str, start: int, length: int) -> bytes:
    """Some of an object's bytes. A failure is an error of reading, as it would be for a file."""
    store, name = _object_at(url)
    with _reading(store, name):
        return store.read_range(name, start, length)


def _object_at(url: str) -> tuple[Store, str]:
    folder, _, name = url.rpartition("/")
    return open_store(folder), unquote(name)


def store_folder(url: str, names: Sequence[str], size: int, unread: UnreadInputs, below: str) -> Source:
    """The hash-named objects ``names`` below a URL as one input."""
    return joined_source(url, printable(url), names, _contents(url, names, unread), size, below)


def _by_folder(objects: Sequence[Object]) -> Iterator[tuple[str, list[Object]]]:
    """The objects of each folder, in the order in which a folder on disk is searched: its files, then its folders."""
    folders: dict[str, list[Object]] = {}
    for each in objects:
        if not each.name.endswith("/"):  # some tools make such an object for a folder
            folders.setdefault(each.name.rpartition("/")[0], []).append(each)
    for folder in sorted(folders, key=lambda folder: folder.split("/") if folder else []):
        yield folder, folders[folder]


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _source(store: Store, name: str, explicit: bool, size: int, below: str) -> Source:
    stream = partial(_open, store, name)
    return Source(store.where(name), explicit, size=size, stream=stream, below=printable(below))


def _open(store: Store, name: str) -> PieceStream:
    return PieceStream(_pieces(store, name))


def _pieces(store: Store, name: str) -> Iterator[bytes]:
    """An object's bytes. A failure is an error of reading, as it would be for a file."""
    with _reading(store, name):
        yield from store.pieces(name)


@contextmanager
def _reading(store: Store, name: str) -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise OSError(_reason_of(store, name, error)) from error


def _reason_of(store: Store, name: str, error: StoreError) -> str:
    """The error's text without the object's URL, which the text begins with."""
    return str(error).removeprefix(f"{store.where(name)}: ")


def _hash_named(store: Store, folder: str, objects: Sequence[Object], unread: UnreadInputs, below: str) -> Source:
    where = store.where(folder) if folder else store.url
    names = [_base(each.name) for each in objects]
    size = sum(each.size for each in objects)
    return store_folder(where, names, size, unread, below)


def _contents(folder: str, names: Sequence[str], unread: UnreadInputs) -> Iterator[tuple[str, bytes]]:
    store = open_store(folder)

    def read(name: str) -> tuple[str, bytes]:
        try:
            return name, store.read(name)
        except StoreError as error:
            unread.add_fault(BadInput(printable(store.where(name)), _reason_of(store, name, error)))
            return name, b""  # the line stays, because the lines are numbered as the names are

    with ThreadPoolExecutor(_REQUESTS) as pool:
        yield from ordered_map(pool, read, names, ahead=4 * _REQUESTS)
