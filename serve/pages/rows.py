"""Rows of a view as pages need them: the newest, those around an id, those with a hash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View

TITLES: dict[Collection, str] = {SIGNATURES: "Functions and errors", EVENT_SIGNATURES: "Events"}
HASH_NAMES: dict[Collection, str] = {SIGNATURES: "selector", EVENT_SIGNATURES: "topic"}
URL_NAMES: dict[Collection, str] = {SIGNATURES: "functions", EVENT_SIGNATURES: "events"}
"""The name of a collection in the address of a page."""
BY_URL_NAME: dict[str, Collection] = {name: collection for collection, name in URL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """A row to show.

    ``fragment`` is the part of the text, and ``digits`` the part of the hash, that a search looked for. ``declaration`` is
    the commonest one.
    """

    collection: Collection
    id: int
    created_at: int
    text: str
    digest: bytes
    fragment: str = ""
    digits: str = ""
    looks_mined: bool = False
    declaration: str = ""

    @property
    def name(self) -> str:
        return self.text.partition("(")[0]

    @property
    def address(self) -> str:
        return hash_address(self.collection, self.digest)

    @property
    def json_address(self) -> str:
        return f"/api/v1/{self.collection}/{self.id}/"

    @property
    def is_filtered(self) -> bool:
        """Whether another signature is meant by this hash."""
        return self.looks_mined or is_filtered(self.digest, self.text)

    @property
    def added(self) -> str:
        return minute(self.created_at)


def hash_address(collection: Collection, digest: bytes) -> str:
    """The address of a hash's page."""
    return f"/{HASH_NAMES[collection]}/0x{digest.hex()}/"


def minute(microseconds: int) -> str:
    """A time in UTC, to the minute: 2026-11-21 03:18."""
    at = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    return f"{at.year:04}-{at.month:02}-{at.day:02} {at.hour:02}:{at.minute:02}"


def row_of(
    collection: Collection, segment: Segment, row: int, fragment: str = "", digits: str = "", looks_mined: bool = False
) -> Row:
    """A row of a segment; ``looks_mined`` where its rank is known."""
    text, digest, id = segment.text_at(row), segment.hash[row].tobytes(), int(segment.ids[row])
    return Row(collection, id, int(segment.created_at[row]), text, digest, fragment, digits, looks_mined)


def found_row(
    collection: Collection, segment: Segment, row: int, fragment: str = "", digits: str = "", looks_mined: bool = False
) -> Row:
    """The same with its declaration, as a search shows it."""
    found = row_of(collection, segment, row, fragment, digits, looks_mined)
    return replace(found, declaration=segment.declaration_at(row))


def newest(view: View, collection: Collection, below: int | None, count: int) -> list[Row]:
    """The newest rows, newest first; only ids below ``below`` if it is given."""
    found: list[Row] = []
    for segment in reversed(view.segments[collection]):
        last = segment.rows if below is None else int(segment.ids[: segment.rows].searchsorted(below))
        first = max(0, last - (count - len(found)))
        found += [row_of(collection, segment, row) for row in range(last - 1, first - 1, -1)]
        if len(found) == count:
            break
    return found


def next_above(view: View, collection: Collection, above: int, count: int) -> list[Row]:
    """The ``count`` rows with the next higher ids than ``above``, newest first."""
    found: list[Row] = []
    for segment in view.segments[collection]:
        first = int(segment.ids[: segment.rows].searchsorted(above, side="right"))
        last = min(segment.rows, first + count - len(found))
        found += [row_of(collection, segment, row) for row in range(first, last)]
        if len(found) == count:
            break
    return found[::-1]


def rows_of_ids(view: View, collection: Collection, first: int, last: int, limit: int) -> list[Row]:
    """The rows with ids from ``first`` to ``last``, both inclusive, oldest first; at most ``limit``."""
    found: list[Row] = []
    for segment in view.segments[collection]:
        ids = segment.ids[: segment.rows]
        start, stop = int(ids.searchsorted(first)), int(ids.searchsorted(last, side="right"))
        found += [row_of(collection, segment, row) for row in range(start, min(stop, start + limit - len(found)))]
    return found


def with_hash(view: View, collection: Collection, digest: bytes) -> Iterable[tuple[int, Segment, int]]:
    """Segment number, segment and row number of each row with this hash, oldest first."""
    numbers = {id(segment): number for number, segment in enumerate(view.segments[collection])}
    for segment, rows in view.with_hash(collection, digest):
        for row in rows.tolist():
            yield numbers[id(segment)], segment, row
