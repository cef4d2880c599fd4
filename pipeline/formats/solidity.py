"""Solidity sources: every declaration that has a selector or a topic, by tree-sitter-solidity.

Invariants
    A text is as good as its types: a name that the source does not explain stays as it is written,
    so that the grammar rejects it. Nothing is guessed.
    A hostile source costs time and memory in proportion to its size: nothing here recurses, a
    struct inside itself stays a name, and what structs expand to is bounded (``_Types.room``). The
    parser takes up to 430 bytes for a token, so there is a most of those (``MAX_TOKENS``).

Theory
    A source is parsed once and its members are gone over twice: first for definitions, because a
    name may be used before it is defined, then for declarations. A Definition is text and holds no
    node of the tree, so those of one source, its Unit, can serve others.

    The sources of one import are a Project: their definitions are gathered while the import goes over
    its inputs, and their declarations are read when there are no more. Until then their code waits in
    a temporary file, so memory holds definitions and nothing else.

    A name is looked up in the contract where it stands and in those that it inherits from, then in
    the file, then in what the file imports, each of them in its own file's terms. An import names a
    file by a path; one that is not relative may have been remapped, so that among the given files
    the one counts which shares most of the path's end (``_target``). In the ABI a struct is the tuple of its members, an enum `uint8`, a contract
    `address`, a user value type its base. The functions of a library are the exception: solc makes
    their selectors from the names of structs, enums and contracts, and keeps `storage`. Written
    so, the grammar tells them apart (``library_type``).

    Where a source does not parse, the tree has error nodes among what was made out. They are looked
    into, and a declaration with an error before its body is left out.

Source: the Solidity documentation, "Contract ABI Specification" (Mapping Solidity to ABI types),
"Libraries" (Function Signatures and Selectors in Libraries) and "Contracts" (Getter Functions).
"""

from __future__ import annotations

import ctypes
import os
import posixpath
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import TracebackType
from typing import Literal, NamedTuple, Self

import numpy as np
import tree_sitter_solidity
from tree_sitter import Language, Node, Parser

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import (
    Candidates,
    Entry,
    ReadTask,
    pack,
)
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import MAX_TEXT_BYTES

_ENDING = re.compile(r"\.sol(\.(gz|xz|zst|bz2))?\Z", re.IGNORECASE)


def looks_like(source: Source) -> bool:
    """By name alone: what a source begins with, licence and comments, may be anything."""
    return _ENDING.search(source.path) is not None


def read(source: Source) -> Iterator[ReadTask]:
    """The candidates of one source by itself."""
    with Project() as project:
        project.add(source)
        yield from project.read()


MAX_TOKENS = 1 << 20
"""Words and marks of a source, comments too; 5 MiB of real ones, where the largest contracts have one."""

# The kind of each byte: space, part of a word, mark.
_KINDS = np.full(256, 2, np.uint8)
_KINDS[np.frombuffer(b"\t\n\v\f\r ", np.uint8)] = 0
_KINDS[[byte for byte in range(256) if byte >= 0x80 or chr(byte).isalnum() or byte in b"_$"]] = 1


def has_too_many_tokens(code: bytes) -> bool:
    """Whether a source is too much for the parser."""
    if len(code) <= MAX_TOKENS:
        return False
    count = 0
    for at in range(0, len(code), MAX_TOKENS):
        kinds = _KINDS[np.frombuffer(code[at : at + MAX_TOKENS], np.uint8)]
        words = kinds == 1
        count += int(np.count_nonzero(kinds == 2) + np.count_nonzero(words[1:] & ~words[:-1]) + words[0])
    return count > MAX_TOKENS


class Written(NamedTuple):
    """A type as it is written: `Lib.S[N][]` is the base `Lib.S` and the lengths `N` and none."""

    base: str
    lengths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """What a name stands for: `S` in the scope `C` is a struct of the contract `C`."""

    scope: str
    """The contract that it stands in, nothing for the file. Its own names are looked up from there."""
    name: str
    kind: Literal["struct", "enum", "contract", "value type", "constant", "file"]
    text: str = ""
    """What it is in a signature: a type, or the number that a constant is. A struct has members."""
    members: tuple[Written, ...] = ()
    """The types of a struct's members."""
    bases: tuple[str, ...] = ()
    """The contracts that a contract inherits from, as written."""
    file: str = ""
    """The file that it stands in; of a file that was given a name, that file."""


