"""A contract's runtime bytecode: is what its ABI declares really in it?

``compiled`` is checked by us: a function's selector must be one that the dispatcher compares, an event's topic must
be pushed, or copied from the code as a constant, an error's selector must be pushed, plain or shifted into place. The
forms are in ``code_scan.py``. Of the 145 errors in the corpora's 81 bytecodes 76 are found so, 39 of them as four
bytes that stand together; the other 69 are used by no code of their contract, and stay ``declared``.

Invariants
    A hash that is not in the code is never COMPILED. A hash that is in it by chance, or because the code calls a function
    with that selector, can be: an error's constant does not say what it is for.
    Bytecode that cannot be read raises BadBytecode with a reason. The code itself is not run.

The functions that a contract's dispatcher knows, which texts fit them, and its metadata: the only module that uses
evmole.

evmole runs the dispatcher symbolically. It takes 3 us a contract for the selectors, 0.2 ms with arguments and
mutability. Of the 81 compiled contracts of the corpora it finds 134 of 134 selectors. It holds the GIL, and hostile
code takes seconds: a server reads code in the process of its budget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import NamedTuple

from evmole import contract_info

from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.code_scan import scan_code
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.evidence import Contract, Kind, Witness
from sigdir.signatures.grammar import OK, GrammarError
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import KINDS, BadTypeList, Type, parameter_types

_TRON_CHECK = re.compile(
    rb"[\xd2\xd3](?=\x80\x15(?:\x60.|\x61..|\x62...)\x57(?:\x60\0\x80|\x5f[\x80\x5f])\xfd\x5b\x50)", re.DOTALL
)
"""CALLTOKENVALUE or CALLTOKENID, and a revert if it is not 0: Tron's solc writes both after the check of CALLVALUE."""
_TOKEN_CHECK, _CALLVALUE = b"\xd3\x80\x15", b"\x34"
_SIZE_CHECK = re.compile(rb"\x36\x18(?=\x60.\x57|\x61..\x57)", re.DOTALL)
"""CALLDATASIZE, XOR and a jump: Vyper 0.3 fails where the calldata has another size than a function's arguments."""
_NO_OTHER_SIZE = b"\x80\x18"  # DUP1, XOR: 0
_VALUE_CHECK, _SHORT_VALUE_CHECK = b"\x34\x15\x15\x61", b"\x34\x5b\x5b\x61"
"""CALLVALUE, ISZERO twice, PUSH2: Vyper's check without its optimizer, and the same without what evmole does not know."""
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
    code = code.replace(_VALUE_CHECK, _SHORT_VALUE_CHECK)
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
    return Fit.ALIKE if used.endswith("[]") == declared.endswith("[]") else Fit.LOOSE


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


MAX_BYTES = 1 << 20
"""Of a contract's code. A chain allows 24,576 bytes, and contracts of tests are larger."""
_KEY_BYTES = 8
_LIBRARY = re.compile(r"__.{38}", re.DOTALL)
"""The place of a library's address: `__$hash$__`, and `__path:Name___` before solc 0.5."""
_NO_ADDRESS = "0" * 40
_ERAVM = re.compile(rb"\x00[\x01-\xff]\0{5}\x02|\0\0\0\x80[\0-\x0f]\0\0\x39")
"""How zksolc and zkvyper begin: values on the stack (`nop stack+=`), or `add 128, r0, r3`. To the EVM it is STOP."""
_STYLUS = b"\xef\xf0"


class CodeProblem(StrEnum):
    """Why text is not the bytecode of a contract."""

    EMPTY = "empty"
    """An interface or an abstract contract has none."""
    NOT_HEX = "not_hex"
    TOO_LONG = "too_long"
    CREATION_ONLY = "creation_only"
    """Creation code in which no runtime code is found."""
    OTHER_MACHINE = "other_machine"
    """Code of EraVM or of Stylus, not of the EVM."""


