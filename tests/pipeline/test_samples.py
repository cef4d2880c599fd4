"""Every sample of docs/formats.md is read as the document says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sigdir.pipeline.formats.registry import FORMATS
from tests.conftest import import_files
from tests.pipeline.formats_table import PAGE, with_table
from tests.pipeline.support import write_files
from tests.pipeline.test_formats import read_path

_SAMPLE = re.compile(
    r"^`(?P<file>[^`]+)` is `(?P<format>[a-z0-9-]+)`: (?P<texts>[^\n]*)\n\n```\w*\n(?P<data>.*?\n)```$",
    re.MULTILINE | re.DOTALL,
)
_BINARY = {"tree", "sqlite", "parquet"}


class Sample(NamedTuple):
    """One sample of the document."""

    file: str
    format: str
    texts: set[str]
    data: str


SAMPLES = [
    Sample(found["file"], found["format"], set(re.findall("`([^`]+)`", found["texts"])), found["data"])
    for found in _SAMPLE.finditer(PAGE.read_text())
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.format}, {sample.file}")
def test_sample(tmp_path: Path, sample: Sample) -> None:
    """A sample is detected as the format that the document names, and gives these texts and no reject."""
    [path] = write_files(tmp_path, {sample.file: sample.data})
    reading = read_path(path)
    assert reading.format == sample.format
    assert reading.rejects == []
    assert {*reading.functions, *reading.events} == sample.texts


def test_every_format_has_a_sample() -> None:
    """The document has a sample of each format that is text, and of each shape of JSON."""
    assert {sample.format for sample in SAMPLES} == {format.name for format in FORMATS} - _BINARY
    assert len(SAMPLES) > 30


def test_the_table_has_the_formats_own_sentences() -> None:
    """`make formats` writes it."""
    assert with_table(PAGE.read_text()) == PAGE.read_text()


def test_samples_are_one_import(tmp_path: Path, warehouse: Path) -> None:
    """A folder of all samples is imported whole: every candidate is new or a duplicate."""
    files = {f"{number}/{sample.file}": sample.data for number, sample in enumerate(SAMPLES)}
    write_files(tmp_path / "samples", files)
    report = import_files([tmp_path / "samples"], warehouse)
    assert report.skipped == []
    assert {file.format for file in report.files} == {sample.format for sample in SAMPLES}
    assert report.reasons() == {}
    assert report.total("imported") == len(set.union(*(sample.texts for sample in SAMPLES)))
