"""Costly requests: a process of their own answers them, as the application would, and is ended over its budget."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from falcon.testing import Result, TestClient, create_environ

from sigdir.cli.serve import serve
from sigdir.serve.core import budget
from sigdir.serve.core.budget import BudgetProcess, Cost, budget_of, budget_processes
from sigdir.serve.core.settings import MIB, Settings
from sigdir.serve.http.answers import HttpError
from sigdir.serve.servers.startup import answer_costly
from tests.conftest import SAFETY_SECONDS, import_lines
from tests.examples import long_except
from tests.serve.support import (
    FORM,
    HOST,
    JSON,
    TRANSFER,
    Server,
    application,
    by,
    children_of,
    get,
    multipart,
    only,
    post,
    selector,
    serving,
    until,
)
from tests.signatures.assembly import dispatcher, metadata, reads_words

CALL = selector(TRANSFER) + f"{1:064x}{2:064x}"
MANY_CALLS = json.dumps([CALL] * 1000)
CALLS = json.dumps({"data": CALL * 2}).encode(), json.dumps([CALL] * 100).encode()
CODE = (dispatcher([bytes.fromhex(selector(TRANSFER)[2:])] * 8, function=reads_words(2)) + metadata()).hex()
ABI = [{"type": "function", "name": "f", "inputs": [{"type": "uint256"}] * 10}]
FORM_BODY, FORM_HEADERS = multipart({"contract_abi": "[" + " " * 5000 + "]"})

REQUESTS: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "a call": ("POST", "/api/v1/decode/", json.dumps({"data": CALL + "0" * 256}).encode(), JSON),
    "a call in the address": ("GET", f"/api/v1/decode/?data={CALL}{'0' * 256}", b"", {}),
    "a page": ("POST", "/decode/", urlencode({"data": CALL + "0" * 9000}).encode(), FORM),
    "another origin": ("POST", "/api/v1/decode/", CALLS[0], JSON | {"Origin": "https://a.b"}),
    "packed": ("POST", "/api/v1/decode/", CALLS[1], JSON | {"Accept-Encoding": "gzip"}),
    "code": ("POST", "/api/v1/contract/", json.dumps({"code": CODE + "00" * 200}).encode(), JSON),
    "a multipart form": ("POST", "/api/v1/import-abi/", FORM_BODY, FORM_HEADERS),
    "a form of code": ("POST", "/api/v1/contract/", *multipart({"code": CODE})),
    "too long": ("POST", "/api/v1/decode/", b" " * 400_000, JSON),
    "another method": ("PUT", "/api/v1/decode/", b" " * 300, JSON),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_lines(tmp_path_factory.mktemp("budget") / "warehouse", TRANSFER)


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[BudgetProcess]:
    """Of a worker with four threads: two requests may wait for it."""
    with closing(BudgetProcess(Settings(folder, threads=4), answer_costly)) as process:
        yield process


@pytest.fixture(scope="module")
def clients(folder: Path, process: BudgetProcess) -> Iterator[tuple[TestClient, TestClient]]:
    """The application by itself, and with the process."""
    with application(folder) as alone, application(folder, process, threads=4) as limited:
        yield alone.client, limited.client


@contextmanager
def limited(process: BudgetProcess, seconds: float | None = None, memory: int | None = None) -> Iterator[None]:
    """Each request has these limits in place of what its size allows."""
    process._seconds, process._memory = seconds, memory
    try:
        yield
    finally:
        process._seconds = process._memory = None


def ask(client: TestClient, name: str) -> Result:
    method, path, body, headers = REQUESTS[name]
    path, _, query = path.partition("?")
    return client.simulate_request(method, path, query_string=query, body=body, headers=headers)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_process_answers_as_the_application_does(clients: tuple[TestClient, TestClient], name: str) -> None:
    """Status, headers and body are the same."""
    alone, limited = (ask(client, name) for client in clients)
    assert (limited.status, limited.content) == (alone.status, alone.content)
    assert dict(limited.headers) == dict(alone.headers)


def test_a_request_over_its_time_is_refused(clients: tuple[TestClient, TestClient], process: BudgetProcess) -> None:
    """The kernel ends the process, the client is told, and the next request is answered by a new process."""
    client = clients[1]
    with limited(process, seconds=0.01):
        late = client.simulate_post("/api/v1/decode/", body=MANY_CALLS, headers=JSON)
        assert (late.status_code, late.json) == (
            422, {"detail": "This request takes more than 0.01 s of processor time. Send less at once."}
        )  # fmt: skip
    with limited(process, seconds=60.0):
        whole = client.simulate_post("/api/v1/decode/", body=MANY_CALLS, headers=JSON)
    assert (whole.status_code, len(whole.json)) == (200, 1000)


def test_a_request_over_its_memory_is_refused(clients: tuple[TestClient, TestClient], process: BudgetProcess) -> None:
    """A 413; the process answers the next request."""
    with limited(process, memory=32 << 20):
        body = json.dumps({"contract_abi": json.dumps([{"a": 0}] * 500_000)})
        answer = clients[1].simulate_post("/api/v1/import-abi/", body=body, headers=JSON)
        told = "This request needs more memory than it may have. Send less at once."
        assert (answer.status_code, answer.json) == (413, {"detail": told})
        assert ask(clients[1], "a call").status_code == 200


def test_a_new_version_is_opened_outside_of_the_budget(tmp_path: Path) -> None:
    """A version that lacks its indexes, as after a kill, makes no small request one that is too large."""
    folder = import_lines(tmp_path / "warehouse", TRANSFER)
    with (
        closing(BudgetProcess(Settings(folder), answer_costly, memory=16 << 20)) as process,
        application(folder, process) as app,
    ):
        process.start()
        process.await_ready()
        import_lines(folder, *(f"function f{number}(uint a)" for number in range(20_000)))
        shutil.rmtree(folder / "cache")
        body = {"contract_abi": json.dumps([entry | {"name": f"g{n}"} for n, entry in enumerate(ABI * 2)])}
        imported = app.client.simulate_post("/api/v1/import-abi/", json=body)
        assert (imported.status_code, imported.json.get("num_imported")) == (201, 2), imported.text


def test_waiting_requests_leave_threads_to_others(
    clients: tuple[TestClient, TestClient], process: BudgetProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are in line on four threads. A third would hold its thread while it waits: it is refused at once, in the form of
    its route. Forms of code are in line from 220 bytes on."""
    monkeypatch.setattr(budget, "_TURN_SECONDS", SAFETY_SECONDS)
    client = clients[1]
    with ThreadPoolExecutor() as pool:
        with process._turn:
            first = [pool.submit(ask, client, "a call") for _ in range(2)]
            until(lambda: process._line._value == 0, "the line to be full")
            refused = [ask(client, name) for name in ("a call", "a form of code", "a page")]
            imported = client.simulate_post("/api/v1/import", json={"type": "abi", "data": [ABI * 200]})
        assert {(each.status_code, each.headers["Retry-After"]) for each in (*refused, imported)} == {(503, "1")}
        assert "<p>Too many long requests at once." in refused[2].text
        assert imported.json["ok"] is False
        assert [each.result().status_code for each in first] == [200, 200]


