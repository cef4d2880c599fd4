"""The command `sigdir compile`."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import click

from sigdir.cli.errors import Command, Failure
from sigdir.cli.options import quiet_option
from sigdir.cli.progress import reporter
from sigdir.pipeline.progress import Reporter
from sigdir.serve.warm import STEPS
from sigdir.signatures import kernels

_POLL_SECONDS = 1.0


@click.command(cls=Command)
@quiet_option()
def compile(quiet: bool) -> None:
    """Compile the kernels now, so that no later command waits for it.

    The grammar, the hash, and the search and rendering of rows are compiled for this machine's
    processor: once after an installation, and again after an upgrade. Without this command the
    first import or the first start of a server does it. The result is kept beside the code, or in
    NUMBA_CACHE_DIR.

    Exit status: 0 done, 2 no folder for compiled kernels can be written to, 130 interrupted.

    \b
    Examples:
      sigdir compile
      NUMBA_CACHE_DIR=/var/cache/signatures sigdir compile --quiet
    """
    if kernels.FOLDER is None:
        raise Failure("no folder for compiled kernels can be written to; set NUMBA_CACHE_DIR to one that can")
    kernels.remove_compiled()
    with reporter(quiet) as progress:
        progress.stage("compiling kernels, once, about 20 s", len(STEPS) + 1)
        _run(list(STEPS), progress)
        _run(["import"], progress)
    if not quiet:
        click.echo(f"kernels are compiled, in {kernels.FOLDER}")


def _run(steps: list[str], progress: Reporter) -> None:
    """Run each step in a process of its own, one a core at a time; raises Failure."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(_step, name) for name in steps}
        while running:
            done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
            for step in done:
                step.result()
            progress.advance(len(done))


def _step(name: str) -> None:
    command = [sys.executable, "-P", "-m", "sigdir.serve.warm", name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"compiling ended with status {done.returncode}: {done.stderr.strip().rpartition(chr(10))[2]}")
