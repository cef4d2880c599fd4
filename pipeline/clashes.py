"""Clashes: selectors that two texts of some inputs share, or that two parts of one contract both answer.

A contract finds a function by its selector, four bytes of a hash. solc refuses two functions of one selector in a
contract; nothing does where contracts are put together: facets of a diamond, a proxy in front of its implementation, a
router of plugins. There one of the two can never be called, or the wrong one is.

The inputs are imported, as `sigdir import` does, into a warehouse that is removed afterwards, so every format is read,
and the clashes are a query over its sightings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

from sigdir.pipeline.inputs import find
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Options, run_import
from sigdir.warehouse import Warehouse
from sigdir.warehouse.staging.writer import make_warehouse
from sigdir.warehouse.table.paths import Paths

TEXTS, PARTS = "two texts", "two parts"

_DECLARED = """
    SELECT DISTINCT hex_signature, text_signature, kind, file, coalesce(contract, '') AS contract
    FROM sightings WHERE collection = 'signatures' ORDER BY ALL"""


@dataclass(frozen=True, slots=True)
class Declared:
    """A text as one contract, or a file that names no contract, declares it."""

    text: str
    kind: str
    """function, error, or unknown where the input does not say."""
    file: str
    contract: str


@dataclass(frozen=True, slots=True)
class Clash:
    """A selector and all that declare it. ``why`` is TEXTS where the texts differ, else PARTS."""

    selector: str
    why: str
    declared: list[Declared]

    @property
    def texts(self) -> list[str]:
        return sorted({one.text for one in self.declared})


def find_clashes(paths: Sequence[str], together: bool, progress: Reporter) -> tuple[list[Clash], ImportReport]:
    """The clashes in the inputs of these paths, by selector, and what was read.

    With ``together`` the inputs are parts of one contract, so one function in two of them is a clash as well. Raises
    BadInput where nothing can be read.
    """
    sources = find(paths)
    for source in sources:
        # Two files of one name are two contracts. GitHub takes a path from the repository's root.
        source.below = source.label = source.name.removeprefix("./")
    with TemporaryDirectory(prefix="sigdir-clashes-") as folder:
        warehouse = Path(folder) / "warehouse"
        make_warehouse(Paths(warehouse))  # an import would say that it made one
        report = run_import(Options(list(paths), warehouse), progress, sources=sources)
        with Warehouse(warehouse) as opened:
            rows = opened.sql(_DECLARED).rows()
    found = []
    for selector, group in groupby(rows, key=itemgetter(0)):
        clash = _clash(selector, [Declared(*row[1:]) for row in group], together)
        if clash is not None:
            found.append(clash)
    return found, report


def _clash(selector: str, declared: list[Declared], together: bool) -> Clash | None:
    if len({one.text for one in declared}) > 1:
        return Clash(selector, TEXTS, declared)
    functions = [one for one in declared if one.kind != "error"]
    if together and len({(one.file, one.contract) for one in functions}) > 1:
        return Clash(selector, PARTS, functions)
    return None