@dataclass(frozen=True, slots=True)
class Import:
    """What a source imports from a file: names, all of it, or all of it under a name."""

    path: str
    """The file, as written."""
    names: tuple[tuple[str, str], ...] | None = None
    """Names here and there; None for all."""
    prefix: str = ""
    """The name that stands for the file."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What a source has for others and takes from them."""

    definitions: dict[tuple[str, str], Definition]
    """By scope and name."""
    imports: list[Import]


class Project:
    """The sources of one import: each is resolved through the others."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._waiting: list[tuple[int, str, int]] = []  # number, path, size
        self._codes = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the project

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._codes.close()

    def add(self, source: Source) -> None:
        """Take the code and the definitions of an open source."""
        code, path = source.read_all("Solidity source"), os.path.abspath(source.path)
        if has_too_many_tokens(code):
            raise BadInput(source.name, f"a Solidity source of over {MAX_TOKENS:,} words and marks")
        self._units[path] = _Tree(code).unit(path)
        self._codes.write(code)
        self._waiting.append((source.number, path, len(code)))

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all sources."""
        files = _linked(self._units)
        self._codes.seek(0)
        for number, path, size in self._waiting:
            yield partial(_read_code, self._codes.read(size), number, files, path)


def _read_code(code: bytes, number: int, files: Mapping[str, Unit], path: str) -> Iterator[Candidates]:
    return pack(declarations(code, files, path), number)


