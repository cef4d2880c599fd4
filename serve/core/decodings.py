"""What decoding shares among the API and the pages: the contract in code or at an address; how a decoding ended, which
the worker counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import falcon

from sigdir.serve.http.answers import detail
from sigdir.signatures.abi import BUILT_IN
from sigdir.signatures.abi_decoder import MAX_BYTES
from sigdir.signatures.contract import ContractInterface, interface_of
from sigdir.signatures.evidence import Kind
from sigdir.signatures.given_contract import DeployedContract, address_of, chain_of, code_of_input
from sigdir.signatures.readings import Input, Membership, Reading
from sigdir.warehouse.evidence.contracts import Deployment, deployments_at
from sigdir.warehouse.index.ranked import InterfaceMember, contract_at, members_of, texts_of_hashes
from sigdir.warehouse.index.view import View

DECODED = "sigdir.decoded"
"""The key of a WSGI environment under which the outcomes are."""


def note_decoding(req: falcon.Request, readings: Sequence[Reading]) -> None:
    """Leave the outcome of an input, by the surest of its readings, and the hash that was looked up, unless it is built in."""
    hash = readings[0].hash
    if hash and hash not in BUILT_IN:
        req.context.looked_up = [*getattr(req.context, "looked_up", ()), hash]
    req.env[DECODED] = [*req.env.get(DECODED, ()), outcome(readings[0])]


def outcome(reading: Reading) -> str:
    """``contract``: by a text that the contract has. ``text``: by one of the directory or the request, or what is built in.
    ``ambiguous``: another is as likely. ``none fits``: no known text decodes the bytes. ``unknown``: there is no text.
    """
    best = reading.best
    if best is None:
        return "none fits" if reading.candidates else "unknown"
    if best.is_ambiguous:
        return "ambiguous"
    return "contract" if best.known.membership is Membership.HAS else "text"


# Contracts: what is in code, and what imports have seen at an address.

BODY_BYTES = 3 * MAX_BYTES  # two digits a byte, line ends, and the field's name


def explained(view: View, input: Input) -> ContractInterface:
    """The interface of an input that is code, by the texts of a view; raises BadInput."""
    code = code_of_input(input)
    return interface_of(code, texts_of_hashes(view, code.hashes))


MAX_MEMBERS = 5000
"""Texts of an answer, which says how many there are."""
_MAX_DEPLOYMENTS = 100
TITLES = {Kind.FUNCTION: "functions", Kind.EVENT: "events", Kind.ERROR: "errors"}


class SeenContract(NamedTuple):
    """A contract with what each source says of its address, and its texts."""

    contract: DeployedContract
    deployments: list[Deployment]
    members: list[InterfaceMember]

    def of_kind(self, kind: Kind) -> list[InterfaceMember]:
        return [one for one in self.members if one.kind is kind]


def seen_contract(view: View, chain: str, address: str) -> SeenContract:
    """The contract of an address of ours; raises BadInput, HttpError."""
    place = chain_of(chain), address_of(address, "address")
    contract = contract_at(view, *place)
    if not contract.sources:
        raise detail(404, f"No import has seen the interface of {contract.name}.")
    said = deployments_at(view.snapshot.evidence, *place)
    return SeenContract(contract, said[:_MAX_DEPLOYMENTS], members_of(view, contract.texts, MAX_MEMBERS))


def known_by(said: Deployment) -> str | None:
    return ("code" if said.by_code else "abi") if said.interface else None
