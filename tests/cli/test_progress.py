"""Progress on standard error where that is no terminal."""

from __future__ import annotations

import pytest

from sigdir.cli import progress


def test_each_stage_counts_its_own_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of an earlier stage are neither shown nor part of the rate: a mirror that imports would show each row twice."""
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    lines = progress.Lines()
    lines.stage("signatures", 4)
    lines.rows(3)
    lines.advance(2)
    lines.stage("read", 4)
    lines.rows(1)
    lines.advance(2)
    lines.stage("write", 4)
    lines.advance(2)
    _, fetched, _, read, _, written = capsys.readouterr().err.splitlines()
    assert fetched.startswith("signatures 50 %, 3 rows, ")
    assert read.startswith("read 50 %, 1 rows, ")
    assert written == "write 50 %"
