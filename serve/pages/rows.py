"""Rows as pages show them: words for the collections, addresses, the matching part set off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View

TITLES: dict[Collection, str] = {SIGNATURES: "Functions and errors", EVENT_SIGNATURES: "Events"}
HASH_WORDS: dict[Collection, str] = {SIGNATURES: "selector", EVENT_SIGNATURES: "topic"}
SHORT: dict[Collection, str] = {SIGNATURES: "functions", EVENT_SIGNATURES: "events"}
"""How an address names a collection."""
NAMED: dict[str, Collection] = {short: collection for collection, short in SHORT.items()}

_SHOWN = 240
_BEFORE = 40

Marked = tuple[str, str, str]
"""A text in three: before the matching part, that part, and behind it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row to show. ``text`` and ``hex`` are in three parts; ``full`` is the whole text."""

    collection: Collection
    id: int
    created_at: int
    full: str
    digest: bytes
    text: Marked
    hex: Marked

    @property
    def address(self) -> str:
        return hash_address(self.collection, self.digest)

    @property
    def json_address(self) -> str:
        return f"/api/v1/{self.collection}/{self.id}/"

    @property
    def is_filtered(self) -> bool:
        return is_filtered(self.digest, self.full)

    @property
    def added(self) -> str:
        return moment(self.created_at)


def hash_address(collection: Collection, digest: bytes) -> str:
    """The page of a hash."""
    return f"/{HASH_WORDS[collection]}/0x{digest.hex()}/"


def moment(microseconds: int) -> str:
    """A time for people, to the minute, UTC."""
    at = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    return f"{at.year:04}-{at.month:02}-{at.day:02} {at.hour:02}:{at.minute:02}"


def row_of(collection: Collection, segment: Segment, row: int, fragment: str = "", digits: str = "") -> Row:
    """A row, with what was looked for set off: a fragment of its text, or hex digits of its hash."""
    text, digest = segment.text_at(row), segment.hash[row].tobytes()
    return Row(
        collection, int(segment.ids[row]), int(segment.created_at[row]), text, digest,
        _clipped(_parted(text, fragment)), _parted("0x" + digest.hex(), digits),
    )  # fmt: skip


def newest(view: View, collection: Collection, below: int | None, count: int) -> list[Row]:
    """The newest rows, of those with a lower id where ``below`` is given."""
    found: list[Row] = []
    for segment in reversed(view.segments[collection]):
        last = segment.rows if below is None else int(segment.ids[: segment.rows].searchsorted(below))
        first = max(0, last - (count - len(found)))
        found += [row_of(collection, segment, row) for row in range(last - 1, first - 1, -1)]
        if len(found) == count:
            break
    return found


def following(view: View, collection: Collection, above: int, count: int) -> list[Row]:
    """The rows next above an id, the newest first."""
    found: list[Row] = []
    for segment in view.segments[collection]:
        first = int(segment.ids[: segment.rows].searchsorted(above, side="right"))
        last = min(segment.rows, first + count - len(found))
        found += [row_of(collection, segment, row) for row in range(first, last)]
        if len(found) == count:
            break
    return found[::-1]


def with_hash(view: View, collection: Collection, digest: bytes) -> Iterable[tuple[int, Segment, int]]:
    """Segment number, segment and row of all rows with a hash, or one that begins so; oldest first."""
    numbers = {id(segment): number for number, segment in enumerate(view.segments[collection])}
    for segment, rows in view.with_hash(collection, digest):
        for row in rows.tolist():
            yield numbers[id(segment)], segment, row


def _parted(text: str, fragment: str) -> Marked:
    at = text.lower().find(fragment.lower()) if fragment else -1
    if at < 0:
        return text, "", ""
    end = at + len(fragment)
    return text[:at], text[at:end], text[end:]


def _clipped(parts: Marked) -> Marked:
    """A long text cut down to what is near the matching part; lists have no room for 65,536 characters."""
    before, match, behind = parts
    if len(before) + len(match) + len(behind) <= _SHOWN:
        return parts
    if match and len(before) > _BEFORE:
        before = "…" + before[-_BEFORE:]
    before, match = _cut(before, _SHOWN), _cut(match, _SHOWN)
    return before, match, _cut(behind, max(0, _SHOWN - len(before) - len(match)))


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size] + "…"
