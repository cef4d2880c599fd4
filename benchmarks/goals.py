"""What each figure must reach, and each change ever made to that.

A goal is what was asked for. It is never loosened to what was reached: a miss is shown as a miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Goal(NamedTuple):
    """``what`` is measured, in words that need no neighbour. ``unit`` is x where a ratio to the yardstick counts.

    ``wanted`` is None where a figure was only to be stated.
    """

    what: str
    wanted: float | None
    unit: str
    is_least: bool
    changes: str = ""

    @property
    def shown(self) -> str:
        if self.wanted is None:
            return "stated"
        return f"{'>=' if self.is_least else '<='} {self.number(self.wanted)}"

    def number(self, value: float) -> str:
        """A value in this goal's unit."""
        digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        return digits + (self.unit if self.unit in ("x", "%", "/s") else f" {self.unit}")

    def holds(self, value: float) -> bool:
        if self.wanted is None:
            return True
        return value >= self.wanted if self.is_least else value <= self.wanted


def _least(what: str, wanted: float, unit: str = "x", changes: str = "") -> Goal:
    return Goal(what, wanted, unit, True, changes)


def _most(what: str, wanted: float, unit: str = "x", changes: str = "") -> Goal:
    return Goal(what, wanted, unit, False, changes)


def _stated(what: str, unit: str) -> Goal:
    return Goal(what, None, unit, True)


_LOOSENED = "0.35 first; loosened to 0.3 on 2026-11-22, and back on 2026-11-24."
_TIGHTER = "0.8 until 2026-11-24."

