"""A dataset: a Parquet file for each collection in the order of hashes, and a data card that dataset hubs read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import Collection
from sigdir.warehouse import Warehouse

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
    SELECT source, sum(named)::BIGINT AS texts
    FROM (SELECT source, count(DISTINCT id) AS named FROM sightings WHERE uses IS NULL GROUP BY source, collection)
    GROUP BY source ORDER BY texts DESC, source"""
_MOST_SOURCES = 200

Licences = Sequence[tuple[str, str]]


def write_dataset(
    warehouse: Warehouse, collections: Sequence[Collection], licences: Licences, folder: Path, progress: Reporter
) -> dict[Collection, int]:
    """Write the files and the card; gives the number of texts by collection.

    Raises BadTarget for a licence of a source that there is not.
    """
    sources = _licensed(warehouse.sql(_SOURCES).rows(), licences)
    counts: dict[Collection, int] = {}
    for collection in collections:
        progress.stage(f"dataset {collection}", warehouse.count(collection))
        with (folder / f"{collection}.parquet").open("wb") as out:
            reader = warehouse.sql(_ROWS, [collection.value]).reader()
            counts |= write_parquet(reader.schema, [(collection, reader)], out)
    (folder / "README.md").write_text(_card(warehouse.version, counts, sources))
    return counts


def write_parquet(
    schema: pa.Schema, readers: Iterable[tuple[Collection, pa.RecordBatchReader]], out: BinaryIO
) -> dict[Collection, int]:
    """Write batches as row groups, which a reader over HTTP skips by their lowest and highest hash; gives the rows."""
    counts: dict[Collection, int] = {}
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for collection, reader in readers:
            counts[collection] = 0
            for batch in reader:
                writer.write_batch(batch.cast(schema))
                counts[collection] += batch.num_rows
    return counts


def _licensed(sources: Iterable[tuple[str, int]], licences: Licences) -> list[tuple[str, int, str]]:
    """Sources with their texts and licences. Those of one pattern are one row, as are those beyond the first 200."""
    stated = dict(licences)
    texts = dict.fromkeys(stated, 0)
    for source, count in sources:
        name = next((pattern for pattern in stated if fnmatchcase(source, pattern)), source)
        texts[name] = texts.get(name, 0) + count
    for pattern in stated:
        if not texts[pattern]:
            raise BadTarget(DATASET, f"no source is named {printable(pattern)!r}; `sigdir history` lists them")
    named = [(f"`{name}`", count, stated.get(name, "not stated")) for name, count in texts.items()]
    shown, others = named[: len(stated) + _MOST_SOURCES], named[len(stated) + _MOST_SOURCES :]
    if others:
        shown.append((f"{len(others):,} other sources", sum(count for _, count, _ in others), "not stated"))
    return shown


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
