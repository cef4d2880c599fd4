"""The Solidity sources of one import, whose types are resolved across all of them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.solidity.declarations import declarations
from sigdir.pipeline.formats.solidity.definitions import Unit, unit_of
from sigdir.pipeline.formats.solidity.imports import linked
from sigdir.pipeline.formats.solidity.syntax import SourceTree
from sigdir.pipeline.formats.solidity.tokens import MAX_TOKENS, has_too_many_tokens
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, ReadTask, pack


class Project(AbstractContextManager["Project"]):
    """Takes all sources, then yields the candidates of each."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._waiting: list[tuple[int, str, int]] = []  # number, path, size
        self._codes = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the project

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._codes.close()

    def add(self, source: Source) -> None:
        """Keep the definitions of an open source in memory and its code in a temporary file."""
        code, path = source.read_all("Solidity source"), os.path.abspath(source.path)
        if has_too_many_tokens(code):
            raise BadInput(source.name, f"a Solidity source of over {MAX_TOKENS:,} words and marks")
        self._units[path] = unit_of(SourceTree(code), path)
        self._codes.write(code)
        self._waiting.append((source.number, path, len(code)))

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all sources, in the order of ``add``."""
        files = linked(self._units)
        self._codes.seek(0)
        for number, path, size in self._waiting:
            yield partial(_read_code, self._codes.read(size), number, files, path)


def _read_code(code: bytes, number: int, files: Mapping[str, Unit], path: str) -> Iterator[Candidates]:
    return pack(declarations(code, files, path), number)
