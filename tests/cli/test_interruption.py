"""SIGTERM and Ctrl-C at any moment of any long command: one line and status 130, or the command's own end."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sigdir
from tests.conftest import ROOT, SAFETY_SECONDS, environment, import_files
from tests.examples import examples, long_except
from tests.serve.support import HOST, application, children_of, listening, until

ROWS = 60_000
MOMENTS = examples(4) + 1

PATIENT = """
import sys
from sigdir.cli.main import console
from sigdir.cli.main import end_interrupted
from sigdir.signatures import interruption
interruption._GRACE_SECONDS = 1e6
with interruption.noting(end_interrupted):
    print("begun", file=sys.stderr, flush=True)
    console()
"""
"""The command without the time limit of its end, so that it must look for signals; it says when it notes them."""

LONG = {
    "import": ["import", "{folder}/more.txt"],
    "verify": ["verify"],
    "export": ["export", "csv", "{folder}/rows.csv"],
    "report": ["report", "{folder}/page.html"],
    "compact": ["compact", "--all"],
    "backup": ["backup", "{folder}/backup"],
    "vacuum": ["vacuum"],
    "suppress": ["suppress", "f1(uint256)"],
    "decode": ["decode", "--file", "{folder}/calls.jsonl", "--output", "{folder}/decoded.parquet"],
    "sql": ["sql", "SELECT count(*) FROM range(100000000) a, range(1000000) b WHERE a.range % 7 = b.range % 5"],
    "stream": ["sql", "--output", "{folder}/rows.ndjson", "SELECT keccak256('f' || range) FROM range(1000000000)"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a warehouse, a list that is not imported yet, and calls."""
    folder = tmp_path_factory.mktemp("interrupted")
    for name in ("f", "g"):
        lines = (f"{name}{number}(uint256,address)\n" for number in range(ROWS))
        (folder / ("list.txt" if name == "f" else "more.txt")).write_text("".join(lines))
    calls = (json.dumps({"input": f"0xa9059cbb{number:0128x}"}) + "\n" for number in range(20_000))
    (folder / "calls.jsonl").write_text("".join(calls))
    import_files([folder / "list.txt"], folder / "warehouse")
    return folder


def interrupted(warehouse: Path, arguments: list[str], seconds: float) -> tuple[int, list[str]]:
    """Start a command, send it a signal after so many seconds; gives its status and its lines on standard error."""
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT, *arguments], cwd=ROOT, env=environment(warehouse),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        time.sleep(seconds)
        process.send_signal(random.choice([signal.SIGTERM, signal.SIGINT]))
        try:
            _, stderr = process.communicate(timeout=SAFETY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"{arguments} hangs after a signal at {seconds:.2f} s")
        return process.returncode, stderr.splitlines()


def require_a_clean_end(status: int, lines: list[str]) -> None:
    assert not any("Traceback" in line or "Error" in line for line in lines), lines
    if status == 130:
        assert lines[-1].partition(":")[0] == "interrupted", lines
        assert sum(line.startswith("interrupted") for line in lines) == 1, lines
    else:
        assert status == 0, lines


@pytest.mark.parametrize("name", long_except({"import"}, LONG))
def test_a_long_command_ends_at_any_moment(folder: Path, name: str) -> None:
    """And what is stored is whole afterwards."""
    arguments = [argument.format(folder=folder) for argument in LONG[name]]
    for moment in range(MOMENTS):
        status, lines = interrupted(folder / "warehouse", arguments, 0.2 + 0.6 * moment + 0.6 * random.random())
        require_a_clean_end(status, lines)
        assert name not in ("sql", "stream") or status == 130
    with sigdir.open(folder / "warehouse") as warehouse:
        assert warehouse.count("signatures") in (ROWS, 2 * ROWS)
    assert not list((folder / "warehouse" / "tmp").glob("*"))


def test_a_mirror_ends_at_any_moment(folder: Path, tmp_path: Path) -> None:
    """It loads kernels between its requests, and waits for most of its time."""
    with application(folder / "warehouse") as app, listening(app) as port:
        for moment in range(MOMENTS):
            arguments = ["mirror", f"http://{HOST}:{port}", "--rate", "20"]
            require_a_clean_end(*interrupted(tmp_path / "warehouse", arguments, 0.3 + 0.6 * moment))


@pytest.mark.long
def test_no_process_that_compiles_outlives_its_command(tmp_path: Path) -> None:
    """Signals go to the command alone, which ends the processes that it has started."""
    (folder := tmp_path / "kernels").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT, "compile"], cwd=ROOT,
        env=environment(tmp_path) | {"NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        children = until(lambda: children_of(process.pid), "the processes that compile")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=SAFETY_SECONDS)
    require_a_clean_end(process.returncode, stderr.splitlines())
    assert process.returncode == 130
    assert not any(Path("/proc", str(child)).exists() for child, _ in children)
