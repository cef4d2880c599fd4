"""What imports have seen at an address, as JSON."""

from __future__ import annotations

from typing import Any

import falcon

from sigdir.serve.core.contracts import TITLES, SeenContract, known_by, seen_contract
from sigdir.serve.http.codings import json_bytes
from sigdir.serve.http.conditional import lookup_caching, not_modified, token_of
from sigdir.serve.pages.answers import answer, etag
from sigdir.warehouse.index.known import InterfaceMember
from sigdir.warehouse.index.view import Reader


class StoredContractResource:
    """The interface of an address, who says so, and its texts with their declarations."""

    negotiates = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, chain: str, address: str) -> None:
        body = json_bytes(_document(seen_contract(self._reader.current(), chain, address)))
        if not not_modified(req, resp, etag(req, token_of(body)), lookup_caching(found=True)):
            answer(req, resp, body)


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
