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
    """One line of the table. ``ratio`` compares ours with the reference, in the direction of ``wanted``.

    ``seconds`` are those of each run of ours, or its requests a second. ``cores`` is how many processors the runs kept busy.
    """

    name: str
    ours: str
    yardstick: str
    ratio: float
    wanted: str
    holds: bool
    seconds: list[float] = field(default_factory=list)
    yardstick_seconds: list[float] = field(default_factory=list)
    cores: float = 0.0

    @property
    def spread(self) -> float | None:
        """How far apart the slowest and the fastest of our runs are, beside the fastest; None for a single run."""
        runs = self.seconds
        return max(runs) / min(runs) - 1 if len(runs) > 1 and min(runs) > 0 else None


def compared(
    name: str,
    ours: Callable[[int], float],
    yardstick: Callable[[], float],
    at_most: float,
    rounds: int,
) -> Figure:
    """Run ours and the reference alternately. The best of each counts, because the machines are noisy."""
    mine: list[float] = []
    theirs: list[float] = []
    cores: list[float] = []
    for number in range(rounds):
        theirs.append(yardstick())
        before, began = processor_seconds(), time.perf_counter()
        mine.append(ours(number))
        cores.append((processor_seconds() - before) / (time.perf_counter() - began))
    ratio = min(mine) / min(theirs)
    return Figure(
        name, f"{min(mine):.2f} s", f"{min(theirs):.2f} s", ratio, f"<= {at_most:g}x", ratio <= at_most, mine, theirs,
        median(cores),
    )  # fmt: skip


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
    by_name = {figure.name: asdict(figure) for figure in figures}
    if path.exists():
        by_name = {old["name"]: old for old in json.loads(path.read_text())["figures"]} | by_name
    path.write_text(json.dumps({"machine": document, "rows": rows, "figures": list(by_name.values())}, indent=1) + "\n")
    return path


def saved(rows: int) -> tuple[list[Figure], dict[str, float]]:
    """The figures of the last day on which this size was measured, and the machine's limits."""
    document = json.loads(max(_RESULTS.glob(f"*-{rows}.json")).read_text())
    return [Figure(**figure) for figure in document["figures"]], document["machine"].get("limits", {})
