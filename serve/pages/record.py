"""The page of a hash: its texts, and of one of them where it came from, its neighbours and its ABI."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import falcon
from markupsafe import Markup

from sigdir.serve.http.errors import HttpError, detail
from sigdir.serve.pages.abi import abi_json
from sigdir.serve.pages.page import Kept, ViewPage, rendered
from sigdir.serve.pages.rows import (
    HASH_WORDS,
    SHORT,
    Row,
    row_of,
    with_hash,
)
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.standards import sources
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.origins import Origin, Origins

_OTHERS = 50
_NEIGHBOURS = 12
_SHORT = 60

_Place = tuple[int, Segment, int]


class RecordPage(ViewPage):
    """A selector or a topic, in lower case behind 0x; other spellings lead there."""

    def __init__(self, collection: Collection, reader: Reader, kept: Kept, names: Names, origins: Origins) -> None:
        super().__init__(reader, kept)
        self._collection, self._names, self._origins = collection, names, origins
        self._word = HASH_WORDS[collection]
        self._spelling = re.compile(f"(?:0[xX])?([0-9a-fA-F]{{{2 * collection.hash_bytes}}})")

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        hash = parameters["hash"]
        spelled = self._spelling.fullmatch(hash)
        if spelled is None:
            digits = 2 * self._collection.hash_bytes
            raise detail(404, f"This is no {self._word}: that is 0x and {digits} hex digits.")
        digits_only = spelled[1].lower()
        if hash != "0x" + digits_only:
            raise HttpError(301, {"detail": "Moved."}, {"Location": f"/{self._word}/0x{digits_only}/"})
        digest = bytes.fromhex(digits_only)
        places = list(with_hash(view, self._collection, digest))
        if not places:
            raise detail(404, f"No text with the {self._word} 0x{digits_only} is known.")
        return rendered("record.html", here="/search/", **self._values(view, digest, places, req.get_param("id")))

    def _values(self, view: View, digest: bytes, places: list[_Place], id: str | None) -> dict[str, Any]:
        rows = [row_of(self._collection, segment, row) for _, segment, row in places]
        chosen = _chosen(rows, id)
        row = rows[chosen]
        number, _, place = places[chosen]
        others = sorted((other for other in rows if other is not row), key=lambda other: other.is_filtered)
        name = row.full.partition("(")[0]
        same = self._names.rows(view, self._collection, name, _NEIGHBOURS + 1)
        neighbours = [row_of(self._collection, segment, at) for segment, at in same]
        return {
            "title": f"0x{digest.hex()[:8]} {_short(row.full)}", "is_event": self._collection == EVENT_SIGNATURES, "hex": "0x" + digest.hex(), "row": row,
            "others": others[:_OTHERS], "count": len(rows), "short": SHORT[self._collection], "short_name": _short(name),
            "neighbours": [n for n in neighbours if n.id != row.id][:_NEIGHBOURS],
            "all_of_name": f"/search/?q={quote(name + '(')}&in={SHORT[self._collection]}",
            "defined": sources().get(digest) if not row.is_filtered else None,
            "by": _by(self._origins.of(view, self._collection, number, place)),
            "abi": abi_json(self._collection, row.full),
            "json": f"/api/v1/{self._collection}/?hex_signature=0x{digest.hex()}&format=json",
        }  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"


@lru_cache(maxsize=1024)
def _by(origin: Origin | None) -> Markup:
    """Who brought a row, in a sentence that most rows share."""
    return Markup(rendered("origin.html", origin=origin).decode())  # noqa: S704 - a template escapes


def _chosen(rows: list[Row], id: str | None) -> int:
    """The row that is asked for by its id, or the one that is meant, or the oldest."""
    if id is not None:
        for place, row in enumerate(rows):
            if str(row.id) == id:
                return place
        raise detail(404, "There is no such text of this hash.")
    return next((place for place, row in enumerate(rows) if not row.is_filtered), 0)
