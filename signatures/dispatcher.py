"""The functions that a contract's dispatcher knows, which texts fit them, and its metadata: the only module that uses evmole.

evmole runs the dispatcher symbolically. It takes 3 us a contract for the selectors, 0.2 ms with arguments and mutability.
Of the 81 compiled contracts of the corpora it finds 134 of 134 selectors. It holds the GIL, and hostile code takes seconds:
a server reads code in the process of its budget.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from evmole import contract_info

from sigdir.signatures.types import BadTypeList, Type, parameter_types

_TRON_CHECK = re.compile(
    rb"[\xd2\xd3](?=\x80\x15(?:\x60.|\x61..|\x62...)\x57(?:\x60\0\x80|\x5f[\x80\x5f])\xfd\x5b\x50)", re.DOTALL
)
"""CALLTOKENVALUE or CALLTOKENID, and a revert if it is not 0: Tron's solc writes both after the check of CALLVALUE."""
_TOKEN_CHECK, _CALLVALUE = b"\xd3\x80\x15", b"\x34"
_SIZE_CHECK = re.compile(rb"\x36\x18(?=\x60.\x57|\x61..\x57)", re.DOTALL)
"""CALLDATASIZE, XOR and a jump: Vyper 0.3 fails where the calldata has another size than a function's arguments."""
_NO_OTHER_SIZE = b"\x80\x18"  # DUP1, XOR: 0
_PUSH20, _IS_OWN_ADDRESS = b"\x73", b"\x30\x14"  # PUSH20; ADDRESS, EQ
_SOME_ADDRESS = b"\x11" * 20


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
    """The code as evmole reads it.

    Instructions that only Tron has end a function for it, and so do these checks: that the calldata has one size, and in a
    library that is not deployed that it is not called itself, because its address and evmole's own are both zero.
    """
    code = _PUSH20 + _SOME_ADDRESS + code[21:] if is_library(code) else code
    code = _SIZE_CHECK.sub(_NO_OTHER_SIZE, code)
    return _TRON_CHECK.sub(_CALLVALUE, code) if is_tron(code) else code


def without_metadata(code: bytes) -> bytes:
    """Code without the CBOR map that solc and Vyper put at its end."""
    found = contract_info(code, metadata=True).metadata
    return code if found is None else code[: found.bytecode_offset]


# Does a text fit the arguments that a function's code shows?
#
# evmole gives the types that the code needs: `uint256` where it uses a whole word and nothing tells its type, `address`
# or `uint8` where it cuts the word, `bytes` for a string, an array of `uint256` for many arrays. So types are compared by
# their encoding: static tuples and arrays are expanded to words, and ``uint256`` in the code fits any type of one word.

_WORD = re.compile(r"(?:u?int|bytes)\d+|address|bool|function|u?fixed\d+x\d+")
_MAX_WORDS = 256


class Fit(IntEnum):
    """How well a text fits; a higher number is better."""

    DIFFERS = 0
    """The number of values, or where dynamic ones stand, differs."""
    UNKNOWN = 1
    """The code does not show its arguments."""
    LOOSE = 2
    """A type of the text is cut or padded in another way than the code does it."""
    ALIKE = 3
    """Each type encodes as the code's."""
    SAME = 4
    """Each type is the code's."""


def fit_of(text: str, arguments: str | None) -> Fit:
    """How well a canonical text fits the arguments of a function's code."""
    if arguments is None:
        return Fit.UNKNOWN
    if text[text.find("(") :] == f"({arguments})":
        return Fit.SAME
    declared, used = heads_of(text), heads_of(f"({arguments})")
    return Fit.UNKNOWN if declared is None or used is None else fit_of_heads(declared, used)


def heads_of(text: str) -> list[str] | None:
    """The words and dynamic values that a text's arguments begin with; None for types that cannot be read."""
    try:
        return _heads(parameter_types(text))
    except BadTypeList:
        return None


def fit_of_heads(declared: Sequence[str], used: Sequence[str]) -> Fit:
    """How well these of a text fit those of a code; at best they are alike."""
    if len(declared) != len(used):
        return Fit.DIFFERS
    return min(map(_fit, declared, used), default=Fit.SAME)


def _fit(declared: str, used: str) -> Fit:
    """One value of the text beside one of the code; a dynamic one has an empty text or that of its type."""
    if declared == used:
        return Fit.ALIKE
    is_word, is_used_word = (_WORD.fullmatch(one) is not None for one in (declared, used))
    if is_word and is_used_word:
        return Fit.ALIKE if used in ("uint256", _ENCODED_AS.get(declared)) else Fit.LOOSE
    if is_word or is_used_word:
        # Code that never reads a dynamic value shows its offset, a word.
        return Fit.LOOSE if used == "uint256" else Fit.DIFFERS
    both = {declared, used}
    return Fit.ALIKE if both == {"string", "bytes"} or used.endswith("[]") == declared.endswith("[]") else Fit.LOOSE


_ENCODED_AS = {"address": "uint160", "bool": "uint8", "function": "bytes24"}


def _heads(types: tuple[Type, ...]) -> list[str]:
    found: list[str] = []
    for one in types:
        if is_dynamic(one) or len(found) > _MAX_WORDS:
            found.append(one.text)
        elif one.members is not None:
            found += _heads(one.members)
        elif one.element is not None:
            found += _heads((one.element,)) * min(one.length or 0, _MAX_WORDS)
        else:
            found.append(one.text)
    return found[: _MAX_WORDS + 1]


def is_dynamic(type: Type) -> bool:
    """Whether a type encodes to an offset."""
    if type.members is not None:
        return any(map(is_dynamic, type.members))
    if type.element is not None:
        return type.length is None or is_dynamic(type.element)
    return type.text in ("bytes", "string")
