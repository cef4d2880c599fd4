"""The declarations of a source that have a selector or a topic: functions, getters, events and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tree_sitter import Node

from sigdir.pipeline.formats.solidity.definitions import Definition, Import, Unit, definition_of, imports_of
from sigdir.pipeline.formats.solidity.imports import linked
from sigdir.pipeline.formats.solidity.syntax import (
    ENCODING,
    Member,
    Parameter,
    Scope,
    SourceTree,
    Unplaced,
    child_of_kind,
)
from sigdir.pipeline.formats.solidity.types import TypeResolver
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK


class Declaration(NamedTuple):
    """A declaration with its types as written, or a statement that the parser cannot place."""

    kind: int
    """FUNCTIONS or EVENTS."""
    name: str
    """Its name. For a statement that the parser cannot place: its text."""
    parameters: list[Parameter]
    tail: str = ""
    by_name: bool = False
    """Whether structs, enums and contracts keep their names, as in the functions of a library."""
    contract: str = ""
    """The contract that it stands in, empty for the file."""
    line: int = 0
    reason: int = OK
    """The reject reason of a statement that the parser cannot place."""


class ParsedSource(NamedTuple):
    """What a source defines and declares. It holds text and no nodes of the tree."""

    unit: Unit
    declared: list[Declaration]
    size: int
    """The size of the source in bytes."""


def parsed(code: bytes, path: str = "") -> ParsedSource:
    """The definitions, imports and declarations of the source at ``path``. The first definition of a name counts."""
    definitions: dict[tuple[str, str], Definition] = {}
    imports: list[Import] = []
    declared = []
    for member in SourceTree(code).members():
        if isinstance(member, Unplaced):
            declared.append(Declaration(UNKNOWN, member.text, [], line=member.line, reason=member.reason))
            continue
        imports += imports_of(member)
        definition = definition_of(member, path)
        if definition is not None:
            definitions.setdefault((definition.scope, definition.name), definition)
        declaration = _declaration(member)
        if declaration is not None:
            declared.append(declaration)
    return ParsedSource(Unit(definitions, imports), declared, len(code))


def declarations(code: bytes) -> Iterator[Entry]:
    """The functions, getters, events and errors of a source that stands alone, in its order.

    Its imports are unknown. What the parser cannot place is an entry with a reject reason.
    """
    source = parsed(code)
    return entries(source, linked({"": source.unit}).units, "")


def entries(source: ParsedSource, files: Mapping[str, Unit], path: str) -> Iterator[Entry]:
    """The candidates of a parsed source. ``files`` has all sources by path, with their imports resolved."""
    types = TypeResolver(files, path, budget=(1 << 20) + 8 * source.size)
    for declaration in source.declared:
        if declaration.reason != OK:
            text, reason = declaration.name, declaration.reason
        else:
            resolved = types.parameter_list(declaration.parameters, declaration.contract, declaration.by_name)
            text, reason = f"{declaration.name}({resolved.text}){declaration.tail}", resolved.reason
        # One byte over the limit is enough for the grammar to reject it as too long.
        yield Entry(text.encode(*ENCODING)[: MAX_TEXT_BYTES + 1], declaration.line, declaration.kind, b"", reason)


def _declaration(member: Member) -> Declaration | None:
    declare = _DECLARE.get(member.node.type)
    found = declare(member.tree, member.node, member.scope) if declare else None
    return found._replace(contract=member.scope.contract, line=member.line) if found is not None else None


# From the kind of a node to its declaration.


def _function(tree: SourceTree, node: Node, scope: Scope) -> Declaration | None:
    """A function with a selector.

    Without a visibility it is public, as before Solidity 0.5. Outside of contracts it is a free function
    without a selector, unless it is public: then its contract, maybe a library, did not parse. A
    function with the contract's own name is a constructor, as before 0.5.
    """
    head = tree.head(node)
    if head is None or head.name == scope.contract or not head.words.isdisjoint(["internal", "private"]):
        return None
    if not scope.contract and head.words.isdisjoint(["public", "external"]):
        return None
    return Declaration(FUNCTIONS, head.name, tree.parameters(head), by_name=scope.is_library or not scope.contract)


def _getter(tree: SourceTree, node: Node, scope: Scope) -> Declaration | None:
    if not tree.mentions(node, b"public"):
        return None
    head, kind = tree.head(node), child_of_kind(node, "type_name")
    if head is None or kind is None:
        return None
    # After `function() external` the tree attributes the variable's `public` to the type.
    swallowed = [tree.text(child) for child in kind.children if child.type == "visibility"]
    if "public" not in head.words.union(swallowed):
        return None
    return Declaration(FUNCTIONS, head.name, tree.keys(kind))


def _event(tree: SourceTree, node: Node, scope: Scope) -> Declaration | None:
    head = tree.head(node)
    if head is None:
        return None
    return Declaration(EVENTS, head.name, tree.parameters(head), " anonymous" if "anonymous" in head.words else "")


def _error(tree: SourceTree, node: Node, scope: Scope) -> Declaration | None:
    head = tree.head(node)
    return Declaration(FUNCTIONS, head.name, tree.parameters(head)) if head else None


_DECLARE: dict[str, Callable[[SourceTree, Node, Scope], Declaration | None]] = {
    "function_definition": _function,
    "state_variable_declaration": _getter,
    "event_definition": _event,
    "error_declaration": _error,
}
