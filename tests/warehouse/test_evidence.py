"""Evidence at rest: the sightings of imports, their manifest, and which of them count."""

from __future__ import annotations

import gzip
import hashlib
import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigdir.pipeline.report import ImportReport
from sigdir.signatures.candidates import Rows, Sightings
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import LISTED, Contract, Kind, Sighting, Witness
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.evidence.lookup import text_evidence
from sigdir.warehouse.evidence.mapped import sightings_table, write_sightings
from sigdir.warehouse.log.manifest import POST, ManifestFile, sources_of
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish import publish
from sigdir.warehouse.publish.batch import Batch
from sigdir.warehouse.publish.dedupe import new_rows
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.publish.renewal import Withdrawn
from sigdir.warehouse.publish.spill import ImportSightings, SightedInput, Spill, text_ids_in
from sigdir.warehouse.staging.transaction import NewText, PostedSighting
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import make_folder, run_name
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.vacuum import vacuum
from tests.conftest import import_files
from tests.warehouse.support import (
    Run,
    assert_clean,
    assert_evidence_is_whole,
    content_of,
    copied,
    digest_of,
    flip,
    fold,
    names,
    sightings,
    stage,
    staged_rows,
    verified,
)
from tests.warehouse.support import publish as publish_texts


def bring(paths: Paths, name: str, *texts: str, replaces: bool = False) -> ImportReport:
    """Import a list of this name, which lies beside the warehouse; of a name with a folder, all of that folder."""
    file = paths.root.parent / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{text}\n" for text in texts))
    return import_files([paths.root.with_name(name.split("/", maxsplit=1)[0])], paths.root, replace_source=replaces)


def who_says(paths: Paths, collection: Collection = SIGNATURES) -> set[tuple[str, str]]:
    """Pairs of a source's label and a text, by the newest version."""
    snapshot = read_snapshot(paths)
    text_of = {row["id"]: row["text_signature"] for row in content_of(paths)[collection]}
    labels = {number: source.label for number, source in snapshot.evidence.sources.items()}
    return {(labels[row["source"]], text_of[row["id"]]) for row in sightings(snapshot, collection)}


def test_an_import_leaves_a_sighting_for_each_row(paths: Paths) -> None:
    """The manifest names the source and the files. Rows that are stored, staged or repeated have sightings of it too."""
    assert bring(paths, "one.txt", "a(uint256)", "event C(bool)", "b(uint256)").sightings == 3
    manifest = read_snapshot(paths).evidence
    row = sightings(read_snapshot(paths))[0]
    assert (row["id"], row["import_id"]) == (1, 1)
    assert (row["kind"], row["witness"], row["file"]) == (Kind.UNKNOWN, Witness.LISTED, None)
    (source,) = (source for number, source in manifest.sources.items() if number != POST)
    assert (source.label, source.import_id, source.first_import, source.sightings) == ("one.txt", 1, 1, 3)
    (found,) = manifest.files[SIGNATURES]
    assert (found.rows, found.first_id, found.last_id, found.size) == (2, 1, 2, found.path.stat().st_size)
    stage(paths, SIGNATURES, "d(uint256)")
    report = bring(paths, "two.txt", "b(uint256)", "d(uint256)", "b(uint)", "event C(bool)")
    assert (report.published, report.total("imported"), report.sightings) == (True, 0, 3 + 1)  # and the folded POST
    said = {("one.txt", "a(uint256)"), ("one.txt", "b(uint256)"), ("two.txt", "b(uint256)"), ("two.txt", "d(uint256)")}
    assert who_says(paths) == {*said, ("POST", "d(uint256)")}
    assert who_says(paths, EVENT_SIGNATURES) == {("one.txt", "C(bool)"), ("two.txt", "C(bool)")}
    assert_evidence_is_whole(paths)


def test_a_lists_sightings_are_read_once(paths: Paths) -> None:
    """A row group that only lists new texts is known by its first sighting, without its file."""
    texts = names("f", 40)
    bring(paths, "list.txt", *texts)
    bring(paths, "some.txt", *texts[::3])
    bring(paths, "declared.txt", "function f50(uint256 a)")
    manifest = read_snapshot(paths).evidence
    found = [text_evidence(manifest, SIGNATURES, id) for id in range(1, 42)]
    says = [{said.source: (said.witness, said.declaration) for said in one.sightings(0, 9)} for one in found]
    listed = (Witness.LISTED, "")
    of_lists = [{"list.txt": listed} | ({"some.txt": listed} if row % 3 == 0 else {}) for row in range(40)]
    assert says[:40] == of_lists
    assert says[40]["declared.txt"][1] == "function f50(uint256 a)"
    max(manifest.files[SIGNATURES], key=lambda file: file.rows).path.unlink()
    assert text_evidence(manifest, SIGNATURES, 2).count == 1


