"""Rows of a view as pages need them: the newest, those around an id, those with a hash."""

from __future__ import annotations

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
_MAX_ID = 2**62
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


def rows_between(
    view: View, collection: Collection, first: int, last: int, count: int, *, newest_first: bool = False
) -> list[Row]:
    """At most ``count`` rows with ids from ``first`` to ``last``, both inclusive, from the oldest on or from the newest."""
    found: list[Row] = []
    for segment in view.segments[collection][:: -1 if newest_first else 1]:
        ids = segment.ids[: segment.rows]
        numbers = range(int(ids.searchsorted(first)), int(ids.searchsorted(last, side="right")))
        wanted = numbers[:: -1 if newest_first else 1][: count - len(found)]
        found += [row_of(collection, segment, number) for number in wanted]
    return found


def newest(view: View, collection: Collection, below: int | None, count: int) -> list[Row]:
    """The newest rows, newest first; only ids below ``below`` if it is given."""
    last = _MAX_ID if below is None else below - 1
    return rows_between(view, collection, 0, last, count, newest_first=True)


def next_above(view: View, collection: Collection, above: int, count: int) -> list[Row]:
    """The ``count`` rows with the next higher ids than ``above``, newest first."""
    return rows_between(view, collection, above + 1, _MAX_ID, count)[::-1]
