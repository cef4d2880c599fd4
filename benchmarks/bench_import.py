"""Imports as whole processes, start-up included, beside DuckDB writing the same file to Parquet.

The yardstick reads the file, takes DISTINCT lines and writes zstd Parquet with the same number of
threads. It normalises, hashes and numbers nothing; it also starts a Python process.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import sigdir
from benchmarks import corpus
from benchmarks.measure import Figure, Run, beside, python
from benchmarks.measure import sigdir as run_sigdir
from sigdir.signatures.collections import EVENTS
from sigdir.signatures.grammar import normalise
from sigdir.signatures.keccak import keccak256

_NEW_ROWS = 100_000
_SAMPLE = 2_000
_FILES = 50_000
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


def _import(path: Path, house: Path, imported: int | None = None, fresh: bool = False) -> Run:
    if fresh:
        shutil.rmtree(house, ignore_errors=True)
    run = run_sigdir("import", str(path), "--warehouse", str(house), "--quiet", "--json")
    totals = json.loads(run.output)["totals"]
    assert totals["read"] == totals["imported"] + totals["duplicate"] + totals["rejected"]
    assert imported is None or totals["imported"] == imported, f"{totals['imported']} imported, not {imported}"
    return run


def _check_sample(path: Path, house: Path) -> None:
    """Look random lines of the source up in the warehouse: text and hash as pycryptodome has them."""
    size = path.stat().st_size
    chance = random.Random(1)
    expected: dict[int, dict[str, bytes]] = {1: {}, 2: {}}
    with path.open("rb") as file:
        for _ in range(_SAMPLE):
            file.seek(chance.randrange(size - 1000))
            file.readline()
            signature = normalise(file.readline())
            expected[signature.collection][signature.text] = keccak256(signature.text.encode())
    opened = sigdir.open(house)
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


def figures(rows: int, rounds: int, corpora: Path | None) -> list[Figure]:
    found = []
    lines, house = corpus.lines(rows), _folder("house")

    fresh = _import(lines, house, imported=rows, fresh=True)
    _check_sample(lines, house)
    found.append(
        beside(
            f"import {rows:,} distinct lines into an empty warehouse",
            lambda _: _import(lines, house, imported=rows, fresh=True).seconds,
            lambda: _duckdb(lines),
            2.5,
            rounds,
        )
    )
    found.append(
        beside(
            "the same file again, all duplicates",
            lambda _: _import(lines, house, imported=0).seconds,
            lambda: _duckdb(lines),
            2.0,
            rounds,
        )
    )
    more = [corpus.lines(_NEW_ROWS, first=rows + k * _NEW_ROWS) for k in range(rounds)]
    found.append(
        beside(
            f"{_NEW_ROWS:,} new rows into that warehouse",
            lambda k: _import(more[k], house, imported=_NEW_ROWS).seconds,
            lambda: _duckdb(lines),
            1.0,
            rounds,
        )
    )
    shutil.rmtree(house)

    raw = corpus.declarations(rows)
    _import(raw, house, imported=rows, fresh=True)
    _check_sample(raw, house)
    found.append(
        beside(
            f"import {rows:,} raw declarations",
            lambda _: _import(raw, house, imported=rows, fresh=True).seconds,
            lambda: _duckdb(raw),
            5.0,
            rounds,
        )
    )
    shutil.rmtree(house)

    if corpora is not None:
        dump = corpora / "abi_dump.jsonl.xz"
        found.append(
            beside(
                "import the Panoramix dump (xz), beside unpacking it",
                lambda _: _import(dump, house, fresh=True).seconds,
                lambda: python(_UNPACK, str(dump)).seconds,
                3.0,
                rounds,
            )
        )
        shutil.rmtree(house)
    found.append(_memory(rows, fresh, house))
    found.append(_tree(rounds, house))
    return found


def _tree(rounds: int, house: Path) -> Figure:
    """A folder of files named by their hash, beside a process that opens and reads the same files."""
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
        mine.append(_import(folder, house, imported=_FILES, fresh=True).seconds)
    shutil.rmtree(house)
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


def _memory(rows: int, single: Run, house: Path) -> Figure:
    """Peak memory of one import and of one three times as large."""
    triple = _import(corpus.lines(3 * rows), house, imported=3 * rows, fresh=True)
    shutil.rmtree(house)
    return Figure(
        f"peak memory, {3 * rows:,} rows beside {rows:,}",
        f"{triple.peak_mib:.0f} MiB",
        f"{single.peak_mib:.0f} MiB",
        triple.peak_mib / single.peak_mib,
        "<= 3072 MiB",
        max(single.peak_mib, triple.peak_mib) <= 3072,
    )
