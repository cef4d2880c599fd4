"""Costly requests have a budget of processor time and memory: a process of their own answers them, and can be ended.

Decoding, contracts, Solidity, ABIs, previews and multipart forms are read by code that holds the GIL. Their cost is
bounded by the bytes of the request. If a bound is missing somewhere, the kernel ends that process when the budget is
used up, the client gets a 422 or 413 that says so, and other requests have waited for nothing.

The process runs the same application (``servers/startup.py``), a request at a time. A worker forks it before
it has other threads, so the process has loaded what the worker has. A process that replaces it loads that again. ``Cost`` names the process that
answers a request. A resource has it as ``cost``: a Cost, or a function of the request.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import falcon

from sigdir.serve.core.decodings import DECODED
from sigdir.serve.core.process import FORK, Closable, end, write_line
from sigdir.serve.core.settings import MIB, Settings
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import HttpError, detail, http_error_of, unavailable
from sigdir.warehouse.index.view import this_takes_long
from sigdir.warehouse.sql.time_limit import EXIT_STATUS

FREE_BYTES, _FREE_FORM_BYTES = 220, 4096
"""A request up to this size is answered where it is. A call of two words, with its address, takes 60 us, and to pass it on 200.
Code of so few bytes takes no second, whatever it does."""
_SECONDS, _SECONDS_PER_MIB = 1.0, 0.5
_MEMORY, _MEMORY_PER_BYTE = 64 * MIB, 32
_TURN_SECONDS, _START_SECONDS, _STUCK_SECONDS = 10.0, 60.0, 60.0
_END_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_SQL_SECONDS, _SQL_MEMORY = 60.0, 1024 * MIB
"""Of SQL: the seconds come on top of a query's time limit, and the engine has a limit of memory of its own. These are for
what hears neither."""
_NODE_SECONDS, _NODE_MEMORY = 3.0, 512 * MIB
_RETRY_SECONDS = 1
_WITHOUT_MEMORY = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
"""How compiled code ends that gets no memory: C by the first, C++ and Rust by the second."""


class Budget(NamedTuple):
    """What one request may take: seconds of processor time, and bytes of memory beyond what the process has."""

    seconds: float
    memory: int


class Answer(NamedTuple):
    """The answer of the process: its status line, headers and body."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes
    decoded: list[str]
    """How decodings ended."""


def budget_of(size: int) -> Budget:
    """The budget of a request of so many bytes."""
    return Budget(_SECONDS + _SECONDS_PER_MIB * size / MIB, _MEMORY + _MEMORY_PER_BYTE * size)


class Cost(Enum):
    """What bounds the cost of a request, and so the process that answers it."""

    SIZE = auto()
    """The bytes of the request. A short one is answered where it is."""
    PATIENCE = auto()
    """Limits of its own: SQL and solving. Its process gives way to everything else, and what it does ends with its client."""
    NODE = auto()
    """The answers of a node to one transaction, which are larger than the request. No other request waits for them."""


Processes = Mapping[Cost, "BudgetProcess"]

Work = Callable[["Connection[Any, Any]", Settings, bool], None]
"""What the process does (``servers/startup.answer_costly``): its end of the pipe, the settings, whether it gives way."""

_SPAWN = multiprocessing.get_context("spawn")
_starting = threading.Lock()


def budget_processes(settings: Settings, work: Work) -> Processes:
    """Those that the settings ask for, to be started."""
    found = {Cost.SIZE: BudgetProcess(settings, work)}
    if settings.is_patient:
        seconds, line = settings.sql_seconds + _SQL_SECONDS, settings.thread_shares.patient
        found[Cost.PATIENCE] = BudgetProcess(settings, work, seconds, _SQL_MEMORY, line, gives_way=True)
    if settings.rpc:
        found[Cost.NODE] = BudgetProcess(settings, work, _NODE_SECONDS, _NODE_MEMORY, 1)
    return found


