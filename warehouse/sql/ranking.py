"""The order of texts for SQL: ``sigdir.signatures.rank`` decides it, by the summaries of the texts.

Few selectors have several texts. A sort of four bytes a row finds these: 40 ms for a million rows, with reading. The engine's
GROUP BY takes six times the work, because its keys are strings. Memory does not grow with the rows: the files are read
once for each 2^26 of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import numbers, strings
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import Witness
from sigdir.signatures.rank import Ranked, Summary, made_up_part, ranked
from sigdir.warehouse.evidence.declarations import differs
from sigdir.warehouse.evidence.summaries import KINDS, Counts
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.sql.summaries import SummaryReader
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.paths import Paths

Array = npt.NDArray[Any]

_PASS_BITS = 26
_BATCH_ROWS = 1 << 17
_WIDTH = 4

_TEXTS = "SELECT hash, id, text_signature FROM {} WHERE hash IN (SELECT unnest($1::BLOB[])) ORDER BY hash, id"
_SHARED = """
    SELECT name FROM (SELECT split_part(text_signature, '(', 1) AS name FROM {})
    WHERE name IN (SELECT unnest($1::VARCHAR[])) GROUP BY name HAVING count(*) > 1"""


class Ranking:
    """The order of the texts of a connection's views. It holds no connection open."""

    def __init__(
        self, connection: weakref.ref[duckdb.DuckDBPyConnection], readers: Mapping[Collection, SummaryReader]
    ) -> None:
        self._connection, self._readers = connection, readers

    @classmethod
    def of(cls, connection: weakref.ref[duckdb.DuckDBPyConnection], paths: Paths, snapshot: Snapshot) -> Ranking:
        return cls(connection, {collection: SummaryReader(paths, snapshot, collection) for collection in COLLECTIONS})

    def ranked(self, collection: Collection, hashes: Sequence[bytes]) -> dict[bytes, list[Ranked]]:
        """The texts of those of these hashes that have any, the best first; raises UnreadableWarehouse."""
        rows = self._rows(_TEXTS.format(collection.view_name), hashes)
        ids = np.array([id for _, id, _ in rows], np.int64)
        counts, declarations = self._readers[collection].of(ids, are_scattered=True)
        summed = zip(map(Counts._make, counts.tolist()), declarations.to_pylist(), strict=True)
        texts = [(hash, _summary(id, text, *each)) for (hash, id, text), each in zip(rows, summed, strict=True)]
        names = {text.name for _, text in texts if made_up_part(text.name)}
        shared = (
            {name for (name,) in self._rows(_SHARED.format(collection.view_name), sorted(names))} if names else set()
        )
        return {
            bytes(hash): ranked(hash, [text for _, text in group], shared.__contains__)
            for hash, group in groupby(texts, itemgetter(0))
        }

    def _rows(self, query: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        connection = self._connection()
        if connection is None:
            return []
        with connection.cursor() as cursor:
            return cursor.execute(query, [values]).fetchall()


def _summary(id: int, text: str, counts: Counts, declaration: str | None) -> Summary:
    return Summary(
        id, text, Witness(counts.witness), KINDS[counts.kinds], counts.sources, counts.contracts, counts.compiled,
        counts.verified, declaration=declaration or "",
    )  # fmt: skip


class Rivals:
    """The texts of the selectors that several texts have, in their places; found when they are first asked for."""

    SQL_TYPE = "STRUCT(id BIGINT, text_signature VARCHAR, hash BLOB, position BIGINT, mined VARCHAR)[]"

    def __init__(self, ranking: Ranking, files: Sequence[DataFile]) -> None:
        self._ranking, self._files = ranking, files
        self._found: pa.StructArray | None = None
        self._lock = threading.Lock()

    def lists(self, rows: pa.ChunkedArray) -> pa.ListArray:
        """All of them as a list, for each of these rows; raises UnreadableWarehouse."""
        with self._lock:
            if self._found is None:
                self._found = self._ranked()
        ends = np.arange(len(rows) + 1, dtype=np.int32) * len(self._found)
        return pa.ListArray.from_arrays(numbers(ends), pa.concat_arrays([self._found] * len(rows)))

    def _ranked(self) -> pa.StructArray:
        hashes = repeated(self._files).to_pylist()
        groups = self._ranking.ranked(SIGNATURES, hashes) if hashes else {}
        texts = [(hash, one) for hash, group in groups.items() for one in group]
        ids = numbers(np.array([one.summary.id for _, one in texts], np.int64))
        positions = numbers(np.array([one.position for _, one in texts], np.int64))
        hash = _fixed(np.frombuffer(b"".join(hash for hash, _ in texts), ">u4"))
        columns = [
            ids, strings([one.summary.text for _, one in texts]), hash, positions,
            strings([one.mined or None for _, one in texts]),
        ]  # fmt: skip
        return pa.StructArray.from_arrays(columns, ["id", "text_signature", "hash", "position", "mined"])


def repeated(files: Sequence[DataFile], pass_bits: int = _PASS_BITS) -> pa.BinaryArray:
    """The hashes of four bytes that more than one row of the files has, rising; raises UnreadableWarehouse."""
    rows = sum(file.rows for file in files)
    bits = max(0, (rows - 1).bit_length() - pass_bits)
    found = [np.empty(0, np.uint32)]
    for number in range(1 << bits if files else 0):
        hashes = np.concatenate([part for file in files for part in _hashes(file, bits, number)])
        hashes.sort()
        again = hashes[1:][hashes[1:] == hashes[:-1]]
        found.append(again[differs(again)])
    return _fixed(np.concatenate(found).astype(">u4"))


def _fixed(hashes: Array) -> pa.BinaryArray:
    """Hashes of four bytes as a column."""
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_WIDTH), len(hashes), [None, pa.py_buffer(hashes)])
    return fixed.cast(pa.binary())


def _hashes(file: DataFile, bits: int, number: int) -> Iterator[Array]:
    """The hashes of a file as numbers, of those whose highest ``bits`` are ``number``; one of another width is left out."""
    with naming(file.path), pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=["hash"]):
            column = batch.column(0).cast(pa.binary())
            offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
            hashes = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
            if (np.diff(offsets) != _WIDTH).any():
                hashes = np.frombuffer(
                    b"".join(hash for hash in column.to_pylist() if len(hash or b"") == _WIDTH), np.uint8
                )
            found = hashes.view(">u4").astype(np.uint32)
            yield found[found >> np.uint32(32 - bits) == number] if bits else found
