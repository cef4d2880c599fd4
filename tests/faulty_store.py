"""S3 for tests: moto's server on loopback, and in front of it a proxy that fails as it is told to.

The proxy passes conditional puts on one at a time, because moto's are not atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Literal
from urllib.parse import unquote

HOST = "127.0.0.1"
BUCKET = "signatures"
SECRET = "c2VjcmV0LW9mLXRoZS10ZXN0cw"  # noqa: S105 - moto takes any
KEY = "AKIATESTS"

Kind = Literal["500", "truncated", "404", "expired", "lost answer"]


@dataclass
class Fault:
    """What happens to requests of a method whose path contains a text, the next ``times`` of them."""

    kind: Kind
    method: str
    part: str
    times: int = 10**6


@dataclass
class S3:
    """A running server. ``faults`` may be changed at any time; ``requests`` are methods and paths, oldest first, and
    ``ranges`` the paths of those that asked for a part of an object.
    """

    port: int
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    before: Callable[[str, str], None] = lambda *_: None
    """Called with each request before it is passed on."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a process that uses the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}", "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        }  # fmt: skip

    def fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and fault.part in path and fault.times > 0:
                fault.times -= 1
                return fault
        return None


@contextmanager
def s3_server() -> Iterator[S3]:
    """moto's server behind the proxy, with the bucket BUCKET."""
    from moto.server import ThreadedMotoServer  # takes a second to load, and most tests do without it

    moto = ThreadedMotoServer(HOST, 0, verbose=False)
    moto.start()
    proxy = None
    try:
        _, port = moto.get_host_and_port()
        _request(port, "PUT", f"/{BUCKET}", b"", {})
        server = S3(0)
        proxy = ThreadingHTTPServer((HOST, 0), _handler(server, port))
        proxy.daemon_threads = True
        server.port = proxy.server_address[1]
        Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
        yield server
    finally:
        if proxy is not None:
            proxy.shutdown()
            proxy.server_close()
        moto.stop()


def _request(
    port: int, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = HTTPConnection(HOST, port, timeout=300)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


_ERROR = '<?xml version="1.0"?><Error><Code>{}</Code><Message>{}</Message></Error>'
_ERRORS = {
    "500": (500, _ERROR.format("InternalError", "We encountered an internal error.")),
    "404": (404, _ERROR.format("NoSuchKey", "The specified key does not exist.")),
    "expired": (400, _ERROR.format("ExpiredToken", "The provided token has expired.")),
}


def _handler(server: S3, moto: int) -> type[BaseHTTPRequestHandler]:
    lock, creating = Lock(), Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self._body()
            with lock:
                server.requests.append((self.command, self.path))
                server.ranges += [self.path] if self.headers.get("Range") else []
                fault = server.fault(self.command, unquote(self.path))
            server.before(self.command, unquote(self.path))
            if fault is not None and fault.kind in _ERRORS:
                status, text = _ERRORS[fault.kind]
                self._answer(status, [], text.encode())
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_CONNECTION}
            # moto looks for the object and then makes it: two of sixteen conditional puts won once.
            with creating if self.headers.get("If-None-Match") else nullcontext():
                answer = _request(moto, self.command, self.path, body, headers)
            if fault is not None and fault.kind == "lost answer":
                self.close_connection = True
                return
            self._answer(*answer, cut=fault is not None and fault.kind == "truncated")

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815 - names of http.server

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, cut: bool = False) -> None:
            self.send_response_only(status)
            is_head = self.command == "HEAD"
            for name, value in headers:
                if name.lower() not in _OF_CONNECTION and (is_head or name.lower() != "content-length"):
                    self.send_header(name, value)
            if not is_head:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not is_head:
                self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.close_connection = True

    return Handler


_OF_CONNECTION = ("connection", "transfer-encoding", "date", "server")
