"""Rows by name, and the origins of rows, over a warehouse on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index import grams
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.jobs.compact import compact
from sigdir.warehouse.log.history import POSTED, Origin, Origins
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.transaction import NewText
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.warehouse.support import copied

IMPORTS = [
    ["transfer(address)", "transferFrom()", "name()", "event transfer(bool)"],
    ["transfer()", "Transfer()", "names()", "tr()", "event Other()"],
    ["transfer(bytes)", "function transfer(uint8)"],
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Three imports, each with its own data file."""
    warehouse = tmp_path_factory.mktemp("names") / "warehouse"
    for number, lines in enumerate(IMPORTS, 1):
        source = f"number {number}" if number > 1 else None
        import_lines(warehouse, *lines, name=f"list{number}.txt", source=source)
    return Paths(warehouse)


@pytest.fixture
def warehouse(base: Paths, tmp_path: Path) -> Path:
    return copied(base, tmp_path).root


@pytest.fixture
def reader(warehouse: Path) -> Iterator[Reader]:
    with closing(Reader(Paths(warehouse))) as reader:
        yield reader


def by_name(view: View, name: str, limit: int = 10) -> list[str]:
    return [segment.text_at(row) for segment, row in view.with_name(SIGNATURES, name, limit)]


@pytest.fixture(params=[0, 1 << 14])
def few_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the grams of names, and without."""
    monkeypatch.setattr(grams, "_FEW_ROWS", request.param)


def test_only_the_whole_name_is_found(few_rows: None, reader: Reader) -> None:
    """The grams and the scan find the exact name, in one collection, oldest first."""
    view = reader.current()
    assert by_name(view, "transfer") == ["transfer(address)", "transfer()", "transfer(bytes)", "transfer(uint8)"]
    assert by_name(view, "transfer", 2) == ["transfer(address)", "transfer()"]
    assert by_name(view, "tr") == ["tr()"]
    assert by_name(view, "transf") == []


def origins(view: View, warehouse: Path) -> dict[str, Origin | None]:
    """The origin of each row, by its text."""
    known = Origins(Paths(warehouse))
    return {
        segment.text_at(row): known.of(segment.import_at(row), int(segment.created_at[row]), view.snapshot.version)
        for collection in COLLECTIONS
        for segment in view.segments[collection]
        for row in range(segment.rows)
    }


def test_a_row_knows_its_import(reader: Reader, warehouse: Path) -> None:
    """An origin has the import's number, label, sources and rows, and no folder names."""
    found = origins(reader.current(), warehouse)
    for number, lines in enumerate(IMPORTS, 1):
        for line in lines:
            origin = found[line.split(maxsplit=1)[-1]]
            assert origin is not None
            assert (origin.number, origin.version) == (number, number)
            assert origin.label == (f"number {number}" if number > 1 else None)
            assert (origin.names, origin.sources, origin.imported) == ((f"list{number}.txt",), 1, len(lines))


def test_a_row_knows_its_import_when_files_were_merged(reader: Reader, warehouse: Path) -> None:
    """After a compaction put several imports into one file, each row still has its import."""
    compact(Paths(warehouse))
    merged = reader.refreshed()
    assert len(merged.segments[SIGNATURES]) == 1
    assert {text: origin and origin.number for text, origin in origins(merged, warehouse).items()} == {
        line.split(maxsplit=1)[-1]: number for number, lines in enumerate(IMPORTS, 1) for line in lines
    }
    assert by_name(merged, "transfer") == ["transfer(address)", "transfer()", "transfer(bytes)", "transfer(uint8)"]
    assert merged.count(EVENT_SIGNATURES) == 2


def test_a_posted_row_has_no_import(reader: Reader, warehouse: Path) -> None:
    """A POSTed row has the origin POSTED, staged and folded."""
    with Staging(Paths(warehouse).staging).exclusive() as staging:
        posted = NewText(SIGNATURES, "posted()", keccak256(b"posted()"))
        staging.stage_all([posted], reader.current().snapshot.high_water)
    assert origins(reader.refreshed(), warehouse)["posted()"] == POSTED
    fold(Paths(warehouse))
    assert origins(reader.refreshed(), warehouse)["posted()"] == POSTED


def test_a_row_whose_commit_cannot_be_read_has_no_origin(reader: Reader, warehouse: Path) -> None:
    view = reader.current()
    Paths(warehouse).log_entry(1).write_bytes(b"{")
    assert origins(view, warehouse)["name()"] is None
