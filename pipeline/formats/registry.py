"""The table of the formats, in the order in which an input is tried against them.

CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sigdir.pipeline.archive import is_archive
from sigdir.pipeline.errors import BadInput, BrokenJSON
from sigdir.pipeline.formats import (
    abi,
    clear_signing,
    csv,
    deployments,
    hash_lines,
    huff,
    javascript,
    json_contracts,
    json_lists,
    panoramix,
    parquet,
    rows,
    rust,
    selector_table,
    solidity,
    sourcify,
    sqlite,
    text,
    vyper,
)
from sigdir.pipeline.formats.contracts import contract_of_file
from sigdir.pipeline.formats.json_reader import DocumentShape
from sigdir.pipeline.report import NAME, NESTED_ARCHIVE, UNKNOWN_FORMAT
from sigdir.pipeline.source import STDIN, Source
from sigdir.signatures.candidates import Entry, ReadTask

if TYPE_CHECKING:
    from sigdir.warehouse.sql.scratch import ScratchTables


class MultiSourceReader(Protocol):
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
    """Makes tables within the import's memory limit, which end with it."""
    refuse: Callable[[int, BadInput], None]
    """Notes that the input of this number, which the user did not name, cannot be read; raises it if that ends the import."""


@dataclass(frozen=True, slots=True)
class Format:
    """How to recognise and read one format. Its sentences make the table of docs/formats.md."""

    name: str
    about: str
    """A description, also for `sigdir import --help`."""
    details: str
    """What else there is to say."""
    collection: str
    """What determines the collection of a candidate."""
    looks_like: Callable[[Source], bool]
    """Recognises an open source by its content."""
    read: Callable[[Source], Iterator[ReadTask]] | None
    """The candidates of an open source; None where ``multi_source`` makes their reader."""
    endings: tuple[str, ...] = ()
    """File name endings that decide if no format recognises the content."""
    multi_source: Callable[[Import], MultiSourceReader] | None = None
    """Makes the reader of all inputs together."""
    is_by_line: Callable[[Source], bool] | None = None
    """Whether the lines of an open source can be read in several parts, each by itself; None if they never can."""


def _packed(entries: Callable[[Source], Iterable[Entry]]) -> Callable[[Source], Iterator[ReadTask]]:
    """The ``read`` of a format that gives its candidates one by one."""
    return lambda source: source.batches(entries(source))


def _always(_source: Source) -> bool:
    return True


_BY_HASH = "the length of the hash"
_BY_COLUMN = f"{_BY_HASH}; a column `kind` or `type`"
_BY_DECLARATION = "the declaration"
_BY_TYPE = "the entry's `type`, the length of the hash, or the declaration"

_MAP = DocumentShape(
    "object from hash to text", json_lists.is_map, lambda document: isinstance(document, dict),
    lambda document, _source: json_lists.entries(json_lists.map_items(document)),
)  # fmt: skip
_FOUNDRY_CACHE = DocumentShape(
    "object of functions, errors and events", json_lists.is_foundry_cache, json_lists.is_foundry_cache,
    lambda document, _source: json_lists.foundry_entries(document),
)  # fmt: skip
_ABI = DocumentShape(
    "list of ABI entries", abi.is_abi, lambda document: isinstance(document, list),
    lambda document, source: abi.entries_of(document, contract_of_file(source)),
)  # fmt: skip

