"""Exports: each format is read by another library, and imported again without a difference."""

from __future__ import annotations

import csv
import gzip
import json
import os
import stat
import tarfile
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from backports import zstd

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.standards import canonical
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, empty_warehouse, environment, import_files, import_lines
from tests.pipeline.support import CommandResult, invoke, keccak256
from tests.processes import Command
from tests.warehouse.support import stage

MADE, EVENTS = 1_100, 500
"""Functions beside the named ones, and events; pieces are cut to 300."""

# Two pairs of one selector each. The text of the standard is the younger one of the first pair, the older of the second.
OLDER = ["many_msg_babbage(bytes1)", "burn(uint256)"]
YOUNGER = ["transfer(address,uint256)", "collate_propagate_storage(bytes16)"]


class Row(NamedTuple):
    id: int
    created_at: str
    text: str
    hex: str


@cache
def rows_of(warehouse: Path, collection: Collection, version: int | None = None) -> list[Row]:
    """All rows in id order, by SQL."""
    query = (
        "SELECT id, strftime(created_at, '%Y-%m-%dT%H:%M:%S.%fZ'), text_signature, hex_signature"
        f" FROM {collection.view_name} ORDER BY id"
    )
    return [Row(*row) for row in sigdir.open(warehouse, version).sql(query).rows()]


def first_texts(rows: list[Row]) -> dict[str, str]:
    """Hash to text, the standard's or else the oldest of each, in the order of ids."""
    found: dict[str, Row] = {}
    for row in rows:
        is_standard = canonical().get(bytes.fromhex(row.hex[2:])) == row.text
        found[row.hex] = row if is_standard else found.get(row.hex, row)
    return {row.hex: row.text for row in sorted(found.values())}


def grouped(rows: list[Row]) -> dict[str, str]:
    """The content of a tree's files by name; the text of a standard comes first."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.hex[2:], []).append(row.text)
    first = canonical()
    return {
        name: ";".join(sorted(texts, key=lambda text: first.get(bytes.fromhex(name)) != text))
        for name, texts in found.items()
    }


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions, several files a collection: shared selectors, a long text, tuples, all kinds of hashes."""
    folder = tmp_path_factory.mktemp("export")
    first, second = folder / "1.txt", folder / "2.txt"
    plain = [f"made{number}(uint256,bytes32)" for number in range(MADE)]
    long = f"long({','.join(['(address,uint256)'] * 40)})"
    first.write_text("\n".join([*OLDER, *plain, long, "f((uint256,bool)[3],$a())"]))
    second.write_text("\n".join([*YOUNGER, *(f"event Made{n}(address,bytes)" for n in range(EVENTS))]))
    import_files([first], folder / "warehouse")
    import_files([second], folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sigdir.warehouse.table.parquet._PIECE_ROWS", 300)


def run(warehouse: Path, *arguments: str | Path) -> CommandResult:
    return invoke(warehouse, "export", "--quiet", *arguments)


def export(warehouse: Path, format: str, target: Path, *more: str) -> dict[str, Any]:
    """The report of an export that goes well."""
    done = run(warehouse, format, target, "--json", *more)
    assert done.status == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["bytes"] == sum(path.stat().st_size for path in [target, *target.rglob("*")] if path.is_file())
    return report


def again(target: Path, collection: Collection = SIGNATURES) -> Path:
    """The warehouse that an import of an export makes."""
    report = import_files([target], target.with_name("again"), collection=collection)
    assert report.total("rejected") == 0
    return target.with_name("again")


def pairs(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row.text, row.hex) for row in rows]


# Exports as other tools read them, and as an import does.


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_geths_object_has_one_text_of_each_hash(warehouse: Path, tmp_path: Path, collection: Collection) -> None:
    """And says how many texts it leaves out."""
    report = export(warehouse, "4byte.json", tmp_path / "4byte.json", "--collection", collection)
    written = json.loads((tmp_path / "4byte.json").read_bytes())
    rows = rows_of(warehouse, collection)
    assert list(written.items()) == [(hex[2:], text) for hex, text in first_texts(rows).items()]
    assert report["rows"] == dict.fromkeys(COLLECTIONS, 0) | {collection: len(written)}
    assert report["left_out"][collection] == len(rows) - len(written)
    assert (len(rows) > len(written) + 1) == (collection == SIGNATURES)
    assert first_texts(rows_of(again(tmp_path / "4byte.json", collection), collection)) == first_texts(rows)


