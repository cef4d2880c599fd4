"""What the tests of the server share: a real server process, the application in this process, a client of both, rows in memory."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes, urlencode
from wsgiref.validate import WSGIWarning

import numpy as np
from Crypto.Hash import keccak
from falcon.testing import TestClient
from waitress import wasyncore
from waitress.server import create_server

from sigdir.serve.app import create_app
from sigdir.serve.core.budget import BudgetProcess, Cost
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.segment import Segment, sorted_hashes
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment
from tests.processes import Command

HOST = "127.0.0.1"
SIGNATURES_PATH = "/api/v1/signatures/"
EVENTS_PATH = "/api/v1/event-signatures/"
ABI_PATH = "/api/v1/import-abi/"
SOLIDITY_PATH = "/api/v1/import-solidity/"
LISTS: Mapping[Collection, str] = {SIGNATURES: SIGNATURES_PATH, EVENT_SIGNATURES: EVENTS_PATH}

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

TRANSFER = "transfer(address,uint256)"
SPAM = "many_msg_babbage(bytes1)"
"""It has the selector of ``TRANSFER``."""
EVENT = "Transfer(address,address,uint256)"
TOPIC = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
"""The hash of ``EVENT``."""

Found = TypeVar("Found")


# The hashes, by another implementation.


def digest(text: str) -> bytes:
    """The Keccak-256 of a text, 32 bytes."""
    value: bytes = keccak.new(digest_bits=256, data=text.encode()).digest()
    return value


def selector(text: str) -> str:
    return "0x" + digest(text)[:4].hex()


def topic(text: str) -> str:
    return "0x" + digest(text).hex()


# A client.


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; ``body`` as it was sent, compressed or not."""

    status: int
    headers: HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