def test_what_takes_long_leaves_a_thread(folder: Path) -> None:
    """Streams, costly requests, transactions of a node, SQL and solving together hold fewer than all threads."""
    for threads in range(5, 33):
        for settings in (
            Settings(folder, threads=threads, sql=sql, rpc=rpc) for sql in (False, True) for rpc in ("", "http://node")
        ):
            assert sum(settings.thread_shares) + bool(settings.rpc) < threads
            assert min(settings.thread_shares[:2]) >= 1
            assert (settings.thread_shares.patient > 0) == settings.sql


def test_every_usual_worker_lets_costly_requests_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside SQL and transactions of a node: two clients that decode at the same time are both answered."""
    given: list[Settings] = []
    monkeypatch.setattr("sigdir.cli.serve.run", lambda settings, *_: given.append(settings))
    for more in (
        [],
        ["--sql"],
        ["--sql", "--rpc", "http://node"],
        ["--server", "granian", "--solve", "--rpc", "http://n"],
    ):
        assert CliRunner().invoke(serve, ["--warehouse", str(folder), *more]).exit_code == 0
    assert all(settings.thread_shares.costly > 1 for settings in given)


@pytest.fixture(scope="module", params=long_except({"waitress"}, ["waitress", "granian"]))
def server(request: pytest.FixtureRequest, folder: Path) -> Iterator[Server]:
    """One worker with each of the processes."""
    options = ["--sql", "--sql-seconds", "3000", "--rpc", "http://127.0.0.1:1"]
    with serving(folder, *by(request.param), *options, workers=1) as server:
        yield server


def test_a_server_is_ready_when_its_costly_requests_are(server: Server, folder: Path) -> None:
    """Each process for them has opened the warehouse when the first connection is taken: nobody waits for its start."""
    [worker] = server.workers()
    processes = [pid for pid, name in children_of(worker) if name == "sigdir-costly"]
    assert len(processes) == 3
    assert all(str(folder) in Path(f"/proc/{pid}/maps").read_text() for pid in processes)


def test_a_query_whose_client_hangs_up_ends(server: Server) -> None:
    """SQL is answered in a process beside the worker: the query of a client that has gone holds nobody up."""
    if not server.is_on_waitress():
        pytest.skip("granian does not say that a client has gone")
    path = "/api/v1/sql/"
    endless = {"sql": "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"}
    first = get(server.port, f"{path}?{urlencode({'sql': 'SELECT 1 AS a'})}")
    assert (first.status, first.json().get("rows")) == (200, [[1]]), (first.body, server.stderr())
    connection = HTTPConnection(HOST, server.port, timeout=SAFETY_SECONDS)
    connection.request("GET", f"{path}?{urlencode(endless)}")
    time.sleep(0.5)
    connection.close()
    assert post(server.port, path, {"sql": "SELECT 2 AS a"}).json()["rows"] == [[2]]
    assert get(server.port, f"{path}?{urlencode(endless | {'seconds': '0.2'})}").status == 422


@pytest.mark.long
def test_a_query_has_the_seconds_of_the_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit ends it and says so, not what is for a process that does not hear that."""
    monkeypatch.setattr(budget, "_SQL_SECONDS", 1.0)
    monkeypatch.setattr(budget, "_STUCK_SECONDS", 1.0)
    settings = Settings(folder, sql=True, sql_seconds=60)
    sql = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    query = urlencode({"sql": sql, "seconds": 1.5})
    environ = create_environ("/api/v1/sql/", query_string=query)
    with closing(budget_processes(settings, answer_costly)[Cost.PATIENCE]) as process:
        late = process.answer({name: value for name, value in environ.items() if isinstance(value, str)}, ())
    assert json.loads(late.body) == {"detail": "The query was stopped after 1.5 s."}


