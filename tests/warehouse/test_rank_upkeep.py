"""The summaries of a warehouse that changes: who builds which, and what a reader sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.evidence import Witness
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.evidence.summaries import SightingCounts
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.view import Reader, View, tidy
from sigdir.warehouse.jobs.compact import compact, everything
from sigdir.warehouse.log.manifest import EvidenceFile
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files
from tests.warehouse.support import stage

ABI = '[{"type":"function","name":"transfer","inputs":[{"type":"address","name":"to"},{"type":"uint256","name":"n"}]}]'


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader of a warehouse with one list, its columns built."""
    (tmp_path / "one.txt").write_text("transfer(address,uint256)\nf()\ng()\n")
    import_files([tmp_path / "one.txt"], tmp_path / "warehouse")
    with closing(Reader(Paths(tmp_path / "warehouse"))) as opened:
        yield opened


def columns(reader: Reader) -> dict[str, int]:
    """The summaries in the cache; a column that is built again has another number."""
    return {folder.name: folder.stat().st_ino for folder in reader.paths.cache.glob("*.summaries")}


def counts_of(view: View, text: str) -> SightingCounts:
    [row] = ranked_rows(view, SIGNATURES, keccak256(text.encode())[:4])
    return row.counts


def test_import_of_known_texts(reader: Reader, tmp_path: Path) -> None:
    """A publish builds the columns of its version, so servers do not; the older file's counts the new source."""
    assert counts_of(reader.current(), "f()").sources == 1
    (tmp_path / "two.txt").write_text("f()\nh()\n")
    (tmp_path / "abi.json").write_text(ABI)
    import_files([tmp_path / "two.txt", tmp_path / "abi.json"], tmp_path / "warehouse")
    built = columns(reader)
    view = reader.refreshed()
    assert columns(reader) == built
    assert len(built) == 2
    assert [counts_of(view, text).sources for text in ("f()", "g()", "h()")] == [2, 1, 1]
    assert counts_of(view, "transfer(address,uint256)").sources == 2


def test_fold_builds_its_own_rows(reader: Reader) -> None:
    """A fold adds the column of its own file and leaves the others as they are."""
    before = columns(reader)
    stage(reader.paths, SIGNATURES, "posted()")
    assert counts_of(reader.refreshed(), "posted()").witness == Witness.LISTED
    fold(reader.paths)
    after = columns(reader)
    assert {name: after.get(name) for name in before} == before
    assert len(after) == len(before) + 1
    assert counts_of(reader.refreshed(), "posted()").sources == 1
    assert columns(reader) == after


def test_compaction_and_tidying(reader: Reader) -> None:
    """A compaction builds the column of its file; tidying removes those of files that are gone and keeps the others."""
    stage(reader.paths, SIGNATURES, "posted()")
    fold(reader.paths)
    compact(reader.paths, everything)
    built = columns(reader)
    view = reader.refreshed()
    assert columns(reader) == built
    tidy(reader.paths)
    kept = columns(reader)
    assert kept.items() < built.items()
    assert len(kept) == len(view.snapshot.all_files())


def test_merged_evidence(reader: Reader, tmp_path: Path) -> None:
    """A merge of evidence renames the columns of data files that stay; it builds them too, so servers do not."""
    (tmp_path / "two.txt").write_text("f()\nh()\n")
    import_files([tmp_path / "two.txt"], tmp_path / "warehouse")
    before = columns(reader)
    compact(reader.paths, evidence_alone)
    built = columns(reader)
    assert len(built.keys() - before.keys()) == 2
    reader.refreshed()
    assert columns(reader) == built


def evidence_alone(files: Sequence[Any]) -> list[Sequence[Any]]:
    """All files of evidence into one, and no data file."""
    return everything([file for file in files if isinstance(file, EvidenceFile)])


def test_readers_build_what_is_missing(reader: Reader) -> None:
    """Without the publisher's columns, a reader builds them and sees the same."""
    counts = counts_of(reader.current(), "f()")
    for folder in reader.paths.cache.glob("*.summaries"):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    with closing(Reader(reader.paths)) as second:
        assert counts_of(second.current(), "f()") == counts
        assert columns(second)
