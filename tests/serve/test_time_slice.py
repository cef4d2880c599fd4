"""Threads that answer have short time slices; the process that folds has the kernel's."""

from __future__ import annotations

import ctypes
import platform
import struct
import threading
from pathlib import Path

import pytest

from sigdir.serve.servers.time_slice import SLICE_NANOSECONDS, shorten_time_slice
from tests.serve.support import (
    by,
    children_of,
    post_text,
    serving,
    until,
)

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
_RUNTIME = struct.Struct("=IIQiIQ")  # the first fields of struct sched_attr


def slice_of(thread: int) -> int:
    """Nanoseconds, read from the kernel; skips the test where it gives none."""
    attributes = ctypes.create_string_buffer(56)
    number = _SCHED_GETATTR.get(platform.machine())
    if number is None or ctypes.CDLL(None).syscall(number, thread, attributes, len(attributes), 0) != 0:
        pytest.skip("this system does not show time slices")
    slice_ = int(_RUNTIME.unpack_from(attributes)[5])
    if slice_ == 0:
        pytest.skip("Linux before 6.12 has the same time slice for all")
    return slice_


def short_slices_in(pid: int) -> int:
    """The number of threads of a process that have short time slices."""
    slices = [slice_of(int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()]
    return slices.count(SLICE_NANOSECONDS)


def test_a_thread_and_those_that_it_starts() -> None:
    """And no other: the caller keeps its own."""
    before = slice_of(0)
    seen: list[int] = []

    def short() -> None:
        assert shorten_time_slice()
        seen.append(slice_of(0))
        child = threading.Thread(target=lambda: seen.append(slice_of(0)))
        child.start()
        child.join()

    thread = threading.Thread(target=short)
    thread.start()
    thread.join()
    assert seen == [SLICE_NANOSECONDS, SLICE_NANOSECONDS]
    assert slice_of(0) == before > SLICE_NANOSECONDS


@pytest.mark.parametrize("server", ["waitress", pytest.param("granian", marks=pytest.mark.long)])
def test_the_workers_of_a_server_and_not_its_folder(tmp_path: Path, server: str) -> None:
    """All threads that answer inherit short slices from the thread that starts them."""
    slice_of(0)
    with serving(tmp_path / "warehouse", *by(server), fold_every=60) as running:
        assert post_text(running.port, "short()").status == 201

        def started() -> dict[int, tuple[str, int]] | None:
            """Of each process of the server that answers or folds, its command and its number of threads with short slices."""
            parents = dict(children_of(running.process.pid))
            family = parents | {pid: command for parent in parents for pid, command in children_of(parent)}
            served = {pid: command for pid, command in family.items() if "budget_process" not in command}
            short = {pid: (command, short_slices_in(pid)) for pid, command in served.items()}
            return short if sum(threads > 1 for _, threads in short.values()) == 2 else None

        assert [threads for command, threads in until(started, "two workers").values() if "fold" in command] == [0]
