"""Many hashes in one request: selectors and topics in, their texts out, one line of JSON each, in order.

The lines come as NDJSON, or as one JSON list where the client asks for that. The hashes are looked up a few thousand
together, segment by segment. A request holds its body and its answer, which has at most MAX_ANSWER bytes.
"""

from __future__ import annotations

import re
from binascii import hexlify, unhexlify
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import falcon
import numpy as np
import orjson

from sigdir.serve.api.evidence import summary_document
from sigdir.serve.core.settings import Settings
from sigdir.serve.http.answers import (
    JSON,
    NDJSON,
    HttpError,
    detail,
    field_error,
    is_list_wanted,
    json_bytes,
    unsupported,
)
from sigdir.serve.http.bodies import StreamLimit, is_on, pairs_of, read_body
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.template import render_texts
from sigdir.warehouse.index.view import Reader, View, this_takes_long

MAX_HASHES = 100_000
MAX_ANSWER = 32 << 20
"""Bytes of an answer. Known hashes take 100 each. One long text, asked for again and again, could take a gigabyte."""

_ONE_HASH = re.compile("hash=0x([0-9a-fA-F]{8}|[0-9a-fA-F]{64})")
"""A query of one hash and nothing else."""

MAX_QUERY_BYTES = 61_440
MAX_FULL_HASHES = 1_000
MAX_FULL_TEXTS = 10_000
MAX_FULL_ANSWER = 8 << 20
"""Hashes and texts of a full answer: for each text a few pieces of the evidence files are read."""

NEITHER = "neither 8 nor 64 hex digits"
_DIGITS = frozenset(2 * collection.hash_bytes for collection in COLLECTIONS)
_MAX_ECHO = 80  # characters of a malformed hash that its line repeats
_TOGETHER = 4096  # hashes that are looked up together
_FEW = 16  # looked up one by one: to set up the arrays takes as long
_PIECE = 1 << 20  # bytes of a piece of the answer, more only where one hash has more

Texts = Mapping[bytes, bytes]
"""The JSON of what the line of a hash lists, without brackets, by the bytes of the hash."""


@dataclass
class ResolveResource:
    """Up to MAX_HASHES hashes as a JSON list, as lines of JSON or as plain lines; the answer is lines or a list.

    With ``full=1`` each text comes with its place, the reasons for it and its summary, for up to MAX_FULL_HASHES.
    """

    may_be_short = True

    _settings: Settings
    _reader: Reader
    _streams: StreamLimit

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The hashes are in the parameter ``hash``, separated by commas."""
        if not _ONE_HASH.fullmatch(req.query_string):
            this_takes_long()
        if len(req.query_string) > MAX_QUERY_BYTES:
            raise detail(414, f"Query string over {MAX_QUERY_BYTES} bytes; POST the hashes.")
        values = [value for name, value in pairs_of(req.query_string) if name == "hash"]
        hashes = _filled(",".join(values).encode().split(b","))
        if not hashes:
            raise field_error("hash", "Selectors or topics, separated by commas, please.")
        resp.set_header("Cache-Control", "no-cache")  # an unknown text may be POSTed a second later
        self._answer(req, resp, hashes)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._answer(req, resp, hashes_of(read_body(req, self._settings.max_import_body), req.content_type or ""))

    def _answer(self, req: falcon.Request, resp: falcon.Response, hashes: list[bytes]) -> None:
        pieces, req.context.looked_up = resolved(self._reader.current(), hashes, is_full=is_on(req, "full"))
        is_list = is_list_wanted(req.env.get("HTTP_ACCEPT", ""), req.get_param("format", default=""))
        resp.set_header("Vary", "Accept")
        resp.content_type = JSON if is_list else NDJSON
        self._streams.send(req, resp, as_list(pieces) if is_list else iter(pieces), sum(map(len, pieces)))


# Reading.


def hashes_of(body: bytes, content_type: str) -> list[bytes]:
    """The hashes of a body as sent, by its content type, or by its first byte where that is missing. Raises HttpError."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        raise unsupported(content_type)
    first = body.lstrip()[:1]
    # A parsed body of brackets takes fifty times its size. An item is a text, or an object or list and little in it.
    if max(body.count(b"\n"), body.count(b","), body.count(b"[") + body.count(b"{")) > 2 * MAX_HASHES:
        raise _too_many()
    if kind == "application/json" or (kind not in _LINES and first == b"["):
        hashes = [_as_sent(_hash_of(item)) for item in _json_list(body)]
    else:
        hashes = _filled(body.split(b"\n"))
        if kind in _JSON_LINES or (kind != "text/plain" and first in (b'"', b"{")):
            hashes = [_as_sent(_json_line(line)) for line in hashes]
    if len(hashes) > MAX_HASHES:
        raise _too_many()
    return hashes


_JSON_LINES = (NDJSON, "application/jsonl", "application/x-jsonlines")
_LINES = (*_JSON_LINES, "text/plain")


def _too_many() -> HttpError:
    return detail(413, f"More than {MAX_HASHES} hashes.")


def _filled(lines: list[bytes]) -> list[bytes]:
    return [line for line in map(bytes.strip, lines) if line]


def _as_sent(item: Any) -> bytes:
    """An item of JSON; one that is no text is no hash, and its line of the answer repeats it."""
    if isinstance(item, str):
        return item.encode().strip()
    try:
        return orjson.dumps(item)
    except TypeError:  # orjson reads 1,024 levels and writes 254
        return b"nested too deeply"


