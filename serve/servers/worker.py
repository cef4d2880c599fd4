"""One waitress worker: serves the listening socket it was handed until it is told to stop.

Started by the supervisor as ``python -m sigdir.serve.servers.worker FD``, or ``python -m sigdir.serve.servers.worker check`` to find out
why no worker starts. Settings come in SIGDIR_ variables.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from waitress import wasyncore
from waitress.server import create_server

from sigdir.serve.servers.channel import Channel, Dispatcher
from sigdir.serve.servers.gate import Gate, lead
from sigdir.serve.servers.startup import open_app
from sigdir.serve.servers.time_slice import take_short_turns
from sigdir.serve.settings import Settings
from sigdir.warehouse.errors import WarehouseError

_DRAIN_SECONDS = 10.0
_MOST_CONNECTIONS = 2000
_FEWEST_CONNECTIONS = 16
_OWN_FILES = 256  # mapped columns, SQLite's three, the bodies that went to disk


def serve(settings: Settings, listening: socket.socket) -> None:
    take_short_turns()
    dispatcher = Dispatcher()
    dispatcher.set_thread_count(settings.threads)
    server: Any = create_server(
        open_app(settings),
        _dispatcher=dispatcher,
        sockets=[listening],
        threads=settings.threads,
        ident=None,
        server_name=settings.host,
        connection_limit=_connections(),
        channel_timeout=60,
        # The application bounds bodies and says so in the contract's words; this is the wall behind it.
        max_request_body_size=2 * max(settings.max_body, settings.max_import_body),
        max_request_header_size=65_536,
        # A body is one piece of memory for the client's socket; the default goes to disk at 1 MiB.
        outbuf_overflow=16 << 20,
        # Of a body that is on its way each connection holds so much; the rest goes to disk.
        inbuf_overflow=65_536,
        log_socket_errors=False,  # a client that went away, told with a traceback
        clear_untrusted_proxy_headers=False,
        asyncore_use_poll=True,
    )
    server.channel_class = Channel
    # With one thread a request behind another is no news.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor passes a Ctrl-C on as SIGTERM
    while not stopping:
        wasyncore.loop(timeout=0.5, use_poll=True, map=server._map, count=1)
    _drain(server)


def _connections() -> int:
    """How many connections to hold open: what the process may, less the files that it has itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = _MOST_CONNECTIONS if hard == resource.RLIM_INFINITY else hard - _OWN_FILES
    return max(_FEWEST_CONNECTIONS, min(_MOST_CONNECTIONS, most))


def _drain(server: Any) -> None:
    """Take no more connections, finish the requests that have begun, close."""
    server.del_channel()
    server.socket.close()
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and any(map(_is_busy, list(server.active_channels.values()))):
        wasyncore.loop(timeout=0.05, use_poll=True, map=server._map, count=1)
    server.task_dispatcher.shutdown()


def _is_busy(channel: Any) -> bool:
    return bool(channel.requests or channel.total_outbufs_len or channel.request is not None)


def granian_app() -> Any:
    """The application for granian, which calls this in each of its workers."""
    take_short_turns()
    settings = Settings.from_environment()
    app = _or_end(lambda: open_app(settings))
    return app if lead(settings.threads) else Gate(app, settings.threads)


def main(argument: str) -> None:
    settings = Settings.from_environment()
    if argument == "check":
        _or_end(lambda: open_app(settings))
    else:
        _or_end(lambda: serve(settings, socket.socket(fileno=int(argument))))


def _or_end(work: Callable[[], Any]) -> Any:
    """Do the work; where the warehouse does not allow it, say why in a line and end the process."""
    try:
        return work()
    except (WarehouseError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)
        os._exit(2)  # granian would print the traceback of an exception


if __name__ == "__main__":
    main(sys.argv[1])
