"""Short requests on waitress are answered by the thread that read them.

Waking another thread and being woken for its answer costs 100 us, the answer 40. The dispatcher here takes the place of a
server's ``task_dispatcher``. It uses its connections' ``service()``, ``requests`` and asyncore's methods.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from sigdir.serve.servers.short_requests import IsShort
from sigdir.warehouse.index.view import TakesLong, short_only


class ShortFirst:
    """Hands connections with a request to the server's own dispatcher, except those whose request is short.

    A request that was sent behind another one waits until the client has taken the answer before: by itself waitress
    has a thread wait for a client that sends many requests and reads nothing.
    """

    def __init__(self, server: Any, is_short: IsShort) -> None:
        """Of a waitress whose servers have no such attribute nothing changes."""
        self._own: Any = getattr(server, "task_dispatcher", None)
        self._is_short, self._loop = is_short, threading.get_ident()
        self._read: deque[Any] = deque()
        self._behind: deque[Any] = deque()
        if self._own is not None:
            server.task_dispatcher = self

    def add_task(self, connection: Any) -> None:
        """Take a connection. waitress holds its lock meanwhile, so nothing is answered here."""
        (self._read if threading.get_ident() == self._loop else self._behind).append(connection)

    def _has_short(self, request: Any) -> bool:
        header = request.headers.get
        return not request.error and self._is_short(
            request.command, request.path, request.query, header("ACCEPT", ""), header("ACCEPT_ENCODING", "")
        )

    def after_round(self) -> None:
        """Answer what is short. To be called by the thread of the loop each time that it has handled its connections."""
        while self._read:
            connection = self._read.popleft()
            # Between two requests waitress may wait.
            if len(connection.requests) > 1 or not self._has_short(connection.requests[0]):
                self._own.add_task(connection)
                continue
            try:
                with short_only():
                    connection.service()
            except TakesLong:
                self._own.add_task(connection)
            except Exception:  # noqa: BLE001 - waitress logs it and hangs up
                connection.handle_error()
        for connection in [self._behind.popleft() for _ in range(len(self._behind))]:
            is_unread = connection.connected and connection.writable()
            (self._behind.append if is_unread else self._own.add_task)(connection)
