"""The page of a hash: its texts; for one of them its import, its neighbours and its ABI."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

import falcon

from sigdir.serve.http.answers import HttpError, detail
from sigdir.serve.pages.page import ViewPage, indented, rendered
from sigdir.serve.pages.rows import HASH_NAMES, URL_NAMES, Row, hash_address, row_of
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection, parse_hash
from sigdir.signatures.evidence import Kind
from sigdir.signatures.rank import Ranked
from sigdir.signatures.standards import sources
from sigdir.signatures.types import BadDeclaration, Declaration, canonical_declaration, parse_declaration
from sigdir.warehouse.evidence.contracts import uses_of
from sigdir.warehouse.evidence.lookup import TextEvidence, text_evidence
from sigdir.warehouse.index.ranked import RankedRow, ranked_rows
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.manifest import Origins
from sigdir.warehouse.table.errors import WarehouseError

_MAX_OTHERS = 50
_MAX_NEIGHBOURS = 12
_MAX_SAID = 20
_MAX_VARIANTS = 5
_SHORT = 60

_DAMAGED = (WarehouseError, OSError)
"""Where evidence was vacuumed or is damaged the rest is shown."""


@dataclass
class RecordPage(ViewPage):
    """A selector or topic. The address has it in lower case with 0x; other spellings redirect there."""

    _collection: Collection
    _origins: Origins
    _solves: bool
    """Whether the server has a page that looks for texts of unknown hashes."""

    @property
    def _hash_name(self) -> str:
        return HASH_NAMES[self._collection]

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        digest = self._digest(parameters["hash"])
        found = ranked_rows(view, self._collection, digest)
        if not found:
            req.context.looked_up = [digest]
            raise self._unknown(f"0x{digest.hex()}")
        chosen = _chosen(found, req.get_param("id"))
        others = [self._row(one) for one in found if one is not chosen]
        evidence, uses = None, 0
        with suppress(*_DAMAGED):
            evidence = text_evidence(view.snapshot.evidence, self._collection, chosen.id)
        with suppress(*_DAMAGED):
            uses = uses_of(view.snapshot.evidence, digest)
        return rendered(
            "record.html",
            here="/search/",
            **self._values(view, chosen, others),
            **_evidence_values(self._row(chosen), chosen.ranked, evidence),
            uses=uses,
        )

    def _unknown(self, hex: str) -> HttpError:
        """The error says what to do next: its page offers the same."""
        next_steps = {"submit": "/submit/"} | ({"solve": f"/solve/?hash={hex}"} if self._solves else {})
        return HttpError(404, {"detail": f"No signature with the {self._hash_name} {hex} is known."} | next_steps)

    def _row(self, ranked: RankedRow) -> Row:
        return row_of(self._collection, ranked.segment, ranked.row, looks_mined=bool(ranked.mined))

    def _digest(self, hash: str) -> bytes:
        """The hash of an address; raises HttpError."""
        digest, size = parse_hash(hash), self._collection.hash_bytes
        if digest is None or len(digest) != size:
            raise detail(404, f"Not a {self._hash_name}: a {self._hash_name} is 0x and {2 * size} hex digits.")
        if hash != f"0x{digest.hex()}":
            raise HttpError(301, {"detail": "Moved."}, {"Location": hash_address(self._collection, digest)})
        return digest

    def _values(self, view: View, chosen: RankedRow, others: list[Row]) -> dict[str, Any]:
        row, url_name, hex = self._row(chosen), URL_NAMES[self._collection], f"0x{chosen.digest.hex()}"
        number = chosen.segment.import_at(chosen.row)
        return {
            "title": f"{hex[:10]} {_short(row.text)}", "is_event": self._collection == EVENT_SIGNATURES,
            "hash_name": self._hash_name, "hex": hex, "row": row, "count": len(others) + 1, "url_name": url_name,
            "others": others[:_MAX_OTHERS],
            "short_name": _short(row.name), "neighbours": self._neighbours(view, row),
            "all_of_name": f"/search/?q={quote(row.name + '(')}&in={url_name}",
            "defined": sources().get(row.digest) if not row.is_filtered else None,
            "origin": self._origins.of(number, row.created_at, view.snapshot.version),
            "json": f"/api/v1/{self._collection}/?hex_signature={hex}&format=json",
        }  # fmt: skip

    def _neighbours(self, view: View, row: Row) -> list[Row]:
        """Other rows with the same name, oldest first."""
        found = view.with_name(self._collection, row.name, _MAX_NEIGHBOURS + 1)
        same_name = [row_of(self._collection, segment, number) for segment, number in found]
        return [other for other in same_name if other.id != row.id][:_MAX_NEIGHBOURS]


def _evidence_values(row: Row, place: Ranked, evidence: TextEvidence | None) -> dict[str, Any]:
    """The template's values that come from what is said of the row."""
    declaration = place.summary.declaration
    declared = declared_abi_json(declaration)
    return {
        "declaration": declaration, "place": place, "kind": _kind_of(row, place.summary.kinds),
        "said": evidence.sightings(0, _MAX_SAID) if evidence else [],
        "said_count": evidence.count if evidence else 0,
        "variants": evidence.declarations[1 : 1 + _MAX_VARIANTS] if evidence else (),
        "evidence": f"{row.json_address}evidence/", "is_declared": declared is not None,
        "abi": declared or abi_json(row.collection, row.text),
    }  # fmt: skip


def _kind_of(row: Row, kinds: tuple[Kind, ...]) -> str:
    """The kinds that sources state, in words."""
    if row.collection == EVENT_SIGNATURES:
        return "Event"
    stated = [kind.name.lower() for kind in kinds if kind != Kind.EVENT]
    return " and ".join(stated).capitalize() if stated else "Function or error: no source says which"


def _chosen(found: list[RankedRow], id: str | None) -> RankedRow:
    """The row with this id; without an id the first by rank."""
    if id is not None:
        for one in found:
            if str(one.id) == id:
                return one
        raise detail(404, "No signature of this hash has this id.")
    return found[0]


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"


# A text or a declaration as an entry of an ABI.

_MAX_CHARACTERS = 4096


def abi_json(collection: Collection, text: str) -> str | None:
    """The ABI of one entry as indented JSON; None if the text is too long or its tuples nest too deeply.

    Parts that a signature does not contain get neutral values: names are empty, a function has no outputs, no event
    parameter is indexed.
    """
    kind = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
    return _json(text, partial(canonical_declaration, kind=kind))


def declared_abi_json(declaration: str) -> str | None:
    """The ABI of one declaration, with its names, as indented JSON; None if there is none or it is too long."""
    return _json(declaration, parse_declaration)


def _json(text: str, read: Callable[[str], Declaration]) -> str | None:
    if len(text) > _MAX_CHARACTERS:
        return None
    try:
        return indented([read(text).abi_entry()])
    except BadDeclaration:
        return None
