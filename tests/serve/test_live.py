"""A server among other processes: several workers, several writers, imports, folds, kills and stops.

Everything here runs on real processes over a real warehouse. What is awaited is an event; the only
limits are those that end a test which hangs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.serve.core.texts import canonical_text
from sigdir.serve.core.writer import Writer
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.rows import StagedRow
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, environment, import_files
from tests.serve.support import (
    ABI_PATH,
    FORM,
    HOST,
    JSON,
    SIGNATURES_PATH,
    Server,
    by,
    children_of,
    found,
    get,
    local,
    only,
    pinned,
    post_text,
    serving,
    until,
    whole,
)

Record = dict[str, Any]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers that do not fold by themselves. Tests add texts of their own and count on no others."""
    with serving(tmp_path_factory.mktemp("live") / "warehouse") as server:
        yield server


@pytest.fixture
def server(live: Server) -> Iterator[Server]:
    yield live
    assert live.errors() == []


def run_sigdir(folder: Path, *arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command on a server's warehouse, to its end."""
    done = subprocess.run(
        [*command_line(), *map(str, arguments)], cwd=ROOT, env=environment(folder), input=stdin,
        capture_output=True, timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done


@contextmanager
def importing(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An import that has begun to read standard input and goes on until that is closed."""
    command = [*command_line(), "import", "-", "--json", "--quiet", "--format", "text"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        until(lambda: any((folder / "tmp").glob("*/lock")), "the import to begin")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def finish(process: subprocess.Popen[bytes], lines: Sequence[str]) -> Record:
    """Give an import its lines and wait for its report."""
    output, _ = process.communicate("".join(f"{line}\n" for line in lines).encode(), timeout=SAFETY_SECONDS)
    assert process.returncode == 0
    report: Record = json.loads(output)
    return report


def posted(server: Server, text: str, path: str = SIGNATURES_PATH) -> Record:
    answer = post_text(server.port, text, path)
    assert answer.status == 201, answer.body
    row: Record = answer.json()
    return row


def assert_in_order(rows: Sequence[Record]) -> None:
    """Oldest first: ids and times rise, and no text comes twice."""
    assert all(one["id"] < other["id"] for one, other in pairwise(rows))
    assert all(one["created_at"] < other["created_at"] for one, other in pairwise(rows))
    assert len({row["text_signature"] for row in rows}) == len(rows)


# Two workers.


def test_the_ready_line_names_the_pages_first(server: Server) -> None:
    """The address opens in a browser; the three commands after it use the API. A new folder is named before it."""
    new, ready, _, *tries = server.stderr().splitlines()[:6]
    address = f"http://{HOST}:{server.port}"
    assert (new, ready) == (f"new warehouse at {server.folder}", f"ready: {address}/")
    assert [f"{address}/api/v1/" in line and line.startswith("  curl ") for line in tries] == [True] * 3
    home = get(server.port, "/", {"Accept": "text/html"})
    assert (home.status, home.header("Content-Type")) == (200, "text/html; charset=utf-8")


def test_a_row_is_there_on_any_worker_once_it_is_acknowledged(server: Server) -> None:
    """What one worker has answered 201 for, the other has in its very next answer, and the other way round."""
    first, second = server.workers()
    for round in range(5):
        for writer, reader in ((first, second), (second, first)):
            with only(server, writer):
                row = posted(server, f"acrossWorkers{round}_{writer}()")
            with only(server, reader):
                page = get(server.port, f"{SIGNATURES_PATH}?page_size=1").json()
                assert page["results"] == [row]
                assert get(server.port, f"{SIGNATURES_PATH}{row['id']}/").json() == row
                assert found(server.port, row["text_signature"]) == [row]
                assert post_text(server.port, row["text_signature"]).status == 400
    assert_in_order(whole(server.port))


def test_a_tag_is_the_same_on_every_worker(server: Server) -> None:
    """While nothing changes, both workers give one ETag, so a client may use either worker."""
    tags = set()
    for worker in server.workers():
        with only(server, worker):
            tags.add(get(server.port, SIGNATURES_PATH).header("ETag"))
    assert len(tags) == 1


# Other processes publish.


class Watcher(threading.Thread):
    """Reads the list over and over: whole on one page, and page by page. Keeps what was not right."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._ending = threading.Event()
        self.wrong: list[str] = []
        self.counts: set[int] = set()
        self.walks = 0

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                self._look()
                self._walk()
                self.walks += 1
        except Exception as error:  # noqa: BLE001 - the test fails with it
            self.wrong.append(repr(error))

    def _page(self, path: str) -> tuple[str, Record]:
        answer = get(self._port, path)
        if answer.status != 200:
            self.wrong.append(f"{path}: {answer.status} {answer.body!r}")
        page: Record = answer.json()
        return answer.header("ETag"), page

    def _look(self) -> None:
        """A page that has room for all rows has exactly as many as it counts, in order."""
        _, page = self._page(f"{SIGNATURES_PATH}?page_size=1000&text_signature=watched")
        rows = page["results"]
        self.counts.add(page["count"])
        if len(rows) != page["count"] or page["next"] is not None:
            self.wrong.append(f"{len(rows)} rows of {page['count']}")
        try:
            assert_in_order(rows[::-1])
        except AssertionError:
            self.wrong.append("rows out of order or twice")

    def _walk(self) -> None:
        """Pages with one tag belong to one state: together they have each row once."""
        tags, ids, counts = set(), [], set()
        link: str | None = f"{SIGNATURES_PATH}?page_size=97&text_signature=watched"
        while link is not None:
            tag, page = self._page(local(link))
            tags.add(tag)
            counts.add(page["count"])
            ids += [row["id"] for row in page["results"]]
            link = page["next"]
        if len(tags) == 1 and (counts != {len(ids)} or sorted(ids, reverse=True) != ids or len(set(ids)) != len(ids)):
            self.wrong.append(f"one state, {counts} rows counted, {len(ids)} seen")

    def finish(self) -> None:
        self._ending.set()
        self.join(SAFETY_SECONDS)
        assert self.wrong == []
        assert self.walks > 0


@contextmanager
def watched(server: Server) -> Iterator[Watcher]:
    watcher = Watcher(server.port)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.finish()


def test_an_import_and_a_fold_are_seen_whole_at_once(server: Server, tmp_path: Path) -> None:
    """Rows imported or folded by another process are on every worker when that process ends; no request
    fails meanwhile, and none sees a part of them."""
    lines = [f"watchedImport{number}(uint256)" for number in range(400)]
    source = tmp_path / "in.txt"
    source.write_text("\n".join(lines))
    before = [posted(server, f"watchedBefore{number}()") for number in range(5)]
    with watched(server) as watcher:
        run_sigdir(server.folder, "import", source, "--quiet")
        for worker in server.workers():
            with only(server, worker):
                assert get(server.port, f"{SIGNATURES_PATH}?text_signature=watched").json()["count"] == 405
        after = [posted(server, f"watchedAfter{number}()") for number in range(5)]
        rows = whole(server.port)
        fold(Paths(server.folder))
        for worker in server.workers():
            with only(server, worker):
                assert whole(server.port) == rows
                assert post_text(server.port, "watchedBefore0()").status == 400
    assert watcher.counts <= set(range(6)) | set(range(405, 411))
    assert_in_order(rows)
    texts = [row["text_signature"] for row in rows if row["text_signature"].startswith("watched")]
    assert texts == [row["text_signature"] for row in before] + lines + [row["text_signature"] for row in after]
    table = sigdir.open(server.folder).sql("SELECT id, text_signature FROM signatures ORDER BY id").arrow()
    assert table.to_pylist() == [{"id": row["id"], "text_signature": row["text_signature"]} for row in rows]


def test_a_text_posted_while_an_import_reads_it_stays_the_posted_row(server: Server) -> None:
    """A POST does not wait for a running import, and its row keeps the text: the import counts a duplicate."""
    lines = [f"lateText{number}()" for number in range(50)]
    with importing(server.folder) as process:
        rows = [posted(server, f"function lateText{number} ( )") for number in (0, 25, 49)]
        report = finish(process, lines)
    assert report["totals"] == {"read": 50, "imported": 47, "duplicate": 3, "rejected": 0}
    held = whole(server.port)
    assert_in_order(held)
    late = {row["text_signature"]: row for row in held if row["text_signature"].startswith("lateText")}
    assert sorted(late) == sorted(lines)
    assert [late[row["text_signature"]] for row in rows] == rows


# Several writers.


def test_posts_that_share_a_commit_get_their_own_rows(tmp_path: Path) -> None:
    """Threads of one worker that share a commit get each their own rows, and each text is stored once."""
    paths = Paths(tmp_path / "warehouse")
    reader = Reader(paths)
    posts = Writer(paths, reader)
    texts = [[f"shared{(thread * 7 + number) % 90}()" for number in range(60)] for thread in range(8)]

    def post_each(part: list[str]) -> list[tuple[str, StagedRow | None]]:
        return [(text, posts.store([canonical_text(SIGNATURES, text)])[0]) for text in part]

    with ThreadPoolExecutor(8) as pool:
        stored = [pair for pairs in pool.map(post_each, texts) for pair in pairs]
    rows = [(text, row) for text, row in stored if row is not None]
    assert all(row.text == text for text, row in rows)
    assert sorted(text for text, _ in rows) == sorted({text for part in texts for text in part})
    assert len({row.id for _, row in rows}) == len(rows) == reader.current().count(SIGNATURES)
    posts.close()
    reader.close()


def test_a_page_waits_for_no_thread(tmp_path: Path) -> None:
    """A page and a lookup are answered while the only thread waits for the right to write."""
    with serving(tmp_path / "warehouse", "--threads", "1", workers=1) as server:
        post_text(server.port, "first()")
        staging = Staging(Paths(tmp_path / "warehouse").staging)
        with ThreadPoolExecutor() as pool:
            with staging.exclusive_statement():
                waiting = pool.submit(post_text, server.port, "second()")
                until(lambda: _is_locked_out(server), "the POST waits")
                page = get(server.port, SIGNATURES_PATH)
                assert [row["text_signature"] for row in page.json()["results"]] == ["first()"]
                assert get(server.port, f"{SIGNATURES_PATH}?hex_signature=0x3df4ddf4").json()["count"] == 1
                assert not waiting.done()
            assert waiting.result().status == 201
        staging.close()


def _is_locked_out(server: Server) -> bool:
    """Whether a process waits for a file lock that another holds."""
    waiting = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line)
    return bool({fields[5] for fields in waiting} & {str(pid) for pid in server.workers()})


def test_an_import_over_http_lets_posts_through(server: Server) -> None:
    """A long import on one worker does not hold up the POSTs on another: these get ids between its rows."""
    first, second = server.workers()
    with pinned(server, first) as long, pinned(server, second) as short:
        # On a loaded machine the first import may be over before the other client has its turn.
        assert any(_posted_between(server, f"longAbi{number}x", long, short) for number in range(5))


def _posted_between(server: Server, name: str, long: HTTPConnection, short: HTTPConnection) -> bool:
    """Import 10,000 functions on one connection and POST on the other meanwhile: whether a POST got an id between theirs."""
    abi = json.dumps([{"type": "function", "name": f"{name}{number}", "inputs": []} for number in range(10_000)])
    ids: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        importing = pool.submit(_post_on, long, ABI_PATH, {"contract_abi": abi})
        while not importing.done():
            status, row = _post_on(short, SIGNATURES_PATH, {"text_signature": f"beside{len(ids)}{name}()"})
            assert status == 201
            ids.append(row["id"])
        assert importing.result() == (201, {
            "num_processed": 10_000, "num_imported": 10_000, "num_duplicates": 0, "num_ignored": 0,
        })  # fmt: skip
    edges = [found(server.port, f"{name}{number}(")[0]["id"] for number in (0, 9_999)]
    return any(edges[0] < id < edges[1] for id in ids)


def _post_on(connection: HTTPConnection, path: str, value: Record) -> tuple[int, Record]:
    connection.request("POST", path, json.dumps(value), JSON)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


# Kills and stops.


def test_a_killed_worker_is_replaced(server: Server) -> None:
    """After kill -9 of one worker requests go on, its rows are there, and a new one takes its place."""
    first, second = server.workers()
    with only(server, first):
        row = posted(server, "byTheKilledWorker()")
    os.kill(first, signal.SIGKILL)
    assert found(server.port, "byTheKilledWorker") == [row]
    posts = 0

    def replaced() -> list[int] | None:
        nonlocal posts
        posts += 1
        posted(server, f"whileOneIsDead{posts}()")
        workers = server.workers()
        return workers if len(workers) == 2 and first not in workers else None

    assert second in until(replaced, "a new worker")
    (new,) = set(server.workers()) - {second}
    with only(server, new):  # it may still be loading; the request waits for it
        assert found(server.port, "byTheKilledWorker") == [row]
        posted(server, "byTheNewWorker()")
    assert_in_order(whole(server.port))


@contextmanager
def connected(port: int, receive: int = 0) -> Iterator[socket.socket]:
    """A connection; ``receive`` makes the room for what it has not read small."""
    with socket.socket() as connection:
        connection.settimeout(SAFETY_SECONDS)
        if receive:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        connection.connect((HOST, port))
        yield connection


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    response = HTTPResponse(connection)
    try:
        response.begin()
        return response.status, response.read()
    finally:
        response.close()


def test_a_stop_finishes_the_requests_that_have_begun(tmp_path: Path) -> None:
    """SIGTERM while a POST is half sent and a long page half read: both end well, and then the server does."""
    warehouse = tmp_path / "warehouse"
    long = [f"long{number}({','.join(['uint256'] * 500)})" for number in range(1000)]
    source = tmp_path / "long.txt"
    source.write_text("\n".join(long))
    import_files([source], warehouse)
    body = b"text_signature=sentSlowly(uint256)"
    head = f"POST {SIGNATURES_PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM['Content-Type']}\r\n"
    with (
        serving(warehouse, workers=1) as server,
        connected(server.port) as slow,
        connected(server.port, 4096) as reading,
    ):
        slow.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body[:10])
        reading.sendall(f"GET {SIGNATURES_PATH}?page_size=1000 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        begun = reading.recv(1000, socket.MSG_PEEK)
        assert begun.startswith(b"HTTP/1.1 200")
        get(server.port, "/healthz")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not _answers(server.port), "the server to take no more connections")
        assert server.process.poll() is None
        slow.sendall(body[10:])
        status, answer = read_answer(slow)
        assert status == 201
        row = json.loads(answer)
        status, answer = read_answer(reading)
        assert status == 200
        assert len(answer) > 4_000_000
        assert len(json.loads(answer)["results"]) == 1000
        assert server.process.wait(SAFETY_SECONDS) == 0
        assert server.errors() == []
    fold(Paths(warehouse))
    (stored,) = sigdir.open(warehouse).sql(
        "SELECT id, text_signature FROM signatures WHERE text_signature LIKE 'sentSlowly%'"
    ).arrow().to_pylist()  # fmt: skip
    assert stored == {"id": row["id"], "text_signature": "sentSlowly(uint256)"}


def _answers(port: int) -> bool:
    """Whether a new connection is served. One that is taken for deaf too early makes the test no stricter."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            return connection.recv(1) != b""
    except OSError:
        return False


# Starting, and folding by itself.


@pytest.mark.long
@pytest.mark.parametrize("name", ["waitress", "granian"])
def test_killing_the_parent_ends_the_server(tmp_path: Path, name: str) -> None:
    """Workers that went on by themselves would keep the port, and nobody would replace them."""
    with serving(tmp_path / "warehouse", *by(name), fold_every=1) as server:
        row = posted(server, "beforeTheParentDies()")
        workers = server.workers()
        assert len(workers) == 2
        server.process.kill()
        server.process.wait(SAFETY_SECONDS)
        until(lambda: not any(map(is_running, workers)), "the workers' end")
    with serving(tmp_path / "warehouse") as server:
        assert found(server.port, "beforeTheParentDies()") == [row]


@pytest.mark.parametrize("name", ["waitress", "granian"])
def test_killing_the_parent_ends_workers_that_load(tmp_path: Path, name: str) -> None:
    """They have not reached their own code yet."""
    command = [*command_line(), "serve", "--port", "0", "--server", name]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(tmp_path / "warehouse"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        children = until(lambda: [pid for pid, _ in children_of(process.pid)], "a child")
        process.kill()
    until(lambda: not any(map(is_running, children)), "the end of the children")


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


HOSTILE = "import os, pathlib\npathlib.Path(os.environ['MARK']).write_text(__file__)\nraise SystemExit(9)\n"
"""A module that leaves a mark when it is executed."""


@pytest.mark.long
@pytest.mark.parametrize("name", ["waitress", "granian"])
def test_no_code_of_the_folder_it_starts_in_is_executed(tmp_path: Path, name: str) -> None:
    """Modules named as ours, as our dependencies and as Python's own lie where ``sigdir serve`` starts: it serves, and
    folds."""
    folder, mark, warehouse = tmp_path / "here", tmp_path / "mark", tmp_path / "warehouse"
    for module in ("sigdir", "serve", "orjson", "granian", "waitress", "falcon", "json", "uvloop", "sitecustomize"):
        (folder / module).mkdir(parents=True)
        (folder / module / "__init__.py").write_text(HOSTILE)
        (folder / f"{module}.py").write_text(HOSTILE)
    command = [sys.executable, "-P", "-m", "sigdir"]
    with serving(
        warehouse, *by(name), fold_every=1, command=command, cwd=folder, variables={"MARK": str(mark)}
    ) as server:
        posted(server, "honest()")
        until(Paths(warehouse).last_fold.exists, "the fold")
        assert get(server.port, "/statistics/").status == 200
        assert server.errors() == []
    assert not mark.exists(), mark.read_text()


def test_a_taken_port_is_an_error_of_one_line(server: Server, tmp_path: Path) -> None:
    """A second server on the port ends with status 2 and a sentence."""
    command = [*command_line(), "serve", "--warehouse", str(tmp_path / "other"), "--port", str(server.port)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=SAFETY_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert re.fullmatch(
        rf"Error: 127\.0\.0\.1:{server.port}: .+; choose another with --port \(0 picks a free one\)\n", done.stderr
    )