def test_the_label_of_a_source_says_nothing_of_the_folders_above(paths: Paths, tmp_path: Path) -> None:
    """It is the file below the named folder, or that of ``--source``. Nothing is replaced beside a file that is
    broken.
    """
    bring(paths, "lists/one.txt", "a(uint256)", "a(uint256)")
    report = bring(paths, "lists/two.txt", "a(uint256)", "b(uint256)", "a(uint)")
    assert (report.total("imported"), report.total("duplicate"), report.sightings) == (1, 4, 2)
    said = {("lists/one.txt", "a(uint256)"), ("lists/two.txt", "a(uint256)"), ("lists/two.txt", "b(uint256)")}
    assert who_says(paths) == said
    import_files([tmp_path / "lists"], paths.root, source="ours")
    assert who_says(paths) == said | {("ours", "a(uint256)"), ("ours", "b(uint256)")}
    files = {row["file"] for row in sightings(read_snapshot(paths)) if row["import_id"] == 3}
    assert files == {"lists/one.txt", "lists/two.txt"}
    (tmp_path / "lists/one.txt").unlink()
    cut, broken = gzip.compress(b"c(uint256)\n" * 99)[:-9], b'[{"type": "function"'
    for name, content in {"cut.txt.gz": cut, "broken.json": broken}.items():
        (tmp_path / "lists" / name).write_bytes(content)
        report = import_files([tmp_path / "lists"], paths.root, source="ours", replace_source=True)
        assert (report.is_complete, report.withdrawn) == (False, Withdrawn())
        (tmp_path / "lists" / name).unlink()
    (tmp_path / "lists/two.txt").write_text("b(uint256)\n")
    report = import_files([tmp_path / "lists"], paths.root, source="ours", replace_source=True)
    assert (report.is_complete, report.withdrawn) == (True, Withdrawn(2, 1))


def test_a_source_that_says_nothing_any_more_is_withdrawn(paths: Paths) -> None:
    """An empty list replaces what its source said of both collections, once; a list of rejects does not."""
    bring(paths, "one.txt", "a(uint256)", "event E()")
    bring(paths, "two.txt", "a(uint256)")
    assert bring(paths, "one.txt", "f(uint7)", replaces=True).withdrawn == Withdrawn()
    assert bring(paths, "one.txt", replaces=True).withdrawn == Withdrawn(2, 2)
    assert (who_says(paths), who_says(paths, EVENT_SIGNATURES)) == ({("two.txt", "a(uint256)")}, set())
    assert not bring(paths, "one.txt", replaces=True).published
    assert not bring(paths, "new.txt", replaces=True).published
    assert verified(paths).findings == []


def test_a_fold_brings_the_sightings_of_its_posts(paths: Paths) -> None:
    """All POSTs are one source. A version that only has new rejects has the evidence of the version before it."""
    bring(paths, "one.txt", "a(uint256)")
    stage(paths, SIGNATURES, "b(uint256)")
    assert list(read_snapshot(paths, 0).evidence.sources) == [POST]
    assert not read_snapshot(paths, 0).evidence.all_files()
    fold(paths)
    assert who_says(paths) == {("one.txt", "a(uint256)"), ("POST", "b(uint256)")}
    assert read_snapshot(paths, 1).evidence.sources_file == read_snapshot(paths, 2).evidence.sources_file
    assert bring(paths, "worse.txt", "!!!").published
    assert read_snapshot(paths).version == 3
    assert read_snapshot(paths).manifest == read_snapshot(paths, 2).manifest


