"""The exports of all rows: the rows of a version in the order of their ids, the formats, and their writers.

To add a format, write a function of ExportRows and a binary file, and add one line to FORMATS.

Rows are read from the version's Parquet files, some batches ahead. Memory does not grow with their number, except in
formats that choose among the texts of a selector, ten bytes a row.
"""

from __future__ import annotations

import errno
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.progress import Reporter
from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.candidates import binary_column
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.errors import counted
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse import Warehouse
from sigdir.warehouse.index.build import hashes_of, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import RECORD, Template, csv_head, csv_line
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.parallel import in_background
from sigdir.warehouse.table.parquet import FILE_SCHEMA, batches_in, file_bytes, row_groups

BATCHES_AHEAD = 2

Flags = npt.NDArray[np.bool_]


@dataclass
class ExportReport:
    """What an export did."""

    format: str
    target: str
    version: int = -1
    rows: Counter[Collection] = field(default_factory=Counter)
    left_out: Counter[Collection] = field(default_factory=Counter)
    """Rows that a format with one text per selector omits, because another text of their selector is exported."""
    files: int = 1
    bytes: int | None = None
    seconds: float = 0.0
    mixes: bool = False
    """Whether both collections are in one file without a column that names them."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "target": self.target,
            "version": self.version,
            "rows": {collection: self.rows[collection] for collection in COLLECTIONS},
            "left_out": {collection: self.left_out[collection] for collection in COLLECTIONS},
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate()),
        }

    def rate(self) -> float:
        return self.rows.total() / self.seconds if self.seconds else 0.0

    def lines(self) -> Iterator[str]:
        """The report for people."""
        for collection in COLLECTIONS:
            if self.rows[collection] or self.left_out[collection]:
                left_out = self.left_out[collection]
                more = f", {left_out:,} left out: another text of the selector is exported" if left_out else ""
                yield f"{collection}: {counted(self.rows[collection], 'row')}{more}"
        size = f", {self.bytes / 1e6:,.1f} MB" if self.bytes is not None else ""
        files = f", {self.files:,} files" if self.files != 1 else ""
        yield (
            f"{counted(self.rows.total(), 'row')} of version {max(self.version, 0)} in {self.seconds:.1f} s"
            f" ({self.rate():,.0f} a second){files}{size}: {self.target}"
        )
        if self.mixes and all(self.rows[collection] for collection in COLLECTIONS):
            yield "both collections, and an id is unique in its collection only; --collection NAME exports one"


Order = dict[bytes, list[tuple[int, str]]]
"""Id and text of each text of a selector, the best first."""

_BY_RANK = "SELECT hash, id, text_signature FROM parts.rivals ORDER BY hash, position"


def order_of_texts(warehouse: Warehouse) -> Order:
    """The selectors with several texts, of 10 M texts some twenty thousand. Raises UnreadableWarehouse."""
    order: Order = {}
    for hash, id, text in warehouse.sql(_BY_RANK).rows():
        order.setdefault(hash, []).append((id, text))
    return order


class ExportRows:
    """The rows of one export. Counts in ``report`` what was written."""

    def __init__(
        self, snapshot: Snapshot, collections: Sequence[Collection], report: ExportReport, progress: Reporter,
        order: Order,
    ) -> None:  # fmt: skip
        self.snapshot = snapshot
        self.collections = collections
        self.report = report
        self._order = order
        self._progress = progress
        progress.stage("export", sum(map(snapshot.count, collections)))

    def batches(self, collection: Collection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows, in id order."""
        for file in self.snapshot.files[collection]:
            yield from batches_in(file.path, columns)

    def count(self, collection: Collection, rows: int, read: int) -> None:
        """Count ``rows`` rows as written, of ``read`` rows read."""
        self.report.rows[collection] += rows
        self.report.left_out[collection] += read - rows
        self._progress.advance(read)
        self._progress.rows(rows)

    def _selected(
        self, collection: Collection, keep: Flags | None = None
    ) -> Iterator[tuple[Segment, npt.NDArray[Any]]]:
        """The segments, each with the numbers of its rows that ``keep`` selects."""
        at = 0
        segments = chain.from_iterable(pieces(collection, file.path) for file in self.snapshot.files[collection])
        for segment in in_background(segments, BATCHES_AHEAD):  # a thread unpacks them
            rows = np.arange(segment.rows) if keep is None else np.flatnonzero(keep[at : at + segment.rows])
            at += segment.rows
            yield segment, rows

    def rendered(
        self, collection: Collection, pattern: str, keep: Flags | None = None, again: bool = False
    ) -> Iterator[bytes]:
        """The rows rendered by a template. ``again`` if they have been counted already."""
        template = Template(pattern)
        for segment, rows in self._selected(collection, keep):
            yield template.render(segment, rows)
            if not again:
                self.count(collection, len(rows), segment.rows)

    def first_texts(self, collection: Collection) -> Flags | None:
        """A flag per row: whether it has the first text of its selector.

        None for topics: every row has. Two texts of one topic would be a collision of keccak-256.
        """
        if collection == EVENT_SIGNATURES:
            return None
        return ~self._rows_of(collection, [id for texts in self._order.values() for id, _ in texts[1:]])

    def _rows_of(self, collection: Collection, ids: list[int]) -> Flags:
        """A flag per row: whether it has one of these ids."""
        flags = np.zeros(self.snapshot.count(collection), np.bool_)
        if ids:
            known = np.concatenate([values(batch["id"]) for batch in self.batches(collection, ["id"])])
            flags[known.searchsorted(ids)] = True
        return flags

    def texts_by_hash(self, collection: Collection) -> Iterator[tuple[str, bytes]]:
        """Each hash as hex digits, with its texts joined by semicolons.

        Texts that share a selector, some thousands in a million, come last.
        """
        order = self._order if collection == SIGNATURES else {}
        shared = self._rows_of(collection, [id for texts in order.values() for id, _ in texts])
        at = 0
        for segment, rows in self._selected(collection):
            names = segment.hash[: segment.rows].tobytes().hex()
            digits = 2 * collection.hash_bytes
            text, bounds = segment.text.tobytes(), segment.offsets.tolist()
            for row in np.flatnonzero(~shared[at : at + segment.rows]).tolist():
                yield names[row * digits : (row + 1) * digits], text[bounds[row] : bounds[row + 1]]
            at += segment.rows
            self.count(collection, len(rows), segment.rows)
        for hash, texts in order.items():
            yield hash.hex(), ";".join(text for _, text in texts).encode()


