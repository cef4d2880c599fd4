"""Ctrl-C while the engine computes: the first one ends the query, the second one the process, at once. Time limits too.

Python runs its signal handlers in the main thread, and the engine may keep that thread for minutes. So a second
thread waits for the bytes that Python's C code writes for each signal, and interrupts the engine.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

from sigdir.cli.errors import Failure
from sigdir.cli.statuses import INTERRUPTED_STATUS
from sigdir.warehouse.errors import QueryError

_AGAIN_SECONDS = 0.1  # an interruption that arrives before the engine has begun is lost
_GRACE_SECONDS = 2.0  # for the engine to end at a time limit; functions of ours and the output do not hear it


@contextmanager
def interruptible(interrupt: Callable[[], None], limit: timedelta | None = None) -> Iterator[None]:
    """Call ``interrupt`` at Ctrl-C or SIGTERM within the block, which then raises KeyboardInterrupt.

    It is called at the time limit too. Then the block raises QueryError; if the block does not end, the process does.
    """
    asked, ended = Event(), Event()
    seconds = None if limit is None else limit.total_seconds()
    timer = Thread(target=_end_at, args=(seconds, interrupt, ended), daemon=True) if seconds else None
    began = time.monotonic()
    if timer:
        timer.start()
    try:
        with _watched(interrupt, asked):
            yield
    except (KeyboardInterrupt, QueryError) as error:
        if seconds and not asked.is_set() and time.monotonic() - began >= seconds:
            raise QueryError(_TOO_LONG.format(seconds)) from error
        raise
    finally:
        ended.set()


_TOO_LONG = "the query was stopped after {:g} seconds, its --timeout"


def _end_at(seconds: float, interrupt: Callable[[], None], ended: Event) -> None:
    """Interrupt when the time is over, again and again; end the process after a grace period."""
    if ended.wait(seconds):
        return
    last = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < last:
        interrupt()
        if ended.wait(_AGAIN_SECONDS):
            return
    os.write(2, f"Error: {_TOO_LONG.format(seconds)}\n".encode())
    os._exit(Failure.exit_code)


@contextmanager
def _watched(interrupt: Callable[[], None], asked: Event) -> Iterator[None]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
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
