"""What one Vyper source declares: functions, getters, events, types, constants, imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sigdir.signatures.evidence import Kind
from sigdir.warehouse.table.parallel import PARSER_LOCK

_VERSION = re.compile(r"(?m)^#[ \t]*(?:@version|pragma[ \t]+version)[^0-9\n]*0\.([0-9]+)")
_OLDEST_SYNTAX = re.compile(r"(?m)^@(?:public|private)\b|^\w+:[ \t]*(?:event[ \t]*\(|public[ \t]*\([ \t]*map[ \t]*\()")
"""What only Vyper 0.1 has."""
_NEWEST = 4
_BLOCKS = {
    "struct": "struct", "event": "event", "interface": "interface", "contract": "interface", "class": "interface",
    "flag": "flag", "enum": "flag",
}  # fmt: skip
_VISIBLE = frozenset(["external", "public"])
_HIDDEN = frozenset(["internal", "private", "deploy"])
_MUTABILITIES = ("view", "pure", "payable", "constant")
_WITHOUT_SIGNATURE = frozenset(["__init__", "__default__"])
_IGNORED = frozenset(["implements", "uses", "initializes", "units", "pragma"])
_SHOWN_CHARACTERS = 200


class Declaration(NamedTuple):
    """A function, a getter or an event with its types as written."""

    line: int
    kind: Kind
    name: str
    types: list[ast.expr]
    names: list[str]
    """Of the parameters."""
    defaults: int = 0
    """The last parameters that may be left out."""
    getter_of: ast.expr | None = None
    """The type of a public variable, whose keys are the parameters."""
    mutability: str = ""
    returns: ast.expr | None = None
    interface: str = ""
    """The interface that it stands in; empty for the contract itself."""


class NotUnderstood(NamedTuple):
    """A statement that the reader cannot place."""

    line: int
    text: str


class Export(NamedTuple):
    """The functions of a module that the contract has too; they are declarations of the module's own source."""

    line: int
    names: list[str]


