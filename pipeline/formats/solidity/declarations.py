"""The declarations of a source that have a selector or a topic: functions, getters, events and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tree_sitter import Node

from sigdir.pipeline.formats.solidity.definitions import Unit, unit_of
from sigdir.pipeline.formats.solidity.imports import linked
from sigdir.pipeline.formats.solidity.syntax import ENCODING, Parameter, Scope, SourceTree, child_of_kind
from sigdir.pipeline.formats.solidity.types import TypeResolver
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import MAX_TEXT_BYTES


def declarations(code: bytes, files: Mapping[str, Unit] | None = None, path: str = "") -> Iterator[Entry]:
    """The functions, getters, events and errors of a source, in its order.

    ``files`` has the sources that it may import from by path, with their imports resolved, and the
    source itself under ``path``. Without ``files`` its imports are unknown.
    """
    tree = SourceTree(code)
    types = TypeResolver(files or linked({path: unit_of(tree, path)}), path, budget=(1 << 20) + 8 * len(code))
    for scope, node in tree.members():
        declare = _DECLARE.get(node.type)
        declared = declare(tree, node, scope) if declare else None
        if declared is not None:
            parameters = types.parameter_list(declared.parameters, scope.contract, declared.by_name)
            text = f"{declared.name}({parameters}){declared.tail}"
            # One byte over the limit is enough for the grammar to reject it as too long.
            clipped = text.encode(*ENCODING)[: MAX_TEXT_BYTES + 1]
            yield Entry(clipped, node.start_point.row + 1, declared.kind)


class Declaration(NamedTuple):
    """A declaration with its types as written."""

    kind: int
    """FUNCTIONS or EVENTS."""
    name: str
    parameters: list[Parameter]
    tail: str = ""
    by_name: bool = False
    """Whether structs, enums and contracts keep their names, as in the functions of a library."""


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
    return Declaration(FUNCTIONS, head.name, head.parameters, by_name=scope.is_library or not scope.contract)


def _getter(tree: SourceTree, node: Node, scope: Scope) -> Declaration | None:
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
    return Declaration(EVENTS, head.name, head.parameters, " anonymous" if "anonymous" in head.words else "")


def _error(tree: SourceTree, node: Node, scope: Scope) -> Declaration | None:
    head = tree.head(node)
    return Declaration(FUNCTIONS, head.name, head.parameters) if head else None


_DECLARE: dict[str, Callable[[SourceTree, Node, Scope], Declaration | None]] = {
    "function_definition": _function,
    "state_variable_declaration": _getter,
    "event_definition": _event,
    "error_declaration": _error,
}
