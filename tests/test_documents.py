"""Documents and docstrings name files that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

FILE = re.compile(
    r"`((?:sigdir|serve|pipeline|warehouse|tests|benchmarks|docs|samples)/[\w/.]*\w\.(?:py|yaml|txt|md|ipynb))`"
)


def written() -> list[Path]:
    """The files of the repository that people read."""
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [ROOT / name for name in listed.stdout.splitlines()]
    return found or [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("[a-z]*/**/*.py")]


def test_files_that_are_named_exist() -> None:
    """A reader who follows a path finds the file."""
    gone = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in written()
        if path.name != "CHANGELOG.md"
        for name in FILE.findall(path.read_text())
        if not (ROOT / name).is_file()
    }
    assert gone == set()


@pytest.mark.parametrize("name", ["README.md", "DESIGN.md"])
def test_the_pattern_finds_files(name: str) -> None:
    """The check above looks at something."""
    assert len(FILE.findall((ROOT / name).read_text())) > 3
