"""Imports as whole processes, start-up included, compared with DuckDB writing the same file to Parquet.

The reference starts a Python process too. It reads the file, takes DISTINCT lines and writes zstd Parquet with
the same number of threads, but canonicalises, hashes and numbers nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from functools import partial
from pathlib import Path

import sigdir
from benchmarks import corpus
from benchmarks.measure import Figure, Run, compared, python
from benchmarks.measure import sigdir as run_sigdir
from sigdir.signatures.collections import EVENTS
from sigdir.signatures.grammar import normalise
from sigdir.signatures.keccak import keccak256

_SAMPLE = 2_000
_FILES = 50_000

_DUCKDB = """
import sys, duckdb
connection = duckdb.connect()
connection.execute(f"SET threads = {sys.argv[3]}")
connection.execute(
    "COPY (SELECT DISTINCT line FROM read_csv($source, header = false, delim = '\\x01', quote = '', escape = '',"
    " columns = {'line': 'VARCHAR'})) TO '" + sys.argv[2] + "' (FORMAT parquet, COMPRESSION zstd)",
    {"source": sys.argv[1]},
)
"""


def _folder(name: str) -> Path:
    return corpus.CACHE / name


def _duckdb(path: Path) -> float:
    target = _folder("yardstick.parquet")
    target.unlink(missing_ok=True)
    return python(_DUCKDB, str(path), str(target), str(os.cpu_count() or 1)).seconds


def import_lines(
    path: Path, warehouse: Path, imported: int | None = None, fresh: bool = False, source: str | None = None
) -> Run:
    """Import into a warehouse, a new one if ``fresh``, and check that so many rows are new."""
    if fresh:
        shutil.rmtree(warehouse, ignore_errors=True)
    label = ["--source", source] if source else []
    run = run_sigdir("import", str(path), "--warehouse", str(warehouse), "--quiet", "--json", *label)
    totals = json.loads(run.output)["totals"]
    assert totals["read"] == totals["imported"] + totals["duplicate"] + totals["rejected"]
    assert imported is None or totals["imported"] == imported, f"{totals['imported']} imported, not {imported}"
    return run


def _check_sample(path: Path, warehouse: Path) -> None:
    """Look up random lines of the source in the warehouse, and compare the hashes with pycryptodome's."""
    size = path.stat().st_size
    chance = random.Random(1)
    expected: dict[int, dict[str, bytes]] = {1: {}, 2: {}}
    with path.open("rb") as file:
        for _ in range(_SAMPLE):
            file.seek(chance.randrange(size - 1000))
            file.readline()
            signature = normalise(file.readline())
            expected[signature.collection][signature.text] = keccak256(signature.text.encode())
    opened = sigdir.open(warehouse)
    for collection, texts in expected.items():
        view = "event_signatures" if collection == EVENTS else "signatures"
        found = opened.sql(
            f"SELECT text_signature, hash FROM {view} WHERE list_contains($texts, text_signature)",
            {"texts": list(texts)},
        )
        rows = dict(found.rows())
        assert rows.keys() == texts.keys(), f"{len(texts.keys() - rows.keys())} of {len(texts)} texts are missing"
        assert all(texts[text].startswith(stored) for text, stored in rows.items()), "a hash is wrong"
    (dense,) = opened.sql("SELECT count(*) = max(id) AND count(DISTINCT id) = count(*) FROM signatures").rows()[0]
    assert dense, "ids are not dense"


def large(rows: int, rounds: int) -> list[Figure]:
    """Ten times the rows: how much further from DuckDB's time the import is than with the rows, and its memory."""
    small = [_beside_duckdb(rows)[0] for _ in range(rounds)]
    ratio, peak = _beside_duckdb(10 * rows)
    return [Figure("import 10x", ratio / min(small)), Figure("import 10x memory", peak)]


def _beside_duckdb(rows: int) -> tuple[float, float]:
    """The time of an import beside DuckDB's, and its peak memory in MiB."""
    lines, warehouse = corpus.lines(rows), _folder("warehouse")
    floor = _duckdb(lines)
    run = import_lines(lines, warehouse, imported=rows, fresh=True)
    shutil.rmtree(warehouse)
    return run.seconds / floor, run.peak_mib


def figures(rows: int, rounds: int) -> list[Figure]:
    lines, warehouse = corpus.lines(rows), _folder("warehouse")
    floor = partial(_duckdb, lines)

    import_lines(lines, warehouse, imported=rows, fresh=True)
    _check_sample(lines, warehouse)
    found = [
        compared("import", lambda _: import_lines(lines, warehouse, rows, fresh=True).seconds, floor, rounds),
        compared("import again", lambda _: import_lines(lines, warehouse, imported=0).seconds, floor, rounds),
        compared(
            "import as another source",
            lambda k: import_lines(lines, warehouse, imported=0, source=f"another {k}").seconds,
            floor,
            rounds,
        ),
    ]
    shutil.rmtree(warehouse)

    raw = corpus.declarations(rows)
    import_lines(raw, warehouse, imported=rows, fresh=True)
    _check_sample(raw, warehouse)
    of_declarations = partial(import_lines, raw, warehouse, rows, fresh=True)
    found.append(compared("import declarations", lambda _: of_declarations().seconds, partial(_duckdb, raw), rounds))
    shutil.rmtree(warehouse)

    more = import_lines(corpus.lines(3 * rows), warehouse, imported=3 * rows, fresh=True)
    shutil.rmtree(warehouse)
    return [*found, Figure("import memory", more.peak_mib), _tree(rounds, warehouse)]


def _tree(rounds: int, warehouse: Path) -> Figure:
    """Import a folder of hash-named files."""
    folder = _folder(f"tree-{_FILES}")
    texts: dict[str, list[bytes]] = {}
    for text in corpus.lines(_FILES).read_bytes().split():
        texts.setdefault(keccak256(text)[:4].hex(), []).append(text)
    if not folder.exists():
        folder.mkdir()
        for name, same in texts.items():
            (folder / name).write_bytes(b";".join(same))
    seconds = [import_lines(folder, warehouse, imported=_FILES, fresh=True).seconds for _ in range(rounds)]
    shutil.rmtree(warehouse)
    return Figure("import files", len(texts) / min(seconds), seconds)
