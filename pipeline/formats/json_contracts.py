"""JSON with ABIs, identifiers or sources anywhere inside: one document, or one value a line.

Build-infos of Hardhat and Foundry, artifacts, standard JSON input and output, combined JSON, metadata, Etherscan's
answers, deployments, manifests, lists and maps of ABIs: ``json_search.py`` finds what they hold.
A candidate that stands in a document twice is counted twice.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import chain
from typing import Any

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats import solidity, vyper
from sigdir.pipeline.formats.contracts import contract_of_file
from sigdir.pipeline.formats.json_reader import first_values, is_document, is_json, values_of
from sigdir.pipeline.formats.json_search import Entries, Finding, Sources, search
from sigdir.pipeline.formats.runtime_code import CodeChecker
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import BATCH_ROWS, Candidates, Entry, ReadTask, pack
from sigdir.signatures.evidence import Contract

_SAMPLE_LINES = 8


def looks_like(source: Source) -> bool:
    if not is_json(source):
        return False
    values = [source.document()] if is_document(source) else first_values(source, _SAMPLE_LINES)
    return any(holds_something(source, value) for value in values)


def holds_something(source: Source, value: Any) -> bool:
    """Whether a JSON value holds an ABI, identifiers or sources."""
    return next(search(source.name, value), None) is not None


def read(source: Source) -> Iterator[ReadTask]:
    if is_document(source):
        return read_value(source, source.document(), contract_of_file(source))
    return _tasks(source, _of_lines(source, CodeChecker(source.bytecode)))


def read_value(source: Source, value: Any, contract: Contract | None = None) -> Iterator[ReadTask]:
    """The candidates of a value, numbered through all of it, then those of the sources inside. Raises BadInput.

    ``contract`` is the one whose ABI the value is if nothing in it names another.
    """
    findings = search(source.name, value, source.below, contract)
    first = next(findings, None)
    if first is None:
        raise BadInput(source.name, "no ABI, no identifiers and no sources inside")
    return _tasks(source, _of_value(chain([first], findings), CodeChecker(source.bytecode)))


def _of_value(findings: Iterable[Finding], checker: CodeChecker) -> Iterator[list[Entry] | Sources]:
    before = 0
    for finding in findings:
        if isinstance(finding, Sources):
            yield finding
        else:
            yield [entry._replace(line=before + entry.line) for entry in _checked(finding, checker)]
            before += finding.size


def _checked(finding: Entries, checker: CodeChecker) -> Iterable[Entry]:
    return finding.candidates if finding.holder is None else checker.check(finding.candidates, finding.holder)


def _of_lines(source: Source, checker: CodeChecker) -> Iterator[list[Entry] | Sources]:
    for number, value in values_of(source.lines()):
        if isinstance(value, Entry):
            yield [value]
            continue
        finding = None
        for finding in search(source.name, value, source.below):
            if isinstance(finding, Sources):
                yield finding
            else:
                yield [entry._replace(line=number) for entry in _checked(finding, checker)]
        if finding is None:
            yield [rejected_entry(value, number)]


def _tasks(source: Source, findings: Iterable[list[Entry] | Sources]) -> Iterator[ReadTask]:
    held: list[Entry] = []
    for finding in findings:
        if isinstance(finding, Sources):
            yield from _read_sources(finding, source)
            continue
        held += finding
        if len(held) >= BATCH_ROWS:
            yield from pack(held, source.number)
            held = []
    yield from pack(held, source.number)


# Sources inside: each is an input of the reader of its language, with a path below the document's, so that imports resolve
# among them and no file on disk is opened. Its lines are a section of the document, so a reject names the source and the line.

_READERS: dict[str, Callable[[str, Iterable[str]], solidity.Project | vyper.Project]] = {
    "Solidity": solidity.document_project,
    "Vyper": vyper.document_project,
}
_ENDINGS = {".sol": "Solidity", ".vy": "Vyper", ".vyi": "Vyper"}


def _read_sources(sources: Sources, document: Source) -> Iterator[ReadTask]:
    """The candidates of sources found in an open document. A source that cannot be read is one reject."""
    first_numbers: list[int] = []
    readers: dict[str, solidity.Project | vyper.Project] = {}
    for path, text in sources.texts.items():
        name = f"{document.name}:{printable(path)}"
        before = document.sections.add(name, text.count("\n") + 1)
        language = _ENDINGS.get(posixpath.splitext(path)[1].lower(), sources.language)
        if language not in _READERS:
            yield from pack([rejected_entry({"path": path, "language": language}, before + 1)], document.number)
            continue
        if language not in readers:
            readers[language] = _READERS[language](document.path, sources.remappings)
        source = _inner(document, path, name, text)
        source.number = len(first_numbers)
        first_numbers.append(before)
        try:
            with source.open(lambda _: None):
                readers[language].add(source)
        except BadInput:
            yield from pack([rejected_entry({"path": path, "bytes": source.size}, before + 1)], document.number)
    for reader in readers.values():
        for task in reader.read():
            yield partial(_moved, task, document.number, first_numbers)


def _inner(document: Source, path: str, name: str, text: str) -> Source:
    """A source as an input of its own. Its path stays below the document's, whatever it is."""
    below = posixpath.normpath("/" + path).lstrip("/")
    code = encoded(text)
    return Source(posixpath.join(document.path, below), False, name, len(code), partial(BytesIO, code))


def _moved(task: ReadTask, number: int, first_numbers: list[int]) -> Iterator[Candidates]:
    """Candidates of a source as candidates of the document."""
    batches = [task] if isinstance(task, Candidates) else task()
    for batch in batches:
        yield replace(batch, file=number, lines=batch.lines + first_numbers[batch.file])
