"""The evidence in SQL and in the servers' columns, compared with plain Python over the same sightings; who builds which columns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.rank import Ranked, Summary, plain_reasons
from sigdir.signatures.standards import NO_TEXT, canonical, sources
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.evidence.lookup import text_evidence
from sigdir.warehouse.evidence.summaries import SightingCounts
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.summaries import summaries_of
from sigdir.warehouse.index.view import Reader, View, tidy
from sigdir.warehouse.log.manifest import EvidenceFile
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.sql.engine import Database
from sigdir.warehouse.sql.evidence import reasons_of
from sigdir.warehouse.sql.ranking import SummaryReader
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.examples import long_except
from tests.warehouse.ranking import Known, make_known
from tests.warehouse.support import flip, stage

Expected = dict[tuple[Collection, int], Ranked]
ROWS = " UNION ALL ".join(
    f"SELECT '{c}' AS collection, id, text_signature, hash, created_at FROM {c.view_name}" for c in COLLECTIONS
)


@pytest.fixture(scope="module", params=long_except({0}, range(3)))
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Known:
    return make_known(tmp_path_factory.mktemp("ranked"), request.param)


@pytest.fixture(scope="module")
def database(known: Known) -> Database:
    return Database(known.paths, known.snapshot)


@pytest.fixture(scope="module")
def expected(known: Known, database: Database) -> Expected:
    return known.ranked(
        (Collection.of_name(c), id, text, hash, at) for c, id, text, hash, at in database.sql(ROWS).rows()
    )


def test_evidence(known: Known, database: Database, expected: Expected) -> None:
    """Each text has one row with what its sources say together, and one with its place and reasons by ``rank.ranked``."""
    query = """SELECT collection, id, text_signature, kinds, witness, sources, contracts, compiled, verified, first_seen,
                      declaration FROM evidence"""
    found = database.sql(query).rows()
    assert len(found) == len(expected)
    for collection, id, *row in found:
        text = expected[Collection.of_name(collection), id].summary
        assert row == [
            text.text, [kind.name.lower() for kind in text.kinds], text.witness.name.lower(), text.sources,
            text.contracts, text.compiled, text.verified, text.first_seen, text.declaration or None,
        ]  # fmt: skip
    found = database.sql("SELECT collection, id, position, reasons, looks_mined FROM ranked").rows()
    assert len(found) == len(expected)
    for collection, id, *row in found:
        ranked = expected[Collection.of_name(collection), id]
        assert row == [ranked.position, list(ranked.reasons), bool(ranked.mined)]
    assert any(looks_mined for *_, looks_mined in found)
    before = Database(known.paths, replace(known.snapshot, manifest=None))  # the first sighting
    assert before.sql("SELECT DISTINCT witness, sources, contracts, kinds FROM evidence").rows() == [
        ("listed", 0, 0, [])
    ]
    places = {text.summary.text: text.position for text in expected.values()}
    for count, texts in database.sql("SELECT texts, text_signatures FROM collisions").rows():
        assert [places[text] for text in texts] == list(range(1, count + 1))


def test_summaries_of_scattered_texts(known: Known) -> None:
    """Single texts and those of several blocks get their own summaries, in the order in which they are asked for."""
    reader = SummaryReader(known.paths, known.snapshot, SIGNATURES)
    scattered = np.array([70, 1 << 18, 3, 4, 5, 3])  # the second is nobody's: one list names it
    single = np.arange(1, 71).reshape(-1, 1)
    for ids in (*single, scattered, np.concatenate([np.tile(np.arange(1, 200), 2), scattered])):
        counts, declarations = reader.of(ids)
        for row, id in enumerate(ids.tolist()):
            text = known.summary(SIGNATURES, id, "", datetime.now(UTC))
            found = counts["sources"][row], counts["contracts"][row], declarations[row].as_py()
            assert found == (text.sources, text.contracts, text.declaration or None)


def test_reasons() -> None:
    """Each row has those of its day; all else is compared row by row."""
    times, kinds = [0, 86_399_999_999, 86_400_000_000], (pa.uint8(), pa.uint32(), pa.uint32(), pa.uint32(), pa.bool_())
    counts = [pa.array([value] * 3, kind) for value, kind in zip((1, 1, 0, 0, False), kinds, strict=True)]
    columns = [*counts, pa.array(times), pa.nulls(3, pa.string()), pa.nulls(3, pa.string())]
    found = reasons_of(*(pa.chunked_array([column]) for column in columns)).to_pylist()
    seen = [datetime.fromtimestamp(time / 1e6, UTC) for time in times]
    assert found == [[*plain_reasons(Summary(0, "", Witness(1), (), 1, 0, 0, False, at))] for at in seen]
    assert found[0] == found[1] != found[2]


def test_declarations(known: Known, database: Database, expected: Expected) -> None:
    """Each variant of a text has a row with its number of contracts and sources, and the kind that its sightings state."""
    found = database.sql("SELECT collection, id, declaration, count, kind FROM declarations").rows()
    wanted = set()
    for collection, id in expected:
        for declaration, count in known.declarations(collection, id):
            kinds = [one.said.kind for one in known.live(collection, id) if one.said.declaration == declaration]
            wanted.add((collection, id, declaration, count, max(kinds).name.lower()))
    assert set(found) == wanted
    assert len(found) == len(wanted)
    assert {row[-1] for row in found} >= {"function", "event"}


def test_standards(database: Database) -> None:
    """Each listed selector and topic has its text and the standard; one for which no text is right has none."""
    found = database.sql("SELECT collection, text_signature, hex_signature, standard, hash FROM standards").rows()
    assert len(found) == len(canonical())
    for collection, text, hex_signature, standard, hash in found:
        assert Collection.of_name(collection).hash_bytes == len(hash)
        assert (text or NO_TEXT, standard) == (canonical()[hash], sources()[hash])
        assert hex_signature == f"0x{hash.hex()}"
    assert any(row[1] is None for row in found)


def test_parameter_names(tmp_path: Path) -> None:
    """A declaration's parameters have their names, "" where they have none, with tuples too."""
    said = {
        "a()": [],
        "b(uint256)": [""],
        "function c(uint256 x, bytes32[2] y_1, bool) view returns (uint256 z)": ["x", "y_1", ""],
        "event D(address indexed from, bytes indexed, (uint256 a, bool)[2] pairs) anonymous": ["from", "", "pairs"],
        "event E(address indexed from, bytes indexed)": ["from", ""],
    }
    database = Database(Paths(tmp_path), Snapshot())
    query = "SELECT parts.parameter_names(d) FROM (SELECT unnest(?) AS d, generate_subscripts(?, 1) AS n) ORDER BY n"
    assert database.sql(query, [list(said), list(said)]).rows() == [(names,) for names in said.values()]


