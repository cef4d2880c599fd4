"""Named points at which a test may end the process: ``SIGDIR_FAILPOINT=written`` kills it there.

Inert otherwise: one look at a variable that is read once. A kill, not an exception: nothing runs
after it, as when the machine's power goes.
"""

from __future__ import annotations

import os
import signal

_WANTED = os.environ.get("SIGDIR_FAILPOINT", "")


def reach(name: str) -> None:
    """Die here if the environment names this point."""
    if name == _WANTED:
        os.kill(os.getpid(), signal.SIGKILL)
