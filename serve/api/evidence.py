"""Evidence over HTTP: what is known of a text in short, and everything that is said of it, in pages.

What imports have seen at an address: as JSON and as a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import falcon

from sigdir.serve.core.decodings import TITLES, SeenContract, known_by, seen_contract
from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.http.answers import json_bytes
from sigdir.serve.lists.paging import numbered_page, parse
from sigdir.serve.lists.resources import row_of_id
from sigdir.serve.pages.page import ViewPage, answer_lookup, rendered
from sigdir.serve.pages.rows import hash_address
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind
from sigdir.signatures.rank import Ranked
from sigdir.warehouse.evidence.contracts import uses_of
from sigdir.warehouse.evidence.lookup import SourceSighting, text_evidence
from sigdir.warehouse.index.ranked import InterfaceMember, RankedRow, ranked_rows
from sigdir.warehouse.index.view import Reader, View

MAX_DECLARATIONS = 100
"""Variants of a declaration that an answer has; it says how many there are."""


def summary_document(text: Ranked) -> dict[str, Any]:
    """A text's place and summary as JSON values."""
    summary = text.summary
    return {
        "text_signature": summary.text,
        "id": summary.id,
        "position": text.position,
        "reasons": text.reasons,
        "looks_mined": bool(text.mined),
        "declaration": summary.declaration or None,
        "kinds": [kind.name.lower() for kind in summary.kinds],
        "witness": summary.witness.name.lower(),
        "sources": summary.sources,
        "contracts": summary.contracts,
        "compiled": summary.compiled,
        "verified": summary.verified,
        "first_seen": f"{summary.first_seen:%Y-%m-%dT%H:%M:%S.%fZ}" if summary.first_seen else None,
    }


@dataclass
class EvidenceResource:
    """Everything that is said of one text: who says so, how it was declared, in which contract."""

    negotiates = True

    _collection: Collection
    _settings: Settings
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, id: str) -> None:
        view = self._reader.current()
        body = json_bytes(self._document(req, view, *self._texts(view, id)))
        answer_lookup(req, resp, body)

    def _texts(self, view: View, id: str) -> tuple[RankedRow, int]:
        """The text with this id and the number of texts with its hash; raises HttpError."""
        segment, row = row_of_id(view, self._collection, id)
        texts = ranked_rows(view, self._collection, segment.hash[row].tobytes())
        return next(text for text in texts if text.id == int(id)), len(texts)

    def _document(self, req: falcon.Request, view: View, text: RankedRow, texts: int) -> dict[str, Any]:
        evidence = text_evidence(view.snapshot.evidence, self._collection, text.id)
        query, declarations = parse(req.query_string), evidence.declarations
        page = numbered_page(query, evidence.count, base_url(req, self._settings) + req.path)
        return summary_document(text.ranked) | {
            "hex_signature": f"0x{text.digest.hex()}",
            "texts": texts,
            "uses": uses_of(view.snapshot.evidence, text.digest),
            "declarations": [
                {"declaration": declaration, "count": count} for declaration, count in declarations[:MAX_DECLARATIONS]
            ],
            "declarations_count": len(declarations),
            **page.links(),
            "results": [_sighting_document(one) for one in evidence.sightings(page.start, query.page_size)],
        }


def _sighting_document(said: SourceSighting) -> dict[str, Any]:
    return {
        "source": said.source,
        "import_id": said.import_id,
        "file": said.file if said.file != said.source else None,
        "contract": said.contract or None,
        "kind": said.kind.name.lower(),
        "witness": said.witness.name.lower(),
        "declaration": said.declaration or None,
        "contracts": said.contracts,
        "verified": said.verified,
    }


@dataclass
class StoredContractResource:
    """The interface of an address, who says so, and its texts with their declarations."""

    negotiates = True

    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, chain: str, address: str) -> None:
        body = json_bytes(_document(seen_contract(self._reader.current(), chain, address)))
        answer_lookup(req, resp, body)


def _document(found: SeenContract) -> dict[str, Any]:
    said = [
        {
            "source": one.source,
            "import_id": one.import_id,
            "interface": f"0x{one.interface.hex()}" if one.interface else None,
            "by": known_by(one),
            "implementation": f"0x{one.target.hex()}" if one.target else None,
        }
        for one in found.deployments
    ]
    kinds = {title: list(map(_member, found.of_kind(kind))) for kind, title in TITLES.items()}
    return found.contract.document() | {"deployments": said} | kinds


def _member(member: InterfaceMember) -> dict[str, Any]:
    return {
        "hash": f"0x{member.hash.hex()}",
        "text_signature": member.known.text if member.known else None,
        "declaration": (member.known.declaration if member.known else "") or None,
    }


class StoredContractPage(ViewPage):
    """The interface of an address, who says so, and its texts."""

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        found = seen_contract(view, parameters["chain"], parameters["contract"])
        contract = found.contract
        return rendered(
            "stored_contract.html", here="/decode/", contract=contract, address=f"0x{contract.address.hex()}",
            deployments=[(one, known_by(one)) for one in found.deployments],
            groups=[(title, _shown(found.of_kind(kind))) for kind, title in TITLES.items()],
            json=f"/api/v1/contracts/{contract.chain}/0x{contract.address.hex()}/",
        )  # fmt: skip


def _shown(members: Iterable[InterfaceMember]) -> list[tuple[str, str, str]]:
    """The hash, the address and the declaration of each, "" where no text is known."""
    return [
        (
            f"0x{one.hash.hex()}",
            hash_address(EVENT_SIGNATURES if one.kind is Kind.EVENT else SIGNATURES, one.hash),
            (one.known.declaration or one.known.text) if one.known else "",
        )
        for one in members
    ]
