"""The OpenChain dialect, which Sourcify, cast, whatsabi and heimdall speak, and the older one before it.

Everything is answered as ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "..."}``. Custom errors
have selectors, so they are looked up and imported under ``function``.

Where we differ: an unknown hash has an empty list under both names (the originals answer null for one of
them, which heimdall cannot read); a bad hash is a 400, not a 500; texts are stored in canonical form and
reported under the text as sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from threading import BoundedSemaphore
from typing import Any
from urllib.parse import parse_qs

import falcon
import numpy as np
import orjson

from sigdir.serve.http import bodies
from sigdir.serve.http.errors import HttpError, detail
from sigdir.serve.http.negotiate import JSON, packed
from sigdir.serve.imports import new_texts, store_texts
from sigdir.serve.lists import texts_with
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer
from sigdir.signatures.abi import abi_entries
from sigdir.signatures.collections import EVENT_SIGNATURES, EVENTS, SIGNATURES, Collection
from sigdir.signatures.grammar import OK, GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.records import LINE_FRAME, render_lines
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View

KINDS: Mapping[str, Collection] = {"function": SIGNATURES, "event": EVENT_SIGNATURES}

# waitress takes 64 KiB of headers, so this is what a request line may have: 5,500 selectors.
_MAX_QUERY_BYTES = 61_440
_HASH = re.compile(r"0x(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{64})")

_PATTERN = re.compile(r"[a-zA-Z0-9$_()\[\],*?]+")
# At worst a text's length times the pattern's steps a text. A pattern without wildcards costs one look-up.
_MAX_PATTERN = 256
_FOUND = 100

_CHUNK_BYTES = 1 << 20  # of text; a row of the shortest has twenty times as much round it
_CHUNK_ROWS = 1 << 14


def routes(settings: Settings, reader: Reader, writer: Writer) -> list[tuple[str, object]]:
    base = "/signature-database/v1"
    return [
        (f"{base}/lookup", LookupResource(reader)),
        (f"{base}/search", SearchResource(reader)),
        (f"{base}/import", ImportResource(settings, writer, _texts_of)),
        (f"{base}/stats", StatsResource(reader)),
        (f"{base}/export", ExportResource(settings, reader)),
        ("/api/v1/import", ImportResource(settings, writer, _older_texts_of)),
    ]


def failure(told: dict[str, Any]) -> dict[str, Any]:
    """The body of a refusal, given what the 4byte dialect would say."""
    (text, *_) = told.values()
    return {"ok": False, "error": text if isinstance(text, str) else " ".join(text)}


class _Resource:
    """What the resources share: errors in the envelope."""

    failure = staticmethod(failure)


def _answer(req: falcon.Request, resp: falcon.Response, result: Any) -> None:
    resp.content_type = JSON
    resp.set_header("Cache-Control", "no-cache")  # what is unknown now may be known in a second
    resp.data = packed(req, resp, orjson.dumps({"ok": True, "result": result}))


def _parameters(req: falcon.Request) -> dict[str, list[str]]:
    if len(req.query_string) > _MAX_QUERY_BYTES:
        raise detail(414, f"Query string over {_MAX_QUERY_BYTES} bytes.")
    return parse_qs(req.query_string, keep_blank_values=True, errors="replace")


def _filters(given: Mapping[str, list[str]]) -> bool:
    return given.get("filter", [""])[-1] in ("", "true")


class LookupResource(_Resource):
    """Hashes to texts, as many as a query string holds."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        given = _parameters(req)
        _look_up(self._reader.current(), req, resp, given, _filters(given))

    on_head = on_get


def _look_up(
    view: View, req: falcon.Request, resp: falcon.Response, given: Mapping[str, list[str]], filter: bool
) -> None:
    result = {
        kind: {hash: _names(view, collection, hash, filter) for hash in _hashes(given.get(kind, []))}
        for kind, collection in KINDS.items()
    }
    _answer(req, resp, result)


def _hashes(values: Iterable[str]) -> Iterator[str]:
    """The hashes as written, separated by commas or in parameters of their own; raises HttpError."""
    for value in values:
        for part in value.split(","):
            hash = part.strip()
            if hash and not _HASH.fullmatch(hash):
                raise detail(400, f"Invalid hash '{hash[:80]}'. It must be 0x and 8 or 64 hex digits.")
            if hash:
                yield hash


