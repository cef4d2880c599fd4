"""A second machine's steps: mirror a directory, export the copy in every shape, import each into a new one.

``python -m tests.second_machine [WAREHOUSE]`` takes the given warehouse, or all of the real corpora; the suite
takes the samples. Every row is compared with the first warehouse's: texts and hashes in the order of the ids
(as a set for the trees of files, which are ordered by name), ids and times if the shape has them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

import sigdir
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from tests.conftest import ROOT, command_line, environment
from tests.serve.support import HOST, serving

CORPORA = ROOT.parent / "shared" / "corpora"

_ROWS = "SELECT text_signature, hash FROM {view} ORDER BY id"
_OLDEST = (
    "SELECT text_signature, hash FROM {view} QUALIFY row_number() OVER (PARTITION BY hash ORDER BY id) = 1 ORDER BY id"
)
_SORTED = "SELECT text_signature, hash FROM {view} ORDER BY ALL"
_WHOLE = "SELECT id, created_at, text_signature, hex_signature FROM {view} ORDER BY id"


@dataclass(frozen=True, slots=True)
class Shape:
    """An export: its file, further options, and the query whose rows must come back.

    ``read`` is a query by which DuckDB reads ids and times from the file, if the shape has them.
    """

    format: str
    file: str
    collections: tuple[Collection, ...] = COLLECTIONS
    more: tuple[str, ...] = ()
    query: str = _ROWS
    read: str = ""


_COLUMNS = "id, created_at::TIMESTAMPTZ AS created_at, text_signature, hex_signature"
_PARQUET_COLUMNS = "id, created_at, text_signature, '0x' || lower(hex(hash)) AS hex_signature"
_OF = {SIGNATURES: "length(hex_signature) = 10", EVENT_SIGNATURES: "length(hex_signature) = 66"}

SHAPES = (
    Shape("4byte.json", "4byte.json.gz", (SIGNATURES,), query=_OLDEST),
    Shape("openchain", "lines.txt.zst"),
    Shape("4bytes", "4bytes.tar.zst", (SIGNATURES,), query=_SORTED),
    Shape("topic0", "topic0.tar.zst", (EVENT_SIGNATURES,), query=_SORTED),
    Shape("foundry", "signatures", query=_OLDEST),
    Shape(
        "csv",
        "rows.csv",
        read=f"SELECT {_COLUMNS} FROM read_csv('{{file}}', types = {{{{'hex_signature': 'VARCHAR'}}}})",
    ),
    Shape("ndjson", "rows.ndjson", read=f"SELECT {_COLUMNS} FROM read_json('{{file}}')"),
    Shape("parquet", "rows.parquet", read=f"SELECT {_PARQUET_COLUMNS} FROM '{{file}}'"),
    Shape("parquet", "sourcify.parquet", (SIGNATURES,), ("--columns", "sourcify")),
    Shape("parquet", "topics.parquet", (EVENT_SIGNATURES,), ("--columns", "sourcify")),
)


def run_sigdir(*arguments: str) -> None:
    """Run the command in a subprocess; it must succeed."""
    done = subprocess.run(
        [*command_line(), *arguments], cwd=ROOT, env=environment(ROOT), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def round_trips(warehouse: Path, folder: Path, command: Callable[..., None] = run_sigdir) -> Iterator[str]:
    """Mirror, export and import a warehouse below ``folder``; yields a line per step, raises AssertionError."""

    def timed(*arguments: str | Path) -> float:
        began = time.perf_counter()
        command(*map(str, arguments), "--quiet")
        return time.perf_counter() - began

    copy = folder / "mirror"
    with serving(warehouse, workers=1) as server:
        seconds = timed("mirror", f"http://{HOST}:{server.port}", "--rate", "1000", "--warehouse", copy)
    rows = compare(warehouse, copy, COLLECTIONS, _ROWS)
    yield f"{'mirror':<34}{rows:>10,} rows{seconds:>8.1f} s"
    for shape in SHAPES:
        target, again = folder / shape.file, folder / f"{shape.file}.warehouse"
        only = ["--collection", shape.collections[0]] if len(shape.collections) == 1 else []
        out = timed("export", shape.format, target, *shape.more, *only, "--warehouse", copy)
        back = timed("import", target, *only, "--warehouse", again)
        rows = compare(warehouse, again, shape.collections, shape.query)
        if shape.read:
            check_ids_and_times(copy, target, shape)
        name = " ".join((shape.format, *shape.more[1:], *shape.collections[: 1 if only else 0]))
        yield f"{name:<34}{rows:>10,} rows{out:>8.1f} s out{back:>8.1f} s back"


def compare(warehouse: Path, other: Path, collections: tuple[Collection, ...], query: str) -> int:
    """The number of rows, which must be the same in both; left-out collections must be empty."""
    first, second = sigdir.open(warehouse), sigdir.open(other)
    rows = 0
    for collection in COLLECTIONS:
        if collection not in collections:
            assert second.count(collection) == 0
            continue
        wanted = first.sql(query.format(view=collection.view_name)).arrow()
        order = _SORTED if query == _SORTED else _ROWS
        found = second.sql(order.format(view=collection.view_name)).arrow()
        assert found.equals(wanted), f"{other}: {collection} differ: {found.num_rows} rows, {wanted.num_rows} wanted"
        rows += found.num_rows
    return rows


def check_ids_and_times(copy: Path, file: Path, shape: Shape) -> None:
    """Assert that DuckDB reads the table's ids and times from an exported file."""
    read = shape.read.format(file=str(file).replace("'", "''"))
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for collection in shape.collections:
        wanted = sigdir.open(copy).sql(_WHOLE.format(view=collection.view_name)).arrow()
        found = connection.sql(f"FROM ({read}) WHERE {_OF[collection]} ORDER BY id").to_arrow_table()
        assert found.cast(wanted.schema).equals(wanted), f"{file}: {collection}: ids or times differ"


def main() -> None:
    """Try a warehouse, or the real corpora, in a temporary folder and print how long each step took."""
    with tempfile.TemporaryDirectory(prefix="sigdir-second-machine-") as name:
        folder = Path(name)
        warehouse = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "warehouse"
        if len(sys.argv) < 2:
            run_sigdir("import", str(CORPORA), "--warehouse", str(warehouse), "--quiet")
        for line in round_trips(warehouse, folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
