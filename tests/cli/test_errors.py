"""Standard error: the one mapping of errors and interruptions to messages and exit statuses, and lines of progress."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sigdir.cli import progress
from sigdir.cli.errors import Command
from sigdir.cli.main import main
from sigdir.pipeline.errors import BadTarget
from sigdir.signatures import interruption
from sigdir.warehouse.table.errors import Busy, QueryError
from tests.conftest import ROOT, SAFETY_SECONDS, command_line, environment, import_lines
from tests.pipeline.support import invoke

NO_SPACE = os.strerror(errno.ENOSPC)


def fail_with(error: BaseException, state: str = "nothing was changed") -> click.testing.Result:
    """Run a command that raises this error."""

    def body() -> None:
        raise error

    return CliRunner().invoke(Command("command", callback=body, state=state))


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (BadTarget("x.csv", "is a folder"), 2, "Error: x.csv: is a folder"),
        (Busy("publish.lock is held by process 7"), 3, "Error: publish.lock is held by process 7"),
        (OSError(errno.ENOSPC, NO_SPACE, "a/b"), 2, f"Error: a/b: {NO_SPACE}; nothing was changed"),
        (OSError(errno.ENOSPC, NO_SPACE), 2, f"Error: {NO_SPACE}; nothing was changed"),
        (OSError(errno.ENOSPC, NO_SPACE, "a", None, "b"), 2, f"Error: b: {NO_SPACE}; nothing was changed"),
        (OSError(errno.ENOENT, "gone", "a", None, "b"), 2, "Error: a: gone; nothing was changed"),
        (OSError("too long"), 2, "Error: too long; nothing was changed"),
        (KeyboardInterrupt(), 130, "interrupted: nothing was changed"),
    ],
)
def test_an_error_is_one_line_and_a_status(error: BaseException, status: int, line: str) -> None:
    """On standard error; standard output stays empty."""
    result = fail_with(error)
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", line + "\n")


def no_folder(folder: Path) -> Path:
    """A place where no server can start: what it does not refuse ends there."""
    file = folder / "file"
    file.touch()
    return file / "warehouse"


@pytest.mark.parametrize(
    ("command", "option", "seconds"),
    [("fold", "--every", "nan"), ("serve", "--fold-every", "inf"), ("serve", "--silent-seconds", "1e10"), ("serve", "--sql-seconds", "-1")],
)  # fmt: skip
def test_seconds_that_nothing_can_wait_are_refused(command: str, option: str, seconds: str, tmp_path: Path) -> None:
    """The process that folds would end with an error at each pause."""
    result = CliRunner().invoke(main, [command, option, seconds, "--warehouse", str(no_folder(tmp_path))])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"Error: Invalid value for '{option}'" in result.stderr
    assert seconds in result.stderr or str(float(seconds)) in result.stderr


def test_a_server_s_options_are_refused_by_their_name(tmp_path: Path) -> None:
    """A URL that is none, in a variable too, a pause that the fold refuses, and files that hold no named queries."""
    folder, not_text, nameless = no_folder(tmp_path), tmp_path / "list.bin", tmp_path / "list.txt"
    not_text.write_bytes(b"\xff")
    nameless.write_text("SELECT 1\n")
    for options, variables, said in (
        (["--rpc", "foo"], {}, "'--rpc'"),
        ([], {"SIGDIR_RPC": "foo"}, "'--rpc'"),
        (["--fold-every", "0.01"], {}, "--fold-every takes 0.05 seconds or more, or 0 for never"),
        (["--sql", "--sql-queries", str(not_text)], {}, f"{not_text}: not UTF-8 at byte 0"),
        (["--sql", "--sql-queries", str(nameless)], {}, f"{nameless}: line 1: a query needs a name"),
    ):
        result = CliRunner().invoke(main, ["serve", *options, "--warehouse", str(folder)], env=variables)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr.splitlines()[-1]


def test_a_command_may_have_no_state() -> None:
    """Then the line has none. An error that nobody raises on purpose is a bug, and keeps its traceback."""
    assert fail_with(KeyboardInterrupt(), "").stderr == "interrupted\n"
    assert fail_with(OSError(errno.ENOSPC, NO_SPACE), "").stderr == f"Error: {NO_SPACE}\n"
    assert isinstance(fail_with(ZeroDivisionError()).exception, ZeroDivisionError)


def test_a_full_disk_that_has_no_name_is_told_by_what_is_free(tmp_path: Path) -> None:
    """pyarrow's errors and those of a write have no file: each disk that the command writes to is named."""

    def body(output: str) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    command = Command("command", callback=body, params=[click.Option(["--output"])], state="nothing was exported")
    output = tmp_path / "missing" / "rows.csv"
    stderr = CliRunner().invoke(command, ["--output", str(output)]).stderr
    free = rf"[\d,]+ MB are free in {re.escape(str(tmp_path))}"
    assert re.fullmatch(rf"Error: {NO_SPACE} \({free}(, [^()]*)?\); nothing was exported\n", stderr)


