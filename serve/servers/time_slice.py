"""Short time slices for the threads that answer requests, so that they run soon beside an import.

A request wakes a thread while an import has every core. Linux lets the running thread finish its time slice, which
it checks every 4 ms; a thread that asked for shorter slices than the running one goes first. It gets no larger
share of the processor. Beside two busy loops 240 of 1,000 reads on waitress took more than
2.5 ms (1.2 ms alone), with short slices 111; on granian 107 and 90. As many requests are answered as before.

The alternative, a nice import: niceness counts only among the processes of one session (``sched_autogroup``), and
a service and a shell are two sessions. Where it counts, a server that is never idle would leave no time to an
import that holds the lock.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SLICE_NANOSECONDS = 100_000
"""The shortest that Linux gives. Its default is 1.4 ms with two cores."""

# glibc has a function for it since 2.41 only; the numbers of the system call never change.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}

# struct sched_attr, first version: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")


def shorten_time_slice() -> bool:
    """Ask for short slices for this thread and all that it starts from now on.

    False if the system has no such request. Linux before 6.12 accepts it and changes nothing.
    """
    number = _SCHED_SETATTR.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:  # an operator may have chosen another policy
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NANOSECONDS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
