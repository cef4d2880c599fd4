"""From settings to an application that can answer: kernels loaded, indexes built, requests logged.

``load`` compiles or loads kernels, and what else takes long, before something waits for them; a server's process
calls it before its first request. ``python -P -m sigdir.serve.servers.startup STEP...`` runs steps in a process of
its own and prints the name of each when it is done; `sigdir compile` does so with all of them.

``answer_costly`` is the process of costly requests, which come through a pipe. Before each the process sets a timer
of processor time; the kernel ends it by SIGPROF where that runs out, whatever code runs then. A limit of memory makes
the request fail with MemoryError, a 413. It ends when the pipe closes, that is with the process that started it.
SIGINT ends the query that runs: its client has gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sigdir.serve.app import create_app
from sigdir.serve.bulk import dumps
from sigdir.serve.core.budget import Answer, Budget, Processes, budget_processes
from sigdir.serve.core.decodings import DECODED
from sigdir.serve.core.process import Closable, begin, limited_memory, return_freed_memory, write_line
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer, canonical_text
from sigdir.serve.metrics import Counts
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.code_scan import scan_code
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.interruption import noting
from sigdir.signatures.solve import Targets
from sigdir.warehouse.index import grams, parameter_lists, terms
from sigdir.warehouse.index.segment import Segment, sorted_hashes
from sigdir.warehouse.index.template import render_lines, render_rows
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.files import FileLock, make_folder
from sigdir.warehouse.table.paths import existing


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
    terms.warm()


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


_NICENESS, _SQL_NICENESS = 5, 10
"""Costly requests give way to all others, and SQL to these."""


def answer_costly(connection: Connection[Any, Any], settings: Settings, gives_way: bool) -> None:
    begin("sigdir-costly")
    if gives_way:
        signal.signal(signal.SIGINT, lambda *_: None)  # between two queries
    load(settings)
    with suppress(EOFError, OSError):
        connection.recv()  # who starts it finds damage, and builds indexes, first
        app, reader = _opened(settings)
        _give_way(_SQL_NICENESS if gives_way else _NICENESS)  # not before: who waits for it does so 1.7 times as long
        connection.send("ready")
        while True:
            body = BytesIO(
                b"".join(iter(connection.recv_bytes, b""))
            )  # it holds these bytes, and its only reader makes no copy
            environ, budget = connection.recv()
            _refresh(reader)
            answer = None
            with noting(_kill, (signal.SIGINT,)) if gives_way else nullcontext(), suppress(KeyboardInterrupt):
                answer = _answer(app, environ, body, budget)
            connection.send(answer)


def _refresh(reader: Reader) -> None:
    """Open the newest version before the budget begins: it may lack an index, and no request is too large because of that.

    An error comes again in the request, which answers with it.
    """
    with suppress(WarehouseError, OSError, pa.ArrowException):
        reader.refreshed()


def _give_way(more: int) -> None:
    """Let other processes go first. Linux shares the processor between sessions before it looks at niceness."""
    niceness = os.nice(more)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _opened(settings: Settings) -> tuple[Any, Reader]:
    """The application, and what it reads."""
    try:
        existing(settings.warehouse)
        reader = Reader(settings.paths)
        reader.current()
        return create_app(settings, reader, Writer(reader.paths, reader)), reader
    except (WarehouseError, OSError) as error:
        sys.exit(f"error: the process of long requests: {error}")


def _answer(app: Any, environ: dict[str, str], body: BytesIO, budget: Budget) -> Answer | None:
    """Run the application within the budget; None where not even its error page had memory."""
    given: Any = environ | {
        "wsgi.version": (1, 0), "wsgi.input": body, "wsgi.errors": sys.stderr,
        "wsgi.multithread": False, "wsgi.multiprocess": True, "wsgi.run_once": False,
    }  # fmt: skip
    began: list[Any] = []
    signal.setitimer(signal.ITIMER_PROF, budget.seconds)
    try:
        with limited_memory(budget.memory):
            parts = app(given, lambda *start: began.extend(start[:2]))
            whole = b"".join(parts)
    except MemoryError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    status, headers = began
    return Answer(status, headers, whole, given.get(DECODED, []))


_REPORT_SECONDS = 2.0


def open_app(settings: Settings, inherited: Sequence[Closable] | None = None) -> tuple[Any, Processes]:
    """The WSGI application over the warehouse of the settings, and its processes for costly requests, all ready to answer.

    ``inherited``: a caller without other threads has the processes forked, and names what is open here and must not be
    open there. Builds missing indexes and reports progress on standard error. Raises WarehouseError, OSError, also
    where there is no warehouse: only the server makes one, before its workers start.
    """
    existing(settings.warehouse)
    paths = settings.paths
    if settings.on_read_only_media and settings.cache is None:
        load(settings)
    else:
        make_folder(paths.cache)
        with FileLock(paths.compile_lock):  # one worker compiles the kernels, the others then load them
            load(settings)
    processes = budget_processes(settings, answer_costly)
    if inherited is not None:
        for process in processes.values():  # before anything is opened that a fork must not have
            process.fork(inherited)
    reader = Reader(paths, _IndexProgress())
    counts = Counts()
    counts.starts.inc()  # what is above the number of workers are restarts
    app = create_app(settings, reader, Writer(paths, reader), counts, processes)
    for process in processes.values():
        process.start()
    for process in processes.values():  # who is ready answers a costly request too
        process.await_ready()
    return app, processes


class _IndexProgress:
    """Prints the number of indexed rows every two seconds."""

    def __init__(self) -> None:
        self._rows = 0
        self._next = time.monotonic() + _REPORT_SECONDS

    def __call__(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() > self._next:
            self._next = time.monotonic() + _REPORT_SECONDS
            write_line(f"index: {self._rows:,} rows")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        STEPS[name]()
        print(name, flush=True)
