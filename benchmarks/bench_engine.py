"""An import by an engine's tasks beside the local import, without the start of either; its memory.

PySpark is measured where SIGDIR_TEST_PYSPARK names a Python that has it, and Java is there: it cannot be installed beside
pyspark-client, which Sail uses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Self

from benchmarks import corpus
from benchmarks.measure import ROOT, Figure
from benchmarks.measure import sigdir as run_sigdir

_PYSPARK = os.environ.get("SIGDIR_TEST_PYSPARK", "")


def figures(rows: int, rounds: int) -> list[Figure]:
    """Sail and PySpark beside the local import."""
    lines = corpus.lines(rows)
    local = [_seconds(lines, "local") for _ in range(rounds)]
    sail = [_seconds(lines, "spark") for _ in range(rounds)]
    found = [_beside(f"Sail: import {rows:,} distinct lines, beside the local import", sail, local, 3)]
    if _has_pyspark():
        spark = [_pyspark(lines, "local[2]") for _ in range(rounds)]
        name = f"PySpark local[2]: import {rows:,} distinct lines, beside the local import"
        found.append(_beside(name, [run.seconds for run in spark], local, 3))
    return found


def executors(rows: int, rounds: int) -> list[Figure]:
    """The reading on two executors of one core beside that on one."""
    if not _has_pyspark():
        return []
    lines = corpus.lines(rows)
    pairs = [[_pyspark(lines, f"local-cluster[{number},1,2048]") for number in (1, 2)] for _ in range(rounds)]
    one, two = ([run.stages["read"] for run in runs] for runs in zip(*pairs, strict=True))
    ratio = min(one) / min(two)
    wanted, is_wanted = (">= 1.6x", ratio >= 1.6) if (os.cpu_count() or 1) >= 4 else ("any", True)
    name = f"PySpark: reading {rows:,} lines, 2 executors of one core beside 1"
    return [Figure(name, f"{min(two):.1f} s", f"{min(one):.1f} s", ratio, wanted, is_wanted, two, one)]


def memory(rows: int) -> list[Figure]:
    """Peak memory of a Python worker and of its executor's JVM, at ten times the rows beside that at three times."""
    if not _has_pyspark():
        return []
    less, more = (_pyspark(corpus.lines(count * rows), "local-cluster[1,1,2048]").peaks for count in (3, 10))
    beside = f"{10 * rows:,} rows beside {3 * rows:,}"
    holds = max(more[_WORKER], less[_WORKER]) <= 1536 and more[_WORKER] <= 1.1 * less[_WORKER]
    return [
        _memory(f"PySpark: a Python worker, {beside}", _WORKER, more, less, "<= 1536 MiB, 1.1x", holds),
        _memory(f"PySpark: the JVM of its executor, {beside}", _EXECUTOR, more, less, "any", True),
        _memory(f"PySpark: the driver's Python, {beside}", _DRIVER, more, less, "any", True),
    ]


def _memory(name: str, part: str, more: dict[str, float], less: dict[str, float], wanted: str, holds: bool) -> Figure:
    ours, theirs = more[part], less[part]
    return Figure(name, f"{ours:.0f} MiB", f"{theirs:.0f} MiB", ours / max(1, theirs), wanted, holds)


def _has_pyspark() -> bool:
    return bool(_PYSPARK) and shutil.which("java") is not None


def _beside(name: str, ours: list[float], theirs: list[float], at_most: float) -> Figure:
    ratio = min(ours) / min(theirs)
    wanted = f"<= {at_most:g}x" if at_most else "any"
    holds = not at_most or ratio <= at_most
    return Figure(name, f"{min(ours):.2f} s", f"{min(theirs):.2f} s", ratio, wanted, holds, ours, theirs)


def _seconds(lines: Path, engine: str) -> float:
    """The seconds of an import's stages, which begin when the engine is there."""
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder:
        run = run_sigdir(
            "import", str(lines), "--engine", engine, "--warehouse", str(Path(folder, "w")), "--quiet", "--json"
        )
    return float(json.loads(run.output)["seconds"])


@dataclass(frozen=True)
class _SparkRun:
    """An import by PySpark: its stages, the largest process of each kind in MiB."""

    seconds: float
    stages: dict[str, float]
    peaks: dict[str, float]


def _pyspark(lines: Path, master: str) -> _SparkRun:
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder:
        command = [_PYSPARK, "-m", "sigdir", "import", str(lines), "--engine", "spark", "--master", master]
        process = subprocess.Popen(
            [*command, "--warehouse", str(Path(folder, "w")), "--quiet", "--json"], stdout=subprocess.PIPE, cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        with _Watch() as watch:
            output, _ = process.communicate()
        assert process.returncode == 0, f"{master}: status {process.returncode}"
        report = json.loads(output)
        return _SparkRun(report["seconds"], report["stages"], watch.peaks)


_WORKER, _EXECUTOR, _DRIVER = "pyspark.daemon", "CoarseGrainedExecutorBackend", "sigdir"


class _Watch:
    """Looks for the largest process of each kind, by its command line, ten times a second."""

    def __init__(self) -> None:
        self.peaks = dict.fromkeys((_WORKER, _EXECUTOR, _DRIVER), 0.0)
        self._stop = Event()
        self._thread = Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                    part = next((part for part in self.peaks if any(word.endswith(part) for word in words)), None)
                    if part is None or (part == _DRIVER and "--master" not in words):
                        continue
                    status = (folder / "status").read_text()
                    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
                    self.peaks[part] = max(self.peaks[part], int(peak.split()[1]) / 1024)
                except (OSError, StopIteration):
                    continue