@dataclass
class SourceUnit:
    """One source. Names are those of the file's own scope."""

    minor_version: int = _NEWEST
    """The 3 of Vyper 0.3.10, by its pragma."""
    declared: list[Declaration | NotUnderstood | Export] = field(default_factory=list)
    structs: dict[str, list[tuple[ast.expr, str]]] = field(default_factory=dict)
    """The types and names of members."""
    constants: dict[str, ast.expr] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)
    """Interfaces and flags with their types in the ABI."""
    imports: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By name: the number of leading dots and the dotted path."""


def source_unit(code: str) -> SourceUnit:
    """Read a source once. Never raises: what it does not understand is in ``declared``."""
    version = _VERSION.search(code)
    unpinned = 1 if _OLDEST_SYNTAX.search(code) else _NEWEST
    unit = SourceUnit(min(int(version[1][:3]), 99) if version else unpinned)
    reader = _Reader(unit)
    for statement in statements(code):
        reader.take(statement)
    reader.finish()
    return unit


class _Reader:
    """Collects the statements of a block until the next statement without indentation."""

    def __init__(self, unit: SourceUnit) -> None:
        self._unit = unit
        self._decorators: set[str] = set()
        self._block: list[Statement] = []

    def take(self, statement: Statement) -> None:
        if statement.indent:
            if self._block and self._block[0].tokens[:1] != ["def"]:
                self._block.append(statement)
            return
        self.finish()
        tokens = statement.tokens
        if not tokens:
            self._refuse(statement)
        elif tokens[0] == "@":
            self._decorators.update(tokens[1:2])
        elif tokens[0] == "def":
            self._define(statement, self._decorators)
            self._block = [statement]
        elif tokens[0] in _BLOCKS and len(tokens) > 2 and tokens[2] in (":", "("):
            self._block = [statement]
        else:
            self._simple(statement)
        if tokens[:1] != ["@"]:
            self._decorators = set()

    def finish(self) -> None:
        """Read the block that has ended."""
        if self._block and self._block[0].tokens[0] != "def":
            head, *body = self._block
            colon = head.tokens.index(":") if ":" in head.tokens else len(head.tokens)
            rest = head.tokens[colon + 1 :]  # `event E: pass`
            if rest:
                body.insert(0, Statement(head.line, 1, rest))
            self._read_block(head, [line for line in body if line.tokens != ["pass"]])
        self._block = []

    def _refuse(self, statement: Statement) -> None:
        text = statement.text[:_SHOWN_CHARACTERS] or "(a statement that is too long or nested too deeply)"
        self._unit.declared.append(NotUnderstood(statement.line, text))

    def _read_block(self, head: Statement, body: list[Statement]) -> None:
        unit, (word, name) = self._unit, head.tokens[:2]
        kind = _BLOCKS[word]
        if kind == "flag":
            unit.plain.setdefault(name, "uint256")
        elif kind == "interface":
            unit.plain.setdefault(name, "address")
            for line in body:
                if line.tokens[:1] == ["def"]:
                    self._define(line, {"external"}, name)
                elif line.tokens[:1] != ["@"]:
                    self._refuse(line)
        else:
            members = self._members(body)
            if kind == "struct":
                unit.structs.setdefault(name, members)
            else:
                self._event(head.line, name, members)

    def _members(self, body: list[Statement]) -> list[tuple[ast.expr, str]]:
        members: list[tuple[ast.expr, str]] = []
        for line in body:
            match _parsed(line.text):
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=None):
                    members.append((annotation, name))
                case _:
                    members.append((_UNKNOWN, ""))
        return members

    def _event(self, line: int, name: str, members: list[tuple[ast.expr, str]]) -> None:
        types, names = [kind for kind, _ in members], [name for _, name in members]
        self._unit.declared.append(Declaration(line, Kind.EVENT, name, types, names))

    def _define(self, statement: Statement, decorators: set[str], interface: str = "") -> None:
        # An interface has a word in the place of a body: `def coins(i: uint256) -> address: view`.
        words = decorators.union(statement.tokens[-1:] if interface else [])
        mutability = next((word for word in _MUTABILITIES if word in words), "")
        match _parsed(f"{statement.before(':')}: pass"):
            case ast.FunctionDef(name=name, args=arguments, returns=returns):
                if name in _WITHOUT_SIGNATURE or decorators & _HIDDEN or not decorators & _VISIBLE:
                    return
                types = [argument.annotation or _UNKNOWN for argument in arguments.args]
                if arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
                    self._refuse(statement)
                else:
                    names = [argument.arg for argument in arguments.args]
                    declared = Declaration(statement.line, Kind.FUNCTION, name, types, names, len(arguments.defaults))
                    declared = declared._replace(mutability=mutability, returns=returns, interface=interface)
                    self._unit.declared.append(declared)
            case _:
                self._refuse(statement)

    def _simple(self, statement: Statement) -> None:
        # A value that is not understood loses nothing but itself.
        match _parsed(statement.text) or _parsed(statement.before("=")):
            case ast.Import(names=names):
                for alias in names:
                    self._unit.imports[alias.asname or alias.name] = 0, alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                for alias in names:
                    path = f"{module}.{alias.name}" if module else alias.name
                    self._unit.imports[alias.asname or alias.name] = level, path
            case ast.AnnAssign(target=ast.Name(id="exports"), annotation=exported):
                exports = exported.elts if isinstance(exported, ast.Tuple) else [exported]
                self._unit.declared.append(Export(statement.line, [dotted(one) for one in exports]))
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                if name not in _IGNORED:
                    self._variable(statement.line, name, annotation, value)
            case _:
                self._refuse(statement)

    def _variable(self, line: int, name: str, annotation: ast.expr, value: ast.expr | None) -> None:
        is_public = False
        while isinstance(annotation, ast.Call) and isinstance(annotation.func, ast.Name) and len(annotation.args) == 1:
            word, inside = annotation.func.id, annotation.args[0]
            if word == "event" and isinstance(inside, ast.Dict):  # of Vyper 0.1
                names = [key.id if isinstance(key, ast.Name) else "" for key in inside.keys]
                self._event(line, name, list(zip(inside.values, names, strict=True)))
                return
            if word not in ("public", "constant", "immutable", "transient", "reentrant", "nonreentrant"):
                break
            is_public = is_public or word == "public"
            if word == "constant" and value is not None:
                self._unit.constants.setdefault(name, value)
            annotation = inside
        if is_public:
            getter = Declaration(line, Kind.FUNCTION, name, [], [], getter_of=annotation, mutability="view")
            self._unit.declared.append(getter)


_UNKNOWN = ast.Name("?", ast.Load())


def dotted(node: ast.expr) -> str:
    """A name with dots, as written; begins with ``?`` if it is something else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "?", *reversed(names)])


