"""Vyper sources (.vy) and interfaces (.vyi), of the versions 0.1 to 0.5.

Candidates are the externally visible functions, each with its variants without default arguments, the getters of public
variables, the events, and the functions of interfaces, which contracts elsewhere have. Structs, interfaces, flags and
constants are looked up, in other sources of the import too.

Invariants
    Nothing is guessed and nothing is run. A type, a length or a module that the given sources do not explain stays as
    written, so the grammar rejects the text. A statement that the reader cannot place is a reject.
    Statements are short and shallow before ``ast`` parses them (``source_unit.py``). The expansion of structs is
    bounded (``TypeResolver``).

The functions that a contract exports from a module are declarations of the module. An export is a reject only if its
module is not given. In Vyper 0.1 the getter of an array takes an int128. Until 0.3 a `decimal` is `fixed168x10` in the
ABI, since 0.4 `int168`. A source without a pragma is read as the newest version, one with `event({...})`, `map(...)` or
`@public` as 0.1.

Source: the Vyper documentation, "Types", "Scoping and Declarations" (Public Variables), "Modules", "Interfaces".
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.contracts import absolute_path, path_below
from sigdir.pipeline.formats.vyper.source_unit import (
    MAX_BYTES,
    Declaration,
    Export,
    NotUnderstood,
    SourceUnit,
    dotted,
    source_unit,
)
from sigdir.pipeline.source import Source, without_packing
from sigdir.signatures.candidates import Entry, ReadTask, pack
from sigdir.signatures.evidence import Contract, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, MAX_TEXT_BYTES


def looks_like(source: Source) -> bool:
    """By the file's name alone, because a source may begin with any comment."""
    return source.has_ending(".vy", ".vyi")


MAX_KEPT = 2 << 30
"""About how many bytes of memory a project takes, and its last source besides: for some 100 MB of real sources, or 6 MB that
are made to take it.
"""
_ITEM = 256
"""The bytes that a declaration, a name, or a node of a type or a value takes."""


