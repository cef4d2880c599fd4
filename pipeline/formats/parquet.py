"""Parquet with the Sourcify v2 columns, or with a text_signature column (our own files, say).

``signature_hash_32`` is the keccak-256 of functions and events alike, so it does not say which a
row is; a ``hash`` or ``hex_signature`` of 4 or 32 bytes does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.candidates import BATCH_ROWS, Candidates, Entry, pack
from pipeline.errors import BadInput
from pipeline.formats.hashes import collection_of, parse_hash
from pipeline.formats.tabular import HASH_COLUMNS, TEXT_COLUMNS
from pipeline.grammar import BAD_ENTRY, HASH_MISMATCH, OK, UNSAID
from pipeline.source import Source

_SOURCIFY_COLUMNS = ("signature_hash_32", "signature_hash_4")


def looks_like(source: Source) -> bool:
    return source.head.startswith(b"PAR1")


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    with source.seekable() as stored:
        try:
            file = pq.ParquetFile(stored, page_checksum_verification=True)
            names = file.schema_arrow.names
            text = next((name for name in TEXT_COLUMNS if name in names), None)
            if text is None:
                found = ", ".join(names[:12])
                wanted = " or ".join(TEXT_COLUMNS)
                raise BadInput(source.name, f"no column is named {wanted}; it has {found}")
            long, short = (name if name in names else None for name in _SOURCIFY_COLUMNS)
            other = next((name for name in HASH_COLUMNS if name in names), None)
            columns = [name for name in (text, long, short, other) if name]
            number = 0
            for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                rows = {name: _plain(batch.column(name)).to_pylist() for name in columns}
                none = [None] * batch.num_rows
                for value, hash_32, hash_4, hash_other in zip(
                    rows[text],
                    *(rows[name] if name else none for name in (long, short, other)),
                    strict=True,
                ):
                    number += 1
                    yield _entry(value, hash_32, hash_4, hash_other, number)
        except (pa.ArrowException, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise BadInput(source.name, f"broken Parquet: {reason}") from None


def _plain(column: pa.Array) -> pa.Array:
    """Text as bytes, for it may not be the UTF-8 that the column's type says."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return column


def _entry(text: Any, hash_32: Any, hash_4: Any, other: Any, number: int) -> Entry:
    raw = text
    if not isinstance(raw, bytes):
        return Entry(b"", number, fault=BAD_ENTRY)
    if hash_32 is not None or hash_4 is not None:
        declared = _digest(hash_32 if hash_32 is not None else hash_4)
        fault = BAD_ENTRY if declared is None else OK
        if declared and hash_32 is not None and hash_4 is not None and declared[:4] != _digest(hash_4):
            fault = HASH_MISMATCH
        return Entry(raw, number, UNSAID, declared or b"", fault)
    if other is None:
        return Entry(raw, number)
    declared = _digest(other)
    if declared is None:
        return Entry(raw, number, fault=BAD_ENTRY)
    return Entry(raw, number, collection_of(declared), declared)


def _digest(value: Any) -> bytes | None:
    """4 or 32 bytes from a binary column or from a column of hex digits; None where it is neither."""
    if not isinstance(value, bytes):
        return None
    return value if len(value) in (4, 32) else parse_hash(value.decode("latin-1"))
