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

from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.compact import compact
from sigdir.warehouse.evidence.mapped import write_columns
from sigdir.warehouse.index.build import build_index, open_index, segment_of
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import run_name
from sigdir.warehouse.table.parquet import FILE_SCHEMA, write_data_file
from sigdir.warehouse.table.paths import Paths, index_name
from tests.conftest import import_files
from tests.warehouse.support import (
    call_command,
    copied,
    digest_of,
    flip,
    remove_digests,
    seal_staged,
    stage,
)


def run_verify(paths: Paths) -> tuple[int, dict[str, Any]]:
    """Exit status and report of the command."""
    result = call_command("verify", "--json", "--quiet", "--warehouse", paths.root)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["clean"] == (result.exit_code == 0)
    return result.exit_code, report


def found_in(paths: Paths) -> list[dict[str, Any]]:
    """The findings of the command, of which there are some."""
    status, report = run_verify(paths)
    findings: list[dict[str, Any]] = report["findings"]
    assert status == 1
    assert all(one["why"] for one in findings)
    return findings


def the(findings: list[dict[str, Any]], what: str, where: str, why: str = "") -> dict[str, Any]:
    """The first finding of this kind in this file."""
    found = [one for one in findings if one["what"] == what and where in one["where"] and why in one["why"]]
    assert found, findings
    return found[0]


def assert_found(paths: Paths, what: str, where: str, why: str = "") -> dict[str, Any]:
    """Assert that there is a finding of this kind in this file, and return it."""
    return the(found_in(paths), what, where, why)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two imports with rejects, a fold of both collections, staged rows, and an index of each file."""
    folder = tmp_path_factory.mktemp("verify")
    paths = Paths(folder / "warehouse")
    for name, rows in (("old", 400), ("new", 200)):
        lines = folder / f"{name}.txt"
        events = [f"event {name}{number}(address indexed a)" for number in range(rows // 10)]
        lines.write_text(
            "\n".join([*(f"{name}{n}(uint256)" for n in range(rows)), *events, "1bad(", f"{name}("]) + "\n"
        )
        import_files([lines], paths.root)
    stage(paths, SIGNATURES, "folded(uint256)", "folded2(uint256)")
    stage(paths, EVENT_SIGNATURES, "Folded(address)")
    fold(paths)
    stage(paths, SIGNATURES, "waiting(uint256)", "waiting2(uint256)")
    stage(paths, EVENT_SIGNATURES, "Waiting(address)")
    snapshot = read_snapshot(paths)
    for collection in COLLECTIONS:
        for file in snapshot.files[collection]:
            build_index(paths, file)
    return paths.root


@pytest.fixture
def paths(base: Path, tmp_path: Path) -> Paths:
    return copied(Paths(base), tmp_path)


def data_file(paths: Paths, number: int = 0, collection: Collection = SIGNATURES) -> DataFile:
    return read_snapshot(paths).files[collection][number]


# A sound warehouse.


def test_a_sound_warehouse_is_clean(base: Path, tmp_path: Path) -> None:
    """It has no findings, all rows are counted, and no file is changed. Its name is neither a pattern nor a column's value."""
    paths = Paths(tmp_path / "import_id=7" / "a[b]*")
    shutil.copytree(base, paths.root)
    before = {path: path.read_bytes() for path in paths.root.rglob("*.parquet")}
    status, report = run_verify(paths)
    assert (status, report["findings"], report["notes"]) == (0, [], [])
    assert report["rows"] == {SIGNATURES: 602, EVENT_SIGNATURES: 61}
    assert report["staged"] == {SIGNATURES: 2, EVENT_SIGNATURES: 1}
    assert (report["version"], report["files"]) == (3, 6)
    assert {path: path.read_bytes() for path in paths.root.rglob("*.parquet")} == before
    assert call_command("verify", "--warehouse", paths.root).stdout.splitlines()[-1].endswith("clean")


def test_a_warehouse_with_only_staged_rows_is_clean(tmp_path: Path) -> None:
    """Before the first version, staged rows are checked and counted."""
    own = Paths(tmp_path / "new")
    stage(own, SIGNATURES, "waiting(uint256)")
    status, report = run_verify(own)
    assert (status, report["version"], report["staged"][SIGNATURES]) == (0, -1, 1)