def test_sightings(known: Known, database: Database, expected: Expected) -> None:
    """Each sighting that counts is a row with its source, and there are no others."""
    query = "SELECT collection, id, source, import_id, kind, witness, contract, file FROM sightings"
    found = sorted(database.sql(query).rows(), key=str)
    wanted = []
    for collection, id in expected:
        for seen in known.live(collection, id):
            label = known.manifest.sources[seen.source].label
            contract = seen.said.contract.name if seen.said.contract else None
            said = seen.said.kind.name.lower(), seen.said.witness.name.lower()
            wanted.append(
                (str(collection), id, label, seen.import_id, *said, contract, "a/file.json" if contract else label)
            )
    assert sorted(wanted, key=str) == found


def view_of(known: Known) -> View:
    """The view of a server whose columns are built."""
    segments = {}
    for collection, files in known.snapshot.files.items():
        mapped = [segment_of(known.paths, file) for file in files]
        segments[collection] = tuple(
            replace(segment, summaries=summaries_of(known.paths, file, segment, known.manifest))
            for file, segment in zip(files, mapped, strict=True)
        )
    return View(known.snapshot, segments, "", b"")


def test_columns_agree_with_sql(known: Known, database: Database) -> None:
    """A ranked lookup gives a hash's texts in the order of SQL, with what SQL says of each."""
    view = view_of(known)
    query = """SELECT collection, hash, list((text_signature, witness, contracts, sources, verified, looks_mined, reasons,
                                              declaration) ORDER BY position) FROM ranked GROUP BY ALL"""
    for collection, hash, wanted in database.sql(query).rows():
        ranked = [row.ranked for row in ranked_rows(view, Collection.of_name(collection), hash)]
        found = [
            (
                one.summary.text, one.summary.witness.name.lower(), one.summary.contracts, one.summary.sources,
                one.summary.verified, bool(one.mined), list(one.reasons), one.summary.declaration or None,
            )
            for one in ranked
        ]  # fmt: skip
        assert found == [tuple(row.values()) for row in wanted]


