"""Fixtures of all tests: the folder of a warehouse, the command as users run it, an import in this process, a store."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Options, run_import
from sigdir.warehouse.staging.writer import make_warehouse
from sigdir.warehouse.table.paths import Paths
from tests.examples import draw_fewer
from tests.faulty_store import S3, s3_server

# A shell starts what runs in the background with Ctrl-C ignored, and children inherit that: they would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent

SAFETY_SECONDS = 300
"""The time limit of a command that hangs. No test measures speed with it."""


# Files whose tests kill processes, drive a browser, start servers and other processes or take seconds, the longest
# first. `make test-quick` leaves them out. `make test` begins with them, so that the last worker to finish is not the one
# with the longest file; the first five take little of its time and are the longest of `make test-all`.
SLOW = (
    "warehouse/test_kills.py", "torture/test_torture.py", "pipeline/test_hostile.py",
    "test_cookbook.py", "serve/test_hostile.py", "web/test_browser.py", "serve/test_live.py", "serve/test_servers.py",
    "serve/test_replica.py", "serve/test_budget.py", "serve/test_storage.py", "serve/test_mcp.py",
    "serve/test_sql.py", "pipeline/test_import.py", "pipeline/test_engine.py",
    "warehouse/test_working_copy.py", "pipeline/test_containers.py", "serve/test_counts.py", "pipeline/test_mirror.py",
    "pipeline/test_export.py", "serve/test_read_only_media.py", "serve/test_openapi.py", "warehouse/test_vacuum.py",
    "warehouse/test_compact.py", "serve/test_bulk.py", "web/test_axe.py", "serve/test_write_access.py",
    "warehouse/test_backup.py", "pipeline/test_deltas.py", "warehouse/test_publish.py", "warehouse/test_verify.py",
    "warehouse/test_broken.py", "warehouse/test_staging.py", "serve/test_long_texts.py", "serve/test_waitress.py",
    "serve/test_report.py", "pipeline/test_hostile_mirror.py", "pipeline/test_export_dataset.py",
    "warehouse/test_no_locks.py", "warehouse/test_log.py", "warehouse/test_format.py", "serve/test_resolve.py",
    "serve/test_contract.py", "serve/test_changes.py", "warehouse/test_commit.py",
    "serve/test_decode.py", "pipeline/test_decode_file.py", "warehouse/test_power.py",
    "signatures/test_kernels.py", "pipeline/test_corpora.py", "serve/test_background.py",
    "warehouse/test_sql_limits.py", "serve/test_dialects.py",
    "warehouse/test_stores.py", "fuzz/test_targets.py",
    "fuzz/test_cost.py", "test_patterns.py", "pipeline/test_export_pack.py", "signatures/test_pack.py",
    "signatures/test_contract.py", "test_install.py", "test_notebook.py",
    "serve/test_operations.py", "serve/test_app.py", "serve/test_suppressed.py",
)  # fmt: skip
SLOW_FOLDERS = ("web", "clients", "cli")
_QUICK = "not slow and not long"
"""What `make test-quick` asks for."""


@cache
def _place(path: Path) -> int:
    """The place of a file in the order of tests."""
    name = path.relative_to(ROOT / "tests").as_posix()
    if name in SLOW:
        return SLOW.index(name)
    return len(SLOW) + (name.partition("/")[0] not in SLOW_FOLDERS)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr in ("not long", _QUICK):
        draw_fewer()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test-quick` does not import the files that it leaves out: that would take a third of its time."""
    if config.option.markexpr == _QUICK and collection_path.suffix == ".py" and _place(collection_path) <= len(SLOW):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests and put them first."""
    for item in items:
        if _place(item.path) <= len(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: _place(item.path))


def pytest_collection_finish() -> None:
    """What collection has made lasts: each full pass of the garbage collector over it would take 0.3 s of processor."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of a warehouse, not made yet."""
    return tmp_path / "warehouse"


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
    s3_running.ranges.clear()
    yield s3_running
    s3_running.faults.clear()
    s3_running.before = lambda *_: None


def command_line() -> list[str]:
    return [sys.executable, "-m", "sigdir"]


def environment(warehouse: Path) -> dict[str, str]:
    """The caller's environment without this project's settings, and the warehouse set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SIGDIR_")}
    return kept | {"SIGDIR_WAREHOUSE": str(warehouse)}


def empty_warehouse(folder: Path) -> Path:
    """Make a warehouse without rows; returns its folder."""
    make_warehouse(Paths(folder))
    return folder


def import_files(paths: Iterable[Path | str], warehouse: Path, **options: Any) -> ImportReport:
    """Import in this process, quietly; ``options`` are the fields of ``pipeline.run.Options``."""
    return run_import(Options([str(path) for path in paths], warehouse, **options), Reporter())


def import_lines(warehouse: Path, *lines: str, name: str = "lines.txt", **options: Any) -> Path:
    """Import a list of these lines, from a file of this name beside the warehouse; returns the warehouse."""
    file = warehouse.with_name(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))
    import_files([file], warehouse, **options)
    return warehouse
