"""The figures of the statistics page: rendered by another process into a file, at most every ten minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest

from sigdir.serve.pages.background import BackgroundRenderer, code_id, main, render
from sigdir.warehouse.index.view import tidy
from sigdir.warehouse.table.files import FileLock, replacing
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, import_files
from tests.serve.support import application, get, until


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A warehouse with the figures of its version 1."""
    paths = Paths(tmp_path_factory.mktemp("rendered") / "warehouse")
    import_files([ROOT / "samples" / "erc-0020-token.txt"], paths.root)
    render(paths)
    return paths


@pytest.fixture
def paths(rendered: Paths, tmp_path: Path) -> Paths:
    """A copy of ``rendered``."""
    shutil.copytree(rendered.root, tmp_path / "warehouse")
    return Paths(tmp_path / "warehouse")


def test_figures_of_this_version_are_only_read(paths: Paths) -> None:
    """No process is started for them."""
    renderer = BackgroundRenderer(paths)
    found = renderer.newest(1)
    assert found is not None
    assert found.version == 1
    assert '<figure class="figure" id="growth">' in found.html
    assert not renderer.is_rendering


def test_a_newer_version_is_rendered_after_ten_minutes(paths: Paths) -> None:
    """Until then the older figures are shown, with their version."""
    renderer = BackgroundRenderer(paths)
    import_files([ROOT / "samples" / "erc-0721-nft.txt"], paths.root)
    before = renderer.newest(2)
    assert before is not None
    assert before.version == 1
    assert not renderer.is_rendering
    older = paths.statistics.stat().st_mtime - 601
    os.utime(paths.statistics, (older, older))
    until(lambda: (found := renderer.newest(2)) is not None and found.version == 2, "figures of version 2")


OF_OTHER_CODE = '{"version": 1, "about": "", "html": "", "code": "other"}'


@pytest.mark.parametrize("content", ["{", OF_OTHER_CODE])
@pytest.mark.long
def test_a_file_of_other_code_is_rendered_again(paths: Paths, content: str) -> None:
    """So is a broken file."""
    paths.statistics.write_text(content)
    renderer = BackgroundRenderer(paths)
    until(lambda: (found := renderer.newest(1)) is not None and found.html, "figures")
    assert orjson.loads(paths.statistics.read_bytes())["code"] == code_id()


@pytest.mark.long
def test_a_failure_is_logged_and_not_retried_at_once(paths: Paths, capfd: pytest.CaptureFixture[str]) -> None:
    """A damaged data file leaves one line on standard error; the next try comes a minute later."""
    paths.statistics.unlink()
    data = next(paths.table.glob("*/*.parquet"))
    damaged = bytearray(data.read_bytes())
    damaged[100] ^= 1
    data.write_bytes(damaged)
    renderer = BackgroundRenderer(paths)
    assert renderer.newest(1) is None
    until(lambda: renderer.has_failed and not renderer.is_rendering, "a failure")
    assert renderer.newest(1) is None
    assert not renderer.is_rendering
    logged = capfd.readouterr().err
    assert logged.startswith(f"statistics: {data}: damaged")
    assert logged.count("\n") == 1


def test_a_page_without_figures_reloads_while_they_come(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a failure, nor where there is nothing to count."""

    def fails(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(subprocess, "run", fails)
    paths.statistics.unlink()
    with application(paths.root) as app:
        until(lambda: not get(app, "/statistics/").header("Refresh"), "a page that stays")
    with application(tmp_path / "empty") as app:
        assert not get(app, "/statistics/").header("Refresh")


def test_one_process_renders_at_a_time(paths: Paths) -> None:
    """A second process ends without touching the file."""
    before = paths.statistics.stat().st_mtime_ns
    with FileLock(paths.statistics_lock):
        assert main(str(paths.root)) == 0
    assert paths.statistics.stat().st_mtime_ns == before


def test_tidying_the_cache_keeps_the_figures(paths: Paths) -> None:
    """It removes only the indexes of data files that no longer exist, and what a killed process has left. The counts of
    misses stay too."""
    stray = paths.cache / "signatures-gone-0001"
    stray.mkdir()
    counts = [paths.misses, paths.misses.with_name("misses.sqlite-journal")]
    for one in counts:
        one.touch()
    with replacing(paths.statistics) as file:
        file.write(b"{}")
        tidy(paths)
    assert not stray.exists()
    assert all(one.exists() for one in counts)
    assert paths.statistics.read_bytes() == b"{}"
    left = paths.cache / ".statistics.json.01234567.part"
    left.touch()
    os.utime(left, (0, 0))
    tidy(paths)
    assert not left.exists()
