"""Directories for mirrors: servers on loopback that answer as a function says, or send bytes as a test says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, BaseServer, ThreadingTCPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from sigdir.pipeline.fetch import RetryPolicy
from sigdir.signatures.collections import SIGNATURES
from tests.conftest import SAFETY_SECONDS
from tests.pipeline.support import keccak256
from tests.serve.support import EVENTS_PATH, HOST, SIGNATURES_PATH

EAGER = RetryPolicy(rate=1e6, tries=3, delay=0.01, timeout=SAFETY_SECONDS)

Reply = tuple[int, dict[str, str], bytes]
Script = Callable[[str, dict[str, str]], Reply]
AnyServer = TypeVar("AnyServer", bound=BaseServer)


@contextmanager
def running(server: AnyServer) -> Iterator[AnyServer]:
    """Serve in a thread."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(SAFETY_SECONDS)
        server.server_close()


class Scripted(ThreadingHTTPServer):
    """A server on a free port that answers as a function says; ``asked`` has the paths."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__((HOST, 0), _Handler)
        self.script = script
        self.asked: list[str] = []
        self.url = f"http://{HOST}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        status, headers, body = self.server.script(urlsplit(self.path).path, query)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body)), "Connection": "close"} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # who asked may have read enough
            self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def scripted(script: Script) -> Iterator[Scripted]:
    with running(Scripted(script)) as server:
        yield server


def row(id: int, text: str, width: int = 4) -> dict[str, Any]:
    return {"id": id, "text_signature": text, "hex_signature": "0x" + keccak256(text)[:width].hex()}


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    return status, headers or {}, json.dumps(value).encode()


NOT_THERE: Reply = (404, {}, b"not here")
EMPTY = reply({"count": 0, "next": None, "previous": None, "results": []})


def pages_of(rows: list[dict[str, Any]], path: str, query: dict[str, str], size: int = 2) -> Reply:
    """As 4byte.directory answers, oldest first."""
    if path == EVENTS_PATH:
        return EMPTY
    if path != SIGNATURES_PATH:
        return NOT_THERE
    assert query["ordering"] == "created_at"
    number = int(query["page"])
    here = rows[(number - 1) * size : number * size]
    if not here:
        return NOT_THERE
    return reply(
        {"count": len(rows), "next": "http://elsewhere/" if number * size < len(rows) else None, "results": here}
    )


def feed_of(rows: list[dict[str, Any]], path: str, query: dict[str, str], most: int = 1000) -> Reply:
    """As our server answers: rows behind the cursor, then a line with the next one."""
    if path != "/api/v1/changes/":
        return pages_of(rows, path, query)
    if query["collection"] != SIGNATURES:
        return 200, {}, b'{"next":"e0","more":false,"left":0}\n'
    after = int(query.get("after", "s0")[1:], 16)
    left = [row for row in rows if row["id"] > after]
    here = left[: min(int(query["limit"]), most)]
    last = {
        "next": f"s{here[-1]['id'] if here else after:x}", "more": len(here) < len(left), "left": len(left) - len(here),
    }  # fmt: skip
    return 200, {}, b"".join(json.dumps(line).encode() + b"\n" for line in [*here, last])


@contextmanager
def sending(send: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and then does what ``send`` does; yields its URL."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):  # the client has gone
                self.request.recv(1 << 16)
                send(self.request)

    server = ThreadingTCPServer((HOST, 0), Handler)
    server.daemon_threads = True
    with running(server):
        yield f"http://{HOST}:{server.server_address[1]}"