def _names(view: View, collection: Collection, hash: str, filter: bool) -> list[dict[str, Any]]:
    """The texts of a hash, oldest first; none where it has the other collection's length."""
    digest = bytes.fromhex(hash[2:])
    texts = texts_with(view, collection, digest) if len(digest) == collection.hash_bytes else []
    return [name for text in texts for name in _name(digest, text, filter)]


def _name(digest: bytes, text: str, filter: bool) -> list[dict[str, Any]]:
    filtered = is_filtered(digest, text)
    return [] if filter and filtered else [{"name": text, "filtered": filtered}]


class OlderLookup:
    """sig.eth.samczsun.com's lookup, on the list's path without its slash: told by ``function`` or ``event``.

    It filters unless ``all`` is given. Whatever else comes there goes on to the list. A sink, for a route
    would not see every method.
    """

    path = "/api/v1/signatures"

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __call__(self, req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        given = _parameters(req)
        if KINDS.keys().isdisjoint(given):
            resp.status = falcon.HTTP_301
            resp.set_header("Location", req.path + "/" + ("?" + req.query_string if req.query_string else ""))
            return
        req.context.failure = failure
        resp.set_header("Allow", "GET, HEAD, OPTIONS")
        if req.method in ("GET", "HEAD"):
            _look_up(self._reader.current(), req, resp, given, given.get("all", ["false"])[-1] == "false")
        elif req.method != "OPTIONS":
            raise detail(405, f'Method "{req.method}" not allowed.')


class SearchResource(_Resource):
    """Texts that fit a pattern as a whole, upper and lower case being different."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        given = _parameters(req)
        pattern = given.get("query", [""])[-1]
        if not _PATTERN.fullmatch(pattern):
            raise detail(400, f"Invalid query '{pattern[:80]}'. It may have letters, digits, $_()[], and * and ?.")
        if len(pattern) > _MAX_PATTERN and not _is_exact(pattern):
            raise detail(400, f"A query with wildcards has at most {_MAX_PATTERN} characters.")
        view = self._reader.current()
        filter = _filters(given)
        result = {kind: _fitting(view, collection, pattern, filter) for kind, collection in KINDS.items()}
        _answer(req, resp, result)

    on_head = on_get


def _is_exact(pattern: str) -> bool:
    return "*" not in pattern and "?" not in pattern


def _fitting(view: View, collection: Collection, pattern: str, filter: bool) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for digest, text in _rows_like(view, collection, pattern):
        for name in _name(digest, text, filter):
            found.setdefault("0x" + digest.hex(), []).append(name)
    return found


def _rows_like(view: View, collection: Collection, pattern: str) -> list[tuple[bytes, str]]:
    """Hash and text of the oldest rows that fit."""
    if _is_exact(pattern):
        digest = keccak256(pattern.encode())[: collection.hash_bytes]
        return [(digest, text) for text in texts_with(view, collection, digest) if text == pattern]
    found: list[tuple[bytes, str]] = []
    for segment in view.segments[collection]:
        rows = segment.like(pattern, _FOUND - len(found)).tolist()
        found += [(segment.hash[row].tobytes(), segment.text_at(row)) for row in rows]
        if len(found) == _FOUND:
            break
    return found


class StatsResource(_Resource):
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        _answer(req, resp, {"count": {kind: view.count(collection) for kind, collection in KINDS.items()}})

    on_head = on_get


class ImportResource(_Resource):
    """Texts to store. Tells of each, under the text as sent, whether it is new, known or refused."""

    def __init__(
        self,
        settings: Settings,
        writer: Writer,
        texts_of: Callable[[dict[str, Any]], dict[str, list[str]]],
    ) -> None:
        self._limit, self._writer, self._texts_of = settings.max_import_body, writer, texts_of

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        texts = self._texts_of(bodies.fields_of(req, self._limit))
        if not any(texts.values()):
            raise detail(400, "No signatures provided.")
        _answer(req, resp, {kind: _store(self._writer, KINDS[kind], texts[kind]) for kind in KINDS})


def _store(writer: Writer, collection: Collection, texts: list[str]) -> dict[str, Any]:
    asked = dict.fromkeys(texts)  # a text that is there twice counts once
    judged = dict(zip(asked, new_texts(collection, list(asked)), strict=True))
    fine = {text: new for text, new in judged.items() if new is not None}
    told: dict[str, Any] = {"imported": {}, "duplicated": {}, "invalid": [t for t, new in judged.items() if not new]}
    rows = store_texts(writer, list(fine.values()))
    for (text, new), row in zip(fine.items(), rows, strict=True):
        told["duplicated" if row is None else "imported"][text] = "0x" + new.hash.hex()
    return told


def _texts_of(fields: dict[str, Any]) -> dict[str, list[str]]:
    """The texts of an import by kind; raises HttpError."""
    for kind in ("function", "event", "error"):
        value = fields.setdefault(kind, [])
        if not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            raise detail(400, f'"{kind}" must be a list of texts.')
    return {"function": fields["function"] + fields["error"], "event": fields["event"]}


def _older_texts_of(fields: dict[str, Any]) -> dict[str, list[str]]:
    """The texts of sig.eth.samczsun.com's import: ``type`` is raw or abi, ``data`` the texts or the ABIs."""
    kind, data = fields.get("type"), fields.get("data")
    if kind == "raw" and isinstance(data, dict):
        return _texts_of(data)
    if kind == "abi" and isinstance(data, list) and all(isinstance(abi, list) for abi in data):
        return _texts_of_abi([entry for abi in data for entry in abi])
    raise detail(400, 'Expected "type" raw with "data" of texts, or abi with a list of ABIs.')


def _texts_of_abi(abi: list[Any]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {"function": [], "event": []}
    for entry in abi_entries(abi):
        text = entry.text.decode("utf-8", "replace")
        if entry.reject_reason == OK:
            with suppress(GrammarError):  # then it is reported as it was put together
                text = normalise(entry.text, said=entry.declared_kind).text
        texts["event" if entry.declared_kind == EVENTS else "function"].append(text)
    return texts


class ExportResource(_Resource):
    """All rows as lines ``0x<hash>,<text>``, functions first, oldest first.

    A client that reads slowly holds a thread of the worker, so no more than half of them do this at once.
    """

    def __init__(self, settings: Settings, reader: Reader) -> None:
        self._reader = reader
        self._free = BoundedSemaphore(max(1, settings.threads // 2))

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        tag = f'"{view.token}"'
        resp.set_header("ETag", tag)
        resp.set_header("Cache-Control", "no-cache")
        if tag in (req.get_header("If-None-Match") or ""):
            resp.status = falcon.HTTP_304
            return
        resp.content_type = "text/plain; charset=utf-8"
        resp.content_length = sum(_size(segment) for kind in KINDS.values() for segment in view.segments[kind])
        if req.method == "HEAD":
            return
        if not self._free.acquire(blocking=False):
            text = "Too many exports are under way."
            raise HttpError(503, {"detail": text}, {"Retry-After": "30"})
        resp.stream = _Lines(view, self._free.release)

    on_head = on_get


def _size(segment: Segment) -> int:
    text = int(segment.offsets[segment.rows] - segment.offsets[0])
    return text + segment.rows * (LINE_FRAME + 2 * int(segment.hash.shape[1]))


class _Lines:
    """The lines of a view, a megabyte at a time. The server closes it, finished or not."""

    def __init__(self, view: View, release: Callable[[], None]) -> None:
        self._chunks = _chunks(view)
        self._release: Callable[[], None] | None = release

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


def _chunks(view: View) -> Iterator[bytes]:
    for collection in KINDS.values():
        for segment in view.segments[collection]:
            first = 0
            while first < segment.rows:
                last = _end(segment, first)
                yield render_lines(segment, first, last)
                first = last


def _end(segment: Segment, first: int) -> int:
    """The row behind those of a chunk, which has one at least."""
    full = int(np.searchsorted(segment.offsets[: segment.rows + 1], segment.offsets[first] + _CHUNK_BYTES))
    return min(segment.rows, max(first + 1, full), first + _CHUNK_ROWS)
