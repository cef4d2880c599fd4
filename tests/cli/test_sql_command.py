"""The command `sigdir sql`: parameters, files to read and to write, statements on standard input, errors."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest
from backports import zstd

import sigdir
from sigdir.cli.main import main
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, environment, import_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse of the bundled sample, read only."""
    found = tmp_path_factory.mktemp("sql") / "warehouse"
    import_files(["samples"], found)
    return found


def run_sql(folder: Path, *arguments: str | Path, stdin: str | bytes | None = None) -> click.testing.Result:
    """``sigdir sql`` in this process."""
    words = ["sql", "--warehouse", str(folder), *map(str, arguments)]
    return click.testing.CliRunner().invoke(main, words, input=stdin)


def rows_of(folder: Path, *arguments: str | Path, stdin: str | None = None) -> list[dict[str, object]]:
    """The rows that ``sigdir sql`` writes."""
    done = run_sql(folder, *arguments, "--format", "ndjson", stdin=stdin)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def error_of(folder: Path, *arguments: str | Path, stdin: str | bytes | None = None) -> str:
    """Standard error of ``sigdir sql`` when it ends with status 2, without a traceback."""
    done = run_sql(folder, *arguments, stdin=stdin)
    assert (type(done.exception), done.exit_code) == (SystemExit, 2), done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_values_are_bound_by_place_or_by_name(folder: Path) -> None:
    """As texts, which become numbers if compared with numbers. What follows the first = is the value."""
    assert rows_of(folder, "SELECT $2 || $1 AS both", "a", "b") == [{"both": "ba"}]
    assert rows_of(folder, "SELECT count(*) AS n FROM signatures WHERE id = ?", "1") == [{"n": 1}]
    found = rows_of(folder, "SELECT $Text AS t, $n::INT + 1 AS n", "--param", "tEXT=a=b", "--param", "n=41")
    assert found == [{"t": "a=b", "n": 42}]


UNPACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.decompress, ".zst": zstd.decompress}


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.json", "rows.ndjson", "rows.parquet", "rows.json.gz", "rows.json.zst"]
)
def test_the_ending_of_output_names_the_format(folder: Path, tmp_path: Path, name: str) -> None:
    """The file has what standard output would have, which stays empty."""
    query = "SELECT id, text_signature FROM signatures ORDER BY id"
    done = run_sql(folder, query, "--output", tmp_path / name)
    assert (done.exit_code, done.output) == (0, "")
    _, format, *packing = name.split(".")
    written = UNPACKED["".join(f".{ending}" for ending in packing)]((tmp_path / name).read_bytes())
    assert written == run_sql(folder, query, "--format", format).stdout_bytes
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_format_is_named_by_its_option(folder: Path, tmp_path: Path) -> None:
    """Where an ending says none; --json is --format json. Without either the command fails before the query runs."""
    query = "SELECT 'a' || chr(13) AS x, 'b' || chr(10) AS y, 'c' AS z"
    assert run_sql(folder, query, "--output", tmp_path / "rows", "--format", "csv").exit_code == 0
    # A lone carriage return is quoted too: programs that read CSV take it for the end of a row.
    assert (tmp_path / "rows").read_bytes() == b'x,y,z\n"a\r","b\n",c\n'
    assert json.loads(run_sql(folder, "SELECT 1 AS a", "--json").stdout) == [{"a": 1}]
    assert "--output" in error_of(folder, "SELECT 1 AS a", "--output", tmp_path / "rows.xlsx")
    assert not (tmp_path / "rows.xlsx").exists()


def test_a_failure_after_the_first_rows_leaves_the_output_as_it_was(folder: Path, tmp_path: Path) -> None:
    (target := tmp_path / "rows.csv").write_text("what was there")
    query = "SELECT CASE WHEN range > 290000 THEN error('boom') ELSE range END AS x FROM range(300000)"
    assert "boom" in error_of(folder, query, "--output", target)
    assert target.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [target]


def test_statements_come_from_standard_input(folder: Path) -> None:
    """They run one after the other, up to the first that fails."""
    script = "SELECT 1 AS a;\n-- a remark; and more\nSELECT ';' AS b\n;"
    assert rows_of(folder, stdin=script) == [{"a": 1}, {"b": ";"}]
    assert rows_of(folder, "SELECT 1 AS a; SELECT 2 AS a") == [{"a": 1}, {"a": 2}]
    assert rows_of(folder, stdin="") == []
    done = run_sql(folder, "--format", "csv", stdin="SELECT 1 AS a; SELECT b; SELECT 3 AS c")
    assert (done.exit_code, done.stdout) == (2, "a\n1\n")
    assert "byte 7" in error_of(folder, stdin=b"SELECT \xff")
    assert "exactly one statement" in error_of(folder, "--output", folder.parent / "x.csv", stdin="")


