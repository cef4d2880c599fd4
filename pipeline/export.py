"""An export: the rows of one version in a format that other programs read.

``export_formats.py`` has the exports of all rows, the modules beside it those of what SQL answers. POSTed rows belong
to a version after they are folded.

A pack has the texts that are used most, in one file that answers offline. ``sigdir.signatures.pack`` reads it.

In each collection the texts of standards come first, then those that are used most, those that most contracts
declare, those that most sources name, those whose name has the most parameter lists, then the oldest. A name that
many contracts declare in their own ways is called often: without it the first 10,000 texts of lists name a twelfth of
real calls less. A text is left out if it looks mined, is suppressed, is nested too deeply for any ABI, or is long and
has parameters that very many texts have, because no reader would take it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.export_formats import (
    FORMATS,
    ExportReport,
    ExportRows,
    Format,
    Order,
    order_of_texts,
    sourcify_parquet,
    write_tar,
    write_tree,
)
from sigdir.pipeline.export_tables import ABIS, DATASET, write_abi, write_abis, write_dataset
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.target import STDOUT, open_folder, open_target, rows_of
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import TEXTS, BadPack, PrivateKey, pack_bytes
from sigdir.signatures.pack_texts import COUNT, DIGITS, MAX_ROWS, PackRow, encoded, range_bytes
from sigdir.warehouse import Warehouse
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import existing

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
        progress.stage(f"pack {collection}", 0)
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
            progress.advance(len(rows))
            progress.rows(len(rows))
    return counts


ABI = "abi"
"""The format of chosen signatures; those of FORMATS hold all."""

QUERIES = {
    PACK: "a small file that answers offline",
    RANGES: "a folder of packs by the first three digits of hashes",
    DATASET: "Parquet with a data card",
    ABIS: "declarations by selector and topic, as Parquet",
}
"""What else is exported, and what it is."""

RANKED = ("4byte.json", "4bytes", "foundry")
"""The formats that choose among the texts of a selector, or order them."""

WITH_IDS = ("csv", "ndjson", "parquet")
"""The formats whose rows have ids, which are unique inside a collection only."""

OURS, SOURCIFY = COLUMNS = ("ours", "sourcify")


@dataclass(frozen=True, slots=True)
class Options:
    """What to export and where to: the command's options. ``collections`` None means the format's default."""

    format: str
    target: str
    warehouse: Path
    version: int | datetime | None = None
    collections: tuple[Collection, ...] | None = None
    columns: str = OURS
    texts: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    """The signatures of an ABI: texts, and selectors or topics."""
    pack: PackOptions = field(default_factory=PackOptions)
    padded: bool = False
    """Whether ranges have sizes that many of them share."""
    licences: tuple[tuple[str, str], ...] = ()
    """Of the sources of a dataset: a label, or a pattern of labels with ``*``, and the licence."""


_OWN_OPTIONS: tuple[tuple[str, str, Callable[[Options], object]], ...] = (
    (ABI, "takes all rows; --text and --hashes are for abi", lambda given: given.texts or given.hashes),
    (
        PACK, "is no pack; --texts, --with-declarations, --indexed and --sign are for pack",
        lambda given: given.pack != PackOptions(),
    ),
    (RANGES, "has no ranges; --padded is for ranges", lambda given: given.padded),
    (DATASET, "has no data card; --licence is for dataset", lambda given: given.licences),
)  # fmt: skip
"""The options that one format has, what is said where they stand with another one, and whether they are given."""


def run_export(options: Options, progress: Reporter) -> ExportReport:
    """Carry out one export. Raises BadTarget, a WarehouseError or OSError; then there is no target."""
    began = time.monotonic()
    for owner, problem, is_given in _OWN_OPTIONS:
        if options.format != owner and is_given(options):
            raise BadTarget(options.format, problem)
    target = "standard output" if options.target == STDOUT else printable(options.target)
    report = ExportReport(options.format, target)
    (_export_rows if options.format in FORMATS else _export_query)(options, report, progress)
    if options.target != STDOUT and os.path.isfile(options.target):
        report.bytes = os.path.getsize(options.target)
    report.seconds = time.monotonic() - began
    return report


def _export_rows(options: Options, report: ExportReport, progress: Reporter) -> None:
    """An export of all rows in the order of their ids."""
    format = FORMATS[options.format]
    snapshot = read_snapshot(existing(options.warehouse), options.version)
    collections = _choose_collections(format, options)
    report.version, report.mixes = snapshot.version, options.format in WITH_IDS and len(collections) > 1
    export = ExportRows(snapshot, collections, report, progress, _order(options, snapshot.version))
    if format.write is None and not _is_tar(options.target):
        with open_folder(options.target) as folder:
            write_tree(export, folder)
        return
    with open_target(options.target, format.packs) as out:
        _choose_writer(format, options)(export, out)


def _order(options: Options, version: int) -> Order:
    if options.format not in RANKED:
        return {}
    with Warehouse(options.warehouse, version if version >= 0 else None) as warehouse:
        return order_of_texts(warehouse)


def _export_query(options: Options, report: ExportReport, progress: Reporter) -> None:
    """An export of what SQL answers: ranked texts, declarations, sources. What is suppressed is not handed out, but to
    whoever names it.
    """
    served = existing(options.warehouse) if options.format != ABI else None
    is_folder = options.format in (RANGES, DATASET)
    if is_folder and _is_tar(options.target):
        raise BadTarget(options.target, f"{options.format} is written as a folder; name one that does not exist yet")
    with (
        Warehouse(options.warehouse, options.version, served=served) as warehouse,
        open_folder(options.target) if is_folder else open_target(options.target, packs=options.format == ABI) as out,
    ):
        report.version = warehouse.version
        report.rows.update(_write_query(warehouse, options, out, progress))


def _write_query(warehouse: Warehouse, options: Options, out: Any, progress: Reporter) -> dict[Collection, int]:
    """Write into a folder or a file; gives the number of rows by collection."""
    collections = options.collections or COLLECTIONS
    if options.format == RANGES:
        return write_ranges(warehouse, collections, out, progress, padded=options.padded)
    if options.format == DATASET:
        return write_dataset(warehouse, collections, options.licences, out, progress)
    if options.format == ABIS:
        return write_abis(warehouse, collections, out, progress)
    if options.format == ABI:
        return write_abi(warehouse, options.texts, options.hashes, out, progress)
    return write_pack(warehouse, collections, options.pack, out, progress)


def _choose_collections(format: Format, options: Options) -> tuple[Collection, ...]:
    """The collections to export. Raises BadTarget if the format cannot hold what was requested."""
    collections = options.collections or format.collections
    if options.columns == SOURCIFY and options.collections is None:
        collections = (SIGNATURES,)  # the columns do not tell the collections apart
    for collection in collections:
        if collection not in format.holds:
            raise BadTarget(format.name, f"cannot hold {collection}")
    if options.columns != OURS and format.name != "parquet":
        raise BadTarget(format.name, f"has no choice of columns; --columns {options.columns} is for parquet")
    return collections


def _choose_writer(format: Format, options: Options) -> Callable[[ExportRows, BinaryIO], None]:
    return sourcify_parquet if options.columns == SOURCIFY else format.write or write_tar


def _is_tar(target: str) -> bool:
    return target == STDOUT or target.removesuffix(".gz").removesuffix(".zst").endswith(".tar")
