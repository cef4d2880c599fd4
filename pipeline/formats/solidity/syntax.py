"""The syntax tree of a source: its members, their names, and types as written."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import tree_sitter_solidity
from tree_sitter import Language, Node, Parser

_PIECE = 4096
ENCODING = ("utf-8", "surrogateescape")  # bytes that are not UTF-8 are kept
_CAPSULE_NAME = b"tree_sitter.Language"  # a global, because a capsule does not keep its name alive

_KEYWORDS = frozenset(["contract", "interface", "library"])
_CONTAINERS = frozenset(["source_file", "contract_body", "ERROR", *(f"{word}_declaration" for word in _KEYWORDS)])
_PARAMETERS = frozenset(["parameter", "event_parameter", "error_parameter"])
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_MEMBERS = frozenset(
    [
        "import_directive", *(f"{word}_declaration" for word in _KEYWORDS),
        "enum_declaration", "struct_declaration", "user_defined_type_definition", "constant_variable_declaration",
        "state_variable_declaration", "function_definition", "event_definition", "error_declaration",
    ]
)  # fmt: skip
"""The kinds of nodes that import, define or declare something."""


@cache
def _language() -> Language:
    """The grammar in a capsule. tree-sitter warns about a plain pointer."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(("PyCapsule_New", ctypes.pythonapi))
    return Language(capsule(tree_sitter_solidity.language(), _CAPSULE_NAME, None))


class WrittenType(NamedTuple):
    """A type as written. `Lib.S[N][]` has the base `Lib.S` and the lengths `N` and ``""``."""

    base: str
    lengths: tuple[str, ...] = ()


class Scope(NamedTuple):
    """The contract that a member belongs to; the file if the name is empty."""

    contract: str = ""
    is_library: bool = False


class Parameter(NamedTuple):
    written: WrittenType
    suffix: str = ""
    """` indexed`, ` storage` or empty."""


class Head(NamedTuple):
    """A declaration without its body."""

    name: str
    parameters: list[Parameter]
    words: set[str]
    """Its visibility, and the kinds of its other nodes."""


class SourceTree:
    """A parsed source."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._written: dict[bytes, WrittenType] = {}
        # The parser searches for the end of a comment from every `/*`. If the last comment has no end,
        # 1 MiB of `/* ` takes minutes, so an end is added.
        closed = code + b"*/" if code.rfind(b"/*") > code.rfind(b"*/") else code
        # The code is passed in pieces because the parser releases the GIL only in callbacks.
        tree = Parser(_language()).parse(lambda at, _: closed[at : at + _PIECE], progress_callback=lambda *_: False)
        self._root = tree.root_node

    def members(self) -> Iterator[tuple[Scope, Node]]:
        """The nodes that import, define or declare something, in order, each with its scope.

        Walks the tree at each call. A list would keep every node in memory.
        """
        waiting = [(Scope(), self._root)]
        while waiting:
            scope, node = waiting.pop()
            kind = node.type
            if kind in _CONTAINERS:
                waiting += reversed(list(self._inside(node, scope)))
            if kind in _MEMBERS:
                yield scope, node

    def _inside(self, node: Node, scope: Scope) -> Iterator[tuple[Scope, Node]]:
        """The children and their scopes.

        A truncated contract is an error node whose children are the parts of its head and its members.
        So a keyword followed by a name opens a scope anywhere.
        """
        keyword = ""
        for child in node.children:
            kind = child.type
            if kind in _KEYWORDS:
                keyword = kind
            elif keyword and kind == "identifier":
                scope, keyword = Scope(sys.intern(self.text(child)), keyword == "library"), ""
            yield scope, child

    def text(self, node: Node | None) -> str:
        return self._code[node.start_byte : node.end_byte].decode(*ENCODING) if node is not None else ""

    def squeezed(self, node: Node | None) -> str:
        """A node's text without comments and spaces."""
        return "".join(_COMMENT.sub(" ", self.text(node)).split())

    def name(self, node: Node) -> str:
        return self.text(node.child_by_field_name("name"))

    def head(self, node: Node) -> Head | None:
        """None if it does not parse."""
        name, parameters, words = "", [], set()
        has_error = node.has_error
        for child in node.children:
            kind = child.type
            if kind == "function_body":
                break
            if kind == "expression":  # a variable's value
                continue
            if has_error and child.has_error:
                return None
            if kind == "identifier":
                name = self.text(child)
            elif kind in _PARAMETERS:
                parameters.append(self._parameter(child))
            else:
                words.add(self.text(child) if kind == "visibility" else kind)
        return Head(name, parameters, words) if name else None

    def _parameter(self, node: Node) -> Parameter:
        written, suffix = WrittenType(""), ""
        for child in node.children:
            kind = child.type
            if kind == "type_name":
                written = self.written(child)
            elif kind in ("indexed", "storage"):
                suffix = f" {kind}"
        return Parameter(written, suffix)

    def written(self, node: Node) -> WrittenType:
        """A type. Cached by its text, because a source uses few different types."""
        key = self._code[node.start_byte : node.end_byte]
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = self._type(node)
        return written

    def _type(self, node: Node) -> WrittenType:
        lengths = []
        while (element := array_element(node)) is not None:
            lengths.append(self.squeezed(child_of_kind(node, "expression")))
            node = element
        return WrittenType(self._base(node), tuple(reversed(lengths)))

    def _base(self, node: Node) -> str:
        """A type that is not an array. A function type is just `function`."""
        if child_of_kind(node, "function") is not None:
            return "function"
        text = self.squeezed(node)
        return "address" if text == "addresspayable" else text

    def keys(self, node: Node) -> list[Parameter]:
        """The parameters of the getter of a variable of this type: mapping keys and array indices."""
        keys: list[Parameter] = []
        while True:
            key, inner = WrittenType("uint256"), array_element(node)
            if inner is None:
                mapped = node.child_by_field_name("key_type")
                inner = node.child_by_field_name("value_type")
                if mapped is None or inner is None:
                    return keys
                key = WrittenType(self._base(mapped))
            keys.append(Parameter(key))
            node = inner


def child_of_kind(node: Node, kind: str) -> Node | None:
    return next((child for child in node.children if child.type == kind), None)


def array_element(node: Node) -> Node | None:
    """The type of an array's elements; None if ``node`` is not an array."""
    return child_of_kind(node, "type_name") if child_of_kind(node, "[") is not None else None


# Bounded, because a constant of thousands of digits may be used thousands of times.
_DECIMAL = re.compile(r"([0-9][0-9_]{0,99})(?:[eE]([0-9]{1,2}))?")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F_]{1,64})")


def literal_number(written: str) -> str | None:
    """The decimal digits of a number literal; None for anything else."""
    if found := _DECIMAL.fullmatch(written):
        return found[1].replace("_", "") + "0" * int(found[2] or 0)
    if found := _HEXADECIMAL.fullmatch(written):
        return str(int(found[1].replace("_", "") or "0", 16))
    return None