UNNAMED = {"my-list.v2.txt": "my_list", "signatures.csv": "my_signatures", "7.txt": "my_7"}
"""Files whose names are none in SQL, and the names that are made from theirs."""
NO_TIMES = (
    "'infinity'::TIMESTAMPTZ", "'290000-01-01'::TIMESTAMP", "'99999-01-01'::DATE", "['infinity'::TIMESTAMP]",
)  # fmt: skip
NO_TIME = "until: a time is not within the years 1 to 9999; CAST it to VARCHAR"
ONE_STATEMENT = "parameters, --output and the formats json, parquet and arrow need exactly one statement"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT ?"], "Error: 0 of 1 values: give the values after the query\n"),
        (["SELECT $1, $2", "a"], "Error: 1 of 2 values: give the values after the query\n"),
        (["SELECT ?", "--param", "a=1"], "Error: 0 of 1 values: give the values after the query\n"),
        (["SELECT $a, $b, $c", "--param", "b=1"], "no value for $a, $c: give --param a=VALUE --param c=VALUE\n"),
        *((["SELECT 1", "--file", name], f"write --file {view}={name}") for name, view in UNNAMED.items()),
        *(([f"SELECT {value} AS until", "--json"], NO_TIME) for value in NO_TIMES),
        # The folder that is missing, and not the temporary file that is written first.
        (["SELECT 1", "--output", "nowhere/x.csv"], "/nowhere: No such file"),
        (["SELECT 1", "--output", "list.txt/x.csv"], "/list.txt: Not a directory"),
        (["SELECT 1", "--file", "seen.csv", "--file", "seen=b.csv"], "seen is given twice"),
        (["SELECT $a", "--param", "a=1", "--param", "a=2"], "a is given twice"),
        (["SELECT $a", "--param", "a"], "'a' is not NAME=VALUE"),
        (["SELECT $a", "--param", "=1"], "'=1' is not NAME=VALUE"),
        (["SELECT ?, $b", "1", "--param", "b=2"], "VALUES for ? or --param for $NAME, not both"),
        (["SELECT 1; SELECT ?", "1"], ONE_STATEMENT),
        (["SELECT 1; SELECT 2", "--output", "both.csv"], ONE_STATEMENT),
        *((["SELECT 1; SELECT 2", "--format", format], ONE_STATEMENT) for format in ("json", "parquet", "arrow")),
        (["SELECT 1", "--memory-limit", "much"], "memory limit 'much'"),
        (["SELECT 1", "--as-of", "0001-01-01T00:00+14:00"], "'0001-01-01T00:00+14:00' is neither a version nor a time"),
        (["SELECT 1", "--as-of", "99"], "Error: "),
        (["FROM x", "--file", "x=/"], "Error: "),
        (["SELECT 1", "--as-of", "2020-01-01T08:00Z"], "has no version at 2020-01-01T08:00:00.000Z; the first is of 2"),
        (["CREATE TABLE t AS SELECT 1"], "Error: "),
        (["SELECT 'a\udcff'"], "Error: '\\udcff' at character 10: the query is no UTF-8\n"),
    ],
)
def test_an_error_says_what_is_wrong_and_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").touch()
    assert message in error_of(folder, *arguments)
    assert list(tmp_path.iterdir()) == [tmp_path / "list.txt"]


@pytest.mark.parametrize("name", ["list.txt", "list.csv"])
def test_a_file_that_is_not_utf_8_is_named_with_its_line(folder: Path, tmp_path: Path, name: str) -> None:
    """In one line, without the engine's options: nobody can set them for a file of --file."""
    (file := tmp_path / name).write_bytes(b"text,number\na(),1\nb(\xff),2\n")
    error = error_of(folder, "FROM mine", "--file", f"mine={file}")
    assert (error.count(str(file)), error.count("\n"), "ignore_errors" in error) == (1, 1, False), error
    assert f"{file}: line 3: " in error
    assert "not utf-8" in error


def test_times_keep_their_zone_and_what_is_before_1970(folder: Path) -> None:
    values = "VALUES ('1950-06-07 08:09:10.000011+02'::TIMESTAMPTZ), (NULL), ('9999-12-31 23:59:59+00')"
    query = f"SELECT t, strftime(t AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ') AS text FROM ({values}) AS v(t)"
    assert [row["t"] == row["text"] for row in rows_of(folder, query)] == [True] * 3


