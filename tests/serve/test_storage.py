"""A server whose storage is full, read-only or damaged: 503 and a line in the log, and it recovers once the storage does."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import NamedTuple, NoReturn

import falcon
import pytest
from falcon.testing import create_req

from sigdir.serve.api.status import ReadyResource
from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.start import EXTRAS, StartError, require_package, why_it_ended
from sigdir.serve.servers.upkeep import Upkeep, repeat
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import FileLock, mark
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, empty_warehouse, environment, import_lines
from tests.examples import long_except
from tests.processes import run_forked
from tests.serve.support import (
    ABI_PATH,
    JSON,
    SIGNATURES_PATH,
    Answer,
    Server,
    application,
    children_of,
    found,
    get,
    is_ready,
    opened,
    post_text,
    request,
    serving,
    until,
    whole,
)
from tests.warehouse.support import Disk, publish, small_disk


def named(name: str) -> list[str]:
    return [f"{name}{number}(uint256)" for number in range(50)]


def assert_says_when_to_come_again(answer: Answer) -> None:
    assert (answer.status, list(answer.json())) == (503, ["detail"])
    assert answer.header("Content-Type") == "application/json"
    assert int(answer.header("Retry-After")) > 0


class Stored(NamedTuple):
    """A server whose warehouse is on one small disk, and its temporary files on another."""

    server: Server
    disk: Disk
    temporary: Disk


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    folder = tmp_path_factory.mktemp("stored")
    with small_disk(folder / "disk") as disk, small_disk(folder / "temporary") as temporary:
        warehouse = import_lines(disk.path / "warehouse", *named("old"))
        variables = {"TMPDIR": str(temporary.path)}
        with serving(warehouse, workers=1, fold_every=0.3, variables=variables) as server:
            yield Stored(server, disk, temporary)


def test_a_full_disk_refuses_posts_and_no_more(stored: Stored) -> None:
    """What was acknowledged before is served meanwhile, and is there afterwards; then POSTs are taken again."""
    server, disk, _ = stored
    paths = Paths(server.folder)
    kept = [post_text(server.port, f"kept{number}()").json() for number in range(20)]
    until(lambda: read_snapshot(paths).count(SIGNATURES) == 70, "the rows to be folded")
    disk.resize(disk.used() + 64)
    while (answer := post_text(server.port, f"more{len(kept)}({'uint256,' * 200}address)")).status == 201:
        kept.append(answer.json())
    assert_says_when_to_come_again(answer)
    assert get(server.port, "/healthz").status == 200
    disk.resize(disk.used() + 512)
    until(lambda: get(server.port, "/readyz").json().get("disk") == "full", "/readyz to show the full disk")
    disk.resize(64 * 1024)
    assert "disk" not in get(server.port, "/readyz").json()
    until(lambda: post_text(server.port, "room(address)").status in (201, 400), "a POST to be taken")
    for row in kept:
        assert get(server.port, f"{SIGNATURES_PATH}{row['id']}/").json() == row
    until(lambda: read_snapshot(paths).count(SIGNATURES) == 50 + len(kept) + 1, "the rows to be folded")
    until(paths.last_fold.exists, "the time of the last fold")
    assert len(whole(server.port)) == 50 + len(kept) + 1
    assert "Traceback" not in server.stderr()
    assert "error: " in server.stderr()


def test_what_is_not_noted_of_a_known_text_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The POST has its answer: nothing that was acknowledged is lost."""

    def full(_: Staging) -> NoReturn:
        raise UnreadableWarehouse("the disk is full")

    with application(tmp_path / "warehouse") as app:
        assert post_text(app, "twice()").status == 201
        monkeypatch.setattr(Staging, "exclusive_unsynced", full)
        assert post_text(app, "twice()").header("Reject-Reason") == "duplicate"
    assert capsys.readouterr().err == "error: what was POSTed of known texts is not noted: the disk is full\n"


