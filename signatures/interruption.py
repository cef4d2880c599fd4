"""Ctrl-C and SIGTERM are noted, and the work ends where it looks: ``check`` in loops, ``waiting`` around what blocks.

An exception out of a signal handler can come anywhere. Where numba loads a kernel it becomes a SystemError, in a
destructor it is lost. So the handler raises within ``waiting`` only. Python runs handlers in the main thread alone, which
the SQL engine may keep for minutes: a second thread reads the bytes that Python's C code writes for each signal.

Without ``noting`` nothing is noted, and Python's own handler raises, as users of the library expect.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import TypeVar

Item = TypeVar("Item")
Interrupt = Callable[[], object]

_GRACE_SECONDS = 10.0
"""From the signal to the end of the process, if the work does not end. A process may be killed at any instant."""
_AGAIN_SECONDS = 0.1  # an interruption that arrives before the engine has begun is lost
_STOPS = (signal.SIGINT, signal.SIGTERM)

_noted: list[int] = []
_waits: list[Interrupt | None] = []
"""What blocks now: how to interrupt it; None for the main thread in what ends where the handler raises."""


def is_noted() -> bool:
    """Whether a signal came."""
    return bool(_noted)


def check() -> None:
    """Raise KeyboardInterrupt if a signal came; in any thread."""
    if _noted:
        raise KeyboardInterrupt


@contextmanager
def waiting(interrupt: Interrupt | None = None) -> Iterator[None]:
    """Within the block a signal raises KeyboardInterrupt at once. For what blocks the main thread and runs no kernels.

    Or it calls ``interrupt`` in another thread, again and again, and what the block raises becomes KeyboardInterrupt.
    """
    check()
    if interrupt is None and current_thread() is not main_thread():
        yield
        return
    _waits.append(interrupt)
    try:
        check()  # the handler of a signal that came just before did not raise
        yield
    except Exception as error:
        if _noted:
            raise KeyboardInterrupt from error
        raise
    finally:
        _waits.remove(interrupt)


def each(items: Iterable[Item], interrupt: Interrupt | None = None) -> Iterator[Item]:
    """The items. A signal ends the wait for the next one."""
    iterator = iter(items)
    while True:
        with waiting(interrupt):
            found = list(islice(iterator, 1))
        if not found:
            return
        yield found[0]


@contextmanager
def postponed() -> Iterator[None]:
    """Within the block Ctrl-C does nothing; at its end it does what it would have done."""
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came and callable(handler):  # a second signal would count as one more
            handler(signal.SIGINT, None)
        elif came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def noting(end: Callable[[], object], stops: Sequence[int] = _STOPS) -> Iterator[None]:
    """Note these signals until the end of the block, in the main thread.

    ``end`` ends the process as it is. It is called at the second signal, and where the block has not ended some seconds
    after the first one.
    """

    def note(number: int, _: FrameType | None) -> None:
        _noted.append(number)
        if None in _waits:
            raise KeyboardInterrupt

    handlers = {stop: signal.getsignal(stop) for stop in stops}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watcher = Thread(target=_watch, args=(reading, note, end), daemon=True)
    watcher.start()
    try:
        for stop, handler in handlers.items():
            if handler is not signal.SIG_IGN:  # a shell's background job ignores Ctrl-C
                signal.signal(stop, note)
        yield
    finally:
        for stop, handler in handlers.items():
            signal.signal(stop, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(writing)  # ends the watcher
        watcher.join()
        os.close(reading)
        _noted.clear()


def _watch(reading: int, note: object, end: Callable[[], object]) -> None:
    """Interrupt what waits, until the other end of the pipe is closed."""
    came, last = 0, float("inf")
    readable = select.poll()  # takes any descriptor; select.select none from 1024 on
    readable.register(reading, select.POLLIN)
    while True:
        if readable.poll(1000 * _AGAIN_SECONDS if came else None):
            numbers = os.read(reading, 64)
            if not numbers:
                return
            mine = [number for number in numbers if signal.getsignal(number) is note]
            if mine and not came:
                last = time.monotonic() + _GRACE_SECONDS
            came += len(mine)
            _noted.extend(mine)
        if came > 1 or time.monotonic() > last:
            end()
        for interrupt in [one for one in _waits if came and one is not None]:
            with suppress(Exception):  # the connection may just have been closed
                interrupt()
