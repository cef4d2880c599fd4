"""Clients made to break a server, on a real port, against waitress and against granian.

Whatever one of them sends, or does not send, the others are answered meanwhile, the workers' memory stays
within bounds, and neither an answer nor the server's log has a traceback.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from http.client import HTTPException
from itertools import count
from pathlib import Path

import pytest

from tests.conftest import import_lines
from tests.serve.support import (
    ABI_PATH,
    FORM,
    HOST,
    JSON,
    SIGNATURES_PATH,
    Answer,
    Server,
    answer_on,
    by,
    children_of,
    connected,
    family,
    found,
    get,
    post_text,
    request,
    selector,
    send,
    serving,
    until,
)

MIB = 1 << 20
FORM_LINE = f"Content-Type: {FORM['Content-Type']}"
GROWTH_MIB = 400
"""The bound for the growth of the workers' peak memory, together, over all tests."""

THREADS = 4
WORKERS = 2
numbers = count()


@pytest.fixture(scope="module", params=["waitress", pytest.param("granian", marks=pytest.mark.long)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers over 2,000 rows, so that a page has 480 kB."""
    folder = tmp_path_factory.mktemp(request.param) / "warehouse"
    import_lines(folder, *(f"function{number}({','.join(['uint256'] * 40)})" for number in range(2_000)))
    with serving(folder, *by(request.param), workers=WORKERS) as server:
        for _ in range(20):  # memory that the first requests need
            get(server.port, f"{SIGNATURES_PATH}?page_size=1000")
        open_all(server)
        before, workers = _peaks(server), server.workers()
        yield server
        grown = _grown(server, before)
        assert grown < GROWTH_MIB * MIB, f"{grown / MIB:.0f} MiB"
        assert server.workers() == workers, "a worker was replaced"


@pytest.fixture
def server(served: Server) -> Iterator[Server]:
    yield served
    assert_served(served)
    assert served.errors() == []
    assert "Traceback" not in served.stderr()


@pytest.fixture
def patient(server: Server) -> Server:
    """A server that waits for slow clients itself."""
    if not server.is_on_waitress():
        pytest.skip("a slow client holds a thread of granian: a proxy stands in front of it")
    return server


def _grown(server: Server, before: Mapping[int, int]) -> int:
    """The bytes that the peaks of the processes have grown by, all together."""
    return sum(peak - before[pid] for pid, peak in _peaks(server).items() if pid in before)


def _peaks(server: Server, reset: bool = False) -> dict[int, int]:
    """The peak resident bytes of each process of the server; with ``reset`` they begin anew."""
    peaks = {}
    for pid in (server.process.pid, *dict(family(server.process.pid))):
        with suppress(OSError):
            if reset:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            status = Path(f"/proc/{pid}/status").read_text()
            peaks[pid] = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return peaks


def assert_served(server: Server) -> None:
    """Other clients can read and write. Four reads most likely reach both workers."""
    for _ in range(4):
        assert get(server.port, f"{SIGNATURES_PATH}?page_size=1").status == 200
    assert post_text(server.port, f"served{next(numbers)}()").status == 201


def assert_no_server_error(answer: Answer | None) -> None:
    """A client error, 501 or no answer, and nothing of our code in it."""
    if answer is not None:
        assert answer.status < 500 or answer.status == 501, answer.body
        assert b"Traceback" not in answer.body
        assert b'File "' not in answer.body


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: a", *lines, "", ""]).encode()


# Slow ones.


def test_far_more_slow_bodies_than_threads(patient: Server) -> None:
    """Twenty times as many as threads never finish their bodies while others read and write; a few finish theirs later
    and are answered."""
    with ExitStack() as stack:
        waiting = []
        for _ in range(20 * THREADS * WORKERS):
            body = b'{"text_signature": "patient%d()"}' % next(numbers)
            message = head("POST", SIGNATURES_PATH, "Content-Type: application/json", f"Content-Length: {len(body)}")
            waiting.append((stack.enter_context(connected(patient.port, message + body[:5])), body[5:]))
        for _ in range(5):
            assert_served(patient)
        for connection, rest in waiting[::10]:
            connection.sendall(rest)
        for connection, _ in waiting[::10]:
            assert answer_on(connection).status == 201


def test_large_downloads_that_nobody_reads_hold_nobody_up(patient: Server) -> None:
    """Twenty answers of 19 MB, for sixteen threads, are not read while others are served; each worker sends some and
    refuses the others. Then one is read whole."""
    hashes = found(patient.port, "function7(")[0]["hex_signature"][2:].encode() + b"\n"
    lines = ["Content-Type: text/plain", f"Content-Length: {50_000 * len(hashes)}"]
    message = head("POST", "/api/v1/resolve/", *lines) + hashes * 50_000
    with ExitStack() as stack:
        unread = [stack.enter_context(connected(patient.port, message)) for _ in range(20)]
        begun = [each for each in unread if each.recv(13) == b"HTTP/1.1 200 "]
        assert 4 <= len(begun) <= 8
        for _ in range(10):
            assert_served(patient)
        with begun[0].makefile("rb") as answer:
            while answer.readline() != b"\r\n":
                pass
            chunks = []
            while (size := int(answer.readline(), 16)) != 0:
                chunks.append(answer.read(size + 2)[:-2])
        assert b"".join(chunks).count(b"function7(") == 50_000


def test_a_thousand_idle_connections_are_no_trouble(server: Server) -> None:
    """Half of them silent, half after a request of their own; others are served at once."""
    with ExitStack() as stack:
        for number in range(1_000):
            data = head("GET", f"{SIGNATURES_PATH}?page_size=1") if number % 2 else b""
            stack.enter_context(connected(server.port, data))
        for _ in range(5):
            assert_served(server)


def test_connections_that_are_torn_are_forgotten(server: Server) -> None:
    """Clients that reset the connection in the middle of headers, of a body, or before the answer."""
    messages = [
        b"", b"GET /api", head("GET", SIGNATURES_PATH)[:-2], head("GET", f"{SIGNATURES_PATH}?page_size=1000"),
        head("POST", SIGNATURES_PATH, "Content-Type: application/json", "Content-Length: 100") + b"{",
        head("POST", SIGNATURES_PATH, "Content-Type: application/json", "Transfer-Encoding: chunked") + b"5\r\n{",
        head("GET", SIGNATURES_PATH) * 300,
    ]  # fmt: skip
    for _ in range(10):
        for message in messages:
            with connected(server.port, message) as connection:
                reset = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    assert_served(server)


# Floods and lies.


FLOODS = [
    b"".join(b"X-%d: y\r\n" % number for number in range(20_000)),
    b"X: " + b"y" * MIB + b"\r\n",
    b"X: " + b"y" * MIB,
    b"X: y\r\n" + b" y\r\n" * 20_000,
]


def test_floods_of_headers_are_refused(server: Server) -> None:
    """With a status where the client still listens; on many connections at once too."""
    with ExitStack() as stack:
        flooded = []
        for flood in FLOODS * 10:
            connection = stack.enter_context(connected(server.port))
            with suppress(OSError):  # the server may have closed the connection
                connection.sendall(head("GET", SIGNATURES_PATH)[:-2] + flood + b"\r\n")
                flooded.append(connection)
        assert_served(server)
        for connection in flooded:
            with suppress(OSError, HTTPException):
                refused = answer_on(connection)
                assert refused.status in (400, 431)
                assert b"Traceback" not in refused.body


def test_a_header_has_64_kib(patient: Server) -> None:
    answer = send(patient.port, head("GET", "/", "X: " + "y" * 100_000))
    assert answer is not None
    assert answer.status == 431


def test_lengths_that_lie_store_nothing(server: Server) -> None:
    """Lengths over and under the body's, beyond memory, and together with chunks store nothing."""
    body = b"text_signature=lyingLength(uint256)"
    for lines in (
        [f"Content-Length: {len(body) + 1}"], ["Content-Length: 10"], ["Content-Length: " + "9" * 30], ["Content-Length: x"],
        ["Content-Length: -2"], ["Content-Length: "], ["Content-Length: 2", "Content-Length: 3"],
        [f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: identity"], ["Transfer-Encoding: chunked", "Content-Length: x"], ["Transfer-Encoding : chunked"],
    ):  # fmt: skip
        message = head("POST", SIGNATURES_PATH, FORM_LINE, *lines) + body
        answer = send(server.port, message, half_close=True)
        assert_no_server_error(answer)
        assert answer is None or answer.status >= 400, lines
    assert found(server.port, "lyingLength") == []


def test_a_body_in_chunks_is_a_body(patient: Server) -> None:
    body = b'{"text_signature": "inChunks(uint256)"}'
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:5], body[5:20], body[20:]))
    message = head("POST", SIGNATURES_PATH, "Content-Type: application/json", "Transfer-Encoding: chunked")
    answer = send(patient.port, message + chunks + b"0\r\n\r\n")
    assert answer is not None
    assert (answer.status, answer.json()["text_signature"]) == (201, "inChunks(uint256)")


