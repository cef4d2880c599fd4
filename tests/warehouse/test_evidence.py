"""Evidence at rest: the sightings of imports, their manifest, and which of them count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Options, run_import
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.evidence import POST, read_manifest
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.schema import SIGHTING_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from tests.warehouse.support import content_of, fold, stage


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "warehouse")


def write_list(folder: Path, name: str, texts: Sequence[str]) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def bring(paths: Paths, *files: Path, **options: Any) -> ImportReport:
    """Import files."""
    return run_import(Options([str(file) for file in files], paths.root, **options), Reporter())


def sightings(snapshot: Snapshot, collection: Collection = SIGNATURES) -> list[dict[str, Any]]:
    """The sightings of a version that count, in the order of the files."""
    manifest = snapshot.evidence
    tables = [pq.read_table(file.path) for file in manifest.files[collection]]
    rows = pa.concat_tables([SIGHTING_SCHEMA.empty_table(), *(table.cast(SIGHTING_SCHEMA) for table in tables)])
    return [row for row in rows.to_pylist() if manifest.counts(row["source"], row["import_id"])]


def who_says(paths: Paths, collection: Collection = SIGNATURES) -> set[tuple[str, str]]:
    """Pairs of a source's label and a text, by the newest version."""
    snapshot = read_snapshot(paths)
    text_of = {row["id"]: row["text_signature"] for row in content_of(paths)[collection]}
    labels = {number: source.label for number, source in snapshot.evidence.sources.items()}
    return {(labels[row["source"]], text_of[row["id"]]) for row in sightings(snapshot, collection)}


def test_an_import_leaves_a_sighting_for_each_new_row(paths: Paths, tmp_path: Path) -> None:
    """The manifest names the source and the files of the version that brought the rows."""
    file = write_list(tmp_path, "list.txt", ["a(uint256)", "event B(address)", "c(bool)"])
    report = bring(paths, file)
    assert report.sightings == 3
    snapshot = read_snapshot(paths)
    assert who_says(paths) == {("list.txt", "a(uint256)"), ("list.txt", "c(bool)")}
    assert who_says(paths, EVENT_SIGNATURES) == {("list.txt", "B(address)")}
    row = sightings(snapshot)[0]
    assert (row["id"], row["import_id"]) == (1, 1)
    assert (row["kind"], row["witness"], row["file"]) == (Kind.UNKNOWN, Witness.LISTED, None)
    (source,) = (source for number, source in snapshot.evidence.sources.items() if number != POST)
    assert (source.label, source.import_id, source.first_import, source.sightings) == ("list.txt", 1, 1, 3)
    (found,) = snapshot.evidence.files[SIGNATURES]
    assert (found.rows, found.first_id, found.last_id, found.size) == (2, 1, 2, found.path.stat().st_size)


def test_the_evidence_of_an_older_version_is_what_it_was(paths: Paths, tmp_path: Path) -> None:
    """Each version names the manifest of its own evidence."""
    bring(paths, write_list(tmp_path, "one.txt", ["a(uint256)"]))
    bring(paths, write_list(tmp_path, "two.txt", ["b(uint256)"]))
    assert [len(sightings(read_snapshot(paths, version))) for version in (0, 1, 2)] == [0, 1, 2]
    assert read_manifest(paths, 1) == read_snapshot(paths, 1).evidence
    assert {source.label for source in read_manifest(paths, 1).sources.values()} == {"POST", "one.txt"}


def test_the_label_of_a_source_says_nothing_of_the_folders_above(paths: Paths, tmp_path: Path) -> None:
    """A file in a folder is called as it lies in the folder that the user named."""
    write_list(tmp_path, "lists/first/one.txt", ["a(uint256)"])
    write_list(tmp_path, "lists/two.txt", ["b(uint256)"])
    bring(paths, tmp_path / "lists")
    assert who_says(paths) == {("lists/first/one.txt", "a(uint256)"), ("lists/two.txt", "b(uint256)")}


def test_a_label_joins_the_files_of_an_import(paths: Paths, tmp_path: Path) -> None:
    """With ``--source`` all files are one source, and each sighting names its file."""
    write_list(tmp_path, "lists/one.txt", ["a(uint256)"])
    write_list(tmp_path, "lists/two.txt", ["b(uint256)"])
    bring(paths, tmp_path / "lists", source="ours")
    assert who_says(paths) == {("ours", "a(uint256)"), ("ours", "b(uint256)")}
    assert [row["file"] for row in sightings(read_snapshot(paths))] == ["lists/one.txt", "lists/two.txt"]


def test_a_fold_brings_the_sightings_of_its_posts(paths: Paths, tmp_path: Path) -> None:
    """All POSTs are one source."""
    bring(paths, write_list(tmp_path, "one.txt", ["a(uint256)"]))
    stage(paths, SIGNATURES, "b(uint256)")
    fold(paths)
    assert who_says(paths) == {("one.txt", "a(uint256)"), ("POST", "b(uint256)")}
    before, after = (read_manifest(paths, version) for version in (1, 2))
    assert before.sources_file == after.sources_file


def test_a_commit_without_evidence_names_the_manifest_before_it(paths: Paths, tmp_path: Path) -> None:
    """A version that only has new rejects has the evidence of the version before it."""
    bring(paths, write_list(tmp_path, "one.txt", ["a(uint256)"]))
    report = bring(paths, write_list(tmp_path, "bad.txt", ["a(uint256)", "???"]), source="one.txt")
    assert report.published
    bring(paths, write_list(tmp_path, "worse.txt", ["!!!"]))
    assert read_snapshot(paths).version == 3
    assert read_snapshot(paths).manifest == read_snapshot(paths, 2).manifest


@pytest.mark.parametrize("what", ["manifest", "sources"])
def test_damaged_evidence_is_named(paths: Paths, tmp_path: Path, what: str) -> None:
    """The rows can still be read; whoever asks for the evidence is told which file is damaged."""
    bring(paths, write_list(tmp_path, "one.txt", ["a(uint256)"]))
    snapshot = read_snapshot(paths)
    assert snapshot.manifest is not None
    path = snapshot.manifest.path
    if what == "sources":
        path = paths.evidence / json.loads(path.read_bytes())["sources"]["name"]
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    copy = Paths(tmp_path / "copy")
    paths.root.rename(copy.root)
    found = read_snapshot(copy)
    assert found.count(SIGNATURES) == 1
    with pytest.raises(UnreadableWarehouse, match="damaged") as caught:
        _ = found.evidence
    assert str(copy.evidence / path.name) in str(caught.value)


def test_rows_from_before_the_evidence_have_no_sightings(paths: Paths) -> None:
    """A version without evidence has the source of all POSTs alone, and no file."""
    stage(paths, SIGNATURES, "a(uint256)")
    assert list(read_snapshot(paths).evidence.sources) == [POST]
    assert not read_snapshot(paths).evidence.all_files()
