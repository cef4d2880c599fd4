"""A contract's code as an interface, by the texts of the directory."""

from __future__ import annotations

from sigdir.signatures.calldata import MAX_BYTES
from sigdir.signatures.contract import ContractInterface, interface_of
from sigdir.signatures.given_contract import code_of_input
from sigdir.signatures.readings import Input
from sigdir.warehouse.index.known import texts_of_hashes
from sigdir.warehouse.index.view import View

BODY_BYTES = 3 * MAX_BYTES  # two digits a byte, line ends, and the field's name


def explained(view: View, input: Input) -> ContractInterface:
    """The interface of an input that is code, by the texts of a view; raises BadInput."""
    code = code_of_input(input)
    return interface_of(code, texts_of_hashes(view, code.hashes))
