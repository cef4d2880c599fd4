"""The server's figures: drawn by another process, kept in a file, drawn again seldom."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import orjson
import pytest

from sigdir.serve.statistics import drawing
from sigdir.serve.statistics.drawing import (
    Drawer,
    Drawing,
    draw,
    main,
)
from sigdir.warehouse.files import FileLock
from sigdir.warehouse.index.view import tidy
from sigdir.warehouse.paths import Paths
from tests.conftest import ROOT, import_files
from tests.serve.support import until


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A warehouse with the figures of its version 1."""
    paths = Paths(tmp_path_factory.mktemp("drawing") / "house")
    import_files([ROOT / "samples" / "erc-0020-token.txt"], paths.root)
    draw(paths)
    return paths


@pytest.fixture
def paths(drawn: Paths, tmp_path: Path) -> Paths:
    """A copy of it."""
    shutil.copytree(drawn.root, tmp_path / "house")
    return Paths(tmp_path / "house")


def add_version(paths: Paths) -> None:
    import_files([ROOT / "samples" / "erc-0721-nft.txt"], paths.root)


def age(paths: Paths, seconds: int) -> None:
    written = paths.statistics.stat().st_mtime - seconds
    os.utime(paths.statistics, (written, written))


def is_drawing() -> bool:
    return any(thread.name == "statistics" for thread in threading.enumerate())


def newest(drawer: Drawer, version: int) -> Drawing:
    """The figures of this version, waited for."""

    def look() -> Drawing | None:
        found = drawer.newest(version)
        return found if found is not None and found.version == version else None

    return until(look, f"figures of version {version}")


def test_what_is_drawn_is_shown_without_work(paths: Paths) -> None:
    """A file of this version is read, and no process starts."""
    found = Drawer(paths).newest(1)
    assert found is not None
    assert found.version == 1
    assert found.figures[0]["name"] == "growth"
    assert not is_drawing()


def test_a_newer_version_is_drawn_once_ten_minutes_have_passed(paths: Paths) -> None:
    """Until then the older figures are shown, and say of which version they are."""
    drawer = Drawer(paths)
    add_version(paths)
    before = drawer.newest(2)
    assert before is not None
    assert before.version == 1
    assert not is_drawing()
    age(paths, 601)
    assert newest(drawer, 2).tag != before.tag


@pytest.mark.parametrize("held", ["{", '{"version": 1, "about": "", "totals": [], "figures": [], "code": "other"}'])
def test_what_is_no_drawing_of_this_code_is_drawn_again(paths: Paths, held: str) -> None:
    """A file that is broken, or written by other code."""
    paths.statistics.write_text(held)
    drawer = Drawer(paths)
    until(lambda: (found := drawer.newest(1)) is not None and found.figures, "a drawing")
    assert orjson.loads(paths.statistics.read_bytes())["code"] == drawing._code()


def test_a_drawing_that_fails_is_told_and_not_tried_at_once(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    """A damaged file of data leaves a line on standard error; the next try comes a minute later."""
    paths.statistics.unlink()
    data = next(paths.table.glob("*/*.parquet"))
    held = bytearray(data.read_bytes())
    held[100] ^= 1
    data.write_bytes(held)
    drawer = Drawer(paths)
    assert drawer.newest(1) is None
    until(lambda: drawer.has_failed, "a failure")
    assert drawer.newest(1) is None
    assert not is_drawing()
    told = capfd.readouterr().err
    assert told.startswith(f"statistics: {data}: damaged")
    assert told.count("\n") == 1


def test_one_process_draws_at_a_time(paths: Paths) -> None:
    """Who finds another at it ends, and leaves the file to it."""
    before = paths.statistics.stat().st_mtime_ns
    with FileLock(paths.statistics_lock):
        assert main(str(paths.root)) == 0
    assert paths.statistics.stat().st_mtime_ns == before


def test_tidying_the_cache_leaves_the_drawing(paths: Paths) -> None:
    """Only indexes of files that are gone are removed."""
    stray = paths.cache / "signatures-gone-0001"
    stray.mkdir()
    tidy(paths)
    assert not stray.exists()
    assert paths.statistics.exists()
