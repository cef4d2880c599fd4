"""A contract's bytecode to its interface: functions, events, errors, proxies, standards.

Code has hashes and no texts, and this layer knows no directory, so it works in two steps::

    code = read_contract("0x6080...")
    contract = interface_of(code, {hash: known_texts(hash) for hash in code.hashes})

The texts of a hash come in rank order. A function's texts are ordered by how well they fit the arguments that its code
shows, then by whether it takes value, then by that rank.

Invariants
    Every selector that the dispatcher compares is a function of the interface, with or without a text.
    An event or an error is one of the interface only if a text is known for a constant that the code pushes.
    A text that cannot be declared, because it is too long or nested too deeply, is a text of the interface all the same. What the
    texts take is bounded by the size of the code; the first of each hash has room before the second of any, and a short
    one before a long one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from sigdir.signatures.abi import BUILT_IN
from sigdir.signatures.abi_decoder import SPARE, Budget
from sigdir.signatures.bytecode import (
    BadBytecode,
    CodeFunction,
    CodeProblem,
    Fit,
    RuntimeCode,
    analyse,
    bytes_of_hex,
    fit_of,
    functions_of,
    is_tron,
    selectors_of,
)
from sigdir.signatures.code_scan import scan_code
from sigdir.signatures.errors import counted
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.proxies import ProxyPattern, proxy_patterns
from sigdir.signatures.readings import Known
from sigdir.signatures.standards import Implemented, Interface, implemented, interface_ids, standard_declarations
from sigdir.signatures.types import BadDeclaration, Declaration, canonical_declaration, parsed_declaration

_SPARE = SPARE // 2  # a page has each text in its table, its ABI and its source: eight times as much
_SUPPORTS_INTERFACE = bytes.fromhex("01ffc9a7")

MAX_FUNCTIONS = 1000
"""Of a code that is read: hostile code takes evmole 2 ms for each."""


@dataclass(frozen=True, slots=True)
class ContractCode:
    """What is in a contract's code without any directory. ``is_creation`` says that it lay inside of creation code."""

    runtime: RuntimeCode
    functions: tuple[CodeFunction, ...]
    is_creation: bool = False

    @property
    def code_hash(self) -> bytes:
        """Keccak-256 of the runtime code without metadata, 32 bytes."""
        return keccak256(self.runtime.code)

    @property
    def machine(self) -> str:
        """The machine that it was compiled for: `EVM`, or `Tron`, whose instructions are the EVM's and five more."""
        return "Tron" if is_tron(self.runtime.code) else "EVM"

    @property
    def arguments(self) -> dict[bytes, str | None]:
        """The arguments that the code of each function shows, by selector."""
        return {function.selector: function.arguments for function in self.functions}

    @property
    def hashes(self) -> frozenset[bytes]:
        """The selectors and topics whose texts are wanted."""
        selectors = {function.selector for function in self.functions}
        return frozenset(selectors | self.runtime.topics | self.runtime.error_selectors)


