"""An import from the files to the published rows, by the function and by the command."""

from __future__ import annotations

import contextlib
import csv
import gc
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import re
import signal
import subprocess
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.report import ImportReport
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, empty_warehouse, environment, import_files
from tests.pipeline import support
from tests.pipeline.support import COMPRESSORS, CommandResult, keccak256, parquet_bytes, texts, write_files


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content, except those that SQLite and the lock maintain."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = (path for path in found if path.name != "publish.lock" and not path.name.startswith("staging.sqlite"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def nothing_left(warehouse: Path) -> bool:
    """Whether no version was published and ``tmp`` is empty."""
    tmp = warehouse / "tmp"
    return sigdir.open(warehouse).version == -1 and not (tmp.is_dir() and any(tmp.iterdir()))


Command = Callable[..., CommandResult]
"""Runs a command in this process, on the fixture ``warehouse``."""


@pytest.fixture
def invoke(warehouse: Path) -> Command:
    return partial(support.invoke, warehouse)


# Counts.


def test_counts_and_ids_agree_with_a_dictionary(tmp_path: Path, warehouse: Path) -> None:
    """For each file and collection, read = imported + duplicate + rejected. Ids are dense and in source order, in an
    import and from one to the next; created_at rises with each id.
    """
    dice = random.Random(3)
    seen: dict[tuple[str, str], None] = {}
    for round in range(3):
        expected: list[Counter[str]] = []
        files: dict[str, str | bytes] = {}
        for number in range(2):
            counts: Counter[str] = Counter(read=1_000)
            lines = []
            for _ in range(1_000):
                name, kind = f"f{dice.randrange(3_000)}", dice.choice(["", "event ", "uint7"])
                lines.append(f"{name}(uint7)" if kind == "uint7" else f"{kind}{name}(uint256)")
                counts["rejected" if kind == "uint7" else "duplicate" if (kind, name) in seen else "imported"] += 1
                if kind != "uint7":
                    seen[kind, name] = None
            files[f"{number}.txt"] = "\n".join(lines)
            expected.append(counts)
        report = import_files(write_files(tmp_path / f"{round}", files), warehouse)
        for file, counts in zip(report.files, expected, strict=True):
            assert {name: file.to_dict()[name] for name in counts} == dict(counts)
        assert report.totals() == dict(sum(expected, Counter()))
        assert report.reasons() == {"bad_width": report.total("rejected")}
    opened = sigdir.open(warehouse)
    for collection, keyword in ((SIGNATURES, ""), (EVENT_SIGNATURES, "event ")):
        assert texts(warehouse, collection) == [f"{name}(uint256)" for kind, name in seen if kind == keyword]
        rows = opened.sql(f"SELECT id, created_at, import_id FROM {collection.view_name} ORDER BY id").rows()
        assert [id for id, _, _ in rows] == list(range(1, len(rows) + 1))
        assert all(one[1] < next[1] and one[2] <= next[2] for one, next in pairwise(rows))
    assert {import_id for _, _, import_id in rows} == {1, 2, 3}


def test_examples_show_three_rejects_a_reason(tmp_path: Path, warehouse: Path) -> None:
    """The report shows the first three rejects of each reason, with their places."""
    [path] = write_files(
        tmp_path, {"a.txt": "f(uint7)\n\ng(uint9)\nh(foo)\ni(uint7)\nj(uint7)\nok()\nok2()\nok3()\nok4()\nok5()\n"}
    )
    report = import_files([path], warehouse, format="text")
    shown = [(example.reason, example.text, example.position, example.line) for example in report.examples]
    assert sorted(shown) == [
        ("bad_width", "f(uint7)", 3, 1),
        ("bad_width", "g(uint9)", 3, 3),
        ("bad_width", "i(uint7)", 3, 5),
        ("unknown_type", "h(foo)", 3, 4),
    ]
    assert {example.file for example in report.examples} == {str(path)}


# Repeated imports.


def test_an_import_that_brings_nothing(tmp_path: Path, warehouse: Path) -> None:
    """The same files again publish no version, and the report names the import with the same rejects.

    An import that accepts nothing publishes one, so that its rejects can be looked up.
    """
    write_files(tmp_path / "in", {"a.txt": "a()\nb()\nc()\nnarrow(uint7)\n(\n", "b.txt": "event A()\na()\n"})
    first = import_files([tmp_path / "in"], warehouse)
    import_files(write_files(tmp_path, {"other.txt": "c()\nd(uint7)\n"}), warehouse)
    before = files_below(warehouse)
    second = import_files([tmp_path / "in"], warehouse)
    assert (first.published, second.published) == (True, False)
    assert (first.version, first.rejects_in, second.version, second.rejects_in) == (1, 1, 2, 1)
    assert second.totals() == {"read": 7, "imported": 0, "duplicate": 5, "rejected": 2}
    assert files_below(warehouse) == before
    [path] = write_files(tmp_path, {"bad.txt": "a(\nb(uint7)\n"})
    report = import_files([path], warehouse)
    assert (report.published, report.version, report.rejects_in) == (True, 3, 3)
    found = sigdir.open(warehouse).sql(
        "SELECT text, reason, position, file, line FROM rejects WHERE import_id = 3 ORDER BY line"
    )
    assert found.rows() == [("a(", "unbalanced", 3, str(path), 1), ("b(uint7)", "bad_width", 3, str(path), 2)]


