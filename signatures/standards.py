"""Standards: the texts of well-known selectors and topics, from ``standards.txt``, and interfaces, from ``interfaces.txt``.

Other texts of such a selector are filtered. Of an interface it is known how much a contract implements.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sigdir.signatures.evidence import Kind
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import Declaration, parse_declaration

NO_TEXT = "-"


@lru_cache(maxsize=1)
def _entries() -> list[tuple[bytes, str, str]]:
    lines = Path(__file__).with_name("standards.txt").read_text().splitlines()
    entries = (line.split(maxsplit=2) for line in lines if not line.startswith("#"))
    return [(bytes.fromhex(hash.removeprefix("0x")), text, source) for hash, text, source in entries]


@lru_cache(maxsize=1)
def canonical() -> Mapping[bytes, str]:
    """The canonical text of each listed selector (4 bytes) and topic (32 bytes); NO_TEXT where none is right."""
    return {hash: text for hash, text, _ in _entries()}


@lru_cache(maxsize=1)
def sources() -> Mapping[bytes, str]:
    """Where the text of each listed selector and topic is defined."""
    return {hash: source for hash, _, source in _entries()}


def is_filtered(hash: bytes, text: str) -> bool:
    """Whether a text is not the one its selector stands for. Texts of topics never are: no topic has a second text."""
    return canonical().get(hash, text) != text


# Interfaces.


@dataclass(frozen=True, slots=True)
class Interface:
    """A standard's functions and events by their hashes.

    ``id`` is the one of ERC-165, empty where the standard has none. Of ``functions`` those in ``optional`` may be missing.
    """

    name: str
    source: str
    id: bytes
    functions: Mapping[bytes, Declaration]
    optional: frozenset[bytes]
    events: Mapping[bytes, Declaration]

    @property
    def required(self) -> list[bytes]:
        return [selector for selector in self.functions if selector not in self.optional]


@dataclass(frozen=True, slots=True)
class Implemented:
    """How much of an interface a contract has: the texts that it has and those that it lacks, optional ones left out."""

    interface: Interface
    present: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def in_full(self) -> bool:
        return not self.missing


@lru_cache(maxsize=1)
def interfaces() -> tuple[Interface, ...]:
    """All interfaces of the table, in its order."""
    text = Path(__file__).with_name("interfaces.txt").read_text()
    blocks = text[text.index("\n\n") :].split("\n\n")
    return tuple(_interface(block.strip().splitlines()) for block in blocks if block.strip())


def _interface(lines: list[str]) -> Interface:
    name, source, *id = lines[0].split("  ")
    functions: dict[bytes, Declaration] = {}
    events: dict[bytes, Declaration] = {}
    optional = set()
    for line in map(str.strip, lines[1:]):
        declaration = parse_declaration(line.removeprefix("optional "))
        digest = keccak256(declaration.text.encode())
        if declaration.kind is Kind.EVENT:
            events[digest] = declaration
        else:
            functions[digest[:4]] = declaration
        if line.startswith("optional "):
            optional.add(digest[:4])
    number = bytes.fromhex(id[0].removeprefix("*").removeprefix("0x")) if id else b""
    return Interface(name, source, number, functions, frozenset(optional), events)


def interface_ids() -> Mapping[bytes, Interface]:
    """The interfaces that have an id of ERC-165, by it."""
    return {interface.id: interface for interface in interfaces() if interface.id}


@lru_cache(maxsize=1)
def standard_declarations() -> Mapping[bytes, Declaration]:
    """The declaration of each function (4 bytes) and event (32 bytes) of the table; that of the first standard.

    Standards that share a function may name its parameters differently. Two events that differ in what is indexed, such
    as the Transfer of ERC-20 and ERC-721, are of the first one here.
    """
    found: dict[bytes, Declaration] = {}
    for interface in interfaces():
        for digest, declaration in (*interface.functions.items(), *interface.events.items()):
            found.setdefault(digest, declaration)
    return found


def event_declarations(topic: bytes) -> Mapping[tuple[bool, ...], Declaration]:
    """The declarations that standards have for an event, by which parameters are indexed; of each that of the first standard."""
    declared = [interface.events[topic] for interface in interfaces() if topic in interface.events]
    return {one.indexed: one for one in reversed(declared)}


def implemented(selectors: Collection[bytes]) -> tuple[Implemented, ...]:
    """The interfaces of which the selectors are all or more than half, those in full first.

    One without functions is known by its id alone, and is not among them.
    """
    found = []
    for interface in interfaces():
        required = interface.required
        present = [selector for selector in required if selector in selectors]
        if 2 * len(present) > len(required):
            missing = [selector for selector in required if selector not in selectors]
            texts = interface.functions
            found.append(
                Implemented(interface, tuple(texts[s].text for s in present), tuple(texts[s].text for s in missing))
            )
    return tuple(sorted(found, key=lambda one: not one.in_full))