# Formats.

SOURCIFY_SCHEMA = pa.schema(
    [
        ("signature_hash_32", pa.binary()),
        ("signature_hash_4", pa.binary()),
        ("signature", pa.string()),
        ("created_at", pa.timestamp("ns")),
    ]
)
"""The columns of Sourcify's v2 export. Its times have no zone and are UTC."""


@dataclass(frozen=True, slots=True)
class Format:
    """One format to export to."""

    name: str
    about: str
    """A description for `sigdir export --help`."""
    write: Callable[[ExportRows, BinaryIO], None] | None
    """None for one file per hash, in a folder or a tar."""
    collections: tuple[Collection, ...] = COLLECTIONS
    """The collections that are exported by default."""
    holds: tuple[Collection, ...] = COLLECTIONS
    """The collections that the format can hold."""
    packs: bool = True
    """Whether the target may be packed with gzip or zstd."""


def _write_all(out: BinaryIO, pieces: Iterator[bytes]) -> None:
    """Write pieces while a background thread renders the next ones."""
    out.writelines(in_background(pieces, BATCHES_AHEAD))


def _line_writer(pattern: str, head: str = "") -> Callable[[ExportRows, BinaryIO], None]:
    """The writer of a format with one line per row."""

    def write(export: ExportRows, out: BinaryIO) -> None:
        out.write(head.encode())
        for collection in export.collections:
            _write_all(out, export.rendered(collection, pattern))

    return write


