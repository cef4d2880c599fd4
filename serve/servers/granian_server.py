"""granian by its public class.

It keeps its own workers, each with a thread that answers. Its command would import from the folder where it is started.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from sigdir.serve.core.process import end_with_parent, write_line
from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.start import START_ERROR, is_served
from sigdir.serve.servers.startup import open_app
from sigdir.warehouse.table.errors import WarehouseError

STOP_SECONDS = 12
"""Less than the supervisor gives: whoever is killed while it stops leaves its workers behind."""


def main(settings: Settings) -> None:
    # A worker is forked with granian's handler, which notes a signal for the parent: one that loads would serve on.
    os.register_at_fork(after_in_child=_end_by_sigterm)
    Granian(
        "sigdir",
        address=settings.host,
        port=settings.port,
        interface=Interfaces.WSGI,
        workers=settings.workers,
        blocking_threads=settings.threads,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(max_buffer_size=65_536),
        websockets=False,
        log_level=LogLevels.error,
        respawn_failed_workers=True,
        workers_kill_timeout=STOP_SECONDS,
    ).serve(target_loader=partial(load, settings))


def _end_by_sigterm() -> None:
    """Until the worker serves; granian then sets a handler that ends it in order."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def load(settings: Settings, target: str) -> Any:
    """The application, in the worker that serves it."""
    end_with_parent()
    try:
        app, _ = open_app(settings)
        return app
    except (WarehouseError, OSError) as error:
        write_line(f"Error: {error}")
        if not is_served(settings.host, settings.port):
            os.kill(os.getppid(), signal.SIGTERM)  # granian would start another one again and again
        os._exit(START_ERROR)
