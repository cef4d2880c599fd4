"""`python -m benchmarks.scale`: what a candidate costs on an engine, measured here, and what many cost by that.

The constants are those of a list of distinct lines, imported into an empty warehouse by Sail in this process. docs/scale.md
has the table that this prints.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import corpus
from benchmarks.measure import machine
from sigdir.cli.spark_session import open_session
from sigdir.pipeline import engine
from sigdir.pipeline.engine import SPLIT_BLOCKS
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import ImportRun, Options, run_import
from sigdir.pipeline.source import BLOCK_BYTES, Source
from sigdir.warehouse.table.files import size_of
from sigdir.warehouse.table.paths import Paths

_DRIVER_BYTES = 1 + 8
"""Of the driver's mapped files: a flag, and the id of a text where one is a duplicate."""
_FILES_A_TASK = 8
"""Texts and keys of two collections, sightings, rejects, the task, its result."""
_SIZES = (10**8, 10**9, 10**10)


@dataclass
class _Measured:
    """Reads by an engine, and measures the processor time and the run's folder."""

    session: Any
    seconds: float = 0.0
    run_bytes: int = 0

    def __call__(self, run: ImportRun, sources: list[Source]) -> None:
        began = time.process_time()
        engine.read_inputs(self.session, True, run, sources)
        self.seconds = time.process_time() - began
        self.run_bytes = size_of(run.state.folder)


@dataclass(frozen=True)
class Constants:
    """What one candidate costs: seconds of one core, bytes."""

    core_seconds: dict[str, float]
    input_bytes: float
    run_bytes: float
    table_bytes: float
    evidence_bytes: float


def measured(rows: int) -> Constants:
    lines = corpus.lines(rows)
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder, open_session(None) as session:
        samples = [str(corpus.lines(100_000))]
        run_import(Options(samples, Path(folder, "warm")), Reporter(), _Measured(session))  # loads the kernels
        engine, paths = _Measured(session), Paths(Path(folder, "warehouse"))
        began = time.process_time()
        report = run_import(Options([str(lines)], paths.root), Reporter(), engine)
        total = time.process_time() - began
        assert report.total("imported") == rows
        seconds = {"map": engine.seconds, "driver": total - engine.seconds}
        return Constants(
            {stage: spent / rows for stage, spent in seconds.items()},
            lines.stat().st_size / rows,
            engine.run_bytes / rows,
            size_of(paths.table) / rows,
            size_of(paths.evidence) / rows,
        )


def _row(name: str, values: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(values) + " |"


def table(found: Constants) -> list[str]:
    """The lines of the Markdown table of docs/scale.md."""

    def hours(stages: Sequence[str]) -> list[str]:
        return [f"{sum(found.core_seconds[stage] for stage in stages) * size / 3600:,.2f}" for size in _SIZES]

    def gigabytes(each: float) -> list[str]:
        return [f"{each * size / 1e9:,.1f}" for size in _SIZES]

    tasks = [found.input_bytes * size / (SPLIT_BLOCKS * BLOCK_BYTES) for size in _SIZES]
    return [
        _row("candidates", [f"{size:,}" for size in _SIZES]),
        "|---|--:|--:|--:|",
        _row("core hours: map", hours(["map"])),
        _row("core hours: driver", hours(["driver"])),
        _row("input, GB", gigabytes(found.input_bytes)),
        _row("run's folder, GB", gigabytes(found.run_bytes)),
        _row("table, GB", gigabytes(found.table_bytes)),
        _row("evidence, GB", gigabytes(found.evidence_bytes)),
        _row("driver's mapped files, GB, at most", gigabytes(_DRIVER_BYTES)),
        _row("tasks", [f"{count:,.0f}" for count in tasks]),
        _row("files written: a store's PUTs, and as many GETs", [f"{count * _FILES_A_TASK:,.0f}" for count in tasks]),
    ]


@click.command()
@click.option("--rows", default=4_000_000, show_default=True, help="Lines to measure with.")
def main(rows: int) -> None:
    """Measure the constants of docs/scale.md, and print them and its table."""
    found = measured(rows)
    about = machine()
    click.echo(f"{rows:,} distinct lines, {about['cpu']}, {os.cpu_count()} cores\n")
    for stage, seconds in found.core_seconds.items():
        click.echo(f"{stage}: {seconds * 1e6:.2f} us of one core a candidate")
    for name in ("input_bytes", "run_bytes", "table_bytes", "evidence_bytes"):
        click.echo(f"{name}: {getattr(found, name):.1f} a candidate")
    click.echo("\n" + "\n".join(table(found)))


if __name__ == "__main__":
    main()