GOALS: Final[Mapping[str, Goal]] = {
    # Imports, whole processes.
    "import": _most("10 M lines imported into an empty warehouse, with evidence, beside DuckDB's copy", 1.6, changes="2.5 until 2026-11-24."),
    "import again": _most("the same 10 M lines imported again, beside DuckDB's copy", 1.5, changes="2 until 2026-11-24."),
    "import as another source": _most("the same 10 M lines imported as another source, beside DuckDB's copy", 1.7, changes="2.2 until 2026-11-24."),
    "import declarations": _most("10 M declarations with names imported, beside DuckDB's copy", 2.5, changes="5 until 2026-11-24."),
    "import memory": _most("peak memory of importing 30 M lines", 3072, "MiB"),
    "import files": _least("a folder of 50,000 hash-named files imported", 20_000, "files/s"),
    "import artifacts": _most("20,000 artifacts with bytecode read, beside parsing their JSON", 3),
    "import 10x": _most("100 M lines: how many times further from DuckDB's time than 10 M", 1.3),
    "import 10x memory": _most("peak memory of importing 100 M lines", 3072, "MiB"),
    "store import": _most("10 M lines imported into a store that is a folder, beside the local import", 1.25),
    "store visible": _most("a commit to a store of 10 M rows until a replica shows it, the slowest of 8", 3, "s"),
    "sail": _most("10 M lines imported by Sail, beside the local import", 3),
    "pyspark": _most("10 M lines imported by PySpark local[2], beside the local import", 3),
    "pyspark memory": _most("a Python worker of PySpark at 100 M lines", 1536, "MiB"),
    # One worker of each server, over 10 M rows.
    "waitress page 1": _least("waitress: page 1, beside a ready body", 0.9),
    "waitress deep pages": _least("waitress: random deep pages, beside a ready body", 0.75),
    "waitress oldest first": _least("waitress: random pages, oldest first, beside a ready body", 0.75),
    "waitress hits": _least("waitress: hash lookups that find a text, beside a ready body", 0.75, changes=_TIGHTER),
    "waitress misses": _least("waitress: hash lookups that find none, beside a ready body", 0.75, changes=_TIGHTER),
    "waitress posts": _least("waitress: durable POSTs of new rows, beside empty POSTs", 0.35),
    "granian page 1": _least("granian: page 1, beside a ready body", 0.35, changes=_LOOSENED),
    "granian deep pages": _least("granian: random deep pages, beside a ready body", 0.35, changes=_LOOSENED),
    "granian hits": _least("granian: hash lookups that find a text, beside a ready body", 0.35, changes=_LOOSENED),
    "granian posts": _least("granian: durable POSTs of new rows, beside a loop of durable inserts", 0.7, changes="0.5 from 2026-11-22 to 2026-11-24."),
    "granian workers": _least("granian, default workers: hash lookups in 1.17 M rows", 8_040, "/s"),
    "hits by size": _least("hash lookups in 10 M rows, beside 100,000", 0.85),
    "hits by 10x size": _least("hash lookups in 100 M rows, beside 10 M", 0.85),
    "deep pages by 10x size": _least("random deep pages of 100 M rows, beside 10 M", 0.85),
    "ready 10x": _most("a server is ready on 100 M rows", 3, "s"),
    "rank lists": _least("hash lookups with --rank-lists, beside without", 0.95),
    "ready": _most("a server is ready on 10 M rows", 2, "s"),
    "private memory": _most("private memory of a worker at 10 M rows", 300, "MiB"),
    "p99 while written": _most("p99 of reads while POSTs, a fold and an import run, beside quiet", 3),
    "publishes": _most("requests that fail during 50 publishes", 0, "requests"),
    "post while imported": _most("the longest POST while 10 M lines are imported", 1000, "ms"),
    "after folds": _most("hash lookups after 500 folds and a compaction, beside a fresh import", 1.1),
    "resolve": _least("hashes resolved in bulk, all known", 300_000, "/s"),
    "download": _least("rows downloaded as NDJSON", 1_000_000, "/s"),
    "record pages": _least("pages of 20,000 selectors, beside a ready body", 0.5),
    "decoded pages": _least("pages of a decoded call, 20,000 selectors, beside a ready body", 0.5),
    # Search and SQL.
    "names": _most("the slowest of a hundred names in 10 M texts, page and count", 5, "ms"),
    "names 10x": _most("the slowest of a hundred names in 100 M texts, page and count", 20, "ms", "10 until 2026-11-24."),
    "pattern": _least("OpenChain's search for *balanceOf* in 1.17 M texts, beside a ready body", 0.5),
    "structure": _most("(address,uint256,*) in 10 M texts, page and exact count", 20, "ms"),
    "group lists": _most("10 M parameter lists grouped by SQL, beside the bare files", 1.2),
    "ranked": _most("all of the view ranked, 1.17 M rows, in a new process", 2, "s"),
    "sql": _most("ten rows by SQL over HTTP, warm", 30, "ms"),
    "p99 beside sql": _most("p99 of lookups while heavy SQL runs over HTTP, beside quiet", 2),
    # Decoding.
    "decode": _least("a call of two words decoded over HTTP, beside a ready body", 0.5),
    "decode by address": _least("a call of two words decoded by the contract at an address, beside without", 0.85),
    "decode return": _least("one word that a call returned, beside a call of one word", 0.8),
    "decode file": _least("500,000 calls of ten functions decoded, Parquet to Parquet, beside eth-abi told the texts", 1, changes="1.5 until 2026-11-24."),
    "decode hostile": _most("the slowest answer to 128 KiB with eight texts", 1, "s"),
    "interfaces": _least("contracts to interfaces, 81 bytecodes in rotation, one core", 500, "/s"),
    # Contracts and usage.
    "deployments": _least("1,000,000 deployments imported", 500_000, "/s"),
    "deployment size": _most("a deployment at rest, of 5,000 interfaces", 24, "bytes"),
    "coverage": _most("coverage of 1,000,000 selectors with counts, the whole command", 2, "s"),
    # Packs.
    "pack size": _most("a pack of all functions, 1.08 M texts, bytes a text", 5, "bytes"),
    "top pack size": _most("a pack of the 10,000 texts used most", 100, "kB"),
    "pack opened": _most("a pack of 1.08 M texts opened, with kernels", 0.5, "s"),
    "pack opened first": _most("a pack of 1.08 M texts opened as the first thing a process does, with kernels", 0.5, "s"),
    "pack opened without kernels": _most("a pack of 1.08 M texts opened, without kernels", 10, "s"),
    "pack opened by node": _most("a pack of 1.08 M texts opened in Node", 5, "s"),
    "pack lookup": _most("a lookup in a mapped pack", 5, "us"),
    "pack lookup by node": _most("a lookup in a mapped pack in Node", 2, "us"),
    "mcp": _most("the first answer of a fresh `sigdir mcp --pack`, from its start to its end", 1.5, "s"),
    "range": _least("ranges over HTTP, beside a ready body", 0.7),
    # Hashing and solving.
    "keccak": _least("keccak-256 of texts, one core with AVX-512, beside a loop over pycryptodome", 40, changes="15 without AVX-512."),
    "solve speed": _least("texts tried by one core, beside the hash kernel", 0.7),
    "solve recall": _least("of 1,000 functions taken out of the directory, solved", 30, "%"),
    "solve precision": _least("of the answers above 0.9, right", 95, "%"),
    "solve seconds": _most("a selector solved", 2, "s"),
    "solve later": _stated("of functions first published after the lists, solved", "%"),
    "solve later precision": _stated("of the answers above 0.9 for these, right", "%"),
}  # fmt: skip
