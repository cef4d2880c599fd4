"""What imports have seen at an address: as JSON and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import falcon

from sigdir.serve.core.decodings import TITLES, SeenContract, known_by, seen_contract
from sigdir.serve.http.negotiate import json_bytes
from sigdir.serve.pages.answers import answer_lookup
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import hash_address
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.index.ranked import InterfaceMember
from sigdir.warehouse.index.view import Reader, View


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
