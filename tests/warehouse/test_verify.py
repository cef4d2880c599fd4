"""`sigdir verify`: clean for a sound warehouse, also during writes, and a finding for each kind of damage.

The tests damage real files of a copied warehouse. Readers of the same files name the damaged file and
never give wrong rows.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.compact import compact
from sigdir.warehouse.index.build import build_index, segment_of
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import run_name
from sigdir.warehouse.table.parquet import FILE_SCHEMA, write_data_file
from sigdir.warehouse.table.paths import Paths, index_name
from sigdir.warehouse.verify import Finding, VerifyReport, verify
from tests.conftest import import_lines
from tests.warehouse.support import (
    assert_fails_in_one_line,
    call_command,
    copied,
    digest_of,
    flip,
    remove_digests,
    seal_staged,
    stage,
)


def verified(paths: Paths) -> VerifyReport:
    return verify(paths, 1, "128MB", lambda *_: None, lambda _: None)


def the(findings: list[Finding], what: str, where: str, why: str = "") -> Finding:
    """The first finding of this kind in this file."""
    found = [one for one in findings if one.what == what and where in one.where and why in one.why]
    assert found, findings
    return found[0]


def assert_found(paths: Paths, what: str, where: str, why: str = "") -> None:
    """Assert that there is a finding of this kind in this file."""
    the(verified(paths).findings, what, where, why)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two imports with rejects, a fold of both collections, staged rows, and an index of each file."""
    paths = Paths(tmp_path_factory.mktemp("verify") / "warehouse")
    for name, rows in (("old", 400), ("new", 200)):
        signatures = (f"{name}{number}(uint256)" for number in range(rows))
        events = (f"event {name}{number}(address indexed a)" for number in range(rows // 10))
        import_lines(paths.root, *signatures, *events, "1bad(", f"{name}(", name=f"{name}.txt")
    stage(paths, SIGNATURES, "folded(uint256)", "folded2(uint256)")
    stage(paths, EVENT_SIGNATURES, "Folded(address)")
    fold(paths)
    stage(paths, SIGNATURES, "waiting(uint256)", "waiting2(uint256)")
    stage(paths, EVENT_SIGNATURES, "Waiting(address)")
    for file in read_snapshot(paths).all_files():
        build_index(paths, file)
    return paths.root


@pytest.fixture
def paths(base: Path, tmp_path: Path) -> Paths:
    return copied(Paths(base), tmp_path)


def data_file(paths: Paths, number: int = 0) -> DataFile:
    return read_snapshot(paths).files[SIGNATURES][number]


# A sound warehouse.


def test_a_sound_warehouse_is_clean(base: Path, tmp_path: Path) -> None:
    """It has no findings, all rows are counted, and no file is changed. Its name is neither a pattern nor a column's value."""
    paths = Paths(tmp_path / "import_id=7" / "a[b]*")
    shutil.copytree(base, paths.root)
    before = {path: path.read_bytes() for path in paths.root.rglob("*.parquet")}
    result = call_command("verify", "--json", "--quiet", "--warehouse", paths.root)
    report = json.loads(result.stdout)
    assert (result.exit_code, report["clean"]) == (0, True)
    assert (report["findings"], report["notes"]) == ([], [])
    assert report["rows"] == {SIGNATURES: 602, EVENT_SIGNATURES: 61}
    assert report["staged"] == {SIGNATURES: 2, EVENT_SIGNATURES: 1}
    assert (report["version"], report["files"]) == (3, 6)
    assert {path: path.read_bytes() for path in paths.root.rglob("*.parquet")} == before
    assert call_command("verify", "--warehouse", paths.root).stdout.splitlines()[-1].endswith("clean")


def test_a_warehouse_with_only_staged_rows_is_clean(tmp_path: Path) -> None:
    """Before the first version, staged rows are checked and counted."""
    own = Paths(tmp_path / "new")
    stage(own, SIGNATURES, "waiting(uint256)")
    report = verified(own)
    assert (report.findings, report.version, report.staged[SIGNATURES]) == ([], -1, 1)


def test_folded_rows_in_staging_are_no_finding(paths: Paths) -> None:
    """A kill after the commit, or a fold during verify, leaves folded rows in staging."""
    with closing(sqlite3.connect(paths.staging)) as connection:
        rows = connection.execute("SELECT * FROM staged").fetchall()
        fold(paths)
        connection.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
    report = verified(paths)
    assert report.findings == []
    assert report.staged == {SIGNATURES: 0, EVENT_SIGNATURES: 0}


# Damaged data files.


def test_a_damaged_data_file_is_found(paths: Paths) -> None:
    """The digest shows any byte, the checksum of the page its column; a shorter length and a missing file are found too."""
    file = data_file(paths)
    good = file.path.read_bytes()
    for number, column in ((0, "id"), (FILE_SCHEMA.names.index("hash"), "hash")):
        chunk = pq.read_metadata(file.path).row_group(0).column(number)
        flip(file.path, (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 3)
        findings = verified(paths).findings
        the(findings, "sha256", file.path.name)
        the(findings, "file", file.path.name, column)
        file.path.write_bytes(good)
    flip(file.path, 0)
    assert_found(paths, "sha256", file.path.name)
    file.path.write_bytes(good[:-1])
    assert_found(paths, "file", file.path.name)
    file.path.unlink()
    assert_found(paths, "file", file.path.name, "missing")


def test_a_server_never_maps_wrong_rows_from_a_damaged_file(paths: Paths) -> None:
    """Wherever a byte is flipped, the columns are the same or the error names the file."""
    file = data_file(paths)
    good = file.path.read_bytes()

    def columns() -> list[bytes]:
        shutil.rmtree(paths.cache, ignore_errors=True)
        segment = segment_of(paths, file)
        return [c.tobytes() for c in (segment.ids, segment.created_at, segment.offsets, segment.text, segment.hash)]

    whole = columns()
    refused = []
    for at in range(0, len(good), 61):
        flip(file.path, at)
        try:
            assert columns() == whole
        except UnreadableWarehouse as error:
            refused.append(str(error))
        file.path.write_bytes(good)
    assert all(str(file.path) in message for message in refused)
    assert len(refused) > len(good) // 61 // 4


def test_a_file_with_fewer_rows_than_the_log_says_is_not_mapped(paths: Paths) -> None:
    """Its columns would end in rows of zeros."""
    file, other = data_file(paths), data_file(paths, 1)
    shutil.copy(other.path, file.path)
    shutil.rmtree(paths.cache)
    with pytest.raises(UnreadableWarehouse, match=f"{file.path} has {other.rows} rows, and the log says {file.rows}"):
        build_index(paths, file)


Columns = dict[str, list[Any]]


def rewrite(paths: Paths, change: Callable[[Columns], None], number: int = 0) -> str:
    """Write a data file again with changed rows: an intact file with wrong values. Returns its name."""
    file = data_file(paths, number)
    columns = pq.read_table(file.path).to_pydict()
    change(columns)
    write_data_file(file.path, SIGNATURES, [pa.table(columns, schema=FILE_SCHEMA)])
    shutil.rmtree(paths.cache, ignore_errors=True)
    return file.path.name


def test_a_row_that_breaks_an_invariant_is_found(paths: Paths) -> None:
    """The finding has the row and its id; a first id may also lie below the last one of the file before."""

    def several(columns: Columns) -> None:
        columns["hash"][7] = bytes(4)
        columns["text_signature"][9] = "old9(uint)"
        columns["created_at"][13] = columns["created_at"][12]
        columns["import_id"][3] = 99
        columns["id"][-1] = 1_000_000

    def repeated(columns: Columns) -> None:
        columns["id"][11] = columns["id"][10]

    def lower(columns: Columns) -> None:
        columns["id"][0] = 400

    name = rewrite(paths, several)
    findings = verified(paths).findings
    assert the(findings, "hash", name).row == "row 7, id 8"
    assert the(findings, "text", name).row == "row 9, id 10"
    assert the(findings, "order", name, "created_at").row == "row 13, id 14"
    the(findings, "import", "", "1 rows of import 99; the log says 0")
    the(findings, "import", "", "399 rows of import 1; the log says 400")
    the(findings, "log", name, "ends with id 1000000")
    the(findings, "sha256", name)
    rewrite(paths, repeated)
    assert the(verified(paths).findings, "order", name, "its id").row == "row 11, id 11"
    name = rewrite(paths, lower, number=1)
    findings = verified(paths).findings
    the(findings, "order", name, "does not rise")
    the(findings, "log", name, "begins with id 400")


def test_a_text_that_occurs_twice_is_found(paths: Paths) -> None:
    """A text in two files, or in the table and in staging, is a finding that names the other place."""
    text = "old5(uint256)"
    digest = digest_of(text)

    def change(columns: Columns) -> None:
        columns["text_signature"][3], columns["hash"][3] = text, digest[:4]

    name = rewrite(paths, change, number=1)
    with closing(sqlite3.connect(paths.staging)) as connection:
        connection.execute(
            "UPDATE staged SET text_signature = ?, digest = ? WHERE text_signature = 'waiting(uint256)'", (text, digest)
        )
        seal_staged(connection)
        connection.commit()
    findings = verified(paths).findings
    for where in (name, "staging.sqlite"):
        found = the(findings, "twice", where)
        assert text in found.why
        assert data_file(paths).path.name in found.why


def test_what_is_wrong_with_a_file_is_one_line(paths: Paths) -> None:
    """400 rows with a wrong hash are one finding; so is a file whose rows are read again, to name texts that occur twice."""

    def wrong(columns: Columns) -> None:
        columns["hash"] = [b"1234"] * len(columns["hash"])

    def short(columns: Columns) -> None:
        for column in columns.values():
            del column[-1]
        for name in ("text_signature", "hash"):
            columns[name][3] = columns[name][4]

    rewrite(paths, wrong)
    lines = call_command("verify", "--quiet", "--warehouse", paths.root).stdout.splitlines()
    [line] = [line for line in lines if line.startswith("hash: ")]
    assert line.endswith("(and 399 more rows there)")
    name = rewrite(paths, short)
    findings = verified(paths).findings
    the(findings, "twice", name)
    assert sum(name in one.where and " rows, and the log says" in one.why for one in findings) == 1


# The log, the entries of commits, the rejects.


def edit_log(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the actions of a commit, whose summary no digest guards."""
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            summary = json.loads(action["commitInfo"]["sigdir"])
            change(summary)
            action["commitInfo"]["sigdir"] = json.dumps(summary)
        elif action.get("txn", {}).get("appId") == f"sigdir:{SIGNATURES}":
            change(action["txn"])
    path.write_text("\n".join(map(json.dumps, actions)))


def test_a_summary_that_does_not_add_up_is_found(paths: Paths) -> None:
    """Totals, sources, rows, import numbers; a high water below the highest id, above which rows would be folded twice."""
    remove_digests(paths)
    first, second, third = map(paths.log_entry, (1, 2, 3))

    def change(said: dict[str, Any]) -> None:
        if "totals" in said:
            said["totals"]["read"] = 7
            said["sources"][0]["duplicate"] = 8
            said["rows"][SIGNATURES] = 9
            said["import"] = 2

    def lower(said: dict[str, Any]) -> None:
        said["version"] = said.get("version", 0) - 1

    edit_log(first, change)
    edit_log(third, lower)
    findings = verified(paths).findings
    the(findings, "import", first.name, "in total: 7 read are not")
    the(findings, "import", first.name, "8 duplicate")
    the(findings, "import", first.name, "the duplicate of its sources are not 0")
    the(findings, "import", first.name, "imported, and 49 rows")
    the(findings, "log", first.name, "its files have 440 rows, its summary says 49")
    the(findings, "log", second.name, "import 2 comes after import 2")
    the(findings, "watermark", third.name)
    edit_log(first, lambda said: said.pop("totals", None))
    assert_found(paths, "log", first.name, "totals")


def test_a_damaged_or_lost_log_entry_is_reported(paths: Paths) -> None:
    """It stops the command; where the last entry is lost an older version is left, which is a finding."""
    whole = paths.log_entry(2).read_bytes()
    paths.log_entry(2).write_bytes(b"{")
    assert_fails_in_one_line(call_command("verify", "--quiet", "--warehouse", paths.root), "_delta_log")
    paths.log_entry(2).write_bytes(whole)
    paths.log_entry(3).unlink()
    result = call_command("verify", "--quiet", "--warehouse", paths.root)
    assert result.exit_code in (1, 2)
    assert "ends at version 2, but version 3 was published" in result.output


def test_damage_in_files_of_older_versions_is_found(paths: Paths) -> None:
    """Each file that only these have, documents of evidence too. What was vacuumed is no finding."""
    first, older = read_snapshot(paths, 1), read_snapshot(paths)
    compact(paths)
    assert first.manifest is not None
    assert first.evidence.sources_file is not None
    sources = paths.evidence / first.evidence.sources_file[0]
    data, short = older.files[SIGNATURES][0], older.evidence.files[SIGNATURES][0]
    for path in (data.path, sources):
        flip(path, 10)
    short.path.write_bytes(short.path.read_bytes()[:-1])
    findings = verified(paths).findings
    the(findings, "older", paths.name(data.path), "not the bytes that were written")
    the(findings, "older", paths.name(sources), "not the bytes that were written")
    the(findings, "older", paths.name(short.path), f"{short.size - 1} bytes, and an older version says {short.size}")
    flip(first.manifest.path, 10)
    assert_found(paths, "older", paths.name(first.manifest.path), "not the bytes that were written")
    for path in (data.path, sources, short.path, first.manifest.path):
        path.unlink()
    assert verified(paths).findings == []


def test_damaged_rejects_are_found(paths: Paths) -> None:
    """A flipped byte, the file of another import, and a missing rejects file are findings."""
    first, second = sorted(paths.rejects.glob("*"))
    flip(first, pq.read_metadata(first).row_group(0).column(1).data_page_offset + 60)
    assert_found(paths, "rejects", first.name)
    shutil.copy(second, first)
    second.unlink()
    findings = verified(paths).findings
    the(findings, "rejects", first.name, "not the rows that import 1 rejected")
    the(findings, "rejects", second.name, "missing")


# Staging.


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE staged SET digest = zeroblob(32) WHERE text_signature = 'waiting(uint256)'", "hash"),
        ("UPDATE staged SET id = 700 WHERE text_signature = 'waiting(uint256)'", "sequence"),
        ("UPDATE staged SET created_at = created_at - 60000000 WHERE text_signature = 'waiting(uint256)'", "order"),
        ("UPDATE staged SET id = 5 WHERE text_signature = 'waiting(uint256)'", "fold"),
        ("UPDATE about SET warehouse = '00'", "staging"),
        ("UPDATE about SET format = 99", "staging"),
        ("DROP INDEX staged_text; DROP TABLE sequence", "staging"),
    ],
)
def test_damaged_staging_is_found(paths: Paths, change: str, what: str) -> None:
    """Each wrong value in the staging file is a finding of its kind, also in rows whose checksum fits."""
    with closing(sqlite3.connect(paths.staging)) as connection:
        connection.executescript(change)
        seal_staged(connection)
        connection.commit()
    assert_found(paths, what, "staging.sqlite")


def test_a_damaged_or_lost_staging_file_is_found(paths: Paths) -> None:
    """A row that its checksum does not fit, pages of zeros, no file, a new file."""
    with closing(sqlite3.connect(paths.staging)) as connection, connection:
        connection.execute("UPDATE staged SET created_at = created_at - 1")
    assert_found(paths, "staging", "staging.sqlite", "is damaged; put staging.sqlite")
    with closing(sqlite3.connect(paths.staging)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = paths.staging.read_bytes()
    paths.staging.write_bytes(content[:4096].ljust(len(content), b"\0"))
    assert_found(paths, "staging", "staging.sqlite")
    for file in paths.root.glob("staging.sqlite*"):
        file.unlink()
    assert_found(paths, "staging", "staging.sqlite", "lost")
    assert not paths.staging.exists()
    Staging(paths.staging).close()
    assert_found(paths, "sequence", "staging.sqlite", "lost")


# Indexes and leftovers.


def test_a_damaged_index_is_found_with_its_remedy(paths: Paths) -> None:
    """The command that removes it."""
    folder = paths.cache / index_name(SIGNATURES, data_file(paths).path)
    flip(folder / "ids")
    assert_found(paths, "index", folder.name, f"not as it was written: `rm -r {folder}`")


def test_leftovers_are_notes(paths: Paths) -> None:
    """Files and folders that no version and no run needs are notes, not findings. The file of an unfinished run is none."""
    with closing(Staging(paths.staging)) as staging, staging.exclusive() as transaction:
        transaction.begin_publish(run := run_name())
    shutil.copy(data_file(paths).path, paths.data_file(SIGNATURES, run, 1))
    orphan = paths.data_file(SIGNATURES, run_name(), 1)
    shutil.copy(data_file(paths).path, orphan)
    (paths.cache / "signatures-gone-0001").mkdir()
    rejects = paths.rejects_file(run_name())
    shutil.copy(next(paths.rejects.glob("*")), rejects)
    dead = paths.tmp / run_name()
    dead.mkdir(parents=True)
    (dead / "lock").touch()
    report = verified(paths)
    assert report.findings == []
    assert {Path(note.where).name for note in report.notes} == {
        orphan.name, "signatures-gone-0001", rejects.name, dead.name
    }  # fmt: skip
