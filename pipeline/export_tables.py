"""Parquet of what SQL answers: a dataset for hubs, declarations for pipelines. And the ABI of chosen texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection, parse_hash
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import parse_declaration
from sigdir.warehouse import Warehouse


def write_parquet(
    schema: pa.Schema, readers: Iterable[tuple[Collection, pa.RecordBatchReader]], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write batches as row groups, which a reader over HTTP skips by their lowest and highest hash; gives the rows."""
    counts: dict[Collection, int] = {}
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for collection, reader in readers:
            counts[collection] = 0
            for batch in reader:
                writer.write_batch(batch.cast(schema))
                counts[collection] += batch.num_rows
                progress.advance(batch.num_rows)
                progress.rows(batch.num_rows)
    return counts


# A dataset: a file for each collection in the order of hashes, and a data card that dataset hubs read.

DATASET = "dataset"
"""The name of the format."""

_COLUMNS = {
    "hash": "0x and the digits: the first 4 bytes of Keccak-256 of a function or an error, all 32 of an event",
    "text_signature": "the canonical text, from which the hash is computed",
    "declaration": "the commonest declaration, with the names of parameters; null where no source has one",
    "position": "the place among the texts of the same hash, the best is 1",
    "reasons": "why it is there, the weightiest reason first",
    "looks_mined": "whether it was probably made to have the hash of another text",
    "witness": "how good the best word for it is: solved (a guess), listed, declared, compiled, described",
    "sources": "how many sources name it",
    "contracts": "how many contracts they declare it in",
    "verified": "whether a source vouches for a verified contract that has it",
    "first_seen": "when it was first stored",
}
_ROWS = f"""
    SELECT hex_signature AS hash, {", ".join(list(_COLUMNS)[1:])} FROM ranked WHERE collection = ?
    ORDER BY hex_signature, position"""
_SOURCES = """
    SELECT source FROM (SELECT DISTINCT source, collection, id FROM sightings WHERE uses IS NULL)
    GROUP BY source ORDER BY count(*) DESC, source"""
_NAMED_TEXTS = """
    SELECT line, count(*) AS texts FROM (
        SELECT DISTINCT line, collection, id
        FROM sightings JOIN (SELECT unnest($sources::VARCHAR[]) AS source, unnest($lines::VARCHAR[]) AS line) USING (source)
        WHERE uses IS NULL AND list_contains($collections, collection))
    GROUP BY line ORDER BY texts DESC, line"""
_LISTED = '`sigdir sql "SELECT DISTINCT source FROM sightings WHERE uses IS NULL"`'
_MOST_SOURCES = 200

Licences = Sequence[tuple[str, str]]


def write_dataset(
    warehouse: Warehouse, collections: Sequence[Collection], licences: Licences, folder: Path, progress: Reporter
) -> dict[Collection, int]:
    """Write the files and the card; gives the number of texts by collection.

    Raises BadTarget for a licence of a source that there is not.
    """
    sources = _licensed(warehouse, collections, licences)
    counts: dict[Collection, int] = {}
    for collection in collections:
        progress.stage(f"dataset {collection}", warehouse.count(collection))
        with (folder / f"{collection}.parquet").open("wb") as out:
            reader = warehouse.sql(_ROWS, [collection.value]).reader()
            counts |= write_parquet(reader.schema, [(collection, reader)], out, progress)
    (folder / "README.md").write_text(_card(warehouse.version, counts, sources))
    return counts


def _licensed(
    warehouse: Warehouse, collections: Sequence[Collection], licences: Licences
) -> list[tuple[str, int, str]]:
    """The card's sources, how many texts each names, and its licence.

    Those of one pattern are one line, as are those beyond the first 200. A text that several sources of a line name
    counts once. Of several patterns that fit a source the longest counts.
    """
    stated = dict(licences)
    if unclear := [source for source, licence in licences if licence != stated[source]]:
        raise BadTarget(DATASET, f"{printable(unclear[0])!r} is given two licences")
    sources = [source for (source,) in warehouse.sql(_SOURCES).rows()]
    lines: dict[str, str] = {}
    for pattern in sorted(stated, key=len):
        fitting = [source for source in sources if source == pattern or fnmatchcase(source, pattern)]
        if not fitting:
            raise BadTarget(DATASET, f"no source of texts is named {printable(pattern)!r}; {_LISTED} lists them")
        lines |= dict.fromkeys(fitting, pattern)
    unstated = [source for source in sources if source not in lines]
    others = f"{len(unstated) - _MOST_SOURCES:,} other sources"
    lines |= dict.fromkeys(unstated[_MOST_SOURCES:], others)
    shown = [lines.get(source, source) for source in sources]
    named = {"sources": sources, "lines": shown, "collections": [collection.value for collection in collections]}
    texts = dict.fromkeys(stated, 0) | dict(warehouse.sql(_NAMED_TEXTS, named).rows())
    rest = texts.pop(others, None)
    card = [(f"`{line}`", count, stated.get(line, "not stated")) for line, count in texts.items()]
    return card if rest is None else [*card, (others, rest, "not stated")]