def test_a_full_temporary_folder_takes_no_large_body_and_no_more(stored: Stored) -> None:
    """On waitress a body from 64 KiB on waits there until it has arrived. Without room it gets no answer; others do."""
    server, _, disk = stored
    large = json.dumps({"contract_abi": "[]" + " " * 300_000}).encode()
    workers, reports = server.workers(), server.stderr().count("No space left on device")
    disk.resize(max(disk.used(), 1))
    with pytest.raises((OSError, HTTPException)):
        request(server.port, "POST", ABI_PATH, large, JSON)
    assert post_text(server.port, "small()").status == 201
    assert len(found(server.port, "small()")) == 1
    disk.resize(64 * 1024)
    assert request(server.port, "POST", ABI_PATH, large, JSON).status == 201
    assert server.stderr().count("No space left on device") > reports
    assert server.workers() == workers


def test_a_new_file_that_is_damaged_is_named_and_read_once_it_is_mended(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Requests are refused: no answer may lack the rows of that file."""
    with application(import_lines(warehouse, *named("old"))) as app:
        assert len(whole(app)) == 50
        shutil.rmtree(warehouse / "cache")  # so the server must build the index of the new file
        import_lines(warehouse, *named("new"))
        file = read_snapshot(Paths(warehouse)).files[SIGNATURES][-1].path
        content = file.read_bytes()
        os.truncate(file, len(content) // 2)
        for answer in (get(app, SIGNATURES_PATH), get(app, "/readyz"), post_text(app, "posted()")):
            assert_says_when_to_come_again(answer)
        assert get(app, "/healthz").status == 200
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert [str(file) in line for line in told] == [True] * 3
        file.write_bytes(content)
        assert len(whole(app)) == 100
        assert post_text(app, "posted()").status == 201


def test_a_dump_that_meets_a_damaged_file_is_cut_and_names_it(tmp_path: Path) -> None:
    """Its answer has begun, so no status can say it: the connection ends in the middle, with one line in the log."""
    warehouse = import_lines(tmp_path / "warehouse", *named("old"))
    with serving(warehouse, workers=1) as server:
        [file] = read_snapshot(Paths(warehouse)).files[SIGNATURES]
        os.truncate(file.path, file.size // 2)
        with pytest.raises(IncompleteRead):
            get(server.port, "/dumps/1/signatures.csv")
        until(lambda: str(file.path) in server.stderr(), "the line that names the file")
        [line] = [line for line in server.stderr().splitlines() if str(file.path) in line]
        assert line.startswith("error: ")
        assert "Traceback" not in server.stderr()


def test_a_failed_fold_names_the_warehouse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a full disk pyarrow names no file."""

    def full(_: Upkeep) -> NoReturn:
        raise OSError(errno.ENOSPC, "Error writing bytes to file")

    monkeypatch.setattr(Upkeep, "run_once", full)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(ValueError, match="sleep"):
        repeat(Paths(tmp_path), -1)
    assert capsys.readouterr().err == f"fold: {tmp_path}: [Errno 28] Error writing bytes to file\n"


@pytest.mark.parametrize("kind", long_except({"waitress"}, EXTRAS))
def test_a_server_that_cannot_start_says_why(tmp_path: Path, kind: str) -> None:
    """A real worker that finds a damaged warehouse: its own line, the server's, and status 2."""
    paths = Paths(tmp_path / "warehouse")
    import_lines(paths.root, *named("one"))
    read_snapshot(paths).files[SIGNATURES][0].path.unlink()
    arguments = ["serve", "--port", "0", "--workers", "1", "--fold-every", "0", "--server", kind]
    done = run_forked(arguments, ROOT, environment(paths.root), SAFETY_SECONDS)
    assert done.returncode == 2
    assert f"Error: {paths.root}" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: the warehouse cannot be served: ")
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_ctrl_c_while_a_server_starts_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """It goes to the whole process group of a terminal, and must not reach the workers."""
    paths = Paths(empty_warehouse(tmp_path / "warehouse"))
    paths.cache.mkdir()
    with FileLock(paths.compile_lock):  # workers wait for it
        process = subprocess.Popen(
            [*command_line(), "serve", "--port", "0", "--workers", "1", "--fold-every", "0"], cwd=ROOT, env=environment(paths.root), start_new_session=True,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until(lambda: any("worker" in name for _, name in children_of(process.pid)), "a worker")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=SAFETY_SECONDS)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (1, "ended with status 1, and what it printed stands above"),
        (2, "the line above has the reason"),
        (-signal.SIGSEGV, "killed by SIGSEGV; run `sigdir verify`"),
        (-signal.SIGKILL, "killed by SIGKILL; the system does so when memory runs out"),
        (-signal.SIGBUS, "killed by SIGBUS; a file was cut short"),
        (-signal.SIGTERM, "ended by SIGTERM while it started"),
        (-250, "killed by signal 250"),
    ],
)
def test_the_status_of_a_process_has_a_reason(status: int, why: str) -> None:
    """Of one that a signal killed nothing was printed."""
    assert why in why_it_ended(status)


