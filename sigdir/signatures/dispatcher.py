"""The functions that a contract's dispatcher knows, and its metadata: the only module that uses evmole.

evmole runs the dispatcher symbolically. It takes 3 us a contract for the selectors, 0.2 ms with arguments and mutability.
Of the 81 compiled contracts of the corpora it finds 134 of 134 selectors. It holds the GIL, and hostile code takes seconds.
So a server runs this file as a program: it writes an empty line when it is ready, reads code behind a ``HEAD``, and answers
each with one line of JSON, until its input ends. The kernel ends it where a code takes longer than its head allows.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from typing import NamedTuple

from evmole import contract_info

HEAD = struct.Struct(">If")
"""What stands in front of code: its length, and how many seconds of processor time it may take."""


class CodeFunction(NamedTuple):
    """A function as its code shows it.

    ``arguments`` is a type list without parentheses in which types that encode alike may stand for each other
    (`uint256` for `bytes32`), and None where they were not found. ``mutability`` is `pure`, `view`, `nonpayable`,
    `payable` or, where it was not found, empty.
    """

    selector: bytes
    arguments: str | None
    mutability: str


def selectors_of(code: bytes) -> frozenset[bytes]:
    """The selectors that the dispatcher of runtime code compares."""
    return frozenset(bytes.fromhex(one.selector) for one in contract_info(code, selectors=True).functions or ())


def functions_of(code: bytes) -> tuple[CodeFunction, ...]:
    """The functions of runtime code, in the dispatcher's order."""
    found = contract_info(code, selectors=True, arguments=True, state_mutability=True).functions or ()
    return tuple(CodeFunction(bytes.fromhex(one.selector), one.arguments, one.state_mutability or "") for one in found)


def without_metadata(code: bytes) -> bytes:
    """Code without the CBOR map that solc and Vyper put at its end."""
    found = contract_info(code, metadata=True).metadata
    return code if found is None else code[: found.bytecode_offset]


def decoded_functions(line: bytes) -> tuple[CodeFunction, ...]:
    """The functions of one line that the program answers."""
    return tuple(CodeFunction(bytes.fromhex(one[0]), one[1], one[2]) for one in json.loads(line))


def _answer() -> None:
    print(flush=True)  # ready
    while head := sys.stdin.buffer.read(HEAD.size):
        size, seconds = HEAD.unpack(head)
        code = sys.stdin.buffer.read(size)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        found = functions_of(code)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps([(one.selector.hex(), one.arguments, one.mutability) for one in found]), flush=True)


if __name__ == "__main__":
    _answer()