def test_http_1_0_is_answered(patient: Server) -> None:
    """Without a Host the links have the address of the request; then the connection is closed."""
    answer = send(patient.port, f"GET {SIGNATURES_PATH}?page_size=1 HTTP/1.0\r\n\r\n".encode())
    assert answer is not None
    assert answer.json()["next"] == f"http://{HOST}:{patient.port}{SIGNATURES_PATH}?page=2&page_size=1"


def test_a_body_of_a_get_is_not_the_next_request(server: Server) -> None:
    """The body of a GET is skipped and is not parsed as the next request."""
    inner = head("POST", SIGNATURES_PATH, FORM_LINE, "Content-Length: 25")
    inner += b"text_signature=smuggled()"
    message = head("GET", f"{SIGNATURES_PATH}?page_size=1", f"Content-Length: {len(inner)}") + inner
    message += head("GET", "/healthz", "Connection: close")
    with connected(server.port, message) as connection, connection.makefile("rb") as answers:
        received = answers.read()
    assert received.count(b"HTTP/1.1 ") <= 2
    assert b"HTTP/1.1 201" not in received
    assert found(server.port, "smuggled") == []


LINES = [
    "GET / HTTP/0.9", "GET", "", "GET / HTTP/3.0", "GET / HTTP/1.", "GET  /  HTTP/1.1", "PRI * HTTP/2.0", "OPTIONS * HTTP/1.1",
    "A" * 10_000 + " / HTTP/1.1", "G\0T / HTTP/1.1", "GET http://[::1/ HTTP/1.1", "GET //a/b HTTP/1.1", "BREW / HTTP/1.1",
    "CONNECT a:1 HTTP/1.1", "GET /%00%0d%0aX:%20y HTTP/1.1", "GET /api/v1/signatures/%0d%0aX:y HTTP/1.1",
    "GET /api/v1/signatures/1/../../../etc/passwd HTTP/1.1", "GET /api/v1/signatures/?\xff\xfe HTTP/1.1", "GET /\xff\0 HTTP/1.1",
    "get / HTTP/1.1", "\x16\x03\x01\x02", "GET /api/v1/signatures/" + "9" * 60_000 + "/ HTTP/1.1", "GET /a\tb HTTP/1.1",
]  # fmt: skip


