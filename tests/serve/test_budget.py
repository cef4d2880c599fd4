"""Costly requests: a process of their own answers them, as the application would, and is ended over its budget."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from falcon.testing import Result, TestClient

from sigdir.serve.core import budget
from sigdir.serve.core.budget import BudgetProcess, budget_of
from sigdir.serve.core.settings import Settings
from tests.conftest import SAFETY_SECONDS, import_lines
from tests.examples import long_except
from tests.serve.support import (
    FORM,
    JSON,
    TRANSFER,
    application,
    by,
    children_of,
    multipart,
    pinned,
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
    "its headers": ("HEAD", f"/api/v1/decode/?data={CALL}{'0' * 256}", b"", {}),
    "a page": ("POST", "/decode/", urlencode({"data": CALL + "0" * 9000}).encode(), FORM),
    "a redirect": ("POST", "/decode/", urlencode({"data": CALL + "0" * 256}).encode(), FORM),
    "another origin": ("POST", "/api/v1/decode/", CALLS[0], JSON | {"Origin": "https://a.b"}),
    "packed": ("POST", "/api/v1/decode/", CALLS[1], JSON | {"Accept-Encoding": "gzip"}),
    "code": ("POST", "/api/v1/contract/", json.dumps({"code": CODE + "00" * 200}).encode(), JSON),
    "no hex": ("POST", "/api/v1/contract/", json.dumps({"code": "0x" + "z" * 300}).encode(), JSON),
    "a multipart form": ("POST", "/api/v1/import-abi/", FORM_BODY, FORM_HEADERS),
    "a preview": ("POST", "/submit/", urlencode({"text": f"{TRANSFER}\n" * 40}).encode(), FORM),
    "too long": ("POST", "/api/v1/decode/", b" " * 400_000, JSON),
    "another method": ("PUT", "/api/v1/decode/", b" " * 300, JSON),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_lines(tmp_path_factory.mktemp("budget") / "warehouse", TRANSFER)


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[BudgetProcess]:
    with closing(BudgetProcess(Settings(folder))) as process:
        yield process


@pytest.fixture(scope="module")
def clients(folder: Path, process: BudgetProcess) -> Iterator[tuple[TestClient, TestClient]]:
    """The application by itself, and with the process."""
    with application(folder) as alone, application(folder, process) as limited:
        yield alone.client, limited.client


NO_MEMORY = {"detail": "This request needs more memory than it may have. Send less at once."}


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
        page = client.simulate_post("/decode/", body=urlencode({"data": CALL + "00" * 100_000}), headers=FORM)
        assert (page.status_code, "more than 0.01 s of processor time" in page.text) == (422, True)
        imported = client.simulate_post("/api/v1/import", json={"type": "abi", "data": [ABI * 2000]})
        assert (imported.status_code, imported.json["ok"]) == (422, False)
    with limited(process, seconds=60.0):
        whole = client.simulate_post("/api/v1/decode/", body=MANY_CALLS, headers=JSON)
    assert (whole.status_code, len(whole.json)) == (200, 1000)


def test_a_request_over_its_memory_is_refused(clients: tuple[TestClient, TestClient], process: BudgetProcess) -> None:
    """A 413; the process answers the next request."""
    with limited(process, memory=32 << 20):
        body = json.dumps({"contract_abi": json.dumps([{"a": 0}] * 500_000)})
        answer = clients[1].simulate_post("/api/v1/import-abi/", body=body, headers=JSON)
        assert (answer.status_code, answer.json) == (413, NO_MEMORY)
        assert ask(clients[1], "a call").status_code == 200


def test_a_new_version_is_opened_outside_of_the_budget(tmp_path: Path) -> None:
    """A version that lacks its indexes, as after a kill, makes no small request one that is too large."""
    folder = import_lines(tmp_path / "warehouse", TRANSFER)
    with closing(BudgetProcess(Settings(folder), memory=16 << 20)) as process, application(folder, process) as app:
        process.start()
        process.await_ready()
        import_lines(folder, *(f"function f{number}(uint a)" for number in range(20_000)))
        shutil.rmtree(folder / "cache")
        body = {"contract_abi": json.dumps([entry | {"name": f"g{n}"} for n, entry in enumerate(ABI * 2)])}
        imported = app.client.simulate_post("/api/v1/import-abi/", json=body)
        assert (imported.status_code, imported.json.get("num_imported")) == (201, 2), imported.text


def test_a_form_of_code_is_not_read_where_others_wait(folder: Path) -> None:
    """Forms of a costly resource go to the process from 220 bytes on, as its other bodies do."""
    with closing(BudgetProcess(Settings(folder))) as process, application(folder, process) as app:
        body, headers = multipart({"code": CODE})
        assert app.client.simulate_post("/api/v1/contract/", body=body, headers=headers).status_code == 200
        assert process._process is not None


def test_waiting_requests_leave_threads_to_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are in line on four threads. A third is refused at once: it would hold its thread while it waits."""
    monkeypatch.setattr(budget, "_TURN_SECONDS", SAFETY_SECONDS)
    with (
        closing(BudgetProcess(Settings(folder, threads=4))) as process,
        application(folder, process, threads=4) as app,
        ThreadPoolExecutor() as pool,
    ):
        with process._turn:
            first = [pool.submit(ask, app.client, "a call") for _ in range(2)]
            until(lambda: process._line._value == 0, "the line to be full")
            third = ask(app.client, "a call")
        assert (third.status_code, third.headers["Retry-After"]) == (503, "1")
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


