"""What tells the states of a file from each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sigdir.warehouse.table.files import file_identity, file_state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "list.txt"
    path.write_text("first")
    os.utime(path, (1, 2))  # read in 1970, before it was written: the next reading is noted
    return path


def test_reading_a_file_does_not_change_its_state(path: Path) -> None:
    before = file_state(os.fsencode(path))
    path.read_text()
    assert file_state(os.fsencode(path)) == before
    assert file_identity(os.fsencode(path)) == before[:16]


def test_a_state_changes_when_a_file_is_written_to(path: Path) -> None:
    before = file_state(os.fsencode(path))
    path.write_text("again")
    os.utime(path, (1, 3))
    assert file_state(os.fsencode(path)) != before
    assert file_identity(os.fsencode(path)) == before[:16]


def test_a_state_changes_when_a_file_is_replaced(path: Path, tmp_path: Path) -> None:
    before = file_state(os.fsencode(path))
    (tmp_path / "other").write_text("first")
    os.utime(tmp_path / "other", (1, 2))
    (tmp_path / "other").replace(path)
    assert file_state(os.fsencode(path)) != before
    assert file_identity(os.fsencode(path)) != before[:16]


def test_a_file_that_is_missing_has_an_empty_state(tmp_path: Path) -> None:
    assert file_state(os.fsencode(tmp_path / "missing")) == b""
