"""Solidity sources: every declaration that has a selector or a topic.

Invariants
    Nothing is guessed. A type name that the given sources do not define stays as written, so the
    grammar rejects the text.
    Time and memory grow in proportion to the size of a source, even of a hostile one: nothing recurses but mappings,
    a struct inside itself stays a name, and the expansion of structs is bounded (``types.py``), as is the number of
    words (``statements.py``).

Theory
    A source is read once. ``statements.py`` cuts it into statements without comments and bodies, which are most of it, and
    ``source_unit.py`` takes their definitions, imports and declarations with types as written.

    The sources of one import are a ``Project``, because a name may be defined in another source or
    before it is used. While the import goes over its inputs, the project reads them and keeps their definitions and
    declarations, up to a bound: 1.3 bytes for a byte of real source. When all inputs have been seen, it resolves the
    types.

    A name is looked up in its contract and the contracts that this one inherits from, then in the file,
    then in the files that the file imports (``imports.py``, which has the remappings too). In the ABI a
    struct is the tuple of its members, an enum `uint8`, a contract `address`, a user-defined value type its base
    type, and an array's length the value of its expression (``constants.py``). The functions of a library are the
    exception: solc computes their selectors from the names of structs, enums and contracts, and keeps `storage`.
    They are rejects, ``library_type``.

    A statement that cannot be read is a reject, ``syntax``, and loses nothing but itself.

Source: the Solidity documentation, "Contract ABI Specification" (Mapping Solidity to ABI types),
"Libraries" (Function Signatures and Selectors in Libraries) and "Contracts" (Getter Functions).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.contracts import absolute_path, path_below
from sigdir.pipeline.formats.solidity.imports import (
    FILES,
    Remapping,
    by_folder,
    linked,
    parse_remapping,
    parsed_remappings,
)
from sigdir.pipeline.formats.solidity.source_unit import Declaration, Import, ParsedSource, Unit, parsed
from sigdir.pipeline.formats.solidity.statements import ENCODING, MAX_TOKENS, has_too_many_tokens
from sigdir.pipeline.formats.solidity.types import TypeResolver
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Entry, ReadTask, pack
from sigdir.signatures.evidence import LISTED, Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import IMPORT_NOT_FOUND, MAX_TEXT_BYTES, OK, SYNTAX

__all__ = [
    "MAX_TOKENS", "Project", "declarations", "has_too_many_tokens", "looks_like",
]  # fmt: skip


def looks_like(source: Source) -> bool:
    """By the file's name alone, because a source may begin with any licence or comment.

    `remappings.txt` and `foundry.toml` belong to the sources: they say what the imports refer to.
    """
    return source.has_ending(".sol", ".sol.txt") or posixpath.basename(source.path) in FILES


MAX_KEPT = 2 << 30
"""About how many bytes of memory a project takes: for 1.2 GB of real sources, or 30 MB that are made to take it."""
_ITEM = 192
"""The bytes that a declaration, a definition, an import, or a part of one takes."""
_MOST_REMAPPING_BYTES = 1 << 20
"""The largest file with remappings. Real ones have some KB."""


class Project:
    """Takes all sources, then yields the candidates of each. What it keeps of them is bounded: see MAX_KEPT."""

    def __init__(self, roots: Sequence[str] = (), document: str | None = None, remappings: Iterable[str] = ()) -> None:
        """``roots`` are the paths that the import was given. ``document`` is the path of a JSON document whose sources
        these are, by the names that the compiler knew; ``remappings`` are those that it states.
        """
        self._roots = [absolute_path(root) for root in roots]
        self._document = absolute_path(document) if document is not None else None
        self._units: dict[str, Unit] = {}
        self._remappings: dict[str, dict[str, list[Remapping]]] = {}  # by folder, then by file name
        if self._document is not None:
            self._remappings[self._document] = {"": list(filter(None, map(parse_remapping, remappings)))}
        self._waiting: list[tuple[int, str, ParsedSource]] = []
        """The import's number of each source, its path, and what it declares."""
        self._kept = 0
        """About how many bytes of memory all that takes."""

    def add(self, source: Source) -> None:
        """Parse an open source, or take the remappings of an open `remappings.txt` or `foundry.toml`. Raises BadInput for a
        source that is too large, or that comes when MAX_KEPT is reached.
        """
        code, path = source.read_all("Solidity source"), absolute_path(source.path)
        if self._kept > MAX_KEPT:
            raise BadInput(source.name, "the Solidity sources before it fill the memory for them; import fewer at once")
        if posixpath.basename(path) in FILES:
            self._add_remappings(source, path, code)
            return
        if has_too_many_tokens(code):
            raise BadInput(source.name, f"a Solidity source of over {MAX_TOKENS:,} words and marks")
        self.add_code(source.number, path, code)

    def add_code(self, number: int, path: str, code: bytes, contract: str = "") -> None:
        """Parse a source of at most MAX_TOKENS. ``number`` is the import's number for the input that holds it, ``contract``
        that of functions that stand in none.
        """
        source = parsed(code, path, contract)
        self._units[path] = source.unit
        self._keep(number, path, source)

    def _keep(self, number: int, path: str, source: ParsedSource) -> None:
        self._waiting.append((number, path, source))
        self._kept += source.size + _ITEM * _count_items(source)

    def _add_remappings(self, source: Source, path: str, content: bytes) -> None:
        """Take the remappings of a file. A line that is none is a reject."""
        folder, name = posixpath.split(path)
        if len(content) > _MOST_REMAPPING_BYTES:
            raise BadInput(source.name, f"a {name} of over {_MOST_REMAPPING_BYTES >> 20} MiB")
        found, broken = parsed_remappings(name, content)
        rejects = [Declaration(Kind.UNKNOWN, line, line=number, reason=SYNTAX) for number, line in broken]
        self._remappings.setdefault(folder, {})[name] = found
        self._keep(source.number, path, ParsedSource(Unit({}, []), rejects, len(content)))
        self._kept += _ITEM * len(found)

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all sources, in the order of ``add``."""
        files = linked(self._units, by_folder(self._remappings), self._roots, self._document)
        for number, path, source in self._waiting:
            missing, shown = files.missing.get(path, []), path_below(path, self._roots, self._document)
            yield partial(pack, chain(map(_not_found, missing), _entries(source, files.units, path, shown)), number)


def _count_items(source: ParsedSource) -> int:
    """The declarations, definitions and imports of a source with their parts, and one for the source."""
    declared = sum(1 + len(one.parameters) + len(one.returns) for one in source.declared)
    defined = sum(1 + len(one.members) + len(one.bases) for one in source.unit.definitions.values())
    return 1 + declared + defined + sum(1 + len(one.names or ()) for one in source.unit.imports)


def _not_found(imported: Import) -> Entry:
    text = f'import "{imported.path}"'.encode(*ENCODING)[: MAX_TEXT_BYTES + 1]
    return Entry(text, imported.line, reject_reason=IMPORT_NOT_FOUND)


def declarations(code: bytes, shown: str = "") -> Iterator[Entry]:
    """The functions, getters, events and errors of a source that stands alone, in its order. ``shown`` is the path by
    which its contracts are known; without one they are not.

    Its imports are unknown. A statement that cannot be read is an entry with a reject reason.
    """
    source = parsed(code)
    return _entries(source, {"": Unit(source.unit.definitions, [])}, "", shown)


def _entries(source: ParsedSource, files: Mapping[str, Unit], path: str, shown: str = "") -> Iterator[Entry]:
    """The candidates of a parsed source. ``files`` has all sources by path, with their imports resolved; ``shown`` is the
    path by which its contracts are known.
    """
    types = TypeResolver(files, path, (1 << 20) + 8 * source.size)
    for one in source.declared:
        text, reason, sighting = one.name, one.reason, LISTED
        if reason == OK:
            text, reason = _text(one, types)
            contract = Contract.at(shown, one.contract) if one.contract and shown else None
            sighting = Sighting(one.kind, Witness.DECLARED, contract=contract)
        # One byte over the limit is enough for the grammar to reject it as too long.
        raw = text.encode(*ENCODING)[: MAX_TEXT_BYTES + 1]
        yield Entry(raw, one.line, one.kind.collection, b"", reason, sighting)


def _text(one: Declaration, types: TypeResolver) -> tuple[str, int]:
    """A declaration in words, with the names of parameters and of structs' members, and its reject reason."""
    parameters, reason = types.parameter_list(one.parameters, one.contract, one.by_name)
    text = f"{one.kind.name.lower()} {one.name}({parameters}){one.tail}"
    if one.is_getter:
        text += f" returns ({types.value_of_getter(one.returns[0], one.contract)})"
    elif one.returns:
        text += f" returns ({types.parameter_list(one.returns, one.contract, by_name=False).text})"
    return text, reason
