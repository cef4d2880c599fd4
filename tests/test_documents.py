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


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "DESIGN.md"])
def test_the_pattern_finds_files(name: str) -> None:
    """The check above looks at something."""
    assert len(FILE.findall((ROOT / name).read_text())) > 3


def test_links_lead_to_files() -> None:
    """Of a document to another one, or to a picture."""
    links = [
        (path, target)
        for path in written()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([\w./-]+)[)#]", path.read_text())
    ]
    assert len(links) > 20
    assert [
        f"{path.relative_to(ROOT)}: {target}" for path, target in links if not (path.parent / target).exists()
    ] == []


@pytest.mark.parametrize(("name", "lines"), [("README.md", 150), ("DESIGN.md", 150), ("CONTRIBUTING.md", 60)])
def test_a_reader_is_through_soon(name: str, lines: int) -> None:
    """They are the documents that everybody opens."""
    text = (ROOT / name).read_text().splitlines()
    assert len(text) <= lines
    assert max(map(len, text)) <= 120