FORMATS = (
    Format(
        "tree", "a folder of files named by hash, as in ethereum-lists/4bytes and topic0",
        "a name has 8 or 64 hex digits, a file `sig` or `sig;sig`; their `with_parameter_names/` too",
        "the length of the name", hash_lines.is_tree, _packed(hash_lines.tree_entries),
    ),
    Format(
        "solidity", "Solidity sources; types are resolved across all given sources",
        "by the ending `.sol` or `.sol.txt`: functions and getters with a selector, events, errors; `remappings.txt` and"
        " `foundry.toml` say what their imports refer to",
        _BY_DECLARATION, solidity.looks_like, None, (), lambda job: solidity.Project(job.paths),
    ),
    Format(
        "vyper", "Vyper sources and interfaces; types are resolved across all given sources",
        "by the endings `.vy` and `.vyi`: external functions with their variants without default arguments, getters,"
        " events, functions of interfaces",
        _BY_DECLARATION, vyper.looks_like, None, (), lambda job: vyper.Project(job.paths),
    ),
    Format(
        "sqlite", "SQLite: mythril's signatures, or any table with a column of signatures", "see below",
        _BY_COLUMN, sqlite.looks_like, _packed(sqlite.entries),
    ),
    Format(
        "parquet", "the tables of Sourcify v2, joined across all given files",
        "`signatures`, `compiled_contracts_signatures`, `contract_deployments`, `verified_contracts`",
        "`signature_type` if both tables are there, else the length of the hash", sourcify.looks_like,
        None, (), lambda job: sourcify.SourcifyTables(job.make_tables),
    ),
    Format(
        "deployments", "a table of contracts: Parquet, CSV or JSON lines",
        "`address`, perhaps `chain`, and `code_hash`, `implementation`, `selectors`, `abi` or a text; see below",
        f"{_BY_HASH} beside a text", deployments.looks_like, deployments.read,
    ),
    Format(
        "parquet", "any other Parquet with a column of signatures", "see below",
        _BY_COLUMN, parquet.looks_like, _packed(parquet.entries), (".parquet",),
    ),
    Format(
        "panoramix", "JSON lines with a selector and an ABI entry", "`selector` and `abi`, one entry",
        "the entry's `type`; a function if it has none", panoramix.looks_like, _packed(panoramix.entries), is_by_line=_always,
    ),
    Format(
        "rows", "rows with a signature, as JSON lines, lists or 4byte.directory's API pages", "see below",
        _BY_COLUMN, rows.looks_like, _packed(rows.entries), (".jsonl", ".ndjson"), is_by_line=rows.is_by_line,
    ),
    Format(
        "clear-signing", "descriptors for clear signing, ERC-7730, with their includes",
        "`display.formats` of contracts: each function with its names, its intent and the labels of its fields; those for"
        " EIP-712 messages have none",
        "always functions", clear_signing.looks_like, None, (), lambda job: clear_signing.Descriptors(job.refuse),
    ),
    Format(
        "map", "a JSON object from hash to text, as in 4byte.json", "or to a list of texts; maps of topics too",
        "the length of the key", _MAP.looks_like, _packed(_MAP.entries),
    ),
    Format(
        "foundry-cache", "Foundry's signature cache",
        "`~/.foundry/cache/signatures`: functions, errors and events, each from 0x hash to text; an empty text is not a"
        " candidate",
        "the section", _FOUNDRY_CACHE.looks_like, _packed(_FOUNDRY_CACHE.entries),
    ),
    Format(
        "abi", "ABI JSON, or a JSON list of declarations in words", "those of ethers and viem, with viem's structs",
        "the entry's `type`, or the keyword", _ABI.looks_like, _packed(_ABI.entries), (".abi",),
    ),
    Format(
        "json", "JSON with ABIs, method identifiers or sources inside: artifacts, build-infos, Etherscan's answers",
        "one document or JSON lines, with maps of hashes too: standard and combined JSON, metadata, answers of OpenChain,"
        " deployments, manifests",
        _BY_TYPE, json_contracts.looks_like, json_contracts.read,
    ),
    Format(
        "javascript", "JavaScript, TypeScript and Go with ABIs: TypeChain, wagmi, parseAbi, abigen",
        "by the ending, with ABIs written out: TypeChain's factories, `parseAbi([...])`, `as const` lists, abigen's bindings",
        _BY_TYPE, javascript.looks_like, javascript.read,
    ),
    Format(
        "typechain", "TypeChain's types of contracts in TypeScript",
        "`.ts` and `.d.ts` that name functions and events by their texts",
        "function or event, as written", javascript.has_types, _packed(javascript.type_entries),
    ),
    Format(
        "rust", "Rust with sol! blocks", "alloy's `sol! { ... }` or `sol_interface!`, read as Solidity",
        _BY_DECLARATION, rust.looks_like, rust.read,
    ),
    Format(
        "huff", "Huff's #define function, event and error", "", "the keyword", huff.looks_like, _packed(huff.entries),
    ),
    Format(
        "openchain", "lines 0xhash,signature", "OpenChain's export; commas in the signature need no quotes",
        _BY_HASH, hash_lines.is_openchain, _packed(hash_lines.openchain_entries), is_by_line=_always,
    ),
    Format(
        "solc-hashes", "the output of solc --hashes", "lines `hash: signature` under headings",
        _BY_HASH, hash_lines.is_solc_hashes, _packed(hash_lines.solc_entries),
    ),
    Format(
        "table", "the tables of forge inspect and forge selectors list", "those of `forge selectors collision` too",
        "the column `Type`, else the length of the hash", selector_table.looks_like, _packed(selector_table.entries),
    ),
    Format(
        "csv", "CSV, TSV and the like, with a header or without",
        "a header above a column of signatures, or lines of a hash and a text: see below",
        _BY_COLUMN, csv.looks_like, _packed(csv.entries), (".csv", ".tsv"), is_by_line=csv.is_by_line,
    ),
    Format(
        "text", "one signature or declaration per line",
        "blank lines and comments, `#`, `//` and `/* */`, are skipped",
        "the keyword; else `indexed` or `anonymous`", text.looks_like, text.read, (".txt", ".text", ".sig"),
        is_by_line=_always,
    ),
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
