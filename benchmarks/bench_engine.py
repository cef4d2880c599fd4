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
    found = [_beside("sail", sail, local)]
    if _has_pyspark():
        found.append(_beside("pyspark", [_pyspark(lines, "local[2]").seconds for _ in range(rounds)], local))
    return found


def memory(rows: int) -> list[Figure]:
    """Peak memory of a Python worker at ten times the rows."""
    if not _has_pyspark():
        return []
    return [Figure("pyspark memory", _pyspark(corpus.lines(10 * rows), "local-cluster[1,1,2048]").peak)]


def _has_pyspark() -> bool:
    return bool(_PYSPARK) and shutil.which("java") is not None


def _beside(goal: str, ours: list[float], theirs: list[float]) -> Figure:
    return Figure(goal, min(ours) / min(theirs), ours, theirs)


def _seconds(lines: Path, engine: str) -> float:
    """The seconds of an import's stages, which begin when the engine is there."""
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder:
        run = run_sigdir(
            "import", str(lines), "--engine", engine, "--warehouse", str(Path(folder, "w")), "--quiet", "--json"
        )
    return float(json.loads(run.output)["seconds"])


@dataclass(frozen=True)
class _SparkRun:
    """An import by PySpark, and its largest Python worker in MiB."""

    seconds: float
    peak: float


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
        return _SparkRun(report["seconds"], watch.peak)


class _Watch:
    """Looks for the largest Python worker, by its command line, ten times a second."""

    def __init__(self) -> None:
        self.peak = 0.0
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
                        self.peak = max(self.peak, int(peak.split()[1]) / 1024)
                except (OSError, StopIteration):
                    continue
