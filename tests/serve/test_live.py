"""A server among other processes: several workers, imports, folds, kills and stops, on real processes over a real warehouse.

What is awaited is an event; the only limits are those that end a test which hangs.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.serve.core.writer import canonical_text
from sigdir.serve.metrics import OTHER
from sigdir.serve.servers.granian_server import STOP_SECONDS
from sigdir.serve.servers.start import is_served, lock_address
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.files import FileLock
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment, import_lines
from tests.examples import long_except
from tests.pipeline.support import invoke
from tests.processes import Command, run_forked
from tests.serve.support import (
    ABI_PATH,
    FORM,
    HOST,
    SIGNATURES_PATH,
    Server,
    answer_on,
    application,
    by,
    children_of,
    connected,
    found,
    free_port,
    get,
    only,
    opened,
    post,
    post_text,
    serving,
    until,
    whole,
)
from tests.serve.test_counts import LOOKUP, requests, scraped, value

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


def posted(server: Server, text: str) -> Record:
    answer = post_text(server.port, text)
    assert answer.status == 201, answer.body
    row: Record = answer.json()
    return row


def assert_in_order(rows: Sequence[Record]) -> None:
    """Oldest first: ids and times rise, and no text comes twice."""
    assert all(one["id"] < other["id"] for one, other in pairwise(rows))
    assert all(one["created_at"] < other["created_at"] for one, other in pairwise(rows))
    assert len({row["text_signature"] for row in rows}) == len(rows)


def on_each(server: Server) -> Iterator[int]:
    """Each worker in turn, while it alone answers."""
    for worker in server.workers():
        with only(server, worker):
            yield worker


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
    """What one worker has answered 201 for, the other has in its very next answer; their ETags are the same."""
    first, second = server.workers()
    for writer, reader in ((first, second), (second, first)):
        with only(server, writer):
            row = posted(server, f"acrossWorkers{writer}()")
        with only(server, reader):
            assert get(server.port, f"{SIGNATURES_PATH}?page_size=1").json()["results"] == [row]
            assert get(server.port, f"{SIGNATURES_PATH}{row['id']}/").json() == row
            assert post_text(server.port, row["text_signature"]).status == 400
    assert_in_order(whole(server.port))
    assert len({get(server.port, SIGNATURES_PATH).header("ETag") for _ in on_each(server)}) == 1


# Other processes publish.


@contextmanager
def watched(server: Server, counts: set[int]) -> Iterator[None]:
    """Read the list of watched rows over and over: a page has as many rows as it counts, each once."""
    ending, path = threading.Event(), f"{SIGNATURES_PATH}?text_signature=watched&page_size=1000"

    def walk() -> None:
        while not ending.is_set():
            page = get(server.port, path).json()
            counts.add(page["count"])
            assert (len(page["results"]), page["next"]) == (page["count"], None)
            assert_in_order(page["results"][::-1])

    with ThreadPoolExecutor(1) as pool:
        walking = pool.submit(walk)
        try:
            yield
        finally:
            ending.set()
        walking.result(SAFETY_SECONDS)


def test_an_import_and_a_fold_are_seen_whole_at_once(server: Server, tmp_path: Path) -> None:
    """Rows that another process imported or folded are on every worker when it ends; no request fails or sees a part."""
    lines = [f"watchedImport{number}(uint256)" for number in range(400)]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    before = [posted(server, f"watchedBefore{number}()") for number in range(5)]
    counts: set[int] = set()
    with watched(server, counts):
        command = ["import", str(tmp_path / "in.txt"), "--quiet"]
        run_forked(command, ROOT, environment(server.folder), SAFETY_SECONDS).check_returncode()
        for _ in on_each(server):
            assert get(server.port, f"{SIGNATURES_PATH}?text_signature=watched").json()["count"] == 405
        after = [posted(server, f"watchedAfter{number}()") for number in range(5)]
        rows = whole(server.port)
        fold(Paths(server.folder))
        for _ in on_each(server):
            assert whole(server.port) == rows
            assert post_text(server.port, "watchedBefore0()").status == 400
    assert counts <= {*range(6), *range(405, 411)}
    assert_in_order(rows)
    texts = [row["text_signature"] for row in rows if row["text_signature"].startswith("watched")]
    assert texts == [row["text_signature"] for row in before] + lines + [row["text_signature"] for row in after]
    table = sigdir.open(server.folder).sql("SELECT id, text_signature FROM signatures ORDER BY id").arrow()
    assert table.to_pylist() == [{"id": row["id"], "text_signature": row["text_signature"]} for row in rows]


def test_the_command_changes_what_a_running_server_shows(server: Server) -> None:
    """sigdir suppress does so in every worker, without a restart; without a text it lists."""
    assert post_text(server.port, "veryRude(uint256)").status == 201
    done = invoke(server.folder, "suppress", "function veryRude(uint amount)")
    assert (done.status, done.stdout) == (0, b"1 text is suppressed\n"), done.stderr
    for _ in on_each(server):
        until(lambda: not found(server.port, "rude"), "each worker to hide the text")
    assert post_text(server.port, "veryRude(uint256)").header("Reject-Reason") == "suppressed"
    assert invoke(server.folder, "suppress").stdout == b"function veryRude(uint256)\n"
    assert invoke(server.folder, "suppress", "no signature").status == 2
    removed = invoke(server.folder, "suppress", "--remove", "veryRude(uint256)", "notthere()")
    assert removed == (0, b"0 texts are suppressed\n", "not on the list: notthere()\n")
    for _ in on_each(server):
        until(lambda: found(server.port, "rude"), "each worker to show the text")


# Several writers.


def test_posts_that_share_a_commit_get_their_own_rows(tmp_path: Path) -> None:
    """Threads of one worker that share a commit get each their own rows, and each text is stored once."""
    texts = [[f"shared{(thread * 7 + number) % 90}()" for number in range(60)] for thread in range(8)]
    with opened(tmp_path / "warehouse") as (reader, posts), ThreadPoolExecutor(8) as pool:
        stored = pool.map(
            lambda part: [(text, *posts.store([canonical_text(SIGNATURES, text)])) for text in part], texts
        )
        rows = [(text, row) for part in stored for text, row in part if row]
        assert all(row.text == text for text, row in rows)
        assert sorted(text for text, _ in rows) == sorted({text for part in texts for text in part})
        assert len({row.id for _, row in rows}) == len(rows) == reader.current().count(SIGNATURES)


def waits_for_a_lock(pids: list[int]) -> bool:
    """Whether one of the processes waits for a file lock that another holds."""
    waiting = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line)
    return bool({fields[5] for fields in waiting} & set(map(str, pids)))


def test_an_import_over_http_lets_posts_through(tmp_path: Path) -> None:
    """A POST beside a long import gets an id between its rows."""
    functions = [{"type": "function", "name": f"long{number}x", "inputs": []} for number in range(4_000)]
    ids: list[int] = []
    with application(tmp_path / "one") as one, application(tmp_path / "one") as other, ThreadPoolExecutor(1) as pool:
        importing = pool.submit(post, one, ABI_PATH, {"contract_abi": json.dumps(functions)})
        while not importing.done():
            ids.append(post_text(other, f"beside{len(ids)}()").json()["id"])
        assert importing.result().json()["num_imported"] == 4_000
        first, last = (found(other, f"long{number}x(")[0]["id"] for number in (0, 3_999))
    assert any(first < id < last for id in ids)


# Kills and stops.


@pytest.fixture(params=["waitress", pytest.param("granian", marks=pytest.mark.long)])
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "waitress":
        yield request.getfixturevalue("server")
    else:
        with serving(tmp_path / "warehouse", *by(request.param)) as server:
            yield server
            assert server.errors() == []


@contextmanager
def answered_by(server: Server, worker: int) -> Iterator[None]:
    """Only this worker answers; on granian either does, because each has a socket of its own."""
    with only(server, worker) if server.is_on_waitress() else nullcontext():
        yield


def test_a_scrape_has_the_requests_of_every_worker(counted: Server) -> None:
    """By method, route and status, with their time and bytes; whichever worker answers it."""
    before, alias = scraped(counted.port), "/api/v1/signatures"
    posted(counted, "counted()")
    for worker in counted.workers():
        with answered_by(counted, worker):
            assert get(counted.port, LOOKUP).status == 200
            assert get(counted.port, f"{SIGNATURES_PATH}?page=999").status == 404
            assert get(counted.port, f"/nowhere/{worker}/").status == 404
            assert get(counted.port, f"{alias}?function=0x00000000").status == 200
    for worker in counted.workers():
        with answered_by(counted, worker):
            after = scraped(counted.port)
        for counts in ((200,), (404,), (404, OTHER), (200, alias)):
            assert requests(after, *counts) - requests(before, *counts) == 2
        assert requests(after, 201, method="POST") - requests(before, 201, method="POST") == 1
        row = {"method": "GET", "route": SIGNATURES_PATH}
        answers = sum(requests(after, status) for status in (200, 304, 400, 404))
        assert value(after, "http_request_duration_seconds_count", **row) == answers
        assert value(after, "http_request_duration_seconds_bucket", **row, le="10.0") <= answers
        assert 0 < value(after, "http_request_duration_seconds_sum", **row) < SAFETY_SECONDS
        assert value(after, "worker_starts_total") >= 2


def test_a_killed_worker_is_replaced(counted: Server) -> None:
    """After kill -9 of one worker requests go on, its rows are there, and a new one takes its place and goes on from its counts."""
    first, second = counted.workers()
    with answered_by(counted, first):
        row = posted(counted, "byTheKilledWorker()")
    before = scraped(counted.port)
    os.kill(first, signal.SIGKILL)
    if counted.is_on_waitress():
        assert found(counted.port, "byTheKilledWorker") == [row]

    (new,) = until(lambda: set(counted.workers()) - {first, second}, "a new worker")
    until(lambda: is_served(HOST, counted.port), "a worker that listens")  # the other one may not do so yet
    with answered_by(counted, new):  # it may still be loading; the request waits for it
        assert found(counted.port, "byTheKilledWorker") == [row]
        after = scraped(counted.port)
        assert requests(after) == requests(before) + 1 + counted.is_on_waitress()
        posted(counted, "byTheNewWorker()")
    starts = value(before, "worker_starts_total") + 1  # on granian the new one may still be loading
    until(lambda: value(scraped(counted.port), "worker_starts_total") == starts, "the count of its start")
    assert_in_order(whole(counted.port))


def test_a_server_with_one_thread(tmp_path: Path) -> None:
    """A page and a lookup are answered while its thread waits for the right to write; a proxy is heard. SIGTERM while a
    POST is half sent and a long page half read: both end well, and then the server does."""
    long = [f"long{number}({','.join(['uint256'] * 500)})" for number in range(1000)]
    warehouse = import_lines(tmp_path / "warehouse", *long)
    with serving(warehouse, "--threads", "1", "--trust-proxy", workers=1) as server:
        assert_a_page_waits_for_no_thread(server)
        proxied = get(server.port, f"{SIGNATURES_PATH}?page_size=1", {"X-Forwarded-Proto": "https"})
        assert proxied.json()["next"].startswith("https://")
        row = stopped_in_the_middle_of_requests(server)
    with application(warehouse) as app:
        assert found(app, "sentSlowly") == [row]


def assert_a_page_waits_for_no_thread(server: Server) -> None:
    posted(server, "first()")
    staging = Staging(Paths(server.folder).staging)
    with ThreadPoolExecutor() as pool:
        with staging.exclusive_statement():
            waiting = pool.submit(post_text, server.port, "second()")
            until(lambda: waits_for_a_lock(server.workers()), "the POST waits")
            page = get(server.port, f"{SIGNATURES_PATH}?page_size=1")
            assert [row["text_signature"] for row in page.json()["results"]] == ["first()"]
            assert get(server.port, f"{SIGNATURES_PATH}?hex_signature=0x3df4ddf4").json()["count"] == 1
            assert not waiting.done()
        assert waiting.result().status == 201
    staging.close()


def stopped_in_the_middle_of_requests(server: Server) -> Record:
    """The row that was half sent when the signal came."""
    body = b"text_signature=sentSlowly(uint256)"
    head = f"POST {SIGNATURES_PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM['Content-Type']}\r\n"
    sent = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body[:10]
    page = f"GET {SIGNATURES_PATH}?page_size=1000 HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    with connected(server.port, sent) as slow, connected(server.port, page, receive=4096) as reading:
        assert reading.recv(1000, socket.MSG_PEEK).startswith(b"HTTP/1.1 200")
        get(server.port, "/healthz")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not is_served(HOST, server.port), "the server to take no more connections")
        assert server.process.poll() is None
        slow.sendall(body[10:])
        stored, read = answer_on(slow), answer_on(reading)
        assert (stored.status, stored.json()["text_signature"]) == (201, "sentSlowly(uint256)")
        assert (read.status, len(read.json()["results"])) == (200, 1000)
        assert server.process.wait(SAFETY_SECONDS) == 0
        assert server.errors() == []
    return dict(stored.json())


@pytest.mark.long
@pytest.mark.parametrize("name", ["waitress", "granian"])
def test_killing_the_parent_ends_the_server(tmp_path: Path, name: str) -> None:
    """Workers that went on by themselves would keep the port, and nobody would replace them."""
    with serving(tmp_path / "warehouse", *by(name), fold_every=1) as server:
        workers = server.workers()
        server.process.kill()
        server.process.wait(SAFETY_SECONDS)
        until(lambda: all(map(has_ended, workers)), "the workers' end")


@contextmanager
def loading(tmp_path: Path, name: str) -> Iterator[Command]:
    """A server that has just been started."""
    arguments = ["serve", "--port", "0", "--workers", "1", *by(name)]
    process = Command(arguments, ROOT, environment(tmp_path / "warehouse"), Path(os.devnull), tmp_path / "stderr")
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("name", long_except({"waitress"}, ["waitress", "granian"]))
def test_killing_the_parent_ends_workers_that_load(tmp_path: Path, name: str) -> None:
    """They have not reached their own code yet."""
    with loading(tmp_path, name) as process:
        children = until(lambda: [pid for pid, _ in children_of(process.pid)], "a child")
    until(lambda: all(map(has_ended, children)), "the end of the children")


def test_the_counts_of_a_killed_server_go_with_the_next_start(tmp_path: Path) -> None:
    """Its folder in memory would stay for ever. Those of servers that live stay."""

    def has_counts(process: Command) -> bool:
        locks = Path("/dev/shm").glob("sigdir-counts-*/*/lock")  # noqa: S108 - only looked at
        return any(FileLock(lock).holder().startswith(f"process {process.pid} ") for lock in locks)

    with loading(tmp_path, "waitress") as living:
        until(lambda: has_counts(living), "the folder of one that lives")
        with loading(tmp_path, "waitress") as killed:
            until(lambda: has_counts(killed), "the folder of one that is killed")

        def is_gone_after_a_start() -> (
            bool
        ):  # processes of the killed one, which hold its lock, may live on for a moment
            with loading(tmp_path, "waitress") as following:
                until(lambda: has_counts(following), "the folder of the next")
            return not has_counts(killed)

        until(is_gone_after_a_start, "a start that removes the folder of the killed one")
        assert has_counts(living)


def test_granian_stops_at_once_while_its_worker_loads(tmp_path: Path) -> None:
    """A worker that has not heard the signal would be killed, after twelve seconds in which it serves."""
    with loading(tmp_path, "granian") as process:
        until(lambda: any(children_of(pid) for pid, _ in children_of(process.pid)), "a worker")
        began = time.monotonic()
        process.terminate()
        assert process.wait(SAFETY_SECONDS) == 0
    assert time.monotonic() - began < STOP_SECONDS


def has_ended(pid: int) -> bool:
    """Whether the process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# Starting.

HOSTILE = "import os, pathlib\npathlib.Path(os.environ['MARK']).write_text(__file__)\nraise SystemExit(9)\n"
"""A module that leaves a mark when it is executed."""


@pytest.mark.long
@pytest.mark.parametrize("name", ["waitress", "granian"])
def test_no_code_of_the_folder_it_starts_in_is_executed(tmp_path: Path, name: str) -> None:
    """Modules named as ours, as our dependencies and as Python's own lie there: ``sigdir serve`` serves, and folds."""
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


def test_an_address_has_one_server(server: Server, tmp_path: Path) -> None:
    """A second one ends with status 2 and a sentence; also where the first still loads, and nobody listens yet."""

    def told(port: int) -> tuple[int, str]:
        done = run_forked(["serve", "--port", str(port)], ROOT, environment(tmp_path / "other"), SAFETY_SECONDS)
        return done.returncode, done.stderr.removeprefix(f"Error: {HOST}:{port}: ")

    taken = "Address already in use; choose another with --port (0 picks a free one)\n"
    assert told(server.port) == (2, taken)
    with lock_address(HOST, port := free_port()):
        assert told(port)[1].startswith("another sigdir serve has this address; ")