def _members(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Members of an object, each rendered with a comma before it; removes the first comma."""
    first = True
    for piece in pieces:
        yield piece[1:] if first else piece
        first = first and not piece


def _geth(export: ExportRows, out: BinaryIO) -> None:
    def members() -> Iterator[bytes]:
        for collection in export.collections:
            yield from export.rendered(collection, ',\n    "{hash}": "{text_json}"', export.first_texts(collection))

    out.write(b"{")
    _write_all(out, _members(members()))
    out.write(b"\n}\n")


def _foundry(export: ExportRows, out: BinaryIO) -> None:
    """Selectors go under functions and under errors, because the table does not tell them apart. Foundry
    looks up an error under errors only, then asks the network."""
    first_texts = export.first_texts(SIGNATURES) if SIGNATURES in export.collections else None
    separator = b"{"
    for section, collection in _FOUNDRY:
        out.write(separator + f'"{section}":{{'.encode())
        separator = b"},"
        if collection in export.collections:
            keep = first_texts if collection == SIGNATURES else None
            pieces = export.rendered(collection, ',"0x{hash}":"{text_json}"', keep, again=section == "errors")
            _write_all(out, _members(pieces))
    out.write(b"}}")


_FOUNDRY: Sequence[tuple[str, Collection]] = (
    ("functions", SIGNATURES), ("errors", SIGNATURES), ("events", EVENT_SIGNATURES),
)  # fmt: skip


def _parquet(export: ExportRows, out: BinaryIO) -> None:
    tables = (pa.Table.from_batches([batch], FILE_SCHEMA) for _, batch in _batches(export))
    out.writelines(file_bytes(tables))


def sourcify_parquet(export: ExportRows, out: BinaryIO) -> None:
    """Parquet with Sourcify's columns in place of the table's."""
    with pq.ParquetWriter(
        out, SOURCIFY_SCHEMA, compression="zstd", write_page_checksum=True, use_dictionary=False
    ) as writer:
        for group in row_groups(_sourcify(*some) for some in _batches(export)):
            writer.write_table(group, row_group_size=group.num_rows)


def _batches(export: ExportRows) -> Iterator[tuple[Collection, pa.RecordBatch]]:
    """All columns of the rows, each batch with its collection; a thread reads them."""
    for collection in export.collections:
        for batch in in_background(export.batches(collection, FILE_SCHEMA.names), BATCHES_AHEAD):
            yield collection, batch
            export.count(collection, batch.num_rows, batch.num_rows)


def _sourcify(collection: Collection, batch: pa.RecordBatch) -> pa.Table:
    text = batch["text_signature"]
    known = hashes_of(batch["hash"], collection.hash_bytes)
    digests = keccak256_column(text) if collection == SIGNATURES else known
    times = values(batch["created_at"].view(pa.int64())) * 1000
    columns = [binary_column(digests), binary_column(digests[:, :4]), text, numbers(times).view(pa.timestamp("ns"))]
    return pa.Table.from_arrays(columns, schema=SOURCIFY_SCHEMA)


# One file per hash, as a folder or as a tar.

_TREE = "signatures"
_TAR_BLOCK = 512


def write_tree(export: ExportRows, folder: Path) -> None:
    """Write one file per hash into a folder."""
    export.report.files = export.report.bytes = 0
    tree = folder / _TREE
    tree.mkdir()
    for name, content in chain.from_iterable(map(export.texts_by_hash, export.collections)):
        # Without a buffer a file takes half the time; there may be a million.
        with open(f"{tree}/{name}", "xb", 0) as file:
            if file.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        export.report.files += 1
        export.report.bytes += len(content)


def write_tar(export: ExportRows, out: BinaryIO) -> None:
    """Write the tree as a tar. Headers differ in a few fields only: tarfile takes 40 us for each."""
    export.report.files = 0
    for collection in export.collections:
        info = tarfile.TarInfo(f"{_TREE}/{'0' * 2 * collection.hash_bytes}")
        info.mtime = export.snapshot.high_water[collection].created_at // 1_000_000
        header = info.tobuf(tarfile.USTAR_FORMAT)
        name_at, name_ends = len(_TREE) + 1, len(info.name)
        before, after = header[name_ends:124], header[136:148]
        rest = header[156:]
        for name, content in export.texts_by_hash(collection):
            head = b"%s%s%s%011o\0%s" % (header[:name_at], name.encode(), before, len(content), after)
            checksum = sum(head) + 8 * 0x20 + sum(rest)
            out.write(b"%s%06o\0 %s%s%s" % (head, checksum, rest, content, bytes(-len(content) % _TAR_BLOCK)))
            export.report.files += 1
    out.write(bytes(2 * _TAR_BLOCK))


_CSV = ("text_signature", "hex_signature", "created_at", "id")

FORMATS = {
    format.name: format
    for format in (
        Format("4byte.json", "go-ethereum's object from selector to text", _geth, (SIGNATURES,)),
        Format("openchain", "lines 0xhash,signature", _line_writer("0x{hash},{text}\n")),
        Format("4bytes", "one file per selector, as in ethereum-lists/4bytes", None, (SIGNATURES,), (SIGNATURES,)),
        Format("topic0", "one file per topic", None, (EVENT_SIGNATURES,), (EVENT_SIGNATURES,)),
        Format("foundry", "Foundry's signature cache", _foundry),
        Format("csv", ",".join(_CSV), _line_writer(csv_line(_CSV), csv_head(_CSV))),
        Format("ndjson", "4byte.directory's rows as JSON lines", _line_writer(RECORD + "\n")),
        Format("parquet", "the table's columns, or Sourcify's", _parquet, packs=False),
    )
}  # fmt: skip
