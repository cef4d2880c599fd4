"""The contract that somebody gives with the bytes, by its ABI, its code or its address: decoding puts the texts that it has first.

Invariants
    An ABI is complete: the contract has no other function. Code shows the selectors that its dispatcher compares and, not
    always rightly, the arguments, so a text is ruled out by its arguments only beside one that fits.
    A contract that delegates calls, or whose ABI has a fallback, may take calls that it does not declare. Errors come from
    the contracts that it calls too, and calls inside of a call may go to others: there no text is ruled out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from sigdir.signatures.abi import abi_entries
from sigdir.signatures.abi_decoder import SELECTOR_BYTES
from sigdir.signatures.bytecode import BadBytecode, CodeFunction, Fit, fit_of
from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.clear_signing import Called, Place
from sigdir.signatures.contract import ContractCode, read_code
from sigdir.signatures.decode_input import BadInput, code_input, shown
from sigdir.signatures.errors import counted
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.grammar import OK, REASONS, GrammarError
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.proxies import proxy_patterns
from sigdir.signatures.readings import Input, Known, Membership, likely_kind
from sigdir.signatures.types import KINDS


@dataclass(frozen=True, slots=True)
class AbiContract:
    """A contract by its ABI: the texts of its selectors and topics, those of anonymous events under no hash."""

    texts: Mapping[bytes, tuple[Known, ...]]
    has_fallback: bool
    unread: Sequence[str]
    """What is wrong with the entries that cannot be read, each after its number, from 1."""
    called: Called | None = None

    def document(self) -> dict[str, Any]:
        return {"by": "abi", **self._counts(), "unread": len(self.unread)}

    @property
    def sentence(self) -> str:
        counts = [counted(self._counts()[f"{noun}s"], noun) for noun in KINDS]
        unread = (
            f" {counted(len(self.unread), 'part')} of it cannot be read, the first is entry {self.unread[0]}."
            if self.unread
            else ""
        )
        return f"Read by the contract's ABI: {', '.join(counts)}.{unread}"

    def _counts(self) -> dict[str, int]:
        kinds = [one.kind for texts in self.texts.values() for one in texts]
        return {f"{noun}s": kinds.count(kind) for noun, kind in KINDS.items()}

    def preferred(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The texts of a hash, those of the contract first; none is ruled out."""
        own = self.texts.get(hash, ())
        texts = {one.text for one in own}
        return [*own, *(one for one in known if one.text not in texts)]

    def marked(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The same, with those marked that the contract cannot have."""
        own = self.texts.get(hash, ())
        why = f"the contract's ABI has {'another text for it' if own else 'no such function'}"
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
        proxies = [(name, address) for name, address, _ in self.behind] or [
            (one.name, one.address) for one in proxy_patterns(self.code.runtime)
        ]
        return {
            "by": "code", "code_hash": f"0x{self.code.code_hash.hex()}", "functions": len(self._selectors()),
            "proxies": [{"name": name, "address": f"0x{at.hex()}" if at else None} for name, at in proxies],
        }  # fmt: skip

    @property
    def sentence(self) -> str:
        proxies = "".join(f" {one.name}: {one.detail}." for one in proxy_patterns(self.code.runtime))
        if not proxies and self.code.runtime.delegates:
            proxies = " It delegates calls, and may take more than its code shows."
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


MAX_CHAIN = (1 << 63) - 1
_ADDRESS = re.compile(r"0[xX]([0-9a-fA-F]{40})")
_NUMBER = re.compile(r"[0-9]{1,19}|0[xX][0-9a-fA-F]{1,16}")


def chain_of(value: Any) -> int:
    """A chain's number, or its digits, in hex with 0x as wallets have it; raises BadInput."""
    number = value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = int(value, 16 if value[:2] in ("0x", "0X") else 10)
    if type(number) is not int or not 0 < number <= MAX_CHAIN:
        raise BadInput(f"{shown(value)} is no chain: a number such as 1 or 0x1, please", "chain")
    return number


def address_of(value: Any, field: str = "to") -> bytes:
    """The 20 bytes of an address, 0x and 40 hex digits; raises BadInput."""
    found = _ADDRESS.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise BadInput(f"{shown(value)} is no address: 0x and 40 hex digits, please", field)
    return bytes.fromhex(found[1])


class InterfaceText(NamedTuple):
    """A text of a stored interface: what it is, and the first 8 bytes of its hash. A selector and zeros are any text of it."""

    kind: Kind
    hash: bytes

    @property
    def selector(self) -> bytes:
        return self.hash[:SELECTOR_BYTES]

    @property
    def is_any(self) -> bool:
        """Whether it is any text of its selector."""
        return not any(self.hash[SELECTOR_BYTES:])

    def is_of(self, text: str) -> bool:
        """Whether it is this text."""
        return self.hash == _named(text)


_NAMED_BYTES = 8


@lru_cache(maxsize=8192)
def _named(text: str) -> bytes:
    return keccak256(text.encode())[:_NAMED_BYTES]


@dataclass(frozen=True, slots=True)
class DeployedContract:
    """A contract by its address, as imports have seen it. A text is ruled out only by another one of the contract.

    ``implementations`` are the addresses that its proxies lead to, ``unfollowed`` says why they end too early. ``sources``
    say so; without one no interface and no implementation of it is known. ``interface`` is the key of its own interface.
    Where the code of a proxy led here, ``proxy`` is that one's address, b"" for an unknown one.
    """

    chain: int
    address: bytes
    implementations: tuple[bytes, ...] = ()
    texts: frozenset[InterfaceText] = frozenset()
    sources: tuple[str, ...] = ()
    interface: bytes = b""
    unfollowed: str = ""
    proxy: bytes | None = None

    @property
    def called(self) -> Called:
        return Called(self.chain, self.address if self.proxy is None else self.proxy or None)

    @property
    def name(self) -> str:
        return f"{self.chain}:0x{self.address.hex()}"

    def document(self) -> dict[str, Any]:
        found = {
            "by": "deployment" if self.sources else "none",
            "chain": self.chain,
            "address": f"0x{self.address.hex()}",
            "interface": f"0x{self.interface.hex()}" if self.interface else None,
            "implementations": [f"0x{one.hex()}" for one in self.implementations],
            "texts": len(self.texts),
            "sources": list(self.sources),
        }
        return found | ({"detail": self.lack} if self.lack else {})

    @property
    def sentence(self) -> str:
        if not self.texts:
            return f"Read without a contract's texts: {self.lack}."
        behind = f" and {counted(len(self.implementations), 'implementation')}" if self.implementations else ""
        lack = f" But {self.lack}." if self.lack else ""
        return f"Read by the contract {self.name}{behind}: {counted(len(self.texts), 'text')}.{lack}"

    @property
    def lack(self) -> str:
        """What is not known of it. A descriptor may show its calls all the same; it is no interface."""
        lack = "" if self.texts else f"no import has seen the interface of {self.name}"
        return "; ".join(filter(None, (lack, self.unfollowed)))

    def preferred(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The texts of a hash, with those marked that the contract has; none is ruled out."""
        return self._with_own(self._of_hash(hash), known)

    def marked(self, hash: bytes, known: Sequence[Known]) -> list[Known]:
        """The same, with those marked that the contract cannot have, because it has another text of the hash."""
        own = self._of_hash(hash)
        found = self._with_own(own, known)
        if not own or hash.ljust(_NAMED_BYTES, b"\0") in own:
            return found
        why = f"the contract {self.name} has another text for it"
        return [one if one.membership is Membership.HAS else one.of_contract(Membership.CANNOT, why) for one in found]

    def _with_own(self, own: frozenset[bytes], known: Sequence[Known]) -> list[Known]:
        why = f"the contract {self.name} has it"
        return [one.of_contract(Membership.HAS, why) if own and _named(one.text) in own else one for one in known]

    def _of_hash(self, hash: bytes) -> frozenset[bytes]:
        """The hashes of its texts that begin with a selector or topic."""
        is_event = len(hash) != SELECTOR_BYTES
        return frozenset(
            one.hash for one in self.texts
            if (one.kind is Kind.EVENT) is is_event and one.hash.startswith(hash[:_NAMED_BYTES])
        )  # fmt: skip


GivenContract = AbiContract | CodeContract | DeployedContract
"""The contract that was called, or made the log."""


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
        why = "an ABI is a list of objects, or an object with such a list as abi; declarations in words are for texts"
        raise BadInput(why, "abi")
    texts: dict[bytes, list[Known]] = {}
    unread = []
    for entry in abi_entries(value):
        try:
            hash, known = _known_of(entry)
        except GrammarError as error:
            unread.append(f"{entry.line}, {error}")
        else:
            texts.setdefault(hash, []).append(known)
    if unread and not texts:
        raise BadInput(f"no entry of it can be read, the first is entry {unread[0]}", "abi")
    has_fallback = any(entry.get("type") == "fallback" for entry in value)  # receive takes calls without data alone
    return AbiContract({hash: tuple(dict.fromkeys(known)) for hash, known in texts.items()}, has_fallback, unread)


def _known_of(entry: Entry) -> tuple[bytes, Known]:
    """The hash and the text of an ABI's entry, no hash of an anonymous event; raises GrammarError."""
    text, kind = entry.text.decode("utf-8", "replace"), entry.sighting.kind
    if entry.reject_reason != OK:
        raise GrammarError(REASONS[entry.reject_reason], 1, text)
    found = canonicalise_one(text, entry.declared_kind, kind)
    hash = found.digest if kind is Kind.EVENT else found.digest[:SELECTOR_BYTES]
    known = Known(found.text, kind, Witness.DECLARED, found.declaration)
    is_anonymous = found.declaration.endswith(" anonymous")
    return b"" if is_anonymous else hash, known.of_contract(Membership.HAS, "the contract's ABI has it")


Stored = Callable[[int, bytes], DeployedContract]
"""Gives the contract at an address of a chain."""


def with_contract(alternatives: list[Input], given: Mapping[str, Any], stored: Stored) -> list[Input]:
    """The alternatives of an input with the contract that stands beside it, as ``contract_of`` finds it. Raises BadInput."""
    contract = contract_of(given, stored)
    return alternatives if contract is None else [one._replace(contract=contract) for one in alternatives]


def contract_of(given: Mapping[str, Any], stored: Stored) -> GivenContract | None:
    """The contract that `abi`, `code`, or `to` with `chain` name; None where none of them does.

    An ABI or code is asked before what is ``stored`` at the address. A minimal proxy's code is followed to the contract
    at its implementation, where the chain is known. Raises BadInput.
    """
    contract: GivenContract | None = given_contract(given.get("code"), given.get("abi"))
    place = _place(given)
    if place is None:
        return contract
    chain, address = place
    if contract is None:
        contract = stored(chain, address)
    elif isinstance(contract, CodeContract):
        target = next((one.address for one in proxy_patterns(contract.code.runtime) if one.address), b"")
        behind = stored(chain, target) if target else None
        contract = replace(behind, proxy=address) if behind is not None and behind.texts else contract
    if address and not isinstance(contract, DeployedContract):
        contract = replace(contract, called=Called(chain, address))
    return contract


def contract_fields(text: str) -> dict[str, str]:
    """What one text says of a contract, as ``contract_of`` takes it: its `chain` and `to` (1:0x...), its `abi` or its `code`.
    Raises BadInput for an address alone, which would be read as code.
    """
    text = text.strip()
    if _ADDRESS.fullmatch(text):
        raise BadInput(f"an address needs its chain before it, as 1:{text}", "contract")
    chain, colon, address = text.partition(":")
    if colon and chain.isalnum() and chain.isascii():
        return {"chain": chain, "to": address}
    return {"abi" if text[:1] in ("[", "{") else "code": text}


def _place(given: Mapping[str, Any]) -> Place | None:
    """The chain and the address that stand with an input, b"" for code without one; None where no chain does.

    A transaction as nodes write it has an address and no chain. It is read without a contract, as ever.
    """
    chain, address = given.get("chain"), given.get("to")
    if chain in (None, ""):
        return None
    if not address and given.get("code") is None:
        raise BadInput("a chain needs an address beside it, as `to`", "to")
    return chain_of(chain), address_of(address) if address else b""


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