def _card(number: int, counts: Mapping[Collection, int], sources: Iterable[tuple[str, int, str]]) -> str:
    configs = "".join(f"- config_name: {one}\n  data_files: {one}.parquet\n" for one in counts)
    files = [(f"`{one}.parquet`", rows) for one, rows in counts.items()]
    return f"""---
pretty_name: Ethereum signatures
tags: [ethereum, abi]
configs:
{configs}---

# Ethereum signatures

Texts of function selectors, error selectors and event topics, with what their sources say of them.

{_table(("file", "texts"), files)}

## Columns

{_table(("column", "is"), _COLUMNS.items())}

Rows are in the order of `hash`, then of `position`, so a reader that compares `hash` fetches few row groups.

## Sources

{_table(("source", "texts that it names", "licence"), sources)}

## How it was made

By signature-directory {version("signature-directory")}: `sigdir export {DATASET}`, of version {max(number, 0)} of a
warehouse. Each text was parsed and spelled canonically, and each hash computed from it. Texts that the operator hides
are not in it.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


# Declarations by contract, selector and topic, as the tables have them that glaciers and programs over cryo's files decode with.
#
# First a hash has one row without an address, because a join would else give a log twice: its best text by rank, where that does
# not look mined. Then each contract whose address is known has a row for each text of its interface, and of those that it
# delegates to. Events without a declaration stay out, because nobody knows which of their parameters are indexed.
#
# The rows of contracts are many, and few addresses differ in their interfaces: the engine gives addresses in their order with
# the numbers of the texts of these, and the texts are put in by batches.

ABIS = "abis"
"""The name of the format."""

SCHEMA = pa.schema(
    [
        ("address", pa.binary()), ("chain", pa.uint64()), ("hash", pa.binary()), ("full_signature", pa.string()),
        ("name", pa.string()), ("anonymous", pa.bool_()), ("state_mutability", pa.string()), ("id", pa.string()),
    ]
)  # fmt: skip
"""glaciers' columns, and the chain. Address and chain are null where a row is of a hash and of no contract."""

_KINDS = {SIGNATURES: "function", EVENT_SIGNATURES: "event"}
_MEMBERS = """
    SELECT interface, id AS number
    FROM (SELECT interface, unnest(texts) AS text_signature, unnest(kinds) AS kind FROM interfaces)
    JOIN {view} USING (text_signature) WHERE kind = '{kind}'"""
_DECLARED = """
    WITH declared AS (
        SELECT id AS number, hash, hex_signature, text_signature, position = 1 AND NOT looks_mined AS is_best,
            CASE WHEN declaration IS NULL AND collection = 'signatures' THEN 'function ' || text_signature
                ELSE declaration END AS declaration
        FROM ranked WHERE collection = ?)
    SELECT number, hash, declaration AS full_signature, split_part(text_signature, '(', 1) AS name,
        CASE WHEN starts_with(declaration, 'event ') THEN ends_with(declaration, ' anonymous') END AS anonymous,
        CASE WHEN starts_with(declaration, 'function ') THEN coalesce(nullif(
            regexp_extract(split_part(declaration, ' returns (', 1), ' (view|pure|payable)$', 1), ''), 'nonpayable')
            END AS state_mutability,
        hex_signature || ' - ' || declaration AS id
    FROM declared WHERE (starts_with(declaration, 'event ') OR starts_with(declaration, 'function ')) AND """
_BEST = "is_best ORDER BY hash"
_PLACED = """
    WITH proxies AS (SELECT chain, address, implementation FROM contracts WHERE implementation IS NOT NULL),
    placed AS (
        SELECT chain, address, interface FROM contracts WHERE interface IS NOT NULL
        UNION ALL SELECT p.chain, p.address, c.interface FROM proxies AS p
            JOIN contracts AS c ON c.chain = p.chain AND c.address = p.implementation
        UNION ALL SELECT p.chain, p.address, c.interface FROM proxies AS p
            JOIN proxies AS q ON q.chain = p.chain AND q.address = p.implementation
            JOIN contracts AS c ON c.chain = q.chain AND c.address = q.implementation),
    addresses AS (
        SELECT chain, address, list_sort(list_distinct(list(interface))) AS interfaces FROM placed GROUP BY ALL),
    members AS ({members}),
    together AS (
        SELECT interfaces, list_sort(list_distinct(list(number))) AS numbers
        FROM (SELECT interfaces, unnest(interfaces) AS interface FROM (SELECT DISTINCT interfaces FROM addresses))
        JOIN members USING (interface) GROUP BY interfaces)
    SELECT chain, unhex(address[3:]) AS address, unnest(numbers) AS number
    FROM (SELECT * FROM addresses JOIN together USING (interfaces) ORDER BY chain, address)"""


