"""Short requests on waitress are answered by the thread that read them.

Waking another thread and being woken for its answer costs 100 us, the answer 40. The dispatcher here takes the place of a
server's ``task_dispatcher``. It uses its connections' ``service()``, ``requests`` and asyncore's methods.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from sigdir.serve.servers.short_requests import IsShort
from sigdir.warehouse.index.view import TakesLong, short_only, this_takes_long


class ShortFirst:
    """Hands connections to the server's own dispatcher, except those whose request is short and takes no longer.

    A request that was sent behind another one waits until the client has taken the answer before: by itself waitress
    has a thread wait for a client that sends many requests and reads nothing.
    """

    def __init__(self, server: Any, is_short: IsShort) -> None:
        """Of a waitress whose servers have no such attribute nothing changes."""
        self._own: Any = getattr(server, "task_dispatcher", None)
        self._is_short, self._loop = is_short, threading.get_ident()
        self._short, self._behind = deque[Any](), deque[Any]()
        if self._own is not None:
            server.task_dispatcher = self

    def add_task(self, connection: Any) -> None:
        """Take a connection. waitress holds its lock meanwhile, so nothing is answered here."""
        request = connection.requests[0]
        header = request.headers.get
        if threading.get_ident() != self._loop:
            self._behind.append(connection)
        elif not request.error and self._is_short(
            request.command, request.path, request.query, header("ACCEPT", ""), header("ACCEPT_ENCODING", "")
        ):
            self._short.append(connection)
        else:
            self._own.add_task(connection)

    def after_round(self) -> None:
        """Answer what is short. To be called by the thread of the loop each time that it has handled its connections."""
        while self._short:
            connection = self._short.popleft()
            try:
                with short_only():
                    if len(connection.requests) > 1:  # waitress may wait between two
                        this_takes_long()
                    connection.service()
            except TakesLong:
                self._own.add_task(connection)
            except Exception:  # noqa: BLE001 - waitress logs it and hangs up
                connection.handle_error()
        for connection in [self._behind.popleft() for _ in range(len(self._behind))]:
            is_unread = connection.connected and connection.writable()
            (self._behind.append if is_unread else self._own.add_task)(connection)
