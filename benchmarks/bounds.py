"""What holds the figures: the processors that they kept busy, and what the machine's memory and disk can do."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.goals import GOALS
from benchmarks.measure import Figure

_BLOCK = 256 << 20
_SYNCS = 200

TITLES = {
    "memory": "memory copied by one core, GB/s",
    "disk": "written and synced, GB/s",
    "syncs": "small synced writes a second",
}


def limits(folder: Path, size: int = _BLOCK) -> dict[str, float]:
    """What memory and the disk of a folder can do, by the names of TITLES; takes about two seconds."""
    block = np.zeros(size, np.uint8)
    target = np.ones_like(block)
    memory = min(_timed_copy(block, target) for _ in range(5))
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        file.write(block.data)
        file.flush()
        os.fdatasync(file.fileno())
        disk = time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(_SYNCS):
            os.pwrite(file.fileno(), bytes(4096), 0)
            os.fdatasync(file.fileno())
        syncs = time.perf_counter() - began
    return {"memory": size / memory / 1e9, "disk": size / disk / 1e9, "syncs": _SYNCS / syncs}


def _timed_copy(block: np.ndarray, target: np.ndarray) -> float:
    began = time.perf_counter()
    target[:] = block
    return time.perf_counter() - began


def bound_by(figure: Figure, cores: int) -> str:
    """What a figure waits for, by the processors that it kept busy; empty where that was not measured."""
    busy = figure.cores
    if not busy:
        return ""
    if busy >= 0.8 * cores:
        return "the processors: all cores work"
    if busy >= 1.15:
        return "partly one thread: the others wait for it"
    if busy >= 0.8:
        return "one core: one thread does the work"
    return "waiting: for the disk, a lock or the client"


def page(figures: Sequence[Figure], limits: dict[str, float], cores: int) -> list[str]:
    """The last page, as Markdown: the machine's limits, then each figure with the processors that it kept busy."""
    lines = ["## What is bound by what", ""]
    lines += [f"- {TITLES[name]}: {value:,.1f}" for name, value in limits.items()]
    lines += ["", f"| what | of {cores} cores busy | bound by |", "|---|--:|---|"]
    for figure in figures:
        reason = bound_by(figure, cores)
        if reason:
            lines.append(f"| {GOALS[figure.goal].what} | {figure.cores:.2f} | {reason} |")
    return lines
