"""Solidity sources: every declaration that has a selector or a topic, parsed by tree-sitter-solidity.

Invariants
    Nothing is guessed. A type name that the given sources do not define stays as written, so the
    grammar rejects the text.
    Time and memory grow in proportion to the size of a source, even of a hostile one: nothing recurses,
    a struct inside itself stays a name, and the expansion of structs is bounded (``types.py``). The
    parser takes up to 830 bytes per token, so the number of tokens is bounded (``outline.py``).

Theory
    A source is parsed once. ``outline.py`` finds its statements and masks bodies and comments, tree-sitter parses
    the rest (``syntax.py``), and one walk takes definitions (``definitions.py``) and declarations
    (``declarations.py``) with their types as written. Both hold text and no nodes of the tree.

    The sources of one import are a Project (``project.py``), because a name may be defined in another source or
    before it is used. While the import goes over its inputs, the project parses them and keeps their definitions and
    declarations, up to a bound: 1.3 bytes for a byte of real source. When all inputs have been seen, it resolves the
    types.

    A name is looked up in its contract and the contracts that this one inherits from, then in the file,
    then in the files that the file imports (``imports.py``, which has the remappings too). In the ABI a
    struct is the tuple of its members, an enum `uint8`, a contract `address`, a user-defined value type its base
    type, and an array's length the value of its expression (``constants.py``). The functions of a library are the
    exception: solc computes their selectors from the names of structs, enums and contracts, and keeps `storage`.
    They are rejects, ``library_type``.

    A statement that the parser cannot place is a reject, ``syntax``, and loses nothing but itself.

Source: the Solidity documentation, "Contract ABI Specification" (Mapping Solidity to ABI types),
"Libraries" (Function Signatures and Selectors in Libraries) and "Contracts" (Getter Functions).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from sigdir.pipeline.formats.solidity.declarations import declarations
from sigdir.pipeline.formats.solidity.imports import FILES
from sigdir.pipeline.formats.solidity.outline import (
    MAX_POSTED_TOKENS,
    MAX_TOKENS,
    has_too_many_tokens,
    is_too_long_to_post,
)
from sigdir.pipeline.formats.solidity.project import Project, document_project
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import ReadTask

__all__ = [
    "MAX_POSTED_TOKENS", "MAX_TOKENS", "Project", "declarations", "document_project", "has_too_many_tokens",
    "is_too_long_to_post", "looks_like", "read",
]  # fmt: skip


def looks_like(source: Source) -> bool:
    """By the file's name alone, because a source may begin with any licence or comment.

    `remappings.txt` and `foundry.toml` belong to the sources: they say what the imports refer to.
    """
    return source.has_ending(".sol", ".sol.txt") or posixpath.basename(source.path) in FILES


def read(source: Source) -> Iterator[ReadTask]:
    """The candidates of one source that stands alone."""
    project = Project([source.path])
    project.add(source)
    return project.read()
