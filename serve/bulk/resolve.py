"""Many hashes in one request: selectors and topics in, their texts out, one line of JSON each, in order.

The lines come as NDJSON, or as one JSON list where the client asks for that.

All hashes of a request are looked up together, segment by segment, and then written by compiled kernels, a
megabyte at a time: no Python runs for a single hash. A request holds its body, 60 bytes a hash and one piece
of the answer, so its memory is bounded. So is its time: the length of an answer is known before it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import falcon
import numpy as np
import numpy.typing as npt
import orjson

from sigdir.serve.evidence import summary_document
from sigdir.serve.http.bodies import read_body
from sigdir.serve.http.errors import HttpError, detail, field_error
from sigdir.serve.http.json_answer import json_bytes
from sigdir.serve.http.negotiate import JSON, NDJSON, is_list_wanted
from sigdir.serve.http.query_string import format_of, pairs_of
from sigdir.serve.http.streams import StreamLimit
from sigdir.serve.settings import Settings
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.kernels import kernel
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.template import escaped, fixed, hex_digits, put
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.snapshot import Snapshot

Array = npt.NDArray[Any]

MAX_HASHES = 100_000
MAX_ANSWER = 32 << 20
"""Bytes of an answer. Known hashes take 100 each. One long text, asked for again and again, could take a gigabyte."""

ONE_HASH = re.compile("hash=0x([0-9a-fA-F]{8}|[0-9a-fA-F]{64})")
"""A query of one hash and nothing else."""

MAX_QUERY_BYTES = 61_440
MAX_FULL_HASHES = 1_000
MAX_FULL_TEXTS = 10_000
_MAX_FULL_BYTES = 8 << 20
"""Hashes and texts of a full answer: for each text a few pieces of the evidence files are read."""

_WIDTHS = np.array([collection.hash_bytes for collection in COLLECTIONS], np.int64)
_NEITHER = len(COLLECTIONS)
"""The kind of an item that is no hash. The kind of a hash is the place of its collection in COLLECTIONS."""

_MAX_ECHO = 80  # bytes of a malformed hash that its line repeats
_PIECE = 1 << 20  # bytes of a piece of the answer, more only where one hash has more

_BEGIN = fixed('{"hash":"')
_TEXTS = fixed('","texts":[')
_END = fixed("]}\n")
NEITHER = "neither 8 nor 64 hex digits"
_ERROR = fixed(f'","error":"{NEITHER}"}}\n')
_FRAME = 96  # bytes of a line without its hash and texts


class ResolveResource:
    """Up to MAX_HASHES hashes as a JSON list, as lines of JSON or as plain lines; the answer is lines or a list.

    With ``full=1`` each text comes with its place, the reasons for it and its summary, for up to MAX_FULL_HASHES.
    """

    def __init__(self, settings: Settings, reader: Reader, streams: StreamLimit) -> None:
        self._max_body = settings.max_import_body
        self._reader, self._streams = reader, streams

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The hashes are in the parameter ``hash``, separated by commas."""
        if one := ONE_HASH.fullmatch(req.query_string):
            self._answer_one(req, resp, bytes.fromhex(one[1]))
            return
        if len(req.query_string) > MAX_QUERY_BYTES:
            raise detail(414, f"Query string over {MAX_QUERY_BYTES} bytes; POST the hashes.")
        values = [value for name, value in pairs_of(req.query_string) if name == "hash"]
        body = ",".join(values).replace("\n", " ").replace(",", "\n").encode()
        if not body.strip():
            raise field_error("hash", "Selectors or topics, separated by commas, please.")
        resp.set_header("Cache-Control", "no-cache")  # an unknown text may be POSTed a second later
        self._answer(req, resp, Hashes.of(body, "text/plain"))

    on_head = on_get

    def _answer_one(self, req: falcon.Request, resp: falcon.Response, digest: bytes) -> None:
        """One hash, without the kernels: to set up their arrays takes 80 us."""
        resp.set_header("Cache-Control", "no-cache")
        ranked = ranked_rows(self._reader.current(), Collection.of_hash(digest), digest)
        line = orjson.dumps({"hash": f"0x{digest.hex()}", "texts": [one.text for one in ranked]}) + b"\n"
        if len(line) > MAX_ANSWER:
            raise _too_long()
        self._send(req, resp, iter([line]), len(line))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = read_body(req, self._max_body)
        self._answer(req, resp, Hashes.of(body, req.content_type or ""))

    def _answer(self, req: falcon.Request, resp: falcon.Response, hashes: Hashes) -> None:
        view = self._reader.current()
        if dict(pairs_of(req.query_string)).get("full", "") in ("", "0", "false"):
            found = Found.of(view, hashes)
            lines, size = found.lines(), found.size
        else:
            body = full_lines(view, hashes)
            lines, size = iter([body]), len(body)
        self._send(req, resp, lines, size)

    def _send(self, req: falcon.Request, resp: falcon.Response, lines: Iterator[bytes], size: int) -> None:
        is_list = is_list_wanted(req.env.get("HTTP_ACCEPT", ""), format_of(req.query_string))
        resp.set_header("Vary", "Accept")
        resp.content_type = JSON if is_list else NDJSON
        self._streams.send(req, resp, as_list(lines) if is_list else lines, size)


