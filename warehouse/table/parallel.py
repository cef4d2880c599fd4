"""Work in threads and a read-ahead thread: each bounds the items in flight, and the maps keep the order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, Queue
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from sigdir.signatures.interruption import check, waiting

Item = TypeVar("Item")
Result = TypeVar("Result")

PARSER_LOCK = Lock()
"""For one thread at a time: Python 3.11's own parser fails with SystemError if another thread begins a parse meanwhile."""


def ordered_map(pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Like ``pool.map``, with at most ``ahead`` items taken and not yet yielded.

    ``pool.map`` takes all items at once, which for a file read in blocks is the whole file.
    """
    begun: deque[Future[Result]] = deque()
    try:
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) >= ahead:
                yield result_of(begun.popleft())
        while begun:
            yield result_of(begun.popleft())
    finally:
        for future in begun:
            future.cancel()


def result_of(future: Future[Result]) -> Result:
    """The result, or its error; a signal ends the wait."""
    with waiting():
        return future.result()


def for_each(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """Call ``work`` for all items in ``threads`` threads. After an error, which is raised, no further call begins."""
    with ThreadPoolExecutor(threads) as pool:
        return list(ordered_map(pool, work, items, ahead=2 * threads))


def in_background(items: Iterable[Item], ahead: int) -> Iterator[Item]:
    """The same items, made in a thread of their own, up to ``ahead`` items in advance."""
    ready: Queue[tuple[bool, Any]] = Queue(ahead)
    stopped = Event()

    def make() -> None:
        last: tuple[bool, Any] = (False, None)
        try:
            for item in items:
                ready.put((True, item))
                check()
                if stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - handed to the reader, who raises it
            last = (False, error)
        ready.put(last)

    Thread(target=make, daemon=True).start()
    try:
        while True:
            with waiting():
                more, value = ready.get()
            if not more:
                if value is not None:
                    raise value
                return
            yield value
    finally:
        # The thread may be waiting for room, so the queue is emptied. It may be reading a silent pipe, so it is not
        # joined.
        stopped.set()
        with suppress(Empty):
            while True:
                ready.get_nowait()