@pytest.mark.parametrize("what", ["manifest", "sources"])
def test_damaged_evidence_is_named(paths: Paths, tmp_path: Path, what: str) -> None:
    """The rows can still be read; whoever asks for the evidence is told which file is damaged."""
    bring(paths, "one.txt", "a(uint256)")
    named = read_snapshot(paths).manifest
    assert named is not None
    path = named.path if what == "manifest" else paths.evidence / json.loads(named.path.read_bytes())["sources"]["name"]
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    copy = Paths(tmp_path / "copy")
    paths.root.rename(copy.root)
    found = read_snapshot(copy)
    assert found.count(SIGNATURES) == 1
    with pytest.raises(UnreadableWarehouse, match=f"{copy.evidence / path.name}.*damaged"):
        _ = found.evidence


def test_a_manifest_names_its_sources_beside_it(tmp_path: Path) -> None:
    """Whoever made a warehouse also made its digests: a copy of it writes nothing outside of its folder."""
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"sources": {"name": "../../out.json", "sha256": "00"}, "files": []}))
    with pytest.raises(UnreadableWarehouse, match=r"names '[./]*out.json' as the file of its sources"):
        sources_of(ManifestFile(path, hashlib.sha256(path.read_bytes()).hexdigest()))


@pytest.mark.parametrize("point", ["", "begun", "indexed"])
def test_a_late_post_takes_the_sightings_of_its_text(paths: Paths, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """A text that is POSTed while its import is published keeps its id; the import folds it if the ids are not reserved yet."""

    def post(reached: str) -> None:
        if reached == point:
            stage(paths, SIGNATURES, "late(uint256)")

    with Run(paths, [["a(uint256)", "late(uint256)", "b(uint256)"], ["late(uint256)", "c(uint256)"]]) as run:
        post("")
        with monkeypatch.context() as patched:
            patched.setattr(failpoints, "reach", post)
            run.publish()
    ids = [row["id"] for row in content_of(paths)[SIGNATURES]]
    ids += [row.id for row in staged_rows(paths, SIGNATURES)]
    assert {row["id"] for row in sightings(read_snapshot(paths))} == set(ids)
    assert len(ids) == 4
    fold(paths)
    assert who_says(paths) == {
        *(("by hand", f"{n}(uint256)") for n in ("a", "late", "b", "c")),
        ("POST", "late(uint256)"),
    }
    assert_clean(paths)


def test_sightings_of_declarations_keep_everything(paths: Paths, tmp_path: Path) -> None:
    """Kind, witness, contract, declaration and counts come back as the reader gave them, new or duplicate."""
    key = bytes.fromhex("8000000000000001")
    said = [
        Sighting(Kind.FUNCTION, Witness.COMPILED, "function a(uint256 x)", Contract("A", key)),
        Sighting(Kind.EVENT, Witness.DECLARED, contracts=7, verified=True),
        LISTED,
    ]
    texts = pa.array(["a(uint256)", "b(uint256)", "c(uint256)", "a(uint256)"])
    spill = Spill(tmp_path, SIGNATURES)
    spill.append(Rows(texts, Sightings.of([*said, said[0]])))
    spill.finish()
    make_folder(paths.root)
    with Publisher(paths, wait=False) as publisher:
        ids = text_ids_in(tmp_path / "ids", spill.rows)
        keep = new_rows(spill, publisher.snapshot, [], 2, ids)
        batch = Batch(spill, keep, ImportSightings([SightedInput("abi", "A.json")], [0], ids))
        publisher.publish(run_name(), {SIGNATURES: batch}, {SIGNATURES: 0}, lambda: {"kind": "import"})
    found = sightings(read_snapshot(paths))
    columns = ("id", "kind", "witness", "contracts", "verified", "file", "contract", "contract_key", "declaration")
    assert [tuple(row[name] for name in columns) for row in found] == [
        (1, 1, 3, 0, False, "A.json", "A", -(2**63) + 1, "function a(uint256 x)"),
        (2, 2, 2, 7, True, "A.json", None, None, None),
        (3, 0, 1, 0, False, "A.json", None, None, None),
    ]


def test_an_import_compares_what_was_said_in_its_own_folder(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into memory goes there, as all else of an import, and not to the system's temporary folder."""
    publish_texts(paths, ["a(uint256)"])
    with monkeypatch.context() as without:
        without.setattr("tempfile.tempdir", str(paths.root / "none"))
        assert publish_texts(paths, ["a(uint256)", "b(uint256)"]).sightings == 1
    assert_clean(paths)


# POSTs.


def post_again(paths: Paths, id: int, declaration: str) -> None:
    """Note another POST of a text that is known."""
    with closing(Staging(paths.staging)) as staging, staging.exclusive_unsynced() as transaction:
        transaction.note_sightings([PostedSighting(SIGNATURES, id, Kind.FUNCTION, declaration)])


def test_a_declared_post_keeps_its_declaration(paths: Paths) -> None:
    """A new text's sighting has what was POSTed; a later POST of the text gives a declaration where there is none."""
    make_folder(paths.root)
    new = [
        NewText(SIGNATURES, "a(uint256)", digest_of("a(uint256)"), Kind.FUNCTION, "function a(uint256 x)"),
        NewText(SIGNATURES, "b(uint256)", digest_of("b(uint256)")),
    ]
    with closing(Staging(paths.staging)) as staging, staging.exclusive() as transaction:
        transaction.stage_all(new, read_snapshot(paths).high_water)
    post_again(paths, 2, "function b(uint256 y)")
    post_again(paths, 2, "function b(uint256 z)")
    fold(paths)
    found = [(row["id"], row["kind"], row["declaration"]) for row in sightings(read_snapshot(paths))]
    assert found == [(1, 1, "function a(uint256 x)"), (2, 1, "function b(uint256 y)")]


def test_posts_of_a_known_text_are_one_sighting(paths: Paths) -> None:
    """Folds move them; a text that has a POST's sighting gets another only for its first declaration."""

    def declared() -> list[str | None]:
        return [row["declaration"] for row in sightings(read_snapshot(paths)) if row["source"] == POST]

    bring(paths, "one.txt", "a(uint256)")
    for declaration in ("", "", "function a(uint256 x)", "function a(uint256 y)", ""):
        post_again(paths, 1, declaration)
        publish.fold(paths)
        assert publish.fold(paths) is None
    assert declared() == [None, "function a(uint256 x)"]
    compact(paths, everything)
    assert declared() == ["function a(uint256 x)"]


# Compaction, vacuum, verify.


def test_compaction_sorts_and_drops_what_no_longer_counts(paths: Paths, tmp_path: Path) -> None:
    """The same sightings count, in one file in the order of ids; older versions stay until they are vacuumed."""
    texts = names("f", 50)
    bring(paths, "one.txt", *texts)
    bring(paths, "two.txt", *reversed(texts), "last(uint256)", "event E()")
    bring(paths, "four.txt", *texts[::5])
    bring(paths, "four.txt", *texts[::7], replaces=True)
    before, version = who_says(paths), read_snapshot(paths).version
    files = read_snapshot(paths).evidence.all_files()
    assert compact(paths, everything) is not None
    assert who_says(paths) == before
    (file,) = read_snapshot(paths).evidence.files[SIGNATURES]
    ids = pq.read_table(file.path)["id"].to_pylist()
    assert ids == sorted(ids)
    assert len(ids) == len(before) == 50 + 51 + 8
    assert compact(paths, everything) is None
    assert_evidence_is_whole(paths)
    assert read_snapshot(paths, version).evidence.all_files() == files
    assert vacuum(paths).waste == ()
    assert [len(sightings(read_snapshot(paths, version))) for version in range(1, 6)] == [50, 101, 111, 109, 109]
    done = vacuum(paths, timedelta())
    assert {waste.kind for waste in done.waste} == {"data", "evidence"}
    assert done.oldest == version + 1
    assert_evidence_is_whole(paths)
    assert len(paths.evidence_files()) == 4  # a collection's sightings each, the manifest and its sources
    with pytest.raises(UnreadableWarehouse, match="vacuumed"):
        _ = read_snapshot(copied(paths, tmp_path / "moved"), 2).evidence


def test_verify_finds_damaged_evidence(paths: Paths) -> None:
    """A flipped bit, a lost file and a sighting of a text that is not there are findings."""

    def damaged() -> list[str]:
        return [f"{finding.what} {finding.why}" for finding in verified(paths).findings]

    bring(paths, "one.txt", "a(uint256)", "b(uint256)")
    assert damaged() == []
    (file,) = read_snapshot(paths).evidence.files[SIGNATURES]
    flip(file.path)
    assert any(finding.startswith("evidence") for finding in damaged())
    file.path.unlink()
    assert damaged() == ["evidence missing"]
    write_sightings(file.path, SIGNATURES, [sightings_table(np.array([1, 3], np.int64), 1, 1, None)])
    assert "sighting of a text that is not there" in damaged()
