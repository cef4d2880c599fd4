"""The table of HTTP servers. A new server is a worker module and a line here.

A worker module has ``serve(app, settings, bound)``: it serves ``app``, a ``MeasuredApp``, until SIGTERM and then
finishes the requests that have begun. ``bound`` is the socket that the supervisor bound to the address.
"""

from __future__ import annotations

from typing import NamedTuple


class HttpServer(NamedTuple):
    """A server: the module of its worker, and whether all workers accept connections from the supervisor's socket.

    Otherwise each worker listens on a socket of its own, and the supervisor's only reserves the address. ``package``
    is the server's own; ``extra`` is ours that installs it, "" if every installation has it.
    """

    worker: str
    shares_socket: bool
    package: str
    extra: str = ""


SERVERS = {
    "waitress": HttpServer("sigdir.serve.servers.waitress_worker", shares_socket=True, package="waitress"),
    "granian": HttpServer("sigdir.serve.servers.granian_worker", shares_socket=False, package="granian", extra="fast"),
}
