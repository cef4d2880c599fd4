"""Imports as whole processes, start-up included, compared with DuckDB writing the same file to Parquet.

The reference starts a Python process too. It reads the file, takes DISTINCT lines and writes zstd Parquet with
the same number of threads, but canonicalises, hashes and numbers nothing.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import sigdir
from benchmarks import corpus
from benchmarks.measure import Figure, Run, compared, python
from benchmarks.measure import sigdir as run_sigdir
from sigdir.signatures.collections import EVENTS
from sigdir.signatures.grammar import normalise
from sigdir.signatures.keccak import keccak256

_NEW_ROWS = 100_000
_SAMPLE = 2_000
_FILES = 50_000
_MOST_ROWS = 30_000_000
_FILES_A_SECOND = 20_000

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
_UNPACK = """
import lzma, sys
with lzma.open(sys.argv[1]) as file:
    while file.read(1 << 20):
        pass
"""
# The same import with nothing kept of who says what.
_WITHOUT_EVIDENCE = """
import sys
from sigdir.cli.main import main
from sigdir.warehouse.publish import publish
publish._NewRows.write_evidence = lambda rows: rows.base.manifest
main(["import", sys.argv[1], "--warehouse", sys.argv[2], "--quiet", "--json"])
"""

_READ_FILES = """
import os, sys
for entry in os.scandir(sys.argv[1]):
    with open(entry.path, "rb") as file:
        file.read()
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


def _without_evidence(path: Path, warehouse: Path, imported: int) -> float:
    shutil.rmtree(warehouse, ignore_errors=True)
    run = python(_WITHOUT_EVIDENCE, str(path), str(warehouse))
    report = json.loads(run.output)
    assert (report["totals"]["imported"], report["sightings"]) == (imported, 0)
    return run.seconds


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
    further = ratio / min(small)
    return [
        Figure(
            f"import {10 * rows:,} distinct lines beside DuckDB, and {rows:,}", f"{ratio:.2f}x", f"{min(small):.2f}x",
            further, "<= 1.3x", further <= 1.3, [ratio], small,
        ),
        Figure(
            f"import {10 * rows:,} distinct lines: peak memory", f"{peak:,.0f} MiB", "3072 MiB", peak / 3072, "<= 1x",
            peak <= 3072,
        ),
    ]  # fmt: skip


def _beside_duckdb(rows: int) -> tuple[float, float]:
    """The time of an import beside DuckDB's, and its peak memory in MiB."""
    lines, warehouse = corpus.lines(rows), _folder("warehouse")
    floor = _duckdb(lines)
    run = import_lines(lines, warehouse, imported=rows, fresh=True)
    shutil.rmtree(warehouse)
    return run.seconds / floor, run.peak_mib


def figures(rows: int, rounds: int, corpora: Path | None) -> list[Figure]:
    found = []
    lines, warehouse = corpus.lines(rows), _folder("warehouse")

    fresh = import_lines(lines, warehouse, imported=rows, fresh=True)
    _check_sample(lines, warehouse)
    found.append(
        compared(
            f"import {rows:,} distinct lines into an empty warehouse",
            lambda _: import_lines(lines, warehouse, imported=rows, fresh=True).seconds,
            lambda: _duckdb(lines),
            2.5,
            rounds,
        )
    )
    found.append(_beside_without(lines, rows, rounds))
    import_lines(lines, warehouse, imported=rows, fresh=True)
    found.append(
        compared(
            "the same file again, all duplicates",
            lambda _: import_lines(lines, warehouse, imported=0).seconds,
            lambda: _duckdb(lines),
            2.0,
            rounds,
        )
    )
    found.append(
        compared(
            "the same file as another source, a sighting a line",
            lambda k: import_lines(lines, warehouse, imported=0, source=f"another {k}").seconds,
            lambda: _duckdb(lines),
            2.2,
            rounds,
        )
    )
    found.append(_at_rest(warehouse, rows, sources=rounds + 1))
    more = [corpus.lines(_NEW_ROWS, first=rows + k * _NEW_ROWS) for k in range(rounds)]
    found.append(
        compared(
            f"{_NEW_ROWS:,} new rows into that warehouse",
            lambda k: import_lines(more[k], warehouse, imported=_NEW_ROWS).seconds,
            lambda: _duckdb(lines),
            1.0,
            rounds,
        )
    )
    shutil.rmtree(warehouse)

    raw = corpus.declarations(rows)
    import_lines(raw, warehouse, imported=rows, fresh=True)
    _check_sample(raw, warehouse)
    found.append(
        compared(
            f"import {rows:,} raw declarations",
            lambda _: import_lines(raw, warehouse, imported=rows, fresh=True).seconds,
            lambda: _duckdb(raw),
            5.0,
            rounds,
        )
    )
    shutil.rmtree(warehouse)

    if corpora is not None:
        dump = corpora / "abi_dump.jsonl.xz"
        found.append(
            compared(
                "import the Panoramix dump (xz), beside unpacking it",
                lambda _: import_lines(dump, warehouse, fresh=True).seconds,
                lambda: python(_UNPACK, str(dump)).seconds,
                3.0,
                rounds,
            )
        )
        shutil.rmtree(warehouse)
    found.append(_memory(rows, fresh, warehouse))
    found.append(_tree(rounds, warehouse))
    return found


