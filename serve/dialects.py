"""The OpenChain dialect, which Sourcify, cast, whatsabi and heimdall speak, and the older one of sig.eth.samczsun.com.

Every answer is ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": "..."}``. Custom errors have selectors,
so they are looked up and imported under ``function``.

Where we differ: an unknown hash has an empty list under both names (the originals answer null for one of
them, which heimdall cannot read); a bad hash is a 400, not a 500; texts are stored in canonical form and
reported under the text as sent.

The trees of ethereum-lists/4bytes and topic0, as if they were files. Otterscan reads these.

``/signatures/a9059cbb`` and ``/topic0/<64 hex>`` are the texts of a hash, joined by ``;``. Readers take the first
one, so the texts are in the order of their rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import falcon

from sigdir.serve.core.budget import Cost
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer, canonical_text, store_texts
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import detail, json_bytes, method_not_allowed, send_json, sentence
from sigdir.serve.http.bodies import SHORT_BYTES, StreamLimit
from sigdir.serve.http.caching import PageCache, address_of, lookup_caching, not_modified, strong, token_of, weak
from sigdir.serve.http.routing import redirect_to_slash
from sigdir.serve.lists.paging import wants_filter
from sigdir.signatures.abi import abi_entries
from sigdir.signatures.collections import EVENT_SIGNATURES, EVENTS, SIGNATURES, Collection, parse_hash
from sigdir.signatures.grammar import OK, GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index.ranked import RankedRow, ranked_rows
from sigdir.warehouse.index.search import has_wildcards
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import LINE_FRAME, render_lines
from sigdir.warehouse.index.view import Reader, View, this_takes_long
from sigdir.warehouse.staging.transaction import NewText
from sigdir.warehouse.table.fields import MAX_SEARCHED

_ALLOW = "GET, HEAD, OPTIONS"

KINDS: Mapping[str, Collection] = {"function": SIGNATURES, "event": EVENT_SIGNATURES}

# The server takes 64 KiB of headers. This leaves room for 5,500 selectors in the request line.
_MAX_QUERY_BYTES = 61_440
_MAX_LOOKUP_BYTES = 8 << 20
_HASH = re.compile(r"0x(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{64})")

_PATTERN = re.compile(r"[a-zA-Z0-9$_()\[\],*?]+")
_MAX_FOUND = 100

_CHUNK_BYTES = 1 << 20  # of text; the lines of the shortest texts have twenty times as many bytes
_CHUNK_ROWS = 1 << 14


def error_body(body: dict[str, Any]) -> dict[str, Any]:
    """An error in this dialect, given its body in the 4byte dialect."""
    return {"ok": False, "error": sentence(body)}


@dataclass
class _Resource:
    """Reads a view. Errors are in this dialect's form."""

    error_body = staticmethod(error_body)

    _reader: Reader


def _answer(req: falcon.Request, resp: falcon.Response, result: Any) -> None:
    _send(req, resp, json_bytes({"ok": True, "result": result}))


