"""Commands and functions in processes of their own, forked from one that has loaded the modules.

A start of ``python -m sigdir`` takes 0.5 to 1 s of processor, nearly all of it for loading modules. What is killed, or holds
a lock, is a process as any other.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

FORKED = multiprocessing.get_context("forkserver")
"""Processes that share nothing with this one, and none of its threads."""
FORKED.set_forkserver_preload(["tests.warehouse.support", "sigdir.cli.import_"])


def run_forked(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run ``sigdir`` with these arguments to its end, as ``subprocess.run`` does."""
    with tempfile.TemporaryDirectory() as written:
        outputs = Path(written, "stdout"), Path(written, "stderr")
        process = FORKED.Process(target=_console, args=(arguments, folder, environment, outputs))
        process.start()
        process.join(seconds)
        process.kill()
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(arguments, process.exitcode, *(output.read_text() for output in outputs))


def _console(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], outputs: Sequence[Path]) -> None:
    from sigdir.cli.main import console

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["sigdir", *arguments]
    for number, output in enumerate(outputs, start=1):
        with output.open("wb") as file:
            os.dup2(file.fileno(), number)
    console()