def test_sql_reads_the_columns(known: Known, database: Database) -> None:
    """Where the columns are at rest SQL has the same of every text; where one is broken it sums the sightings."""
    view_of(known)
    query = "FROM evidence ORDER BY collection, id"
    wanted = database.sql(query).rows()
    assert Database(known.paths, known.snapshot).sql(query).rows() == wanted
    files = [file for files in known.snapshot.files.values() for file in files]
    folders = list(known.paths.cache.glob("*.summaries"))
    assert len(folders) == len(files)
    for folder in folders:
        flip(folder / "counts")
    assert Database(known.paths, known.snapshot).sql(query).rows() == wanted


def test_text_evidence(known: Known, expected: Expected) -> None:
    """The evidence of one text, read by its id, is what SQL has; its sightings come in pages."""
    for collection, id in expected:
        found = text_evidence(known.manifest, collection, id)
        live = known.live(collection, id)
        assert list(found.declarations) == known.declarations(collection, id)
        assert found.count == len(live)
        pages = [said for start in range(0, len(live) + 1, 3) for said in found.sightings(start, 3)]
        labels = [known.manifest.sources[seen.source].label for seen in live]
        assert sorted((word.source, word.witness, word.declaration) for word in pages) == sorted(
            (label, seen.said.witness, seen.said.declaration) for label, seen in zip(labels, live, strict=True)
        )
        assert found.sightings(len(live), 3) == found.sightings(0, 0) == []


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader of a warehouse with one list, its columns built."""
    import_lines(tmp_path / "warehouse", "a(uint256)", "f()", "g()", name="one.txt")
    with closing(Reader(Paths(tmp_path / "warehouse"))) as opened:
        yield opened


def columns(reader: Reader) -> dict[str, int]:
    """The summaries in the cache and when each was built; a file system gives the number of a removed folder again."""
    return {folder.name: folder.stat().st_mtime_ns for folder in reader.paths.cache.glob("*.summaries")}


def counts_of(view: View, text: str) -> SightingCounts:
    [row] = ranked_rows(view, SIGNATURES, keccak256(text.encode())[:4])
    return row.counts


def test_a_version_builds_its_columns(reader: Reader) -> None:
    """A publish builds those of its version, so servers do not; an import builds older files' too, a fold its own alone."""
    assert counts_of(reader.current(), "f()").sources == 1
    import_lines(reader.paths.root, "f()", "h()", "function a(uint256 x)", name="two.txt")
    built = columns(reader)
    view = reader.refreshed()
    assert columns(reader) == built
    assert len(built) == 2
    assert [counts_of(view, text).sources for text in ("f()", "g()", "h()", "a(uint256)")] == [2, 1, 1, 2]
    stage(reader.paths, SIGNATURES, "posted()")
    assert counts_of(reader.refreshed(), "posted()").witness == Witness.LISTED
    fold(reader.paths)
    after = columns(reader)
    assert after.items() > built.items()
    assert len(after) == len(built) + 1
    assert counts_of(reader.refreshed(), "posted()").sources == 1
    assert columns(reader) == after


def test_compaction_and_tidying(reader: Reader) -> None:
    """A merge builds the columns of its files, of evidence alone too; tidying removes those of files that are gone."""
    import_lines(reader.paths.root, "f()", "h()", name="two.txt")
    before = columns(reader)
    for choose in (evidence_alone, everything):
        compact(reader.paths, choose)
        built = columns(reader)
        assert len(built.keys() - before.keys()) == (2 if choose == evidence_alone else 1)
        view, before = reader.refreshed(), built
        assert columns(reader) == built
    tidy(reader.paths)
    kept = columns(reader)
    assert kept.items() < built.items()
    assert len(kept) == len(view.snapshot.all_files())


def evidence_alone(files: Sequence[Any]) -> list[Sequence[Any]]:
    """All files of evidence into one, and no data file."""
    return everything([file for file in files if isinstance(file, EvidenceFile)])


def test_readers_build_what_is_missing(reader: Reader) -> None:
    """Without the publisher's columns, or with damaged ones, a reader builds them and sees the same."""
    counts = counts_of(reader.current(), "f()")
    [folder] = reader.paths.cache.glob("*.summaries")
    whole = (folder / "counts").read_bytes()
    for spoil in (flip, lambda column: shutil.rmtree(column.parent)):
        spoil(folder / "counts")
        with closing(Reader(reader.paths)) as second:
            assert counts_of(second.current(), "f()") == counts
        assert (folder / "counts").read_bytes() == whole