class BadBytecode(SigdirError, ValueError):
    """Text that is not the bytecode of a contract; ``reason`` says why."""

    def __init__(self, reason: CodeProblem, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def bytes_of_hex(text: str, most: int = MAX_BYTES) -> tuple[bytes, int]:
    """The bytes of bytecode as hex digits, with or without 0x, and how many libraries are not linked into it.

    The address of a library that is not linked is zeros. Raises BadBytecode.
    """
    digits = text.strip().removeprefix("0x").removeprefix("0X")
    if not digits:
        raise BadBytecode(CodeProblem.EMPTY, "no bytecode")
    if len(digits) > 2 * most:
        raise BadBytecode(CodeProblem.TOO_LONG, f"bytecode of {len(digits) // 2:,} bytes; at most {most:,} are read")
    libraries = 0
    if "_" in digits:
        digits, libraries = _LIBRARY.subn(_NO_ADDRESS, digits)
    try:
        code = bytes.fromhex(digits)
    except ValueError:
        raise BadBytecode(CodeProblem.NOT_HEX, _why_not_hex(digits)) from None
    machine = other_machine(code)
    if machine:
        raise BadBytecode(CodeProblem.OTHER_MACHINE, f"code of {machine}; only code of the EVM is read")
    return code, libraries


def other_machine(code: bytes) -> str:
    """The machine that code is for if it is not the EVM, else "".

    EraVM's code is an odd number of words, and begins as its compilers write it.
    """
    if len(code) % 64 == 32 and _ERAVM.match(code):
        return "EraVM, zkSync Era's machine"
    return "Stylus, Arbitrum's WebAssembly" if code.startswith(_STYLUS) else ""


def _why_not_hex(digits: str) -> str:
    wrong = re.search("[^0-9A-Fa-f]", digits)
    if wrong is None:
        return f"bytecode of {len(digits):,} hex digits, an odd number"
    return f"bytecode has {wrong[0]!r} at digit {wrong.start() + 1:,}"


@dataclass(frozen=True, slots=True)
class RuntimeCode:
    """Runtime code without its metadata, and the hashes in it."""

    code: bytes
    selectors: frozenset[bytes]
    """Those that the dispatcher compares."""
    topics: frozenset[bytes]
    """The words that it pushes or copies from itself."""
    error_selectors: frozenset[bytes]
    delegates: bool = False
    """Whether it has a DELEGATECALL."""
    libraries: int = 0
    """How many addresses of libraries were missing."""
    code_hash: bytes = b""
    """Keccak-256 of the code with its metadata; empty where libraries are missing."""

    @property
    def is_empty(self) -> bool:
        """Whether it holds no hash at all. The code of libraries without external functions is the same for all of them."""
        return not (self.selectors or self.topics or self.error_selectors)


def runtime_code(text: str) -> RuntimeCode:
    """Read the hex digits of runtime code. Raises BadBytecode."""
    code, libraries = bytes_of_hex(text)
    return analyse(code, libraries)


def runtime_code_of_creation(text: str) -> RuntimeCode:
    """Read the runtime code inside of creation code. Raises BadBytecode.

    Code that has a dispatcher of its own is runtime code, and is read as such.
    """
    code, libraries = bytes_of_hex(text)
    outer = analyse(code, libraries)
    if outer.selectors:
        return outer
    inner = scan_code(code).returned
    if inner is None:
        raise BadBytecode(CodeProblem.CREATION_ONLY, "creation code in which no runtime code is found")
    return analyse(inner, libraries)


def analyse(code: bytes, libraries: int = 0, selectors: frozenset[bytes] | None = None) -> RuntimeCode:
    """The hashes in runtime code, which may have its metadata. ``selectors`` are its dispatcher's, where they are known."""
    code_hash = b"" if libraries else keccak256(code)
    code = without_metadata(code)
    scan = scan_code(code)
    found = selectors_of(code) if selectors is None else selectors
    return RuntimeCode(code, found, scan.topics | scan.words, scan.selectors, scan.delegates, libraries, code_hash)


def contract_key(code: bytes) -> bytes:
    """The key of a contract: 8 bytes of the hash of its runtime code without metadata."""
    return keccak256(code)[:_KEY_BYTES]


def witness_of(kind: Kind, digest: bytes, code: RuntimeCode) -> Witness:
    """COMPILED if the code has the hash that an ABI entry of this kind has, else DECLARED.

    ``digest`` is the whole hash of the canonical text, 32 bytes. UNKNOWN is a function or an error.
    """
    if kind is Kind.EVENT:
        is_there = digest in code.topics
    elif kind is Kind.FUNCTION:
        is_there = digest[:4] in code.selectors
    else:
        is_there = digest[:4] in code.error_selectors or (kind is Kind.UNKNOWN and digest[:4] in code.selectors)
    return Witness.COMPILED if is_there else Witness.DECLARED


# The entries of an ABI beside the runtime code of its contract.

_CACHED_BYTES = 256


def witnessed(entries: Iterable[Entry], code: RuntimeCode) -> Iterator[Entry]:
    """The entries of one contract's ABI with their witness, and with the contract's key.

    An entry that has a reject reason, or that no grammar accepts, stays as it is. So do all entries beside code that holds
    no hash.
    """
    if code.is_empty:
        yield from entries
        return
    key = contract_key(code.code)
    for entry in entries:
        said = entry.sighting
        kind = kind_of(entry)
        digest = _digest(entry, kind)
        if digest is None:
            yield entry
            continue
        contract = (said.contract or Contract("", key))._replace(key=key, code_hash=code.code_hash)
        yield entry._replace(sighting=said._replace(witness=witness_of(kind, digest, code), contract=contract))


def kind_of(entry: Entry) -> Kind:
    """The kind that the entry or its text states."""
    if entry.sighting.kind is not Kind.UNKNOWN:
        return entry.sighting.kind
    if entry.declared_kind == EVENTS:
        return Kind.EVENT
    return KINDS.get(entry.text.partition(b" ")[0].decode("latin-1"), Kind.UNKNOWN)


def _digest(entry: Entry, kind: Kind) -> bytes | None:
    """The whole hash of the entry's canonical text; None for a reject."""
    if entry.reject_reason != OK:
        return None
    collection = kind.collection or FUNCTIONS
    return (_cached_digest if len(entry.text) <= _CACHED_BYTES else _text_digest)(entry.text, collection)


def _text_digest(text: bytes, collection: int) -> bytes | None:
    try:
        return canonicalise_one(text.decode(), collection).digest
    except (GrammarError, UnicodeDecodeError):
        return None


_cached_digest = lru_cache(maxsize=1 << 14)(_text_digest)
