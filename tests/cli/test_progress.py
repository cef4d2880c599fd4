"""Progress on standard error where that is no terminal."""

from __future__ import annotations

import threading

import pytest

from sigdir.cli import progress


def test_each_stage_counts_its_own_rows() -> None:
    """Rows of an earlier stage are neither shown nor part of the rate: a mirror that imports would show each row twice."""
    lines = progress.Lines()
    assert lines.line() == ""
    shown = []
    for name, rows in (("signatures", 3), ("read", 1), ("write", 0)):
        lines.stage(name, 4)
        lines.rows(rows)
        lines.advance(2)
        shown.append(lines.line())
    fetched, read, written = shown
    assert fetched.startswith("signatures 50 %, 3 rows, ")
    assert read.startswith("read 50 %, 1 rows, ")
    assert written.startswith("write 50 %, ")


def test_a_phase_that_reports_nothing_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines come by themselves, and end with the work."""
    before, written, some = threading.enumerate(), [], threading.Event()

    def write_line(text: str) -> None:
        written.append(text)
        if len(written) == 4:
            some.set()

    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.001)
    monkeypatch.setattr(progress, "write_line", write_line)
    with progress.Lines() as lines:
        lines.stage("read", 10)
        lines.advance(10)
        some.wait()
    assert threading.enumerate() == before
    assert written[0] == "read ..."
    assert all(line.startswith(("read 0 %, ", "read 100 %, ")) for line in written[1:])