def test_signals_end_a_command() -> None:
    """SIGTERM as Ctrl-C, also one that an engine reports as its failure; handlers are in place only while it runs."""

    def end_by_sigterm() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        interruption.check()

    def fail_by_ctrl_c() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise QueryError("reading the stream failed")

    before = signal.getsignal(signal.SIGTERM)
    for body in (end_by_sigterm, fail_by_ctrl_c):
        result = CliRunner().invoke(Command("command", callback=body, state="no row was changed"))
        assert (result.exit_code, result.stderr) == (130, "interrupted: no row was changed\n")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_while_a_command_is_loaded_ends_it_with_130() -> None:
    """The modules of a command take a second; the interpreter reports each that it has imported."""
    command = [command_line()[0], "-X", "importtime", *command_line()[1:], "verify"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("sigdir.cli.errors" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        said = [line for line in process.stderr if not line.startswith("import time:")]
        assert process.wait(SAFETY_SECONDS) == 130
    assert [line.partition(":")[0].strip() for line in said] == ["interrupted"]


BINARY = "binary data: byte 10 is 0x00; write the bytes as hex digits"
LONG = "more than 524,288 characters, the most that are read"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["docs/examples/error.hex"], "docs/examples/error.hex is a file: write @docs/examples/error.hex"),
        (["@{folder}/code.bin"], BINARY),
        (["contract", "@{folder}/code.bin"], BINARY),
        (["contract", "vault.hex"], "there is no file 'vault.hex', and as hex digits: bytecode has 'v' at digit 1"),
        (["@{folder}/long.hex"], LONG),
        (["-"], LONG),
    ],
)
def test_what_decode_cannot_read_is_refused_for_what_it_is(
    warehouse: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    """The reason says that a file is binary, and how long a long one is: not what the part of it that was read looks like."""
    (tmp_path / "code.bin").write_bytes(b"(" * 9 + bytes(range(256)) * 40)
    (tmp_path / "long.hex").write_text("a" * (1 << 20))
    words = [word.format(folder=tmp_path) for word in ["decode", *arguments, "--warehouse", str(warehouse)]]
    done = CliRunner().invoke(main, words, input="a" * (1 << 20))
    assert (done.exit_code, done.stderr) == (2, f"Error: {said}\n")


def end_of(warehouse: Path, *arguments: str, **options: Any) -> tuple[int, bytes]:
    """The status and standard error of a command."""
    done = subprocess.run(
        [*command_line(), *arguments], cwd=ROOT, env=environment(warehouse), stderr=subprocess.PIPE,
        timeout=SAFETY_SECONDS, check=False, **options,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_a_closed_pipe_ends_a_command_quietly(warehouse: Path) -> None:
    """A reader may leave before the first line. On a full disk, output that cannot be written is not lost silently."""
    import_lines(warehouse, "f()")
    reading, writing = os.pipe()
    os.close(reading)
    assert end_of(warehouse, "sql", "FROM signatures", stdout=writing) == (0, b"")
    os.close(writing)
    with Path("/dev/full").open("wb") as full:
        assert end_of(warehouse, "stats", stdout=full) == (2, f"Error: {NO_SPACE}\n".encode())


def test_closed_standard_output_is_no_files(warehouse: Path, tmp_path: Path) -> None:
    """A file that is opened next would get its number, and the report."""
    (list_file := tmp_path / "list.txt").write_text("f()\n")
    assert end_of(warehouse, "import", str(list_file), "--quiet", preexec_fn=partial(os.close, 1)) == (0, b"")
    assert invoke(warehouse, "verify").status == 0


# Progress where standard error is no terminal.


def test_each_stage_counts_its_own_rows() -> None:
    """Rows of an earlier stage are neither shown nor part of the rate: a mirror that imports would show each row twice."""
    lines = progress.Lines()
    assert lines.line() == ""
    for name, count, shown in (
        ("signatures", 3, "50 %, 3 rows, "),
        ("read", 1, "50 %, 1 rows, "),
        ("write", 0, "50 %, "),
    ):
        lines.stage(name, 4)
        lines.rows(count)
        lines.advance(2)
        assert lines.line().startswith(f"{name} {shown}")
    assert "rows" not in lines.line()


def test_a_phase_that_reports_nothing_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines come by themselves, and end with the work."""
    before, written, some = threading.enumerate(), [], threading.Event()

    def write_line(text: str) -> None:
        written.append(text)
        if len(written) == 4:
            some.set()

    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.001)
    monkeypatch.setattr(progress, "write_line", write_line)
    with progress.Lines() as lines:
        lines.stage("read", 10)
        lines.advance(10)
        some.wait()
    assert threading.enumerate() == before
    assert written[0] == "read ..."
    assert all(line.startswith(("read 0 %, ", "read 100 %, ")) for line in written[1:])
