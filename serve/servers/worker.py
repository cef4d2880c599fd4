"""One worker process: opens the warehouse and serves it until SIGTERM.

Started by the supervisor as ``python -P -m sigdir.serve.servers.worker ARGUMENT``, with the settings in SIGDIR_
variables. The argument is ``check`` or ``SERVER:SOCKET:COUNTS:PLACE:LIFE``:

    SERVER  a name in the registry of servers
    SOCKET  the descriptor of the bound socket
    COUNTS  the descriptor of the counts that all workers share
    PLACE   the worker's place in the counts
    LIFE    the descriptor of a pipe that closes when the supervisor ends

With ``check`` the process ends after opening the warehouse, and shows why no worker starts.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from importlib import import_module
from typing import Any

_DRAIN_SECONDS = 12.0


def end_with(life: int) -> None:
    """End this process when the other end of the pipe is closed: its holder has ended, even by kill -9.

    Requests that have begun are finished, if that takes no longer than _DRAIN_SECONDS.
    """
    threading.Thread(target=_wait_for_end, args=(life,), name="life", daemon=True).start()


def _wait_for_end(life: int) -> None:
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_DRAIN_SECONDS)
    os._exit(1)


def main(argument: str) -> None:
    if argument != "check":
        end_with(int(argument.rpartition(":")[2]))
    run(argument)


def run(argument: str) -> None:
    # Loading these takes a second; the process ends with its parent meanwhile too.
    from sigdir.serve.budget import BudgetProcess
    from sigdir.serve.metrics.counts import Counts
    from sigdir.serve.servers.registry import SERVERS
    from sigdir.serve.servers.startup import open_app
    from sigdir.serve.servers.time_slice import shorten_time_slice
    from sigdir.serve.settings import Settings
    from sigdir.warehouse.errors import WarehouseError

    settings = Settings.from_environment()
    shorten_time_slice()
    try:
        if argument == "check":
            open_app(settings)
        else:
            server, *numbers = argument.split(":")
            bound, counts, place, _ = map(int, numbers)
            budget = BudgetProcess(settings)
            app = open_app(settings, Counts(counts, place), budget)
            budget.start()
            worker: Any = import_module(SERVERS[server].worker)
            worker.serve(app, settings, socket.socket(fileno=bound))
    except (WarehouseError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        os._exit(2)  # threads may still run


if __name__ == "__main__":
    main(sys.argv[1])
