"""Transactions of the node that a server may ask, as the decode page shows them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sigdir.pipeline.node import Node, NodeError
from sigdir.pipeline.transaction import BadHash, ChainTransaction, UnknownTransaction, checked_hash, read_transaction
from sigdir.serve.core.transactions import explain_transaction
from sigdir.serve.http.errors import detail
from sigdir.serve.pages.shown_reading import PageBudget, number_note, shown_reading
from sigdir.signatures.abi_decoder import checksummed
from sigdir.signatures.decode_input import BadInput
from sigdir.warehouse.index.known import read_alternatives
from sigdir.warehouse.index.view import View

SECONDS = 10.0
"""For all that the node answers about one transaction."""


def shown_transaction(view: View, rpc: str, hash: str) -> dict[str, Any]:
    """What the template shows of a transaction; raises BadInput, and HttpError where the node does not have it."""
    try:
        found = read_transaction(Node(rpc, SECONDS, "the node"), checked_hash(hash))
    except BadHash as error:
        raise BadInput(str(error), "tx") from None
    except UnknownTransaction as error:
        raise detail(404, _sentence(error)) from None
    except NodeError as error:
        raise detail(502, _sentence(error)) from None
    explained = explain_transaction(found, partial(read_alternatives, view))
    budget = PageBudget()
    parts = [
        (one.title, _shown(one.address), one.input.contract, [shown_reading(one.readings[0], budget)])
        for one in explained.parts
        if not budget.page_is_full
    ]
    if len(parts) < len(explained.parts):
        found.notes.append(f"{len(explained.parts) - len(parts)} of its parts are not shown.")
    amount = f"{found.value} {number_note('uint256', found.value, 'wei')}"
    return {"explained": explained, "addresses": list(_addresses(found)), "parts": parts, "amount": amount}


def _sentence(error: NodeError) -> str:
    text = str(error)
    return f"{text[0].upper()}{text[1:]}."


def _addresses(one: ChainTransaction) -> Iterator[tuple[str, str]]:
    yield "From", _shown(one.sender)
    if one.to is not None:
        yield "To", _shown(one.to)
    if one.created is not None:
        yield "Makes", _shown(one.created)


def _shown(address: bytes | None) -> str:
    return checksummed(f"0x{address.hex()}") if address is not None else ""
