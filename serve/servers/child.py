"""A process of the server: started by the supervisor, started again when it ends, ended when it is silent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from sigdir.serve.core.process import end_with_parent

_START_POLLS = 6000
"""A worker may be silent for so many polls more while it starts, ten minutes: kernels may be compiled first."""


class Child:
    """A module that runs as a process, in a session of its own: a Ctrl-C reaches the parent alone, which stops all in order.

    ``-P`` keeps the folder where the server was started off the import path. With ``beats`` the last argument is the
    descriptor of a pipe, into which the process writes a byte each second; the pipe breaks when the parent has ended.
    """

    def __init__(
        self,
        module: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
        *,
        beats: bool = False,
    ) -> None:
        """Not started yet. It inherits the descriptors."""
        self._command = [sys.executable, "-P", "-m", *module]
        self._environment, self._descriptors = environment, tuple(descriptors)
        self._has_beats = beats
        self._beats: int | None = None
        self._silent_polls = 0

    def start(self) -> None:
        """Start it, or the next one in its place."""
        command, descriptors = self._command, self._descriptors
        self._forget_beats()
        if self._has_beats:
            self._beats, theirs = os.pipe()
            os.set_blocking(self._beats, False)
            os.set_blocking(theirs, False)  # a worker goes on while the supervisor is stopped
            command, descriptors = [*command, str(theirs)], (*descriptors, theirs)
            self._silent_polls = -_START_POLLS
        self._process = subprocess.Popen(
            command, env=self._environment, pass_fds=descriptors, start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - there are no other threads here
        )  # fmt: skip
        if self._has_beats:
            os.close(theirs)

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def silent_polls(self) -> int:
        """For how many polls it has not beaten; below zero while it starts. To be called at each poll.

        Polls are counted, not seconds: where the parent did not run either, the child is not to blame.
        """
        if self._beats is None:
            return 0
        heard = b""
        with suppress(BlockingIOError):
            heard = os.read(self._beats, 65_536)
        self._silent_polls = 0 if heard else self._silent_polls + 1
        return self._silent_polls

    def terminate(self) -> None:
        self._process.terminate()

    def end(self, seconds: float = 0.0) -> None:
        """Wait for its end so long, then kill it: what was stopped hears nothing else."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget_beats()

    def _forget_beats(self) -> None:
        if self._beats is not None:
            os.close(self._beats)
            self._beats = None