def request(
    at: Place, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """One request of the application, or on a connection of its own, with no header but Host and those given."""
    if isinstance(at, Application):
        return at.answer(method, path, body, headers)
    connection = HTTPConnection(HOST, at, timeout=SAFETY_SECONDS)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return _answer(connection.getresponse())
    finally:
        connection.close()


def _answer(response: HTTPResponse) -> Answer:
    return Answer(response.status, response.headers, response.read())


def get(at: Place, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    return request(at, "GET", path, headers=headers)


def post(at: Place, path: str, value: Any) -> Answer:
    """POST a value as JSON."""
    return request(at, "POST", path, json.dumps(value).encode(), JSON)


def post_text(at: Place, text: str, path: str = SIGNATURES_PATH) -> Answer:
    return request(at, "POST", path, urlencode({"text_signature": text}).encode(), FORM)


def send(port: int, data: bytes, *, half_close: bool = False) -> Answer | None:
    """Send bytes as they are; None if the server closes the connection without an answer."""
    with socket.create_connection((HOST, port), timeout=SAFETY_SECONDS) as connection:
        with suppress(OSError):  # the server may close first, and may have answered
            connection.sendall(data)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        response = HTTPResponse(connection)
        try:
            response.begin()
            return _answer(response)
        except (HTTPException, OSError):
            return None
        finally:
            response.close()


@contextmanager
def connected(port: int, data: bytes = b"", receive: int = 65_536) -> Iterator[socket.socket]:
    """A connection on which this was sent. The kernel takes little of an answer that nobody reads."""
    with socket.socket() as connection:
        connection.settimeout(SAFETY_SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        connection.connect((HOST, port))
        connection.sendall(data)
        yield connection


def answer_on(connection: socket.socket) -> Answer:
    """The next answer of a connection, which stays open."""
    response = HTTPResponse(connection)
    response.begin()
    return _answer(response)


def multipart(
    fields: Mapping[str, str | bytes], files: Mapping[str, bytes] | None = None
) -> tuple[bytes, dict[str, str]]:
    """A form as multipart: the body, and the headers that go with it."""
    boundary = "the-boundary"
    parts = [(f'name="{name}"', value.encode() if isinstance(value, str) else value) for name, value in fields.items()]
    parts += [(f'name="{name}"; filename="a.sol"', value) for name, value in (files or {}).items()]
    lines = [
        f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + value + b"\r\n"
        for head, value in parts
    ]
    body = b"".join(lines) + f"--{boundary}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def local(link: str) -> str:
    """An absolute link without scheme and host."""
    return re.sub(r"^http://[^/]+", "", link)


def whole(at: Place, collection: Collection = SIGNATURES) -> list[dict[str, Any]]:
    """Every row of a collection, oldest first, page by page; the collection must not change meanwhile."""
    rows: list[dict[str, Any]] = []
    link: str | None = f"{LISTS[collection]}?ordering=created_at&page_size=1000"
    while link is not None:
        answer = get(at, local(link))
        assert answer.status == 200
        page = answer.json()
        rows += page["results"]
        link = page["next"]
        if link is None:
            assert len(rows) == page["count"]
    return rows


def found(at: Place, text: str, collection: Collection = SIGNATURES) -> list[dict[str, Any]]:
    """The rows whose text contains this one."""
    page = get(at, f"{LISTS[collection]}?{urlencode({'text_signature': text})}").json()
    rows: list[dict[str, Any]] = page["results"]
    return rows


# A server.

Process = subprocess.Popen[bytes] | Command


class Server:
    """A running ``sigdir serve`` and the warehouse it serves."""

    def __init__(self, folder: Path, errors: Path, process: Process, port: int) -> None:
        self.folder = folder
        self.process = process
        self.port = port
        self._errors = errors

    def stderr(self) -> str:
        """What the server has written to standard error."""
        return self._errors.read_text()

    def errors(self) -> list[str]:
        """The lines on standard error that report an error of the server itself."""
        return [line for line in self.stderr().splitlines() if line.startswith(("Traceback", "error:", "Error"))]

    def workers(self) -> list[int]:
        """The process ids of the workers, the oldest first."""
        children = children_of(self.process.pid)
        for pid, name in children:
            if name == "sigdir-granian":
                return [worker for worker, its_name in children_of(pid) if its_name == name]
        return [pid for pid, name in children if name == "sigdir-worker"]

    def is_on_waitress(self) -> bool:
        """Whether its workers share a socket, so that any of them can answer a connection."""
        return any(name == "sigdir-worker" for _, name in children_of(self.process.pid))

    def kill(self) -> None:
        """Kill -9 of the parent and everything it started."""
        children = [pid for pid, _ in children_of(self.process.pid)]
        self.process.kill()
        self.process.wait(SAFETY_SECONDS)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SAFETY_SECONDS)


def children_of(parent: int) -> list[tuple[int, str]]:
    """Process id and name of each child that lives."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            name = (folder / "comm").read_text().rstrip("\n")
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        if int(above) == parent and state != "Z":
            found.append((int(folder.name), name))
    return sorted(found)


def family(pid: int) -> list[tuple[int, str]]:
    """Process id and name of all that live below this one."""
    return [each for child in children_of(pid) for each in (child, *family(child[0]))]


def by(server: str) -> list[str]:
    """The options of ``serving`` for waitress or granian."""
    return ["--server", server]


@contextmanager
def serving(
    folder: Path, *arguments: str | Path, workers: int = 2, fold_every: float = 0, command: Sequence[str] = (),
    cwd: Path = ROOT, variables: Mapping[str, str] | None = None,
) -> Iterator[Server]:  # fmt: skip
    """A server on a free port, ready when the block begins and stopped at its end with exit status 0.

    It is forked, or ``command`` starts it, in the folder ``cwd``, with ``variables`` in its environment.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    errors = folder.with_name(f"{folder.name}.{time.monotonic_ns()}.stderr")
    options = ["serve", "--warehouse", str(folder), "--host", HOST, "--port", "0"]
    # ``only`` halts workers, which a busy machine makes long.
    options += ["--silent-seconds", "0"] if "--silent-seconds" not in arguments else []
    options += ["--workers", str(workers), "--fold-every", str(fold_every), "--no-log-requests", *map(str, arguments)]
    given, nowhere = environment(folder) | dict(variables or {}), Path(os.devnull)
    process: Process
    if command:
        with errors.open("wb") as stderr, nowhere.open("r+b") as null:
            process = subprocess.Popen([*command, *options], cwd=cwd, env=given, stdin=null, stdout=null, stderr=stderr)
    else:
        process = Command(options, cwd, given, nowhere, errors)
    server = Server(folder, errors, process, 0)
    try:
        server.port = until(lambda: _port(server), "the line that the server is ready")
        assert get(server.port, "/readyz").status == 200
        yield server
        if process.poll() is None:
            assert server.stop() == 0, server.stderr()
    finally:
        if process.poll() is None:
            server.kill()


def _port(server: Server) -> int | None:
    assert server.process.poll() is None, server.stderr()
    ready = re.search(r"^ready: http://[\d.]+:(\d+)/", server.stderr(), re.MULTILINE)
    return int(ready[1]) if ready else None


def until(look: Callable[[], Found | None], what: str) -> Found:
    """The first true result of ``look``. The time limit only ends a test that hangs."""
    deadline = time.monotonic() + SAFETY_SECONDS
    while time.monotonic() < deadline:
        seen = look()
        if seen:
            return seen
        time.sleep(0.02)
    raise AssertionError(f"waited {SAFETY_SECONDS} s for {what}")


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def is_ready(port: int) -> bool:
    """Whether a server listens there and is ready."""
    with suppress(OSError):
        return get(port, "/readyz").status == 200
    return False


@contextmanager
def only(server: Server, worker: int) -> Iterator[None]:
    """Halt the other workers, so that this one must answer."""
    others = [pid for pid in server.workers() if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


# An application without a server.


@contextmanager
def opened(root: Path) -> Iterator[tuple[Reader, Writer]]:
    """What an application over this warehouse reads and writes through."""
    paths = Paths(root)
    reader = Reader(paths)
    writer = Writer(paths, reader)
    try:
        yield reader, writer
    finally:
        writer.close()
        reader.close()


@dataclass(frozen=True, slots=True)
class Application:
    """The application over the warehouse in ``folder``, in this process, as it answers to ``http://HOST``."""

    folder: Path
    client: TestClient

    def answer(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None) -> Answer:
        path, _, query = path.partition("?")
        # falcon's client knows no path that is not UTF-8, and no query that begins with a question mark
        more = {"PATH_INFO": unquote_to_bytes(path).decode("latin-1"), "QUERY_STRING": query}
        if body is not None:
            more["CONTENT_LENGTH"] = str(len(body))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WSGIWarning)  # of a method that wsgiref does not know
            result = self.client.simulate_request(method, path, body=body, headers=headers, host=HOST, extras=more)
        message = HTTPMessage()
        for name, value in result.headers.items():
            message[name] = value
        return Answer(result.status_code, message, result.content)


@contextmanager
def application(folder: Path, budget: BudgetProcess | None = None, **settings: Any) -> Iterator[Application]:
    """The application with these settings, over a warehouse that is made if it is not there."""
    with opened(folder) as storage:
        yield Application(
            folder,
            TestClient(
                create_app(Settings(folder, **settings), *storage, processes={Cost.SIZE: budget} if budget else None)
            ),
        )


@contextmanager
def listening(app: Application) -> Iterator[int]:
    """The port on which waitress serves an application, by threads of this process."""
    stopping, sockets = threading.Event(), dict[int, Any]()
    server: Any = create_server(
        app.client.app, map=sockets, host=HOST, port=0, threads=4, clear_untrusted_proxy_headers=False
    )

    def loop() -> None:
        while not stopping.is_set():
            wasyncore.loop(timeout=0.05, use_poll=True, map=sockets, count=1)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield int(server.effective_port)
    finally:
        stopping.set()
        thread.join()
        server.task_dispatcher.shutdown()
        wasyncore.close_all(sockets)


Place = int | Application
"""What a request goes to: the port of a server, or an application in this process."""


# Rows in memory.


class Row(NamedTuple):
    """A row as a plain value; ``created_at`` in microseconds since 1970."""

    id: int
    created_at: int
    text: str
    hash: bytes


def rows_by_prefix(hash: Any) -> dict[bytes, list[int]]:
    """The rows of each hash's first four bytes, as staged rows have them."""
    found: dict[bytes, list[int]] = {}
    for row, value in enumerate(hash):
        found.setdefault(value[:4].tobytes(), []).append(row)
    return found


def segment_of(rows: Sequence[Row], *, width: int = 4, by_hash: bool = False, slack: int = 0) -> Segment:
    """A segment of these rows, with the order of its hashes or without.

    ``slack`` makes all arrays longer than the rows need, as those of staged rows are.
    """
    raw = [row.text.encode() for row in rows]
    offsets = np.zeros(len(rows) + 1 + slack, np.int64)
    offsets[1 : len(rows) + 1] = np.cumsum([len(text) for text in raw], dtype=np.int64) if rows else 0
    hash = np.zeros((len(rows) + slack, width), np.uint8)
    for at, row in enumerate(rows):
        hash[at] = np.frombuffer(row.hash, np.uint8)
    rest = [0] * slack
    return Segment.of(
        len(rows),
        np.array([*(row.id for row in rows), *rest], np.int64),
        np.array([*(row.created_at for row in rows), *rest], np.int64),
        offsets,
        np.frombuffer(b"".join(raw) + b"transfer(address,uint256)" * slack, np.uint8),
        hash,
        sorted_hashes(hash) if by_hash and not slack else rows_by_prefix(hash),
    )


def view_of(segments: Sequence[Segment], collection: Collection = SIGNATURES) -> View:
    """A view that has these segments in one collection and nothing in the other."""
    none = {SIGNATURES: (), EVENT_SIGNATURES: ()}
    return View(Snapshot(), none | {collection: tuple(segments)}, "token", b"")


def record_of(row: Row) -> dict[str, Any]:
    """The row in the contract's form, rendered with datetime and str only."""
    # A datetime counts microseconds, so nothing is rounded.
    from_epoch = np.datetime64(row.created_at, "us").item()
    return {
        "id": row.id,
        "created_at": from_epoch.strftime("%Y").rjust(4, "0") + from_epoch.strftime("-%m-%dT%H:%M:%S.%fZ"),
        "text_signature": row.text,
        "hex_signature": "0x" + row.hash.hex(),
        "bytes_signature": row.hash.decode("latin-1"),
    }
