"""A warehouse in a store that is a folder on the same disk: imports beside local ones, and how soon a replica shows a commit.

A folder has no network, so what is measured is what the store costs on this side: files that are written twice, entries
that are created, versions that are fetched, checked and indexed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import corpus, servers
from benchmarks.bench_import import import_lines
from benchmarks.measure import Figure, compared
from benchmarks.measure import sigdir as run_sigdir

_NEW_ROWS = 1_000
_COMMITS = 8


def figures(rows: int, rounds: int) -> list[Figure]:
    lines, folder = corpus.lines(rows), corpus.CACHE / "store"
    local = corpus.CACHE / "warehouse"

    def into_store(_: int) -> float:
        shutil.rmtree(folder, ignore_errors=True)
        with _copies():
            return run_sigdir("import", str(lines), "--warehouse", f"file://{folder}", "--quiet", "--json").seconds

    found = compared(
        "store import",
        into_store,
        lambda: import_lines(lines, local, imported=rows, fresh=True).seconds,
        rounds,
    )
    with _copies():
        visible = _replica(f"file://{folder}", rows)
    shutil.rmtree(folder)
    shutil.rmtree(local)
    return [found, visible]


@contextmanager
def _copies() -> Iterator[Path]:
    """Working copies are made anew, in a folder of their own."""
    folder = corpus.CACHE / "copies"
    shutil.rmtree(folder, ignore_errors=True)
    os.environ["SIGDIR_STORE_CACHE"] = str(folder)
    try:
        yield folder
    finally:
        del os.environ["SIGDIR_STORE_CACHE"]
        shutil.rmtree(folder, ignore_errors=True)


def _replica(url: str, rows: int) -> Figure:
    """Seconds from the end of an import into the store to the answer of a replica that has its rows, the slowest."""
    took = []
    with servers.ours(corpus.CACHE / "replica", "waitress", options=["--follow-store", url]) as replica:
        assert replica.count() == rows
        for number in range(1, _COMMITS + 1):
            more = corpus.lines(_NEW_ROWS, first=rows + number * _NEW_ROWS)
            run_sigdir("import", str(more), "--warehouse", url, "--quiet", "--json")
            committed = time.perf_counter()
            while replica.count() < rows + number * _NEW_ROWS:
                time.sleep(0.01)
            took.append(time.perf_counter() - committed)
    shutil.rmtree(corpus.CACHE / "replica")
    return Figure("store visible", max(took), took)