def _linked(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """The same with the paths of imports replaced by those of the files that they mean, where these are given."""
    by_name: dict[str, list[str]] = {}
    for path in units:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    linked = {}
    for path, unit in units.items():
        targets = [(imported, _target(imported.path, path, by_name)) for imported in unit.imports]
        imports = [replace(imported, path=target) for imported, target in targets if target is not None]
        linked[path] = Unit(unit.definitions, imports)
    return linked


def _target(written: str, importer: str, by_name: Mapping[str, list[str]]) -> str | None:
    """The given file that an import means; None where it is none or may be several.

    A relative path says it exactly. Any other may begin with what a tool put in the place of a
    folder (`@openzeppelin/contracts/` for `contracts/`), so the file counts that shares the most of
    its end, and among several the one that lies nearest to the importer.
    """
    alike = by_name.get(posixpath.basename(written), [])
    if written.startswith(("./", "../")):
        exact = posixpath.normpath(posixpath.join(posixpath.dirname(importer), written))
        return exact if exact in alike else None
    parts, near = posixpath.normpath(written).split("/")[::-1], importer.split("/")
    ranked = sorted(((_shared(parts, p.split("/")[::-1]), _shared(near, p.split("/")), p) for p in alike), reverse=True)
    return ranked[0][2] if len(ranked) == 1 or (ranked and ranked[0][:2] != ranked[1][:2]) else None


def _shared(a: list[str], b: list[str]) -> int:
    """How many parts two paths have in common at the beginning."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def qualified(scope: str, name: str) -> str:
    """A full name as solc writes it."""
    return f"{scope}.{name}" if scope else name


def declarations(code: bytes, files: Mapping[str, Unit] | None = None, path: str = "") -> Iterator[Entry]:
    """The functions, getters, events and errors of a source, in its order.

    ``files`` are the sources that it may import from, by path, itself under ``path``, their imports
    linked; without them it stands alone, and what it imports is not known.
    """
    tree = _Tree(code)
    types = _Types(files or _linked({path: tree.unit(path)}), path, room=(1 << 20) + 8 * len(code))
    for scope, node in tree.members():
        declare = _DECLARE.get(node.type)
        declared = declare(tree, node, scope) if declare else None
        if declared is not None:
            text = f"{declared.name}({types.listed(declared, scope.contract)}){declared.tail}"
            # One byte over the limit is enough for the grammar to call it too long.
            clipped = text.encode(*_ENCODING)[: MAX_TEXT_BYTES + 1]
            yield Entry(clipped, node.start_point.row + 1, declared.said)


# The tree: what is written, and where.

_PIECE = 4096
_ENCODING = ("utf-8", "surrogateescape")  # what is no UTF-8 comes out as it went in
_CAPSULE_NAME = b"tree_sitter.Language"  # here, because a capsule does not keep its name alive

_KEYWORDS = frozenset(["contract", "interface", "library"])
_CONTAINERS = frozenset(["source_file", "contract_body", "ERROR", *(f"{word}_declaration" for word in _KEYWORDS)])
_PARAMETERS = frozenset(["parameter", "event_parameter", "error_parameter"])
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


@cache
def _language() -> Language:
    """The grammar, in the capsule that tree-sitter asks for: the bare pointer draws a warning."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(("PyCapsule_New", ctypes.pythonapi))
    return Language(capsule(tree_sitter_solidity.language(), _CAPSULE_NAME, None))


class _Scope(NamedTuple):
    """The contract that something stands in; without a name it is the file."""

    contract: str = ""
    is_library: bool = False


class _Parameter(NamedTuple):
    written: Written
    behind: str = ""
    """` indexed`, ` storage` or nothing."""


class _Declared(NamedTuple):
    """A declaration, its types still as written."""

    said: int
    name: str
    parameters: list[_Parameter]
    tail: str = ""
    by_name: bool = False
    """Whether structs, enums and contracts go by their names, as in the functions of a library."""


class _Head(NamedTuple):
    """A declaration up to its body."""

    name: str
    parameters: list[_Parameter]
    words: set[str]
    """Its visibility, and the kinds of all other nodes."""


class _Tree:
    """A parsed source: what defines or declares something, in order, each with its scope."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._written: dict[bytes, Written] = {}
        # The end of a comment is looked for from wherever one may begin: where none comes any more,
        # 1 MiB of `/* ` takes minutes.
        closed = code + b"*/" if code.rfind(b"/*") > code.rfind(b"*/") else code
        # Handed over in pieces, for the parser lets other threads run only when it calls us.
        tree = Parser(_language()).parse(lambda at, _: closed[at : at + _PIECE], progress_callback=lambda *_: False)
        self._root = tree.root_node

    def members(self) -> Iterator[tuple[_Scope, Node]]:
        """Walked anew each time: a node keeps its children, and a list of all would keep the lot."""
        waiting = [(_Scope(), self._root)]
        while waiting:
            scope, node = waiting.pop()
            kind = node.type
            if kind in _CONTAINERS:
                waiting += reversed(list(self._inside(node, scope)))
            if kind in _DEFINE or kind in _DECLARE or kind == "import_directive":
                yield scope, node

    def _inside(self, node: Node, scope: _Scope) -> Iterator[tuple[_Scope, Node]]:
        """The children and their scopes.

        A contract that is cut short is an error node with its head and its members in one row, so
        the keyword and the name behind it open a scope wherever they stand.
        """
        keyword = ""
        for child in node.children:
            kind = child.type
            if kind in _KEYWORDS:
                keyword = kind
            elif keyword and kind == "identifier":
                scope, keyword = _Scope(sys.intern(self.text(child)), keyword == "library"), ""
            yield scope, child

    def unit(self, path: str) -> Unit:
        """What the source at ``path`` defines, of several of a name the first, and what it imports."""
        found: dict[tuple[str, str], Definition] = {}
        imports = []
        for scope, node in self.members():
            if node.type == "import_directive":
                imports += self._import(node)
                continue
            define = _DEFINE.get(node.type)
            definition = define(self, node, scope.contract) if define else None
            if definition is not None:
                found.setdefault((definition.scope, definition.name), replace(definition, file=path))
        return Unit(found, imports)

    def _import(self, node: Node) -> list[Import]:
        """One, or nothing where it does not parse."""
        source = node.child_by_field_name("source")
        if source is None or node.has_error:
            return []
        path = self.text(source)[1:-1]
        names: list[tuple[str, str]] = []
        prefix, is_alias = "", False
        for child in node.children:
            name = self.text(child)
            if child.type == "as":
                is_alias = True
            elif child.type == "identifier":
                if not is_alias:
                    names.append((name, name))
                elif names:
                    names[-1] = (name, names[-1][1])
                else:
                    prefix = name
                is_alias = False
        return [Import(path, tuple(names) if names else None, prefix)]

    def text(self, node: Node | None) -> str:
        return self._code[node.start_byte : node.end_byte].decode(*_ENCODING) if node is not None else ""

    def squeezed(self, node: Node | None) -> str:
        """The text without comments and spaces."""
        return "".join(_COMMENT.sub(" ", self.text(node)).split())

    def name(self, node: Node) -> str:
        return self.text(node.child_by_field_name("name"))

    def head(self, node: Node) -> _Head | None:
        """None where it does not parse."""
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
        return _Head(name, parameters, words) if name else None

    def _parameter(self, node: Node) -> _Parameter:
        written, behind = Written(""), ""
        for child in node.children:
            kind = child.type
            if kind == "type_name":
                written = self.written(child)
            elif kind in ("indexed", "storage"):
                behind = f" {kind}"
        return _Parameter(written, behind)

    def written(self, node: Node) -> Written:
        """A type. The same few come again and again, so they are kept by their text."""
        key = self._code[node.start_byte : node.end_byte]
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = self._type(node)
        return written

    def _type(self, node: Node) -> Written:
        lengths = []
        while (element := _array_element(node)) is not None:
            lengths.append(self.squeezed(_child(node, "expression")))
            node = element
        return Written(self._base(node), tuple(reversed(lengths)))

    def _base(self, node: Node) -> str:
        """A type that is no array. Of a function type the word is all that counts."""
        if _child(node, "function") is not None:
            return "function"
        text = self.squeezed(node)
        return "address" if text == "addresspayable" else text

    def keys(self, node: Node) -> list[_Parameter]:
        """What the getter of a variable of this type asks for: keys of mappings, indices of arrays."""
        keys: list[_Parameter] = []
        while True:
            key, inner = Written("uint256"), _array_element(node)
            if inner is None:
                mapped = node.child_by_field_name("key_type")
                inner = node.child_by_field_name("value_type")
                if mapped is None or inner is None:
                    return keys
                key = Written(self._base(mapped))
            keys.append(_Parameter(key))
            node = inner


def _child(node: Node, kind: str) -> Node | None:
    return next((child for child in node.children if child.type == kind), None)


def _array_element(node: Node) -> Node | None:
    """The type of an array's elements; None where ``node`` is no array."""
    return _child(node, "type_name") if _child(node, "[") is not None else None


# Definitions: from the kind of a node to what it defines.


def _contract(tree: _Tree, node: Node, scope: str) -> Definition:
    specifiers = [child for child in node.children if child.type == "inheritance_specifier"]
    bases = tuple(tree.squeezed(child.child_by_field_name("ancestor")) for child in specifiers)
    return Definition("", tree.name(node), "contract", "address", bases=bases)


def _enum(tree: _Tree, node: Node, scope: str) -> Definition:
    return Definition(scope, tree.name(node), "enum", "uint8")


def _value_type(tree: _Tree, node: Node, scope: str) -> Definition:
    base = tree.squeezed(_child(node, "primitive_type"))
    return Definition(scope, tree.name(node), "value type", base.removesuffix("payable"))


def _struct(tree: _Tree, node: Node, scope: str) -> Definition | None:
    """None where it does not parse, for a member may be missing."""
    body = node.child_by_field_name("body")
    if body is None or node.has_error:
        return None
    members = [child for child in body.children if child.type == "struct_member"]
    types = tuple(tree.written(kind) for member in members if (kind := member.child_by_field_name("type")))
    return Definition(scope, tree.name(node), "struct", members=types)


def _constant(tree: _Tree, node: Node, scope: str) -> Definition | None:
    """A constant whose value is a number as it stands."""
    number = _number(tree.squeezed(node.child_by_field_name("value")))
    if number is None or _child(node, "constant") is None:
        return None
    return Definition(scope, tree.name(node), "constant", number)


# No longer than a length can be: a constant of thousands of digits may be named thousands of times.
_DECIMAL = re.compile(r"([0-9][0-9_]{0,99})(?:[eE]([0-9]{1,2}))?")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F_]{1,64})")