class ContractText(NamedTuple):
    """A text for a hash of the code. ``fit`` is that of a function's arguments.

    ``declaration`` is None for a text that is too long or nested too deeply for one.
    """

    known: Known
    declaration: Declaration | None
    fit: Fit
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A function, an event or an error of the interface, with its texts, best first; a function may have none.

    ``arguments`` and ``takes_ether`` are what the code of a function shows, each None where it does not.
    """

    kind: Kind
    hash: bytes
    texts: tuple[ContractText, ...]
    arguments: str | None = None
    takes_ether: bool | None = None

    @property
    def best(self) -> ContractText | None:
        return self.texts[0] if self.texts else None

    @property
    def shape(self) -> str:
        """The arguments of an unknown function: `(uint256,address)`, `(?)` where the code does not show them."""
        return "(?)" if self.arguments is None else f"({self.arguments})"

    @property
    def payable(self) -> str:
        """`payable` where the code takes ether, else empty."""
        return "payable" if self.takes_ether else ""


@dataclass(frozen=True, slots=True)
class ContractInterface:
    """The interface of a contract."""

    code: ContractCode
    functions: tuple[Member, ...]
    events: tuple[Member, ...]
    errors: tuple[Member, ...]
    proxies: tuple[ProxyPattern, ...]
    interface_ids: tuple[Interface, ...]
    """Those that the contract says to support: ids of ERC-165 in its code."""
    standards: tuple[Implemented, ...]
    left_out: int
    """Texts that an answer about code of this size has no room for."""

    @property
    def note(self) -> str:
        """A sentence about what was left out."""
        if not self.left_out:
            return ""
        return f"{counted(self.left_out, 'known text')} left out: an answer of this size has no room for more."

    @property
    def unknown(self) -> tuple[Member, ...]:
        """The functions without a text."""
        return tuple(function for function in self.functions if not function.texts)


_BLUEPRINT = b"\xfe\x71"  # INVALID, and a byte that ERC-5202 chose


def codes_of(code: bytes) -> tuple[bytes, ...]:
    """What code may be: runtime code, and the runtime code inside of creation code or a blueprint, where there is some."""
    inner = scan_code(_without_preamble(code)).returned
    if inner is not None and inner.startswith(_BLUEPRINT):
        inner = scan_code(_without_preamble(inner)).returned
    return (code,) if inner is None else (code, inner)


def _without_preamble(code: bytes) -> bytes:
    """The creation code in a blueprint. A byte comes before it whose lower two bits are the width of a length, the length,
    and data that long.
    """
    if not code.startswith(_BLUEPRINT):
        return code
    start = 3 + (code[2:3] or b"\0")[0] % 4
    return code[start + int.from_bytes(code[3:start]) :]


def contract_code(
    code: bytes, functions: tuple[CodeFunction, ...], libraries: int = 0, *, is_creation: bool = False
) -> ContractCode:
    """Runtime code with the functions that ``dispatcher.functions_of`` finds in it."""
    selectors = frozenset(function.selector for function in functions)
    return ContractCode(analyse(code, libraries, selectors), functions, is_creation)


def read_contract(text: str) -> ContractCode:
    """Hex digits of runtime or creation code. Raises BadBytecode."""
    return read_code(*bytes_of_hex(text))


def read_code(given: bytes, libraries: int = 0) -> ContractCode:
    """Runtime or creation code, in which so many libraries are not linked. Raises BadBytecode.

    Code with functions of its own is runtime code. Hostile code takes seconds, and nothing can interrupt them.
    """
    for code in codes_of(given):
        if len(selectors_of(code)) > MAX_FUNCTIONS:
            raise BadBytecode(CodeProblem.TOO_LONG, f"code of more than {MAX_FUNCTIONS:,} functions")
        functions = functions_of(code)
        if functions:
            break
    return contract_code(code, functions, libraries, is_creation=code is not given)


def interface_of(code: ContractCode, known: Mapping[bytes, Sequence[Known]]) -> ContractInterface:
    """The interface that the texts of a directory give the code."""
    runtime = code.runtime
    known, left_out = _with_room(known, len(runtime.code))
    functions = tuple(_function(function, known.get(function.selector, ())) for function in code.functions)
    answers_interfaces = _SUPPORTS_INTERFACE in runtime.selectors
    ids = interface_ids() if answers_interfaces else {}
    pushed = runtime.error_selectors - runtime.selectors
    return ContractInterface(
        code,
        functions,
        _members(Kind.EVENT, runtime.topics, known),
        _members(Kind.ERROR, pushed - BUILT_IN.keys() - ids.keys(), known),
        proxy_patterns(runtime),
        tuple(interface for id, interface in ids.items() if id in runtime.error_selectors),
        implemented(runtime.selectors),
        left_out,
    )


def _with_room(known: Mapping[bytes, Sequence[Known]], size: int) -> tuple[dict[bytes, list[Known]], int]:
    """The texts that an answer about so many bytes has room for, and how many have none."""
    budget, left_out = Budget.of(size, _SPARE), 0
    found: dict[bytes, list[Known]] = {}
    ranked = [(rank, len(one.text), hash, one) for hash, texts in known.items() for rank, one in enumerate(texts)]
    for _, _, hash, one in sorted(ranked, key=itemgetter(0, 1)):
        if budget.admits(one.text, one.declaration):
            found.setdefault(hash, []).append(one)
        else:
            left_out += 1
    return found, left_out


def _function(function: CodeFunction, known: Iterable[Known]) -> Member:
    found = [_function_text(function, one) for one in known]
    found.sort(key=lambda one: (-one[0].fit, one[0].known.kind is Kind.ERROR, not one[1]))
    texts = tuple(text for text, _ in found)
    return Member(Kind.FUNCTION, function.selector, texts, function.arguments, function.takes_ether)


def _function_text(function: CodeFunction, known: Known) -> tuple[ContractText, bool]:
    """A text of a function, and whether it has a declaration that takes ether if and only if the code does.

    The code decides whether it is declared payable. It does not show which functions are view or pure.
    """
    fit = fit_of(known.text, function.arguments)
    declared = _declaration(function.selector, known, Kind.FUNCTION)
    declaration = declared or _undeclared(known.text, Kind.FUNCTION)
    agrees = declaration is not None and function.takes_ether in (None, declaration.mutability == "payable")
    if declaration is not None and not agrees and declaration.mutability in _OF_ETHER:
        declaration = replace(declaration, mutability=_OF_ETHER[not function.takes_ether])
    return ContractText(known, declaration, fit, _reasons(known, fit)), declared is not None and agrees


_OF_ETHER = ("payable", "nonpayable")


def _reasons(known: Known, fit: Fit | None) -> tuple[str, ...]:
    found = [_FITS[fit]] if fit is not None else []
    if known.witness is Witness.COMPILED:
        found.append("compiled in other contracts")
    elif known.witness is Witness.DECLARED:
        found.append("declared in contracts")
    return tuple(found)


_FITS = {
    Fit.SAME: "its types are those that the code reads",
    Fit.ALIKE: "its types encode as those that the code reads",
    Fit.LOOSE: "the code cuts a value to another type",
    Fit.UNKNOWN: "the code does not show its arguments",
    Fit.DIFFERS: "the code reads other arguments",
}


def _members(kind: Kind, hashes: Iterable[bytes], known: Mapping[bytes, Sequence[Known]]) -> tuple[Member, ...]:
    """The events or errors that a text is known for, by their texts."""
    found = []
    for hash in hashes:
        texts = [_member_text(kind, hash, one) for one in known.get(hash, ()) if _may_be(kind, one)]
        if texts:
            found.append(Member(kind, hash, tuple(texts)))
    return tuple(sorted(found, key=lambda member: member.texts[0].known.text))


def _may_be(kind: Kind, known: Known) -> bool:
    """Whether a text can be an event or an error. Code pushes the selectors of functions too, to call them; errors whose
    kind nobody states begin with a capital letter.
    """
    if known.kind is Kind.UNKNOWN:
        return kind is Kind.EVENT or known.text[:1].isupper()
    return known.kind is kind


def _member_text(kind: Kind, hash: bytes, known: Known) -> ContractText:
    declaration = _declaration(hash, known, kind) or _undeclared(known.text, kind)
    return ContractText(known, declaration, Fit.UNKNOWN, _reasons(known, None))


def _declaration(hash: bytes, known: Known, kind: Kind) -> Declaration | None:
    """The declaration that the directory or a standard has for a text."""
    if known.declaration:
        found = parsed_declaration(known.declaration)
        if found is not None and found.text == known.text and found.kind in (kind, Kind.UNKNOWN):
            return replace(found, kind=kind)
    standard = standard_declarations().get(hash)
    return standard if standard is not None and standard.text == known.text and standard.kind is kind else None


def _undeclared(text: str, kind: Kind) -> Declaration | None:
    """A canonical text as a declaration without names; None where it is too long or nested too deeply."""
    try:
        return canonical_declaration(text, kind)
    except BadDeclaration:
        return None
