"""Ctrl-C while the engine computes: the first one ends the query, the second one the process, at once.

Python runs its signal handlers in the main thread, and the engine may keep that thread for minutes. So a second
thread waits for the bytes that Python's C code writes for each signal, and interrupts the engine.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from sigdir.cli.errors import INTERRUPTED_STATUS
from sigdir.warehouse.errors import QueryError

_AGAIN_SECONDS = 0.1  # an interruption that arrives before the engine has begun is lost


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call ``interrupt`` at Ctrl-C or SIGTERM within the block, which then raises KeyboardInterrupt."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    asked = Event()
    watcher = Thread(target=_watch, args=(reading, interrupt, asked), daemon=True)
    watcher.start()
    try:
        yield
    except QueryError as error:  # a function of ours was interrupted, which the engine reports as its failure
        if asked.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)  # ends the watcher
        watcher.join()
        os.close(reading)


def _watch(reading: int, interrupt: Callable[[], None], asked: Event) -> None:
    """Wait for signals until the other end of the pipe is closed."""
    count = 0
    while True:
        if not select.select([reading], [], [], _AGAIN_SECONDS if count else None)[0]:
            interrupt()
            continue
        numbers = os.read(reading, 64)
        if not numbers:
            return
        count += sum(number in (signal.SIGINT, signal.SIGTERM) for number in numbers)
        if count > 1:
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED_STATUS)
        if count:
            asked.set()
            interrupt()
