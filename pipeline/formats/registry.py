"""The formats, in the order in which an input is tried against them.

A new format is a module with ``looks_like(source)`` and ``read(source)``, and a line here. One whose
inputs need each other has a MultiSourceReader as well, which reads them all behind all others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sigdir.pipeline.archive import is_archive
from sigdir.pipeline.errors import BadInput, BrokenJSON
from sigdir.pipeline.formats import (
    abi,
    artifact,
    etherface,
    foundry_cache,
    hash_map,
    openchain,
    panoramix,
    parquet,
    rows,
    solc_hashes,
    solidity,
    sqlite,
    standard_json,
    text,
    tree,
)
from sigdir.pipeline.formats import (
    csv_rows as tabular,
)
from sigdir.pipeline.source import STDIN, Source
from sigdir.signatures.candidates import ReadTask


class MultiSourceReader(AbstractContextManager[Any], Protocol):
    """Inputs that are read together."""

    def add(self, source: Source) -> None:
        """Take what is needed of an open source."""

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all that were added, in that order."""


@dataclass(frozen=True, slots=True)
class Format:
    """``looks_like`` judges by content; where no format claims an input, its name's ending does."""

    name: str
    about: str
    looks_like: Callable[[Source], bool]
    read: Callable[[Source], Iterator[ReadTask]]
    endings: tuple[str, ...] = ()
    together: Callable[[], MultiSourceReader] | None = None


FORMATS = (
    Format("tree", "a folder of files named by their hash (4bytes, topic0)", tree.looks_like, tree.read),
    Format("solidity", "Solidity sources, types resolved through all that are given", solidity.looks_like, solidity.read, (), solidity.Project),
    Format("sqlite", "SQLite: mythril's signatures, or a text_signature column", sqlite.looks_like, sqlite.read),
    Format("parquet", "Parquet: Sourcify v2, or a text_signature column", parquet.looks_like, parquet.read, (".parquet",)),
    Format("panoramix", "JSON lines of a selector and an ABI entry", panoramix.looks_like, panoramix.read),
    Format("rows", "4byte.directory rows: JSON lines, pages", rows.looks_like, rows.read, (".jsonl", ".ndjson")),
    Format("map", "a JSON object from hash to text (4byte.json)", hash_map.looks_like, hash_map.read),
    Format("foundry-cache", "Foundry's cache of signatures", foundry_cache.looks_like, foundry_cache.read),
    Format("standard-json", "solc's standard JSON output", standard_json.looks_like, standard_json.read),
    Format("artifact", "Hardhat, Truffle and Foundry artifacts", artifact.looks_like, artifact.read),
    Format("abi", "ABI JSON", abi.looks_like, abi.read, (".abi",)),
    Format("openchain", "lines 0xhash,signature", openchain.looks_like, openchain.read),
    Format("solc-hashes", "what solc --hashes prints", solc_hashes.looks_like, solc_hashes.read),
    Format("etherface", "Etherface's CSV: text, hash", etherface.looks_like, etherface.read),
    Format("csv", "CSV with a header", tabular.looks_like, tabular.read, (".csv",)),
    Format("text", "one signature or declaration a line", text.looks_like, text.read, (".txt", ".text", ".sig")),
)  # fmt: skip

# Known for what they are, and not read as plain text because a few of their lines parse.
_NOT_TEXT = (".vy", ".md", ".py", ".js", ".ts", ".go", ".rs")
_JSON = (".json", ".jsonl", ".ndjson", ".abi")
_PACKED = (".gz", ".xz", ".zst", ".bz2")


def by_name(name: str) -> Format | None:
    return next((format for format in FORMATS if format.name == name), None)


def detect(source: Source) -> Format | None:
    """The format of an open source: by content, then by name; None where no format claims it.

    Raises BadInput for what is clearly JSON but broken.
    """
    name = source.path.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    if os.path.splitext(name)[1] in _NOT_TEXT or is_archive(source):  # one inside of another
        return None
    if source.head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(source.name, "UTF-16 text; write it as UTF-8")
    try:
        for format in FORMATS:
            if format.looks_like(source):
                return format
    except BrokenJSON:  # in a folder, what only begins like JSON is some other file
        if source.asked or name.endswith(_JSON):
            raise
        return None
    for format in FORMATS:
        # A folder may hold CSV of other things; asked for, one gets the error that names the columns.
        if format.endings and name.endswith(format.endings) and (source.asked or format.name != "csv"):
            return format
    return by_name("text") if source.path == STDIN else None
