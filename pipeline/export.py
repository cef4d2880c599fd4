"""An export: the rows of one version, as a file or tree of a shape that other programs read.

It belongs to this floor, for it is the import's mirror: its shapes are those of ``formats/``, one of them
needs the whole digest of texts of which the table keeps four bytes, and it tells its progress as an import
does. Rows are read from the version's Parquet files in the order of their ids, some batches ahead, rendered
by one compiled kernel and written: memory does not grow with the rows, but for twelve bytes a row where one
text a selector is wanted. POSTed rows belong to a version once they are folded.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import time
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

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.target import STDOUT, opened
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.signatures.keccak import keccak256_column
from sigdir.warehouse.files import sync
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.records import RECORD
from sigdir.warehouse.index.scan import batches, hashes_of, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import Template
from sigdir.warehouse.parallel import in_background
from sigdir.warehouse.parquet import row_groups
from sigdir.warehouse.paths import existing
from sigdir.warehouse.schema import FILE_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot

OURS, SOURCIFY = COLUMNS = ("ours", "sourcify")

SOURCIFY_SCHEMA = pa.schema(
    [
        ("signature_hash_32", pa.binary()),
        ("signature_hash_4", pa.binary()),
        ("signature", pa.string()),
        ("created_at", pa.timestamp("ns")),
    ]
)
"""The columns of Sourcify's v2 export; its times have no zone and are UTC."""

_AHEAD = 2
_ROW_MASK = np.uint64(0xFFFF_FFFF)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Options:
    """What to export and where to; the command's flags. ``collections`` None is the format's own."""

    format: str
    target: str
    warehouse: Path
    version: int | None = None
    collections: tuple[Collection, ...] | None = None
    columns: str = OURS


@dataclass
class ExportReport:
    """What an export did. ``left_out`` counts the rows for which the format has no place: younger texts
    of a selector that has another one."""

    format: str
    target: str
    version: int
    rows: Counter[Collection] = field(default_factory=Counter)
    left_out: Counter[Collection] = field(default_factory=Counter)
    files: int = 1
    bytes: int | None = None
    seconds: float = 0.0

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
                more = f", {left_out:,} left out: the selector has an older text" if left_out else ""
                yield f"{collection}: {self.rows[collection]:,} rows{more}"
        size = f", {self.bytes / 1e6:,.1f} MB" if self.bytes is not None else ""
        files = f", {self.files:,} files" if self.files != 1 else ""
        yield (
            f"{self.rows.total():,} rows of version {max(self.version, 0)} in {self.seconds:.1f} s"
            f" ({self.rate():,.0f} a second){files}{size}: {self.target}"
        )


def run_export(options: Options, progress: Reporter) -> ExportReport:
    """Carry out one export. Raises BadTarget, a WarehouseError or OSError; then there is no target."""
    format = FORMATS[options.format]
    began = time.monotonic()
    snapshot = read_snapshot(existing(options.warehouse), options.version)
    export = _Export(format, options, snapshot, progress)
    if format.write is None and not _is_tar(options.target):
        export.tree(Path(options.target))
    else:
        with opened(options.target, format.packs) as out:
            (format.write or _tar)(export, out)
        if options.target != STDOUT and os.path.isfile(options.target):
            export.report.bytes = os.path.getsize(options.target)
    export.report.seconds = time.monotonic() - began
    return export.report