def _number(written: str) -> str | None:
    """A literal as decimal digits; None where it is anything else."""
    if found := _DECIMAL.fullmatch(written):
        return found[1].replace("_", "") + "0" * int(found[2] or 0)
    if found := _HEXADECIMAL.fullmatch(written):
        return str(int(found[1].replace("_", "") or "0", 16))
    return None


_DEFINE: dict[str, Callable[[_Tree, Node, str], Definition | None]] = {
    "contract_declaration": _contract,
    "interface_declaration": _contract,
    "library_declaration": _contract,
    "enum_declaration": _enum,
    "user_defined_type_definition": _value_type,
    "struct_declaration": _struct,
    "constant_variable_declaration": _constant,
    "state_variable_declaration": _constant,
}


# Declarations: from the kind of a node to what it declares.


def _function(tree: _Tree, node: Node, scope: _Scope) -> _Declared | None:
    """A function with a selector.

    Without a visibility it is public, as before 0.5, but outside of contracts it is free and has
    none. One there that is public belongs to a contract that did not parse, maybe a library. One
    with the contract's own name is a constructor, as before 0.5.
    """
    head = tree.head(node)
    if head is None or head.name == scope.contract or not head.words.isdisjoint(["internal", "private"]):
        return None
    if not scope.contract and head.words.isdisjoint(["public", "external"]):
        return None
    return _Declared(FUNCTIONS, head.name, head.parameters, by_name=scope.is_library or not scope.contract)


