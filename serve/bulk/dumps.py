"""Dumps: the data files of each version as they are, and whole collections as NDJSON, CSV or Parquet.

A dump is a version. Rows that are POSTed but not folded yet come with the next version; ``/api/v1/changes/`` gives
them at once, after the version's cursor. Files are served with ranges, so remote Parquet readers fetch only the
columns that they need. A file never changes under its name, so caches may keep it.

A range has all texts whose hashes begin with three hex digits, as a pack: who asks for it tells nobody which one is
wanted.

The short address leads to that of the newest version, whose answer never changes. ``padded=1`` gives many ranges one
size, because sizes would tell them apart to whoever sees the traffic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import falcon
import numpy as np
import pyarrow as pa

from sigdir.serve.http.answers import HTML, NDJSON, HttpError, detail, json_bytes, not_found, send_json
from sigdir.serve.http.bodies import StreamLimit, is_on
from sigdir.serve.http.caching import ANY_VIEW, PageCache, if_range_holds, is_current, not_modified, strong, token_of
from sigdir.serve.lists.paging import cursor_at
from sigdir.serve.pages.page import rendered, send
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.pack_texts import DIGITS, PackRow, is_prefix, range_bytes
from sigdir.warehouse.index.build import pieces
from sigdir.warehouse.index.ranked import ranked_range
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import RECORD, Template, csv_head, csv_line
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.manifest import newest_first
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile, iso
from sigdir.warehouse.table.parquet import FILE_SCHEMA, batches_in, file_bytes, sha256_of
from sigdir.warehouse.table.paths import Paths

PACK = "application/vnd.sigpack"
MAX_TEXTS = 20_000
"""Of a range, which is reached at 80 million texts. They take 0.4 s to order."""
_NEWEST_SECONDS = 60
_LENGTH = (
    f"{DIGITS} hex digits, please: the first of a selector or a topic. With more of them the server would learn "
    "which text is wanted, fewer are too much to send."
)


@dataclass
class RangeResource:
    """A range of the newest version by a redirect, or by the name of its version itself."""

    may_be_short = True

    _reader: Reader
    _cache: PageCache

    def on_get(
        self, req: falcon.Request, resp: falcon.Response, collection: str, prefix: str, edition: str = ""
    ) -> None:
        if collection not in COLLECTIONS:
            raise not_found()
        if not is_prefix(prefix):
            raise detail(400, _LENGTH)
        view = self._reader.current()
        newest, query = _edition(view), "padded=1" if is_on(req, "padded") else ""
        place = f"/range/{collection}/{prefix.lower()}/{newest}"
        if req.path != place:
            resp.status, resp.location = falcon.HTTP_302, f"{place}?{query}".rstrip("?")
            resp.set_header("Cache-Control", f"public, max-age={_NEWEST_SECONDS}")
            return
        body = self._cache.get(req, ANY_VIEW, f"{place}?{query}")
        if body is None:
            body = _range(view, Collection.of_name(collection), prefix, is_padded=bool(query))
            self._cache.put(ANY_VIEW, f"{place}?{query}", body)
        if not not_modified(req, resp, strong(token_of(body)), _FOREVER):
            resp.content_type, resp.data = PACK, body


def _range(view: View, collection: Collection, prefix: str, *, is_padded: bool) -> bytes:
    rows = ranked_range(view, collection, int(prefix, 16), DIGITS, MAX_TEXTS)
    if rows is None:
        raise detail(404, f"This range has more than {MAX_TEXTS:,} texts. Take a dump or a pack.")
    texts = [PackRow(row.text, row.position) for row in rows]
    return range_bytes(collection, max(view.snapshot.version, 0), texts, padded=is_padded)


def _edition(view: View) -> str:
    """What the files of a view are named by: the version, and the list of what is suppressed where there is one."""
    hidden = f".{view.suppressed.id}" if view.suppressed else ""
    return f"{max(view.snapshot.version, 0)}{hidden}"


CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"

_VERSIONS = 100
"""Versions in the list. Older ones can still be fetched by number."""

_CHUNK_BYTES = 1 << 20
_DIGESTED_BYTES = 1 << 30  # a second
_CHUNK_ROWS = 4096  # their text stays in the processor's cache: a fifth faster than with 8192
_FOREVER = "public, max-age=31536000, immutable"


class Versions:
    """The versions of a warehouse, shared by the resources."""

    def __init__(self, reader: Reader) -> None:
        self.paths, self._reader = reader.paths, reader
        self._digests: dict[Path, str] = {}
        self._snapshot = lru_cache(maxsize=16)(lambda version: read_snapshot(self.paths, version))

    def newest(self) -> Snapshot:
        return self._reader.current().snapshot

    def version(self, req: falcon.Request, wanted: str) -> Snapshot:
        """The version that a path names; raises HTTPFound for ``latest``, and HttpError if there is none."""
        newest = self.newest()
        if wanted == "latest" and newest.version >= 0:
            raise falcon.HTTPFound(f"/dumps/{newest.version}/" + quote(req.path.removeprefix("/dumps/latest/")))
        if not re.fullmatch("0|[1-9][0-9]{0,11}", wanted) or int(wanted) > newest.version:
            raise not_found()
        try:
            return newest if int(wanted) == newest.version else self._reader.visible(self._snapshot(int(wanted)))
        except UnreadableWarehouse:
            raise detail(410, f"Version {wanted} is not kept any more.") from None

    def _sha256(self, snapshot: Snapshot) -> dict[Path, str]:
        """The digests of a version's files in hex, as far as they are known.

        The log has those of files that we wrote. Those of other programs' files, and of files without suppressed rows,
        are computed, at most _DIGESTED_BYTES a request; a data file never changes and its name is never used again.
        """
        files, left = snapshot.all_files(), _DIGESTED_BYTES
        for file in files:
            if file.sha256 is None and file.path not in self._digests and left > 0 and file.path.exists():
                self._digests[file.path] = sha256_of(file.path)
                left -= file.size
        return self._digests | {file.path: file.sha256 for file in files if file.sha256 is not None}

    def document(self, snapshot: Snapshot) -> dict[str, Any]:
        """A version with all its files, as JSON values."""
        sha256 = self._sha256(snapshot)
        return {
            "version": snapshot.version,
            "rows": {collection: snapshot.count(collection) for collection in COLLECTIONS},
            # No row at or below the highest id of a version can still appear.
            "changes_after": {c: cursor_at(c, snapshot.high_water[c].id) for c in COLLECTIONS},
            "files": [
                _file_document(snapshot.version, collection, file, sha256.get(file.path))
                for collection in COLLECTIONS
                for file in snapshot.files[collection]
            ],
        }


def _file_document(version: int, collection: Collection, file: DataFile, sha256: str | None) -> dict[str, Any]:
    return {
        "collection": collection,
        "url": f"/dumps/{version}/{collection}/{file.path.name}",
        "rows": file.rows,
        "bytes": file.size,
        "sha256": sha256,
        "first_id": file.first_id,
        "last_id": file.last_id,
    }


@dataclass
class VersionsResource:
    """The newest version with its files, and the list of older versions; JSON or a page."""

    negotiates = True

    _versions: Versions

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        newest = self._versions.newest()
        latest = self._versions.document(newest) if newest.version >= 0 else None
        versions = _history(self._versions.paths, newest.version) if latest else []
        _answer(req, resp, {"latest": latest, "versions": versions}, latest, versions)


def _history(paths: Paths, newest: int) -> list[dict[str, Any]]:
    return [
        {
            "version": entry["version"],
            "committed_at": iso(entry["committed_at"]),
            "kind": entry["kind"],
            "url": f"/dumps/{entry['version']}/",
        }
        for entry in newest_first(paths, newest, newest - _VERSIONS)
    ]


@dataclass
class VersionResource:
    """The files of one version; JSON or a page."""

    negotiates = True

    _versions: Versions

    def on_get(self, req: falcon.Request, resp: falcon.Response, version: str) -> None:
        document = self._versions.document(self._versions.version(req, version))
        _answer(req, resp, document, document)


def _answer(
    req: falcon.Request, resp: falcon.Response, document: dict[str, Any], shown: dict[str, Any] | None,
    versions: Sequence[dict[str, Any]] = (),
) -> None:  # fmt: skip
    """Answer with the document as JSON or as a page: the version ``shown``, then links to ``versions``."""
    _allow_any_origin(resp)
    resp.set_header("Cache-Control", "no-cache")
    if req.context.kind == HTML:
        send(req, resp, rendered("dumps.html", shown=shown, versions=versions))
    else:
        send_json(req, resp, json_bytes(document, indent=True))


def _allow_any_origin(resp: falcon.Response) -> None:
    """Let pages of any origin read this and its ranges: database engines in a browser need it."""
    resp.set_header("Access-Control-Allow-Origin", "*")
    resp.set_header("Access-Control-Expose-Headers", "Accept-Ranges, Content-Length, Content-Range")


# Whole collections.


@dataclass
class CollectionResource:
    """A whole collection at a version, written while it is sent: ``signatures.ndjson`` and the like."""

    _versions: Versions
    _streams: StreamLimit

    def on_get(self, req: falcon.Request, resp: falcon.Response, version: str, name: str) -> None:
        snapshot = self._versions.version(req, version)
        stem, _, ending = name.partition(".")
        if stem not in COLLECTIONS or ending not in _FORMATS:
            raise not_found()
        collection = Collection.of_name(stem)
        files = snapshot.files[collection]
        if ending == "parquet" and len(files) == 1:
            raise falcon.HTTPFound(f"/dumps/{snapshot.version}/{collection}/{files[0].path.name}")
        if not all(file.path.exists() for file in files):
            raise _gone()
        media_type, chunks = _FORMATS[ending]
        resp.content_type = media_type
        _allow_any_origin(resp)
        resp.set_header("Cache-Control", "no-cache")
        resp.set_header("Content-Disposition", f'attachment; filename="{name}"')
        resp.stream = self._streams.stream(chunks(collection, files)) if req.method != "HEAD" else ()


def _gone() -> HttpError:
    return detail(410, "A file of this version is not kept any more.")


_CSV_FIELDS = ("id", "created_at", "text_signature", "hex_signature")
_NDJSON, _CSV = Template(RECORD + "\n"), Template(csv_line(_CSV_FIELDS))


def _lines(head: bytes, template: Template, collection: Collection, files: tuple[DataFile, ...]) -> Iterator[bytes]:
    yield head
    for file in files:
        for segment in pieces(collection, file.path):
            for first, last in segment.spans(0, segment.rows, _CHUNK_ROWS, _CHUNK_BYTES):
                yield template.render(segment, np.arange(first, last))


def _parquet(_: Collection, files: tuple[DataFile, ...]) -> Iterator[bytes]:
    rows = (batch for file in files for batch in batches_in(file.path, FILE_SCHEMA.names))
    return file_bytes(pa.Table.from_batches([batch], FILE_SCHEMA) for batch in rows)


_FORMATS: dict[str, tuple[str, Callable[..., Iterator[bytes]]]] = {
    "ndjson": (NDJSON, partial(_lines, b"", _NDJSON)),
    "csv": (f"{CSV}; charset=utf-8", partial(_lines, csv_head(_CSV_FIELDS).encode(), _CSV)),
    "parquet": (PARQUET, _parquet),
}


def warm(segment: Segment) -> None:
    """Compile the kernel that renders many rows, or load it."""
    _CSV.render(segment, np.zeros(_CHUNK_ROWS, np.int64))


# Files.


@dataclass
class FileResource:
    """A data file of a version, or a range of its bytes."""

    _versions: Versions

    def on_get(self, req: falcon.Request, resp: falcon.Response, version: str, name: str, file: str) -> None:
        snapshot = self._versions.version(req, version)
        # Names are only compared: no path is made from the request.
        for collection in COLLECTIONS:
            for known in snapshot.files[collection]:
                if (collection, known.path.name) == (name, file):
                    _send_file(req, resp, known.path)
                    return
        raise not_found()


def _send_file(req: falcon.Request, resp: falcon.Response, path: Path) -> None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise _gone() from None
    etag = strong(path.stem)  # the name is never used for other bytes
    modified = falcon.dt_to_http(datetime.fromtimestamp(int(stat.st_mtime), UTC))
    part = _part_wanted(req, etag, modified, stat.st_size)
    is_sent = req.method != "HEAD" and not is_current(req, etag)
    data = _open(path) if is_sent else None  # first, so a 410 has no header that makes caches keep it
    _allow_any_origin(resp)
    resp.set_header("Last-Modified", modified)
    resp.set_header("Accept-Ranges", "bytes")
    if not_modified(req, resp, etag, _FOREVER):
        return
    resp.content_type = PARQUET
    first, end = part or (0, stat.st_size)
    if part is not None:
        resp.status = falcon.HTTP_206
        resp.set_header("Content-Range", f"bytes {first}-{end - 1}/{stat.st_size}")
    resp.content_length = end - first
    if data is not None:
        resp.stream = _FilePart(data, first, end)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:  # vacuumed since its size was read
        raise _gone() from None


def _part_wanted(req: falcon.Request, etag: str, modified: str, size: int) -> tuple[int, int] | None:
    """The range that Range and If-Range ask for; None for the whole file. Raises HttpError, 416."""
    if not if_range_holds(req, etag, modified):
        return None
    try:
        return byte_range(req.get_header("Range") or "", size)
    except ValueError:
        raise detail(416, f"The file has {size} bytes.", {"Content-Range": f"bytes */{size}"}) from None


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The half-open range that a Range header asks for; None for the whole file.

    A header that is not a single range of bytes is ignored, as RFC 9110 allows (14.2). Raises ValueError if the
    range has no byte of the file.
    """
    found = re.fullmatch(r"bytes\s*+=\s*+(?:(\d{1,18})\s*+-\s*+(\d{0,18})|-\s*+(\d{1,18}))\s*+", header, re.ASCII)
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


class _FilePart:
    """A range of an open file as a file of its own.

    It is seekable, so waitress sends it from its own thread and frees the thread that answers.
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