def test_absurd_requests_are_refused_or_answered(server: Server) -> None:
    for line in LINES:
        answer = send(server.port, f"{line}\r\nHost: a\r\nConnection: close\r\n\r\n".encode("latin-1"), half_close=True)
        assert_no_server_error(answer)
        assert answer is None or "X" not in answer.headers, line


# Bodies.


def test_bodies_over_every_limit_are_refused(server: Server) -> None:
    """Announced or in chunks, with 413; as JSON up to twice the limit, beyond that the server refuses by itself. What is
    announced is refused before it is sent. On granian no body comes in chunks."""
    answer = send(server.port, head("POST", ABI_PATH, FORM_LINE, f"Content-Length: {1 << 40}"))
    assert answer is not None
    assert answer.status == 413
    chunk = b"100000\r\n" + b"x" * MIB + b"\r\n"
    for path, size in ((SIGNATURES_PATH, 2), (ABI_PATH, 17), (ABI_PATH, 33)):
        message = head("POST", path, FORM_LINE, "Transfer-Encoding: chunked")
        answer = send(server.port, message + chunk * size + b"0\r\n\r\n")
        assert answer is None or answer.status == (413 if server.is_on_waitress() else 411)
        assert answer is None or size > 32 or list(answer.json()) == ["detail"]


def test_a_body_that_is_cut_short_stores_nothing(server: Server) -> None:
    """By Content-Length, in the middle of a chunk and between two; the text that came would be a valid one."""
    text = b"text_signature=cutShort(uint256)"
    chunked = head("POST", SIGNATURES_PATH, FORM_LINE, "Transfer-Encoding: chunked")
    in_chunks = 400 if server.is_on_waitress() else 411  # granian does not tell that one is cut short
    for message, status in (
        (head("POST", SIGNATURES_PATH, FORM_LINE, f"Content-Length: {len(text) + 5}") + text, 400),
        (chunked + b"%x\r\n" % (len(text) + 5) + text, in_chunks),
        (chunked + b"%x\r\n" % len(text) + text + b"\r\n", in_chunks),
    ):
        answer = send(server.port, message, half_close=True)
        assert answer is None or answer.status == status
    assert found(server.port, "cutShort") == []


# Requests made to be dear.