def test_ctrl_c_twice_ends_a_query(folder: Path) -> None:
    """The status is 130, with one line, also within one call of a function, which the engine does not interrupt: 100 s."""
    query = "SELECT 1 AS begun; SELECT levenshtein(repeat('ab', 200000), repeat('ba', 200000))"
    with subprocess.Popen(
        [*command_line(), "sql", "--warehouse", str(folder), "--format", "csv", query], cwd=ROOT,
        env=environment(folder) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"begun\n"
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.1)  # two signals at once are one
        assert process.stderr.read() == b"interrupted\n"
        assert process.wait() == 130


def test_ctrl_c_at_the_very_end_says_nothing(folder: Path) -> None:
    """Where a command has ended, and what it held is freed."""
    code = """if True:
        import os, signal, sys, weakref
        from sigdir.cli import main

        class Held: pass

        def ended(prog_name):
            held = Held()
            weakref.finalize(held, os.kill, os.getpid(), signal.SIGINT)
            sys.exit(7)

        main.main = ended
        main.console()"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment(folder), capture_output=True, timeout=SAFETY_SECONDS, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (7, b"")


def test_values_with_0x_stay_text(folder: Path, tmp_path: Path) -> None:
    """Selectors in a CSV file join those of the warehouse, also where most of the column looks like numbers."""
    numbers = "".join(f"{number},1\n" for number in range(30_000))
    (file := tmp_path / "theirs.csv.gz").write_bytes(gzip.compress(f'it\'s "mine",n\n{numbers}0xa9059cbb,2\n'.encode()))
    query = 'SELECT text_signature, n FROM theirs JOIN signatures ON hex_signature = "it\'s ""mine"""'
    found = rows_of(folder, query, "--file", f"theirs={file}")
    assert found == [{"text_signature": "transfer(address,uint256)", "n": 2}]


def test_a_csv_file_of_0x_alone_has_its_header(folder: Path, tmp_path: Path) -> None:
    """Or none, where it has none. A file has its own name in SQL, where that is one."""
    file = tmp_path / "Seen.2024.csv"
    for content in ("selector\n0xa9059cbb\n", "0xa9059cbb\n"):
        file.write_text(content)
        [row] = rows_of(folder, "FROM seen", "--file", file)
        assert row == {"selector" if "selector" in content else "column0": "0xa9059cbb"}


# The table that people see.


def lines(folder: Path, query: str, width: int | None = None) -> list[str]:
    return sigdir.open(folder).sql(query).drawn(width).splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_table_has_names_types_and_rows(folder: Path) -> None:
    """NULL, times in UTC and lists are readable, bytes are left out, and text of others does not control the terminal."""
    query = "SELECT 12 AS id, NULL AS text, TIMESTAMPTZ '2026-11-21 08:05:07Z' AS at, ['bool', 'int8'] AS types"
    drawn = lines(folder, query)
    assert cells(drawn[1]) == ["id", "text", "at", "types"]
    assert cells(drawn[4]) == ["12", "NULL", "2026-11-21 08:05:07+00", "[bool, int8]"]
    assert "bytes" not in lines(folder, "FROM signatures")[1]
    assert cells(lines(folder, "SELECT '\\xa9\\x05'::BLOB AS hash")[1]) == ["hash"]  # there is no other column
    assert cells(lines(folder, "SELECT 'a' || chr(27) || '[2J' || chr(10) || 'b' AS text")[4]) == ["a\\e[2J\\nb"]
    assert cells(lines(folder, "SELECT chr(8238) || 'ecila' AS text")[4]) == ["\\u202eecila"]
    assert "╭─" in lines(folder, "EXPLAIN SELECT 1")[0]  # a drawing of several lines


def test_no_line_is_wider_than_the_terminal(folder: Path) -> None:
    """Long cells are cut, and columns left out; without a terminal nothing is."""
    query = "SELECT id, 'f(' || repeat('uint256,', 20) || 'bool)' AS text, '0xa9059cbb' AS hex FROM signatures"
    for width in (80, 100):
        assert max(map(len, lines(folder, query, width))) <= width
    assert f"f({'uint256,' * 20}bool)" in lines(folder, query)[4]


def test_of_many_rows_the_first_and_the_last_are_shown(folder: Path) -> None:
    """Of 10,000 and more no more are computed, so the last are not known: the first are shown, and a line says so."""
    drawn = lines(folder, "FROM range(100)")
    assert [cells(line)[0] for line in drawn[4:-3]] == [*map(str, range(20)), *"···", *map(str, range(80, 100))]
    assert "100 rows" in drawn[-2]
    assert "9999 rows" in lines(folder, "FROM range(9999)")[-2].replace(",", "")
    for rows in (10_000, 30_000):
        drawn = lines(folder, f"FROM range({rows})")
        assert [cells(line)[0] for line in drawn[4:-2]] == [*map(str, range(20))]
        assert drawn[-1] == "the first 20 of 10,000 rows or more"
