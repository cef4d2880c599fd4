"""The statements of a source: what they import, define and declare, their names, and types as written.

Each statement of the outline is parsed alone, so one that the parser cannot place loses nothing but itself.

Invariant: a statement is a member, declares nothing, or is a reject.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import tree_sitter_solidity
from tree_sitter import Language, Node, Parser

from sigdir.pipeline.formats.solidity.outline import Outline, Statement, outline_of
from sigdir.signatures.grammar import MAX_TEXT_BYTES, SYNTAX, UNBALANCED

_PIECE = 4096
ENCODING = ("utf-8", "surrogateescape")  # bytes that are not UTF-8 are kept
_CAPSULE_NAME = b"tree_sitter.Language"  # a global, because a capsule does not keep its name alive

_KEYWORDS = frozenset(["contract", "interface", "library"])
_CONTAINERS = frozenset(["source_file", "contract_body", "ERROR", *(f"{word}_declaration" for word in _KEYWORDS)])
_PARAMETERS = frozenset(["parameter", "event_parameter", "error_parameter"])
_MUTABILITIES = frozenset(["view", "pure", "payable", "constant"])
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_MEMBERS = frozenset(
    [
        "import_directive", *(f"{word}_declaration" for word in _KEYWORDS),
        "enum_declaration", "struct_declaration", "user_defined_type_definition", "constant_variable_declaration",
        "state_variable_declaration", "function_definition", "event_definition", "error_declaration",
    ]
)  # fmt: skip
"""The kinds of nodes that import, define or declare something."""
_HEADLESS = frozenset(["contract_body", "function_body", "expression"])
"""The kinds of nodes whose errors leave a member's head intact."""
_DECLARES_NOTHING = re.compile(rb"(?:pragma|using|modifier|constructor|fallback|receive)\b|function\s*\(")
"""A function without a name is the fallback of old sources, or the type of a variable."""
_CONTRACT_HEAD = re.compile(rb"(?:abstract\s+)?(contract|interface|library)\s+([\w$]+)")
_CONTRACT = b"contract C{"
_STEPS, _BYTES_A_STEP = 1000, 32
"""The parser's work on a source is bounded by so many steps, and one for so many bytes. A step is 100 operations of the
parser, 20 us, or a piece that it reads. The parser's recovery from errors can take steps in proportion to the square of the
bytes.
"""
_DEEPEST = 256
"""Parentheses and brackets inside each other. After an error a step takes time in proportion to how many are open."""
_BRACKET = re.compile(rb"[()\[\]]")
_NESTING = {b"(": 1, b"[": 1, b")": -1, b"]": -1}


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
    name: str = ""


class Head(NamedTuple):
    """A declaration without its body."""

    name: str
    parameters: list[Node]
    words: set[str]
    """Its visibility, and the kinds of its other nodes."""
    mutability: str = ""
    """As written; `constant` is the old word for `view`."""
    returns: tuple[Node, ...] = ()


class Member(NamedTuple):
    """A statement that imports, defines or declares something."""

    tree: StatementTree
    scope: Scope
    node: Node
    line: int
    """From 1."""


class Unplaced(NamedTuple):
    """A statement that the parser cannot place."""

    text: str
    line: int
    reason: int
    """A reject reason: SYNTAX, or UNBALANCED for a body that never closes."""


class _Work:
    """Parses statements, and counts the steps of the parser.

    A tree keeps the callbacks of its parser. If they knew the tree, neither would ever be freed.
    """

    def __init__(self, size: int) -> None:
        self._parser = Parser(_language())
        self._left = _STEPS + size // _BYTES_A_STEP

    def parsed(self, code: bytes) -> Node | None:
        """The root of the tree; None if the code is too deep or the steps are spent."""
        if self._left <= 0 or _depth(code) > _DEEPEST:
            return None

        def piece(at: int, _point: Any) -> bytes:
            self._left -= at >= _PIECE
            return code[at : at + _PIECE]

        with suppress(ValueError):
            return self._parser.parse(piece, progress_callback=self._is_last_step).root_node
        return None

    def _is_last_step(self, _at: int, _has_error: bool) -> bool:
        self._left -= 1
        return self._left <= 0


def _depth(code: bytes) -> int:
    """How many parentheses and brackets are open at most."""
    return max(accumulate((_NESTING[mark] for mark in _BRACKET.findall(code)), initial=0))


def members(code: bytes) -> Iterator[Member | Unplaced]:
    """What the statements of a source import, define or declare, and those that the parser cannot place, in order."""
    outline = outline_of(code)
    work, types = _Work(len(code)), dict[bytes, WrittenType]()
    scopes = [_scope_of(outline.masked, statement) for statement in outline.statements] + [Scope()]
    line, at = 1, 0
    for statement in outline.statements:
        line, at = line + code.count(b"\n", at, statement.start), statement.start
        if not statement.is_closed and statement.is_sure:
            yield Unplaced(_statement_text(outline, statement), line, UNBALANCED)
        found = list(_parsed(code, outline.masked, statement, work, types))
        is_member = any(node.start_byte == start for _, node, start in found)
        is_sound = is_member or _DECLARES_NOTHING.match(outline.masked, at)
        if statement.is_closed and statement.is_sure and not is_sound:
            yield Unplaced(_statement_text(outline, statement), line, SYNTAX)
        for tree, node, _ in found:
            yield Member(tree, scopes[statement.parent], node, line + node.start_point.row)


