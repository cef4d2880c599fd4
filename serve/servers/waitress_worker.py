"""A waitress worker: its loop, its settings, and its end in good order."""

from __future__ import annotations

import logging
import signal
import socket
import time
from typing import Any

from sigdir.serve.servers.limits import MAX_HEADER_BYTES, connection_limit
from sigdir.serve.servers.measured import MeasuredApp
from sigdir.serve.servers.waitress_channel import close_stalled, create, is_busy, run_once
from sigdir.serve.settings import Settings

_DRAIN_SECONDS = 10.0
_CHECK_SECONDS = 1.0
_CONNECTIONS = 2000  # each costs a microsecond whenever any of them has something to do


def serve(app: MeasuredApp, settings: Settings, listening: socket.socket) -> None:
    """Serve ``app`` until SIGTERM, then finish the requests that have begun."""
    server = create(
        app,
        settings.threads,
        app.is_short,
        limits_addresses=settings.limits_addresses,
        sockets=[listening],
        ident=None,
        server_name=settings.host,
        connection_limit=connection_limit(_CONNECTIONS),
        channel_timeout=60,
        # The application refuses large bodies in the words of 4byte.directory's API; this limit stops the ones it never sees.
        max_request_body_size=2 * max(settings.max_body, settings.max_import_body),
        max_request_header_size=MAX_HEADER_BYTES,
        # An answer stays in memory until the client has taken it; the default writes it to disk from 1 MiB.
        outbuf_overflow=16 << 20,
        # Of a streamed answer, so much waits in memory for its client; then the thread waits too.
        outbuf_high_watermark=1 << 20,
        # Memory for a body that is on its way, per connection; the rest goes to disk.
        inbuf_overflow=65_536,
        log_socket_errors=False,  # it logs a traceback for each client that went away
        clear_untrusted_proxy_headers=False,
        asyncore_use_poll=True,
    )
    # It would warn of each request that waits for a thread.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    per_address = settings.connections_per_address if settings.limits_addresses else 0
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor passes a Ctrl-C on as SIGTERM
    checked = 0.0
    while not stopping:
        app.beat()
        run_once(server, 0.5)
        if (now := time.monotonic()) - checked > _CHECK_SECONDS:
            close_stalled(server, now, per_address)
            checked = now
    _drain(server)


def _drain(server: Any) -> None:
    """Accept no more connections, finish the requests that have begun, close."""
    server.del_channel()
    server.socket.close()
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and any(map(is_busy, list(server.active_channels.values()))):
        run_once(server, 0.05)
    server.task_dispatcher.shutdown()
