"""The syntax tree of a source: its members, their names, and types as written.

Invariant: each statement of the outline is a member, declares nothing, or is a reject. A statement that the parser
cannot place loses nothing but itself.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import tree_sitter_solidity
from tree_sitter import Language, Node, Parser

from sigdir.pipeline.formats.solidity.outline import Statement, outline_of
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
_CONTAINER_HEAD = re.compile(rb"(?:abstract\s+)?(contract|interface|library)\s+([\w$]+)")
_CONTRACT = b"contract C{"
_STEPS, _BYTES_A_STEP = 1000, 32
"""The parser's work on a source is bounded by so many steps, and one for so many bytes that are no blanks. A step is 100
operations of the parser, 20 us, or a piece that it reads, 70 us where it reads one again and again. Real sources have over
100 bytes a step, but the parser's recovery from errors can take steps in proportion to the square of the bytes.
"""
_DEEPEST = 256
"""Parentheses and brackets inside each other. After an error a step takes time in proportion to how many are open."""
_STEPS_ALONE = 2000
"""For statements that are parsed alone. Each takes a step and those of the parser, and 1 MiB can have 500,000."""


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
    """A node that imports, defines or declares something."""

    tree: SourceTree
    """The tree that the node belongs to."""
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
    """What a parser reads, and how many steps it has taken.

    A tree keeps these callbacks. If they knew the ``SourceTree``, neither would ever be freed: 15 MiB for 64 kB.
    """

    def __init__(self, masked: bytes) -> None:
        self._masked = masked
        self.steps, self._most = 0, _STEPS + len(masked.translate(None, b" \t\r\n")) // _BYTES_A_STEP

    def piece(self, at: int, _point: Any) -> bytes:
        """The code is passed in pieces because the parser releases the GIL only in callbacks."""
        self.steps += 1
        return self._masked[at : at + _PIECE]

    def is_last_step(self, _at: int, _has_error: bool) -> bool:
        self.steps += 1
        return self.steps > self._most


_NESTING = np.zeros(256, np.int8)
_NESTING[list(b"([")] = 1
_NESTING[list(b")]")] = -1


def _depth(code: bytes) -> int:
    """How many parentheses and brackets are open at most."""
    return int(_NESTING[np.frombuffer(code, np.uint8)].cumsum(dtype=np.int32).max(initial=0))


class SourceTree:
    """A parsed source. One that is too deep, or that took too many steps, is parsed a statement at a time."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._written: dict[bytes, WrittenType] = {}
        self._outline = outline_of(code)
        masked = self._outline.masked
        self._work = _Work(masked)
        parser = Parser(_language())
        self._root: Node | None = None
        if _depth(masked) > _DEEPEST:
            return
        with suppress(ValueError):  # the steps are spent: each statement is parsed alone
            self._root = parser.parse(self._work.piece, progress_callback=self._work.is_last_step).root_node

    def members(self) -> Iterator[Member | Unplaced]:
        """The nodes that import, define or declare something, and the statements without a node, in order."""
        return self._walk() if self._root is not None and not self._root.has_error else iter(self._placed())

    def _walk(self) -> Iterator[Member]:
        """The nodes of the tree, those of a broken source too."""
        waiting = [(Scope(), self._root)] if self._root is not None else []
        while waiting:
            scope, node = waiting.pop()
            kind = node.type
            if kind in _CONTAINERS:
                waiting += reversed(list(self._inside(node, scope)))
            if kind in _MEMBERS:
                yield Member(self, scope, node, node.start_point.row + 1)

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

    def _placed(self) -> list[Member | Unplaced]:
        """The members of a source with syntax errors.

        An error node may hold statements that are correct. So each statement without a sound node is parsed alone.
        """
        statements = self._outline.statements()
        by_start = {statement.start: statement for statement in statements}
        found: list[tuple[int, Member | Unplaced]] = []
        placed = set()
        for member in self._walk():
            node, statement = member.node, by_start.get(member.node.start_byte)
            is_contract = child_of_kind(node, "contract_body") is not None
            if _is_broken(node) or (statement and node.end_byte != statement.end and not is_contract):
                continue
            if statement is not None:  # its scope in the tree may be wrong, where an error ends a contract early
                member = member._replace(scope=self._scope(statements, statement.parent))
            placed.add(node.start_byte)
            found.append((node.start_byte, member))
        left = _STEPS_ALONE
        line, at = 1, 0
        for statement in statements:
            line += self._code.count(b"\n", at, statement.start)
            at = statement.start
            if not statement.is_closed:
                found.append((at, Unplaced(self._statement_text(statement), line, UNBALANCED)))
            if at in placed or _DECLARES_NOTHING.match(self._outline.masked, at, statement.end):
                continue
            members: list[Member] = []
            if left > 0:
                members, steps = self._parsed_alone(statement, statements, line)
                left -= 1 + steps
            found += [(at, member) for member in members]
            if not members and statement.is_closed:
                found.append((at, Unplaced(self._statement_text(statement), line, SYNTAX)))
        found.sort(key=itemgetter(0))
        return [member for _, member in found]

    def _parsed_alone(self, statement: Statement, statements: list[Statement], line: int) -> tuple[list[Member], int]:
        """The members of a statement that is parsed without its surroundings, none if it does not parse; and the steps."""
        code = self._code[statement.start : statement.end]
        if statement.end > statement.head_end:
            code = self._code[statement.start : statement.head_end] + b"{}"
        elif code.endswith(b"{"):
            code += b"}"
        start = 0
        if statement.parent >= 0:
            code, start = _CONTRACT + code + b"}", len(_CONTRACT)
        tree, scope = SourceTree(code), self._scope(statements, statement.parent)
        members = (member for member in tree._walk() if member.node.start_byte == start)
        found = [Member(tree, scope, m.node, line + m.line - 1) for m in members if not _is_broken(m.node)]
        return found, tree._work.steps

    def _scope(self, statements: list[Statement], number: int) -> Scope:
        """The scope that a statement opens; the file's for -1."""
        if number < 0:
            return Scope()
        found = _CONTAINER_HEAD.match(self._outline.masked, statements[number].start, statements[number].end)
        return Scope(found[2].decode(*ENCODING), found[1] == b"library") if found else Scope()

    def _statement_text(self, statement: Statement) -> str:
        """A statement without its body, on one line, cut where it is longer than a text may be."""
        end = min(statement.head_end, statement.start + MAX_TEXT_BYTES)
        return " ".join(self._outline.masked[statement.start : end].decode(*ENCODING).split())

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