STORED = f"function7({','.join(['uint256'] * 40)})"
_LOG = {"topics": ["0x" + "11" * 32] * 4, "data": "0x" + "00" * 32 * 64}
_EVENTS = [f"event E{number}({','.join(['bytes'] * 1_000)})" for number in range(14)]
_ABI = [{"type": "function", "name": "f", "inputs": [{"type": "uint8[0][65000]"}] * 9}] * 1_000
_RETURNED = {
    "as": "return",
    "data": "0x" + "00" * 32_000,
    "texts": [f"function f() returns ({','.join(['uint8'] * 1_300)})"] * 8,
}
_COPIES = "39" * 100 + "".join(f"61{number:04x}fe" for number in range(16_000))
_ALMOST = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + b"\r\n--" * (15 * MIB // 4) + b"\r\n--b--\r\n"


DEAR: dict[str, tuple[str, str, bytes, Mapping[str, str]]] = {
    "an ABI at hand": ("POST", "/api/v1/decode/", json.dumps({"data": selector(STORED), "abi": _ABI}).encode(), JSON),
    "what a call returned": ("POST", "/api/v1/decode/", json.dumps(_RETURNED).encode(), JSON),
    "copies": ("POST", "/api/v1/contract/", json.dumps({"code": _COPIES}).encode(), JSON),
    "a long array": ("POST", "/api/v1/decode/", b'["f(uint8[0][65000][65000]) 0x12345678"]', JSON),
    "arrays": ("POST", "/api/v1/decode/", json.dumps(["f(uint8[0][65000]) 0x12345678"] * 200).encode(), JSON),
    "an array on the page": ("GET", "/decode/?data=f(uint8[0][65000])%0a0x12345678", b"", {}),
    "logs": ("POST", "/api/v1/decode/", json.dumps(_LOG | {"texts": _EVENTS}).encode(), JSON),
    "almost boundaries": ("POST", "/submit/", _ALMOST, {"Content-Type": "multipart/form-data; boundary=b"}),
    "long stored texts": ("POST", "/api/v1/decode/", json.dumps([f"{selector(STORED)}{'ff' * 1280}"] * 60).encode(), JSON),
    "a long stored text on the page": ("POST", "/decode/", f"data={selector(STORED)}{'ff' * 32_000}".encode(), FORM),
}  # fmt: skip
"""Each of these, or its like, held a worker's interpreter for seconds to hours, or was answered with megabytes. Those that
are dear by one unit that is repeated are in ``tests/fuzz/test_cost.py``."""

MOST_SECONDS, MOST_SECONDS_PER_MIB = 2.0, 0.5
"""The budget of ``docs/http.md``, and a second for what reads code and for the worker."""
MOST_BYTES = 64 * MIB
"""Of memory, of all processes together."""
MOST_BYTES_A_BYTE, FRAME_BYTES = 64, 64 << 10
"""Of an answer for each byte of its request, and those of a page without any."""


@pytest.mark.parametrize("name", DEAR)
def test_dear_requests_are_cheap_or_refused(server: Server, name: str) -> None:
    """In processor time of all processes that have it, also of one that it ends, and in bytes of the answer. A worker has no
    long body whole: it passes 15 MiB on in pieces, to the process that reads them."""
    method, path, body, headers = DEAR[name]
    open_all(server)
    before = _seconds(server)
    memory = _peaks(server, reset=True)
    answer = request(server.port, method, path, body, headers)
    after = _seconds(server)
    spent = sum(after.values()) - sum(before.values())
    spent -= sum(after[new] for new in after.keys() - before.keys() if "sigdir-costly" in new)  # it starts meanwhile
    assert _grown(server, memory) <= MOST_BYTES
    if body == _ALMOST:
        of_workers = {pid: memory[pid] for pid in server.workers()}
        assert (answer.status, len(of_workers)) == (413, WORKERS)
        assert _grown(server, of_workers) < 8 * MIB
    assert answer.status < 500, answer.body[:200]
    assert len(answer.body) <= MOST_BYTES_A_BYTE * (len(path) + len(body)) + FRAME_BYTES
    assert spent < MOST_SECONDS + MOST_SECONDS_PER_MIB * len(body) / MIB


def open_all(server: Server) -> None:
    """Send long requests until the process that each worker has for them has opened the warehouse."""

    def all_open() -> bool:
        assert request(server.port, "POST", "/api/v1/decode/", b" " * 300, JSON).status == 400
        children = [child for worker in server.workers() for child in children_of(worker)]
        found = [pid for pid, name in children if name == "sigdir-costly"]
        return len(found) == WORKERS and all(
            str(server.folder) in Path(f"/proc/{pid}/maps").read_text() for pid in found
        )

    until(all_open, "both processes of long requests")


def _seconds(server: Server) -> dict[str, float]:
    """Of each process of the server, and of all that it has waited for: seconds of processor time, by id and name."""
    spent = {}
    for pid, name in family(server.process.pid):
        with suppress(OSError):
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
            spent[f"{pid} {name}"] = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return spent
