"""One worker process: opens the warehouse and serves it until SIGTERM.

Started by the supervisor as ``python -P -m sigdir.serve.servers.worker ARGUMENT``, with the settings in SIGDIR_
variables. The argument is ``SERVER:SOCKET:COUNTS:PLACE`` or ``check``. The first names one of the table of servers,
the descriptors of the bound socket and of the shared counts, and the worker's place in these. With ``check`` the
process ends after opening the warehouse, and shows why no worker starts.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from typing import Any

from sigdir.serve.metrics.counts import Counts
from sigdir.serve.servers.registry import SERVERS
from sigdir.serve.servers.startup import open_app
from sigdir.serve.servers.time_slice import shorten_time_slice
from sigdir.serve.settings import Settings
from sigdir.warehouse.errors import WarehouseError


def main(argument: str) -> None:
    settings = Settings.from_environment()
    shorten_time_slice()
    try:
        if argument == "check":
            open_app(settings)
        else:
            server, *numbers = argument.split(":")
            bound, counts, place = map(int, numbers)
            app = open_app(settings, Counts(counts, place))
            worker: Any = import_module(SERVERS[server].worker)
            worker.serve(app, settings, socket.socket(fileno=bound))
    except (WarehouseError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        os._exit(2)  # threads may still run


if __name__ == "__main__":
    main(sys.argv[1])
