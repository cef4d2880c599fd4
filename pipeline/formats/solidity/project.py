"""The Solidity sources of one import, whose types are resolved across all of them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.contracts import absolute_path, path_below
from sigdir.pipeline.formats.solidity.declarations import Declaration, ParsedSource, entries, parsed
from sigdir.pipeline.formats.solidity.definitions import Import, Unit
from sigdir.pipeline.formats.solidity.imports import linked
from sigdir.pipeline.formats.solidity.outline import MAX_TOKENS, has_too_many_tokens
from sigdir.pipeline.formats.solidity.remappings import FILES, Remapping, by_folder, parse_remapping, parsed_remappings
from sigdir.pipeline.formats.solidity.syntax import ENCODING
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, ReadTask, pack
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import IMPORT_NOT_FOUND, MAX_TEXT_BYTES, SYNTAX


class Project:
    """Takes all sources, then yields the candidates of each."""

    def __init__(self, roots: Sequence[str] = (), document: str | None = None) -> None:
        """``roots`` are the paths that the import was given. ``document`` is the path of a JSON document whose sources
        these are, by the names that the compiler knew.
        """
        self._roots = [absolute_path(root) for root in roots]
        self._document = absolute_path(document) if document is not None else None
        self._units: dict[str, Unit] = {}
        self._remappings: dict[str, dict[str, list[Remapping]]] = {}  # by folder, then by file name
        self._waiting: list[tuple[int, str, ParsedSource]] = []
        """The import's number of each source, its path, and what it declares."""

    def add(self, source: Source) -> None:
        """Parse an open source, or take the remappings of an open `remappings.txt` or `foundry.toml`."""
        code, path = source.read_all("Solidity source"), absolute_path(source.path)
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
        self._waiting.append((number, path, source))

    def add_remappings(self, folder: str, remappings: Iterable[str]) -> None:
        """Take remappings as written, `context:prefix=target`, with paths relative to ``folder``."""
        found = list(filter(None, map(parse_remapping, remappings)))
        self._remappings.setdefault(absolute_path(folder), {})[""] = found

    def _add_remappings(self, source: Source, path: str, content: bytes) -> None:
        """Take the remappings of a file. A line that is none is a reject."""
        folder, name = posixpath.split(path)
        found, broken = parsed_remappings(name, content)
        rejects = [Declaration(Kind.UNKNOWN, line, [], line=number, reason=SYNTAX) for number, line in broken]
        self._remappings.setdefault(folder, {})[name] = found
        self._waiting.append((source.number, path, ParsedSource(Unit({}, []), rejects, 0)))

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all sources, in the order of ``add``."""
        files = linked(self._units, by_folder(self._remappings), self._roots, self._document)
        for number, path, source in self._waiting:
            missing, shown = files.missing.get(path, []), path_below(path, self._roots, self._document)
            yield partial(_read, source, number, files.units, path, missing, shown)


def _read(
    source: ParsedSource, number: int, files: Mapping[str, Unit], path: str, missing: Sequence[Import], shown: str
) -> Iterator[Candidates]:
    return pack(chain(map(_not_found, missing), entries(source, files, path, shown)), number)


def _not_found(imported: Import) -> Entry:
    text = f'import "{imported.path}"'.encode(*ENCODING)[: MAX_TEXT_BYTES + 1]
    return Entry(text, imported.line, reject_reason=IMPORT_NOT_FOUND)


def document_project(document: str, remappings: Iterable[str]) -> Project:
    """The project of the sources inside a JSON document, with the remappings that the document states."""
    project = Project([document], document)
    project.add_remappings(document, remappings)
    return project