# Options.


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_collection_of_candidates_of_unknown_kind(tmp_path: Path, warehouse: Path, collection: Collection) -> None:
    """--collection applies to candidates whose kind neither a keyword nor a hash shows."""
    transfer = "0x" + keccak256("Transfer(address,address,uint256)").hex()
    paths = write_files(
        tmp_path / "in",
        {
            "a.txt": "open()\nfunction a()\nevent B()\n",
            "b.csv": f'hash,signature\n{transfer},"Transfer(address,address,uint256)"\n,open2()\n',
        },
    )
    import_files(paths, warehouse, collection=collection)
    expected = {SIGNATURES: {"a()"}, EVENT_SIGNATURES: {"B()", "Transfer(address,address,uint256)"}}
    expected[collection] |= {"open()", "open2()"}
    assert {each: set(texts(warehouse, each)) for each in COLLECTIONS} == expected


def test_dry_run_writes_nothing(tmp_path: Path, warehouse: Path, invoke: Command) -> None:
    """--dry-run counts like an import, but creates no folder and uses up no version, import id or row id."""
    path, other = write_files(tmp_path / "in", {"a.txt": "a()\nb()\na()\nc(\n", "b.txt": "d()\n"})
    report = json.loads(invoke("import", "--dry-run", "--json", path).stdout)
    assert (report["dry_run"], report["published"], report["version"]) == (True, False, -1)
    assert report["totals"] == {"read": 4, "imported": 2, "duplicate": 1, "rejected": 1}
    assert not warehouse.exists()
    import_files([path], warehouse)
    before = files_below(warehouse)
    known = import_files([path], warehouse, dry_run=True)
    assert known.totals() == {"read": 4, "imported": 0, "duplicate": 3, "rejected": 1}
    assert known.version == 1
    assert files_below(warehouse) == before
    import_files([other], warehouse, dry_run=True)
    import_files([other], warehouse)
    rows = sigdir.open(warehouse).sql("SELECT id, text_signature, import_id FROM signatures ORDER BY id").rows()
    assert rows == [(1, "a()", 1), (2, "b()", 1), (3, "d()", 2)]


def test_json_equals_the_report(tmp_path: Path, invoke: Command) -> None:
    """--json prints the report of the function and nothing else on standard output."""
    write_files(tmp_path / "in", {"a.txt": "a()\nb()\na()\nc(\n", "b.md": "x", "c.json": '{"0dbe671f": "b()"}'})
    report = import_files([tmp_path / "in"], tmp_path / "other", source="x").to_dict()
    printed = json.loads(invoke("import", "--json", "--source", "x", tmp_path / "in").stdout)
    for timed in ("seconds", "stages", "rows_per_second"):
        assert type(printed.pop(timed)) is type(report.pop(timed))
    assert printed == report
    assert printed["skipped"] == [{"path": str(tmp_path / "in" / "b.md"), "reason": "name"}]
    assert printed["skip_reasons"] == {"name": 1}


ODD_NAMES = ["[id].txt", "a[/b].txt", "[red]x[/red].txt", "a\\[b].txt", ":smile:.txt", "[id].md", f"{'long' * 9}.txt"]


def test_the_report_for_people(tmp_path: Path, invoke: Command) -> None:
    """The table shows each file and the total, the rejects by reason, and the new version.

    No name is interpreted as markup, no control character reaches the terminal, and lines for a pipe are not wrapped.
    """
    long = "b" * 120 + "(uint7)"
    files = {"a.txt": f"a()\nb()\na()\n{long}\nb(\x1b[31mred\x07)", "b.txt": "event A()\n", "notes": "some words\n"}
    paths = write_files(tmp_path / "in", dict.fromkeys(ODD_NAMES, "a()\n") | files)
    done = invoke("import", tmp_path / "in")
    assert done.status == 0
    table = done.stdout.decode()
    lines = table.splitlines()
    cells = [[cell.strip() for cell in line.strip("\u2502").split("\u2502")] for line in lines if "\u2502" in line]
    numbers = {row[0].rpartition("/")[2]: row[1:] for row in cells}
    assert numbers["a.txt"] == ["text", "5", "1", "2", "2"]
    assert numbers["b.txt"] == ["text", "1", "1", "0", "0"]
    assert numbers["total"] == ["", "12", "3", "7", "2"]
    for part in (
        "Skipped 1 of no known format",
        "signatures: 2 imported",
        "event-signatures: 1 imported",
        f"a.txt:4 {long}",
    ):
        assert part in table
    assert lines[-1].endswith("; 9 sightings; version 1 published; rejects: sigdir rejects --import 1")
    assert [path.name for path in paths if path.name not in table.replace("\n", "")] == []
    assert "\x1b" not in table
    assert b"\x1b" not in invoke("rejects").stdout