def _beside_without(lines: Path, rows: int, rounds: int) -> Figure:
    """What keeping one sighting a line costs."""
    warehouse = _folder("beside")
    figure = compared(
        f"import {rows:,} distinct lines, beside the same without evidence",
        lambda _: import_lines(lines, warehouse, imported=rows, fresh=True).seconds,
        lambda: _without_evidence(lines, warehouse, rows),
        1.15,
        rounds,
    )
    shutil.rmtree(warehouse)
    return figure


def _at_rest(warehouse: Path, rows: int, sources: int) -> Figure:
    """The bytes of the evidence after compaction, for each text and source."""
    run_sigdir("compact", "--all", "--warehouse", str(warehouse))
    opened = sigdir.open(warehouse)
    [(sightings,)] = opened.sql("SELECT count(*) FROM sightings").rows()
    assert sightings == rows * sources, f"{sightings:,} sightings, not {rows * sources:,}"
    files = opened.snapshot.evidence.all_files()
    size = sum(file.size for file in files) / sightings
    return Figure("evidence of a list at rest", f"{size:.3f} bytes", "", 0, "<= 2 bytes a line", size <= 2)


def _tree(rounds: int, warehouse: Path) -> Figure:
    """Import a folder of hash-named files, compared with a process that opens and reads the same files."""
    folder = _folder(f"tree-{_FILES}")
    texts: dict[str, list[bytes]] = {}
    for text in corpus.lines(_FILES).read_bytes().split():
        texts.setdefault(keccak256(text)[:4].hex(), []).append(text)
    if not folder.exists():
        folder.mkdir()
        for name, same in texts.items():
            (folder / name).write_bytes(b";".join(same))
    mine, theirs = [], []
    for _ in range(rounds):
        theirs.append(python(_READ_FILES, str(folder)).seconds)
        mine.append(import_lines(folder, warehouse, imported=_FILES, fresh=True).seconds)
    shutil.rmtree(warehouse)
    ours, yardstick = len(texts) / min(mine), len(texts) / min(theirs)
    return Figure(
        f"import a tree of {len(texts):,} files, beside reading them",
        f"{ours:,.0f} files/s",
        f"{yardstick:,.0f} files/s",
        ours / yardstick,
        f">= {_FILES_A_SECOND:,} files/s",
        ours >= _FILES_A_SECOND,
        mine,
        theirs,
    )


def _memory(rows: int, single: Run, warehouse: Path) -> Figure:
    """Peak memory of an import, compared with one of another size: three times the rows, or a tenth of very many."""
    other_rows = 3 * rows if 3 * rows <= _MOST_ROWS else rows // 10
    other = import_lines(corpus.lines(other_rows), warehouse, imported=other_rows, fresh=True)
    shutil.rmtree(warehouse)
    (_, small), (large_rows, large) = sorted([(rows, single), (other_rows, other)], key=lambda pair: pair[0])
    return Figure(
        f"peak memory, {large_rows:,} rows beside {min(rows, other_rows):,}",
        f"{large.peak_mib:.0f} MiB",
        f"{small.peak_mib:.0f} MiB",
        large.peak_mib / small.peak_mib,
        "<= 3072 MiB",
        max(small.peak_mib, large.peak_mib) <= 3072,
    )
