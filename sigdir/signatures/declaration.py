"""A declaration in words and as an entry of an ABI, in both directions.

``declaration_of`` spells an ABI entry as ``function transfer(address to, uint256 amount) returns (bool)``;
``parse_declaration`` reads such a text (``spelling.py`` has its form) into a ``Declaration``, whose ``abi_entry`` is the
entry again. What a declaration does not have is lost: compilers' internal types, and names that are no identifiers.

Sources: the Solidity documentation, "Contract ABI Specification", section JSON, for entries; old compilers wrote
``constant`` and ``payable`` in place of ``stateMutability``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sigdir.signatures.errors import SigdirError
from sigdir.signatures.evidence import Kind
from sigdir.signatures.spelling import MAX_DECLARATION_BYTES, MAX_DEPTH, MAX_NAME_BYTES, RESERVED, Spelled, spelled
from sigdir.signatures.types import one_type

_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_MUTABILITIES = frozenset(["view", "pure", "payable"])
_KINDS = {"function": Kind.FUNCTION, "event": Kind.EVENT, "error": Kind.ERROR}


class BadDeclaration(SigdirError, ValueError):
    """A text that is no spelled declaration."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, a value that is returned, or a component of a tuple."""

    type: str
    """As in an ABI: `uint256[]`, and `tuple[]` where there are components."""
    name: str = ""
    indexed: bool = False
    components: tuple[Parameter, ...] | None = None
    """Those of a tuple; None for any other type."""

    @property
    def canonical_type(self) -> str:
        """The type in a canonical text: `(address,uint256)[]`."""
        if self.components is None:
            return self.type
        inner = ",".join(component.canonical_type for component in self.components)
        return f"({inner}){self.type.removeprefix('tuple')}"

    @property
    def nested_name(self) -> Any:
        """The name; a tuple's as (name, those of its members)."""
        if self.components is None:
            return self.name
        return self.name, tuple(component.nested_name for component in self.components)

    def __str__(self) -> str:
        """As spelled in a declaration."""
        written = self.type
        if self.components is not None:
            written = f"({', '.join(map(str, self.components))}){self.type.removeprefix('tuple')}"
        return written + (" indexed" if self.indexed else "") + (f" {self.name}" if self.name else "")

    def abi(self, of_event: bool = False) -> dict[str, Any]:
        """As in an ABI entry. The parameters of an event have ``indexed``."""
        entry: dict[str, Any] = {"name": self.name, "type": self.type}
        if self.components is not None:
            entry["components"] = [component.abi() for component in self.components]
        return entry | {"indexed": self.indexed} if of_event else entry


@dataclass(frozen=True, slots=True)
class Declaration:
    """A parsed declaration."""

    kind: Kind
    """UNKNOWN for a text without a keyword."""
    name: str
    inputs: tuple[Parameter, ...] = ()
    outputs: tuple[Parameter, ...] = ()
    """What a function returns."""
    mutability: str = "nonpayable"
    """Of a function: view, pure, payable or nonpayable."""
    anonymous: bool = False

    @property
    def text(self) -> str:
        """The canonical text: `transfer(address,uint256)`."""
        return f"{self.name}({','.join(one.canonical_type for one in self.inputs)})"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """One for each parameter, empty where it has none."""
        return tuple(one.name for one in self.inputs)

    @property
    def nested_names(self) -> tuple[Any, ...]:
        """The same; a tuple's is (name, those of its members)."""
        return tuple(one.nested_name for one in self.inputs)

    @property
    def indexed(self) -> tuple[bool, ...]:
        """For each parameter whether it is a topic of its event."""
        return tuple(one.indexed for one in self.inputs)

    def __str__(self) -> str:
        """As spelled: the text that was parsed."""
        keyword = f"{self.kind.name.lower()} " if self.kind != Kind.UNKNOWN else ""
        text = f"{keyword}{self.name}({', '.join(map(str, self.inputs))})"
        if self.mutability != "nonpayable":
            text += f" {self.mutability}"
        if self.outputs:
            text += f" returns ({', '.join(map(str, self.outputs))})"
        return text + (" anonymous" if self.anonymous else "")

    def abi_entry(self) -> dict[str, Any]:
        """The entry of an ABI, as JSON has it. A declaration without a keyword becomes a function."""
        inputs = [one.abi(self.kind == Kind.EVENT) for one in self.inputs]
        entry = {"type": self.kind.name.lower(), "name": self.name, "inputs": inputs}
        if self.kind == Kind.EVENT:
            return entry | {"anonymous": self.anonymous}
        if self.kind == Kind.ERROR:
            return entry
        outputs = [one.abi() for one in self.outputs]
        return entry | {"type": "function", "outputs": outputs, "stateMutability": self.mutability}


# From an ABI entry.


