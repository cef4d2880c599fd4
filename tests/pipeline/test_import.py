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
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.report import ImportReport
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, empty_warehouse, environment, import_files
from tests.examples import long_except
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


class Invoke(Protocol):
    """Runs a command in this process, on the fixture ``warehouse``."""

    def __call__(self, *arguments: str | Path) -> CommandResult: ...


@pytest.fixture
def invoke(warehouse: Path) -> Invoke:
    return partial(support.invoke, warehouse)


# Counts.


def test_counts_agree_with_an_independent_count(tmp_path: Path, warehouse: Path) -> None:
    """For each file, each collection and in total, read = imported + duplicate + rejected."""
    dice = random.Random(3)
    seen: set[tuple[str, str]] = set()
    expected: list[Counter[str]] = []
    reasons: Counter[str] = Counter()
    files: dict[str, str | bytes] = {}
    for number in range(5):
        counts: Counter[str] = Counter()
        lines = []
        for _ in range(2_000):
            name, kind = f"f{dice.randrange(3_000)}", dice.choice(["", "event ", "uint7"])
            counts["read"] += 1
            if kind == "uint7":
                lines.append(f"{name}(uint7)")
                counts["rejected"] += 1
                reasons["bad_width"] += 1
                continue
            lines.append(f"{kind}{name}(uint)")
            counts["duplicate" if (kind, name) in seen else "imported"] += 1
            seen.add((kind, name))
        files[f"{number}.txt"] = "\n".join(lines)
        expected.append(counts)
    report = import_files(write_files(tmp_path / "in", files), warehouse)
    for file, counts in zip(report.files, expected, strict=True):
        assert {name: file.to_dict()[name] for name in ("read", "imported", "duplicate", "rejected")} == dict(counts)
    assert report.totals() == dict(sum(expected, Counter()))
    assert report.reasons() == dict(reasons)
    opened = sigdir.open(warehouse)
    for collection, keyword in ((SIGNATURES, ""), (EVENT_SIGNATURES, "event ")):
        held = sum(kind == keyword for kind, _ in seen)
        assert report.collections()[collection]["imported"] == opened.count(collection) == held
    assert opened.sql("SELECT count(*) FROM rejects").rows() == [(reasons["bad_width"],)]


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


def test_second_import_changes_nothing(tmp_path: Path, warehouse: Path) -> None:
    """Importing the same file again succeeds and publishes no version; the report names the import with the same rejects."""
    write_files(tmp_path / "in", {"a.txt": "a()\nb()\nc()\nnarrow(uint7)\n(\n", "b.txt": "event A()\na()\n"})
    first = import_files([tmp_path / "in"], warehouse)
    import_files(write_files(tmp_path, {"other.txt": "c()\nd(uint7)\n"}), warehouse)
    before = files_below(warehouse)
    second = import_files([tmp_path / "in"], warehouse)
    assert (first.published, second.published) == (True, False)
    assert (first.version, first.rejects_in, second.version, second.rejects_in) == (1, 1, 2, 1)
    assert second.totals() == {"read": 7, "imported": 0, "duplicate": 5, "rejected": 2}
    assert files_below(warehouse) == before


def test_import_of_rejects_only_is_kept(tmp_path: Path, warehouse: Path) -> None:
    """An import that accepts nothing publishes a version, so that its rejects can be looked up."""
    [path] = write_files(tmp_path, {"a.txt": "a(\nb(uint7)\n"})
    report = import_files([path], warehouse)
    assert (report.published, report.version, report.rejects_in) == (True, 1, 1)
    opened = sigdir.open(warehouse)
    assert [opened.count(collection) for collection in COLLECTIONS] == [0, 0]
    found = opened.sql("SELECT import_id, text, reason, position, file, line FROM rejects ORDER BY line").rows()
    assert found == [
        (1, "a(", "unbalanced", 3, str(path), 1),
        (1, "b(uint7)", "bad_width", 3, str(path), 2),
    ]


# Duplicates and order.


