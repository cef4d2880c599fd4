"""Modules in the folder where a command or program starts do not replace ours; tests/serve has the same for a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SAFETY_SECONDS, empty_warehouse, environment

CONSOLE_SCRIPT = str(Path(sys.executable).with_name("sigdir"))
NAMES = ("sigdir", "orjson", "click", "duckdb", "pipeline", "serve", "warehouse")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules with our names and those of our dependencies; each leaves a file when it runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    (folder / "list.txt").write_text("transfer(address,uint256)\n")
    return folder


def test_the_console_script_runs_nothing_of_its_folder(hostile: Path, warehouse: Path) -> None:
    """Neither the command nor the engines that it loads."""
    for arguments in (["import", "list.txt"], ["report", "report.html"]):
        done = subprocess.run(
            [CONSOLE_SCRIPT, *arguments], cwd=hostile, env=environment(warehouse), capture_output=True, text=True,
            timeout=SAFETY_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert not hostile.with_name("executed").exists()


def test_sigdir_is_imported_in_a_project_with_packages_of_the_same_names(tmp_path: Path, warehouse: Path) -> None:
    """A project's own ``pipeline`` stays its own, and sigdir never loads it."""
    empty_warehouse(warehouse)
    project = tmp_path / "project"
    for name in ("pipeline", "serve", "warehouse", "tests"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(f"raise RuntimeError('{name} of the project')\n")
    program = """
import sys, sigdir, sigdir.pipeline.run, sigdir.serve.app
assert sigdir.open(sys.argv[1]).sql("SELECT 1").rows() == [(1,)]
try:
    import pipeline
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, warehouse], cwd=project, env=environment(warehouse), capture_output=True, text=True,
        timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("pipeline of the project\n", 0), done.stderr