def _getter(tree: _Tree, node: Node, scope: _Scope) -> _Declared | None:
    head, kind = tree.head(node), _child(node, "type_name")
    if head is None or kind is None:
        return None
    # Behind `function() external` the tree has the variable's `public` as the type's.
    swallowed = [tree.text(child) for child in kind.children if child.type == "visibility"]
    if "public" not in head.words.union(swallowed):
        return None
    return _Declared(FUNCTIONS, head.name, tree.keys(kind))


def _event(tree: _Tree, node: Node, scope: _Scope) -> _Declared | None:
    head = tree.head(node)
    if head is None:
        return None
    return _Declared(EVENTS, head.name, head.parameters, " anonymous" if "anonymous" in head.words else "")


def _error(tree: _Tree, node: Node, scope: _Scope) -> _Declared | None:
    head = tree.head(node)
    return _Declared(FUNCTIONS, head.name, head.parameters) if head else None


_DECLARE: dict[str, Callable[[_Tree, Node, _Scope], _Declared | None]] = {
    "function_definition": _function,
    "state_variable_declaration": _getter,
    "event_definition": _event,
    "error_declaration": _error,
}


# Types: what is written, as the ABI has it.

_STEP = 16
"""The room that a struct member takes, or a contract looked in."""
_LOOK = 4
"""The room that looking into a file takes."""
_MOST_BASES = 256
"""How many contracts a name is looked up in. Real ones inherit from some dozens."""
_KEYWORD = re.compile(r"u?int[0-9]*|bytes[0-9]*|address|bool|string|function")
"""Types that no source can give another meaning."""


def _plain(definition: Definition | None, written: str) -> str:
    """A type that needs no expanding, as it was written where nothing is known of it."""
    if definition is None or definition.kind in ("struct", "constant", "file"):
        return written
    return definition.text


