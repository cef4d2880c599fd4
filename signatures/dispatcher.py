"""The functions that a contract's dispatcher knows, and its metadata: the only module that uses evmole.

evmole runs the dispatcher symbolically. It takes 3 us a contract for the selectors, 0.2 ms with arguments and mutability.
Of the 81 compiled contracts of the corpora it finds 134 of 134 selectors. It holds the GIL, and hostile code takes seconds:
a server reads code in the process of its budget.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from evmole import contract_info

_TRON_CHECK = re.compile(
    rb"[\xd2\xd3](?=\x80\x15(?:\x60.|\x61..)\x57(?:\x60\0\x80|\x5f[\x80\x5f])\xfd\x5b\x50)", re.DOTALL
)
"""CALLTOKENVALUE or CALLTOKENID, and a revert if it is not 0: Tron's solc writes both after the check of CALLVALUE."""
_TOKEN_CHECK, _CALLVALUE = b"\xd3\x80\x15", b"\x34"
_PUSH20, _IS_OWN_ADDRESS = b"\x73", b"\x30\x14"  # PUSH20; ADDRESS, EQ


class CodeFunction(NamedTuple):
    """A function as its code shows it.

    ``arguments`` is a type list without parentheses in which types that encode alike may stand for each other
    (`uint256` for `bytes32`), and None where they were not found. ``takes_ether`` is None where that was not found, and
    in a library: its code is run by the contract that delegates to it, and checks no value.
    """

    selector: bytes
    arguments: str | None
    takes_ether: bool | None


def selectors_of(code: bytes) -> frozenset[bytes]:
    """The selectors that the dispatcher of runtime code compares."""
    return frozenset(
        bytes.fromhex(one.selector) for one in contract_info(_of_evm(code), selectors=True).functions or ()
    )


def is_library(code: bytes) -> bool:
    """Whether runtime code is a Solidity library's, which begins by comparing its own address."""
    return code[:1] == _PUSH20 and code[21:23] == _IS_OWN_ADDRESS


def functions_of(code: bytes) -> tuple[CodeFunction, ...]:
    """The functions of runtime code, in the dispatcher's order.

    Whether they write or read storage is left out: of 2,472 functions that write, evmole calls 182 view or pure.
    """
    found = contract_info(_of_evm(code), selectors=True, arguments=True, state_mutability=True).functions or ()
    return tuple(
        CodeFunction(
            bytes.fromhex(one.selector),
            one.arguments,
            None if is_library(code) or not one.state_mutability else one.state_mutability == "payable",
        )
        for one in found
    )


def is_tron(code: bytes) -> bool:
    """Whether code has the checks that Tron's solc puts at the head of functions that take no value."""
    return _TOKEN_CHECK in code and _TRON_CHECK.search(code) is not None  # the search alone takes 12 us a contract


def _of_evm(code: bytes) -> bytes:
    """The code as evmole reads it. Instructions that only Tron has end a function for it."""
    return _TRON_CHECK.sub(_CALLVALUE, code) if is_tron(code) else code


def without_metadata(code: bytes) -> bytes:
    """Code without the CBOR map that solc and Vyper put at its end."""
    found = contract_info(code, metadata=True).metadata
    return code if found is None else code[: found.bytecode_offset]