# Reading.


@dataclass(frozen=True, slots=True)
class Hashes:
    """The hashes of a request: the n-th is ``data[starts[n]:ends[n]]`` as sent, of kind ``kinds[n]``."""

    data: Array
    starts: Array
    ends: Array
    kinds: Array
    digests: Array  # uint8, 32 bytes a hash, zeros after a selector

    @classmethod
    def of(cls, body: bytes, content_type: str) -> Hashes:
        """Parse a body by its content type, or by its first byte where the type is missing; raises HttpError."""
        raw, blank_counts = _lines_of(body, content_type)
        data = np.frombuffer(raw, np.uint8)
        starts, ends = np.empty(MAX_HASHES, np.int64), np.empty(MAX_HASHES, np.int64)
        count = _split(data, starts, ends, blank_counts)
        if count > MAX_HASHES:
            raise _too_many()
        starts, ends = starts[:count], ends[:count]
        kinds, digests = np.empty(count, np.uint8), np.zeros((count, 32), np.uint8)
        _understand(data, starts, ends, kinds, digests)
        return cls(data, starts, ends, kinds, digests)


def _too_many() -> HttpError:
    return detail(413, f"More than {MAX_HASHES} hashes.")


def _too_long() -> HttpError:
    return detail(413, f"The texts of these hashes could take more than {MAX_ANSWER} bytes; ask for fewer at once.")


def _lines_of(body: bytes, content_type: str) -> tuple[bytes, bool]:
    """A body as one hash a line, and whether a blank line counts as one."""
    kind = content_type.partition(";")[0].strip().lower()
    first = body.lstrip()[:1]
    if kind == "application/json" or (kind not in _LINES and first == b"["):
        return _joined(_json_list(body))
    if kind in _JSON_LINES or (kind != "text/plain" and first in (b'"', b"{")):
        return _joined(_json_lines(body))
    return body, False


_JSON_LINES = (NDJSON, "application/jsonl", "application/x-jsonlines")
_LINES = (*_JSON_LINES, "text/plain")


def _joined(items: list[Any]) -> tuple[bytes, bool]:
    if not all(type(item) is str for item in items):  # not a hash; its line of the answer repeats it
        items = [item if isinstance(item, str) else _shown(item) for item in items]
    text = "\n".join(items)
    if text.count("\n") >= max(1, len(items)):
        text = "\n".join(item.replace("\n", " ") for item in items)
    return text.encode(), bool(items)


def _shown(item: Any) -> str:
    """JSON of an item that is no text."""
    try:
        return orjson.dumps(item).decode()
    except TypeError:  # orjson reads 1,024 levels and writes 254
        return "nested too deeply"


def _json_list(body: bytes) -> list[Any]:
    # A parsed body of brackets takes fifty times its size. An item is a text, or an object or list and little in it.
    if body.count(b",") >= MAX_HASHES or body.count(b"[") + body.count(b"{") > 2 * MAX_HASHES:
        raise _too_many()
    try:
        items = orjson.loads(body)
    except ValueError as error:
        raise detail(400, f"JSON parse error - {error}") from None
    if not isinstance(items, list):
        raise detail(400, "Expected a list of hashes.")
    return items


def _json_lines(body: bytes) -> list[Any]:
    """The text, or the member ``hash``, of each line that is not blank; any other line as sent."""
    if body.count(b"\n") > 2 * MAX_HASHES:
        raise _too_many()
    lines = [line for line in body.split(b"\n") if line.strip()]
    try:
        values = _json_list(b"[" + b",".join(lines) + b"]")
    except HttpError as error:
        if error.status == 413:
            raise
        values = []
    if len(values) != len(lines):  # a line is broken or has several values, so parse each alone
        values = [_json_line(line) for line in lines]
    return [value.get("hash", "") if isinstance(value, dict) else value for value in values]