class _Types:
    """The types of a source's declarations. Scopes are names of contracts, nothing for the file.

    ``room`` bounds the work, in characters: those of all types together, and for each struct member
    and each contract or file that a name is looked up in as many as take about as long. When it is
    used up, types stay as written. It is there because a struct of two structs of two structs doubles
    with each, and a function of 20 bytes can name it; OpenZeppelin's sources use 0.2 of their size at
    most.
    """

    def __init__(self, files: Mapping[str, Unit], path: str, room: int) -> None:
        self._files = files
        self._path = path
        self._room = room
        self._found: dict[tuple[str, str, str], Definition | None] = {}
        self._global: dict[tuple[str, str], Definition | None] = {}
        self._lineages: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._tuples: dict[tuple[str, str, str], str] = {}

    def listed(self, declared: _Declared, scope: str) -> str:
        """The parameters of a declaration in that scope."""
        return ",".join([self._text(p.written, scope, declared.by_name) + p.behind for p in declared.parameters])

    def _text(self, written: Written, scope: str, by_name: bool) -> str:
        if self._room < 0:
            return written.base + "".join(f"[{length}]" for length in written.lengths)
        definition = self._find(written.base, self._path, scope)
        if by_name and definition is not None and definition.kind in ("struct", "enum", "contract"):
            text = qualified(definition.scope, definition.name)
        elif definition is not None and definition.kind == "struct":
            key = _key(definition)
            if key not in self._tuples:
                self._tuples[key] = self._tuple(definition)
            text = self._tuples[key]
        else:
            text = _plain(definition, written.base)
        text += self._lengths(written, self._path, scope)
        self._room -= len(text)
        return text

    def _tuple(self, struct: Definition) -> str:
        """A struct in parentheses, and so the structs in it, up to the length that a text may have.

        A struct inside itself stays a name.
        """
        parts, size = ["("], 0
        opened = [(struct, iter(struct.members), ")")]
        inside = {_key(struct)}
        while opened and size <= MAX_TEXT_BYTES:
            outer, members, closing = opened[-1]
            member = next(members, None)
            if member is None:
                opened.pop()
                inside.remove(_key(outer))
                parts.append(closing)
                continue
            if parts[-1] != "(":
                parts.append(",")
            lengths = self._lengths(member, outer.file, outer.scope)
            inner = self._find(member.base, outer.file, outer.scope)
            if inner is not None and inner.kind == "struct" and _key(inner) not in inside:
                opened.append((inner, iter(inner.members), ")" + lengths))
                inside.add(_key(inner))
                parts.append("(")
            else:
                parts.append(_plain(inner, member.base) + lengths)
            size += len(parts[-1])
        self._room -= _STEP * len(parts)
        return "".join(parts)

    def _lengths(self, written: Written, file: str, scope: str) -> str:
        return "".join([f"[{self._length(length, file, scope)}]" for length in written.lengths])

    def _length(self, written: str, file: str, scope: str) -> str:
        """The length of an array as a number, where it is one or a constant's name."""
        if not written:
            return ""
        if (number := _number(written)) is not None:
            return number
        definition = self._find(written, file, scope)
        return definition.text if definition is not None and definition.kind == "constant" else written

    def _find(self, path: str, file: str, scope: str) -> Definition | None:
        """What a path such as `Lib.S` names in that scope of that file."""
        key = path, file, scope
        if key not in self._found:
            self._found[key] = None if _KEYWORD.fullmatch(path) else self._resolved(path, file, scope)
        return self._found[key]

    def _resolved(self, path: str, file: str, scope: str) -> Definition | None:
        first, *rest = path.split(".")
        found = self._member(file, scope, first) or self._in_file(file, first)
        for name in rest:
            if found is None or found.kind not in ("contract", "file"):
                return None
            found = (
                self._in_file(found.file, name) if found.kind == "file" else self._member(found.file, found.name, name)
            )
        return found

    def _member(self, file: str, contract: str, name: str) -> Definition | None:
        """What a contract, or one that it inherits from, defines by that name."""
        lineage = self._lineage(file, contract)
        self._room -= _STEP * len(lineage)
        found = (self._get(file, contract, name) for file, contract in lineage)
        return next(filter(None, found), None)

    def _lineage(self, file: str, contract: str) -> list[tuple[str, str]]:
        """The contract and all that it inherits from, as far as they are known, with their files."""
        key = file, contract
        lineage = self._lineages.get(key)
        if lineage is None:
            lineage = self._lineages[key] = [key] if contract else []
            seen = {key}
            for where, name in lineage:  # which grows meanwhile
                definition = self._get(where, "", name)
                for base in map(partial(self._base, where), definition.bases if definition else ()):
                    if base is not None and base not in seen and len(lineage) < _MOST_BASES:
                        seen.add(base)
                        lineage.append(base)
        return lineage

    def _base(self, file: str, path: str) -> tuple[str, str] | None:
        """The contract that is named as a base, which can stand in a file that has a name, but in no contract."""
        found: Definition | None = None
        for name in path.split("."):
            found = self._in_file(file, name)
            if found is None:
                return None
            file = found.file
        return (found.file, found.name) if found is not None and found.kind == "contract" else None

    def _in_file(self, file: str, name: str) -> Definition | None:
        """What a name means outside of contracts: in the file, or in what that imports."""
        key = file, name
        if key not in self._global:
            self._global[key] = self._exported(file, name)
        return self._global[key]

    def _exported(self, file: str, name: str) -> Definition | None:
        places, seen = [(file, name)], {(file, name)}
        for place in places:  # which grows meanwhile
            self._room -= _LOOK
            if self._room < 0:
                return None
            file, name = place
            if (found := self._get(file, "", name)) is not None:
                return found
            for imported in self._files[file].imports:
                if imported.prefix:
                    if imported.prefix == name:
                        return Definition("", name, "file", file=imported.path)
                    continue
                named = [(imported.path, there) for here, there in imported.names or [(name, name)] if here == name]
                places += [place for place in named if place not in seen]
                seen.update(named)
        return None

    def _get(self, file: str, scope: str, name: str) -> Definition | None:
        return self._files[file].definitions.get((scope, name))


def _key(definition: Definition) -> tuple[str, str, str]:
    return definition.file, definition.scope, definition.name