def test_a_process_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    """A worker without it would answer no costly request, and says so in place of becoming ready."""
    with closing(BudgetProcess(Settings(tmp_path / "nothing"), answer_costly)) as process:
        process.fork(())
        process.start()
        with pytest.raises(OSError, match="the process of long requests does not start"):
            process.await_ready()


def test_a_process_that_was_killed_is_replaced(clients: tuple[TestClient, TestClient], process: BudgetProcess) -> None:
    """The request that it was answering is told to come again; one that comes later is answered by the new one."""
    assert ask(clients[1], "a call").status_code == 200
    assert process._process is not None
    assert process._process.pid is not None
    assert process._connection is not None
    os.kill(process._process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, clients[1], "a call")
        connection = process._connection.fileno()
        until(lambda: any(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))), "the request to be sent")
        process._process.kill()
        assert (first.result().status_code, first.result().headers["Retry-After"]) == (503, "10")
    assert ask(clients[1], "a call").status_code == 200
    process._process.kill()
    process._process.join()
    assert ask(clients[1], "a call").status_code == 200


def deaf(connection: Any, _: Settings, gives_way: bool) -> None:
    """Work that takes nothing, as of a process that was stopped."""
    connection.recv()
    connection.send("ready")
    time.sleep(SAFETY_SECONDS)


def test_a_process_that_takes_no_body_is_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that the pipe does not hold would keep the thread that sends it for ever."""
    monkeypatch.setattr(budget, "_STUCK_SECONDS", 1.0)
    with closing(BudgetProcess(Settings(folder, threads=4), deaf)) as process:
        process.fork(())
        process.start()
        with pytest.raises(HttpError) as refused:
            process.answer({}, [bytes(MIB)] * 4)
        assert refused.value.status == 503


def test_the_budget_grows_with_the_request() -> None:
    """A source of 16 MiB has nine seconds, a call of 64 KiB has one."""
    assert budget_of(1 << 16).seconds == pytest.approx(1.03, abs=0.01)
    assert budget_of(16 << 20).seconds == 9.0


@pytest.mark.long
def test_a_worker_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    """One that was stopped, as one whose thread holds the GIL: the others' requests would wait for it for ever."""
    with serving(tmp_path / "warehouse", "--silent-seconds", "3") as server:
        first, second = server.workers()
        until(lambda: all(map(children_of, (first, second))), "both to have loaded")
        # A worker that has told the supervisor nothing yet has ten minutes. It has before its loop runs again.
        with only(server, first):
            for _ in range(2):
                assert get(server.port, "/healthz").status == 200
        os.kill(first, signal.SIGSTOP)

        until(lambda: set(server.workers()) - {first, second}, "a new worker")
        assert second in server.workers()
        assert f"process {first} no longer answers; killed" in server.stderr()
        assert post(server.port, "/api/v1/signatures/", {"text_signature": "afterwards()"}).status == 201
