"""What tells the states of a file from each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sigdir.warehouse.table.files import file_identity, file_state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "list.txt"
    path.write_text("first")
    os.utime(path, (1, 2))  # read in 1970, before it was written: the next reading is noted
    return path


def read(path: Path) -> None:
    path.read_text()


def write(path: Path) -> None:
    path.write_text("again")
    os.utime(path, (1, 3))


def put_another(path: Path) -> None:
    (other := path.with_name("other")).write_text("first")
    os.utime(other, (1, 2))
    other.replace(path)


@pytest.mark.parametrize(
    ("change", "has_same_state", "is_same_file"),
    [(read, True, True), (write, False, True), (put_another, False, False)],
)
def test_a_state_changes_with_a_file(
    path: Path, change: Callable[[Path], None], has_same_state: bool, is_same_file: bool
) -> None:
    """Reading changes nothing; writing changes the state, and another file in its place the identity too."""
    before = file_state(os.fsencode(path))
    change(path)
    assert (file_state(os.fsencode(path)) == before) == has_same_state
    assert (file_identity(os.fsencode(path)) == before[:16]) == is_same_file


def test_a_file_that_is_missing_has_an_empty_state(tmp_path: Path) -> None:
    assert file_state(os.fsencode(tmp_path / "missing")) == b""
