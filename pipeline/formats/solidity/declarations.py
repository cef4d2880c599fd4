"""The declarations of a source that have a selector or a topic: functions, getters, events and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tree_sitter import Node

from sigdir.pipeline.formats.solidity.definitions import Definition, Import, Unit, definition_of, imports_of
from sigdir.pipeline.formats.solidity.imports import linked
from sigdir.pipeline.formats.solidity.syntax import (
    ENCODING,
    Member,
    Parameter,
    Scope,
    StatementTree,
    Unplaced,
    child_of_kind,
    members,
)
from sigdir.pipeline.formats.solidity.types import TypeResolver
from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import spelled
from sigdir.signatures.evidence import LISTED, Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK


class Declaration(NamedTuple):
    """A declaration with its types as written, or a statement that the parser cannot place."""

    kind: Kind
    name: str
    """Its name. For a statement that the parser cannot place: its text."""
    parameters: list[Parameter]
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
    """The reject reason of a statement that the parser cannot place."""


class ParsedSource(NamedTuple):
    """What a source defines and declares. It holds text and no nodes of the tree."""

    unit: Unit
    declared: list[Declaration]
    size: int
    """The size of the source in bytes."""


def parsed(code: bytes, path: str = "", contract: str = "") -> ParsedSource:
    """The definitions, imports and declarations of the source at ``path``. The first definition of a name counts.
    ``contract`` is that of functions that stand in none.
    """
    definitions: dict[tuple[str, str], Definition] = {}
    imports: list[Import] = []
    declared = []
    for member in members(code):
        if isinstance(member, Unplaced):
            declared.append(Declaration(Kind.UNKNOWN, member.text, [], line=member.line, reason=member.reason))
            continue
        imports += imports_of(member)
        definition = definition_of(member, path)
        if definition is not None:
            definitions.setdefault((definition.scope, definition.name), definition)
        if member.node.type == "function_definition" and not member.scope.contract:
            member = member._replace(scope=Scope(contract))
        declaration = _declaration(member)
        if declaration is not None:
            declared.append(declaration)
    return ParsedSource(Unit(definitions, imports), declared, len(code))


def declarations(code: bytes, shown: str = "") -> Iterator[Entry]:
    """The functions, getters, events and errors of a source that stands alone, in its order. ``shown`` is the path by
    which its contracts are known; without one they are not.

    Its imports are unknown. What the parser cannot place is an entry with a reject reason.
    """
    source = parsed(code)
    return entries(source, linked({"": source.unit}).units, "", shown)


def entries(source: ParsedSource, files: Mapping[str, Unit], path: str, shown: str = "") -> Iterator[Entry]:
    """The candidates of a parsed source. ``files`` has all sources by path, with their imports resolved; ``shown`` is the
    path by which its contracts are known.
    """
    budget = (1 << 20) + 8 * source.size
    types, named = TypeResolver(files, path, budget), TypeResolver(files, path, budget, with_names=True)
    for declaration in source.declared:
        if declaration.reason != OK:
            text, reason, sighting = declaration.name, declaration.reason, LISTED
        else:
            resolved = types.parameter_list(declaration.parameters, declaration.contract, declaration.by_name)
            anonymous = declaration.tail if declaration.kind is Kind.EVENT else ""
            text, reason = f"{declaration.name}({resolved.text}){anonymous}", resolved.reason
            sighting = _sighting(declaration, named, shown) if reason == OK else LISTED
        # One byte over the limit is enough for the grammar to reject it as too long.
        raw = text.encode(*ENCODING)[: MAX_TEXT_BYTES + 1]
        yield Entry(raw, declaration.line, declaration.kind.collection, b"", reason, sighting)


def _sighting(declaration: Declaration, types: TypeResolver, path: str) -> Sighting:
    """What the source says: the declaration in words, with the names of parameters and of structs' members."""
    scope = declaration.contract
    parameters = types.parameter_list(declaration.parameters, scope, by_name=False).text
    text = f"{declaration.kind.name.lower()} {declaration.name}({parameters}){declaration.tail}"
    if declaration.is_getter:
        text += f" returns ({types.value_of_getter(declaration.returns[0], scope)})"
    elif declaration.returns:
        text += f" returns ({types.parameter_list(declaration.returns, scope, by_name=False).text})"
    contract = Contract.at(path, scope) if scope and path else None
    return Sighting(declaration.kind, Witness.DECLARED, spelled(text, declaration.kind).declaration, contract)


def _declaration(member: Member) -> Declaration | None:
    declare = _DECLARE.get(member.node.type)
    found = declare(member.tree, member.node, member.scope) if declare else None
    return found._replace(contract=member.scope.contract, line=member.line) if found is not None else None


# From the kind of a node to its declaration.


def _function(tree: StatementTree, node: Node, scope: Scope) -> Declaration | None:
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
    return Declaration(
        Kind.FUNCTION, head.name, tree.parameters(head.parameters), f" {head.mutability}", tree.parameters(head.returns),
        by_name=scope.is_library or not scope.contract,
    )  # fmt: skip


def _getter(tree: StatementTree, node: Node, scope: Scope) -> Declaration | None:
    if not tree.mentions(node, b"public"):
        return None
    head, kind = tree.head(node), child_of_kind(node, "type_name")
    if head is None or kind is None:
        return None
    # After `function() external` the tree attributes the variable's `public` to the type.
    swallowed = [tree.text(child) for child in kind.children if child.type == "visibility"]
    if "public" not in head.words.union(swallowed):
        return None
    keys, value = tree.getter(kind)
    return Declaration(Kind.FUNCTION, head.name, keys, " view", [value], is_getter=True)


def _event(tree: StatementTree, node: Node, scope: Scope) -> Declaration | None:
    head = tree.head(node)
    if head is None:
        return None
    tail = " anonymous" if "anonymous" in head.words else ""
    return Declaration(Kind.EVENT, head.name, tree.parameters(head.parameters), tail)


def _error(tree: StatementTree, node: Node, scope: Scope) -> Declaration | None:
    head = tree.head(node)
    return Declaration(Kind.ERROR, head.name, tree.parameters(head.parameters)) if head else None


_DECLARE: dict[str, Callable[[StatementTree, Node, Scope], Declaration | None]] = {
    "function_definition": _function,
    "state_variable_declaration": _getter,
    "event_definition": _event,
    "error_declaration": _error,
}
