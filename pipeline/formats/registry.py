"""The table of the formats, in the order in which an input is tried against them.

To add a format, write a module with ``looks_like(source)`` and ``read(source)``, and add one line to FORMATS.
A format whose inputs refer to each other (Solidity) has a MultiSourceReader as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from sigdir.pipeline.archive import is_archive
from sigdir.pipeline.errors import BadInput, BrokenJSON
from sigdir.pipeline.formats import (
    abi,
    csv,
    foundry_cache,
    hash_map,
    huff,
    javascript,
    json_contracts,
    openchain,
    panoramix,
    parquet,
    rows,
    rust,
    selector_table,
    solc_hashes,
    solidity,
    sourcify,
    sqlite,
    text,
    tree,
    typechain,
    vyper,
)
from sigdir.pipeline.source import STDIN, Source
from sigdir.pipeline.unread import NAME, NESTED_ARCHIVE, UNKNOWN_FORMAT
from sigdir.signatures.candidates import ReadTask
from sigdir.warehouse.sql.scratch import ScratchTables


class MultiSourceReader(AbstractContextManager[Any], Protocol):
    """Reads the inputs of one format together, after all other inputs."""

    def add(self, source: Source) -> None:
        """Take what is needed from an open source."""

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all added sources, in the order of ``add``."""


@dataclass(frozen=True, slots=True)
class Import:
    """What a MultiSourceReader may use of its import."""

    paths: Sequence[str]
    """The paths that the import was given."""
    make_tables: Callable[[], ScratchTables]
    """Makes tables within the import's memory limit."""


@dataclass(frozen=True, slots=True)
class Format:
    """How to recognise and read one format."""

    name: str
    about: str
    """A description for `sigdir import --help`."""
    looks_like: Callable[[Source], bool]
    """Recognises an open source by its content."""
    read: Callable[[Source], Iterator[ReadTask]]
    """The candidates of an open source."""
    endings: tuple[str, ...] = ()
    """File name endings that decide if no format recognises the content."""
    multi_source: Callable[[Import], MultiSourceReader] | None = None
    """Makes the reader that an import uses in place of ``read``."""
    is_by_line: Callable[[Source], bool] | None = None
    """Whether the lines of an open source can be read in several parts, each by itself; None if they never can."""


def _always(_source: Source) -> bool:
    return True


FORMATS = (
    Format("tree", "a folder of files named by hash, as in 4bytes and topic0", tree.looks_like, tree.read),
    Format("solidity", "Solidity sources; types are resolved across all given sources", solidity.looks_like, solidity.read, (), lambda job: solidity.Project(job.paths)),
    Format("vyper", "Vyper sources and interfaces; types are resolved across all given sources", vyper.looks_like, vyper.read, (), lambda job: vyper.Project(job.paths)),
    Format("sqlite", "SQLite: mythril's signatures, or any table with a column of signatures", sqlite.looks_like, sqlite.read),
    Format("parquet", "the tables of Sourcify v2, joined across all given files", sourcify.looks_like, sourcify.read, (), lambda job: sourcify.SourcifyTables(job.make_tables)),
    Format("parquet", "any other Parquet with a column of signatures", parquet.looks_like, parquet.read, (".parquet",)),
    Format("panoramix", "JSON lines with a selector and an ABI entry", panoramix.looks_like, panoramix.read, is_by_line=_always),
    Format("rows", "rows with a signature, as JSON lines, lists or 4byte.directory's API pages", rows.looks_like, rows.read, (".jsonl", ".ndjson"), is_by_line=rows.is_by_line),
    Format("map", "a JSON object from hash to text, as in 4byte.json", hash_map.looks_like, hash_map.read),
    Format("foundry-cache", "Foundry's signature cache", foundry_cache.looks_like, foundry_cache.read),
    Format("abi", "ABI JSON, or a JSON list of declarations in words", abi.looks_like, abi.read, (".abi",)),
    Format("json", "JSON with ABIs, method identifiers or sources inside: artifacts, build-infos, Etherscan's answers", json_contracts.looks_like, json_contracts.read),
    Format("javascript", "JavaScript, TypeScript and Go with ABIs: TypeChain, wagmi, parseAbi, abigen", javascript.looks_like, javascript.read),
    Format("typechain", "TypeChain's types of contracts in TypeScript", typechain.looks_like, typechain.read),
    Format("rust", "Rust with sol! blocks", rust.looks_like, rust.read),
    Format("huff", "Huff's #define function, event and error", huff.looks_like, huff.read),
    Format("openchain", "lines 0xhash,signature", openchain.looks_like, openchain.read, is_by_line=_always),
    Format("solc-hashes", "the output of solc --hashes", solc_hashes.looks_like, solc_hashes.read),
    Format("table", "the tables of forge inspect and forge selectors list", selector_table.looks_like, selector_table.read),
    Format("csv", "CSV, TSV and the like, with a header or without", csv.looks_like, csv.read, (".csv", ".tsv"), is_by_line=csv.is_by_line),
    Format("text", "one signature or declaration per line", text.looks_like, text.read, (".txt", ".text", ".sig"), is_by_line=_always),
)  # fmt: skip

