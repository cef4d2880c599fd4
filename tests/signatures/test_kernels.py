"""Where compiled kernels are kept: beside the code, else with the user, else in memory; and what is said about it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sigdir.signatures.kernels import SHARED
from tests.conftest import ROOT, SAFETY_SECONDS

# Runs a small kernel, and prints the folder of the kernels and the number of kernels that had to be compiled.
LOOK = """
import numpy as np
from numba.core import event
from sigdir.signatures import kernels
with event.install_recorder("numba:compile") as compiled:
    from sigdir.signatures.grammar_rows import is_canonical
    assert is_canonical(np.frombuffer(b"f(uint8)", np.uint8), 0, 8)
print(kernels.FOLDER and kernels.FOLDER.parent)
print(len(compiled.buffer))
"""
FOLDER = "from sigdir.signatures import kernels; print(kernels.FOLDER)"
# Root may write anywhere without this.
WITHOUT_PRIVILEGE = ("setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override")


class Installation:
    """A copy of the package, and a home and a temporary folder of its own; each can be made read-only."""

    def __init__(self, folder: Path) -> None:
        self.library, self.home, self.temporary = (folder / name for name in ("lib", "home", "tmp"))
        self.home.mkdir()
        self.temporary.mkdir()
        self.private = self.temporary / f"signature-directory-{os.getuid()}"
        self.modules = self.library / "sigdir" / "signatures"
        self.kernels = self.modules / "__pycache__" / "kernels"
        shutil.copytree(ROOT / "sigdir", self.library / "sigdir", ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, code: str = LOOK, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(self.library), **variables,
        }  # fmt: skip
        command = [*(WITHOUT_PRIVILEGE if os.getuid() == 0 else ()), sys.executable, "-P", "-c", code]
        return subprocess.run(
            command, cwd=self.home, env=environment, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False
        )

    def look(self, **variables: str) -> tuple[str, int]:
        """The folder of the kernels of all editions, and how many kernels were compiled."""
        done = self.run(**variables)
        assert done.returncode == 0, done.stderr
        folder, compiled = done.stdout.splitlines()
        return folder, int(compiled)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    if os.getuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root can write anywhere, and setpriv is not there")
    yield Installation(tmp_path)
    for folder in (tmp_path, *tmp_path.rglob("*")):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o700)


def make_readonly(folder: Path) -> None:
    for inner in (folder, *folder.rglob("*")):
        inner.chmod(0o555 if inner.is_dir() else 0o444)


@pytest.mark.long
def test_a_writable_installation_keeps_its_kernels(installation: Installation) -> None:
    """The second process compiles nothing, and neither does another user of the installation when it is read-only."""
    kept_in, compiled = installation.look()
    assert (kept_in, compiled > 0) == (str(installation.kernels), True)
    assert installation.look() == (str(installation.kernels), 0)
    make_readonly(installation.library)
    assert installation.look() == (str(installation.home / ".cache/signature-directory/kernels"), 0)
    make_readonly(installation.home)
    assert installation.look() == (str(installation.private / "kernels"), 0)
    assert installation.private.stat().st_mode & 0o777 == 0o700


@pytest.mark.long
def test_nothing_old_is_used_after_an_upgrade(installation: Installation) -> None:
    """numba itself compiles a kernel again if its own file changed, and this constant stands in another one."""
    installation.look()
    types = installation.modules / "types.py"
    types.write_text(re.sub(r"^MAX_TUPLES = .*$", "MAX_TUPLES = 0", types.read_text(), flags=re.MULTILINE))
    assert "AssertionError" in installation.run().stderr


def test_the_shared_files_are_those_that_kernels_use() -> None:
    used = {"kernels"}
    for path in (*ROOT.glob("signatures/*.py"), *ROOT.glob("warehouse/*/*.py"), *ROOT.glob("pipeline/formats/*.py")):
        used |= set(_used_by_kernels(path))
    assert sorted(used) == list(SHARED)


def _used_by_kernels(path: Path) -> Iterator[str]:
    """The modules of ``signatures`` whose names stand in the bodies of a file's compiled functions, or in its constants."""
    tree = ast.parse(path.read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    kernels = [node for node in functions if re.search("kernel|jitable", ast.unparse(node.decorator_list[0]))]
    if not kernels:
        return
    constants = [node for node in tree.body if isinstance(node, ast.Assign)]
    parts = [*constants, *(statement for node in kernels for statement in node.body)]
    names = {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    for node in imports:
        folder, _, module = (node.module or "").rpartition(".")
        if folder.startswith("sigdir.") and names & {alias.name for alias in node.names}:
            assert folder == "sigdir.signatures", f"{path} uses {node.module}"
            yield module


@pytest.mark.long
def test_a_named_folder_comes_first(installation: Installation, tmp_path: Path) -> None:
    """NUMBA_CACHE_DIR, and XDG_CACHE_HOME before ~/.cache."""
    named = str(tmp_path / "named")
    kept_in = Path(installation.run(FOLDER, NUMBA_CACHE_DIR=named).stdout.strip())
    assert str(kept_in.parent) == named
    assert installation.run(FOLDER, NUMBA_CACHE_DIR=str(kept_in)).stdout == f"{kept_in}\n", "as a child process sees it"
    make_readonly(installation.library)
    in_cache = installation.run(FOLDER, XDG_CACHE_HOME=named).stdout
    assert in_cache == f"{named}/signature-directory/kernels/{kept_in.name}\n"


@pytest.mark.long
def test_without_a_writable_folder_kernels_are_compiled_in_memory(installation: Installation) -> None:
    """The work is done, and `sigdir compile` says what to do."""
    for folder in (installation.library, installation.home, installation.temporary):
        make_readonly(folder)
    kept_in, compiled = installation.look()
    assert (kept_in, compiled > 0) == ("None", True)
    done = installation.run("import sys; from sigdir.cli.main import main; main(['compile'])")
    assert done.returncode == 2
    assert done.stderr == (
        "Error: no folder for compiled kernels can be written to; set NUMBA_CACHE_DIR to one that can\n"
    )


@pytest.mark.long
def test_compiling_leaves_the_newest_edition_alone(installation: Installation) -> None:
    (installation.kernels / "0123456789abcdef").mkdir(parents=True)
    ran = installation.run("from sigdir.signatures import kernels; kernels.remove_other_editions(kernels.FOLDER)")
    assert ran.returncode == 0, ran.stderr
    assert [str(folder) for folder in installation.kernels.iterdir()] == [installation.run(FOLDER).stdout.strip()]


def test_a_temporary_folder_that_others_may_enter_is_not_used(installation: Installation) -> None:
    """Whoever can write compiled kernels there would run code as this user."""
    make_readonly(installation.library)
    make_readonly(installation.home)
    installation.private.mkdir()
    installation.private.chmod(0o770)
    assert installation.run(FOLDER).stdout == "None\n"


def test_a_slow_compile_is_announced_once(installation: Installation) -> None:
    """A line on standard error, unless the program handles logging itself. A quick compile is not worth one."""
    code = """
import threading
from numba.core import event
from sigdir.signatures import kernels

def compile(slow_seconds):
    kernels._SLOW_SECONDS = slow_seconds
    with event.trigger_event("numba:compile"):
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer) and not slow_seconds:
                thread.join()

for seconds in (30, 0, 0):
    compile(seconds)
kernels.FOLDER = None
kernels._said.clear()
compile(0)
"""
    done = installation.run(code)
    kept, in_memory = done.stderr.splitlines()
    assert kept == "compiling kernels, once; 15 seconds on an idle machine"
    assert in_memory.startswith("compiling kernels in memory at each start, 20 seconds on an idle machine: no folder ")
