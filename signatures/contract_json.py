"""The interface of a contract as JSON values: what the API and `sigdir decode contract --json` answer."""

from __future__ import annotations

from typing import Any

from sigdir.signatures.contract import ContractInterface, ContractText, Member
from sigdir.signatures.evidence import Kind
from sigdir.signatures.solidity_interface import abi_of, solidity_of


def document(contract: ContractInterface) -> dict[str, Any]:
    """Everything that was found, with the ABI and the Solidity interface."""
    code = contract.code
    found = {
        "kind": "contract",
        "code_hash": _hex(code.code_hash),
        "bytes": len(code.runtime.code),
        "is_creation": code.is_creation,
        "machine": code.machine,
        "unlinked_libraries": code.runtime.libraries,
        "functions": [_function(one) for one in contract.functions],
        "events": [{"topic": _hex(one.hash), "texts": _texts(one)} for one in contract.events],
        "errors": [{"selector": _hex(one.hash), "texts": _texts(one)} for one in contract.errors],
        "standards": [
            {"name": one.interface.name, "source": one.interface.source, "in_full": one.in_full, "missing": list(one.missing)}
            for one in contract.standards
        ],
        "interface_ids": [{"id": _hex(one.id), "name": one.name} for one in contract.interface_ids],
        "proxies": [
            {"name": one.name, "source": one.source, "detail": one.detail, "address": _hex(one.address) if one.address else None}
            for one in contract.proxies
        ],
        "abi": abi_of(contract),
        "solidity": solidity_of(contract),
    }  # fmt: skip
    return found | {"note": contract.note} if contract.note else found


def _function(member: Member) -> dict[str, Any]:
    return {
        "selector": _hex(member.hash),
        "arguments": member.arguments,
        "takes_ether": member.takes_ether,
        "texts": _texts(member),
    }


def _texts(member: Member) -> list[dict[str, Any]]:
    return [_text(one, member.kind) for one in member.texts]


def _text(one: ContractText, kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {
        "text_signature": one.known.text,
        "declaration": str(one.declaration) if one.declaration else None,
        "witness": one.known.witness.name.lower(),
        "reasons": list(one.reasons),
    }
    return found | {"fit": one.fit.name.lower()} if kind is Kind.FUNCTION else found


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