def write_abis(
    warehouse: Warehouse, collections: Sequence[Collection], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write functions and events into one Parquet file; gives the number of rows."""
    progress.stage("abis", 0)
    return write_parquet(SCHEMA, ((one, _rows(warehouse, one)) for one in collections), out, progress)


def _rows(warehouse: Warehouse, collection: Collection) -> Iterator[pa.RecordBatch]:
    for batch in warehouse.sql(_DECLARED + _BEST, [collection.value]).reader():
        nothing = pa.nulls(len(batch))
        yield from _batches(pa.Table.from_batches([batch]), nothing, nothing)
    members = _MEMBERS.format(view=collection.view_name, kind=_KINDS[collection])
    declared = f"{_DECLARED} number IN (SELECT number FROM ({members})) ORDER BY number"
    texts = warehouse.sql(declared, [collection.value]).arrow().combine_chunks()
    known = np.append(values(texts["number"]), -1)
    for placed in warehouse.sql(_PLACED.format(members=members)).reader():
        wanted = values(placed["number"])
        row = known[:-1].searchsorted(wanted)
        is_known = numbers(known[row] == wanted)
        found = texts.take(numbers(row).filter(is_known))
        yield from _batches(found, *(placed[name].filter(is_known) for name in ("address", "chain")))


def _batches(texts: pa.Table, address: pa.Array, chain: pa.Array) -> Iterator[pa.RecordBatch]:
    table = texts.drop_columns("number").add_column(0, "address", address).add_column(1, "chain", chain)
    yield from table.cast(SCHEMA).combine_chunks().to_batches()


# An ABI of chosen texts: each entry from the commonest declaration, with the names of its parameters.
#
# A selector or a topic gives the first of its texts by rank. A text without a declaration gives an entry without names,
# as a function where no source says its kind.


_TEXTS = "SELECT hash, text_signature, declaration FROM ranked WHERE hash IN ({}) ORDER BY position"


def write_abi(
    warehouse: Warehouse, texts: Sequence[str], hashes: Sequence[str], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write the entries in the order of the texts and then the hashes; gives their number by collection.

    A text or a hash that the warehouse does not have, or that no ABI can have, is noted. Raises BadTarget for one that
    is none.
    """
    if not texts and not hashes:
        raise BadTarget("abi", "is of chosen signatures: name them with --text or --hashes")
    wanted = dict.fromkeys([*map(_of_text, texts), *((_of_hash(hash), "") for hash in hashes)])
    ranked = _ranked(warehouse, sorted({digest for digest, _ in wanted}))
    entries: list[dict[str, Any]] = []
    counts = {SIGNATURES: 0, EVENT_SIGNATURES: 0}
    for digest, text in wanted:
        collection = Collection.of_hash(digest)
        found = next((one for one in ranked.get(digest, ()) if text in ("", one[0])), None)
        declaration = _declaration(collection, *found) if found else ""
        if declaration:
            entries.append(parse_declaration(declaration).abi_entry())
            counts[collection] += 1
        else:
            problem = "its text is too long or nested too deeply for an ABI" if found else "not in the warehouse"
            progress.note(f"{printable(text or f'0x{digest.hex()}')}: {problem}")
    out.write(orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
    return counts


def _of_text(text: str) -> tuple[bytes, str]:
    """Its hash, and its canonical spelling."""
    try:
        signature = normalise(text)
    except GrammarError as error:
        raise BadTarget(printable(text), str(error)) from None
    return keccak256(signature.text.encode())[: Collection.of_code(signature.collection).hash_bytes], signature.text


def _of_hash(hash: str) -> bytes:
    digest = parse_hash(hash.strip())
    if digest is None:
        raise BadTarget(printable(hash), "is neither a selector nor a topic: 8 or 64 hex digits")
    return digest


def _ranked(warehouse: Warehouse, digests: Sequence[bytes]) -> dict[bytes, list[tuple[str, str | None]]]:
    """The texts of each hash that has any, the best first, with their declarations."""
    found: dict[bytes, list[tuple[str, str | None]]] = {}
    for hash, text, declaration in warehouse.sql(_TEXTS.format(", ".join("?" * len(digests))), digests).rows():
        found.setdefault(hash, []).append((text, declaration))
    return found


def _declaration(collection: Collection, text: str, declaration: str | None) -> str:
    """The declaration of a text; "" where it is too long or nested too deeply for one."""
    kind = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
    return declaration or canonicalise_one(f"{kind.name.lower()} {text}", collection.code, kind).declaration