def _json_list(body: bytes) -> list[Any]:
    try:
        items = orjson.loads(body)
    except ValueError as error:
        raise detail(400, f"JSON parse error - {error}") from None
    if not isinstance(items, list):
        raise detail(400, "Expected a list of hashes.")
    return items


def _json_line(line: bytes) -> Any:
    """The text, or the member ``hash``, of a line; one that is no JSON as sent."""
    try:
        value = orjson.loads(line)
    except ValueError:
        return line.decode("utf-8", "replace")
    return _hash_of(value)


def _hash_of(item: Any) -> Any:
    """The member ``hash`` of an object that has one; anything else as it is."""
    return item.get("hash", item) if isinstance(item, dict) else item


def _digest(sent: bytes) -> bytes | None:
    """The bytes of a hash; None for what is none."""
    digits = sent[2:] if sent[:2] in (b"0x", b"0X") else sent
    try:
        return unhexlify(digits) if len(digits) in _DIGITS else None
    except ValueError:
        return None


# Finding.


def resolved(view: View, hashes: Sequence[bytes], *, is_full: bool = False) -> tuple[list[bytes], list[bytes]]:
    """The lines of the answer, in pieces, and the hashes that have no text; raises HttpError, 413."""
    if is_full and len(hashes) > MAX_FULL_HASHES:
        raise detail(413, f"More than {MAX_FULL_HASHES} hashes with full=1.")
    most = MAX_FULL_ANSWER if is_full else MAX_ANSWER
    pieces, unknown, piece, left = [], list[bytes](), bytearray(), most
    for line in _lines(view, hashes, _full_texts if is_full else _texts, unknown):
        left -= len(line)
        if left < 0:
            raise _too_long(most)
        piece += line
        if len(piece) >= _PIECE:
            pieces.append(bytes(piece))
            piece.clear()
    return [*pieces, bytes(piece)], unknown


def _too_long(most: int) -> HttpError:
    return detail(413, f"The texts of these hashes take more than {most} bytes; ask for fewer at once.")


def _lines(
    view: View,
    hashes: Sequence[bytes],
    texts_of: Callable[[View, Collection, list[bytes]], Texts],
    unknown: list[bytes],
) -> Iterator[bytes]:
    """A line for each hash; those without a text are added to ``unknown``."""
    for start in range(0, len(hashes), _TOGETHER):
        block = hashes[start : start + _TOGETHER]
        digests = list(map(_digest, block))
        wanted = sorted({digest for digest in digests if digest is not None})
        texts: dict[bytes, bytes] = {}
        for collection in COLLECTIONS:
            theirs = [digest for digest in wanted if len(digest) == collection.hash_bytes]
            texts |= texts_of(view, collection, theirs) if theirs else {}
        unknown += [digest for digest in wanted if not texts.get(digest)]
        for sent, digest in zip(block, digests, strict=True):
            if digest is None:
                echo = sent[: 4 * _MAX_ECHO].decode("utf-8", "replace")[:_MAX_ECHO]
                yield json_bytes({"hash": echo, "error": NEITHER}) + b"\n"
            else:
                yield b'{"hash":"0x%b","texts":[%b]}\n' % (hexlify(digest), texts.get(digest, b""))


def _texts(view: View, collection: Collection, digests: list[bytes]) -> Texts:
    """The texts of each hash, the best first; ``digests`` rise."""
    if len(digests) <= _FEW:
        return {digest: _ranked_texts(view, collection, digest) for digest in digests}
    texts: dict[bytes, bytes] = {}
    shared: set[bytes] = set()
    left = MAX_ANSWER
    keys = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
    for segment in view.segments[collection]:
        numbers, rows = segment.with_hashes(keys)
        left -= int((segment.offsets[rows + 1] - segment.offsets[rows]).sum())
        if left < 0:
            raise _too_long(MAX_ANSWER)
        for number, text in zip(numbers.tolist(), render_texts(segment, rows), strict=True):
            digest = digests[number]
            if texts.setdefault(digest, text) is not text:
                shared.add(digest)
    return texts | {digest: _ranked_texts(view, collection, digest) for digest in shared}


def _ranked_texts(view: View, collection: Collection, digest: bytes) -> bytes:
    return _members([one.text for one in ranked_rows(view, collection, digest)])


def _members(values: list[Any]) -> bytes:
    """The JSON of values as members of a list."""
    return orjson.dumps(values)[1:-1]


def _full_texts(view: View, collection: Collection, digests: list[bytes]) -> Texts:
    """The texts of each hash with their summaries, the best first; raises HttpError, 413."""
    if sum(len(found) for digest in digests for _, found in view.with_hash(collection, digest)) > MAX_FULL_TEXTS:
        raise detail(413, f"These hashes have more than {MAX_FULL_TEXTS} texts; ask for fewer with full=1.")
    return {
        digest: _members([summary_document(row.ranked) for row in ranked_rows(view, collection, digest)])
        for digest in digests
    }


def as_list(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Lines of JSON, in pieces of whole lines, as one JSON list. A newline is only at the end of a line."""
    start = b"["
    for piece in filter(None, lines):
        yield start + piece.removesuffix(b"\n").replace(b"\n", b",\n")
        start = b",\n"
    yield b"[]\n" if start == b"[" else b"]\n"
