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
    found = map(ROOT.joinpath, listed.stdout.splitlines())
    return list(found) or [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("[a-z]*/**/*.py")]


def test_files_that_are_named_exist() -> None:
    """A reader who follows a path finds the file."""
    paths = [path for path in written() if path.name != "CHANGELOG.md"]
    named = [(path.relative_to(ROOT), name) for path in paths for name in FILE.findall(path.read_text())]
    assert len(named) > 50
    assert [(path, name) for path, name in named if not (ROOT / name).is_file()] == []


def test_links_lead_to_files() -> None:
    """Of a document to another one, or to a picture."""
    paths = [path for path in written() if path.suffix == ".md"]
    links = [(path, target) for path in paths for target in re.findall(r"\]\(([\w./-]+)[)#]", path.read_text())]
    assert len(links) > 20
    assert [(path, target) for path, target in links if not (path.parent / target).exists()] == []


@pytest.mark.parametrize(("name", "lines"), [("README.md", 150), ("DESIGN.md", 150), ("CONTRIBUTING.md", 60)])
def test_a_reader_is_through_soon(name: str, lines: int) -> None:
    """They are the documents that everybody opens."""
    text = (ROOT / name).read_text().splitlines()
    assert len(text) <= lines
    assert max(map(len, text)) <= 120
