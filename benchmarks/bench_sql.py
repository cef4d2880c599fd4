"""Analytics over 10 M rows, compared with the same SQL on the bare Parquet files.

The warehouse is opened before the clock starts. Opening compares the files' sha256 with the log once, 0.1 s for
10 M rows; the query on the bare files has no such check.
"""

from __future__ import annotations

import time
from pathlib import Path

import sigdir
from benchmarks.bench_serve import real_warehouse, warehouse_of
from benchmarks.measure import Figure, compared, python
from sigdir.signatures.collections import SIGNATURES
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
_RANKED = "import sigdir, sys; table = sigdir.open(sys.argv[1]).sql('FROM ranked').arrow(); assert table.num_rows"


def figures(rows: int, rounds: int, corpora: Path | None) -> list[Figure]:
    """The views over synthetic rows beside the bare files, and the order of all texts of the real corpora."""
    ranked = [] if corpora is None else [_ranked(corpora, rounds)]
    return [_beside_files(rows, rounds), *ranked]


def _ranked(corpora: Path, rounds: int) -> Figure:
    """All rows and columns of ``ranked`` in a new process, which also loads the engine and checks the files."""
    folder = real_warehouse(corpora)
    seconds = [python(_RANKED, str(folder)).seconds for _ in range(rounds)]
    return Figure("ranked", min(seconds), seconds)


def _beside_files(rows: int, rounds: int) -> Figure:
    """The same rows; both engines have the same memory and threads."""
    warehouse = sigdir.open(warehouse_of(rows))
    engine = connect("1GB", 2)
    query = _LISTS_OF_FILES.format(files=read_parquet(file.path for file in warehouse.snapshot.files[SIGNATURES]))
    answer = warehouse.sql(_LISTS).arrow()
    assert answer.equals(engine.sql(query).to_arrow_table().cast(answer.schema))
    assert answer.num_rows

    def bare() -> float:
        began = time.perf_counter()
        engine.sql(query).to_arrow_table()
        return time.perf_counter() - began

    def ours(number: int) -> float:
        began = time.perf_counter()
        warehouse.sql(_LISTS).arrow()
        return time.perf_counter() - began

    found = compared("group lists", ours, bare, max(rounds, 5))
    engine.close()
    return found
