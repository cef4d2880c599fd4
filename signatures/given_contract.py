"""The contract that somebody gives with the bytes, by its ABI or its code: decoding puts the texts that it has first.

Invariants
    An ABI is complete: the contract has no other function. Code shows the selectors that its dispatcher compares and, not
    always rightly, the arguments, so a text is ruled out by its arguments only beside one that fits.
    A contract that delegates calls, or whose ABI has a fallback, may take calls that it does not declare. Errors come from
    the contracts that it calls too, and calls inside of a call may go to others: there no text is ruled out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sigdir.signatures.abi import abi_entries
from sigdir.signatures.abi_decoder import SELECTOR_BYTES
from sigdir.signatures.argument_shapes import Fit, fit_of
from sigdir.signatures.bytecode import BadBytecode
from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.clear_signing import Called
from sigdir.signatures.contract import ContractCode, read_code
from sigdir.signatures.decode_input import BadInput, code_input
from sigdir.signatures.dispatcher import CodeFunction
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.grammar import OK, GrammarError
from sigdir.signatures.plural import counted
from sigdir.signatures.proxies import proxy_patterns
from sigdir.signatures.readings import Input, Known, Membership, likely_kind

_OPEN = ("fallback", "receive")
_NOUNS = {Kind.FUNCTION: "function", Kind.EVENT: "event", Kind.ERROR: "error"}


@dataclass(frozen=True, slots=True)
class AbiContract:
    """A contract by its ABI: the texts of its selectors and topics, those of anonymous events under no hash."""

    texts: Mapping[bytes, tuple[Known, ...]]
    has_fallback: bool
    unread: int
    """Entries that cannot be read."""
    called: Called | None = None

    def document(self) -> dict[str, Any]:
        return {"by": "abi", **self._counts(), "unread": self.unread}

    @property
    def sentence(self) -> str:
        counts = [counted(self._counts()[f"{noun}s"], noun) for noun in _NOUNS.values()]
        unread = f" {counted(self.unread, 'part')} of it cannot be read." if self.unread else ""
        return f"Read by the contract's ABI: {', '.join(counts)}.{unread}"

    def _counts(self) -> dict[str, int]:
        kinds = [one.kind for texts in self.texts.values() for one in texts]
        return {f"{noun}s": kinds.count(kind) for kind, noun in _NOUNS.items()}

    def preferred(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The texts of a hash, those of the contract first; none is ruled out."""
        own = self.texts.get(hash, ())
        texts = {one.text for one in own}
        return [*own, *(one for one in known if one.text not in texts)]

    def marked(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The same, with those marked that the contract cannot have."""
        own, why = self.texts.get(hash, ()), "the contract's ABI has another text for it"
        if not own:
            why = "the contract's ABI has no such function"
        is_open = not own and (self.has_fallback or len(hash) != SELECTOR_BYTES)
        return [
            one if one.membership is Membership.HAS or is_open or (not own and likely_kind(one) is Kind.ERROR)
            else one.of_contract(Membership.CANNOT, why)
            for one in self.preferred(hash, known)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class CodeContract:
    """A contract by its code, and for a proxy that was followed by the codes ``behind`` it: of each how, and its address."""

    code: ContractCode
    behind: tuple[tuple[str, bytes, ContractCode], ...] = ()
    called: Called | None = None

    def document(self) -> dict[str, Any]:
        proxies = [(one.name, one.address) for one in proxy_patterns(self.code.runtime)]
        proxies = [(name, address) for name, address, _ in self.behind] or proxies
        return {
            "by": "code", "code_hash": f"0x{self.code.code_hash.hex()}", "functions": len(self._selectors()),
            "proxies": [{"name": name, "address": f"0x{at.hex()}" if at else None} for name, at in proxies],
        }  # fmt: skip

    @property
    def sentence(self) -> str:
        proxies = "".join(f" {one.name}: {one.detail}." for one in proxy_patterns(self.code.runtime))
        behind = ", ".join(f"0x{address.hex()} ({name})" for name, address, _ in self.behind)
        proxies = f" It delegates calls to {behind}, whose functions count as its own." if behind else proxies
        functions = counted(len(self._selectors()), "function")
        return f"Read by the contract's code 0x{self.code.code_hash.hex()}: {functions}.{proxies}"

    def preferred(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The texts of a hash, with those marked that the code has; none is ruled out."""
        return [
            one.of_contract(Membership.HAS, why) if (why := self._reason(hash, one)) else one for one in known
        ]  # fmt: skip

    def marked(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The same, with those marked that the contract cannot have."""
        found, function = self.preferred(hash, known), self._function(hash)
        if function is None:
            is_open = len(hash) != SELECTOR_BYTES or any(map(_is_open, self._ends()))
            why = "the contract's code has no such function"
            return [
                one if is_open or likely_kind(one) is Kind.ERROR else one.of_contract(Membership.CANNOT, why)
                for one in found
            ]
        if not any(one.membership is Membership.HAS for one in found):
            return found
        why = "the contract's code reads other arguments"
        differ = {one.text for one in found if fit_of(one.text, function.arguments) is Fit.DIFFERS}
        return [one.of_contract(Membership.CANNOT, why) if one.text in differ else one for one in found]

    def _codes(self) -> tuple[ContractCode, ...]:
        return (self.code, *(code for _, _, code in self.behind))

    def _ends(self) -> tuple[ContractCode, ...]:
        """The codes that answer what no other code takes."""
        return self._codes()[1:] or self._codes()

    def _selectors(self) -> set[bytes]:
        return {one.selector for code in self._codes() for one in code.functions}

    def _function(self, hash: bytes) -> CodeFunction | None:
        return next((one for code in self._codes() for one in code.functions if one.selector == hash), None)

    def _reason(self, hash: bytes, known: Known) -> str:
        """Why the code has a text; "" where it does not show that."""
        function = self._function(hash)
        if function is not None:
            fits = fit_of(known.text, function.arguments) >= Fit.ALIKE
            return "its types are those that the contract's code reads" if fits else ""
        is_error = likely_kind(known) is Kind.ERROR
        runtimes = [code.runtime for code in self._codes()]
        is_pushed = any(hash in one.topics or (is_error and hash in one.error_selectors) for one in runtimes)
        return "the contract's code has its hash" if is_pushed else ""


def _is_open(code: ContractCode) -> bool:
    """Whether code may take calls that its dispatcher does not show."""
    return code.runtime.delegates or bool(proxy_patterns(code.runtime))


def contract_of_abi(value: Any) -> AbiContract:
    """A contract by its ABI: a list of entries, an artifact with `abi`, or the JSON text of either. Raises BadInput."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"not JSON: {error}", "abi") from None
    if isinstance(value, dict):
        value = value.get("abi")
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise BadInput("an ABI is a list of objects, or an object with such a list as abi", "abi")
    texts: dict[bytes, list[Known]] = {}
    unread = []
    for entry in abi_entries(value):
        found = _known_of(entry)
        if found is None:
            unread.append(entry.line)
        else:
            texts.setdefault(found[0], []).append(found[1])
    if unread and not texts:
        raise BadInput(f"entry {unread[0]} is none of an ABI, and no other can be read", "abi")
    has_fallback = any(entry.get("type") in _OPEN for entry in value)
    return AbiContract({hash: tuple(dict.fromkeys(known)) for hash, known in texts.items()}, has_fallback, len(unread))


def _known_of(entry: Entry) -> tuple[bytes, Known] | None:
    """The hash and the text of an ABI's entry, no hash of an anonymous event; None where it cannot be read."""
    if entry.reject_reason != OK:
        return None
    kind, declaration = entry.sighting.kind, entry.sighting.declaration
    try:
        found = canonicalise_one(entry.text.decode("utf-8", "replace"), entry.declared_kind, kind)
    except GrammarError:
        return None
    hash = found.digest if kind is Kind.EVENT else found.digest[:SELECTOR_BYTES]
    known = Known(found.text, kind, Witness.DECLARED, declaration)
    is_anonymous = declaration.endswith(" anonymous")
    return b"" if is_anonymous else hash, known.of_contract(Membership.HAS, "the contract's ABI has it")


def given_contract(code: Any, abi: Any) -> AbiContract | CodeContract | None:
    """The contract that is given with an input, as hex digits of its code or as its ABI; None for neither. Raises BadInput."""
    if code is not None and abi is not None:
        raise BadInput("give a contract's code or its ABI, not both", "abi")
    if abi is not None:
        return contract_of_abi(abi)
    if code is None:
        return None
    if not isinstance(code, str):
        raise BadInput("a text of hex digits", "code")
    return CodeContract(code_of_input(code_input(code)))


def code_of_input(input: Input) -> ContractCode:
    """The code of an input; raises BadInput."""
    try:
        return read_code(input.data, input.libraries)
    except BadBytecode as error:
        raise BadInput(str(error), "code") from None