def moment(value: datetime) -> str:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def records(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows of our Parquet as rows, and their columns."""
    assert set(rows[0]) == {"id", "created_at", "text_signature", "hash", "import_id"}
    return [Row(r["id"], moment(r["created_at"]), r["text_signature"], f"0x{r['hash'].hex()}") for r in rows]


BY_ROW: dict[str, tuple[Callable[[Path], list[Any]], Callable[[Row], Any]]] = {
    "openchain": (lambda path: path.read_text().splitlines(), lambda row: f"{row.hex},{row.text}"),
    "csv": (
        lambda path: list(csv.DictReader(path.read_text().splitlines())),
        lambda row: {
            "text_signature": row.text, "hex_signature": row.hex, "created_at": row.created_at, "id": str(row.id),
        },
    ),
    "ndjson": (
        lambda path: [json.loads(line) for line in path.read_bytes().splitlines()],
        lambda row: {
            "id": row.id, "created_at": row.created_at, "text_signature": row.text, "hex_signature": row.hex,
            "bytes_signature": bytes.fromhex(row.hex[2:]).decode("latin-1"),
        },
    ),
    "parquet": (lambda path: records(pq.read_table(path).to_pylist()), lambda row: row),
}  # fmt: skip
"""How another program reads a format, and what it finds for a row."""


@pytest.mark.parametrize("format", BY_ROW)
def test_formats_with_all_rows(warehouse: Path, tmp_path: Path, format: str) -> None:
    """Each row of both collections, in the order of the ids."""
    report = export(warehouse, format, tmp_path / "all")
    read, found_for = BY_ROW[format]
    of_both = {collection: rows_of(warehouse, collection) for collection in COLLECTIONS}
    assert read(tmp_path / "all") == [found_for(row) for rows in of_both.values() for row in rows]
    assert report["rows"] == {collection: len(rows) for collection, rows in of_both.items()}
    assert not any(report["left_out"].values())
    copy = again(tmp_path / "all")
    for collection, rows in of_both.items():
        assert pairs(rows_of(copy, collection)) == pairs(rows)


def test_foundrys_cache(warehouse: Path, tmp_path: Path) -> None:
    """Foundry needs all three objects with 0x keys, of events alone too; a selector is a function's and an error's."""
    report = export(warehouse, "foundry", tmp_path / "signatures")
    written = json.loads((tmp_path / "signatures").read_bytes())
    functions = first_texts(rows_of(warehouse, SIGNATURES))
    assert list(written) == ["functions", "errors", "events"]
    assert list(written["functions"].items()) == list(functions.items())
    assert written["errors"] == written["functions"]
    assert written["events"] == first_texts(rows_of(warehouse, EVENT_SIGNATURES))
    assert report["rows"] == {SIGNATURES: len(functions), EVENT_SIGNATURES: EVENTS}
    assert first_texts(rows_of(again(tmp_path / "signatures"), SIGNATURES)) == functions
    assert first_texts(rows_of(tmp_path / "again", EVENT_SIGNATURES)) == written["events"]
    export(warehouse, "foundry", tmp_path / "events", "--collection", EVENT_SIGNATURES)
    written = json.loads((tmp_path / "events").read_bytes())
    assert (written["functions"], written["errors"], len(written["events"])) == ({}, {}, EVENTS)


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_parquet_with_sourcifys_columns(warehouse: Path, tmp_path: Path, collection: Collection) -> None:
    """In Sourcify's types; an event's too has four bytes."""
    more = ["--collection", collection] if collection != SIGNATURES else []
    export(warehouse, "parquet", tmp_path / "s.parquet", "--columns", "sourcify", *more)
    written = pq.read_table(tmp_path / "s.parquet")
    rows = rows_of(warehouse, collection)
    assert {field.name: str(field.type) for field in written.schema} == {
        "signature_hash_32": "binary", "signature_hash_4": "binary", "signature": "string",
        "created_at": "timestamp[ns]",
    }  # fmt: skip
    assert written["signature"].to_pylist() == [row.text for row in rows]
    digests = [keccak256(row.text) for row in rows]
    assert written["signature_hash_32"].to_pylist() == digests
    assert written["signature_hash_4"].to_pylist() == [value[:4] for value in digests]
    expected = [int(datetime.fromisoformat(row.created_at).timestamp()) for row in rows]
    assert [value // 10**9 for value in written["created_at"].cast("int64").to_pylist()] == expected
    assert pairs(rows_of(again(tmp_path / "s.parquet", collection), collection)) == pairs(rows)


def of_folder(target: Path) -> dict[str, bytes]:
    assert [path.name for path in target.iterdir()] == ["signatures"]
    return {path.name: path.read_bytes() for path in (target / "signatures").iterdir()}


def of_tar(target: Path) -> dict[str, bytes]:
    with tarfile.open(target) as tar:
        found = {}
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            folder, _, name = member.name.partition("/")
            assert (folder, stat.S_IMODE(member.mode)) == ("signatures", 0o644)
            found[name] = content.read()
        return found


@pytest.mark.parametrize(
    ("name", "format", "collection"),
    [("tree", "topic0", EVENT_SIGNATURES), ("t.tar", "4bytes", SIGNATURES), ("t.tar.gz", "topic0", EVENT_SIGNATURES)],
)
def test_trees(warehouse: Path, tmp_path: Path, name: str, format: str, collection: Collection) -> None:
    """A file a hash with all its texts, in a folder or a tar."""
    report = export(warehouse, format, tmp_path / name)
    written = (of_folder if name == "tree" else of_tar)(tmp_path / name)
    assert {name: content.decode() for name, content in written.items()} == grouped(rows_of(warehouse, collection))
    assert report["files"] == len(written)
    assert report["rows"][collection] == len(rows_of(warehouse, collection))
    assert grouped(rows_of(again(tmp_path / name), collection)) == grouped(rows_of(warehouse, collection))


def test_an_empty_warehouse(tmp_path: Path) -> None:
    """Each format has a file without rows."""
    empty = empty_warehouse(tmp_path / "none")
    for format, expected in {
        "4byte.json": b"{\n}\n", "openchain": b"", "ndjson": b"",
        "csv": b"text_signature,hex_signature,created_at,id\n",
        "foundry": b'{"functions":{},"errors":{},"events":{}}',
    }.items():  # fmt: skip
        assert run(empty, format, "-")[:2] == (0, expected)
    for columns in ("ours", "sourcify"):
        export(empty, "parquet", tmp_path / columns, "--columns", columns)
        assert pq.read_table(tmp_path / columns).num_rows == 0
    export(empty, "4bytes", tmp_path / "tree")
    export(empty, "4bytes", tmp_path / "tree.tar")
    assert of_folder(tmp_path / "tree") == of_tar(tmp_path / "tree.tar") == {}


# Versions, targets, errors.


def test_an_older_version_is_exported_as_it_was(warehouse: Path, tmp_path: Path) -> None:
    """Without the texts that came after it."""
    report = export(warehouse, "openchain", tmp_path / "old", "--as-of", "1")
    assert report["version"] == 1
    expected = [f"{row.hex},{row.text}\n" for row in rows_of(warehouse, SIGNATURES, 1)]
    assert (tmp_path / "old").read_text() == "".join(expected)
    assert len(expected) == len(rows_of(warehouse, SIGNATURES)) - len(YOUNGER)


def test_posted_rows_come_once_they_are_folded(tmp_path: Path) -> None:
    """At the place that the fold gave them."""
    warehouse = import_lines(tmp_path / "warehouse", "a()", "b()")
    stage(Paths(warehouse), SIGNATURES, "posted()")
    assert b"posted" not in run(warehouse, "openchain", "-").stdout
    fold(Paths(warehouse))
    import_lines(warehouse, "c()")
    texts = [line.partition(b",")[2] for line in run(warehouse, "openchain", "-").stdout.splitlines()]
    assert texts == [b"a()", b"b()", b"posted()", b"c()"]


def test_standard_output_has_what_a_file_has(warehouse: Path, tmp_path: Path) -> None:
    """The report goes to standard error. A file is packed by its ending, to the same bytes each time."""
    for format in ("csv", "topic0", "parquet"):
        target = tmp_path / f"{format}.tar"
        export(warehouse, format, target)
        done = run(warehouse, format, "-", "--json")
        assert done.stdout == target.read_bytes()
        report = json.loads(done.stderr)
        assert (report["target"], report["bytes"]) == ("standard output", None)
    for ending, unpack in ((".gz", gzip.decompress), (".zst", zstd.decompress)):
        one, two = tmp_path / f"one{ending}", tmp_path / f"two{ending}"
        export(warehouse, "csv", one)
        export(warehouse, "csv", two)
        assert unpack(one.read_bytes()) == (tmp_path / "csv.tar").read_bytes()
        assert one.read_bytes() == two.read_bytes()


def test_an_export_that_fails_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    """Where a later file of the warehouse is cut short."""
    for number in range(2):
        import_lines(tmp_path / "damaged", f"f{number}()")
    file = max((tmp_path / "damaged" / "table" / f"collection={SIGNATURES}").iterdir())
    file.write_bytes(file.read_bytes()[:-20])
    (tmp_path / "out").mkdir()
    for format in ("4bytes", "csv", "parquet", "4byte.json"):
        if format != "4bytes":
            (tmp_path / "out" / "target").write_text("what was there")
        before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*")}
        done = run(tmp_path / "damaged", format, tmp_path / "out" / "target")
        assert (done.status, done.stderr[:7], done.stderr.count("\n")) == (2, "Error: ", 1)
        assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*")} == before


def test_a_link_stays_a_link_and_a_pipe_a_pipe(warehouse: Path, tmp_path: Path) -> None:
    """What they lead to has the rows. A reader that closes the pipe early is no error."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert run(warehouse, "openchain", tmp_path / "link").status == 0
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(pipe := tmp_path / "pipe")
    for format, target, stdout in (("openchain", str(pipe), tmp_path / "out"), ("ndjson", "-", pipe)):
        command = ["export", "--quiet", format, target]
        process = Command(command, ROOT, environment(warehouse), stdout, tmp_path / "error")
        with pipe.open() as rows:
            read = rows.read() if format == "openchain" else rows.readline()
        assert process.wait(SAFETY_SECONDS) == 0
        assert (tmp_path / "error").read_text() == ""
        assert read == (tmp_path / "real").read_text() or read.startswith('{"id":1,')
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_errors_are_one_line(warehouse: Path, tmp_path: Path) -> None:
    """They say what cannot be written where, and nothing is."""
    (full := tmp_path / "full").mkdir()
    (full / "file").touch()
    wrong: list[tuple[list[str | Path], str]] = [
        (["4bytes", full], "exists already; name a new folder"), (["csv", full], "is a folder"),
        (["csv", tmp_path / "none/a.csv"], "/none: No such file or directory"),
        (["topic0", tmp_path / "t", "--collection", "signatures"], "topic0: cannot hold signatures"),
        (["csv", tmp_path / "t", "--columns", "sourcify"], "--columns sourcify is for parquet"),
        (["csv", tmp_path / "t", "--as-of", "77"], "has no version 77"),
    ]  # fmt: skip
    for arguments, message in wrong:
        done = run(warehouse, *arguments)
        assert (done.status, done.stderr.count("\n"), message in done.stderr) == (2, 1, True), done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_the_name_of_an_object_is_unquoted(warehouse: Path, tmp_path: Path) -> None:
    """An import of the URL finds what an export to it wrote."""
    url = f"file://{tmp_path}/my%20rows.csv"
    assert run(warehouse, "csv", url, "--collection", "signatures").status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["my rows.csv"]
    assert import_files([url], empty_warehouse(tmp_path / "again")).total("read") > 0


def test_the_report_for_people(warehouse: Path, tmp_path: Path) -> None:
    """It counts what is left out, and says how to export one collection."""
    out = run(warehouse, "4byte.json", tmp_path / "out.json").stdout.decode()
    rows = rows_of(warehouse, SIGNATURES)
    kept = len(first_texts(rows))
    assert f"signatures: {kept:,} rows, {len(rows) - kept} left out: another text of the selector is exported" in out
    assert "--collection" not in out
    assert f"{kept:,} rows of version 2 in " in out
    assert str(tmp_path / "out.json") in out
    both = run(warehouse, "csv", tmp_path / "out.csv").stdout.decode().splitlines()[-1]
    assert both == "both collections, and an id is unique in its collection only; --collection NAME exports one"