def test_folded_rows_in_staging_are_no_finding(paths: Paths) -> None:
    """A kill after the commit, or a fold during verify, leaves folded rows in staging."""
    with closing(sqlite3.connect(paths.staging)) as connection:
        rows = connection.execute("SELECT * FROM staged").fetchall()
        fold(paths)
        connection.executemany("INSERT INTO staged VALUES (?, ?, ?, ?, ?)", rows)
        connection.commit()
    status, report = run_verify(paths)
    assert (status, report["findings"]) == (0, [])
    assert report["staged"] == {SIGNATURES: 0, EVENT_SIGNATURES: 0}


# Damaged data files.


def test_a_flipped_byte_of_a_column_is_found(paths: Paths) -> None:
    """The digest of the file shows the damage, and the checksum of the page shows its column."""
    file = data_file(paths)
    whole = file.path.read_bytes()
    for number, column in enumerate(FILE_SCHEMA.names):
        chunk = pq.read_metadata(file.path).row_group(0).column(number)
        flip(file.path, (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 3)
        findings = found_in(paths)
        the(findings, "sha256", file.path.name)
        assert column in the(findings, "file", file.path.name)["why"]
        file.path.write_bytes(whole)


def test_any_flipped_byte_is_found(paths: Paths) -> None:
    """Also outside of the checksums of pages; so is any shorter length, and a missing file."""
    file = data_file(paths, -1)
    good = file.path.read_bytes()
    for length in (0, 3, len(good) // 2, len(good) - 1):
        file.path.write_bytes(good[:length])
        assert_found(paths, "file", file.path.name)
    file.path.unlink()
    assert_found(paths, "file", file.path.name, "missing")
    file.path.write_bytes(good)
    for at in range(0, len(good), len(good) // 4):
        flip(file.path, at)
        assert any(file.path.name in finding["where"] for finding in found_in(paths))
        file.path.write_bytes(good)
    assert run_verify(paths)[0] == 0


def test_a_server_never_maps_wrong_rows_from_a_damaged_file(paths: Paths) -> None:
    """Wherever a byte is flipped, the columns are the same or the error names the file."""
    file = data_file(paths)
    good = file.path.read_bytes()
    shutil.rmtree(paths.cache)
    index = paths.index(SIGNATURES, file.path)

    def columns() -> list[bytes]:
        shutil.rmtree(paths.cache, ignore_errors=True)
        segment = segment_of(paths, file)
        return [c.tobytes() for c in (segment.ids, segment.created_at, segment.offsets, segment.text, segment.hash)]

    whole = columns()
    refused = 0
    for at in range(0, len(good), 61):
        flip(file.path, at)
        try:
            message = ""
            assert columns() == whole
        except UnreadableWarehouse as error:
            message = str(error)
            refused += 1
        assert index.exists() == (not message)
        assert not message or str(file.path) in message
        file.path.write_bytes(good)
    assert refused > len(good) // 61 // 4


def test_a_file_with_fewer_rows_than_the_log_says_is_not_mapped(paths: Paths) -> None:
    """A file with fewer rows than the log says is refused: its columns would end in rows of zeros."""
    file, other = data_file(paths), data_file(paths, 1)
    shutil.copy(other.path, file.path)
    shutil.rmtree(paths.cache)
    with pytest.raises(UnreadableWarehouse, match=f"{file.path} has {other.rows} rows, and the log says {file.rows}"):
        build_index(paths, file)


def rewrite(paths: Paths, change: Callable[[dict[str, list[Any]]], None], number: int = 0) -> Path:
    """Write a data file again with changed rows: an intact file with wrong values."""
    file = data_file(paths, number)
    columns = pq.read_table(file.path).to_pydict()
    change(columns)
    write_data_file(file.path, SIGNATURES, [pa.table(columns, schema=FILE_SCHEMA)])
    shutil.rmtree(paths.cache, ignore_errors=True)
    return file.path


def put(name: str, row: int, value: Any) -> Callable[[dict[str, list[Any]]], None]:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[name][row] = value

    return change


def repeated(name: str, row: int, other: int) -> Callable[[dict[str, list[Any]]], None]:
    def change(columns: dict[str, list[Any]]) -> None:
        columns[name][row] = columns[name][other]

    return change


def test_a_row_that_breaks_an_invariant_is_found(paths: Paths) -> None:
    """The finding has the row and its id; a first id may also lie below the last one of the file before."""
    whole = data_file(paths).path.read_bytes()
    for change, what, row in (
        (put("hash", 7, b"\0\0\0\0"), "hash", "row 7, id 8"),
        (put("hash", 7, b"\0\0\0"), "hash", "row 7, id 8"),
        (put("text_signature", 9, "old9(uint)"), "text", "row 9, id 10"),
        (put("text_signature", 9, "old9(uint256) view"), "text", "row 9, id 10"),
        (put("text_signature", 9, ""), "text", "row 9, id 10"),
        (put("text_signature", 9, "\u00e9(uint256)"), "text", "row 9, id 10"),
        (repeated("id", 11, 10), "order", "row 11, id 11"),
        (repeated("id", 399, 3), "order", "row 399, id 4"),
        (repeated("created_at", 11, 10), "order", "row 11, id 12"),
        (put("id", 399, 1_000_000), "log", ""),
        (put("id", 0, 0), "log", ""),
        (put("import_id", 3, 2), "import", ""),
        (put("import_id", 3, 99), "import", ""),
    ):
        path = rewrite(paths, change)
        findings = found_in(paths)
        assert the(findings, what, "" if what == "import" else path.name)["row"] == row
        the(findings, "sha256", path.name)
        path.write_bytes(whole)
    path = rewrite(paths, put("id", 0, 400), number=1)
    assert_found(paths, "order", path.name, "does not rise")


def test_a_text_that_occurs_twice_is_found(paths: Paths) -> None:
    """A text in two files, or in the table and in staging, is a finding that names the other place."""
    text = "old5(uint256)"
    digest = digest_of(text)

    def change(columns: dict[str, list[Any]]) -> None:
        columns["text_signature"][3], columns["hash"][3] = text, digest[:4]

    path = rewrite(paths, change, number=1)
    found = assert_found(paths, "twice", path.name)
    assert text in found["why"]
    assert data_file(paths).path.name in found["why"]
    with closing(sqlite3.connect(paths.staging)) as connection:
        connection.execute(
            "UPDATE staged SET text_signature = ?, digest = ? WHERE text_signature = 'waiting(uint256)'", (text, digest)
        )
        assert connection.total_changes == 1
        seal_staged(connection)
        connection.commit()
    assert_found(paths, "twice", "staging.sqlite", text)


def test_what_is_wrong_with_a_file_is_one_line(paths: Paths) -> None:
    """400 rows with a wrong hash are one finding; so is a file whose rows are read again, to name texts that occur twice."""

    def wrong(columns: dict[str, list[Any]]) -> None:
        columns["hash"] = [b"1234"] * len(columns["hash"])

    def short(columns: dict[str, list[Any]]) -> None:
        for column in columns.values():
            del column[-1]
        for name in ("text_signature", "hash"):
            columns[name][3] = columns[name][4]

    path = data_file(paths).path
    whole = path.read_bytes()
    rewrite(paths, wrong)
    assert assert_found(paths, "hash", path.name)["more"] == 399
    lines = call_command("verify", "--quiet", "--warehouse", paths.root).stdout.splitlines()
    assert sum(line.startswith("hash: ") for line in lines) == 1
    path.write_bytes(whole)
    rewrite(paths, short)
    lines = call_command("verify", "--quiet", "--warehouse", paths.root).stdout.splitlines()
    assert any(line.startswith("twice: ") for line in lines)
    assert sum(path.name in line and " rows, and the log says" in line for line in lines) == 1


# The log, the entries of commits, the rejects.


def edit_log(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the summary of a commit, which no digest guards."""
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            summary = json.loads(action["commitInfo"]["sigdir"])
            change(summary)
            action["commitInfo"]["sigdir"] = json.dumps(summary)
    path.write_text("\n".join(map(json.dumps, actions)))


def test_a_summary_that_does_not_add_up_is_found(paths: Paths) -> None:
    """Totals, sources, rows, import numbers; a high water below the highest id, above which rows would be folded twice."""
    remove_digests(paths)
    changes: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (lambda summary: summary["totals"].update(read=7), "import"),
        (lambda summary: summary["sources"][0].update(duplicate=7), "import"),
        (lambda summary: summary["rows"].update(signatures=7), "log"),
        (lambda summary: summary.pop("totals"), "log"),
        (lambda summary: summary.update({"import": 2}), "log"),
    ]
    entry = paths.log_entry(1)
    whole = entry.read_bytes()
    for change, what in changes:
        edit_log(entry, change)
        assert_found(paths, what, "_delta_log")
        entry.write_bytes(whole)
    path = paths.log_entry(3)
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if action.get("txn", {}).get("appId") == f"sigdir:{SIGNATURES}":
            action["txn"]["version"] -= 1
    path.write_text("\n".join(map(json.dumps, actions)))
    assert_found(paths, "watermark", path.name)


def test_a_damaged_or_lost_log_entry_is_reported(paths: Paths) -> None:
    """The command ends with status 1 or 2 and names the log, also where the last entry is lost and an older version is left."""
    for version in range(4):
        entry = paths.log_entry(version)
        whole = entry.read_bytes()
        for content in (b"", b"{", b"\xff\xfe", None):
            entry.unlink()
            if content is not None:
                entry.write_bytes(content)
            result = call_command("verify", "--quiet", "--warehouse", paths.root)
            assert result.exit_code in (1, 2)
            assert isinstance(result.exception, SystemExit)
            assert "_delta_log" in result.output or f"{paths.table}: " in result.output or "published" in result.output
        assert version < 3 or "ends at version 2, but version 3 was published" in result.output
        entry.write_bytes(whole)


def test_damage_in_files_of_older_versions_is_found(paths: Paths) -> None:
    """Each file that only these have, documents of evidence too. What was vacuumed is no finding."""
    first, older = read_snapshot(paths, 1), read_snapshot(paths)
    compact(paths)
    assert run_verify(paths)[0] == 0
    for file in (older.files[SIGNATURES][0], older.evidence.files[SIGNATURES][0]):
        flip(file.path, file.size // 2)
        assert_found(paths, "older", paths.name(file.path), "not the bytes that were written")
        file.path.write_bytes(file.path.read_bytes()[:-1])
        assert_found(
            paths, "older", paths.name(file.path), f"{file.size - 1} bytes, and an older version says {file.size}"
        )
        file.path.unlink()
        assert run_verify(paths)[0] == 0
    assert first.manifest is not None
    assert first.evidence.sources_file is not None
    for path in (paths.evidence / first.evidence.sources_file[0], first.manifest.path):
        flip(path, 10)
        assert_found(paths, "older", paths.name(path), "not the bytes that were written")
        path.unlink()
        assert run_verify(paths)[0] == 0


def test_damaged_rejects_are_found(paths: Paths) -> None:
    """A flipped byte, the file of another import, and a missing rejects file are findings."""
    first, second = sorted(paths.rejects.glob("*"))
    flip(first, pq.read_metadata(first).row_group(0).column(1).data_page_offset + 60)
    assert_found(paths, "rejects", first.name)
    shutil.copy(second, first)
    assert_found(paths, "rejects", first.name)
    first.unlink()
    assert_found(paths, "rejects", first.name)


# Staging.


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE staged SET digest = zeroblob(32) WHERE text_signature = 'waiting(uint256)'", "hash"),
        ("UPDATE staged SET text_signature = 'waiting(uint)' WHERE text_signature = 'waiting(uint256)'", "text"),
        ("UPDATE staged SET id = 700 WHERE text_signature = 'waiting(uint256)'", "sequence"),
        ("UPDATE staged SET created_at = created_at - 60000000 WHERE text_signature = 'waiting(uint256)'", "order"),
        ("UPDATE staged SET id = 5 WHERE text_signature = 'waiting(uint256)'", "fold"),
        ("UPDATE sequence SET last_id = 100", "sequence"),
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
    content = bytearray(paths.staging.read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    paths.staging.write_bytes(content)
    assert_found(paths, "staging", "staging.sqlite")
    for file in paths.root.glob("staging.sqlite*"):
        file.unlink()
    assert_found(paths, "staging", "staging.sqlite", "lost")
    assert not paths.staging.exists()
    Staging(paths.staging).close()
    assert_found(paths, "sequence", "staging.sqlite", "lost")


# Indexes and leftovers.


def test_a_damaged_index_is_found_with_its_remedy(paths: Paths) -> None:
    """The command that removes it; also one that has the right number of rows and other values."""
    file = data_file(paths)
    folder = paths.cache / index_name(SIGNATURES, file.path)
    for name in ("ids", "text"):
        whole = (folder / name).read_bytes()
        flip(folder / name, len(whole) - 3)
        found = assert_found(paths, "index", folder.name)
        assert f"rm -r {folder}" in found["why"]
        (folder / name).write_bytes(whole)
    assert run_verify(paths)[0] == 0
    checksums = (folder / "checksums.json").read_bytes()
    (folder / "checksums.json").unlink()
    assert_found(paths, "index", folder.name)
    (folder / "checksums.json").write_bytes(checksums)
    segment = open_index(folder, file.rows)
    write_columns(folder / "ids", {"ids": segment.ids + 1})
    assert_found(paths, "index", folder.name, "not as it was written")
    (folder / "rows").unlink()
    assert_found(paths, "index", folder.name, "does not fit")


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
    status, report = run_verify(paths)
    assert (status, report["findings"]) == (0, [])
    named = {Path(note["where"]).name for note in report["notes"]}
    assert named == {orphan.name, "signatures-gone-0001", rejects.name, dead.name}