def test_a_server_whose_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install, instead of workers that fail one after the other."""
    monkeypatch.setitem(EXTRAS, "no_such_package", "fast")
    with pytest.raises(StartError, match=r"--server no_such_package needs no_such_package: pip install '.*\[fast\]'"):
        require_package("no_such_package")


def test_readyz_names_since_when_folding_fails(warehouse: Path) -> None:
    """Where it never worked, the start of the worker; else the last success. Without a fold of its own it says nothing."""

    def fold(every: float) -> str | None:
        resp = falcon.Response()
        ReadyResource(Settings(warehouse, fold_every=every), reader, 1000.0).on_get(create_req(), resp)
        assert resp.data is not None
        state = json.loads(resp.data)
        assert (resp.status, state["status"]) == ("200 OK", "ok")
        return dict(state).get("fold")

    with opened(warehouse) as (reader, _):
        assert fold(every=0) is None
        assert fold(every=60) == "failing since 1970-01-01T00:16:40Z"
        mark(reader.paths.last_fold)
        assert fold(every=60) is None
        os.utime(reader.paths.last_fold, (2000, 2000))
        assert fold(every=60) == "failing since 1970-01-01T00:33:20Z"


def test_a_warehouse_that_is_moved_away_is_not_made_again(stored: Stored) -> None:
    """The server reads on from what is mapped and says in /readyz that it is gone, whatever takes its place.

    Put back, it takes POSTs again.
    """
    server, folder = stored.server, stored.server.folder
    away, other = (folder.with_name(name) for name in ("away", "other"))
    for number in range(3):
        publish(Paths(other), [f"other{number}()"])
    assert post_text(server.port, "before()").status == 201
    until(lambda: read_snapshot(Paths(folder)).count(SIGNATURES) == len(whole(server.port)), "the row to be folded")
    [worker] = server.workers()
    folder.rename(away)
    other.rename(folder)
    until(lambda: get(server.port, "/readyz").json()["status"] == "gone", "/readyz to say that it is gone")
    assert (found(server.port, "other0()"), len(found(server.port, "before()"))) == ([], 1)
    assert post_text(server.port, "more()").status == 503
    folder.rename(other)
    reports = server.stderr().count("fold: ")
    until(lambda: server.stderr().count("fold: ") > reports, "a round of the fold process")
    gone = get(server.port, "/readyz")
    assert (gone.status, gone.json()["status"]) == (503, "gone")
    assert found(server.port, "before") != []
    assert post_text(server.port, "meanwhile()").status == 503
    assert get(server.port, "/metrics").status == 200
    os.kill(worker, signal.SIGKILL)
    until(
        lambda: "no such folder, so no warehouse to read" in server.stderr().partition("ended with")[2],
        "a new worker",
    )
    assert not folder.exists()
    away.rename(folder)
    until(lambda: server.workers() and is_ready(server.port), "a worker that finds it")
    assert post_text(server.port, "afterwards()").status == 201
    assert found(server.port, "before()") != []
