"""Commands and functions in processes of their own, forked from one that has loaded the modules and kernels.

A start of ``python -m sigdir`` takes 0.5 to 1.2 s of processor, nearly all of it for loading modules. What is killed, or
holds a lock, is a process as any other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

FORKED = multiprocessing.get_context("forkserver")
"""Processes that share nothing with this one, and none of its threads."""
FORKED.set_forkserver_preload(["tests.warehouse.support", "sigdir.cli.import_", "sigdir.cli.serve", "tests.warm"])


class Command:
    """``sigdir`` with these arguments in a process of its own, with the methods of ``subprocess.Popen``."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdout: Path, stderr: Path
    ) -> None:
        self.args = arguments
        stderr.touch()  # who waits for a line reads it at once
        self._process = FORKED.Process(target=_console, args=(arguments, folder, environment, (stdout, stderr)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (status := self.returncode) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run ``sigdir`` with these arguments to its end, as ``subprocess.run`` does."""
    with tempfile.TemporaryDirectory() as written:
        outputs = Path(written, "stdout"), Path(written, "stderr")
        command = Command(arguments, folder, environment, *outputs)
        try:
            status = command.wait(seconds)
        finally:
            command.kill()
        return subprocess.CompletedProcess(arguments, status, *(output.read_text() for output in outputs))


def _console(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], outputs: Sequence[Path]) -> None:
    from sigdir.cli.main import console

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # of the environment that was
    sys.argv[:] = ["sigdir", *arguments]
    for number, output in enumerate([Path(os.devnull), *outputs]):
        with output.open("r+b" if number == 0 else "wb") as file:
            os.dup2(file.fileno(), number)
    console()
