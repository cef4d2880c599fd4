"""A granian worker: its event loop, in the process that the supervisor started."""

from __future__ import annotations

import asyncio
import signal
import socket

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server

from sigdir.serve.servers.granian_connections import close_excess
from sigdir.serve.servers.limits import MAX_HEADER_BYTES, connection_limit
from sigdir.serve.servers.measured import MeasuredApp
from sigdir.serve.servers.rsgi import RsgiApp
from sigdir.serve.settings import Settings

_CONNECTIONS = 10_000
"""An idle one takes 10 KB and no time. granian closes it after 30 seconds."""
_CHECK_SECONDS = 1.0


def serve(app: MeasuredApp, settings: Settings, bound: socket.socket) -> None:
    """Serve ``app`` until SIGTERM, then finish the requests that have begun.

    granian opens a socket of its own on the address; ``bound`` stays open so that nobody else takes it.
    """
    asyncio.run(_serve(app, settings))


async def _serve(app: MeasuredApp, settings: Settings) -> None:
    most = connection_limit(_CONNECTIONS)
    server = Server(
        RsgiApp(app, settings, app.is_short),
        address=settings.host,
        port=settings.port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=1024,
        backpressure=most,
        http1_settings=HTTP1Settings(max_buffer_size=MAX_HEADER_BYTES),
        log_level=LogLevels.error,  # it warns that embedding is new
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: None)  # the supervisor passes a Ctrl-C on as SIGTERM
    watch = loop.create_task(_close_excess(app, settings, most))
    await server.serve()
    watch.cancel()


async def _close_excess(app: MeasuredApp, settings: Settings, most: int) -> None:
    per_address = settings.connections_per_address if settings.limits_addresses else 0
    while True:
        app.beat()
        await asyncio.sleep(_CHECK_SECONDS)
        await asyncio.to_thread(close_excess, settings.port, most, per_address)
