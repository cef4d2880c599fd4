"""Reading after hundreds of folds and one compaction, compared with a fresh import of the same rows.

Measured in this process without HTTP, where one more file has the largest share: 2 of a lookup's 15
microseconds. All rows of the warehouses, and answers from them, are compared before anything is timed.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import corpus
from benchmarks.bench_live import _link
from benchmarks.measure import Figure, sigdir
from sigdir.serve.lists.paging import page_of, parse
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.compact import compact
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.transaction import NO_HIGH_WATER, NewText
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths

_ROWS = 1_000_000
_FOLDS = 500
_ROWS_A_FOLD = 200
_CALLS = 1000
_AT_A_TIME = 20
_URL = "http://localhost/api/v1/signatures/"


def figures(rows: int, rounds: int) -> list[Figure]:
    rows = min(rows, _ROWS)
    first = corpus.lines(rows - _FOLDS * _ROWS_A_FOLD)
    posted = corpus.lines(_FOLDS * _ROWS_A_FOLD, first=rows - _FOLDS * _ROWS_A_FOLD)
    fresh, folded, compacted = (corpus.CACHE / f"{name}-{rows}" for name in ("fresh", "folded", "compacted"))
    if not fresh.is_dir():
        sigdir("import", str(first), str(posted), "--warehouse", str(fresh), "--quiet")
    if not folded.is_dir():
        _fold(folded, first, posted)
    shutil.rmtree(compacted, ignore_errors=True)
    shutil.copytree(folded, compacted, copy_function=_link)
    assert compact(Paths(compacted)) is not None
    expected = _rows(fresh)
    for warehouse in (folded, compacted):
        assert _rows(warehouse).equals(expected), f"{warehouse}: not the rows of a fresh import"

    readers = [Reader(Paths(warehouse)) for warehouse in (fresh, folded, compacted)]
    chance = random.Random(11)
    hashes = [expected["hash"][chance.randrange(rows)].as_py().hex() for _ in range(_CALLS)]
    queries = [f"hex_signature=0x{hash}" for hash in hashes]
    views = [reader.current() for reader in readers]
    _compare(views, queries[:50])
    _compare(views, [f"page={chance.randint(1, rows // 100)}" for _ in range(50)])
    of_fresh, _, of_compacted = _in_turns(views, queries, 5 * rounds)
    for reader in readers:
        reader.close()
    shutil.rmtree(compacted)
    return [Figure("after folds", sum(of_compacted) / sum(of_fresh))]


def _fold(warehouse: Path, first: Path, posted: Path) -> None:
    """Import the first rows, then stage and fold the others, a few per fold."""
    building = warehouse.with_suffix(".tmp")
    shutil.rmtree(building, ignore_errors=True)
    sigdir("import", str(first), "--warehouse", str(building), "--quiet")
    texts = posted.read_text().split()
    digests = keccak256_column(pa.array(texts))
    staging = Staging(Paths(building).staging)
    for at in range(0, len(texts), _ROWS_A_FOLD):
        with staging.exclusive() as transaction:
            rows = range(at, at + _ROWS_A_FOLD)
            transaction.stage_all(
                [NewText(SIGNATURES, texts[row], digests[row].tobytes()) for row in rows], NO_HIGH_WATER
            )
        fold(Paths(building))
    staging.close()
    building.rename(warehouse)


def _rows(warehouse: Path) -> pa.Table:
    """The columns that do not depend on how the rows were added: id, text, hash."""
    files = [str(file.path) for file in read_snapshot(Paths(warehouse)).files[SIGNATURES]]
    columns = ["id", "text_signature", "hash"]
    return pa.concat_tables(pq.ParquetFile(file).read(columns=columns) for file in files).combine_chunks()


def _compare(views: list[View], queries: list[str]) -> None:
    for query in queries:
        pages = [page_of(view, SIGNATURES, parse(query), _URL) for view in views]
        found = [[(row["id"], row["text_signature"]) for row in orjson.loads(page.body())["results"]] for page in pages]
        assert found[0], f"{query}: nothing is found"
        assert found.count(found[0]) == len(found), f"{query}: the answers differ"


def _in_turns(views: list[View], queries: list[str], rounds: int) -> list[list[float]]:
    """Microseconds a call in each view, for each few calls the best of all rounds.

    The views take turns every few calls: on a machine with other work both sides meet the same.
    """
    few = [queries[at : at + _AT_A_TIME] for at in range(0, len(queries), _AT_A_TIME)]
    best = [[float("inf")] * len(few) for _ in views]
    for _ in range(rounds):
        for number, batch in enumerate(few):
            for view, times in zip(views, best, strict=True):
                began = time.perf_counter()
                for query in batch:
                    page_of(view, SIGNATURES, parse(query), _URL)
                times[number] = min(times[number], (time.perf_counter() - began) / len(batch) * 1e6)
    return best