class BudgetProcess:
    """The process that answers costly requests, started when it is needed and replaced when it ends."""

    def __init__(
        self, settings: Settings, work: Work, seconds: float | None = None, memory: int | None = None,
        line: int | None = None, *, gives_way: bool = False,
    ) -> None:  # fmt: skip
        """``seconds`` and ``memory`` take the place of what the size of a request allows. ``line`` requests may wait, each
        with a thread; that of costly ones by default.
        """
        self._settings, self._work, self._gives_way = settings, work, gives_way
        self._seconds, self._memory = seconds, memory
        self._turn = threading.Lock()
        self._line = threading.BoundedSemaphore(line or settings.thread_shares.costly)
        self._process: BaseProcess | None = None
        self._connection: Connection[Any, Any] | None = None
        self._is_forked = self._is_ready = False

    def fork(self, inherited: Sequence[Closable]) -> None:
        """Fork it from this process, which has no other threads; it opens nothing before ``start``.

        It closes what it has ``inherited`` and must not have.
        """
        connection, theirs = self._piped()
        arguments = (connection, *inherited), self._work, theirs, self._settings, self._gives_way
        self._process = FORK.Process(target=_work_without, args=arguments, daemon=True)
        with theirs:
            self._process.start()
        self._is_forked = True

    def start(self) -> None:
        """Start it, or what was forked, without waiting until it is ready. It ends when this process ends."""
        if not self._is_forked:
            self.close()
            _, theirs = self._piped()
            arguments = theirs, self._settings, self._gives_way
            self._process = _SPAWN.Process(target=self._work, args=arguments, daemon=True)
            with theirs, _safe_path():
                self._process.start()
        assert self._connection is not None
        self._connection.send(None)
        self._is_forked = self._is_ready = False

    def _piped(self) -> tuple[Connection[Any, Any], Connection[Any, Any]]:
        """Both ends of a new pipe to the process, ours first."""
        self._connection, theirs = Pipe()
        _limit_waits(self._connection, _STUCK_SECONDS)
        return self._connection, theirs

    def close(self) -> None:
        """End it. One that is not closed ends when this process does: nothing more can come through the pipe."""
        if self._process is not None and self._connection is not None:
            end(self._process)
            self._connection.close()
        self._process, self._is_forked = None, False

    def answer(
        self, environ: dict[str, str], body: Iterable[bytes], is_gone: Callable[[], bool] = lambda: False
    ) -> Answer:
        """The application's answer to a request; raises HttpError where it is over its budget, or has no place in line.

        The pieces of ``body`` are passed on one by one, so that a worker has none whole in memory. ``is_gone`` says
        whether the client has hung up: then the process is interrupted, and ended where it does not hear that.
        """
        if not self._line.acquire(blocking=False):
            raise unavailable("Too many long requests at once.", _RETRY_SECONDS)
        try:
            if not self._turn.acquire(timeout=_TURN_SECONDS):
                raise unavailable("Too many long requests at once.", _RETRY_SECONDS)
            try:
                return self._answer(environ, body, is_gone)
            finally:
                self._turn.release()
        finally:
            self._line.release()

    def _answer(self, environ: dict[str, str], body: Iterable[bytes], is_gone: Callable[[], bool]) -> Answer:
        budget = self._budget_of(0)
        if self._process is None or not self._process.is_alive():  # the system ends what has most memory
            self.start()
        assert self._connection is not None
        answer: Answer | None = None
        try:
            is_ready = self._has_started(_START_SECONDS)
            if is_ready:
                size = 0
                for piece in body:
                    self._connection.send_bytes(piece)
                    size += len(piece)
                self._connection.send_bytes(b"")
                budget = self._budget_of(size)
                self._connection.send((environ, budget))
                self._await_answer(self._connection, is_gone, budget)
                answer = self._connection.recv()
        except (EOFError, OSError):
            raise self._ended(budget) from None
        except BaseException:  # of ours: its answer may still come, and the next request must not get it
            self.close()
            raise
        if not is_ready:
            raise unavailable("The process that answers long requests is starting.")
        if answer is None:
            raise http_error_of(MemoryError())
        return answer

    def _budget_of(self, size: int) -> Budget:
        budget = budget_of(size)
        return Budget(self._seconds or budget.seconds, self._memory or budget.memory)

    def _await_answer(self, connection: Connection[Any, Any], is_gone: Callable[[], bool], budget: Budget) -> None:
        """Wait for the answer, which is None for a client that has gone. Raises EOFError where the process is stuck."""
        assert self._process is not None
        assert self._process.pid is not None
        last = time.monotonic() + budget.seconds + _STUCK_SECONDS
        while not connection.poll(_LOOK_SECONDS):
            if is_gone():
                os.kill(self._process.pid, signal.SIGINT)
                if connection.poll(_END_SECONDS):
                    return
                raise EOFError
            if time.monotonic() > last:
                raise EOFError

    def await_ready(self) -> None:
        """Wait until it answers, however long that takes; raises OSError where it does not start."""
        try:
            self._has_started(None)
        except EOFError:
            raise OSError("the process of long requests does not start") from None

    def _has_started(self, seconds: float | None) -> bool:
        """Whether it is ready after so many seconds, None for any number; raises EOFError, OSError where it has ended."""
        assert self._connection is not None
        if not self._is_ready and self._connection.poll(seconds):
            self._connection.recv()
            self._is_ready = True
        return self._is_ready

    def _ended(self, budget: Budget) -> HttpError:
        """End what is left of the process, start another, and say why."""
        assert self._process is not None
        end(self._process, _END_SECONDS)
        status = self._process.exitcode or 0
        self.start()
        if status == EXIT_STATUS and self._gives_way:
            return detail(422, "The query takes longer than it may, and did not end when it was told to.")
        if status == -signal.SIGPROF:
            return detail(
                422,
                f"This request takes more than {round(budget.seconds, 2):g} s of processor time. Send less at once.",
            )
        if -status in _WITHOUT_MEMORY:
            name = signal.Signals(-status).name
            write_line(f"refused: a request ended the process of long requests by {name}")
            return http_error_of(MemoryError())
        write_line(f"error: the process of long requests ended with status {status}")
        return unavailable("The process that answered this request has ended.")


