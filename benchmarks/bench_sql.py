"""Analytics over 10 M rows, compared with the same SQL on the bare Parquet files.

The warehouse is opened before the clock starts. Opening compares the files' sha256 with the log once, 0.1 s for
10 M rows; the query on the bare files has no such check.
"""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow as pa

import sigdir
from benchmarks import corpus
from benchmarks.measure import Figure, compared, python
from benchmarks.measure import sigdir as run_sigdir
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.views import read_parquet

_LISTS = """
    SELECT parameter_list(text_signature) AS list, count(*) AS texts
    FROM signatures
    GROUP BY list ORDER BY texts DESC, list LIMIT 100
"""
_LISTS_OF_FILES = """
    SELECT substr(text_signature, strpos(text_signature, '(') + 1,
                  strlen(text_signature) - strpos(text_signature, '(') - 1) AS list, count(*) AS texts
    FROM {files}
    GROUP BY list ORDER BY texts DESC, list LIMIT 100
"""
_COLLISIONS = """
    SELECT hex_signature, texts, text_signatures
    FROM collisions
    ORDER BY texts DESC, hex_signature
"""
_COLLISIONS_OF_FILES = """
    SELECT '0x' || lower(hex(hash)) AS hex_signature, count(*) AS texts,
           list(text_signature ORDER BY id) AS text_signatures
    FROM {files}
    WHERE hash IN (SELECT hash FROM {files} GROUP BY hash HAVING count(*) > 1)
    GROUP BY hash ORDER BY texts DESC, hex_signature
"""
# Each query by our views and macros, and written for the files.
_QUESTIONS = {
    "group {rows:,} parameter lists": (_LISTS, _LISTS_OF_FILES),
    "collision report of {rows:,} rows": (_COLLISIONS, _COLLISIONS_OF_FILES),
}


_RANKED = "import sigdir, sys; table = sigdir.open(sys.argv[1]).sql('FROM ranked').arrow(); assert table.num_rows"


def figures(rows: int, rounds: int, corpora: Path | None) -> list[Figure]:
    """The views over synthetic rows beside the bare files, and the order of all texts of the real corpora."""
    ranked = [] if corpora is None else [_ranked(corpora, rounds)]
    return [*_beside_files(rows, rounds), *ranked]


def _ranked(corpora: Path, rounds: int) -> Figure:
    """All rows and columns of ``ranked`` in a new process, which also loads the engine and checks the files."""
    folder = corpus.CACHE / "real"
    if not (folder / "table").is_dir():
        run_sigdir("import", str(corpora), "--warehouse", str(folder), "--quiet")
    seconds = [python(_RANKED, str(folder)).seconds for _ in range(rounds)]
    best = min(seconds)
    return Figure("ranked over the real corpora, cold", f"{best:.2f} s", "2 s", best / 2, "<= 1x", best <= 2, seconds)


def _beside_files(rows: int, rounds: int) -> list[Figure]:
    """At most 1.2 times the time of the bare files, for the same rows; both engines have the same memory and threads."""
    warehouse = sigdir.open(_filled(rows))
    engine = connect("1GB", 2)
    source = read_parquet(warehouse.snapshot.parquet_files(SIGNATURES))
    found = []
    for name, (ours, theirs) in _QUESTIONS.items():
        query = theirs.format(files=source)
        answer = warehouse.sql(_in_any_order(ours)).arrow()
        assert answer.equals(engine.sql(_in_any_order(query)).to_arrow_table().cast(answer.schema)), name
        assert answer.num_rows, name
        found.append(_measured(name.format(rows=warehouse.count(SIGNATURES)), warehouse, ours, engine, query, rounds))
    engine.close()
    return found


def _in_any_order(query: str) -> str:
    """The query with the texts of each selector in alphabetical order: ours has them by rank, the bare files by id."""
    return query.replace("texts, text_signatures", "texts, list_sort(text_signatures) AS text_signatures").replace(
        "ORDER BY id)", "ORDER BY text_signature)"
    )


def _filled(rows: int) -> Path:
    """A warehouse of this many lines, made once."""
    folder = corpus.CACHE / f"asked-{rows}"
    if not (folder / "table").is_dir():
        run_sigdir("import", str(corpus.lines(rows)), "--warehouse", str(folder), "--quiet")
    return folder


def _measured(
    name: str, warehouse: Warehouse, ours: str, engine: duckdb.DuckDBPyConnection, theirs: str, rounds: int
) -> Figure:
    def bare() -> float:
        began = time.perf_counter()
        table: pa.Table = engine.sql(theirs).to_arrow_table()
        assert table.num_rows
        return time.perf_counter() - began

    def ours_timed(number: int) -> float:
        began = time.perf_counter()
        warehouse.sql(ours).arrow()
        return time.perf_counter() - began

    return compared(f"{name}, beside the bare files", ours_timed, bare, 1.2, max(rounds, 5))
