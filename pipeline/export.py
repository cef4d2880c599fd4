"""An export: the rows of one version in a format that other programs read.

``export_formats.py`` has the table of the formats, ``export_rows.py`` reads the rows. POSTed rows belong to a
version after they are folded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.export_abi import write_abi
from sigdir.pipeline.export_formats import FORMATS, Format, sourcify_parquet
from sigdir.pipeline.export_pack import PACK, PackOptions, write_pack
from sigdir.pipeline.export_ranked import Order, ranked_order
from sigdir.pipeline.export_report import ExportReport
from sigdir.pipeline.export_rows import ExportRows
from sigdir.pipeline.export_tree import write_tar, write_tree
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.target import STDOUT, open_target, put_tree
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse import Warehouse
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import existing
from sigdir.warehouse.table.stores import is_url

ABI = "abi"
"""The format of chosen signatures; those of FORMATS hold all."""

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
    ranked: bool = False
    """Whether the texts of a selector are in the order of their rank."""
    texts: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    """The signatures of an ABI: texts, and selectors or topics."""
    pack: PackOptions = field(default_factory=PackOptions)


def run_export(options: Options, progress: Reporter) -> ExportReport:
    """Carry out one export. Raises BadTarget, a WarehouseError or OSError; then there is no target."""
    began = time.monotonic()
    if (options.texts or options.hashes) and options.format != ABI:
        raise BadTarget(options.format, "takes all rows; --text and --hashes are for abi")
    if options.format == ABI:
        return _run_abi(options, progress, began)
    if options.pack != PackOptions() and options.format != PACK:
        raise BadTarget(options.format, "is no pack; --texts, --with-declarations, --indexed and --sign are for pack")
    if options.format == PACK:
        return _run_pack(options, progress, began)
    format = FORMATS[options.format]
    snapshot = read_snapshot(existing(options.warehouse), options.version)
    collections = _choose_collections(format, options)
    target = "standard output" if options.target == STDOUT else printable(options.target)
    report = ExportReport(options.format, target, snapshot.version)
    report.mixes = options.format in WITH_IDS and len(collections) > 1
    order = _ranked_order(options, snapshot.version) if options.ranked else None
    export = ExportRows(snapshot, collections, report, progress, order)
    if format.write is None and not _is_tar(options.target):
        _write_tree(export, options.target)
    else:
        with open_target(options.target, format.packs) as out:
            _choose_writer(format, options)(export, out)
        if options.target != STDOUT and os.path.isfile(options.target):
            report.bytes = os.path.getsize(options.target)
    report.seconds = time.monotonic() - began
    return report


def _write_tree(export: ExportRows, target: str) -> None:
    if not is_url(target):
        write_tree(export, Path(target))
        return
    with TemporaryDirectory(prefix="sigdir-") as scratch:
        write_tree(export, Path(scratch) / "tree")
        put_tree(Path(scratch) / "tree", target)


def _ranked_order(options: Options, version: int) -> Order:
    if options.format not in RANKED:
        raise BadTarget(options.format, f"has all rows in the order of their ids; --ranked is for {', '.join(RANKED)}")
    with Warehouse(options.warehouse, version if version >= 0 else None) as warehouse:
        return ranked_order(warehouse)


def _run_abi(options: Options, progress: Reporter, began: float) -> ExportReport:
    target = "standard output" if options.target == STDOUT else printable(options.target)
    with (
        Warehouse(options.warehouse, options.version) as warehouse,
        open_target(options.target, packs=True) as out,
    ):
        report = ExportReport(ABI, target, warehouse.version)
        report.rows.update(write_abi(warehouse, options.texts, options.hashes, out, progress))
    report.seconds = time.monotonic() - began
    return report


def _run_pack(options: Options, progress: Reporter, began: float) -> ExportReport:
    target = "standard output" if options.target == STDOUT else printable(options.target)
    served = existing(options.warehouse)  # what is suppressed is not handed out
    with (
        Warehouse(options.warehouse, options.version, served=served) as warehouse,
        open_target(options.target, packs=False) as out,
    ):
        report = ExportReport(PACK, target, warehouse.version)
        report.rows.update(write_pack(warehouse, options.collections or COLLECTIONS, options.pack, out, progress))
    if options.target != STDOUT and os.path.isfile(options.target):
        report.bytes = os.path.getsize(options.target)
    report.seconds = time.monotonic() - began
    return report


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