def _parsed(text: str) -> ast.stmt | None:
    """The one statement of a text, or None. Its tokens are bounded; nothing is run."""
    try:
        with PARSER_LOCK:
            body = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return body[0] if len(body) == 1 else None


# Vyper code as statements: logical lines with their indentation, without comments, line breaks in brackets and bodies.
#
# A statement is the text of its tokens, separated by spaces. Vyper's statements are those of Python, apart from
# `struct X:`, `event X:`, `interface X:`, `flag X:`, so Python's ``ast`` parses the rest. Strings become ``""``: nothing
# in them has a meaning for a signature, and ``ast`` warns about their escapes.


MAX_BYTES = 1 << 20
"""The largest source, which may take 350 times as much memory. The largest contracts have 200 kB."""
MAX_TOKENS = 4_096
"""The most tokens of a statement that is parsed. ``ast`` recurses, so deeper and longer ones are refused."""
MAX_DEPTH = 32

_LEXEME = re.compile(
    r"""
      (?P<space>  [ \t\f\r]++ | \#[^\n]*+ | \\\r?\n )
    | (?P<newline> \n )
    | (?P<string> [rRbBfFuUxX]{0,2} (?: \"{3} (?:[^"\\]|\\.|"(?!""))*+ (?:\"{3}|\Z)
                                      | '{3}  (?:[^'\\]|\\.|'(?!''))*+ (?:'{3}|\Z)
                                      | "     (?:[^"\\\n]|\\.)*+ "?
                                      | '     (?:[^'\\\n]|\\.)*+ '? ) )
    | (?P<name>   [^\W\d]\w*+ )
    | (?P<number> \d\w*+ (?:\.\d\w*+)? )
    | (?P<mark>   -> | \*\* | // | << | >> | := | \.\.\. | [=!<>]= | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|[0-9](?:_?[0-9])*(?:\.[0-9](?:_?[0-9])*)?"
)
# A line that begins a declaration, also where a bracket was left open above it.
_DECLARATION = re.compile(
    r"@|(?:def|struct|event|interface|flag|enum|from|import)[ \t]|[^\W\d]\w*+:[ \t]*(?:public|constant|immutable)[ \t]*\("
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class Statement(NamedTuple):
    """One logical line. ``tokens`` is empty if it has too many or is nested too deeply."""

    line: int
    indent: int
    tokens: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.tokens)

    def before(self, ending: str) -> str:
        """The tokens up to a mark outside of brackets: the colon that begins a block, the `=` in front of a value."""
        depth = 0
        for at, mark in enumerate(self.tokens):
            depth += (mark in _OPENING) - (mark in _CLOSING)
            if mark == ending and not depth:
                return " ".join(self.tokens[:at])
        return self.text


def statements(code: str) -> Iterator[Statement]:
    """The statements of a source in order, docstrings left out."""
    tokens: list[str] = []
    line, began, begin_of_line, indent, depth, deepest = 1, 1, 0, 0, 0, 0
    for found in _LEXEME.finditer(code):
        kind, text = found.lastgroup, found[0]
        if kind == "newline" and (depth <= 0 or _DECLARATION.match(code, found.end())):
            if tokens and tokens != ['""']:
                yield Statement(began, indent, tokens if len(tokens) <= MAX_TOKENS and deepest <= MAX_DEPTH else [])
            tokens, depth, deepest = [], 0, 0
        if kind not in ("newline", "space"):
            if not tokens:
                began, indent = line, found.start() - begin_of_line
            depth += (text in _OPENING) - (text in _CLOSING)
            deepest = max(deepest, depth)
            if len(tokens) <= MAX_TOKENS:
                tokens.append(_plain(kind, text))
        if "\n" in text:
            line += text.count("\n")
            begin_of_line = found.start() + text.rindex("\n") + 1
    if tokens and tokens != ['""']:
        yield Statement(began, indent, tokens if len(tokens) <= MAX_TOKENS and deepest <= MAX_DEPTH else [])


def _plain(kind: str | None, text: str) -> str:
    if kind == "string":
        return '""'
    if kind == "number" and not _NUMBER.fullmatch(text):
        return "?"  # Python would warn about some of them
    return text
