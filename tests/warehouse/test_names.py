"""Rows by name, the origins of rows, and what decoding knows of them, over a warehouse on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.compact import compact
from sigdir.warehouse.index.ranked import known_texts
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.manifest import POSTED, Origin, Origins
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.warehouse.support import copied, stage

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
def reader(base: Paths, tmp_path: Path) -> Iterator[Reader]:
    with closing(Reader(copied(base, tmp_path))) as reader:
        yield reader


def test_only_the_whole_name_is_found(reader: Reader) -> None:
    """In one collection, oldest first. ``test_grams`` compares patterns by the grams with the scan."""

    def found(name: str, limit: int = 10) -> list[str]:
        return [segment.text_at(row) for segment, row in reader.current().with_name(SIGNATURES, name, limit)]

    assert found("transfer") == ["transfer(address)", "transfer()", "transfer(bytes)", "transfer(uint8)"]
    assert found("transfer", 2) == ["transfer(address)", "transfer()"]
    assert found("tr") == ["tr()"]
    assert found("transf") == []


def origins(view: View, paths: Paths) -> dict[str, Origin | None]:
    """The origin of each row, by its text."""
    known = Origins(paths)
    return {
        segment.text_at(row): known.of(segment.import_at(row), int(segment.created_at[row]), view.snapshot.version)
        for collection in COLLECTIONS
        for segment in view.segments[collection]
        for row in range(segment.rows)
    }


def test_a_row_knows_its_import(reader: Reader) -> None:
    """An origin has the import's number, label, sources and rows, and no folder names; also after files were merged."""
    before = origins(reader.current(), reader.paths)
    for number, lines in enumerate(IMPORTS, 1):
        for line in lines:
            origin = before[line.split(maxsplit=1)[-1]]
            assert origin is not None
            assert (origin.number, origin.version) == (number, number)
            assert origin.label == (f"number {number}" if number > 1 else None)
            assert (origin.names, origin.sources, origin.imported) == ((f"list{number}.txt",), 1, len(lines))
    compact(reader.paths)
    merged = reader.refreshed()
    assert len(merged.segments[SIGNATURES]) == 1
    assert origins(merged, reader.paths) == before


def test_a_row_without_an_import(reader: Reader) -> None:
    """A POSTed row has the origin POSTED, staged and folded; one whose commit cannot be read has none."""
    stage(reader.paths, SIGNATURES, "posted()")
    assert origins(reader.refreshed(), reader.paths)["posted()"] == POSTED
    fold(reader.paths)
    assert origins(reader.refreshed(), reader.paths)["posted()"] == POSTED
    reader.paths.log_entry(1).write_bytes(b"{")
    assert origins(reader.current(), reader.paths)["name()"] is None


def test_a_newer_word_is_seen(warehouse: Path) -> None:
    """Declarations are kept for the newest manifest only."""
    with closing(Reader(Paths(warehouse))) as reader:
        for name in ("first", "second"):
            import_lines(warehouse, f"function buy(uint256 {name}) external")
            [known] = known_texts(reader.current(), keccak256(b"buy(uint256)")[:4])
            assert [one.name for one in known.parsed().types] == [name]
