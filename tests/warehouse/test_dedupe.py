"""Which rows are new, compared with a plain Python set for known rows in files, in staging and in the batch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish import dedupe
from sigdir.warehouse.publish.dedupe import new_rows
from sigdir.warehouse.publish.spill import Spill, text_ids_in
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.table import parquet
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.parquet import NewRows, rows_table, write_data_file
from tests.examples import examples
from tests.warehouse.support import Digest, cut, digest_of, make_spill

# Where a text is known from; and with or without the map of hashes.
NEW, FILE_1, FILE_2, FILE_3, STAGED = range(5)
MAPS = (1 << 30, 0)


def flags_of(spill: Spill, snapshot: Snapshot, staged: list[StagedRow]) -> list[bool]:
    ids = text_ids_in(spill.keys_path.with_suffix(".ids"), spill.rows)
    found: list[bool] = new_rows(spill, snapshot, staged, 2, ids).tolist()
    return found


def text_of(number: int) -> str:
    return f"f{number}(uint256)"


def snapshot_of(
    folder: Path, collection: Collection, contents: Sequence[Sequence[str]], digest: Digest = keccak256_column
) -> Snapshot:
    """A snapshot with a file for each sequence of texts that is not empty, in row groups as usual."""
    files: list[DataFile] = []
    for number, wanted in enumerate(contents):
        if wanted:
            text = pa.array(wanted, pa.string())
            hashes = pa.array([value.tobytes() for value in digest(text)[:, : collection.hash_bytes]], pa.binary())
            ids = np.arange(len(wanted), dtype=np.int64) + 1000 * number + 1
            rows = rows_table(NewRows(text, hashes), ids, ids, 1)
            files.append(write_data_file(folder / f"{number}.parquet", collection, [rows]))
    empty: dict[Collection, tuple[DataFile, ...]] = dict.fromkeys(COLLECTIONS, ())
    return Snapshot(1, empty | {collection: tuple(files)})


def staged_rows(wanted: Sequence[str]) -> list[StagedRow]:
    return [StagedRow(1000 + number, number, text, digest_of(text)) for number, text in enumerate(wanted)]


def first_of_each(batch: Sequence[int], known: set[int]) -> list[bool]:
    """The expected flags: True for the first occurrence of each unknown number."""
    seen = set(known)
    flags = []
    for number in batch:
        flags.append(number not in seen)
        seen.add(number)
    return flags


@settings(max_examples=examples(120))
@given(
    map_rows=st.sampled_from(MAPS),
    collection=st.sampled_from(COLLECTIONS),
    part_rows=st.sampled_from([dedupe.PART_ROWS, 16]),
    places=st.lists(st.integers(NEW, STAGED), min_size=30, max_size=30),
    batch=st.lists(st.integers(0, 29), max_size=150),
    batch_rows=st.integers(1, 60),
)
def test_new_rows_equal_a_set(
    map_rows: int, collection: Collection, part_rows: int, places: list[int], batch: list[int], batch_rows: int
) -> None:
    """A row is new if its text is in no file, not staged, and not earlier in the batch; in one table or in several parts."""
    held = [[text_of(n) for n, place in enumerate(places) if place == where] for where in range(5)]
    known = {n for n, place in enumerate(places) if place != NEW}
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr(dedupe, "_MAP_ROWS", map_rows)
        patch.setattr(parquet, "ROW_GROUP_ROWS", 4)
        patch.setattr(dedupe, "PART_ROWS", part_rows)
        patch.setattr(dedupe, "_CHUNK_ROWS", 8)
        folder = Path(name)
        spill = make_spill(folder, collection, cut([text_of(n) for n in batch], batch_rows))
        snapshot = snapshot_of(folder, collection, held[FILE_1:STAGED])
        keep = flags_of(spill, snapshot, staged_rows(held[STAGED]))
    assert keep == first_of_each(batch, known)


@pytest.mark.parametrize("map_rows", MAPS)
@pytest.mark.parametrize("collection", COLLECTIONS)
def test_keys_with_the_same_first_half_are_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collection: Collection, map_rows: int
) -> None:
    """Texts whose keys agree in eight bytes are no duplicates; those that agree in sixteen are."""
    monkeypatch.setattr(dedupe, "_MAP_ROWS", map_rows)
    texts = ["a()", "b()", "c()", "d()"]

    def crafted(text: str) -> bytes:
        return b"\x11" * 8 + texts.index(text).to_bytes(8, "little") + b"\x22" * 16

    def digest(text: pa.StringArray) -> npt.NDArray[np.uint8]:
        return np.frombuffer(b"".join(crafted(item) for item in text.to_pylist()), np.uint8).reshape(-1, 32)

    monkeypatch.setattr(dedupe, "keccak256_column", digest)
    batch = [0, 1, 0, 2, 1, 3, 2]
    for in_file, in_staging in ([], []), ([1], []), ([], [3]), ([1], [3]):
        folder = tmp_path / f"{in_file}{in_staging}"
        folder.mkdir()
        spill = make_spill(folder, collection, cut([texts[n] for n in batch], 3), digest)
        snapshot = snapshot_of(folder, collection, [[texts[n] for n in in_file]], digest)
        staged = [StagedRow(9, 9, texts[n], crafted(texts[n])) for n in in_staging]
        assert flags_of(spill, snapshot, staged) == first_of_each(batch, {*in_file, *in_staging})
