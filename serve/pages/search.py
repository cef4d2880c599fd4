"""Search: both collections, the best first, a page with a box or just the results for the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlencode

import falcon
import numpy as np
import numpy.typing as npt

from sigdir.serve.http.errors import detail
from sigdir.serve.pages.page import Kept, ViewPage, rendered
from sigdir.serve.pages.row_markup import heading
from sigdir.serve.pages.rows import (
    HASH_WORDS,
    NAMED,
    SHORT,
    TITLES,
    Row,
    hash_address,
    row_of,
    with_hash,
)
from sigdir.serve.pages.understand import Asked, understand
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.standards import canonical
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View

Array = npt.NDArray[Any]

FIRST_ROWS = 20
PAGE_ROWS = 50
_MAX_QUERY_BYTES = 16_384
_MAX_PAGE = 10**9

_KNOWN_EVENTS = (
    "Transfer(address,address,uint256)", "Approval(address,address,uint256)", "ApprovalForAll(address,address,bool)",
    "OwnershipTransferred(address,address)", "TransferSingle(address,address,address,uint256,uint256)",
    "TransferBatch(address,address,address,uint256[],uint256[])", "URI(string,uint256)", "Upgraded(address)",
    "AdminChanged(address,address)", "BeaconUpgraded(address)", "Deposit(address,address,uint256,uint256)",
    "Withdraw(address,address,address,uint256,uint256)", "Deposit(address,uint256)", "Withdrawal(address,uint256)",
    "RoleGranted(bytes32,address,address)", "RoleRevoked(bytes32,address,address)", "Paused(address)",
    "Unpaused(address)", "Initialized(uint64)", "Swap(address,uint256,uint256,uint256,uint256,address)",
    "Sync(uint112,uint112)", "PairCreated(address,address,address,uint256)",
)  # fmt: skip
"""Events of standards and of the contracts that everybody meets; the functions are in canonical.txt."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one collection has: all of ``count``, and the rows of a page of them."""

    collection: Collection
    count: int
    rows: list[Row]
    kind: str = "fragment"

    @property
    def title(self) -> str:
        return TITLES[self.collection]

    @property
    def word(self) -> str:
        return HASH_WORDS[self.collection]

    @property
    def short(self) -> str:
        return SHORT[self.collection]

    @property
    def heading(self) -> str:
        return heading(self.collection, self.count)

    @property
    def has_more(self) -> bool:
        return self.count > len(self.rows)

    @property
    def is_empty_hash(self) -> bool:
        """Whether a whole hash was asked for, and nothing found."""
        return self.kind in ("selector", "calldata", "topic")


def find(view: View, collection: Collection, asked: Asked, start: int, size: int) -> Found:
    """Rows ``start`` up to ``start + size`` of what was asked for."""
    if asked.fragment:
        return _best(view, collection, asked.fragment, start, size)
    if asked.kind == "hex":
        found = [(segment, segment.with_hex(asked.digits)) for segment in view.segments[collection]]
    elif len(asked.digits) <= 2 * collection.hash_bytes:
        found = view.with_hash(collection, bytes.fromhex(asked.digits))
    else:  # a topic is no selector
        found = []
    count = sum(len(rows) for _, rows in found)
    places = [(segment, row) for segment, rows in found for row in rows[: start + size]]
    shown = [
        row_of(collection, segment, int(row), digits=asked.digits) for segment, row in places[start : start + size]
    ]
    shown.sort(key=lambda row: row.is_filtered)
    return Found(collection, count, shown, asked.kind)


# The best first. A row's rank is one number, so that a page of a million rows is a partition and not a
# sort: how well it fits, then how long its text is, then its age.
_LENGTH_SHIFT, _FIT_SHIFT = 40, 58
_KNOWN, _NAME, _BEGINNING, _INSIDE = 0, 1, 2, 3
_COMPARED = 64


def _best(view: View, collection: Collection, fragment: str, start: int, size: int) -> Found:
    if not fragment.isascii() or "\0" in fragment:
        return Found(collection, 0, [])
    segments = view.segments[collection]
    rows = [segment.with_text(fragment) for segment in segments]
    firsts = np.cumsum([0, *map(len, rows)])
    count = int(firsts[-1])
    known = _known(collection, fragment.lower())
    ranks = [
        _ranks(segment, found, fragment, int(first), known)
        for segment, found, first in zip(segments, rows, firsts.tolist(), strict=False)
    ]
    ranked = np.concatenate([np.empty(0, np.int64), *ranks])
    stop = min(count, start + size)
    if stop < count:
        ranked = np.partition(ranked, stop)[:stop]
    ranked.sort()
    shown = []
    for place in (ranked[start:stop] & ((1 << _LENGTH_SHIFT) - 1)).tolist():
        number = int(firsts.searchsorted(place, side="right")) - 1
        shown.append(row_of(collection, segments[number], int(rows[number][place - firsts[number]]), fragment))
    return Found(collection, count, shown)


