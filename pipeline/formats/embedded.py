"""Sources that lie inside a document: they are read as one project, by the reader of their language.

Each is an input of that reader, with a path below the document's, so that imports resolve among them and no file
on disk is opened. Its lines are a section of the document, so a reject names the source and the line.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from io import BytesIO

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats import solidity, vyper
from sigdir.pipeline.formats.json_search import Sources
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, ReadTask, pack

_READERS: dict[str, Callable[[str, Iterable[str]], solidity.Project | vyper.Project]] = {
    "Solidity": solidity.document_project,
    "Vyper": vyper.document_project,
}
_ENDINGS = {".sol": "Solidity", ".vy": "Vyper", ".vyi": "Vyper"}


def read_sources(sources: Sources, document: Source) -> Iterator[ReadTask]:
    """The candidates of sources found in an open document. A source that cannot be read is one reject."""
    first_numbers: list[int] = []
    with ExitStack() as stack:
        readers: dict[str, solidity.Project | vyper.Project] = {}
        for path, text in sources.texts.items():
            name = f"{document.name}:{printable(path)}"
            before = document.sections.add(name, text.count("\n") + 1)
            language = _ENDINGS.get(posixpath.splitext(path)[1].lower(), sources.language)
            if language not in _READERS:
                yield from pack([rejected_entry({"path": path, "language": language}, before + 1)], document.number)
                continue
            if language not in readers:
                project = readers[language] = _READERS[language](document.path, sources.remappings)
                stack.push(project)
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