def _parsed(
    code: bytes, masked: bytes, statement: Statement, work: _Work, types: dict[bytes, WrittenType]
) -> Iterator[tuple[StatementTree, Node, int]]:
    """The members in a statement that is parsed without its body and its surroundings, and where it begins in the tree."""
    start, end = statement.start, statement.head_end
    before, after = (b"", b"") if statement.parent < 0 else (_CONTRACT, b"}")
    if statement.end > end:
        after = b"{}" + after
    elif masked.startswith(b"{", end - 1):
        after = b"}" + after
    root = work.parsed(before + masked[start:end] + after)
    tree = StatementTree(before + code[start:end] + after, types)
    waiting = [root] if root is not None else []
    while waiting:
        node = waiting.pop()
        if node.type in _MEMBERS and node.start_byte >= len(before) and not _is_broken(node):
            yield tree, node, len(before)
        if node.type in _CONTAINERS:
            waiting += reversed(node.children)


def _scope_of(masked: bytes, statement: Statement) -> Scope:
    """The scope that a statement opens."""
    found = _CONTRACT_HEAD.match(masked, statement.start, statement.end)
    return Scope(sys.intern(found[2].decode(*ENCODING)), found[1] == b"library") if found else Scope()


def _statement_text(outline: Outline, statement: Statement) -> str:
    """A statement without its body, on one line, cut where it is longer than a text may be."""
    end = min(statement.head_end, statement.start + MAX_TEXT_BYTES)
    return " ".join(outline.masked[statement.start : end].decode(*ENCODING).split())


class StatementTree:
    """The texts of a parsed statement. ``types`` has the types of the source that were read, by their texts."""

    def __init__(self, code: bytes, types: dict[bytes, WrittenType]) -> None:
        self._code, self._types = code, types

    def text(self, node: Node | None) -> str:
        return self._code[node.start_byte : node.end_byte].decode(*ENCODING) if node is not None else ""

    def squeezed(self, node: Node | None) -> str:
        """A node's text without comments and spaces."""
        return "".join(_COMMENT.sub(" ", self.text(node)).split())

    def mentions(self, node: Node, word: bytes) -> bool:
        """Whether a word stands in a node's text."""
        return self._code.find(word, node.start_byte, node.end_byte) >= 0

    def name(self, node: Node) -> str:
        return self.text(node.child_by_field_name("name"))

    def head(self, node: Node) -> Head | None:
        """None if it does not parse."""
        name, parameters, words, mutability = "", [], set(), ""
        returns: tuple[Node, ...] = ()
        for child in node.children:
            kind = child.type
            if kind == "function_body":
                break
            if kind == "expression":  # a variable's value
                continue
            if kind == "identifier":
                name = self.text(child)
            elif kind in _PARAMETERS:
                parameters.append(child)
            elif kind == "return_type_definition":
                returns = tuple(inner for inner in child.children if inner.type in _PARAMETERS)
            else:
                words.add(self.text(child) if kind == "visibility" else kind)
                if kind in ("state_mutability", "modifier_invocation") and self.text(child) in _MUTABILITIES:
                    mutability = self.text(child)
        return Head(name, parameters, words, mutability, returns) if name else None

    def parameters(self, nodes: Iterable[Node]) -> list[Parameter]:
        return [self._parameter(node) for node in nodes]

    def _parameter(self, node: Node) -> Parameter:
        written, suffix, name = WrittenType(""), "", ""
        for child in node.children:
            kind = child.type
            if kind == "type_name":
                written = self.written(child)
            elif kind in ("indexed", "storage"):
                suffix = f" {kind}"
            elif kind == "identifier":
                name = self.text(child)
        return Parameter(written, suffix, name)

    def written(self, node: Node) -> WrittenType:
        """A type. A source uses few different ones."""
        key = self._code[node.start_byte : node.end_byte]
        if key not in self._types:
            self._types[key] = self._type(node)
        return self._types[key]

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

    def getter(self, node: Node) -> tuple[list[Parameter], Parameter]:
        """The getter of a variable of this type: its parameters, mapping keys and array indices, and its value."""
        keys: list[Parameter] = []
        name = ""
        while True:
            key, inner = Parameter(WrittenType("uint256")), array_element(node)
            if inner is None:
                mapped = node.child_by_field_name("key_type")
                inner = node.child_by_field_name("value_type")
                if mapped is None or inner is None:
                    return keys, Parameter(self.written(node), "", name)
                key = Parameter(
                    WrittenType(self._base(mapped)), "", self.text(node.child_by_field_name("key_identifier"))
                )
                name = self.text(node.child_by_field_name("value_identifier"))
            keys.append(key)
            node = inner


def _is_broken(node: Node) -> bool:
    """Whether the head of a member has an error."""
    return node.has_error and any(child.has_error for child in node.children if child.type not in _HEADLESS)


def child_of_kind(node: Node, kind: str) -> Node | None:
    return next((child for child in node.children if child.type == kind), None)


def array_element(node: Node) -> Node | None:
    """The type of an array's elements; None if ``node`` is not an array."""
    return child_of_kind(node, "type_name") if child_of_kind(node, "[") is not None else None
