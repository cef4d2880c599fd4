"""Vyper sources (.vy) and interfaces (.vyi), of the versions 0.1 to 0.5.

Candidates are the externally visible functions, each with its variants without default arguments, the getters of public
variables, the events, and the functions of interfaces, which contracts elsewhere have. Structs, interfaces, flags and
constants are looked up, in other sources of the import too.

Invariants
    Nothing is guessed and nothing is run. A type, a length or a module that the given sources do not explain stays as
    written, so the grammar rejects the text. A statement that the reader cannot place is a reject.
    Statements are short and shallow before ``ast`` parses them (``source_unit.py``). The expansion of structs is
    bounded (``types.py``).

The functions that a contract exports from a module are declarations of the module. An export is a reject only if its
module is not given. In Vyper 0.1 the getter of an array takes an int128. Until 0.3 a `decimal` is `fixed168x10` in the
ABI, since 0.4 `int168`. A source without a pragma is read as the newest version, one with `event({...})`, `map(...)` or
`@public` as 0.1.

Source: the Vyper documentation, "Types", "Scoping and Declarations" (Public Variables), "Modules", "Interfaces".
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.contracts import absolute_path, path_below
from sigdir.pipeline.formats.vyper.source_unit import (
    MAX_BYTES,
    Declaration,
    Export,
    NotUnderstood,
    SourceUnit,
    source_unit,
)
from sigdir.pipeline.formats.vyper.types import Modules, TypeResolver
from sigdir.pipeline.source import Source, without_packing
from sigdir.signatures.candidates import Entry, ReadTask, pack
from sigdir.signatures.evidence import Contract, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, MAX_TEXT_BYTES


def looks_like(source: Source) -> bool:
    """By the file's name alone, because a source may begin with any comment."""
    return source.has_ending(".vy", ".vyi")


def document_project(path: str, _remappings: Iterable[str]) -> Project:
    """The project of the sources in the JSON document at ``path``."""
    return Project(document=path)


class Project:
    """The Vyper sources of one import. Takes all, then yields the candidates of each."""

    def __init__(self, roots: Sequence[str] = (), document: str | None = None) -> None:
        """``roots``, the paths that the import was given, decide no import: see ``Modules``."""
        self._roots = [absolute_path(root) for root in roots]
        self._document = absolute_path(document) if document is not None else None
        self._units: dict[str, SourceUnit] = {}
        self._waiting: list[tuple[int, str, SourceUnit, int]] = []  # number, path, unit, size

    def add(self, source: Source) -> None:
        """Keep the declarations of an open source."""
        code, path = source.read_all("Vyper source"), absolute_path(source.path)
        if len(code) > MAX_BYTES:
            raise BadInput(source.name, f"a Vyper source of over {MAX_BYTES >> 20} MiB")
        path = without_packing(path)
        unit = source_unit(code.decode("utf-8", "surrogateescape"))
        self._units[path] = unit
        self._waiting.append((source.number, path, unit, len(code)))  # two sources may have one path

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all sources, in the order of ``add``."""
        modules = Modules(self._units)
        for number, path, unit, size in self._waiting:
            shown = path_below(path, self._roots, self._document)
            yield partial(pack, entries(modules, path, unit, (1 << 20) + 8 * size, shown), number)


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