class Project:
    """The Vyper sources of one import. Takes all, then yields the candidates of each. What it keeps of them is bounded:
    see MAX_KEPT.
    """

    def __init__(self, roots: Sequence[str] = (), document: str | None = None, remappings: Iterable[str] = ()) -> None:
        """As of a project of Solidity. Neither ``roots`` nor ``remappings`` decide an import: see ``Modules``."""
        self._roots = [absolute_path(root) for root in roots]
        self._document = absolute_path(document) if document is not None else None
        self._units: dict[str, SourceUnit] = {}
        self._waiting: list[tuple[int, str, SourceUnit, int]] = []  # number, path, unit, size
        self._kept = 0
        """About how many bytes of memory all that takes."""

    def add(self, source: Source) -> None:
        """Keep the declarations of an open source. Raises BadInput for one that is too large, or that comes when MAX_KEPT is
        reached.
        """
        code, path = source.read_all("Vyper source"), absolute_path(source.path)
        if self._kept > MAX_KEPT:
            raise BadInput(source.name, "the Vyper sources before it fill the memory for them; import fewer at once")
        if len(code) > MAX_BYTES:
            raise BadInput(source.name, f"a Vyper source of over {MAX_BYTES >> 20} MiB")
        path = without_packing(path)
        unit = source_unit(code.decode("utf-8", "surrogateescape"))
        self._units[path] = unit
        self._waiting.append((source.number, path, unit, len(code)))  # two sources may have one path
        self._kept += len(code) + _ITEM * _count_items(unit)

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all sources, in the order of ``add``."""
        modules = Modules(self._units)
        for number, path, unit, size in self._waiting:
            shown = path_below(path, self._roots, self._document)
            yield partial(pack, entries(modules, path, unit, (1 << 20) + 8 * size, shown), number)


def _count_items(unit: SourceUnit) -> int:
    """What a source declares and names, the nodes of its types and values, and one for the source."""
    names = len(unit.structs) + len(unit.plain) + len(unit.imports)
    exported = sum(len(one.names) for one in unit.declared if isinstance(one, Export))
    return 1 + len(unit.declared) + names + exported + sum(1 for one in _syntax(unit) for _ in ast.walk(one))


def _syntax(unit: SourceUnit) -> Iterator[ast.expr]:
    """The types and values of a source."""
    yield from unit.constants.values()
    for members in unit.structs.values():
        yield from (type for type, _ in members)
    for one in unit.declared:
        if isinstance(one, Declaration):
            yield from one.types
            yield from filter(None, (one.getter_of, one.returns))


def entries(modules: Modules, path: str, unit: SourceUnit, budget: int, shown: str) -> Iterator[Entry]:
    """The candidates of one source, in its order; ``shown`` is the path by which its contracts are known."""
    types = TypeResolver(modules, path, budget)
    own_name = os.path.splitext(os.path.basename(shown))[0]
    for item in unit.declared:
        if isinstance(item, Declaration):
            yield from _texts(item, types, Contract.at(shown, item.interface or own_name))
        elif isinstance(item, NotUnderstood):
            yield _rejected(item.text, item.line)
        else:
            yield from _missing_modules(item, modules, path)


def _texts(item: Declaration, types: TypeResolver, contract: Contract) -> Iterator[Entry]:
    """A declaration in words; one more for each default argument that a call may leave out."""
    parameters, tail = _parameters(item, types), _tail(item, types)
    sighting = Sighting(item.kind, Witness.DECLARED, contract=contract)
    for count in range(len(parameters) - item.defaults, len(parameters) + 1):
        text = f"{item.kind.name.lower()} {item.name}({','.join(parameters[:count])}){tail}"
        raw = text.encode("utf-8", "surrogateescape")[: MAX_TEXT_BYTES + 1]
        yield Entry(raw, item.line, item.kind.collection, sighting=sighting)


def _parameters(item: Declaration, types: TypeResolver) -> list[str]:
    if item.getter_of is not None:
        return types.getter(item.getter_of)[0]
    return [f"{types.text(one)} {name}".rstrip() for one, name in zip(item.types, item.names, strict=True)]


def _tail(item: Declaration, types: TypeResolver) -> str:
    """The mutability and what is returned: several values are a tuple of types, a struct is one value."""
    mutability = f" {item.mutability}" if item.mutability else ""
    returns = item.returns if item.getter_of is None else types.getter(item.getter_of)[1]
    if returns is None:
        return mutability
    values = returns.elts if isinstance(returns, ast.Tuple) else [returns]
    return f"{mutability} returns ({','.join(map(types.text, values))})"


def _missing_modules(item: Export, modules: Modules, path: str) -> Iterator[Entry]:
    for name in item.names:
        if modules.target(name.rpartition(".")[0], path) is None:
            yield _rejected(f"exports {name}", item.line)


def _rejected(text: str, line: int) -> Entry:
    return Entry(text.encode("utf-8", "surrogateescape")[:MAX_TEXT_BYTES], line, reject_reason=BAD_ENTRY)


# Types as written to types of the ABI: names are looked up, structs become tuples, lengths become numbers.

_ELEMENTARY = re.compile(r"u?int[0-9]{1,3}|bytes[0-9]{1,2}|address|bool")
_BYTES = {"Bytes": "bytes", "bytes": "bytes", "String": "string", "string": "string"}
_LEGACY = {"timestamp": "uint256", "timedelta": "uint256", "wei_value": "uint256"}
_MOST_LENGTH_BITS = 300
_MOST_DEPTH = 64

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a // b,  # of integers before Vyper 0.4
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b if a.bit_length() * b <= _MOST_LENGTH_BITS else -1,
    ast.LShift: lambda a, b: a << b if b <= _MOST_LENGTH_BITS else -1,
    ast.RShift: lambda a, b: a >> b,
}


class Unresolved(Exception):
    """A type or a length that the given sources do not explain."""


class TypeResolver:
    """Resolves the types of one source. ``budget`` bounds the characters of all structs and the constants looked up.

    Without it, structs of two structs each would double with each level.
    """

    def __init__(self, modules: Modules, path: str, budget: int) -> None:
        self._modules = modules
        self._path = path
        self._budget = budget
        self._structs: dict[tuple[str, str], str] = {}

    def text(self, written: ast.expr) -> str:
        """The type in the ABI; as written, in one word, where it is unknown."""
        try:
            return self._resolve(written, self._path, 0)
        except Unresolved:
            return _shown(written)

    def getter(self, written: ast.expr) -> tuple[list[str], ast.expr]:
        """The parameters of a public variable's getter, the keys of its maps and an index for each array, and the type of
        its value.
        """
        legacy = self._modules.unit(self._path).minor_version < 2
        keys: list[str] = []
        while True:
            match written:
                case ast.Subscript(value=ast.Name(id="HashMap"), slice=ast.Tuple(elts=[key, written])):
                    keys.append(self.text(key))
                case ast.Call(func=ast.Name(id="map"), args=[key, written]):
                    keys.append(self.text(key))
                case ast.Subscript(value=ast.Name(id="DynArray"), slice=ast.Tuple(elts=[written, _])):
                    keys.append("uint256")
                case ast.Subscript(value=ast.Name(id=name)) if name in _BYTES:
                    return keys, written
                case ast.Subscript(value=written):
                    keys.append("int128" if legacy else "uint256")
                case ast.Name(id="?") | ast.Dict():
                    return [*keys, "?"], written
                case _:
                    return keys, written

    def _resolve(self, written: ast.expr, path: str, depth: int) -> str:
        if depth > _MOST_DEPTH:
            raise Unresolved
        match written:
            case ast.Name(id=name):
                return self._named(name, path, depth)
            case ast.Attribute(value=module, attr=name):
                return self._of_module(module, name, path, depth)
            case ast.Subscript(value=ast.Name(id=name)) if name in _BYTES:
                return _BYTES[name]
            case ast.Subscript(value=ast.Name(id="DynArray"), slice=ast.Tuple(elts=[item, _])):
                return self._spent(self._resolve(item, path, depth + 1) + "[]")
            case ast.Subscript(value=item, slice=length):
                return self._spent(f"{self._resolve(item, path, depth + 1)}[{self._number(length, path, depth + 1)}]")
            case ast.Call(func=ast.Name(id="indexed"), args=[item]):
                return self._resolve(item, path, depth + 1) + " indexed"
            case ast.Call(func=ast.Name(id=name)) if name != "map":  # a unit, as in uint256(wei), of Vyper 0.1
                return self._named(name, path, depth)
        raise Unresolved

    def _named(self, name: str, path: str, depth: int) -> str:
        unit = self._modules.unit(path)
        if _ELEMENTARY.fullmatch(name):
            return name
        if name == "decimal":
            return "fixed168x10" if unit.minor_version < 4 else "int168"
        if name in unit.structs:
            return self._struct(name, path, depth)
        if name in unit.plain:
            return unit.plain[name]
        if name in unit.imports:  # a file as a type is an interface
            return "address"
        if name in _LEGACY and unit.minor_version < 2:
            return _LEGACY[name]
        raise Unresolved

    def _of_module(self, module: ast.expr, name: str, path: str, depth: int) -> str:
        if name == "__interface__":
            return "address"
        target = self._modules.target(dotted(module), path)
        if target == BUILTIN:
            return "address"  # the language's own modules have interfaces only
        if target is None:
            raise Unresolved
        return self._named(name, target, depth + 1)

    def _struct(self, name: str, path: str, depth: int) -> str:
        key = path, name
        if key not in self._structs:
            self._structs[key] = ""  # inside itself
            members = [
                self._resolve(member, path, depth + 1) + (f" {name}" if name else "")
                for member, name in self._modules.unit(path).structs[name]
            ]
            self._structs[key] = f"({','.join(members)})"
        if not self._structs[key]:
            raise Unresolved
        return self._spent(self._structs[key])

    def _spent(self, text: str) -> str:
        self._budget -= len(text)
        if self._budget < 0 or len(text) > MAX_TEXT_BYTES:
            raise Unresolved
        return text

    def _number(self, written: ast.expr, path: str, depth: int) -> int:
        """The value of a constant expression. Raises Unresolved, also where it is not positive or very large."""
        value = self._value(written, path, depth)
        if value <= 0:
            raise Unresolved
        return value

    def _value(self, written: ast.expr, path: str, depth: int) -> int:
        self._budget -= 1
        if depth > _MOST_DEPTH or self._budget < 0:
            raise Unresolved
        match written:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                pass
            case ast.Name(id=name):
                constant = self._modules.unit(path).constants.get(name)
                value = self._value(constant, path, depth + 1) if constant is not None else -1
            case ast.Attribute(value=module, attr=name):
                target = self._modules.target(dotted(module), path)
                constant = self._modules.unit(target).constants.get(name) if target and target != BUILTIN else None
                value = self._value(constant, target or "", depth + 1) if constant is not None else -1
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATIONS:
                a, b = self._value(left, path, depth + 1), self._value(right, path, depth + 1)
                try:
                    value = _OPERATIONS[type(operator)](a, b)
                except (ArithmeticError, ValueError):
                    raise Unresolved from None
            case _:
                raise Unresolved
        if not 0 <= value < 1 << _MOST_LENGTH_BITS:
            raise Unresolved
        return value


def _shown(written: ast.expr) -> str:
    """A type as written, for a reject."""
    try:
        return ast.unparse(written).replace(" ", "") or "?"
    except (RecursionError, ValueError):
        return "?"


# The sources of one import, and which of them an imported name means.
#
# As the compiler does, a dotted path is looked for beside the importing source. The compiler's other search paths are not
# known here, so the folders above it are searched too, and the path must be in one of them only. Nothing is guessed: what
# is not given, or is given twice, stays unresolved.


BUILTIN = "vyper"
"""Stands for the modules of the language itself, which hold interfaces."""
_BUILTIN_PACKAGES = ("vyper", "ethereum", "math")
_ENDINGS = (".vy", ".vyi")
_MOST_FOLDERS = 64
_MOST_DOTS = 16


class Modules:
    """Sources by their absolute path."""

    def __init__(self, units: Mapping[str, SourceUnit]) -> None:
        self._units = units
        self.target = cache(self._find)
        """The source that a name (maybe dotted, as imported) means in the source of a path; BUILTIN; None if unknown."""

    def unit(self, path: str) -> SourceUnit:
        return self._units[path]

    def _find(self, name: str, path: str) -> str | None:
        """A name of an import, or a name that an imported module imports itself, as in ``a.b``."""
        unit = self._units[path]
        if name not in unit.imports:
            outer, _, inner = name.rpartition(".")
            module = self.target(outer, path) if outer and name.count(".") <= _MOST_DOTS else None
            if module is None or module == BUILTIN or inner not in self._units[module].imports:
                return None
            name, path, unit = inner, module, self._units[module]
        dots, dotted = unit.imports[name]
        parts = dotted.split(".")
        if not dots and parts[0] in _BUILTIN_PACKAGES:
            return BUILTIN
        folder = os.path.dirname(path)
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        beside = self._in_folder(folder, parts)
        if beside or dots:
            return beside
        above = set()
        for _ in range(_MOST_FOLDERS):
            if folder == os.path.dirname(folder):
                break
            folder = os.path.dirname(folder)
            above.add(self._in_folder(folder, parts))
        above.discard(None)
        return above.pop() if len(above) == 1 else None

    def _in_folder(self, folder: str, parts: list[str]) -> str | None:
        for ending in _ENDINGS:
            path = os.path.join(folder, *parts) + ending
            if path in self._units:
                return path
        return None
