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

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.fingerprints import fingerprints_of
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish import dedupe
from sigdir.warehouse.publish.dedupe import new_rows
from sigdir.warehouse.publish.spill import Spill, text_ids_in
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.table import parquet
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.parquet import NewRows, rows_table, write_data_file
from tests.examples import examples
from tests.warehouse.support import cut, digest_of, make_spill, names

NEW, FILE_1, FILE_2, FILE_3, STAGED = range(5)
"""Where a text is known from."""


def flags_of(spill: Spill, snapshot: Snapshot, staged: list[StagedRow]) -> list[bool]:
    ids = text_ids_in(spill.texts_path.with_suffix(".ids"), spill.rows)
    found: list[bool] = new_rows(spill, snapshot, staged, 2, ids).tolist()
    return found


def snapshot_of(folder: Path, collection: Collection, contents: Sequence[Sequence[str]]) -> Snapshot:
    """A snapshot with a file for each sequence of texts that is not empty, in row groups as usual."""
    files = []
    for number, wanted in enumerate(contents):
        if wanted:
            hashes = pa.array([digest_of(text)[: collection.hash_bytes] for text in wanted], pa.binary())
            ids = np.arange(len(wanted), dtype=np.int64) + 1000 * number + 1
            rows = rows_table(NewRows(pa.array(wanted, pa.string()), hashes), ids, ids, 1)
            files.append(write_data_file(folder / f"{number}.parquet", collection, [rows]))
    empty: dict[Collection, tuple[DataFile, ...]] = dict.fromkeys(COLLECTIONS, ())
    return Snapshot(1, empty | {collection: tuple(files)})


def staged_rows(wanted: Sequence[str]) -> list[StagedRow]:
    return [StagedRow(1000 + number, number, text, digest_of(text)) for number, text in enumerate(wanted)]


@settings(max_examples=examples(120))
@given(
    few_rows=st.sampled_from((1 << 30, 0)),
    collection=st.sampled_from(COLLECTIONS),
    part_rows=st.sampled_from([dedupe.PART_ROWS, 16]),
    places=st.lists(st.integers(NEW, STAGED), min_size=30, max_size=30),
    batch=st.lists(st.integers(0, 29), max_size=150),
    batch_rows=st.integers(1, 60),
)
def test_new_rows_equal_a_set(
    few_rows: int, collection: Collection, part_rows: int, places: list[int], batch: list[int], batch_rows: int
) -> None:
    """A row is new if its text is in no file, not staged, and not earlier in the batch; in one table or in several parts."""
    texts = names("f", 30)
    held = [[text for text, place in zip(texts, places, strict=True) if place == where] for where in range(5)]
    expected = [places[n] == NEW and n not in batch[:at] for at, n in enumerate(batch)]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr(dedupe, "_FEW_ROWS", few_rows)
        patch.setattr(parquet, "ROW_GROUP_ROWS", 4)
        patch.setattr(dedupe, "PART_ROWS", part_rows)
        patch.setattr(dedupe, "_CHUNK_ROWS", 8)
        folder = Path(name)
        spill = make_spill(folder, collection, cut([texts[n] for n in batch], batch_rows))
        snapshot = snapshot_of(folder, collection, held[FILE_1:STAGED])
        assert flags_of(spill, snapshot, staged_rows(held[STAGED])) == expected


def test_keys_are_compared_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts whose keys differ in one bit of either half are no duplicates; those of one key are."""
    keys = {"a()": [7, 1], "b()": [7, 1 | 1 << 63], "c()": [8, 1], "A()": [7, 1]}

    def crafted(text: pa.StringArray) -> npt.NDArray[np.uint64]:
        return np.array([keys[item] for item in text.to_pylist()], np.uint64).reshape(-1, 2)

    monkeypatch.setattr(dedupe, "fingerprints_of", crafted)
    texts = ["a()", "b()", "a()", "c()", "b()", "A()"]
    for in_file, in_staging in ((), ()), (("b()",), ()), ((), ("c()",)):
        folder = tmp_path / "".join([*in_file, *in_staging])
        folder.mkdir(exist_ok=True)
        spill = make_spill(folder, SIGNATURES, cut(texts, 3))
        flags = flags_of(spill, snapshot_of(folder, SIGNATURES, [in_file]), staged_rows(in_staging))
        assert flags == [True, "b()" not in in_file, False, "c()" not in in_staging, False, False]


def test_only_row_groups_with_a_hash_of_a_small_batch_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that shares its hash with another one, or is stored, makes its row group read; other groups are left out."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 4)
    read: list[str] = []

    def noting(text: pa.StringArray) -> npt.NDArray[np.uint64]:
        read.extend(text.to_pylist())
        return fingerprints_of(text)

    monkeypatch.setattr(dedupe, "fingerprints_of", noting)
    # The two texts have the selector 0x42966c68.
    stored = ["collate_propagate_storage(bytes16)", *names("f", 11)]
    for collection in COLLECTIONS:
        folder = tmp_path / collection
        folder.mkdir()
        spill = make_spill(folder, collection, [["burn(uint256)", "other()"], [stored[3]]])
        read.clear()
        assert flags_of(spill, snapshot_of(folder, collection, [stored]), []) == [True, True, False]
        assert read == ["burn(uint256)", "other()", *stored[3:4], *stored[:4]]


def test_rows_are_found_by_their_text(tmp_path: Path) -> None:
    """``rows_with`` gives all rows with these texts, and which text each has."""
    spill = make_spill(tmp_path, SIGNATURES, cut(["a()", "b()", "a()", "c()", "b()"], 2))
    found = [
        [column.tolist() for column in spill.rows_with(texts)] for texts in (["a()", "x()"], ["c()", "b()"], ["x()"])
    ]
    assert found == [[[0, 2], [0, 0]], [[1, 3, 4], [1, 0, 1]], [[], []]]