@contextmanager
def _safe_path() -> Iterator[None]:
    """Python that starts within the block imports nothing from the current folder."""
    name = "PYTHONSAFEPATH"
    with _starting:
        before = os.environ.get(name)
        os.environ[name] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def _work_without(ours: Sequence[Closable], work: Work, *arguments: Any) -> None:
    """The work of a process that was forked. It closes what its parent uses: a port or a pipe is open while anybody has it."""
    for each in ours:
        each.close()
    work(*arguments)


def _limit_waits(connection: Connection[Any, Any], seconds: float) -> None:
    """Let what is sent or read by this end of a Pipe wait so long at most; then it raises OSError.

    A process that was stopped takes no more of a body than the pipe holds, and the thread would wait for it for ever.
    """
    limit = struct.pack("ll", int(seconds), 0)  # a timeval
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


class CostlyRequests:
    """Middleware: passes costly requests to their process, and answers with what it answers.

    Multipart forms are costly too. A request of the cost SIZE with at most ``free_bytes`` of its resource is answered at once.
    """

    def __init__(self, processes: Processes, settings: Settings) -> None:
        self._processes = processes
        self._max_body = max(settings.max_body, settings.max_import_body)

    def process_resource(self, req: falcon.Request, resp: falcon.Response, resource: Any, params: Any) -> None:
        process = self._process_of(req, resource)
        if process is None:
            return
        this_takes_long()
        environ = {name: value for name, value in req.env.items() if isinstance(value, str)}
        is_post = req.method == "POST"
        answer = process.answer(
            environ,
            bodies.pieces_of(req, self._max_body) if is_post else (),
            req.env.get("waitress.client_disconnected", lambda: False),
        )
        resp.status = answer.status
        resp.set_headers(answer.headers)
        resp.data = answer.body
        req.env[DECODED] = answer.decoded
        resp.complete = True

    def _process_of(self, req: falcon.Request, resource: Any) -> BudgetProcess | None:
        """The process that answers a request; None where it is answered here."""
        if req.method == "OPTIONS":
            return None
        size = req.content_length if req.method == "POST" else len(req.query_string)
        # The resource refuses what is too long, in its own words and without reading it.
        if size is not None and size > self._max_body:
            return None
        cost = getattr(resource, "cost", None)
        cost = cost(req) if callable(cost) else cost
        free = getattr(resource, "free_bytes", FREE_BYTES)
        if cost is None and (req.content_type or "").lower().startswith("multipart/"):
            cost, free = Cost.SIZE, _FREE_FORM_BYTES
        if cost is None or (cost is Cost.SIZE and size is not None and size <= free):
            return None
        return self._processes.get(cost)
