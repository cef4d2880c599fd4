"""The command `sigdir compile`."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import TextIO

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import quiet_option
from sigdir.cli.progress import reporter
from sigdir.pipeline.progress import Reporter
from sigdir.serve.servers.startup import PARTS, STEPS
from sigdir.signatures import kernels
from sigdir.signatures.interruption import each


@command()
@quiet_option()
def compile(quiet: bool) -> None:
    """Compile the kernels now, so that no later command waits for it.

    The grammar, the hash, and the search and rendering of rows are compiled for this machine's
    processor: once after an installation, and again after an upgrade; what is compiled already
    stays. Without this command the first import or the first start of a server does it. The result
    is kept beside the code, or in NUMBA_CACHE_DIR.

    Exit status: 0 done, 2 no folder for compiled kernels can be written to, 130 interrupted.

    \b
    Examples:
      sigdir compile
      NUMBA_CACHE_DIR=/var/cache/signatures sigdir compile --quiet
    """
    if kernels.FOLDER is None:
        raise Failure("no folder for compiled kernels can be written to; set NUMBA_CACHE_DIR to one that can")
    with reporter(quiet) as progress:
        progress.stage("compiling kernels, once; 15 seconds on an idle machine", len(STEPS))
        _run(progress)
    kernels.remove_other_editions(kernels.FOLDER)
    if not quiet:
        click.echo(f"kernels are compiled, in {kernels.FOLDER}")


def _run(progress: Reporter) -> None:
    """Run each part in a process of its own, which names its steps; raises Failure. None outlives an interruption."""
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "sigdir.serve.servers.startup"]
    with open(reading) as names, TemporaryFile("w+") as errors, ExitStack() as stack:
        for part in PARTS:
            process = subprocess.Popen([*command, *part], stdin=subprocess.DEVNULL, stdout=writing, stderr=errors)
            stack.callback(_end, process, errors)
        os.close(writing)
        for name in each(names):
            progress.advance(1)
            progress.note(f"compiled: {name.strip()}")


def _end(process: subprocess.Popen[bytes], errors: TextIO) -> None:
    """End a process that runs after an interruption; raises Failure where it failed."""
    if sys.exception() is not None:
        process.terminate()
    elif process.wait():
        errors.seek(0)
        reason = errors.read().strip().rpartition("\n")[2]
        raise Failure(f"compiling ended with status {process.returncode}: {reason}")
    process.wait()
