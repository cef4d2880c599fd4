"""Many hashes in one request: selectors and topics in, their texts out, one line of JSON each, in order.

The lines come as NDJSON, or as one JSON list where the client asks for that.

All hashes of a request are looked up together, segment by segment, and then written by compiled kernels, a
megabyte at a time: no Python runs for a single hash. A request holds its body, 60 bytes a hash and one piece
of the answer, so its memory is bounded. So is its time: the length of an answer is known before it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import falcon
import numpy as np
import numpy.typing as npt
import orjson

from sigdir.serve.http.bodies import read_body
from sigdir.serve.http.errors import HttpError, detail
from sigdir.serve.http.negotiate import JSON, NDJSON, is_list_wanted
from sigdir.serve.http.query_string import format_of
from sigdir.serve.http.streams import StreamLimit
from sigdir.serve.settings import Settings
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.kernels import kernel
from sigdir.signatures.standards import canonical
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.template import escaped, fixed, hex_digits, put
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.snapshot import Snapshot

Array = npt.NDArray[Any]

MAX_HASHES = 100_000
MAX_ANSWER = 32 << 20
"""Bytes of an answer. Known hashes take 100 each. One long text, asked for again and again, could take a gigabyte."""

_WIDTHS = np.array([collection.hash_bytes for collection in COLLECTIONS], np.int64)
_NEITHER = len(COLLECTIONS)
"""The kind of an item that is no hash. The kind of a hash is the place of its collection in COLLECTIONS."""

_MAX_ECHO = 80  # bytes of a malformed hash that its line repeats
_PIECE = 1 << 20  # bytes of a piece of the answer, more only where one hash has more

_BEGIN = fixed('{"hash":"')
_TEXTS = fixed('","texts":[')
_END = fixed("]}\n")
_ERROR = fixed('","error":"neither 8 nor 64 hex digits"}\n')
_FRAME = 96  # bytes of a line without its hash and texts


class ResolveResource:
    """Up to MAX_HASHES hashes as a JSON list, as lines of JSON or as plain lines; the answer is lines or a list."""

    def __init__(self, settings: Settings, reader: Reader, streams: StreamLimit) -> None:
        self._max_body = settings.max_import_body
        self._reader, self._streams = reader, streams

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        is_list = is_list_wanted(req.env.get("HTTP_ACCEPT", ""), format_of(req.query_string))
        body = read_body(req, self._max_body)
        hashes = Hashes.of(body, req.content_type or "")
        found = Found.of(self._reader.current(), hashes)
        resp.set_header("Vary", "Accept")
        resp.content_type = JSON if is_list else NDJSON
        self._streams.send(req, resp, as_list(found.lines()) if is_list else found.lines(), found.size)


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
    if body.count(b",") >= MAX_HASHES:  # a parsed body of brackets would take twenty times its size
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
        found = cls(hashes, parts, np.cumsum(sizes))
        if found.size > MAX_ANSWER:
            raise detail(
                413, f"The texts of these hashes could take more than {MAX_ANSWER} bytes; ask for fewer at once."
            )
        return found

    @property
    def size(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def lines(self) -> Iterator[bytes]:
        """The lines of the answer, in pieces. The standard's text of a hash is the first, the others are oldest first."""
        cuts = np.searchsorted(self.ends, np.arange(_PIECE, self.size, _PIECE), side="right").tolist()
        for start, stop in pairwise(sorted({0, *cuts, len(self.ends)})):
            yield _piece(self.hashes, self.parts, start, stop)


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


def _piece(hashes: Hashes, found: list[_Candidates], first: int, last: int) -> bytes:
    """The lines ``first`` up to ``last``, exclusive."""
    wanted, starts, pools = [NO_ROWS], [NO_ROWS], [_NOTHING]
    pooled = 0
    for part in found:
        a, b = np.searchsorted(part.wanted, (first, last)).tolist()
        if a < b:
            segment = part.segment
            theirs, begins, pool = _texts(
                part.wanted[a:b], part.order, part.first[a:b], part.last[a:b], hashes.digests,
                segment.hash, segment.offsets, segment.text,
            )  # fmt: skip
            wanted.append(theirs)
            starts.append(begins + pooled)
            pools.append(pool)
            pooled += len(pool)
    of = np.concatenate(wanted)
    begins, pool = np.concatenate(starts), np.concatenate(pools)
    order = np.argsort(of, kind="stable")  # the texts of one hash stay in the order of the segments
    if (np.diff(of[order]) == 0).any():
        order = np.lexsort((_ranks(hashes.digests[of, :4], begins, pool), of))
    lines: bytes = _lines(
        hashes.data, hashes.starts, hashes.ends, hashes.kinds, hashes.digests, first, last,
        of[order], begins[order], pool,
    ).tobytes()  # fmt: skip
    return lines


def _ranks(selectors: Array, begins: Array, pool: Array) -> Array:
    """0 for each text that a standard gives to its selector, 1 for any other."""
    ranks = np.ones(len(begins), np.uint8)
    numbers = np.ascontiguousarray(selectors).view(">u4").reshape(-1)
    for number in np.unique(numbers).tolist():
        standard = canonical().get(number.to_bytes(4))
        if standard is not None:
            rows = np.flatnonzero(numbers == number)
            wanted = np.frombuffer(f'"{standard}"\0'.encode(), np.uint8)
            places = np.minimum(begins[rows, None] + np.arange(len(wanted)), len(pool) - 1)
            ranks[rows[(pool[places] == wanted).all(axis=1)]] = 0
    return ranks


_NOTHING = np.empty(0, np.uint8)


@kernel(nogil=True)
def _texts(
    wanted: Array, order: Array, first: Array, last: Array, digests: Array, hash: Array, offsets: Array, text: Array
) -> tuple[Array, Array, Array]:
    """The texts of a segment's rows as JSON strings: the hash number of each, its start, and all bytes.

    A zero byte ends each string.
    """
    rows = size = 0
    for n in range(len(wanted)):
        for k in range(first[n], last[n]):
            row = np.int64(order[k] & np.uint64(0xFFFF_FFFF))
            if _is_same(hash, row, digests, wanted[n]):
                rows += 1
                size += 3 + 6 * (offsets[row + 1] - offsets[row])
    theirs, begins, out = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(size, np.uint8)
    at = np.uint64(0)
    one = np.uint64(1)
    count = 0
    for n in range(len(wanted)):
        for k in range(first[n], last[n]):
            row = np.int64(order[k] & np.uint64(0xFFFF_FFFF))
            if _is_same(hash, row, digests, wanted[n]):
                theirs[count], begins[count] = wanted[n], at
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
    return theirs, begins, out[:at]


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