def _json_line(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        return line.decode("utf-8", "replace")


@kernel(nogil=True)
def _split(data: Array, starts: Array, ends: Array, blank_counts: bool) -> int:
    """Find the lines, without the blanks around them; gives their count, or one more than fit."""
    count = 0
    at = 0
    while at <= len(data):
        stop = at
        while stop < len(data) and data[stop] != 0x0A:
            stop += 1
        first, last = at, stop
        while first < last and data[first] <= 0x20:
            first += 1
        while first < last and data[last - 1] <= 0x20:
            last -= 1
        if first < last or blank_counts:
            if count == len(starts):
                return count + 1
            starts[count], ends[count] = first, last
            count += 1
        at = stop + 1
    return count


@kernel(nogil=True)
def _understand(data: Array, starts: Array, ends: Array, kinds: Array, digests: Array) -> None:
    """Set the kind and the bytes of each line."""
    for n in range(len(starts)):
        at, end = starts[n], ends[n]
        if end - at > 2 and data[at] == 0x30 and (data[at + 1] | 0x20) == 0x78:
            at += 2
        kind = _NEITHER
        for k in range(len(_WIDTHS)):
            if end - at == 2 * _WIDTHS[k]:
                kind = k
        if kind != _NEITHER:
            for place in range(end - at):
                byte = data[at + place]
                if 0x30 <= byte <= 0x39:
                    digit = byte - 0x30
                elif 0x61 <= (byte | 0x20) <= 0x66:
                    digit = (byte | 0x20) - 0x57
                else:
                    kind = _NEITHER
                    break
                digests[n, place >> 1] |= digit if place & 1 else digit << 4
        kinds[n] = kind


# Finding.


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Candidate rows of a segment: those of the hash number ``wanted[n]`` are ``order[first[n]:last[n]]``."""

    segment: Segment
    wanted: Array
    order: Array
    first: Array
    last: Array


@dataclass(frozen=True, slots=True)
class Found:
    """What a view has for the hashes of a request. ``ends[n]`` is the most bytes that the first ``n + 1`` lines take."""

    view: View
    hashes: Hashes
    parts: list[_Candidates]
    ends: Array

    @classmethod
    def of(cls, view: View, hashes: Hashes) -> Found:
        """Look the hashes up; raises HttpError, 413, if the answer could be longer than MAX_ANSWER."""
        parts = []
        echoes = 6 * np.minimum(hashes.ends - hashes.starts, _MAX_ECHO)
        sizes = np.where(hashes.kinds == _NEITHER, echoes, 2 * _WIDTHS.max()) + _FRAME
        for kind, collection in enumerate(COLLECTIONS):
            wanted = np.flatnonzero(hashes.kinds == kind)
            # Sorted, neighbours take the same branches: a look-up takes a third of the time.
            prefixes = np.ascontiguousarray(hashes.digests[wanted, :4]).view(">u4").reshape(-1)
            rising = np.argsort(prefixes)
            prefixes, first, last = prefixes[rising].astype(np.uint32), np.empty_like(wanted), np.empty_like(wanted)
            for segment in view.segments[collection] if len(wanted) else ():
                order, first[rising], last[rising] = segment.with_prefixes(prefixes)
                some = last > first
                if some.any():
                    part = _Candidates(segment, wanted[some], order, first[some], last[some])
                    parts.append(part)
                    sizes[part.wanted] += _bytes_of_texts(part.order, part.first, part.last, segment.offsets)
        found = cls(view, hashes, parts, np.cumsum(sizes))
        if found.size > MAX_ANSWER:
            raise _too_long()
        return found

    @property
    def size(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def lines(self) -> Iterator[bytes]:
        """The lines of the answer, in pieces. The texts of a hash are in the order of their rank."""
        cuts = np.searchsorted(self.ends, np.arange(_PIECE, self.size, _PIECE), side="right").tolist()
        for start, stop in pairwise(sorted({0, *cuts, len(self.ends)})):
            yield self._piece(start, stop)

    def _piece(self, first: int, last: int) -> bytes:
        """The lines ``first`` up to ``last``, exclusive."""
        hashes = self.hashes
        wanted, rows, starts, pools, of_part = [NO_ROWS], [NO_ROWS], [NO_ROWS], [_NOTHING], [NO_ROWS]
        pooled = 0
        for number, part in enumerate(self.parts):
            a, b = np.searchsorted(part.wanted, (first, last)).tolist()
            if a < b:
                segment = part.segment
                theirs, numbers, begins, pool = _texts(
                    part.wanted[a:b], part.order, part.first[a:b], part.last[a:b], hashes.digests,
                    segment.hash, segment.offsets, segment.text,
                )  # fmt: skip
                wanted.append(theirs)
                rows.append(numbers)
                starts.append(begins + pooled)
                pools.append(pool)
                of_part.append(np.full(len(theirs), number))
                pooled += len(pool)
        of = np.concatenate(wanted)
        begins, pool = np.concatenate(starts), np.concatenate(pools)
        order = np.argsort(of, kind="stable")
        has_another = np.diff(of[order]) == 0
        if has_another.any():
            shared = order[np.append(has_another, False) | np.insert(has_another, 0, False)]
            places = np.zeros(len(of), np.int64)
            places[shared] = self._places(of[shared], np.concatenate(of_part)[shared], np.concatenate(rows)[shared])
            order = np.lexsort((places, of))
        lines: bytes = _lines(
            hashes.data, hashes.starts, hashes.ends, hashes.kinds, hashes.digests, first, last,
            of[order], begins[order], pool,
        ).tobytes()  # fmt: skip
        return lines

    def _places(self, of: Array, parts: Array, rows: Array) -> list[int]:
        """The place by rank, among the texts of its hash, of each row of a part; ``of`` has their hashes' numbers."""
        known: dict[
            tuple[int, bytes], dict[tuple[int, int], int]
        ] = {}  # the same hash may be asked for again and again
        places = []
        for number, part, row in zip(of.tolist(), parts.tolist(), rows.tolist(), strict=True):
            collection = COLLECTIONS[self.hashes.kinds[number]]
            digest = self.hashes.digests[number, : collection.hash_bytes].tobytes()
            ranked = known.get((collection.code, digest))
            if ranked is None:
                found = ranked_rows(self.view, collection, digest)
                ranked = known[collection.code, digest] = {(id(one.segment), one.row): k for k, one in enumerate(found)}
            places.append(ranked[id(self.parts[part].segment), row])
        return places


def full_lines(view: View, hashes: Hashes) -> bytes:
    """The lines of the answer with each text's summary; raises HttpError, 413."""
    if len(hashes.kinds) > MAX_FULL_HASHES:
        raise detail(413, f"More than {MAX_FULL_HASHES} hashes with full=1.")
    texts: dict[bytes, list[dict[str, Any]]] = {}
    for kind, collection in enumerate(COLLECTIONS):
        rows = hashes.digests[hashes.kinds == kind, : collection.hash_bytes]
        digests = list(dict.fromkeys(row.tobytes() for row in rows))
        if sum(len(found) for digest in digests for _, found in view.with_hash(collection, digest)) > MAX_FULL_TEXTS:
            raise detail(413, f"These hashes have more than {MAX_FULL_TEXTS} texts; ask for fewer with full=1.")
        for digest in digests:
            texts[digest] = [summary_document(row.ranked) for row in ranked_rows(view, collection, digest)]
    lines, size = [], 0
    for number in range(len(hashes.kinds)):
        lines.append(json_bytes(_full_line(hashes, number, texts)) + b"\n")
        size += len(lines[-1])
        if size > _MAX_FULL_BYTES:
            raise detail(413, f"The answer has more than {_MAX_FULL_BYTES} bytes; ask for fewer with full=1.")
    return b"".join(lines)


def _full_line(hashes: Hashes, number: int, texts: Mapping[bytes, list[dict[str, Any]]]) -> dict[str, Any]:
    kind = int(hashes.kinds[number])
    if kind == _NEITHER:
        sent = hashes.data[hashes.starts[number] : hashes.ends[number]][:_MAX_ECHO].tobytes()
        return {"hash": "".join(chr(byte) if byte < 0x7F else "?" for byte in sent), "error": NEITHER}
    digest = hashes.digests[number, : _WIDTHS[kind]].tobytes()
    return {"hash": f"0x{digest.hex()}", "texts": texts[digest]}


def resolved(view: View, hashes: Hashes) -> Iterator[bytes]:
    """The lines of the answer, in pieces; raises HttpError, 413."""
    return Found.of(view, hashes).lines()


@kernel(nogil=True)
def _bytes_of_texts(order: Array, first: Array, last: Array, offsets: Array) -> Array:
    """For each range of ``order``, the bytes of its rows' texts, each with its quotes and a comma."""
    sizes = np.zeros(len(first), np.int64)
    for n in range(len(first)):
        for k in range(first[n], last[n]):
            row = np.int64(order[k] & np.uint64(0xFFFF_FFFF))
            sizes[n] += 3 + offsets[row + 1] - offsets[row]
    return sizes


def as_list(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines of JSON, in pieces of whole lines, as one JSON list. A newline is only at the end of a line."""
    start = b"["
    for piece in lines:
        yield start + piece.removesuffix(b"\n").replace(b"\n", b",\n")
        start = b",\n"
    yield b"[]\n" if start == b"[" else b"]\n"


_NOTHING = np.empty(0, np.uint8)


@kernel(nogil=True)
def _texts(
    wanted: Array, order: Array, first: Array, last: Array, digests: Array, hash: Array, offsets: Array, text: Array
) -> tuple[Array, Array, Array, Array]:
    """The texts of a segment's rows as JSON strings: the hash number and the row of each, its start, and all bytes.

    A zero byte ends each string.
    """
    rows = size = 0
    for n in range(len(wanted)):
        for k in range(first[n], last[n]):
            row = np.int64(order[k] & np.uint64(0xFFFF_FFFF))
            if _is_same(hash, row, digests, wanted[n]):
                rows += 1
                size += 3 + 6 * (offsets[row + 1] - offsets[row])
    theirs, numbers, begins = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    out = np.empty(size, np.uint8)
    at = np.uint64(0)
    one = np.uint64(1)
    count = 0
    for n in range(len(wanted)):
        for k in range(first[n], last[n]):
            row = np.int64(order[k] & np.uint64(0xFFFF_FFFF))
            if _is_same(hash, row, digests, wanted[n]):
                theirs[count], numbers[count], begins[count] = wanted[n], row, at
                count += 1
                out[at] = 0x22
                at += one
                for byte in text[offsets[row] : offsets[row + 1]]:
                    if byte < 0x80:
                        at = escaped(out, at, byte)
                    else:
                        out[at] = byte
                        at += one
                out[at], out[at + one] = 0x22, 0
                at += one + one
    return theirs, numbers, begins, out[:at]


@kernel(nogil=True)
def _is_same(hash: Array, row: Any, digests: Array, n: int) -> bool:
    """Whether a row has the n-th hash. Their first four bytes are equal already."""
    same = True
    for k in range(4, hash.shape[1]):
        same &= hash[row, k] == digests[n, k]
    return same


@kernel(nogil=True)
def _lines(
    data: Array, starts: Array, ends: Array, kinds: Array, digests: Array, first: int, last: int,
    of: Array, begins: Array, texts: Array,
) -> Array:  # fmt: skip
    """The lines of the hashes ``first`` up to ``last``. ``of`` is the hash number of each text, rising."""
    size = len(texts)
    for n in range(first, last):
        size += _FRAME + (2 * _WIDTHS[kinds[n]] if kinds[n] < _NEITHER else 6 * _MAX_ECHO)
    out = np.empty(size, np.uint8)
    at = np.uint64(0)
    one = np.uint64(1)
    k = 0
    for n in range(first, last):
        at = put(out, at, _BEGIN)
        if kinds[n] == _NEITHER:
            for byte in data[starts[n] : min(ends[n], starts[n] + _MAX_ECHO)]:
                at = escaped(out, at, byte if byte < 0x7F else 0x3F)
            at = put(out, at, _ERROR)
            continue
        out[at], out[at + one] = 0x30, 0x78
        at += one + one
        for byte in digests[n, : _WIDTHS[kinds[n]]]:
            at = hex_digits(out, at, byte)
        at = put(out, at, _TEXTS)
        is_first = True
        while k < len(of) and of[k] == n:
            if not is_first:
                out[at] = 0x2C
                at += one
            is_first = False
            place = begins[k]
            while texts[place] != 0:
                out[at] = texts[place]
                at += one
                place += 1
            k += 1
        at = put(out, at, _END)
    return out[:at]


def warm() -> None:
    """Compile the kernels, or load them."""
    digest = np.frombuffer(bytes.fromhex("a9059cbb"), np.uint8).reshape(1, 4)
    text, numbers = np.frombuffer(b"f()", np.uint8), np.zeros(1, np.int64)
    segment = Segment.of(1, numbers, numbers, np.array([0, 3]), text, digest, sorted_hashes(digest))
    segment.with_hash(bytes(4))
    view = View(Snapshot(), {SIGNATURES: (segment,), EVENT_SIGNATURES: ()}, "", b"")
    b"".join(resolved(view, Hashes.of(b"0xa9059cbb", "")))
