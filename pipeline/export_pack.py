"""A pack of the texts that are used most: one file that answers offline. ``sigdir.signatures.pack`` reads it.

In each collection the texts of standards come first, then those that are used most, those that most contracts declare,
those that most sources name, those whose name has the most parameter lists, then the oldest. A name that many contracts
declare in their own ways is called often: without it the first 10,000 texts of lists name a twelfth of real calls less.
A text is left out if it looks mined, is suppressed, is nested too deeply for any ABI, or is long and has parameters that
very many texts have, because no reader would take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from sigdir.pipeline.errors import BadTarget
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.row_writers import rows_of
from sigdir.signatures.collections import Collection
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import TEXTS, BadPack, PrivateKey, pack_bytes
from sigdir.signatures.pack_texts import COUNT, DIGITS, MAX_ROWS, PackRow, encoded, range_bytes
from sigdir.warehouse import Warehouse

PACK = "pack"
"""The name of the format."""

_USED_MOST = """
    SELECT r.text_signature, r.position, r.declaration FROM ranked AS r
    LEFT JOIN standards AS s ON s.hash = r.hash AND s.text_signature = r.text_signature
    WHERE r.collection = ? AND NOT r.looks_mined AND r.witness <> 'solved'
    ORDER BY s.standard IS NULL, r.uses DESC, r.contracts DESC, r.sources DESC,
        count(*) OVER (PARTITION BY split_part(r.text_signature, '(', 1)) DESC, r.id LIMIT ?"""


@dataclass(frozen=True, slots=True)
class PackOptions:
    """What a pack is made of."""

    texts: int | None = None
    """So many of each collection, None for all."""
    declarations: bool = False
    indexed: bool = False
    """Whether it has the form for lookups."""
    key: Path | None = None
    """The file of the private key that signs it."""


def write_pack(
    warehouse: Warehouse, collections: Sequence[Collection], options: PackOptions, out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write the pack; gives the number of its texts by collection.

    Raises BadTarget where they are too many, BadKey, OSError for the key's file.
    """
    key = PrivateKey.of_pem(options.key.read_bytes()) if options.key is not None else None
    parts = []
    for collection in collections:
        progress.stage(f"pack {collection}", warehouse.count(collection))
        parts.append(encoded(collection, _rows(warehouse, collection, options)))
    try:
        written = pack_bytes(TEXTS, max(warehouse.version, 0), parts, None if options.indexed else key)
        out.write(Pack(written).indexed(key) if options.indexed else written)
    except BadPack as error:
        raise BadTarget(PACK, str(error)) from None
    return {part.collection: part.rows for part in parts}


def _rows(warehouse: Warehouse, collection: Collection, options: PackOptions) -> list[PackRow]:
    most = min(options.texts or MAX_ROWS, MAX_ROWS)
    rows = warehouse.sql(_USED_MOST, [collection.value, most + 1]).rows()
    if options.texts is None and len(rows) > MAX_ROWS:
        raise BadTarget(PACK, f"takes at most {MAX_ROWS:,} texts of a collection; choose some by --texts")
    return [
        PackRow(text, position, declaration if declaration and options.declarations else "")
        for text, position, declaration in rows[:most]
    ]


# Ranges as files: what ``/range/signatures/a90`` answers is the file ``signatures/a90``, so that any web server can answer it.


RANGES = "ranges"
"""The name of the format."""

_RANKED = "SELECT hex_signature, text_signature, position FROM ranked WHERE collection = ? ORDER BY hash"


def write_ranges(
    warehouse: Warehouse, collections: Sequence[Collection], folder: Path, progress: Reporter, *, padded: bool
) -> dict[Collection, int]:
    """Write all ranges, empty ones too; gives the number of their texts by collection."""
    counts = dict.fromkeys(collections, 0)
    for collection in collections:
        progress.stage(f"ranges {collection}", warehouse.count(collection))
        (folder / collection).mkdir()

        def write(prefix: str, rows: list[PackRow], collection: Collection = collection) -> None:
            content = range_bytes(collection, max(warehouse.version, 0), rows, padded=padded)
            (folder / collection / prefix).write_bytes(content)

        for number in range(COUNT):
            write(f"{number:0{DIGITS}x}", [])
        ranked = rows_of(warehouse.sql(_RANKED, [collection.value]).reader())
        for prefix, found in groupby(ranked, lambda row: row[0][2 : 2 + DIGITS]):
            rows = [PackRow(text, position) for _, text, position in found]
            write(prefix, rows)
            counts[collection] += len(rows)
    return counts
