"""Where compiled kernels are kept: beside the code, else with the user, else in memory; and what is said about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, SAFETY_SECONDS

# Runs a small kernel, and prints the folder of the kernels and the number of kernels that had to be compiled.
LOOK = """
import numpy as np
from numba.core import event
from sigdir.signatures import kernels
with event.install_recorder("numba:compile") as compiled:
    from sigdir.signatures.grammar_rows import is_canonical
    assert is_canonical(np.frombuffer(b"f(uint8)", np.uint8), 0, 8)
print(kernels.FOLDER)
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
        self.kernels = self.library / "sigdir" / "signatures" / "__pycache__" / "kernels"
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
        """The folder of the kernels, and how many kernels were compiled."""
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
def test_a_copy_follows_an_installation_that_is_compiled_again(installation: Installation) -> None:
    """After an upgrade the copy would be compiled anew, or keep code that numba does not know to be old."""
    installation.look()
    make_readonly(installation.library)
    copy = installation.home / ".cache/signature-directory/kernels"
    assert installation.look() == (str(copy), 0)
    for file in copy.rglob("*.nbi"):
        file.write_bytes(b"of an earlier version")
    for folder in installation.kernels.iterdir():
        os.utime(folder)
    assert installation.look() == (str(copy), 0)
    assert [file for file in copy.rglob("*.nbi") if file.read_bytes() == b"of an earlier version"] == []


@pytest.mark.long
def test_a_named_folder_comes_first(installation: Installation, tmp_path: Path) -> None:
    """NUMBA_CACHE_DIR, and XDG_CACHE_HOME before ~/.cache."""
    named = str(tmp_path / "named")
    assert installation.run(FOLDER, NUMBA_CACHE_DIR=named).stdout == f"{named}\n"
    make_readonly(installation.library)
    assert installation.run(FOLDER, XDG_CACHE_HOME=named).stdout == f"{named}/signature-directory/kernels\n"


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
def test_kernels_are_replaced_when_all_are_compiled(installation: Installation) -> None:
    """An interrupted `sigdir compile` keeps those that there were; one that ends keeps what another one compiles now."""
    assert installation.look()[1] > 0
    block = "with suppress(KeyboardInterrupt), kernels.replacing(kernels.FOLDER):"
    code = f"from contextlib import suppress; from sigdir.signatures import kernels\n{block}"
    assert installation.run(f"{code} raise KeyboardInterrupt\n{LOOK}").stdout.endswith("\n0\n")
    (other := installation.kernels / "new-other").mkdir()
    assert installation.run(f"{code} pass").returncode == 0
    assert list(installation.kernels.iterdir()) == [other]


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
