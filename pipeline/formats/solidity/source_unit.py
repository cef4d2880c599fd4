"""What one source defines, imports and declares, with types as written.

Each statement is read alone, from left to right, by the rule that its first word names. One that fits no rule is a reject.

Invariant: a statement is read, declares nothing, or is a reject.

Source: the Solidity documentation, "Language Grammar"; before 0.5 functions had no visibility.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sigdir.pipeline.formats.solidity.constants import MAX_LENGTH, integer_type
from sigdir.pipeline.formats.solidity.statements import Scope, Statement, statements
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import OK, SYNTAX, UNBALANCED


class WrittenType(NamedTuple):
    """A type as written. `Lib.S[N][]` has the base `Lib.S` and the lengths `N` and ``""``; a function type's is `function`."""

    base: str
    lengths: tuple[str, ...] = ()
    mapped: tuple[Parameter, Parameter] | None = None
    """The key and the value of a mapping."""


class Parameter(NamedTuple):
    written: WrittenType
    suffix: str = ""
    """` indexed`, ` storage` or empty."""
    name: str = ""


class Declaration(NamedTuple):
    """A declaration with its types as written, or a statement that cannot be read."""

    kind: Kind
    name: str
    """Its name. For a statement that cannot be read: its text."""
    parameters: Sequence[Parameter] = ()
    tail: str = ""
    """` anonymous`, or the mutability of a function, with a space before."""
    returns: Sequence[Parameter] = ()
    is_getter: bool = False
    by_name: bool = False
    """Whether structs, enums and contracts keep their names, as in the functions of a library."""
    contract: str = ""
    """The contract that it stands in, empty for the file."""
    line: int = 0
    reason: int = OK
    """The reject reason of a statement that cannot be read."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The meaning of a name, for example `S` in the scope `C`: a struct of the contract `C`."""

    scope: str
    """The contract that contains it, empty for the file. Names in the definition are looked up from here."""
    name: str
    kind: Literal["struct", "enum", "contract", "value type", "constant", "file"]
    text: str = ""
    """Its text in a signature. For a constant: its value as written. Empty for a struct, which has members."""
    value_type: str = ""
    """The type of a constant."""
    members: tuple[Parameter, ...] = ()
    """Those of a struct."""
    bases: tuple[str, ...] = ()
    """The contracts that a contract inherits from, as written."""
    file: str = ""
    """The file that contains it. For an import under a name: the imported file."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import: some names of a file, all its names, or the file under a name."""

    path: str
    """The file, as written."""
    names: tuple[tuple[str, str], ...] | None = None
    """Pairs of the name in this file and in the imported file; None for all names."""
    prefix: str = ""
    """The name for the imported file, as in `import "a.sol" as A`."""
    line: int = 0
    """The line of the directive, from 1."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The definitions and the imports of one source."""

    definitions: dict[tuple[str, str], Definition]
    """By scope and name; the first one of a name counts."""
    imports: list[Import]


class ParsedSource(NamedTuple):
    """What a source defines and declares."""

    unit: Unit
    declared: list[Declaration]
    size: int
    """The size of the source in bytes."""


def parsed(code: bytes, path: str = "", contract: str = "") -> ParsedSource:
    """The definitions, imports and declarations of the source at ``path``. ``contract`` is that of functions that stand
    in none.
    """
    source = ParsedSource(Unit({}, []), [], len(code))
    types: dict[WrittenType, WrittenType] = {}
    for statement in statements(code):
        reader = _Reader(statement, source, types, path, contract)
        try:
            reader.read()
        except _Unreadable:
            if statement.is_closed and statement.is_sure:
                reader.refuse(SYNTAX)
        if not statement.is_closed and statement.is_sure:
            reader.refuse(UNBALANCED)
    return source


class _Unreadable(Exception):
    """A statement that fits no rule."""


