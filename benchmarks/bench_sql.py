"""Analytics over 10 M rows, beside the same SQL on the bare Parquet files.

What is timed is a query of an opened warehouse. Opening it compares the files' sha256 with what was
written, once: 0.1 s for 10 M rows, which is no part of a query, and the bare files are not asked for it.
"""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import pyarrow as pa

import sigdir
from benchmarks import corpus
from benchmarks.measure import Figure, beside
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
# Each question as the views and macros have it, and as one would write it for the files.
_QUESTIONS = {
    "group {rows:,} parameter lists": (_LISTS, _LISTS_OF_FILES),
    "collision report of {rows:,} rows": (_COLLISIONS, _COLLISIONS_OF_FILES),
}


def figures(rows: int, rounds: int) -> list[Figure]:
    """Within 1.2 of the bare files, for the same answer; one engine each, with the same memory and threads."""
    house = sigdir.open(_filled(rows))
    engine = connect(house.paths, "1GB", 2)
    source = read_parquet(house.snapshot.parquet_files(SIGNATURES))
    found = []
    for name, (ours, theirs) in _QUESTIONS.items():
        query = theirs.format(files=source)
        answer = house.sql(ours).arrow()
        assert answer.equals(engine.sql(query).to_arrow_table().cast(answer.schema)), name
        assert answer.num_rows, name
        found.append(_measured(name.format(rows=house.count(SIGNATURES)), house, ours, engine, query, rounds))
    engine.close()
    return found


def _filled(rows: int) -> Path:
    """A warehouse of that many lines, made once."""
    folder = corpus.CACHE / f"asked-{rows}"
    if not (folder / "table").is_dir():
        run_sigdir("import", str(corpus.lines(rows)), "--warehouse", str(folder), "--quiet")
    return folder


def _measured(
    name: str, house: Warehouse, ours: str, engine: duckdb.DuckDBPyConnection, theirs: str, rounds: int
) -> Figure:
    def bare() -> float:
        began = time.perf_counter()
        table: pa.Table = engine.sql(theirs).to_arrow_table()
        assert table.num_rows
        return time.perf_counter() - began

    def asked(number: int) -> float:
        began = time.perf_counter()
        house.sql(ours).arrow()
        return time.perf_counter() - began

    return beside(f"{name}, beside the bare files", asked, bare, 1.2, max(rounds, 5))
