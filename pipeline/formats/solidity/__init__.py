"""Solidity sources: every declaration that has a selector or a topic, parsed by tree-sitter-solidity.

Invariants
    Nothing is guessed. A type name that the given sources do not define stays as written, so the
    grammar rejects the text.
    Time and memory grow in proportion to the size of a source, even of a hostile one: nothing recurses,
    a struct inside itself stays a name, and the expansion of structs is bounded (``types.py``). The
    parser takes up to 430 bytes per token, so the number of tokens is bounded (``tokens.py``).

Theory
    A source is parsed once (``syntax.py``) and walked twice: first for definitions (``definitions.py``),
    because a name may be used before it is defined, then for declarations (``declarations.py``).
    Definitions hold text and no nodes of the tree, so other sources can use them.

    The sources of one import are a Project (``project.py``). While the import goes over its inputs, the
    project collects their definitions and keeps their code in a temporary file. When all inputs have
    been seen, it reads their declarations. So memory holds definitions only.

    A name is looked up in its contract and the contracts that this one inherits from, then in the file,
    then in the files that the file imports (``imports.py``). In the ABI a struct is the tuple of its
    members, an enum `uint8`, a contract `address`, a user-defined value type its base type. The
    functions of a library are the exception: solc computes their selectors from the names of structs,
    enums and contracts, and keeps `storage`. Texts with such names are what the grammar calls
    ``library_type``.

    If a source does not parse, the tree has error nodes. They are searched like any other node, and a
    declaration with an error before its body is left out.

Source: the Solidity documentation, "Contract ABI Specification" (Mapping Solidity to ABI types),
"Libraries" (Function Signatures and Selectors in Libraries) and "Contracts" (Getter Functions).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.formats.solidity.declarations import declarations
from sigdir.pipeline.formats.solidity.project import Project
from sigdir.pipeline.formats.solidity.tokens import MAX_TOKENS, has_too_many_tokens
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import ReadTask

__all__ = ["MAX_TOKENS", "Project", "declarations", "has_too_many_tokens", "looks_like", "read"]

_ENDING = re.compile(r"\.sol(\.txt)?(\.(gz|xz|zst|bz2))?\Z", re.IGNORECASE)


def looks_like(source: Source) -> bool:
    """By the file's name alone, because a source may begin with any licence or comment."""
    return _ENDING.search(source.path) is not None


def read(source: Source) -> Iterator[ReadTask]:
    """The candidates of one source that stands alone."""
    with Project() as project:
        project.add(source)
        yield from project.read()
