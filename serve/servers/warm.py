"""Compiles or loads kernels, and what else takes long, before something waits for them.

A process of a server calls ``load`` before its first request. ``python -P -m sigdir.serve.servers.warm STEP...`` runs steps in a process of
its own and prints the name of each when it is done; `sigdir compile` does so with all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pyarrow as pa

from sigdir.serve.bulk import dumps
from sigdir.serve.core.process import return_freed_memory
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.texts import canonical_text
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.code_scan import scan_code
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.solve import Targets
from sigdir.warehouse.index import grams, parameter_lists, similar
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import render_lines, render_rows


def _grammar() -> None:
    [candidates] = pack([Entry(b"function warm(uint a)", 1)], 0)
    canonicalise(candidates)


def _one_text() -> None:
    canonical_text(SIGNATURES, "warm(uint a)")


def _segment() -> Segment:
    text, hash = np.frombuffer(b"warm(uint256)", np.uint8), np.zeros((1, 4), np.uint8)
    numbers = np.zeros(1, np.int64)
    return Segment.of(1, numbers, numbers, np.array([0, len(text)]), text, hash, sorted_hashes(hash))


def _records() -> None:
    segment = _segment()
    render_rows(segment, np.zeros(1, np.int64))
    render_lines(segment, 0, 1)
    dumps.warm(segment)


def _search() -> None:
    segment = _segment()
    segment.with_hash(bytes(4)), segment.with_hashes(np.zeros((1, 4), np.uint8))
    segment.with_text("uint"), segment.with_hex("0"), segment.like("w*", 1)
    grams.warm()
    parameter_lists.warm()
    segment.with_name("w*")
    similar.warm()


def _code() -> None:
    scan_code(b"\0")


_OF_REQUESTS: Final[Mapping[str, Callable[[], None]]] = {
    "grammar": _grammar, "one_text": _one_text, "records": _records, "search": _search, "code": _code,
}  # fmt: skip
"""What a request may need."""


def load(settings: Settings) -> None:
    """Load what requests may need. A process that has done so, or was forked from one that has, does it in no time."""
    return_freed_memory()  # before memory is taken
    warm()
    if settings.mcp:
        import_module("sigdir.serve.mcp_server")  # a second


def warm() -> None:
    """Compile or load every kernel that a request may need."""
    for step in _OF_REQUESTS.values():
        step()


def warm_import() -> None:
    """Compile or load what an import needs besides: import two texts into a new warehouse, and open it as a server does.

    That also byte-compiles the modules, which the first start of a server would do in each of its processes.
    """
    from sigdir.pipeline.progress import Reporter
    from sigdir.pipeline.run import Options, run_import
    from sigdir.serve.servers import waitress_worker  # noqa: F401 - loads waitress
    from sigdir.serve.servers.startup import open_app

    with TemporaryDirectory() as folder:
        texts = Path(folder, "texts.txt")
        for lines in (
            "warm(uint256)\nfunction warm(uint a, int b)\nevent Warm(uint256)\nwarm(\n",
            "warmer()\nwarm(uint256)\n",
        ):
            texts.write_text(lines)
            run_import(Options([str(texts)], Path(folder, "warehouse")), Reporter())
        open_app(Settings(Path(folder, "warehouse")))


def _solve() -> None:
    Targets([bytes(4)]).search(pa.array(["warm"]), pa.array(["()"]))


STEPS: Final = {**_OF_REQUESTS, "import": warm_import, "solve": _solve}
PARTS: Final = (("grammar", "one_text", "import", "solve"), ("records", "search", "code"))
"""The steps for two processes at the same time. They share no kernel, but that the import loads all of requests at its end."""

if __name__ == "__main__":
    for name in sys.argv[1:]:
        STEPS[name]()
        print(name, flush=True)
