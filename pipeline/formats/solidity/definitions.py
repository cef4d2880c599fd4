"""What a source defines for its declarations and for other sources: types, contracts, constants, imports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tree_sitter import Node

from sigdir.pipeline.formats.solidity.constants import MAX_LENGTH, integer_type
from sigdir.pipeline.formats.solidity.syntax import Member, StatementTree, WrittenType, child_of_kind


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
    members: tuple[WrittenType, ...] = ()
    """The types of a struct's members."""
    member_names: tuple[str, ...] = ()
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
    """By scope and name."""
    imports: list[Import]


def qualified(scope: str, name: str) -> str:
    """A full name as solc writes it."""
    return f"{scope}.{name}" if scope else name


def definition_of(member: Member, path: str) -> Definition | None:
    """What a member of the source at ``path`` defines; None if nothing."""
    define = _DEFINE.get(member.node.type)
    definition = define(member.tree, member.node, member.scope.contract) if define else None
    return replace(definition, file=path) if definition is not None else None


def imports_of(member: Member) -> list[Import]:
    """What an import directive imports. Several names of one file are one import."""
    return _import(member) if member.node.type == "import_directive" else []


def _import(member: Member) -> list[Import]:
    """One import; none if it does not parse."""
    tree, node = member.tree, member.node
    source = node.child_by_field_name("source")
    if source is None or node.has_error:
        return []
    path = tree.text(source)[1:-1]
    names: list[tuple[str, str]] = []
    prefix, is_alias = "", False
    for child in node.children:
        name = tree.text(child)
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
    return [Import(path, tuple(names) if names else None, prefix, member.line)]


# From the kind of a node to its definition.


def _contract(tree: StatementTree, node: Node, scope: str) -> Definition:
    specifiers = [child for child in node.children if child.type == "inheritance_specifier"]
    bases = tuple(tree.squeezed(child.child_by_field_name("ancestor")) for child in specifiers)
    return Definition("", tree.name(node), "contract", "address", bases=bases)


def _enum(tree: StatementTree, node: Node, scope: str) -> Definition:
    return Definition(scope, tree.name(node), "enum", "uint8")


def _value_type(tree: StatementTree, node: Node, scope: str) -> Definition:
    base = tree.squeezed(child_of_kind(node, "primitive_type"))
    return Definition(scope, tree.name(node), "value type", base.removesuffix("payable"))


def _struct(tree: StatementTree, node: Node, scope: str) -> Definition | None:
    """None if it does not parse, because a member may be missing."""
    body = node.child_by_field_name("body")
    if body is None or node.has_error:
        return None
    members = [child for child in body.children if child.type == "struct_member"]
    typed = [(member, kind) for member in members if (kind := member.child_by_field_name("type"))]
    types = tuple(tree.written(kind) for _, kind in typed)
    names = tuple(tree.name(member) for member, _ in typed)
    return Definition(scope, tree.name(node), "struct", members=types, member_names=names)


def _constant(tree: StatementTree, node: Node, scope: str) -> Definition | None:
    """A constant of an integer type, which may be the length of an array."""
    kind, value = tree.squeezed(child_of_kind(node, "type_name")), node.child_by_field_name("value")
    if integer_type(kind) is None or value is None or value.end_byte - value.start_byte > MAX_LENGTH:
        return None
    if child_of_kind(node, "constant") is None:
        return None
    return Definition(scope, tree.name(node), "constant", tree.squeezed(value), kind)


_DEFINE: dict[str, Callable[[StatementTree, Node, str], Definition | None]] = {
    "contract_declaration": _contract,
    "interface_declaration": _contract,
    "library_declaration": _contract,
    "enum_declaration": _enum,
    "user_defined_type_definition": _value_type,
    "struct_declaration": _struct,
    "constant_variable_declaration": _constant,
    "state_variable_declaration": _constant,
}
