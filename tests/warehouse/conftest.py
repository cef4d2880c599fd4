"""Fixtures of the tests of the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import Disk, small_disk


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """The paths of a warehouse that does not exist yet."""
    return Paths(tmp_path / "warehouse")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small disk of its own, which a test can fill."""
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted
