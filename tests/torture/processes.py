"""The processes under torture: a server with its children, and commands. Each is ended by its pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tests.torture.ledger import Finding

ROOT = Path(__file__).parent.parent
HOST = "127.0.0.1"
HANGS_SECONDS = 120.0
"""What takes longer than this is taken to hang, which is a finding. Nothing is expected to be faster."""

Found = TypeVar("Found")


def until(look: Callable[[], Found | None], what: str) -> Found:
    """What ``look`` gives as soon as it gives something; raises Finding where it never does."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        seen = look()
        if seen:
            return seen
        time.sleep(0.02)
    raise Finding(f"waited {HANGS_SECONDS:.0f} s for {what}")


def command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "sigdir", *map(str, arguments)]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without this project's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SIGDIR_")} | dict(more)


def kill(pid: int) -> bool:
    """Kill -9; whether there was anything to kill."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def children(parent: int) -> dict[int, str]:
    """The command line of each living child, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):  # it has ended meanwhile
            state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(above) == parent and state != "Z":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return dict(sorted(found.items()))


class Server:
    """A running ``sigdir serve``: a supervisor, two workers, a folder."""

    def __init__(self, house: Path, errors: Path, fold_every: float) -> None:
        arguments: list[str | Path] = ["serve", "--warehouse", house, "--host", HOST, "--port", "0", "--workers", "2"]
        arguments += ["--fold-every", str(fold_every), "--no-log-requests"]
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command_line(*arguments), cwd=ROOT, env=environment({}),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
        self._left: list[int] = []
        self.port = 0
        try:
            self.port = until(self._ready, "a server to be ready")
        except BaseException:
            self.end()
            raise

    def _ready(self) -> int | None:
        if self._process.poll() is not None:
            raise Finding(f"a server ended with status {self._process.returncode}: {self.told()[-300:]!r}")
        ready = re.search(r"^ready: http://[\d.]+:(\d+)/", self.told(), re.MULTILINE)
        return int(ready[1]) if ready else None

    def told(self) -> str:
        return self._errors.read_text(errors="replace")

    def faults(self) -> list[str]:
        """What it has told of faults of its own."""
        return [line for line in self.told().splitlines() if re.match("Traceback|error:|Error", line)]

    def workers(self) -> list[int]:
        return [pid for pid, command in children(self._process.pid).items() if "sigdir.serve.servers.worker" in command]

    def folders(self) -> list[int]:
        return [pid for pid, command in children(self._process.pid).items() if " fold " in command]

    def kill_one(self, target: str, number: int) -> bool:
        """Kill a worker or the folder, which the supervisor replaces; whether there was one to kill."""
        pids = self.workers() if target == "worker" else self.folders()
        return bool(pids) and kill(pids[number % len(pids)])

    def kill_supervisor(self) -> None:
        """Kill the parent alone. Its children go on until ``end``."""
        self._left = list(children(self._process.pid))
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kill -9 of everything that is left of it."""
        left = self._left or list(children(self._process.pid))
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in left:
            if "sigdir" in _command_of(pid) or "sigdir.serve.servers.worker" in _command_of(
                pid
            ):  # and not a pid used anew
                kill(pid)
        self._left = []

    def stop(self) -> None:
        """SIGTERM, as an operator stops it; raises Finding where that is not in good order."""
        self._process.terminate()
        try:
            status = self._process.wait(HANGS_SECONDS)
        except subprocess.TimeoutExpired:
            raise Finding("a server does not stop") from None
        if status != 0:
            raise Finding(f"a server stopped with status {status}")


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def run(
    *arguments: str | Path, fault: str | None = None, kill_after: float | None = None
) -> subprocess.CompletedProcess[str]:
    """A command to its end, or to the end that the plan has for it; raises Finding where it hangs."""
    process = subprocess.Popen(
        command_line(*arguments), cwd=ROOT, env=environment({"SIGDIR_FAILPOINT": fault} if fault else {}),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if kill_after is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(kill_after)
            process.kill()
        out, err = process.communicate(timeout=HANGS_SECONDS)
    except subprocess.TimeoutExpired:
        raise Finding(f"{' '.join(map(str, arguments))} does not end") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