@pytest.mark.parametrize("name", long_except({"waitress"}, ["waitress", "granian"]))
def test_a_server_is_ready_when_its_costly_requests_are(folder: Path, name: str) -> None:
    """Each process for them has opened the warehouse when the first connection is taken: nobody waits for its start."""
    with serving(folder, *by(name), "--sql", "--rpc", "http://127.0.0.1:1", workers=1) as server:
        [worker] = server.workers()
        processes = [pid for pid, command in children_of(worker) if "budget_process" in command]
        assert len(processes) == 3
        assert all(str(folder) in Path(f"/proc/{pid}/maps").read_text() for pid in processes)


def test_a_process_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    """A worker without it would answer no costly request, and says so in place of becoming ready."""
    with closing(BudgetProcess(Settings(tmp_path / "nothing"))) as process:
        process.start()
        with pytest.raises(OSError, match="the process of long requests does not start"):
            process.await_ready()


def test_a_process_that_was_killed_is_replaced(clients: tuple[TestClient, TestClient], process: BudgetProcess) -> None:
    """The request that it was answering is told to come again; one that comes later is answered by the new one."""
    assert ask(clients[1], "a call").status_code == 200
    assert process._process is not None
    process._process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, clients[1], "a call")
        assert process._connection is not None
        connection = process._connection.fileno()
        until(lambda: any(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))), "the request to be sent")
        process._process.kill()
        assert (first.result().status_code, first.result().headers["Retry-After"]) == (503, "10")
    assert ask(clients[1], "a call").status_code == 200
    process._process.kill()
    process._process.wait()
    assert ask(clients[1], "a call").status_code == 200


def test_the_budget_grows_with_the_request() -> None:
    """A source of 16 MiB has nine seconds, a call of 64 KiB has one."""
    assert budget_of(1 << 16).seconds == pytest.approx(1.03, abs=0.01)
    assert budget_of(16 << 20).seconds == 9.0


def test_a_worker_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    """One that was stopped, as one whose thread holds the GIL: the others' requests would wait for it for ever."""
    with serving(tmp_path / "warehouse", "--silent-seconds", "3") as server:
        first, second = server.workers()
        until(lambda: all(map(children_of, (first, second))), "both to have loaded")
        # A worker that has told the supervisor nothing yet has ten minutes. It has before its loop runs again.
        with pinned(server, first) as connection:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        os.kill(first, signal.SIGSTOP)

        def replaced() -> list[int] | None:
            workers = server.workers()
            return workers if len(workers) == 2 and first not in workers else None

        workers = until(replaced, "a new worker")
        assert second in workers
        assert f"process {first} no longer answers; killed" in server.stderr()
        assert post(server.port, "/api/v1/signatures/", {"text_signature": "afterwards()"}).status == 201
