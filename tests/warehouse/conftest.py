"""Fixtures of the tests of the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sigdir.warehouse.paths import Paths
from tests.faulty_store import S3, s3_server
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


@pytest.fixture(scope="session")
def s3_running() -> Iterator[S3]:
    with s3_server() as running:
        yield running


@pytest.fixture
def s3(s3_running: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A real S3 server on loopback, which fails as the test says, and the environment of its users."""
    for name, value in s3_running.variables.items():
        monkeypatch.setenv(name, value)
    s3_running.faults.clear()
    s3_running.requests.clear()
    yield s3_running
    s3_running.faults.clear()
    s3_running.before = lambda *_: None