_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_KEYWORDS = frozenset(
    """
    public private internal external constant pure view payable memory storage returns return mapping function struct
    contract interface library import pragma using is
    """.split()  # noqa: SIM905 - a list would have a line for each word
)  # fmt: skip
"""Words that are no names. The others that the language knows may name things, as `error`, `from` and `immutable`."""
_MUTABILITIES = frozenset(["view", "pure", "payable", "constant"])
_OF_FUNCTION_TYPES = frozenset(["external", "internal", "view", "pure", "payable"])
_OF_VARIABLES = frozenset(["public", "private", "internal", "constant", "immutable", "transient", "override"])
_LOCATIONS = frozenset(["memory", "calldata", "storage"])
_DEEPEST = 100
"""Mappings and tuples inside each other."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class _Reader:
    """Reads one statement into its source."""

    def __init__(
        self,
        statement: Statement,
        source: ParsedSource,
        types: dict[WrittenType, WrittenType],
        path: str,
        contract: str,
    ) -> None:
        """``types`` has the types of the source that were read: there are few different ones."""
        self._statement, self._source, self._types = statement, source, types
        self._path, self._contract = path, contract
        self._tokens, self._at = statement.tokens, 0

    def read(self) -> None:
        """Read the statement; raises _Unreadable, and then nothing that it declares is kept."""
        rule = _RULES.get(self._next)
        if rule is None:
            self._variable()
        elif self._tokens[:2] == ["function", "("]:  # a variable's type, or the fallback of old sources
            with suppress(_Unreadable):
                self._variable()
        else:
            self._at = 1
            rule(self)

    def refuse(self, reason: int) -> None:
        line = self._statement.line
        self._source.declared.append(Declaration(Kind.UNKNOWN, self._statement.shown, line=line, reason=reason))

    # Tokens.

    @property
    def _next(self) -> str:
        """The next token; empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _takes(self, token: str) -> bool:
        is_next = self._next == token
        self._at += is_next
        return is_next

    def _expect(self, token: str) -> None:
        if not self._takes(token):
            raise _Unreadable

    def _word(self) -> str:
        found = self._next
        if not _WORD.fullmatch(found):
            raise _Unreadable
        self._at += 1
        return found

    def _name(self) -> str:
        found = self._word()
        if found in _KEYWORDS:
            raise _Unreadable
        return found

    def _path_of_names(self) -> str:
        found = self._name()
        while self._takes("."):
            found += f".{self._name()}"
        return found

    def _group(self) -> str:
        """What stands between the bracket that is next and the one that closes it, without spaces."""
        first, closing = self._at, _CLOSING.get(self._next, "")
        opening, depth = self._next, 0
        while self._next:
            depth += (self._next == opening) - (self._next == closing)
            self._at += 1
            if not depth:
                return "".join(self._tokens[first + 1 : self._at - 1])
        raise _Unreadable

    def _end(self, *endings: str) -> None:
        """The statement ends here, by one of these marks."""
        if self._next or self._statement.ending not in endings:
            raise _Unreadable

    # Parts of declarations.

    def _type(self, depth: int = 0) -> WrittenType:
        first, mapped = self._at, None
        if depth > _DEEPEST:
            raise _Unreadable
        if self._takes("mapping"):
            self._expect("(")
            key = self._mapped("=>", depth)
            mapped = key, self._mapped(")", depth)
            base = "".join(self._tokens[first : self._at])
        elif self._takes("function"):
            base = "function"
            self._group()
            while self._next in _OF_FUNCTION_TYPES:
                self._at += 1
            if self._takes("returns"):
                self._group()
        elif self._next == "(" or self._tokens[self._at : self._at + 2] == ["tuple", "("]:
            base = self._tuple(depth)
        else:
            base = self._path_of_names()
            if base == "address":
                self._takes("payable")
        lengths = []
        while self._next == "[":
            lengths.append(self._group())
        written = WrittenType(base, tuple(lengths), mapped)
        return self._types.setdefault(written, written)

    def _mapped(self, ending: str, depth: int) -> Parameter:
        """The key or the value of a mapping, which may have a name."""
        written = self._type(depth + 1)
        found = Parameter(written, "", self._name() if self._next != ending else "")
        self._expect(ending)
        return found

    def _tuple(self, depth: int) -> str:
        """A list in place of a type, which alloy's `sol!` takes and prints: a struct without a name of its own."""
        self._takes("tuple")
        members = tuple(self._parameters((), depth + 1))
        name = f"({len(self._source.unit.definitions)})"
        self._define(Definition(self._scope.contract, name, "struct", members=members, file=self._path))
        return name

    def _parameters(self, words: Collection[str], depth: int = 0) -> list[Parameter]:
        """A list of parameters, whose types may have one of these words behind them. Those of a tuple have a ``depth``."""
        self._expect("(")
        found: list[Parameter] = []
        while not self._takes(")"):
            if found:
                self._expect(",")
                if depth and self._takes(")"):  # behind the one type of a tuple stands a comma
                    break
            written, suffix = self._type(depth), ""
            if self._next in words:
                word = self._word()
                suffix = f" {word}" if word in ("indexed", "storage") else ""
            found.append(Parameter(written, suffix, self._name() if self._next not in (",", ")") else ""))
        return found

    def _define(self, definition: Definition) -> None:
        self._source.unit.definitions.setdefault((definition.scope, definition.name), definition)

    def _declare(self, declaration: Declaration) -> None:
        contract = declaration.contract or self._scope.contract
        self._source.declared.append(declaration._replace(contract=contract, line=self._statement.line))

    @property
    def _scope(self) -> Scope:
        return self._statement.scope

    # Rules.

    def import_(self) -> None:
        names: tuple[tuple[str, str], ...] | None = None
        prefix = ""
        if self._takes("{"):
            found: list[tuple[str, str]] = []
            while not self._takes("}"):
                if found:
                    self._expect(",")
                there = self._name()
                found.append((self._name() if self._takes("as") else there, there))
            names = tuple(found)
            self._expect("from")
        elif self._takes("*"):
            self._expect("as")
            prefix = self._name()
            self._expect("from")
        path = self._next
        if path[:1] not in ('"', "'") or len(path) < 2:
            raise _Unreadable
        self._at += 1
        if names is None and not prefix and self._takes("as"):
            prefix = self._name()
        self._end(";")
        self._source.unit.imports.append(Import(path[1:-1], names or None, prefix, self._statement.line))

    def contract(self) -> None:
        name, bases = self._name(), list[str]()
        while self._next:
            if self._takes("layout"):
                self._expect("at")
                while self._next not in ("is", ""):
                    self._at += 1
            elif self._takes("," if bases else "is"):
                bases.append(self._path_of_names())
                if self._next == "(":
                    self._group()
            else:
                raise _Unreadable
        self._end("{")
        self._define(Definition("", name, "contract", "address", bases=tuple(bases), file=self._path))

    def abstract(self) -> None:
        self._expect("contract")
        self.contract()

    def struct(self) -> None:
        name, members = self._name(), []
        self._expect("{")
        while not self._takes("}"):
            members.append(Parameter(self._type(), "", self._name()))
            self._expect(";")
        self._end("")
        self._define(Definition(self._scope.contract, name, "struct", members=tuple(members), file=self._path))

    def enum(self) -> None:
        name = self._name()
        if self._next != "{":
            raise _Unreadable
        has_one_byte = self._group().count(",") < 256  # since Solidity 0.8 always
        self._end("")
        text = "uint8" if has_one_byte else "uint16"
        self._define(Definition(self._scope.contract, name, "enum", text, file=self._path))

    def value_type(self) -> None:
        name = self._name()
        self._expect("is")
        base = self._type().base
        self._end(";")
        self._define(Definition(self._scope.contract, name, "value type", base, file=self._path))

    def event(self) -> None:
        name, parameters = self._name(), self._parameters(["indexed"])
        tail = " anonymous" if self._takes("anonymous") else ""
        self._end(";")
        self._declare(Declaration(Kind.EVENT, name, parameters, tail))

    def error(self) -> None:
        name, parameters = self._name(), self._parameters([])
        self._end(";")
        self._declare(Declaration(Kind.ERROR, name, parameters))

    def function(self) -> None:
        """A function, which is a declaration if it has a selector.

        Without a visibility it is public, as before Solidity 0.5. Outside of contracts it is a free function
        without a selector, unless it is public: then its contract, maybe a library, could not be read. A
        function with the contract's own name is a constructor, as before 0.5.
        """
        name, parameters = self._name(), self._parameters(_LOCATIONS)
        words, tail = set(), ""
        while self._next not in ("returns", ""):
            words.add(word := self._word())
            while self._takes("."):  # a modifier of another contract
                self._name()
            if self._next == "(":
                self._group()
            tail = f" {word}" if word in _MUTABILITIES else tail
        returns = self._parameters(_LOCATIONS) if self._takes("returns") else []
        self._end(";", "{")
        contract = self._scope.contract or self._contract
        is_hidden = not words.isdisjoint(["internal", "private"])
        if is_hidden or name == contract or not (contract or words & {"public", "external"}):
            return
        by_name = self._scope.is_library or not contract
        self._declare(Declaration(Kind.FUNCTION, name, parameters, tail, returns, by_name=by_name, contract=contract))

    def _variable(self) -> None:
        """A variable: a getter if it is public, and the length of arrays if it is a constant integer."""
        written, words, name = self._type(), set[str](), self._word()
        while self._next not in ("=", ""):
            words.add(name)
            if name == "override" and self._next == "(":
                self._group()
            name = self._word()
        value = "".join(self._tokens[self._at + 1 :])
        self._at = len(self._tokens)
        self._end(";")
        contract = self._scope.contract
        if name in _KEYWORDS or not words <= _OF_VARIABLES or not (contract or self._contract or "constant" in words):
            raise _Unreadable
        if "constant" in words and value and len(value) <= MAX_LENGTH and integer_type(written.base) is not None:
            self._define(Definition(contract, name, "constant", value, written.base, file=self._path))
        if "public" in words:
            keys, got = _getter(written)
            contract = contract or self._contract
            self._declare(Declaration(Kind.FUNCTION, name, keys, " view", [got], is_getter=True, contract=contract))

    def nothing(self) -> None:
        """What declares nothing."""


def _getter(written: WrittenType, name: str = "") -> tuple[list[Parameter], Parameter]:
    """The getter of a variable of this type: its parameters, mapping keys and array indices, and its value."""
    keys: list[Parameter] = []
    while True:
        keys += [Parameter(WrittenType("uint256"))] * len(written.lengths)
        if written.mapped is None:
            return keys, Parameter(WrittenType(written.base), "", name)
        key, (written, _, name) = written.mapped
        keys.append(key)


_RULES: dict[str, Callable[[_Reader], None]] = {
    "import": _Reader.import_,
    "contract": _Reader.contract,
    "interface": _Reader.contract,
    "library": _Reader.contract,
    "abstract": _Reader.abstract,
    "struct": _Reader.struct,
    "enum": _Reader.enum,
    "type": _Reader.value_type,
    "event": _Reader.event,
    "error": _Reader.error,
    "function": _Reader.function,
    **dict.fromkeys(["pragma", "using", "modifier", "constructor", "fallback", "receive"], _Reader.nothing),
}
"""By the first word of a statement; a statement that begins with another one is a variable."""