# Read only with --format, because a few lines of such files may parse as signatures.
_NOT_TEXT = (".yul", ".huff", ".fe", ".cairo", ".md", ".py", ".go", ".rs")
_CODE = (*javascript.ENDINGS, ".rs", ".huff")
_OF_CODE = frozenset(["javascript", "typechain", "rust", "huff"])
_DOCUMENTS = ("", ".txt", ".text")
_NOT_LISTS = frozenset(
    [
        "authors", "changelog", "changes", "cmakelists", "codeowners", "contributing", "contributors", "copying",
        "copyright", "install", "licence", "license", "notice", "patents", "readme", "requirements",
        "robots", "security", "third-party-notices", "todo", "version",
    ]
)  # fmt: skip
"""Documents and settings of projects, by their names without `.txt`."""
_JSON = (".json", ".jsonl", ".ndjson", ".abi")


def skip_reason(source: Source) -> str:
    """Why ``detect`` finds no format for an open source that was found in a folder or an archive."""
    if is_archive(source):
        return NESTED_ARCHIVE
    return NAME if _has_other_name(source) else UNKNOWN_FORMAT


def by_name(name: str) -> Format | None:
    """The format of a name; of two that share it the one that reads any input alone."""
    return next((format for format in reversed(FORMATS) if format.name == name), None)


def named(name: str, source: Source) -> Format:
    """The format of a name for an open source."""
    *special, usual = (format for format in FORMATS if format.name == name)
    return next((format for format in special if format.looks_like(source)), usual)


def detect(source: Source) -> Format | None:
    """The format of an open source, by its content, then by its name; None if no format matches.

    Raises BadInput for broken JSON and for UTF-16.
    """
    name = source.unpacked_name
    if is_archive(source):
        return None
    if name.endswith(_CODE):  # never anything else
        return next((format for format in FORMATS if format.name in _OF_CODE and format.looks_like(source)), None)
    if _has_other_name(source):
        return None
    if source.head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(source.name, "UTF-16 text; write it as UTF-8")
    try:
        for format in FORMATS:
            if format.looks_like(source):
                return format
    except BrokenJSON:  # a file in a folder may begin like JSON and be something else
        if source.explicit or name.endswith(_JSON):
            raise
        return None
    for format in FORMATS:
        if format.endings and name.endswith(format.endings) and (source.explicit or _may_be_damaged(source, format)):
            return format
    return by_name("text") if source.path == STDIN else None


def _may_be_damaged(source: Source, format: Format) -> bool:
    """Whether a file of a folder may be of a format that its content is not clearly of. Prose and tables of other things
    are as common as lists, CSV and JSON lines. If the user named the file, the reader reports what is wrong with it.
    """
    return format.name not in ("csv", "rows") and (format.name != "text" or text.has_signature(source))


def _has_other_name(source: Source) -> bool:
    """Whether the file's name says that it holds no signatures."""
    stem, ending = os.path.splitext(os.path.basename(source.unpacked_name))
    return ending in _NOT_TEXT or (ending in _DOCUMENTS and stem in _NOT_LISTS)