# Paths.


def skipped(report: ImportReport, folder: Path) -> dict[str, list[str]]:
    """The skipped paths below a folder, by reason."""
    found: dict[str, list[str]] = {}
    for unread in report.skipped:
        found.setdefault(unread.reason, []).append(unread.path.removeprefix(f"{folder}/"))
    return {reason: sorted(paths) for reason, paths in found.items()}


def test_folders_are_searched(tmp_path: Path, warehouse: Path) -> None:
    """Folders are read recursively, in the order given and by name, what is named too.

    Hidden files, links, pipes and files of unknown format are listed as skipped.
    """
    write_files(
        tmp_path / "in",
        {
            "a.txt": "a()\n", "deep/er/b.txt.gz": gzip.compress(b"b()\n"), ".hidden.txt": "c()\n",
            ".git/d.txt": "d()\n", "deep/.cache/e.txt": "e()\n", "README.md": "f()\n", "deep/x.bin": b"\0\1",
            "Token.yul": "event E();\n", "deep/a.txt": "d()\n",
        },
    )  # fmt: skip
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "in" / "a.txt")
    (tmp_path / "in" / "self.txt").symlink_to("self.txt")
    os.mkfifo(tmp_path / "in" / "pipe.txt")
    write_files(tmp_path, {"z.txt": "z()\n", "y.txt": "y()\n"})
    named = [tmp_path / "z.txt", tmp_path / "in", tmp_path / "in" / ".hidden.txt", tmp_path / "y.txt"]
    report = import_files(named, warehouse)
    assert texts(warehouse) == ["z()", "a()", "d()", "b()", "c()", "y()"]
    assert skipped(report, tmp_path / "in") == {
        "hidden": [".git", ".hidden.txt", "deep/.cache"], "link": ["gone.txt", "link.txt", "loop", "self.txt"],
        "special": ["pipe.txt"],
        "name": ["README.md", "Token.yul"], "unknown_format": ["deep/x.bin"],
    }  # fmt: skip
    assert report.skip_reasons() == {"hidden": 3, "link": 4, "special": 1, "name": 2, "unknown_format": 1}


def test_a_warehouse_in_a_folder_is_no_input(tmp_path: Path) -> None:
    """The same import of a folder that has its warehouse inside changes nothing."""
    write_files(tmp_path, {"in/a.txt": "a()\n"})
    for version in (1, 1):
        report = import_files([tmp_path / "in"], tmp_path / "in/data")
        assert (report.version, report.is_complete) == (version, True)
    assert skipped(report, tmp_path / "in") == {"warehouse": ["data"]}


def test_links_are_followed_if_asked(tmp_path: Path, warehouse: Path) -> None:
    """--follow-links reads files and folders that links lead to, each folder once."""
    write_files(tmp_path, {"in/a.txt": "a()\n", "in/deep/b.txt": "b()\n", "out/c.txt": "c()\n", "d.txt": "d()\n"})
    folder = tmp_path / "in"
    for name, target in {"up": "in", "c": "out", "d.txt": "d.txt", "gone": "nowhere", "deep/again": "out"}.items():
        (folder / name).symlink_to(tmp_path / target)
    report = import_files([folder], warehouse, follow_links=True)
    assert texts(warehouse) == ["a()", "d()", "c()", "b()"]
    assert skipped(report, folder) == {"repeated_folder": ["deep/again", "up"], "dangling_link": ["gone"]}


def test_standard_input(warehouse: Path) -> None:
    """- reads standard input in any format and compression."""
    done = support.invoke(warehouse, "import", "-", "--json", stdin=b"a()\nnarrow(uint7)\n")
    [file] = json.loads(done.stdout)["files"]
    assert (file["path"], file["format"], file["read"]) == ("standard input", "text", 2)
    assert file["sha256"] == hashlib.sha256(b"a()\nnarrow(uint7)\n").hexdigest()
    parquet = zstd.compress(parquet_bytes({"text_signature": ["b()"]}))
    assert support.invoke(warehouse, "import", "-", stdin=parquet).status == 0
    assert support.invoke(warehouse, "import", "-", stdin=b"prose that is no signature\n").status == 1  # all rejected
    assert texts(warehouse) == ["a()", "b()"]


# Commands that read.


