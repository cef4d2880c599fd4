"""The page of a contract that imports have seen."""

from __future__ import annotations

from collections.abc import Iterable

import falcon

from sigdir.serve.core.contracts import TITLES, known_by, seen_contract
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import hash_address
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.index.known import InterfaceMember
from sigdir.warehouse.index.view import View


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
