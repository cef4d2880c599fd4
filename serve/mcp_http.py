"""``/mcp``: the tools for agents by the Model Context Protocol over HTTP, a request and its answer at a time.

The package's own ASGI application reads each request and writes its answer as JSON. No session outlives its request, so any worker
answers any request. The process of costly requests runs them: it bounds what an agent's arguments may cost, and workers
need not load the package. The tool ``solve`` is asked in the process that gives way.
"""

from __future__ import annotations

import asyncio
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import falcon

from sigdir.serve.core.budget import Cost
from sigdir.serve.http import bodies
from sigdir.signatures.bytecode import MAX_BYTES

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from sigdir.warehouse.index.view import Reader

_BODY_BYTES = 3 * MAX_BYTES  # a contract's code as hex digits, and what is around them
_MAY_NAME_SOLVE = re.compile(rb'"name"\s*:\s*"solve"|\\u|\0')
"""JSON has it as it is, with escapes, or in UTF-16 or UTF-32, which have zero bytes."""


class McpResource:
    """POST takes a message of JSON-RPC, as clients of streamable HTTP send it."""

    free_bytes = -1  # workers do not load the package

    def __init__(self, reader: Reader, *, solves: bool) -> None:
        self._reader, self._solves = reader, solves

    def cost(self, req: falcon.Request) -> Cost:
        """Whether a message may name the tool ``solve``. Clients of protocols before 2026 do so in the body alone."""
        names_solve = self._solves and _MAY_NAME_SOLVE.search(bodies.peeked(req, _BODY_BYTES))
        return Cost.PATIENCE if names_solve else Cost.SIZE

    @cached_property
    def _server(self) -> MCPServer:
        from sigdir.pipeline.warehouse_directory import WarehouseDirectory
        from sigdir.serve.mcp_server import mcp_server  # 1 s, which no worker needs

        return mcp_server(WarehouseDirectory(self._reader), solves=self._solves)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        body = bodies.read_body(req, _BODY_BYTES)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in req.headers.items()]
        start, content = asyncio.run(_answer(self._server, headers, body))
        resp.status = falcon.code_to_http_status(start["status"])
        for name, value in start.get("headers", ()):
            if name.lower() != b"content-length":
                resp.set_header(name.decode("latin-1"), value.decode("latin-1"))
        resp.data = content


async def _answer(server: MCPServer, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[dict[str, Any], bytes]:
    """The message of ASGI that starts the answer, and the answer's body."""
    from mcp.server.transport_security import TransportSecuritySettings

    # Who may reach the server may read all of it, so no name of a host is more trusted than another.
    app: Any = server.streamable_http_app(
        json_response=True, stateless_http=True, max_request_body_size=_BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )  # fmt: skip
    given = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not given:
            await asyncio.Event().wait()  # the client stays
        return given.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/mcp", "query_string": b"", "headers": headers,
    }  # fmt: skip
    async with app.router.lifespan_context(app):
        await app(scope, receive, send)
    return sent[0], b"".join(message.get("body", b"") for message in sent[1:])
