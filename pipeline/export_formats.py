"""The table of the export formats, and their writers.

To add a format, write a function of ExportRows and a binary file, and add one line to FORMATS.
"""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.export_rows import BATCHES_AHEAD, ExportRows
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.index.build import hashes_of
from sigdir.warehouse.index.template import RECORD, csv_head, csv_line
from sigdir.warehouse.table.parallel import in_background
from sigdir.warehouse.table.parquet import FILE_SCHEMA, row_groups

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
    encodings = {
        "use_dictionary": ["import_id"],
        "column_encoding": {"id": "DELTA_BINARY_PACKED", "created_at": "DELTA_BINARY_PACKED"},
    }
    _write_parquet(export, out, FILE_SCHEMA, _ours, encodings)


def sourcify_parquet(export: ExportRows, out: BinaryIO) -> None:
    """Parquet with Sourcify's columns in place of the table's."""
    _write_parquet(export, out, SOURCIFY_SCHEMA, _sourcify, {"use_dictionary": False})


def _write_parquet(
    export: ExportRows, out: BinaryIO, schema: pa.Schema,
    table: Callable[[Collection, pa.RecordBatch], pa.Table], encodings: dict[str, Any],
) -> None:  # fmt: skip
    with pq.ParquetWriter(out, schema, compression="zstd", write_page_checksum=True, **encodings) as writer:

        def tables() -> Iterator[pa.Table]:
            for collection in export.collections:
                for batch in in_background(export.batches(collection, FILE_SCHEMA.names), BATCHES_AHEAD):
                    yield table(collection, batch)
                    export.count(collection, batch.num_rows, batch.num_rows)

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


# One file per hash, as a folder or as a tar.

_TREE = "signatures"
_TAR_BLOCK = 512


def write_tree(export: ExportRows, folder: Path) -> None:
    """Write one file per hash into a folder."""
    export.report.files = export.report.bytes = 0
    (folder / _TREE).mkdir()
    handle = os.open(folder / _TREE, os.O_RDONLY)
    try:
        for name, content in chain.from_iterable(map(export.texts_by_hash, export.collections)):
            _write_small(handle, name, content)
            export.report.files += 1
            export.report.bytes += len(content)
    finally:
        os.close(handle)


def _write_small(folder: int, name: str, content: bytes) -> None:
    """Create a file in half the time of Path.write_bytes; there may be a million."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    try:
        if os.write(file, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
    finally:
        os.close(file)


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
