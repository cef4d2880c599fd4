"""Timing of whole commands, and the figures that were measured."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import GOALS

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Run:
    """One finished command: wall seconds, peak resident MiB, what it printed."""

    seconds: float
    peak_mib: float
    output: str


# The kernel counts what the parent holds at a child's start as the child's own peak, and this process holds 2 GiB after
# the searches. A small process in between holds 10 MiB.
_LAUNCHER = """
import os, resource, subprocess, sys, time
began = time.perf_counter()
status = subprocess.call(sys.argv[2:])
seconds = time.perf_counter() - began
os.write(int(sys.argv[1]), f"{seconds} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}".encode())
sys.exit(status)
"""


def timed(*command: str) -> Run:
    """Run a command in a process of its own. Raises RuntimeError if it fails."""
    measured, written = os.pipe()
    with open(measured) as report:
        launcher = [sys.executable, "-ISc", _LAUNCHER, str(written)]
        done = subprocess.run([*launcher, *command], cwd=ROOT, stdout=subprocess.PIPE, pass_fds=[written], check=False)
        os.close(written)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}")
        seconds, peak_kib = report.read().split()
    return Run(float(seconds), int(peak_kib) / 1024, done.stdout.decode())


def sigdir(*arguments: str) -> Run:
    return timed(sys.executable, "-m", "sigdir", *arguments)


def python(code: str, *arguments: str) -> Run:
    return timed(sys.executable, "-c", code, *arguments)


@dataclass
class Figure:
    """One line of the table: the key of its goal, and what was measured, in the goal's unit.

    ``ours`` and ``yardstick`` are the runs' seconds, or their requests a second where the goal is at least something.
    ``cores`` is how many processors our runs kept busy, ``day`` when that was.
    """

    goal: str
    value: float
    ours: list[float] = field(default_factory=list)
    yardstick: list[float] = field(default_factory=list)
    cores: float = 0.0
    day: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")

    @property
    def holds(self) -> bool:
        return GOALS[self.goal].holds(self.value)

    @property
    def row(self) -> list[str]:
        """What is measured, the value, ours and the yardstick's best, the spread, what is wanted."""
        goal = GOALS[self.goal]
        sides = ["", ""]
        if self.yardstick:
            sides = [_shown(side, goal.is_least) for side in (self.ours, self.yardstick)]
        spread = "" if self.spread is None else f"{100 * self.spread:.0f} %"
        return [goal.what, goal.number(self.value), *sides, spread, goal.shown]

    @property
    def spread(self) -> float | None:
        """How far apart the slowest and the fastest of our runs are, beside the fastest; None for a single run."""
        runs = self.ours
        return max(runs) / min(runs) - 1 if len(runs) > 1 and min(runs) > 0 else None


def _shown(runs: list[float], are_rates: bool) -> str:
    if are_rates:
        return f"{max(runs):,.0f}/s"
    best = min(runs)
    return f"{best:.2f} s" if best >= 0.1 else f"{best * 1000:.2f} ms"


def compared(goal: str, ours: Callable[[int], float], yardstick: Callable[[], float], rounds: int) -> Figure:
    """Run ours and the reference alternately, both in seconds. The best of each counts, because the machines are noisy."""
    mine: list[float] = []
    theirs: list[float] = []
    cores: list[float] = []
    for number in range(rounds):
        theirs.append(yardstick())
        before, began = processor_seconds(), time.perf_counter()
        mine.append(ours(number))
        cores.append((processor_seconds() - before) / (time.perf_counter() - began))
    return Figure(goal, min(mine) / min(theirs), mine, theirs, median(cores))


def processor_seconds() -> float:
    """What this process and its finished children have used of the processors so far."""
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def machine() -> dict[str, Any]:
    """The machine and the packages that the figures were measured with."""
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    flags = next((line for line in _cpuinfo() if line.startswith("flags")), "")
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "avx512": "avx512f" in flags,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("duckdb", "pyarrow", "numba", "numpy", "pycryptodome")},
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


_RESULTS = Path(__file__).parent / "results"


def save(figures: list[Figure], rows: int, limits: dict[str, float]) -> Path:
    """Save figures and the machine's limits in benchmarks/results, in one file per day and size."""
    document = machine() | {"limits": limits}
    path = _RESULTS / f"{document['when'][:10]}-{rows}.json"
    path.parent.mkdir(exist_ok=True)
    by_goal = {figure.goal: asdict(figure) for figure in figures}
    if path.exists():
        by_goal = {old["goal"]: old for old in json.loads(path.read_text())["figures"]} | by_goal
    path.write_text(json.dumps({"machine": document, "rows": rows, "figures": list(by_goal.values())}, indent=1) + "\n")
    return path


def saved(rows: int) -> tuple[list[Figure], dict[str, float]]:
    """The newest figure of each goal for this size, in the order of the goals, and the machine's limits of the last day."""
    found: dict[str, Figure] = {}
    limits: dict[str, float] = {}
    for path in sorted(_RESULTS.glob(f"*-{rows}.json")):
        document = json.loads(path.read_text())
        limits = document["machine"].get("limits", {})
        found |= {one["goal"]: Figure(**one) for one in document["figures"]}
    return [found[goal] for goal in GOALS if goal in found], limits