@pytest.fixture(scope="module")
def two_imports(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    """Two files, and a warehouse with their imports, which have rejects of several reasons; read only.

    It is in a folder whose name is something to SQL, globs, URLs or a shell.
    """
    folder = tmp_path_factory.mktemp("two")
    warehouse = folder / "wh #1 100% w\u00e4r [1] it's a*b? semi;colon"
    paths = write_files(
        folder / "in",
        {
            "a.txt": "a(uint)\nevent A(address indexed who)\nb(uint7)\nc(foo)\n",
            "b.csv": gzip.compress(b'text_signature,hex_signature\nd(),\n"e(uint9)",\n"x()",0x00000000\n'),
        },
    )
    for path in paths:
        import_files([path], warehouse, source=path.name)
    return paths, warehouse


def test_rejects_command_filters(two_imports: tuple[list[Path], Path]) -> None:
    """`sigdir rejects` shows text, reason, file, line and position, filtered by import and reason."""
    (first, second), warehouse = two_imports
    found = [
        ["1", "b(uint7)", "bad_width", str(first), "3", "3"],
        ["1", "c(foo)", "unknown_type", str(first), "4", "3"],
        ["2", "e(uint9)", "bad_width", str(second), "3", "3"],
        ["2", "x()", "hash_mismatch", str(second), "4", "0"],
    ]
    for arguments, expected in (
        ("", found), ("--import 2", found[2:]), ("--reason bad_width", [found[0], found[2]]), ("--import 9", []),
        ("--import 1 --reason bad_width", found[:1]), ("--limit 3", found[:3]),
    ):  # fmt: skip
        done = support.invoke(warehouse, "rejects", "--format", "csv", *arguments.split())
        assert (done.status, done.stderr) == (0, "")
        header = ["import_id", "text", "reason", "file", "line", "position"]
        assert list(csv.reader(io.StringIO(done.stdout.decode()))) == [header, *expected]
    refused = support.invoke(warehouse, "rejects", "--reason", "bad_widht")
    assert (refused.status, "'bad_widht' is not one of 'empty', " in refused.stderr) == (2, True)


def test_history_command_lists_imports_and_sources(two_imports: tuple[list[Path], Path], tmp_path: Path) -> None:
    """`sigdir history` lists each import with counts and label, else its files; --sources lists each file."""

    def history(warehouse: Path, *arguments: str) -> list[dict[str, Any]]:
        done = support.invoke(warehouse, "history", "--format", "ndjson", *arguments)
        assert (done.status, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    paths, warehouse = two_imports
    rows = history(warehouse)
    shown = ["import_id", "version", "source", "files", "read", "imported", "duplicate", "rejected"]
    assert [[row[name] for name in shown] for row in rows] == [
        [1, 1, "a.txt", 1, 4, 2, 0, 2], [2, 2, "b.csv", 1, 3, 1, 0, 2],
    ]  # fmt: skip
    assert all(datetime.fromisoformat(row["committed_at"]).tzinfo is not None for row in rows)
    for number, (row, path) in enumerate(zip(history(warehouse, "--sources"), paths, strict=True), 1):
        assert (row["import_id"], row["path"], row["bytes"]) == (number, str(path), path.stat().st_size)
        assert row["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert row["format"] == ("csv" if path.suffix == ".csv" else "text")
    five = write_files(tmp_path, {f"{number}.txt": f"f{number}()" for number in range(5)})
    import_files(five, tmp_path / "five")
    [row] = history(tmp_path / "five")
    assert (row["source"], row["files"]) == (f"{', '.join(map(str, five[:3]))} and 2 more", 5)


def test_stats_command(two_imports: tuple[list[Path], Path]) -> None:
    """`sigdir stats` shows version, rows, files and bytes of each collection, now or at an older version."""
    _, warehouse = two_imports
    facts = json.loads(support.invoke(warehouse, "stats", "--json").stdout)
    assert facts["version"] == 2
    for collection, rows in ((SIGNATURES, 2), (EVENT_SIGNATURES, 1)):
        table = warehouse / "table" / f"collection={collection}"
        sizes = [path.stat().st_size for path in table.iterdir() if path.suffix == ".parquet"]
        expected = {"rows": rows, "files": len(sizes), "bytes": sum(sizes), "last_id": rows}
        assert facts["collections"][collection] == expected
    before = json.loads(support.invoke(warehouse, "stats", "--json", "--as-of", "1").stdout)
    assert (before["version"], before["collections"][SIGNATURES]["rows"]) == (1, 1)
    shown = support.invoke(warehouse, "stats").stdout.decode()
    assert "version 2" in shown
    assert "2 rows" in shown


READERS = (
    "sql SELECT", "stats", "history", "rejects", "report -", "export csv -", "verify", "decode 0xa9059cbb", "compact",
    "vacuum", "backup copy", "fold",
)  # fmt: skip


def test_reading_a_folder_without_a_warehouse(
    tmp_path: Path, warehouse: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that does not exist, or has no warehouse.json, is named in one line, status 2; nothing is created."""
    monkeypatch.chdir(tmp_path)
    missing = (2, b"", f"Error: {warehouse}: there is no such folder, so no warehouse to read\n")
    assert {command: invoke(*command.split()) for command in READERS} == dict.fromkeys(READERS, missing)
    assert list(tmp_path.iterdir()) == []
    write_files(warehouse, {"notes.txt": "mine"})
    for command in READERS:
        status, out, err = invoke(*command.split())
        assert (status, out) == (2, b"")
        assert err.startswith(f"Error: {warehouse}: no warehouse, because the folder has no warehouse.json; "), command
    assert sorted(tmp_path.rglob("*")) == [warehouse, warehouse / "notes.txt"]


def test_no_warehouse_is_made_among_other_files(warehouse: Path, invoke: Command) -> None:
    """A folder named by mistake. Nothing is written into it."""
    write_files(warehouse, {"txs.csv": "", "a.txt": "a()\n"})
    told = f"{warehouse}: no warehouse, and none is made here, because the folder has other files: 'a.txt', 'txs.csv';"
    for command in ("import --samples", "import --samples --dry-run", "serve --port 0", "mirror http://127.0.0.1:1"):
        done = invoke(*command.split())
        assert (done.status, done.stderr.count("\n"), told in done.stderr) == (2, 1, True), command
    assert sorted(file.name for file in warehouse.iterdir()) == ["a.txt", "txs.csv"]


def test_a_warehouse_is_made_on_an_empty_disk_and_beside_a_suppress_list(warehouse: Path, invoke: Command) -> None:
    """A new file system has ``lost+found``; the operator's list and hidden files may be there first. It is said once."""
    (warehouse / "lost+found").mkdir(parents=True)
    write_files(warehouse, {".gitkeep": "", "suppressed.txt": "insult()\n"})
    assert "new warehouse" not in invoke("import", "--samples", "--dry-run").stderr
    assert f"new warehouse at {warehouse}\n" in invoke("import", "--samples").stderr
    assert "new warehouse" not in invoke("import", "--samples").stderr


def test_looking_at_an_empty_warehouse(warehouse: Path, invoke: Command) -> None:
    """A warehouse without rows is read as such, and every format can write a result without rows."""
    empty_warehouse(warehouse)
    assert b"nothing imported yet" in invoke("stats").stdout
    done = invoke("sql", "--format", "csv", "SELECT count(*) n FROM signatures, event_signatures, imports, rejects")
    assert done.stdout == b"n\n0\n"
    for format, expected in {"csv": b"id\n", "json": b"[]\n", "ndjson": b""}.items():
        assert invoke("sql", "--format", format, "SELECT id FROM signatures") == (0, expected, "")
    assert invoke("sql", "--format", "table", "SELECT id FROM signatures").status == 0


VALUES = {
    "created_at": ("created_at", None, None),
    "text": ("text_signature", "transfer(address,uint256)", "transfer(address,uint256)"),
    "hex": ("hex_signature", "0xa9059cbb", "0xa9059cbb"),
    "characters": ("bytes_signature", "\u00a9\u0005\u009c\u00bb", "\u00a9\u0005\u009c\u00bb"),
    "bytes": ("hash", "0xa9059cbb", "0xa9059cbb"),
    "none": ("NULL", None, ""),
    "bool": ("true", True, "true"),
    "decimal": ("1.50::DECIMAL(4,2)", 1.5, "1.5"),
    "huge": ("170141183460469231731687303715884105727::HUGEINT", 2**127 - 1, str(2**127 - 1)),
    "unsigned": (f"{2**128 - 1}::UHUGEINT", str(2**128 - 1), str(2**128 - 1)),
    "word": (f"'{2**256 - 1}'::BIGNUM", str(2**256 - 1), str(2**256 - 1)),
    "words": (f"[{{'w': '{-2**255}'::BIGNUM}}]", [{"w": str(-2**255)}], f'[{{"w":"{-2**255}"}}]'),
    "bits": ("'101'::BIT", "101", "101"),
    "sum": ("(SELECT sum(id) FROM signatures)", 1, "1"),
    "date": ("DATE '2020-01-31'", "2020-01-31", "2020-01-31"),
    "local": ("TIMESTAMP '2020-01-31 09:05:07'", "2020-01-31T09:05:07.000000", "2020-01-31T09:05:07.000000"),
    "list": ("['a', NULL]", ["a", None], '["a",null]'),
    "struct": ("{'h': unhex('ff'), 't': TIMESTAMPTZ '2020-01-31 09:05:07Z'}",
               {"h": "0xff", "t": "2020-01-31T09:05:07.000000Z"}, '{"h":"0xff","t":"2020-01-31T09:05:07.000000Z"}'),
    "quoted": ("'a,\"b\"' || chr(10)", 'a,"b"\n', 'a,"b"\n'),
}  # fmt: skip


def test_sql_writes_values_of_any_type(tmp_path: Path, warehouse: Path, invoke: Command) -> None:
    """As JSON and as CSV, bytes as hex and times with six digits and Z; Parquet has the types of the query."""
    import_files(write_files(tmp_path, {"a.txt": "transfer(address,uint256)\n"}), warehouse)
    opened = sigdir.open(warehouse)
    [(created_at,)] = opened.sql("SELECT created_at FROM signatures").rows()
    columns = ", ".join(f'{expression} AS "{name}"' for name, (expression, _, _) in VALUES.items())
    query = f"SELECT {columns} FROM signatures"
    written = {name: invoke("sql", "--format", name, query).stdout for name in ("ndjson", "json", "csv", "parquet")}
    [row] = json.loads(written["json"])
    [fields] = csv.DictReader(io.StringIO(written["csv"].decode(), newline=""))
    assert json.loads(written["ndjson"]) == row
    assert row.pop("created_at") == fields.pop("created_at") == created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for name in row:
        _, as_json, as_csv = VALUES[name]
        assert str(row[name]) == str(as_json), name  # JSON readers differ on numbers over 64 bits
        assert fields[name] in (as_csv, str(as_json)), name
    table = pq.read_table(io.BytesIO(written["parquet"]))
    assert table.to_pylist() == opened.sql(query).arrow().to_pylist()
    assert table.schema.field("created_at").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("bytes").type == pa.binary()
    none = invoke("sql", "--format", "parquet", f"{query} WHERE false")
    assert pq.read_table(io.BytesIO(none.stdout)).num_rows == 0
    assert "transfer(address,uint256)" in invoke("sql", "SELECT text_signature FROM signatures").stdout.decode()


NO_JSON = """SELECT 'nan'::DOUBLE n, {'a': '-inf'::DOUBLE} s, 170141183460469231731687303715884105727::HUGEINT h,
    12345678901234567890.123::DECIMAL(38,3) d, INTERVAL '1 month 3 days 1.5 seconds' i, [INTERVAL 1 DAY] li"""


def test_sql_writes_what_json_and_parquet_do_not_have(two_imports: tuple[list[Path], Path]) -> None:
    """No number is null beside an integer of over 64 bits too, a long decimal loses no digit, and Parquet refuses.

    A join keeps both columns that are called id.
    """
    sql = partial(support.invoke, two_imports[1], "sql", "--format")
    join = "SELECT s.id, e.id FROM signatures s, event_signatures e WHERE s.id = 2"
    for format in ("json", "ndjson", "csv"):
        assert re.findall(r"\b[12]\b", sql(format, join).stdout.decode()) == ["2", "1"], format
        text = sql(format, NO_JSON).stdout.decode().strip("[]\n")
        if format == "csv":
            assert ",12345678901234567890.123,P1M3DT1.5S," in text
            continue
        assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON")) == {
            "n": None, "s": {"a": None}, "h": 2**127 - 1, "d": "12345678901234567890.123", "i": "P1M3DT1.5S",
            "li": ["P0M1DT0S"],
        }  # fmt: skip
    assert pq.read_table(io.BytesIO(sql("parquet", join).stdout)).to_pylist() == [{"id": 2, "id_2": 1}]
    refused = sql("parquet", NO_JSON)
    assert (refused.status, refused.stderr.count("\n"), "CAST" in refused.stderr) == (2, 1, True), refused.stderr


# Bad input.


_RANDOM = random.Random(1)
_LINES = "".join(f"f{_RANDOM.getrandbits(64):x}(uint256)\n" for _ in range(6_000)).encode()


def _cut(packed: bytes) -> dict[str, bytes]:
    return {"half": packed[: len(packed) // 2], "end": packed[:-3], "begin": packed[:12]}


_BROKEN = json.dumps([{"type": "function", "name": f"f{number}", "inputs": []} for number in range(50)], indent=1)
_DAMAGED = bytearray(parquet_bytes({"text_signature": [f"f{number}()" for number in range(9_999)]}))
_DAMAGED[2_000:2_100] = bytes(100)

# File name, content, parts of the message: place, if there is one, and reason.
BAD_INPUTS: list[tuple[str, bytes, list[str]]] = [
    *(
        (f"{where}.txt.{ending}", content, ["after", "bytes unpacked: "])
        for ending, pack in COMPRESSORS.items()
        for where, content in _cut(pack(_LINES)).items()
    ),
    ("damaged.txt.gz", gzip.compress(_LINES)[:5_000] + bytes(50) + gzip.compress(_LINES)[5_050:], ["unpacked: "]),
    *((f"trailing.txt.{ending}", pack(b"a()\n") + b"rubbish", ["after 4 bytes unpacked: "])
      for ending, pack in COMPRESSORS.items()),
    ("broken.json", _BROKEN.replace('"f25",', '"f25"', 1).encode(), ["line 130 column 3: broken JSON: "]),
    ("cut.json", b'{"a9059cbb": "transfer(address,uint256)",\n "18160ddd": "tot', ["line 2 column 14: broken JSON: "]),
    ("latin.json", b'{"a9059cbb": "transfer(address,uint256)", "x": "\xe4"}', ["byte 49: not UTF-8"]),
    ("none.parquet", parquet_bytes({"id": [1], "name": ["a"]}), ["it is not clear which column has the signatures; it has id: integers, name: text; "]),
    ("cut.parquet", parquet_bytes({"text_signature": ["a()"]})[:-20], ["broken Parquet: "]),
    ("damaged.parquet", bytes(_DAMAGED), ["broken Parquet: "]),
    ("rubbish.parquet", b"PAR1" + bytes(100), ["broken Parquet: "]),
    ("utf-16.txt", "a()\nb()\n".encode("utf-16"), ["UTF-16 text; write it as UTF-8"]),
    ("notes.md", b"# words\n", ["unknown format; name it with --format"]),
    ("none.csv", b"id,name\n1,2\n", ["line 1: it is not clear which column has the signatures; it has id: integers, name: integers; "]),
]  # fmt: skip


FAULTY = [bad for bad in BAD_INPUTS if bad[0] not in ("notes.md", "none.csv")]
"""Those that are broken in a folder too. The others are skipped there."""


def test_broken_files_do_not_stop_a_folder(tmp_path: Path, warehouse: Path, invoke: Command) -> None:
    """A broken file of a folder is a fault with its reason and status 1; the files beside it are imported."""
    good = {f"{name}.good.txt": f"f{number}()\n" for number, (name, _, _) in enumerate(FAULTY)}
    write_files(tmp_path / "in", good | {name: content for name, content, _ in FAULTY})
    status, out, err = invoke("import", "--quiet", "--json", tmp_path / "in")
    report = json.loads(out)
    assert (status, err) == (1, "")
    assert {f"f{number}()" for number in range(len(FAULTY))} <= set(texts(warehouse))
    assert report["totals"]["read"] == sum(report["totals"][name] for name in ("imported", "duplicate", "rejected"))
    reasons = {fault["path"]: fault["reason"] for fault in report["faults"]}
    assert reasons.keys() == {str(tmp_path / "in" / name) for name, _, _ in FAULTY}
    for name, _, parts in FAULTY:
        assert [part for part in parts if part not in reasons[str(tmp_path / "in" / name)]] == [], name
    partly = {file["path"]: file["fault"] for file in report["files"] if file["fault"]}
    assert partly.items() <= reasons.items()
    [entry] = json.loads(invoke("history", "--json").stdout)
    assert entry["faults"] == report["faults"]
    stored = {row["path"]: row["fault"] for row in json.loads(invoke("history", "--sources", "--json").stdout)}
    assert {path: fault for path, fault in stored.items() if fault} == reasons
    assert stored.keys() >= {file["path"] for file in report["files"]}
    printed = invoke("import", tmp_path / "in").stdout.decode()
    assert f"{len(FAULTY)} files cannot be read to the end:\n" in printed


def test_the_lines_before_a_broken_place_are_kept(tmp_path: Path, warehouse: Path) -> None:
    """Also of a file that is smaller than a block. The line that is cut is not."""
    packed = gzip.compress(
        "".join(f"f{random.Random(n).random()}(uint)\n".replace(".", "") for n in range(20_000)).encode()
    )
    write_files(tmp_path / "in", {"a.txt.gz": packed[: len(packed) // 2]})
    report = import_files([tmp_path / "in"], warehouse)
    [file] = report.files
    assert (file.fault, file.rejected) == (report.faults[0].reason, 0)
    assert file.imported == len(texts(warehouse)) > 1_000


def test_a_file_with_everything_rejected_is_named(tmp_path: Path, warehouse: Path, invoke: Command) -> None:
    """If every candidate of a file was rejected, the summary names the file and the status is 1. -q says no more."""
    bad, good = write_files(tmp_path, {"bad.txt": "a(uint7)\nb(uint7)\n", "good.txt": "a()\nb(uint7)\n"})
    status, out, _ = invoke("import", bad, good)
    assert status == 1
    assert f"Everything was rejected of 1 file: {bad}\n" in out.decode()
    assert invoke("import", "-q", good) == (0, b"", "")
    assert invoke("import", "-q", bad) == (1, b"", f"Everything was rejected of 1 file: {bad}\n")
    [library] = write_files(tmp_path, {"L.sol": "library L { struct S { uint a; } function f(S memory s) public {} }"})
    assert invoke("import", "--quiet", library).status == 0  # rejected, as every text with a library type is


def test_columns_that_the_command_names(tmp_path: Path, warehouse: Path, invoke: Command) -> None:
    """`--column` names the text; a role that there is not is an error of usage."""
    [path] = write_files(tmp_path, {"labels.csv": "fn,alias\na(),b()\n"})
    status, _, err = invoke("import", path)
    assert (status, "it has fn: signatures, alias: signatures; say --column text=NAME" in err) == (2, True)
    assert invoke("import", "-q", path, "--column", "text=alias").status == 0
    assert texts(warehouse) == ["b()"]
    status, _, err = invoke("import", path, "--column", "names=alias")
    assert (status, "names=alias is none of text=NAME, hash=NAME, kind=NAME" in err) == (2, True)


ONE_OF_EACH = {
    "half.txt.xz": "after ", "broken.json": "line 130 column 3: broken JSON: ", "none.parquet": "it is not clear which column",
    "utf-16.txt": "UTF-16 text; write it as UTF-8", "none.csv": "line 1: it is not clear", "notes.md": "unknown format; name it",
}  # fmt: skip
"""Of the bad inputs; all others are read in a folder."""


def test_failing_commands(tmp_path: Path, warehouse: Path, invoke: Command) -> None:
    """Each failure is one line on standard error and status 2; nothing else is printed."""
    folder = tmp_path / "in"
    write_files(folder, {name: content for name, content, _ in BAD_INPUTS if name in ONE_OF_EACH})
    good, broken = folder / "known/a.txt", folder / "broken/a.json"
    write_files(folder, {
        "known/a.txt": "a()\n", "unknown/a.bin": "\0", "unknown/b/README.md": "x", "broken/a.json": "[1,",
        "broken/b.json": "[", "strict/a.txt": "a()\n", "strict/b.json": '{"a": 1', "hidden/.a.txt": "a()\n",
    })  # fmt: skip
    (folder / "self.txt").symlink_to("self.txt")
    (folder / "empty").mkdir()
    none = "no such file or folder"
    skipped = "(skipped: 1 of no known format, 1 not signatures, by their names)"
    failures: list[tuple[Sequence[str | Path], str]] = [
        *(([folder / name], f"{folder}/{name}: {part}") for name, part in ONE_OF_EACH.items()),
        ([folder / "missing.txt"], f"{folder}/missing.txt: {none}"),
        ([good, folder / "missing"], f"{folder}/missing: {none}"), ([folder / "self.txt"], f"self.txt: {none}"),
        (["https://localhost/a.txt"], "https://localhost/a.txt: addresses are not fetched, "),
        (["--format", "none", good], "none: no such format; the formats are tree, solidity, vyper, sqlite, parquet, "),
        ([folder / "unknown"], f"{folder}/unknown: no file of a known format {skipped}"),
        ([folder / "broken"], f"broken: no file can be read (2 tried); the first: {broken}: line 1 column 4: "),
        (["--strict", folder / "strict"], f"{folder}/strict/b.json: line 1 column 8: broken JSON"),
        (["--memory-limit", "banana", good], "memory limit 'banana': "), ([folder / "empty"], f"{folder}/empty: "),
        ([folder / "hidden"], f"{folder}/hidden: "), (["--warehouse", good / "x", good], str(good)),
    ]  # fmt: skip
    for arguments, message in failures:
        status, out, err = invoke("import", "--quiet", *arguments)
        assert (status, out, err.count("\n"), err[:7]) == (2, b"", 1, "Error: "), arguments
        assert message in err
        assert nothing_left(warehouse), arguments


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_paths(tmp_path: Path, warehouse: Path) -> None:
    """A file or folder without read permission is named with the reason."""
    [path] = write_files(tmp_path / "in", {"a.txt": "a()\n"})
    for closed in (path, tmp_path / "in"):
        closed.chmod(0)
        try:
            with pytest.raises(BadInput, match=f"{closed}: Permission denied"):
                import_files([tmp_path / "in"], warehouse)
        finally:
            closed.chmod(0o700)
    assert nothing_left(warehouse)


def test_failed_run_leaves_the_last_version(tmp_path: Path, warehouse: Path) -> None:
    """After an error in the last of several files the warehouse is unchanged, no file is open, and the next import works."""
    good, later, bad = write_files(
        tmp_path, {"a.txt": "a()\n", "b.txt": "b()\n", "c.txt.xz": _cut(lzma.compress(_LINES))["half"]}
    )
    import_files([good], warehouse)
    before = files_below(warehouse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with contextlib.suppress(BadInput):
            import_files([later, bad], warehouse)
        gc.collect()
    assert [str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)] == []
    assert files_below(warehouse) == before
    assert import_files([later], warehouse).version == 2
    rows = sigdir.open(warehouse).sql("SELECT id, text_signature, import_id FROM signatures ORDER BY id").rows()
    assert rows == [(1, "a()", 1), (2, "b()", 2)]


# Interruption.


def test_interrupted_import(warehouse: Path) -> None:
    """Ctrl-C ends an import with status 130, also while it waits for input; nothing remains."""
    command = [*command_line(), "import", "-"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(warehouse), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stderr.readline() == f"new warehouse at {warehouse}\n".encode()
        assert process.stderr.readline() == b"read ...\n"
        process.stdin.write(b"".join(b"f%d(uint256)\n" % number for number in range(300_000)))
        process.stdin.flush()  # more than one block was read
        process.send_signal(signal.SIGINT)
        status = process.wait(SAFETY_SECONDS)
        last = process.stderr.read().splitlines()[-1:]  # after progress, if slow
        with contextlib.suppress(OSError):
            process.stdin.close()
    assert (status, last) == (130, [b"interrupted: nothing was published"])
    assert nothing_left(warehouse)