class _Export:
    """One export's state: which rows, how far."""

    def __init__(self, format: Format, options: Options, snapshot: Snapshot, progress: Reporter) -> None:
        self.snapshot = snapshot
        self.columns = options.columns
        self.collections = options.collections or format.collections
        if options.columns == SOURCIFY and options.collections is None:
            self.collections = (SIGNATURES,)  # the columns do not tell which of both a row is of
        for collection in self.collections:
            if collection not in format.holds:
                raise BadTarget(options.format, f"has no place for {collection}")
        if options.columns != OURS and options.format != "parquet":
            raise BadTarget(options.format, f"has no choice of columns; --columns {options.columns} is for parquet")
        target = "standard output" if options.target == STDOUT else printable(options.target)
        self.report = ExportReport(options.format, target, snapshot.version)
        self.progress = progress
        progress.stage("export", sum(map(snapshot.count, self.collections)))

    def batches(self, collection: Collection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Columns of the rows in the order of their ids."""
        for file in self.snapshot.files[collection]:
            yield from batches(file.path, columns)

    def segments(self, collection: Collection) -> Iterator[Segment]:
        """The rows in the order of their ids, unpacked by a thread of its own."""
        files = self.snapshot.files[collection]
        return in_background(chain.from_iterable(pieces(collection, file.path) for file in files), _AHEAD)

    def done(self, collection: Collection, rows: int, read: int) -> None:
        self.report.rows[collection] += rows
        self.report.left_out[collection] += read - rows
        self.progress.advance(read)
        self.progress.rows(rows)

    def chosen(self, collection: Collection, keep: Flags | None = None) -> Iterator[tuple[Segment, npt.NDArray[Any]]]:
        """The rows as segments, each with the numbers of its rows that are wanted."""
        at = 0
        for segment in self.segments(collection):
            rows = np.arange(segment.rows) if keep is None else np.flatnonzero(keep[at : at + segment.rows])
            at += segment.rows
            yield segment, rows

    def rendered(
        self, collection: Collection, pattern: str, keep: Flags | None = None, again: bool = False
    ) -> Iterator[bytes]:
        """The rows by a template. ``again`` where they have been counted already."""
        template = Template(pattern)
        for segment, rows in self.chosen(collection, keep):
            yield template.render(segment, rows)
            if not again:
                self.done(collection, len(rows), segment.rows)

    def by_hash(self, collection: Collection) -> npt.NDArray[Any]:
        """The collection's rows as ``sorted_hashes`` has them."""
        hashes = np.empty((self.snapshot.count(collection), 4), np.uint8)
        at = 0
        for batch in self.batches(collection, ["hash"]):
            hashes[at : at + batch.num_rows] = hashes_of(batch["hash"], collection.hash_bytes)[:, :4]
            at += batch.num_rows
        return sorted_hashes(hashes)

    def oldest(self, collection: Collection) -> Flags | None:
        """A flag a row: whether no older one has its selector. None, all of them, for topics.

        Two texts of one topic would be a collision of keccak-256.
        """
        return None if collection == EVENT_SIGNATURES else _rows_flagged(self.by_hash(collection), _begins_group)

    def entries(self, collection: Collection) -> Iterator[tuple[str, bytes]]:
        """Hash, as hex digits, and its texts joined by semicolons, the oldest first.

        Only the rows that share their selector are held back, some thousands in a million.
        """
        shared = None
        if collection == SIGNATURES:
            shared = _rows_flagged(self.by_hash(collection), _in_larger_group)
        held: dict[str, list[bytes]] = {}
        at = 0
        for segment, rows in self.chosen(collection):
            names = segment.hash[: segment.rows].tobytes().hex()
            digits = 2 * collection.hash_bytes
            text, bounds = segment.text.tobytes(), segment.offsets.tolist()
            apart = shared[at : at + segment.rows].tolist() if shared is not None else [False] * segment.rows
            for row, is_shared in enumerate(apart):
                name = names[row * digits : (row + 1) * digits]
                entry = text[bounds[row] : bounds[row + 1]]
                if is_shared:
                    held.setdefault(name, []).append(entry)
                else:
                    yield name, entry
            at += segment.rows
            self.done(collection, len(rows), segment.rows)
        for name, texts in held.items():
            yield name, b";".join(texts)

    def tree(self, target: Path) -> None:
        """A file a hash in ``signatures/`` below the target, which appears when it is whole."""
        if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
            raise BadTarget(printable(str(target)), "is there already; name a folder that is not")
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        folder = beside / _TREE
        folder.mkdir(parents=True)
        try:
            self.report.files = self.report.bytes = 0
            handle = os.open(folder, os.O_RDONLY)
            try:
                for name, content in chain.from_iterable(map(self.entries, self.collections)):
                    _write_small(handle, name, content)
                    self.report.files += 1
                    self.report.bytes += len(content)
            finally:
                os.close(handle)
            os.sync()  # one for all: a sync a file would take a hundred times as long
            beside.rename(target)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        sync(target.absolute().parent)


def _write_small(folder: int, name: str, content: bytes) -> None:
    """Make one file of a million: half the time of Path.write_bytes."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    try:
        if os.write(file, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    finally:
        os.close(file)


def _rows_flagged(by_hash: npt.NDArray[Any], wanted: Callable[[npt.NDArray[Any]], Flags]) -> Flags:
    """A flag a row, from a flag for each place in the order of hashes."""
    flags = np.zeros(len(by_hash), np.bool_)
    flags[(by_hash[wanted(by_hash >> np.uint64(32))] & _ROW_MASK).astype(np.int64)] = True
    return flags


def _begins_group(prefixes: npt.NDArray[Any]) -> Flags:
    flags = np.ones(len(prefixes), np.bool_)
    flags[1:] = prefixes[1:] != prefixes[:-1]
    return flags


def _in_larger_group(prefixes: npt.NDArray[Any]) -> Flags:
    same = prefixes[1:] == prefixes[:-1]
    flags = np.zeros(len(prefixes), np.bool_)
    flags[1:] = same
    flags[:-1] |= same
    return flags


# Where to.


def _is_tar(target: str) -> bool:
    return target == STDOUT or target.removesuffix(".gz").removesuffix(".zst").endswith(".tar")


# The formats.


def _write_all(out: BinaryIO, pieces: Iterator[bytes]) -> None:
    """Write pieces that a thread of its own renders meanwhile."""
    for piece in in_background(pieces, _AHEAD):  # noqa: FURB122 - zstandard's writer has no writelines
        out.write(piece)


def _lines(pattern: str, head: str = "") -> Callable[[_Export, BinaryIO], None]:
    """A form of one line a row."""

    def write(export: _Export, out: BinaryIO) -> None:
        out.write(head.encode())
        for collection in export.collections:
            _write_all(out, export.rendered(collection, pattern))

    return write


def _members(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The members of an object or list, which come with a comma each: without the first one."""
    first = True
    for piece in pieces:
        yield piece[1:] if first else piece
        first = first and not piece


def _geth(export: _Export, out: BinaryIO) -> None:
    def members() -> Iterator[bytes]:
        for collection in export.collections:
            yield from export.rendered(collection, ',\n    "{hash}": "{text_json}"', export.oldest(collection))

    out.write(b"{")
    _write_all(out, _members(members()))
    out.write(b"\n}\n")


def _foundry(export: _Export, out: BinaryIO) -> None:
    """Selectors under functions and under errors: the table does not tell them apart, and Foundry asks for
    an error nowhere but there before it asks the network."""
    oldest = export.oldest(SIGNATURES) if SIGNATURES in export.collections else None
    separator = b"{"
    for section, collection in _FOUNDRY:
        out.write(separator + f'"{section}":{{'.encode())
        separator = b"},"
        if collection in export.collections:
            keep = oldest if collection == SIGNATURES else None
            pieces = export.rendered(collection, ',"0x{hash}":"{text_json}"', keep, again=section == "errors")
            _write_all(out, _members(pieces))
    out.write(b"}}")


_FOUNDRY: Sequence[tuple[str, Collection]] = (
    ("functions", SIGNATURES), ("errors", SIGNATURES), ("events", EVENT_SIGNATURES),
)  # fmt: skip


_TREE = "signatures"
_TAR_BLOCK = 512


def _tar(export: _Export, out: BinaryIO) -> None:
    """The tree as one tar. A header is the first one with other digits: tarfile takes 40 microseconds for it."""
    export.report.files = 0
    for collection in export.collections:
        info = tarfile.TarInfo(f"{_TREE}/{'0' * 2 * collection.hash_bytes}")
        info.mtime = export.snapshot.high_water[collection].created_at // 1_000_000
        header = info.tobuf(tarfile.USTAR_FORMAT)
        name_at, name_ends = len(_TREE) + 1, len(info.name)
        before, after = header[name_ends:124], header[136:148]
        behind = header[156:]
        for name, content in export.entries(collection):
            head = b"%s%s%s%011o\0%s" % (header[:name_at], name.encode(), before, len(content), after)
            checksum = sum(head) + 8 * 0x20 + sum(behind)
            out.write(b"%s%06o\0 %s%s%s" % (head, checksum, behind, content, bytes(-len(content) % _TAR_BLOCK)))
            export.report.files += 1
    out.write(bytes(2 * _TAR_BLOCK))


def _parquet(export: _Export, out: BinaryIO) -> None:
    schema, table = (FILE_SCHEMA, _ours) if export.columns == OURS else (SOURCIFY_SCHEMA, _sourcify)
    encodings: dict[str, Any] = {"use_dictionary": False}
    if export.columns == OURS:
        encodings = {
            "use_dictionary": ["import_id"],
            "column_encoding": {"id": "DELTA_BINARY_PACKED", "created_at": "DELTA_BINARY_PACKED"},
        }
    with pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True, **encodings) as writer:

        def tables() -> Iterator[pa.Table]:
            for collection in export.collections:
                for batch in in_background(export.batches(collection, FILE_SCHEMA.names), _AHEAD):
                    yield table(collection, batch)
                    export.done(collection, batch.num_rows, batch.num_rows)

        for group in row_groups(tables()):
            writer.write_table(group, row_group_size=group.num_rows)


