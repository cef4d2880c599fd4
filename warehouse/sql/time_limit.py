"""A time limit on a query: it is interrupted, and where it does not hear that, its process ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from sigdir.warehouse.table.errors import QueryError

EXIT_STATUS = 2
"""Of a process that ends because its query did not."""
_AGAIN_SECONDS = 0.1  # an interruption that arrives before the engine has begun is lost
_GRACE_SECONDS = 2.0  # for the engine to end; functions of ours and the output do not hear it


class OverTime(QueryError):
    """The query took longer than it may."""


@contextmanager
def time_limit(interrupt: Callable[[], None], seconds: float | None, why: str) -> Iterator[None]:
    """Call ``interrupt`` at the time limit, None for none. Then the block raises OverTime; ``why`` is its message.

    If the block does not end, the process does.
    """
    if seconds is None:
        yield
        return
    ended = Event()
    began = time.monotonic()
    Thread(target=_end_at, args=(seconds, interrupt, ended, why), daemon=True).start()
    try:
        yield
    except QueryError as error:
        if time.monotonic() - began >= seconds:
            raise OverTime(why) from error
        raise
    finally:
        ended.set()


def _end_at(seconds: float, interrupt: Callable[[], None], ended: Event, why: str) -> None:
    """Interrupt when the time is over, again and again; end the process after a grace period."""
    if ended.wait(seconds):
        return
    last = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < last:
        interrupt()
        if ended.wait(_AGAIN_SECONDS):
            return
    os.write(2, f"Error: {why}\n".encode())
    os._exit(EXIT_STATUS)
