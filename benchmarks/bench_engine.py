"""An import by an engine's tasks beside the local import, without the start of either; what it shuffles; its memory.

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
from typing import Any, Self

from benchmarks import corpus
from benchmarks.measure import ROOT, Figure
from benchmarks.measure import sigdir as run_sigdir

_PYSPARK = os.environ.get("SIGDIR_TEST_PYSPARK", "")
_KEY_BYTES = 28
"""What Sail shuffles of a candidate: the Arrow columns bucket, high, low and number."""


def figures(rows: int, rounds: int) -> list[Figure]:
    lines = corpus.lines(rows)
    local = [_seconds(lines, "local") for _ in range(rounds)]
    sail = [_seconds(lines, "spark") for _ in range(rounds)]
    found = [
        _beside(f"Sail: import {rows:,} distinct lines, beside the local import", sail, local, 3),
        _bytes("Sail: bytes shuffled a candidate", _KEY_BYTES),
    ]
    if not _PYSPARK or shutil.which("java") is None:
        return found
    spark = [_pyspark(lines, "local[2]") for _ in range(rounds)]
    one, two = (_pyspark(lines, f"local-cluster[{number},1,2048]") for number in (1, 2))
    found.append(_beside(f"PySpark local[2]: import {rows:,} distinct lines", [r.seconds for r in spark], local, 0))
    found.append(_bytes("PySpark: bytes shuffled a candidate", spark[-1].shuffled / rows))
    work = [run.stages["read"] + run.stages["write"] for run in (one, two)]
    found.append(
        Figure(
            "PySpark: 2 executors of one core beside 1, map and write", f"{work[1]:.1f} s", f"{work[0]:.1f} s",
            work[0] / work[1], "any", True,
        )
    )  # fmt: skip
    return found


def _beside(name: str, ours: list[float], theirs: list[float], at_most: float) -> Figure:
    ratio = min(ours) / min(theirs)
    wanted = f"<= {at_most:g}x" if at_most else "any"
    holds = not at_most or ratio <= at_most
    return Figure(name, f"{min(ours):.2f} s", f"{min(theirs):.2f} s", ratio, wanted, holds, ours, theirs)


def _bytes(name: str, number: float) -> Figure:
    return Figure(name, f"{number:.1f}", "32", number / 32, "<= 32", number <= 32)


def memory(rows: int) -> list[Figure]:
    """Peak memory of a Python worker at three times the rows, beside that at the rows."""
    if not _PYSPARK or shutil.which("java") is None:
        return []
    peaks = [_pyspark(corpus.lines(count), "local-cluster[1,1,2048]").worker_mib for count in (3 * rows, rows)]
    return [
        Figure(
            f"PySpark: peak memory of a Python worker, {3 * rows:,} rows beside {rows:,}", f"{peaks[0]:.0f} MiB",
            f"{peaks[1]:.0f} MiB", peaks[0] / peaks[1], "<= 1536 MiB", max(peaks) <= 1536,
        )
    ]  # fmt: skip


def _seconds(lines: Path, engine: str) -> float:
    """The seconds of an import's stages, which begin when the engine is there."""
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder:
        run = run_sigdir(
            "import", str(lines), "--engine", engine, "--warehouse", str(Path(folder, "w")), "--quiet", "--json"
        )
    return float(json.loads(run.output)["seconds"])


@dataclass(frozen=True)
class _SparkRun:
    """An import by PySpark: its stages, the bytes that it shuffled, the largest Python worker."""

    seconds: float
    stages: dict[str, float]
    shuffled: int
    worker_mib: float


def _pyspark(lines: Path, master: str) -> _SparkRun:
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder:
        events = Path(folder, "events")
        events.mkdir()
        logged = f"--conf spark.eventLog.enabled=true --conf spark.eventLog.compress=false --conf spark.eventLog.dir=file://{events} pyspark-shell"
        command = [_PYSPARK, "-m", "sigdir", "import", str(lines), "--engine", "spark", "--master", master]
        process = subprocess.Popen(
            [*command, "--warehouse", str(Path(folder, "w")), "--quiet", "--json"], stdout=subprocess.PIPE, cwd=folder,
            env=os.environ | {"PYSPARK_SUBMIT_ARGS": logged, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        with _Watch() as watch:
            output, _ = process.communicate()
        assert process.returncode == 0, f"{master}: status {process.returncode}"
        report = json.loads(output)
        return _SparkRun(report["seconds"], report["stages"], _shuffled(events), watch.peak_mib)


def _shuffled(events: Path) -> int:
    """The bytes that all tasks wrote for a shuffle, by Spark's event log."""
    total = 0
    for file in events.rglob("*"):
        for line in file.open() if file.is_file() else ():
            if '"SparkListenerTaskEnd"' in line:
                metrics: dict[str, Any] = json.loads(line).get("Task Metrics") or {}
                total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total


class _Watch:
    """Looks for the largest process of Spark's Python workers, ten times a second."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
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
                    if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                        status = (folder / "status").read_text()
                        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
                        self.peak_mib = max(self.peak_mib, int(peak.split()[1]) / 1024)
                except (OSError, StopIteration):
                    continue