def _ours(collection: Collection, batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch], FILE_SCHEMA)


def _sourcify(collection: Collection, batch: pa.RecordBatch) -> pa.Table:
    text = batch["text_signature"]
    known = hashes_of(batch["hash"], collection.hash_bytes)
    digests = keccak256_column(text) if collection == SIGNATURES else known
    times = batch["created_at"].view(pa.int64()).to_numpy() * 1000
    columns = [_binary(digests), _binary(digests[:, :4]), text, pa.array(times).view(pa.timestamp("ns"))]
    return pa.Table.from_arrays(columns, schema=SOURCIFY_SCHEMA)


def _binary(values: npt.NDArray[np.uint8]) -> pa.Array:
    rows, width = values.shape
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, data]).cast(pa.binary())


@dataclass(frozen=True, slots=True)
class Format:
    """A shape to export to. ``write`` is None for a tree of files, which may also be a tar.

    ``collections`` is what goes in where nobody says, ``holds`` what may. ``packs`` tells whether the
    target's ending may ask for gzip or zstd.
    """

    name: str
    about: str
    write: Callable[[_Export, BinaryIO], None] | None
    collections: tuple[Collection, ...] = COLLECTIONS
    holds: tuple[Collection, ...] = COLLECTIONS
    packs: bool = True


_CSV_HEAD = "text_signature,hex_signature,created_at,id\n"

FORMATS = {
    format.name: format
    for format in (
        Format("4byte.json", "go-ethereum's object from selector to text", _geth, (SIGNATURES,)),
        Format("openchain", "lines 0xhash,signature", _lines("0x{hash},{text}\n")),
        Format("4bytes", "tree of ethereum-lists/4bytes", None, (SIGNATURES,), (SIGNATURES,)),
        Format("topic0", "the same for topics", None, (EVENT_SIGNATURES,), (EVENT_SIGNATURES,)),
        Format("foundry", "Foundry's cache of signatures", _foundry),
        Format("csv", "text_signature,hex_signature,created_at,id", _lines('"{text_csv}",0x{hash},{created_at}Z,{id}\n', _CSV_HEAD)),
        Format("ndjson", "4byte.directory's rows", _lines(RECORD + "\n")),
        Format("parquet", "the table's columns, or Sourcify's", _parquet, packs=False),
    )
}  # fmt: skip