def declaration_of(item: dict[str, Any]) -> Spelled:
    """The kind of an ABI entry and its declaration, which is empty if the entry has none of the specification's shape."""
    word = item.get("type", "function")
    kind = _KINDS.get(word, Kind.UNKNOWN) if isinstance(word, str) else Kind.UNKNOWN
    name = item.get("name")
    if kind == Kind.UNKNOWN or not isinstance(name, str) or not _NAME.fullmatch(name):
        return Spelled(kind, "")
    try:
        text = f"{word} {name}({_written_list(item.get('inputs') or (), kind == Kind.EVENT)})"
        if kind == Kind.EVENT and item.get("anonymous") is True:
            text += " anonymous"
        elif kind == Kind.FUNCTION:
            text += _mutability(item) + _returns(item.get("outputs"))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return Spelled(kind, "")
    return spelled(text, kind)


def _mutability(item: dict[str, Any]) -> str:
    written = item.get("stateMutability")
    if isinstance(written, str):
        return f" {written}" if written in _MUTABILITIES else ""
    return " view" if item.get("constant") is True else " payable" if item.get("payable") is True else ""


def _returns(outputs: Any) -> str:
    """The list of returns, empty if it is of a wrong shape: the declaration says the rest."""
    try:
        return f" returns ({_written_list(outputs, False)})" if outputs else ""
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""


def _written_list(parameters: Any, with_indexed: bool, depth: int = 0) -> str:
    """Parameters in words. Raises for another shape than the specification's."""
    if not isinstance(parameters, list | tuple) or depth > MAX_DEPTH:
        raise TypeError("no list of parameters")
    return ",".join([_written(one, with_indexed, depth) for one in parameters])


def _written(parameter: Any, with_indexed: bool, depth: int) -> str:
    kind, name = parameter["type"], parameter.get("name")
    if kind.startswith("tuple") and "components" in parameter:
        kind = f"({_written_list(parameter['components'], False, depth + 1)}){kind[5:]}"
    else:
        kind = one_type(kind)
    if with_indexed and parameter.get("indexed"):
        kind += " indexed"
    return f"{kind} {name}" if name and is_parameter_name(name) else kind


def is_parameter_name(name: Any) -> bool:
    """Whether a JSON value is a name that a declaration can have."""
    if not isinstance(name, str) or name in RESERVED or len(name) > MAX_NAME_BYTES:
        return False
    return _NAME.fullmatch(name) is not None


# From a spelled declaration.


_TOKEN = re.compile(r"[(),]|[^\s(),]+|\s+")
_TYPE = re.compile(r"[a-z][a-z0-9]*((?:\[[0-9]*\])*)")
_ARRAYS = re.compile(r"(?:\[[0-9]*\])+")


def parse_declaration(text: str) -> Declaration:
    """A declaration in the form of ``spelling.py``; raises BadDeclaration."""
    if len(text) > MAX_DECLARATION_BYTES:
        raise BadDeclaration(f"a declaration of over {MAX_DECLARATION_BYTES:,} characters")
    found = _Reader(text).declaration()
    if str(found) != text:
        raise BadDeclaration(f"not a spelled declaration: {text[:200]!r}")
    return found


class _Reader:
    """Reads the tokens of one declaration from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: Iterator[str] = (found[0] for found in _TOKEN.finditer(text) if not found[0].isspace())
        self._next = next(self._tokens, "")

    def _take(self) -> str:
        taken, self._next = self._next, next(self._tokens, "")
        return taken

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise BadDeclaration(f"{token!r} is missing in {self._text[:200]!r}")

    def declaration(self) -> Declaration:
        kind, name = Kind.UNKNOWN, self._take()
        if self._next != "(":
            kind, name = _KINDS.get(name, Kind.UNKNOWN), self._take()
        if not _NAME.fullmatch(name):
            raise BadDeclaration(f"no name in {self._text[:200]!r}")
        self._expect("(")
        inputs = self._list(1)
        mutability = self._take() if self._next in _MUTABILITIES else "nonpayable"
        outputs: tuple[Parameter, ...] = ()
        if self._next == "returns":
            self._take()
            self._expect("(")
            outputs = self._list(1)
        anonymous = self._next == "anonymous" and bool(self._take())
        self._expect("")
        return Declaration(kind, name, inputs, outputs, mutability, anonymous)

    def _list(self, depth: int) -> tuple[Parameter, ...]:
        """The parameters up to the parenthesis that closes their list."""
        if depth > MAX_DEPTH:
            raise BadDeclaration(f"tuples nested more than {MAX_DEPTH} deep")
        found = []
        if self._next != ")":
            found.append(self._parameter(depth))
            while self._next == ",":
                self._take()
                found.append(self._parameter(depth))
        self._expect(")")
        return tuple(found)

    def _parameter(self, depth: int) -> Parameter:
        components = None
        word = self._take()
        if word == "(":
            components = self._list(depth + 1)
            word = "tuple" + (self._take() if _ARRAYS.fullmatch(self._next) else "")
        elif not _TYPE.fullmatch(word):
            raise BadDeclaration(f"no type at {word[:40]!r} in {self._text[:200]!r}")
        indexed = self._next == "indexed" and bool(self._take())
        name = self._take() if _NAME.fullmatch(self._next) else ""
        return Parameter(word, name, indexed, components)