def test_ids_and_times_follow_the_source(tmp_path: Path, warehouse: Path) -> None:
    """Ids are dense inside an import and in source order; created_at rises with each id."""
    dice = random.Random(5)
    empty_warehouse(warehouse)
    for number in range(3):
        names = [f"f{dice.randrange(40_000)}_{number % 2}()" for _ in range(30_000)]
        before = texts(warehouse)
        paths = write_files(
            tmp_path / f"{number}", {"b.txt": "\n".join(names[9_000:]), "a.txt": "\n".join(names[:9_000])}
        )
        import_files([tmp_path / f"{number}"], warehouse)
        assert texts(warehouse) == list(dict.fromkeys([*before, *names]))
        assert len(paths) == 2
    rows = sigdir.open(warehouse).sql("SELECT id, created_at, import_id FROM signatures ORDER BY id").rows()
    ids, times, imports = zip(*rows, strict=True)
    assert all(earlier < later for earlier, later in pairwise(times))
    assert set(imports) == {1, 2, 3}
    for number in (1, 2, 3):
        own = [id for id, _, import_id in rows if import_id == number]
        assert own == list(range(own[0], own[0] + len(own)))
    assert ids[0] == 1


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


def test_dry_run_writes_nothing(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
    """--dry-run counts like an import, but creates no folder and uses up no version, import id or row id."""
    [path] = write_files(tmp_path / "in", {"a.txt": "a()\nb()\na()\nc(\n"})
    done = invoke("import", "--dry-run", "--json", path)
    assert done.status == 0
    report = json.loads(done.stdout)
    assert (report["dry_run"], report["published"], report["version"]) == (True, False, -1)
    assert report["totals"] == {"read": 4, "imported": 2, "duplicate": 1, "rejected": 1}
    assert not warehouse.exists()
    import_files([path], warehouse)
    before = files_below(warehouse)
    known = import_files([path], warehouse, dry_run=True)
    assert known.totals() == {"read": 4, "imported": 0, "duplicate": 3, "rejected": 1}
    assert known.version == 1
    assert files_below(warehouse) == before
    [other] = write_files(tmp_path / "in", {"b.txt": "d()\n"})
    import_files([other], warehouse, dry_run=True)
    import_files([other], warehouse)
    assert sigdir.open(warehouse).sql("SELECT import_id FROM imports ORDER BY 1").rows() == [(1,), (2,)]
    assert sigdir.open(warehouse).sql("SELECT max(id) FROM signatures").rows() == [(3,)]


def test_json_equals_the_report(tmp_path: Path, invoke: Invoke) -> None:
    """--json prints the report of the function and nothing else on standard output."""
    write_files(tmp_path / "in", {"a.txt": "a()\nb()\na()\nc(\n", "b.md": "x", "c.json": '{"0dbe671f": "b()"}'})
    report = import_files([tmp_path / "in"], tmp_path / "other", source="x").to_dict()
    done = invoke("import", "--json", "--source", "x", tmp_path / "in")
    printed = json.loads(done.stdout)
    for timed in ("seconds", "stages", "rows_per_second"):
        assert type(printed.pop(timed)) is type(report.pop(timed))
    assert printed == report
    assert printed["skipped"] == [{"path": str(tmp_path / "in" / "b.md"), "reason": "name"}]
    assert printed["skip_reasons"] == {"name": 1}


def test_report_for_people_has_the_counts(tmp_path: Path, invoke: Invoke) -> None:
    """The table shows each file and the total, the rejects by reason, and the new version."""
    write_files(tmp_path / "in", {"a.txt": "a()\nb()\na()\nc(\n", "b.txt": "event A()\n", "notes": "some words\n"})
    done = invoke("import", tmp_path / "in")
    assert done.status == 0
    lines = done.stdout.decode().splitlines()
    cells = [[cell.strip() for cell in line.strip("\u2502").split("\u2502")] for line in lines if "\u2502" in line]
    numbers = {row[0].rpartition("/")[2]: row[1:] for row in cells}
    assert numbers["a.txt"] == ["text", "4", "2", "1", "1"]
    assert numbers["b.txt"] == ["text", "1", "1", "0", "0"]
    assert numbers["total"] == ["", "5", "3", "1", "1"]
    table = "\n".join(lines)
    for part in (
        "Skipped 1 of no known format",
        "signatures: 2 imported",
        "event-signatures: 1 imported",
        "a.txt:4 c(",
    ):
        assert part in table
    assert lines[-1].endswith("version 1 published; rejects: sigdir rejects --import 1")


ODD_NAMES = ["[id]", "a[/b]", "[red]x[/red]", "a\\[b]", ":smile:"]


def test_report_shows_names_as_they_are(tmp_path: Path, invoke: Invoke) -> None:
    """A file name is not interpreted as markup, in the table or below it."""
    skipped = [f"{name}.md" for name in ODD_NAMES[:3]]
    paths = write_files(tmp_path / "in", dict.fromkeys([*skipped, *(f"{name}.txt" for name in ODD_NAMES)], "a()\n"))
    shown = invoke("import", tmp_path / "in").stdout.decode().replace("\n", "")
    assert [path.name for path in paths if path.name not in shown] == []


def test_terminal_sees_no_control_characters(tmp_path: Path, invoke: Invoke) -> None:
    """Control characters of a reject do not reach the terminal."""
    [path] = write_files(tmp_path, {"a.txt": "a()\nb(\x1b[31mred\x07)\n"})
    done = invoke("import", path)
    assert done.stdout
    assert b"\x1b" not in done.stdout
    shown = invoke("rejects")
    assert b"\x1b" not in shown.stdout


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


def test_links_are_followed_if_asked(tmp_path: Path, warehouse: Path) -> None:
    """--follow-links reads files and folders that links lead to, each folder once."""
    write_files(tmp_path, {"in/a.txt": "a()\n", "in/deep/b.txt": "b()\n", "out/c.txt": "c()\n", "d.txt": "d()\n"})
    folder = tmp_path / "in"
    for name, target in {
        "up": folder,
        "c": tmp_path / "out",
        "d.txt": tmp_path / "d.txt",
        "gone": Path("nowhere"),
    }.items():
        (folder / name).symlink_to(target)
    (folder / "deep" / "again").symlink_to(tmp_path / "out")
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


@pytest.mark.parametrize(
    "name", long_except({"wh #1", "it's"}, ["wh #1", "100%", "w\u00e4r [1]", "it's", "a*b?", "semi;colon"])
)
def test_warehouse_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """The warehouse's folder may have any name."""
    paths = write_files(tmp_path / "in", {"a.txt": "a()\nb(\n", "b.txt": "c()\n"})
    for path in paths:
        import_files([path], tmp_path / name)
    opened = sigdir.open(tmp_path / name)
    assert opened.version == 2
    assert texts(tmp_path / name) == ["a()", "c()"]
    assert opened.sql("SELECT text FROM rejects").rows() == [("b(",)]


# Commands that read.


@pytest.fixture
def two_imports(tmp_path: Path, warehouse: Path) -> list[Path]:
    """Two imports with rejects of several reasons; returns their two files."""
    paths = write_files(
        tmp_path / "in",
        {
            "a.txt": "a(uint)\nevent A(address indexed who)\nb(uint7)\nc(foo)\n",
            "b.csv": gzip.compress(b'text_signature,hex_signature\nd(),\n"e(uint9)",\n"x()",0x00000000\n'),
        },
    )
    for path in paths:
        import_files([path], warehouse, source=path.name)
    return paths


def test_rejects_command_filters(two_imports: list[Path], invoke: Invoke) -> None:
    """`sigdir rejects` shows text, reason, file, line and position, filtered by import and reason."""
    first, second = map(str, two_imports)
    found = [
        ["1", "b(uint7)", "bad_width", first, "3", "3"],
        ["1", "c(foo)", "unknown_type", first, "4", "3"],
        ["2", "e(uint9)", "bad_width", second, "3", "3"],
        ["2", "x()", "hash_mismatch", second, "4", "0"],
    ]

    def shown(*arguments: str) -> list[list[str]]:
        done = invoke("rejects", "--format", "csv", *arguments)
        assert (done.status, done.stderr) == (0, "")
        header, *rows = csv.reader(io.StringIO(done.stdout.decode()))
        assert header == ["import_id", "text", "reason", "file", "line", "position"]
        return rows

    assert shown() == found
    assert shown("--import", "2") == found[2:]
    assert shown("--reason", "bad_width") == [found[0], found[2]]
    assert shown("--import", "1", "--reason", "bad_width") == found[:1]
    assert shown("--import", "9") == []
    assert shown("--limit", "3") == found[:3]


def test_history_command_lists_imports_and_sources(two_imports: list[Path], invoke: Invoke) -> None:
    """`sigdir history` lists each import with counts and label; --sources lists each file as it is stored, with its sha256."""
    rows = [json.loads(line) for line in invoke("history", "--format", "ndjson").stdout.splitlines()]
    found = [(row["import_id"], row["version"], row["source"], row["files"]) for row in rows]
    assert found == [(1, 1, "a.txt", 1), (2, 2, "b.csv", 1)]
    assert [(row["read"], row["imported"], row["duplicate"], row["rejected"]) for row in rows] == [
        (4, 2, 0, 2),
        (3, 1, 0, 2),
    ]
    assert all(datetime.fromisoformat(row["committed_at"]).tzinfo is not None for row in rows)
    done = invoke("history", "--sources", "--format", "ndjson")
    assert (done.status, done.stderr) == (0, "")
    sources = [json.loads(line) for line in done.stdout.splitlines()]
    for number, (row, path) in enumerate(zip(sources, two_imports, strict=True), 1):
        assert (row["import_id"], row["path"], row["bytes"]) == (number, str(path), path.stat().st_size)
        assert row["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert [row["format"] for row in sources] == ["text", "csv"]


def test_history_names_the_files_of_an_import_without_a_label(warehouse: Path, tmp_path: Path, invoke: Invoke) -> None:
    """Of more than three files the first three and the number of the others."""
    write_files(tmp_path / "in", {f"{number}.txt": f"f{number}()" for number in range(5)})
    import_files([tmp_path / "in"], warehouse)
    [row] = [json.loads(line) for line in invoke("history", "--format", "ndjson").stdout.splitlines()]
    three = ", ".join(f"{tmp_path}/in/{number}.txt" for number in range(3))
    assert (row["source"], row["files"]) == (f"{three} and 2 more", 5)


def test_stats_command(two_imports: list[Path], warehouse: Path, invoke: Invoke) -> None:
    """`sigdir stats` shows version, rows, files and bytes of each collection, now or at an older version."""
    facts = json.loads(invoke("stats", "--json").stdout)
    assert facts["version"] == 2
    stored = {c: sorted((warehouse / "table" / f"collection={c}").glob("*.parquet")) for c in COLLECTIONS}
    for collection, rows in ((SIGNATURES, 2), (EVENT_SIGNATURES, 1)):
        assert facts["collections"][collection] == {
            "rows": rows,
            "files": len(stored[collection]),
            "bytes": sum(path.stat().st_size for path in stored[collection]),
            "last_id": rows,
        }
    before = json.loads(invoke("stats", "--json", "--as-of", "1").stdout)
    assert (before["version"], before["collections"][SIGNATURES]["rows"]) == (1, 1)
    shown = invoke("stats").stdout.decode()
    assert "version 2" in shown
    assert "2 rows" in shown


READERS: list[list[str]] = [
    ["sql", "SELECT 1"], ["stats"], ["history"], ["rejects"], ["report", "-"], ["export", "csv", "-"], ["verify"],
    ["decode", "0xa9059cbb"], ["compact"], ["vacuum"], ["backup", "copy"], ["fold"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", READERS, ids=lambda arguments: arguments[0])
def test_reading_a_folder_without_a_warehouse(
    tmp_path: Path, warehouse: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """A folder that does not exist, or has no warehouse.json, is named in one line, status 2; nothing is created."""
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert (done.status, done.stdout) == (2, b"")
    assert done.stderr == f"Error: {warehouse}: there is no such folder, so no warehouse to read\n"
    assert list(tmp_path.iterdir()) == []
    write_files(warehouse, {"notes.txt": "mine"})
    done = invoke(*arguments)
    assert (done.status, done.stdout) == (2, b"")
    assert done.stderr.startswith(f"Error: {warehouse}: no warehouse, because the folder has no warehouse.json; ")
    assert sorted(tmp_path.rglob("*")) == [warehouse, warehouse / "notes.txt"]


@pytest.mark.parametrize(
    "command", [["import", "--samples"], ["import", "--samples", "--dry-run"], ["serve", "--port", "0"], ["mirror", "http://127.0.0.1:1"]]
)  # fmt: skip
def test_no_warehouse_is_made_among_other_files(warehouse: Path, invoke: Invoke, command: list[str]) -> None:
    """A folder named by mistake. Nothing is written into it."""
    warehouse.mkdir()
    write_files(warehouse, {"txs.csv": "", "a.txt": "a()\n"})
    done = invoke(*command)
    assert (done.status, done.stderr.count("\n")) == (2, 1)
    assert (
        f"{warehouse}: no warehouse, and none is made here, because the folder has other files: 'a.txt', 'txs.csv';"
        in done.stderr
    )
    assert sorted(file.name for file in warehouse.iterdir()) == ["a.txt", "txs.csv"]


def test_a_warehouse_is_made_on_an_empty_disk_and_beside_a_suppress_list(warehouse: Path, invoke: Invoke) -> None:
    """A new file system has ``lost+found``; the operator's list and hidden files may be there first. It is said once."""
    (warehouse / "lost+found").mkdir(parents=True)
    write_files(warehouse, {".gitkeep": "", "suppressed.txt": "insult()\n"})
    assert "new warehouse" not in invoke("import", "--samples", "--dry-run").stderr
    assert f"new warehouse at {warehouse}\n" in invoke("import", "--samples").stderr
    assert "new warehouse" not in invoke("import", "--samples").stderr


def test_looking_at_an_empty_warehouse(warehouse: Path, invoke: Invoke) -> None:
    """A warehouse without rows is read as such, and every format can write a result without rows."""
    empty_warehouse(warehouse)
    assert b"nothing imported yet" in invoke("stats").stdout
    done = invoke("sql", "--format", "csv", "SELECT count(*) n FROM signatures, event_signatures, imports, rejects")
    assert done.stdout == b"n\n0\n"
    for format, expected in {"csv": b"id\n", "json": b"[]\n", "ndjson": b"", "table": None}.items():
        done = invoke("sql", "--format", format, "SELECT id FROM signatures")
        assert (done.status, done.stderr) == (0, "")
        assert expected in (None, done.stdout)


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
    "sum": ("(SELECT sum(id) FROM signatures)", 1, "1"),
    "date": ("DATE '2020-01-31'", "2020-01-31", "2020-01-31"),
    "local": ("TIMESTAMP '2020-01-31 09:05:07'", "2020-01-31T09:05:07.000000", "2020-01-31T09:05:07.000000"),
    "list": ("['a', NULL]", ["a", None], '["a",null]'),
    "struct": ("{'h': unhex('ff'), 't': TIMESTAMPTZ '2020-01-31 09:05:07Z'}",
               {"h": "0xff", "t": "2020-01-31T09:05:07.000000Z"}, '{"h":"0xff","t":"2020-01-31T09:05:07.000000Z"}'),
    "quoted": ("'a,\"b\"' || chr(10)", 'a,"b"\n', 'a,"b"\n'),
}  # fmt: skip


def test_sql_writes_values_of_any_type(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
    """As JSON and as CSV, bytes as hex and times with six digits and Z; Parquet has the types of the query."""
    import_files(write_files(tmp_path, {"a.txt": "transfer(address,uint256)\n"}), warehouse)
    opened = sigdir.open(warehouse)
    [(created_at,)] = opened.sql("SELECT created_at FROM signatures").rows()
    moment = created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    columns = ", ".join(f'{expression} AS "{name}"' for name, (expression, _, _) in VALUES.items())
    query = f"SELECT {columns} FROM signatures"
    [line] = invoke("sql", "--format", "ndjson", query).stdout.splitlines()
    [row] = json.loads(invoke("sql", "--format", "json", query).stdout)
    [fields] = csv.DictReader(io.StringIO(invoke("sql", "--format", "csv", query).stdout.decode(), newline=""))
    assert json.loads(line) == row
    assert row.pop("created_at") == fields.pop("created_at") == moment
    for name in row:
        _, as_json, as_csv = VALUES[name]
        assert str(row[name]) == str(as_json), name  # JSON readers differ on numbers over 64 bits
        assert fields[name] in (as_csv, str(as_json)), name
    table = pq.read_table(io.BytesIO(invoke("sql", "--format", "parquet", query).stdout))
    assert table.to_pylist() == opened.sql(query).arrow().to_pylist()
    assert (table.schema.field("created_at").type, table.schema.field("bytes").type) == (
        pa.timestamp("us", tz="UTC"), pa.binary(),
    )  # fmt: skip
    none = invoke("sql", "--format", "parquet", f"{query} WHERE false")
    assert pq.read_table(io.BytesIO(none.stdout)).num_rows == 0
    assert "transfer(address,uint256)" in invoke("sql", "SELECT text_signature FROM signatures").stdout.decode()


NO_JSON = """SELECT 'nan'::DOUBLE n, {'a': '-inf'::DOUBLE} s, 170141183460469231731687303715884105727::HUGEINT h,
    12345678901234567890.123::DECIMAL(38,3) d, INTERVAL '1 month 3 days 1.5 seconds' i, [INTERVAL 1 DAY] li"""


def test_sql_writes_what_json_and_parquet_do_not_have(two_imports: list[Path], invoke: Invoke) -> None:
    """No number is null beside an integer of over 64 bits too, a long decimal loses no digit, and Parquet refuses in a line."""
    for format in ("json", "ndjson"):
        line = invoke("sql", "--format", format, NO_JSON).stdout.decode().strip("[]\n")
        row = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert row == {
            "n": None, "s": {"a": None}, "h": 2**127 - 1, "d": "12345678901234567890.123", "i": "P1M3DT1.5S",
            "li": ["P0M1DT0S"],
        }  # fmt: skip
    assert b",12345678901234567890.123,P1M3DT1.5S," in invoke("sql", "--format", "csv", NO_JSON).stdout
    refused = invoke("sql", "--format", "parquet", NO_JSON)
    assert (refused.status, refused.stderr.count("\n"), "CAST" in refused.stderr) == (2, 1, True), refused.stderr


def test_sql_keeps_columns_of_the_same_name(two_imports: list[Path], invoke: Invoke) -> None:
    """A join keeps both columns that are called id."""
    query = "SELECT s.id, e.id FROM signatures s, event_signatures e WHERE s.id = 2"
    for format in ("csv", "json", "ndjson"):
        done = invoke("sql", "--format", format, query)
        assert done.status == 0
        assert re.findall(r"\b[12]\b", done.stdout.decode()) == ["2", "1"], format


# What SQL may not do.


# Bad input.


_RANDOM = random.Random(1)
_LINES = "".join(f"f{_RANDOM.getrandbits(64):x}(uint256)\n" for _ in range(20_000)).encode()


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
    ("trailing.txt.zst", zstd.compress(b"a()\n") + b"rubbish", ["unpacked: "]),
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


def test_broken_files_do_not_stop_a_folder(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
    """A broken file of a folder is a fault with its reason and status 1; the files beside it are imported."""
    good = {f"{name}.good.txt": f"f{number}()\n" for number, (name, _, _) in enumerate(FAULTY)}
    write_files(tmp_path / "in", good | {name: content for name, content, _ in FAULTY})
    status, out, err = invoke("import", "--quiet", "--json", tmp_path / "in")
    report = json.loads(out)
    assert (status, err) == (1, "")
    assert {f"f{number}()" for number in range(len(FAULTY))} <= set(texts(warehouse))
    assert report["totals"]["read"] == sum(report["totals"][name] for name in ("imported", "duplicate", "rejected"))
    reasons = {Path(fault["path"]).name: fault["reason"] for fault in report["faults"]}
    assert reasons.keys() == {name for name, _, _ in FAULTY}
    assert [name for name, _, parts in FAULTY if not all(part in reasons[name] for part in parts)] == []
    partly = {Path(file["path"]).name: file["fault"] for file in report["files"] if file["fault"]}
    assert partly.items() <= reasons.items()
    [entry] = sigdir.open(warehouse).history()
    assert entry["faults"] == report["faults"]
    in_history = json.loads(invoke("history", "--json").stdout)
    assert in_history[0]["faults"] == report["faults"]
    rows = {row["path"]: row["fault"] for row in json.loads(invoke("history", "--sources", "--json").stdout)}
    assert {path: fault for path, fault in rows.items() if fault} == {
        one["path"]: one["reason"] for one in report["faults"]
    }
    assert rows.keys() >= {file["path"] for file in report["files"]}
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


def test_lines_for_a_pipe_are_not_wrapped(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
    """However long a name is; a grep finds the command to run next."""
    [file] = write_files(tmp_path, {f"{'long' * 5}.txt": f"a()\n{'b' * 120}(uint7)\n"})
    lines = invoke("import", file).stdout.decode().splitlines()
    assert lines[-1].endswith("; 1 sighting; version 1 published; rejects: sigdir rejects --import 1")
    assert f"{'b' * 120}(uint7)" in lines[-2]


def test_a_file_with_everything_rejected_is_named(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
    """If every candidate of a file was rejected, the summary names the file and the status is 1. -q says no more."""
    bad, good = write_files(tmp_path, {"bad.txt": "a(uint7)\nb(uint7)\n", "good.txt": "a()\nb(uint7)\n"})
    status, out, _ = invoke("import", bad, good)
    assert status == 1
    assert f"Everything was rejected of 1 file: {bad}\n" in out.decode()
    assert invoke("import", "-q", good) == (0, b"", "")
    assert invoke("import", "-q", bad) == (1, b"", f"Everything was rejected of 1 file: {bad}\n")
    [library] = write_files(tmp_path, {"L.sol": "library L { struct S { uint a; } function f(S memory s) public {} }"})
    assert invoke("import", "--quiet", library).status == 0  # rejected, as every text with a library type is


def test_columns_that_the_command_names(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
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


def _command_failures(folder: Path) -> Iterator[tuple[list[str], str]]:
    by_name = {name: content for name, content, _ in BAD_INPUTS}
    for name, part in ONE_OF_EACH.items():
        [path] = write_files(folder, {name: by_name[name]})
        yield [str(path)], f"{path}: {part}"
    yield [str(folder / "missing.txt")], f"{folder}/missing.txt: no such file or folder"
    [good] = write_files(folder / "known", {"a.txt": "a()\n"})
    yield [str(good), str(folder / "missing")], f"{folder}/missing: no such file or folder"
    yield (
        ["--format", "nonsense", str(good)],
        "nonsense: no such format; the formats are tree, solidity, vyper, sqlite, parquet, deployments",
    )
    write_files(folder / "unknown", {"a.bin": "\0", "b/README.md": "x"})
    yield (
        [str(folder / "unknown")],
        f"{folder}/unknown: no file of a known format (skipped: 1 of no known format, 1 not signatures, by their names)",
    )
    bad, _ = write_files(folder / "broken", {"a.json": "[1,", "b.json": "["})
    yield (
        [str(folder / "broken")],
        f"{folder}/broken: no file can be read (2 tried); the first: {bad}: line 1 column 4: ",
    )
    _, bad = write_files(folder / "strict", {"a.txt": "a()\n", "b.json": '{"a": 1'})
    yield ["--strict", str(folder / "strict")], f"{bad}: line 1 column 8: broken JSON"
    yield ["--memory-limit", "banana", str(bad)], "memory limit 'banana': "
    (folder / "self.txt").symlink_to("self.txt")
    yield [str(folder / "self.txt")], "self.txt: no such file or folder"
    (folder / "empty").mkdir()
    yield [str(folder / "empty")], f"{folder}/empty: "
    write_files(folder / "hidden", {".a.txt": "a()\n"})
    yield [str(folder / "hidden")], f"{folder}/hidden: "
    yield ["--warehouse", str(good / "x"), str(good)], str(good)


def test_failing_commands(tmp_path: Path, warehouse: Path, invoke: Invoke) -> None:
    """Each failure is one line on standard error and status 2; nothing else is printed."""
    wrong = []
    for arguments, message in _command_failures(tmp_path / "in"):
        status, out, err = invoke("import", "--quiet", *arguments)
        one_line = err.startswith("Error: ") and message in err and len(err.splitlines()) == 1
        if not (one_line and status == 2 and out == b"" and nothing_left(warehouse)):
            wrong.append((arguments, status, err[-300:], out[-200:]))
    assert wrong == []


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


def _restore_interrupts() -> None:
    """A shell that runs the tests in the background makes them and their children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupted_import(warehouse: Path) -> None:
    """Ctrl-C ends an import with status 130, also while it waits for input; nothing remains."""
    command = [*command_line(), "import", "-"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(warehouse), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, preexec_fn=_restore_interrupts,  # noqa: PLW1509 - one call, and no lock is taken
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stderr.readline() == f"new warehouse at {warehouse}\n".encode()
        assert process.stderr.readline() == b"read ...\n"
        process.stdin.write(b"".join(b"f%d(uint256)\n" % number for number in range(300_000)))
        process.stdin.flush()  # more than one block was read
        process.send_signal(signal.SIGINT)
        try:
            status = process.wait(SAFETY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("the command hangs after the signal")
        last = process.stderr.read().splitlines()[-1:]  # after progress, if slow
        with contextlib.suppress(OSError):
            process.stdin.close()
    assert (status, last) == (130, [b"interrupted: nothing was published"])
    assert nothing_left(warehouse)
