"""The command `sigdir compile`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from tempfile import TemporaryFile

import click

from sigdir.cli.errors import Command, Failure
from sigdir.cli.options import quiet_option
from sigdir.cli.progress import reporter
from sigdir.pipeline.progress import Reporter
from sigdir.serve.servers.warm import PARTS, STEPS
from sigdir.signatures import kernels
from sigdir.signatures.interruption import waiting

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
        progress.stage("compiling kernels, once; 15 seconds on an idle machine", len(STEPS))
        _run(progress)
    if not quiet:
        click.echo(f"kernels are compiled, in {kernels.FOLDER}")


def _run(progress: Reporter) -> None:
    """Run each part in a process of its own; raises Failure. No process outlives an interruption."""
    started: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(len(PARTS)) as pool:
        running = {pool.submit(_run_part, part, progress, started) for part in PARTS}
        try:
            while running:
                with waiting():
                    done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                for part in done:
                    part.result()
                progress.advance(0)
        finally:
            for part in running:
                part.cancel()
            for process in started:
                process.terminate()


def _run_part(steps: Sequence[str], progress: Reporter, started: list[subprocess.Popen[str]]) -> None:
    command = [sys.executable, "-P", "-m", "sigdir.serve.servers.warm", *steps]
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):  # fmt: skip
        started.append(process)
        for name in process.stdout or ():
            progress.advance(1)
            progress.note(f"compiled: {name.strip()}")
        if process.wait():
            errors.seek(0)
            reason = errors.read().strip().rpartition("\n")[2]
            raise Failure(f"compiling ended with status {process.returncode}: {reason}")