def _ranks(segment: Segment, rows: Array, fragment: str, first: int, known: list[tuple[bytes, str]]) -> Array:
    starts = segment.offsets[rows]
    lengths = segment.offsets[rows + 1] - starts
    fits = np.full(len(rows), _INSIDE, np.int64)
    begin = np.frombuffer(fragment.encode()[:_COMPARED].lower(), np.uint8)
    like = np.flatnonzero(lengths >= len(begin))
    for at, byte in enumerate(begin.tolist()):  # hardly any row is left after the first few
        here = segment.text[starts[like] + at]
        is_letter = 97 <= byte <= 122
        like = like[(here | 0x20 if is_letter else here) == byte]
    fits[like] = _BEGINNING
    behind = np.minimum(starts[like] + len(fragment), len(segment.text) - 1)
    fits[like[(segment.text[behind] == 0x28) | (lengths[like] == len(fragment))]] = _NAME
    for digest, text in known:
        for row in segment.with_hash(digest).tolist():
            at = int(rows.searchsorted(row))
            if at < len(rows) and rows[at] == row and segment.text_at(row) == text and fits[at] < _INSIDE:
                fits[at] = _KNOWN
    places = np.arange(first, first + len(rows), dtype=np.int64)
    ranks: Array = (fits << _FIT_SHIFT) | (lengths << _LENGTH_SHIFT) | places
    return ranks


def _known(collection: Collection, fragment: str) -> list[tuple[bytes, str]]:
    """The well-known texts that begin with a fragment."""
    return [(digest, text) for digest, text in _all_known(collection) if text.lower().startswith(fragment)]


@lru_cache(maxsize=2)
def _all_known(collection: Collection) -> list[tuple[bytes, str]]:
    if collection == SIGNATURES:
        return list(canonical().items())
    return [(keccak256(text.encode()), text) for text in _KNOWN_EVENTS]


# The pages.


class ResultsPage(ViewPage):
    """What was found, as a page of its own, or the part of it that the script puts into one."""

    def __init__(self, reader: Reader, kept: Kept, template: str) -> None:
        super().__init__(reader, kept)
        self._template = template

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        if len(req.query_string) > _MAX_QUERY_BYTES:
            raise detail(414, "The address is too long.")
        given = dict(parse_qsl(req.query_string, errors="replace"))
        return rendered(self._template, here="/search/", **results(view, given))


def results(view: View, given: Mapping[str, str]) -> dict[str, Any]:
    """What the results' template wants, from an address's parameters ``q``, ``in`` and ``page``; raises HttpError."""
    asked = understand(given.get("q", ""))
    only = NAMED.get(given.get("in", ""))
    number = given.get("page", "1")
    if not (number.isascii() and number.isdigit() and 0 < int(number[:12]) < _MAX_PAGE):
        raise detail(404, "There is no such page.")
    page = int(number) if only else 1
    size = PAGE_ROWS if only else FIRST_ROWS
    groups: list[Found] = []
    if asked.kind != "nothing":
        groups = [find(view, c, asked, (page - 1) * size, size) for c in ([only] if only else COLLECTIONS)]
    if not only:
        groups = [group for group in groups if group.rows or _may_match(asked, group.collection)]
    if only and page > 1 and not (groups and groups[0].rows):
        raise detail(404, "There is no such page.")
    pages = max(1, -(-groups[0].count // size)) if only and groups else 1
    return {
        "query": asked.given, "asked": asked, "groups": groups, "only": SHORT[only] if only else "", "page": page,
        "pages": pages, "meanings": _meanings(view, asked), "told": _told(asked, groups), "json": _json_query(asked),
        "submit": "/submit/" + (f"?{urlencode({'text': asked.canonical})}" if asked.canonical else ""),
        "more": lambda short, number=1: "/search/?" + urlencode(
            {"q": asked.given, "in": short} | ({"page": number} if number > 1 else {})),
    }  # fmt: skip


def _may_match(asked: Asked, collection: Collection) -> bool:
    """Whether what was asked for could be in a collection; a selector may be what a topic begins with, by chance."""
    if asked.kind in ("selector", "calldata"):
        return collection == SIGNATURES
    return asked.kind != "topic" or collection == EVENT_SIGNATURES


def _meanings(view: View, asked: Asked) -> list[dict[str, Any]]:
    """Of a text that is a signature: its hash in each collection, and whether it is there."""
    if asked.kind != "text":
        return []
    found = []
    for collection in COLLECTIONS:
        digest = asked.digest[: collection.hash_bytes]
        known = any(s.text_at(row) == asked.canonical for _, s, row in with_hash(view, collection, digest))
        found.append({
            "word": HASH_WORDS[collection], "hex": "0x" + digest.hex(), "known": known,
            "address": hash_address(collection, digest),
            "submit": "/submit/?" + urlencode({"text": asked.canonical, "as": SHORT[collection]}),
        })  # fmt: skip
    return found


def _told(asked: Asked, groups: list[Found]) -> str:
    """The sentence that a screen reader says when results come."""
    if asked.kind == "nothing":
        return ""
    counts = " and ".join(f"{g.count:,} {_noun(g.collection, g.count)}" for g in groups if g.count)
    return f"{counts} found." if counts else "Nothing found."


def _noun(collection: Collection, count: int) -> str:
    noun = "event" if collection == EVENT_SIGNATURES else "function or error" if count == 1 else "functions and errors"
    return noun + ("s" if collection == EVENT_SIGNATURES and count != 1 else "")


def _json_query(asked: Asked) -> str:
    """The same question as the API's lists take it."""
    if asked.fragment:
        return urlencode({"text_signature": asked.fragment, "format": "json"})
    return f"hex_signature=0x{asked.digits}&format=json" if asked.digits else ""
