"""Dumps: the files of each version as they are, and whole collections as NDJSON, CSV or Parquet.

A dump is a version: what was POSTed and not folded is in the next one, or behind the cursor that a version
carries in ``/api/v1/changes/``. Files are served with ranges, so Parquet readers elsewhere fetch the
columns that they want; they and their names never change, so caches may keep them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import falcon
import numpy as np
import orjson
import pyarrow as pa

from sigdir.serve.cursors import cursor_at
from sigdir.serve.http.errors import HttpError, detail, not_found
from sigdir.serve.http.negotiate import HTML, JSON, NDJSON, packed
from sigdir.serve.pages.page import rendered, send
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.digests import Digests
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.index.scan import batches, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import RECORD, Template
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log import DataFile, history
from sigdir.warehouse.parquet import file_bytes
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.schema import FILE_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot

_VERSIONS = 100
"""Versions that the list tells of; the others have their addresses as well."""

_CHUNK_ROWS = 4096  # what is written of them stays in the processor's cache: a fifth faster than with 8192
_METHODS = "GET, HEAD, OPTIONS"
_FOREVER = "public, max-age=31536000, immutable"


def routes(settings: Settings, reader: Reader, writer: Writer) -> list[tuple[str, object]]:
    dumps = _Dumps(settings, reader)
    return [
        ("/dumps/", VersionsResource(dumps)),
        ("/dumps/{version}/", VersionResource(dumps)),
        ("/dumps/{version}/{name}", CollectionResource(dumps)),
        ("/dumps/{version}/{name}/{file}", FileResource(dumps)),
    ]


class _Dumps:
    """What the resources share: versions, what is said of them, how many may stream."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self.paths = Paths(settings.warehouse.absolute())
        self._reader = reader
        self._digests = Digests(self.paths)
        self._snapshot = lru_cache(maxsize=16)(lambda version: read_snapshot(self.paths, version))
        # Half of the threads: slow clients leave the others to everybody else.
        self.streams = threading.BoundedSemaphore(max(1, settings.threads // 2))

    def newest(self) -> Snapshot:
        return self._reader.current().snapshot

    def version(self, req: falcon.Request, asked: str) -> Snapshot:
        """The version that a path names; raises a redirection for the newest one, HttpError where there is none."""
        newest = self.newest()
        if asked == "latest" and newest.version >= 0:
            raise falcon.HTTPFound(f"/dumps/{newest.version}/" + quote(req.path.removeprefix("/dumps/latest/")))
        if not re.fullmatch(r"0|[1-9]\d{0,11}", asked) or int(asked) > newest.version:
            raise not_found()
        try:
            return newest if int(asked) == newest.version else self._snapshot(int(asked))
        except UnreadableWarehouse:
            raise detail(410, f"Version {asked} is not kept any more.") from None

    def told(self, snapshot: Snapshot) -> dict[str, Any]:
        """A version, with all its files."""
        sha256 = self._digests.of(snapshot)
        return {
            "version": snapshot.version,
            "rows": {collection: snapshot.count(collection) for collection in COLLECTIONS},
            # What the version's highest id is, no row below it can come any more.
            "changes_after": {c: cursor_at(c, snapshot.high_water[c].id) for c in COLLECTIONS},
            "files": [
                {
                    "collection": collection,
                    "url": f"/dumps/{snapshot.version}/{collection}/{file.path.name}",
                    "rows": file.rows,
                    "bytes": file.size,
                    "sha256": sha256.get(file.path),
                    "first_id": file.first_id,
                    "last_id": file.last_id,
                }
                for collection in COLLECTIONS
                for file in snapshot.files[collection]
            ],
        }


class VersionsResource:
    """The newest version with its files, and the versions before it; a page for who prefers one."""

    methods = _METHODS

    def __init__(self, dumps: _Dumps) -> None:
        self._dumps = dumps
        self._versions = lru_cache(maxsize=1)(lambda newest: _versions(dumps.paths, newest))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        newest = self._dumps.newest()
        latest = self._dumps.told(newest) if newest.version >= 0 else None
        versions = self._versions(newest.version) if latest else []
        _tell(req, resp, {"latest": latest, "versions": versions}, latest, versions)

    on_head = on_get


def _versions(paths: Paths, newest: int) -> list[dict[str, Any]]:
    return [
        {
            "version": entry["version"],
            "committed_at": entry["committed_at"].isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": entry.get("kind"),
            "url": f"/dumps/{entry['version']}/",
        }
        for entry in reversed(history(paths, newest, _VERSIONS))
    ]


class VersionResource:
    """One version's files; a page for who prefers one."""

    methods = _METHODS

    def __init__(self, dumps: _Dumps) -> None:
        self._dumps = dumps

    def on_get(self, req: falcon.Request, resp: falcon.Response, version: str) -> None:
        told = self._dumps.told(self._dumps.version(req, version))
        _tell(req, resp, told, told)

    on_head = on_get


def _tell(
    req: falcon.Request, resp: falcon.Response, told: dict[str, Any], shown: dict[str, Any] | None,
    versions: Sequence[dict[str, Any]] = (),
) -> None:  # fmt: skip
    """Answer ``told`` as JSON, or the page of the version ``shown``, with links to all ``versions``."""
    _share(resp)
    if req.context.kind == HTML:
        send(req, resp, rendered("dumps.html", shown=shown, versions=versions))
    else:
        resp.content_type = JSON
        resp.data = packed(req, resp, orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def _share(resp: falcon.Response, cache_control: str = "no-cache") -> None:
    """Let any page of any origin read this, with ranges: engines that run in a browser do."""
    resp.set_header("Cache-Control", cache_control)
    resp.set_header("Access-Control-Allow-Origin", "*")
    resp.set_header("Access-Control-Expose-Headers", "Accept-Ranges, Content-Length, Content-Range, ETag")


# Whole collections.


class CollectionResource:
    """A collection at a version, written while it is read: ``signatures.ndjson`` and the like."""

    def __init__(self, dumps: _Dumps) -> None:
        self._dumps = dumps

    def on_get(self, req: falcon.Request, resp: falcon.Response, version: str, name: str) -> None:
        snapshot = self._dumps.version(req, version)
        for collection in COLLECTIONS:
            files = snapshot.files[collection]
            if name == f"{collection}.parquet" and len(files) == 1:
                raise falcon.HTTPFound(f"/dumps/{snapshot.version}/{collection}/{files[0].path.name}")
            for ending, (kind, chunks) in _KINDS.items():
                if name == collection + ending:
                    _all_kept(files)
                    resp.content_type = kind
                    _share(resp)
                    resp.set_header("Content-Disposition", f'attachment; filename="{name}"')
                    is_asked = req.method != "HEAD"
                    resp.stream = _Stream(self._dumps.streams, chunks(collection, files)) if is_asked else ()
                    return
        raise not_found()

    on_head = on_get


def _all_kept(files: tuple[DataFile, ...]) -> None:
    if not all(file.path.exists() for file in files):
        raise _gone()


def _gone() -> HttpError:
    return detail(410, "A file of this version is not kept any more.")


class _Stream:
    """An answer that is made while it is sent; it holds one of the places for such until it is closed."""

    _places: threading.BoundedSemaphore | None = None

    def __init__(self, places: threading.BoundedSemaphore, chunks: Iterator[bytes]) -> None:
        if not places.acquire(blocking=False):
            refusal = detail(503, "Too many downloads at once.")
            refusal.headers["Retry-After"] = "10"
            raise refusal
        self._places = places
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.release()

    __del__ = close  # for servers that do not close what they were given


CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"

_NDJSON, _CSV = Template(RECORD + "\n"), Template('{id},{created_at}Z,"{text_csv}",0x{hash}\n')
_CSV_HEAD = b"id,created_at,text_signature,hex_signature\n"

Chunks = Callable[[Collection, tuple[DataFile, ...]], Iterator[bytes]]


def _lines(head: bytes, template: Template, collection: Collection, files: tuple[DataFile, ...]) -> Iterator[bytes]:
    yield head
    for file in files:
        for segment in pieces(collection, file.path):
            for first in range(0, segment.rows, _CHUNK_ROWS):
                yield template.render(segment, np.arange(first, min(first + _CHUNK_ROWS, segment.rows)))


def _parquet(collection: Collection, files: tuple[DataFile, ...]) -> Iterator[bytes]:
    rows = (batch for file in files for batch in batches(file.path, FILE_SCHEMA.names))
    return file_bytes(collection, (pa.Table.from_batches([batch], FILE_SCHEMA) for batch in rows))


_KINDS: dict[str, tuple[str, Chunks]] = {
    ".ndjson": (NDJSON, partial(_lines, b"", _NDJSON)),
    ".csv": (f"{CSV}; charset=utf-8", partial(_lines, _CSV_HEAD, _CSV)),
    ".parquet": (PARQUET, _parquet),
}


def warm() -> None:
    """Compile the kernel of many rows, or load it."""
    numbers, text = np.zeros(1, np.int64), np.frombuffer(b"f()", np.uint8)
    segment = Segment.of(1, numbers, numbers, np.array([0, 3]), text, np.zeros((1, 4), np.uint8), {})
    _CSV.render(segment, np.zeros(_CHUNK_ROWS, np.int64))


# Files.


class FileResource:
    """A data file of a version, or a range of its bytes."""

    def __init__(self, dumps: _Dumps) -> None:
        self._dumps = dumps

    def on_get(self, req: falcon.Request, resp: falcon.Response, version: str, name: str, file: str) -> None:
        snapshot = self._dumps.version(req, version)
        # Only names are compared: no path is made of what was asked for.
        for collection in COLLECTIONS:
            for known in snapshot.files[collection]:
                if (collection, known.path.name) == (name, file):
                    _send(req, resp, known.path)
                    return
        raise not_found()

    on_head = on_get


def _send(req: falcon.Request, resp: falcon.Response, path: Path) -> None:
    try:
        data = path.open("rb")
    except FileNotFoundError:
        raise _gone() from None
    size = data.seek(0, 2)
    tag = f'"{path.stem}"'  # never used for other bytes
    modified = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    dated = modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
    first, end = 0, size
    if (req.get_header("If-Range") or tag).strip() in (tag, dated):
        try:
            asked = byte_range(req.get_header("Range") or "", size)
        except ValueError:
            data.close()
            refusal = detail(416, f"The file has {size} bytes.")
            refusal.headers["Content-Range"] = f"bytes */{size}"
            raise refusal from None
        if asked is not None:
            first, end = asked
            resp.status = falcon.HTTP_206
            resp.set_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
    _share(resp, _FOREVER)
    resp.set_header("ETag", tag)
    resp.set_header("Last-Modified", dated)
    resp.set_header("Accept-Ranges", "bytes")
    resp.content_type = PARQUET
    known = req.get_header("If-None-Match") or ""
    if known.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in known.split(",")):
        data.close()
        resp.status = falcon.HTTP_304
        resp.delete_header("Content-Range")
        return
    resp.content_length = end - first
    if req.method == "HEAD":
        data.close()
    else:
        resp.stream = _Part(data, first, end)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The half-open range that a Range header asks for; None for all of it.

    A header that is no single range of bytes counts for nothing, as the standard allows. Raises
    ValueError for a range without a byte in it.
    """
    found = re.fullmatch(r"bytes\s*=\s*(?:(\d{1,18})\s*-\s*(\d{0,18})|-\s*(\d{1,18}))\s*", header, re.ASCII)
    if not found:
        return None
    if found[3] is not None:
        first, end = max(0, size - int(found[3])), size
    else:
        first, end = int(found[1]), min(size, int(found[2]) + 1 if found[2] else size)
        if found[2] and int(found[2]) < first:
            return None
    if first >= end:
        raise ValueError(header)
    return first, end


class _Part:
    """Some bytes of an open file as a file of its own.

    Seekable, so that waitress sends it by itself and the thread is free for the next request.
    """

    def __init__(self, data: BinaryIO, first: int, end: int) -> None:
        self._data, self._first, self._end = data, first, end
        self.seek(0)

    def read(self, size: int | None = None, /) -> bytes:
        left = max(0, self._end - self._data.tell())
        return self._data.read(left if size is None or size < 0 else min(size, left))

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: self._first, 1: self._data.tell(), 2: self._end}[whence]
        return self._data.seek(base + offset) - self._first

    def tell(self) -> int:
        return self._data.tell() - self._first

    def close(self) -> None:
        self._data.close()