def _send(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    resp.set_header("Cache-Control", "no-cache")  # an unknown text may be POSTed a second later
    send_json(req, resp, body)


def _parameters(req: falcon.Request) -> dict[str, list[str]]:
    if len(req.query_string) > _MAX_QUERY_BYTES:
        raise detail(414, f"Query string over {_MAX_QUERY_BYTES} bytes.")
    return parse_qs(req.query_string, keep_blank_values=True, errors="replace")


def _wants_filter(values: Mapping[str, list[str]]) -> bool:
    return wants_filter(values.get("filter", [""])[-1])


class LookupResource(_Resource):
    """Hashes to texts, in the order of their rank. The query string bounds their number."""

    may_be_short = True

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        values = _parameters(req)
        _look_up(self._reader.current(), req, resp, values, _wants_filter(values))


def _look_up(
    view: View, req: falcon.Request, resp: falcon.Response, values: Mapping[str, list[str]], filter: bool
) -> None:
    size = 0
    result: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for kind, collection in KINDS.items():
        result[kind] = {}
        for hash in _hashes(values.get(kind, [])):
            names = result[kind][hash] = _names(view, collection, hash, filter)
            size += sum(len(name["name"]) for name in names)
            if size > _MAX_LOOKUP_BYTES:  # one hash can be spelled in a hundred ways
                raise detail(413, f"The texts of these hashes have more than {_MAX_LOOKUP_BYTES} bytes; ask for fewer.")
    if size > SHORT_BYTES:
        this_takes_long()
    body = json_bytes({"ok": True, "result": result})
    lists = [names for by_hash in result.values() for names in by_hash.values()]
    caching = lookup_caching(found=bool(lists) and all(lists))
    req.context.looked_up = [bytes.fromhex(hash[2:]) for by_hash in result.values() for hash in by_hash]
    if not not_modified(req, resp, weak(token_of(body)), caching):
        send_json(req, resp, body)


def _hashes(values: Iterable[str]) -> Iterator[str]:
    """The hashes as written, separated by commas or in repeated parameters; raises HttpError."""
    for hash in filter(None, map(str.strip, ",".join(values).split(","))):
        if not _HASH.fullmatch(hash):
            raise detail(400, f"Invalid hash '{hash[:80]}'. It must be 0x and 8 or 64 hex digits.")
        yield hash


def _names(view: View, collection: Collection, hash: str, filter: bool) -> list[dict[str, Any]]:
    """The texts of a hash, the best first; none for a hash of the other collection's length."""
    digest = bytes.fromhex(hash[2:])
    texts = ranked_rows(view, collection, digest) if len(digest) == collection.hash_bytes else []
    return [_name(text) for text in texts if not (filter and text.is_filtered)]


def _name(text: RankedRow) -> dict[str, Any]:
    return {"name": text.text, "filtered": text.is_filtered, "hasVerifiedContract": text.has_verified_contract}


class OlderLookup(_Resource):
    """sig.eth.samczsun.com's lookup, on the path of the list without its slash.

    A request with ``function`` or ``event`` is a lookup, filtered unless ``all`` is given. Any other request is
    redirected to the list, whatever its method, so this is a sink and not a resource.
    """

    def __call__(self, req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        if KINDS.keys().isdisjoint(_parameters(req)):
            redirect_to_slash(req, resp)
            return
        req.context.error_body = error_body
        resp.set_header("Allow", _ALLOW)
        if req.method in ("GET", "HEAD"):
            self.on_get(req, resp)
        elif req.method != "OPTIONS":
            raise method_not_allowed(req.method, _ALLOW)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        values = _parameters(req)
        _look_up(self._reader.current(), req, resp, values, values.get("all", ["false"])[-1].lower() == "false")


@dataclass
class SearchResource(_Resource):
    """Texts that match a pattern as a whole. Case counts. An answer is kept in ``cache`` while its view is the newest:
    people ask for the same few patterns, and one takes a millisecond in 1.17 M texts.
    """

    may_be_short = True

    _cache: PageCache

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view, address = self._reader.current(), address_of(req)
        body = self._cache.get(req, view.token, address)
        if body is None:
            body = self._found(view, req)
            self._cache.put(view.token, address, body)
        _send(req, resp, body)

    def _found(self, view: View, req: falcon.Request) -> bytes:
        values = _parameters(req)
        pattern = values.get("query", [""])[-1]
        if not _PATTERN.fullmatch(pattern):
            raise detail(400, f"Invalid query '{pattern[:80]}'. It may have letters, digits, $_()[], and * and ?.")
        if len(pattern) > MAX_SEARCHED and has_wildcards(pattern):
            raise detail(400, f"A query with wildcards has at most {MAX_SEARCHED} characters.")
        filter = _wants_filter(values)
        result = {kind: _matching(view, collection, pattern, filter) for kind, collection in KINDS.items()}
        return json_bytes({"ok": True, "result": result})


def _matching(view: View, collection: Collection, pattern: str, filter: bool) -> dict[str, list[dict[str, Any]]]:
    """The oldest texts that match, by their hashes; those of one hash in the order of their rank."""
    wanted: dict[bytes, set[str]] = {}
    for digest, text in _rows_like(view, collection, pattern):
        wanted.setdefault(digest, set()).add(text)
    found: dict[str, list[dict[str, Any]]] = {}
    for digest, texts in wanted.items():
        ranked = ranked_rows(view, collection, digest)
        shown = [_name(one) for one in ranked if one.text in texts and not (filter and one.is_filtered)]
        if shown:
            found["0x" + digest.hex()] = shown
    return found


def _rows_like(view: View, collection: Collection, pattern: str) -> list[tuple[bytes, str]]:
    """Hash and text of the oldest rows that match."""
    if not has_wildcards(pattern):  # any length is one look-up
        digest = keccak256(pattern.encode())[: collection.hash_bytes]
        return [(digest, pattern)] if view.id_of_text(collection, pattern, digest) is not None else []
    found: list[tuple[bytes, str]] = []
    for segment in view.segments[collection]:
        rows = segment.like(pattern, _MAX_FOUND - len(found)).tolist()
        found += [(segment.hash[row].tobytes(), segment.text_at(row)) for row in rows]
        if len(found) == _MAX_FOUND:
            break
    return found


class StatsResource(_Resource):
    """The number of rows of each kind."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        _answer(req, resp, {"count": {kind: view.count(collection) for kind, collection in KINDS.items()}})


@dataclass
class ImportResource:
    """Texts to store. The answer has each text, as sent, as imported, duplicated or invalid.

    ``reasons`` says why a text is invalid. The dialect has no such field; its clients (cast, forge) read the two objects.
    """

    error_body = staticmethod(error_body)
    stores = True

    _settings: Settings
    _writer: Writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._store(req, resp, _texts_of(bodies.fields_of(req, self._settings.max_import_body)))

    def _store(self, req: falcon.Request, resp: falcon.Response, texts: dict[str, list[str]]) -> None:
        if not any(texts.values()):
            raise detail(400, "No signatures provided.")
        _answer(req, resp, {kind: _store(self._writer, KINDS[kind], texts[kind]) for kind in KINDS})


class OlderImportResource(ImportResource):
    """sig.eth.samczsun.com's import: ``type`` is raw or abi, ``data`` the texts or the ABIs."""

    cost = Cost.SIZE

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        fields = bodies.fields_of(req, self._settings.max_import_body)
        kind, data = fields.get("type"), fields.get("data")
        if kind == "raw" and isinstance(data, dict):
            self._store(req, resp, _texts_of(data))
        elif kind == "abi" and isinstance(data, list) and all(isinstance(abi, list) for abi in data):
            self._store(req, resp, _texts_of_abi([entry for abi in data for entry in abi]))
        else:
            raise detail(400, 'Expected "type" raw with "data" of texts, or abi with a list of ABIs.')


def _store(writer: Writer, collection: Collection, texts: list[str]) -> dict[str, Any]:
    valid: dict[str, NewText] = {}
    reasons: dict[str, dict[str, Any]] = {}
    for text in dict.fromkeys(texts):  # a repeated text counts once
        try:
            # Half of a surrogate pair is a `?`.
            new = canonical_text(collection, text.encode("utf-8", "replace").decode())
        except GrammarError as error:
            reasons[text] = {"reason": error.reason, "position": error.column}
            continue
        if writer.refuses(new):
            reasons[text] = {"reason": "suppressed", "position": 0}
        else:
            valid[text] = new
    result: dict[str, Any] = {"imported": {}, "duplicated": {}, "invalid": list(reasons), "reasons": reasons}
    rows = store_texts(writer, list(valid.values()))
    for (text, new), row in zip(valid.items(), rows, strict=True):
        result["duplicated" if row is None else "imported"][text] = "0x" + new.hash.hex()
    return result


def _texts_of(fields: dict[str, Any]) -> dict[str, list[str]]:
    """The texts of an import by kind; raises HttpError."""
    for kind in ("function", "event", "error"):
        value = fields.setdefault(kind, [])
        if not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
            raise detail(400, f'"{kind}" must be a list of texts.')
    return {"function": fields["function"] + fields["error"], "event": fields["event"]}


def _texts_of_abi(abi: list[Any]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {"function": [], "event": []}
    for entry in abi_entries(abi):
        text = entry.text.decode("utf-8", "replace")
        if entry.reject_reason == OK:
            with suppress(GrammarError):  # then it is reported as it was put together
                text = normalise(entry.text, declared_kind=entry.declared_kind).text
        texts["event" if entry.declared_kind == EVENTS else "function"].append(text)
    return texts


@dataclass
class ExportResource(_Resource):
    """All rows as lines ``0x<hash>,<text>``, functions first, oldest first."""

    _streams: StreamLimit

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        if not_modified(req, resp, strong(view.token)):
            return
        resp.content_type = "text/plain; charset=utf-8"
        resp.content_length = sum(_size(segment) for kind in KINDS.values() for segment in view.segments[kind])
        if req.method != "HEAD":
            resp.stream = self._streams.stream(_chunks(view))


def _size(segment: Segment) -> int:
    text = int(segment.offsets[segment.rows] - segment.offsets[0])
    return text + segment.rows * (LINE_FRAME + 2 * int(segment.hash.shape[1]))


def _chunks(view: View) -> Iterator[bytes]:
    """The lines of a view, about a megabyte at a time."""
    for collection in KINDS.values():
        for segment in view.segments[collection]:
            for first, last in segment.spans(0, segment.rows, _CHUNK_ROWS, _CHUNK_BYTES):
                yield render_lines(segment, first, last)


_CACHE_SECONDS = 3600


@dataclass
class HashFileResource:
    """The file of one hash."""

    _collection: Collection
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, hash: str) -> None:
        digest = parse_hash(hash) if len(hash) == 2 * self._collection.hash_bytes else None
        req.context.looked_up = [digest] if digest else []
        texts = ranked_rows(self._reader.current(), self._collection, digest) if digest else []
        if not texts:
            raise detail(404, "Not found.", {"Cache-Control": "no-cache"})  # a text may be POSTed at any time
        body = ";".join(one.text for one in texts).encode()
        etag = strong(token_of(body))
        if not not_modified(req, resp, etag, f"public, max-age={_CACHE_SECONDS}"):
            resp.content_type = "text/plain; charset=utf-8"
            resp.data = body
