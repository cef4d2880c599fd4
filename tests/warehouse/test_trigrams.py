"""The trigrams of names: the same rows as a scan finds, at rest, built and rebuilt."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index import trigram_file
from sigdir.warehouse.index.search import fixed_pieces, rows_among, rows_with_text
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.trigrams import build, trigrams_of
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths, index_name, trigrams_folder
from sigdir.warehouse.snapshot import read_snapshot
from tests.conftest import import_files
from tests.serve.support import until
from tests.signatures.strategies import EXACT

NAMES = st.text(alphabet="abcABC019_$", min_size=1, max_size=12)
LISTS = st.sampled_from(["()", "(address)", "(uint256,(bytes32,bool)[])", "((abc,abc)[2],fixed128x18)"])
FRAGMENTS = NAMES | st.tuples(NAMES, st.sampled_from(["(", "((", "(add", ")", "(uint256,"])).map("".join)
ROWS = 1 << 14


def segment_of(texts: list[str]) -> Segment:
    raw = [text.encode() for text in texts]
    offsets, numbers = np.cumsum([0, *map(len, raw)]), np.arange(len(raw))
    text, hash = np.frombuffer(b"".join(raw), np.uint8), np.zeros((len(raw), 4), np.uint8)
    return Segment.of(len(raw), numbers, numbers, offsets, text, hash, {})


def scanned(segment: Segment, fragment: str) -> list[int]:
    found = rows_with_text(segment.text, segment.offsets, segment.rows, fragment)
    return [row for piece in found for row in piece.tolist()]


@given(st.lists(st.tuples(NAMES, LISTS).map("".join), min_size=1, max_size=60), FRAGMENTS)
def test_any_fragment_is_found_as_a_scan_finds_it(texts: list[str], fragment: str) -> None:
    segment = segment_of(texts)
    candidates = build(segment.text, segment.offsets, segment.rows).candidates(fragment)
    if candidates is not None:
        found = rows_among(segment.text, segment.offsets, candidates, fragment)
        assert found.tolist() == scanned(segment, fragment)


def test_all_pieces_of_a_pattern_are_looked_up() -> None:
    """Also where the longest piece may stand in a list of types, which the index cannot tell."""
    texts = ["transfer(address,uint256)", "transferAll(address,uint256)", "send(address,uint256)", "transfer(bool)"]
    segment = segment_of(texts)
    trigrams = build(segment.text, segment.offsets, segment.rows)
    found = trigrams.candidates(*fixed_pieces("transfer*(address,*)"))
    assert found is not None
    assert found.tolist() == [0, 1, 3]
    found = trigrams.candidates(*fixed_pieces("*sfer*All*address*"))
    assert found is not None
    assert found.tolist() == [1]
    assert trigrams.candidates(*fixed_pieces("??*(address,*)")) is None


def test_long_texts_of_one_letter_are_compared_in_linear_time() -> None:
    """Comparing a fragment of 7,501 letters at each place of 64 kB takes half a second a row."""
    segment = segment_of(["a" * 65_000 + "()", "b()"] * 4)
    fragment = "a" * 7_500 + "b"
    candidates = np.arange(segment.rows)
    assert rows_among(segment.text, segment.offsets, candidates, fragment).tolist() == []
    assert rows_among(segment.text, segment.offsets, candidates, fragment[:-1]).tolist() == [0, 2, 4, 6]


def test_what_may_stand_in_a_list_of_types_is_left_to_the_scan() -> None:
    """Each piece of each type, and nothing that has a letter or a digit too much."""
    types = [*EXACT, "fixed128x18", "ufixed8x80"]
    pieces = {
        word[first:last] for word in types for first in range(len(word)) for last in range(first + 1, len(word) + 1)
    }
    assert [piece for piece in pieces if trigrams_of(piece) is not None] == []
    for name in ("balanceOf", "uint256s", "addresses", "f(u", "transfer(address", "UintTo"):
        assert (trigrams_of(name) is None) == (len(re.split(r"(?<=\()", name)[0]) < 3), name


@pytest.fixture
def indexed(warehouse: Path, tmp_path: Path) -> Path:
    """A warehouse of ROWS rows whose index a server has made."""
    path = tmp_path / "list.txt"
    path.write_text("".join(f"name{number:x}(uint256)\n" for number in range(ROWS)))
    Reader(Paths(warehouse)).close()  # publishers build indexes where a server has read
    import_files([path], warehouse)
    return warehouse


def folder_of(warehouse: Path) -> Path:
    paths = Paths(warehouse)
    [file] = read_snapshot(paths).files[SIGNATURES]
    return trigrams_folder(paths.cache / index_name(SIGNATURES, file.path))


def searched(warehouse: Path, fragment: str) -> tuple[list[int], bool]:
    """The rows that a new server finds, and whether it had the trigrams."""
    reader = Reader(Paths(warehouse))
    try:
        [segment] = reader.current().segments[SIGNATURES]
        found = segment.with_text(fragment).tolist()
        assert segment.trigrams is not None
        return found, segment.trigrams.opened(segment.text, segment.offsets) is not None
    finally:
        reader.close()


def test_the_publisher_builds_them(indexed: Path) -> None:
    assert folder_of(indexed).is_dir()
    assert searched(indexed, "NAME3fFf") == ([0x3FFF], True)


@pytest.mark.parametrize("file", ["starts.npy", "lists", "checksums.json"])
def test_a_damaged_file_is_noticed_and_built_again(indexed: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan answers meanwhile."""
    monkeypatch.setattr(trigram_file, "_LOOK_SECONDS", 0.01)
    path = folder_of(indexed) / file
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert searched(indexed, "name3fff") == ([0x3FFF], False)
    until(lambda: searched(indexed, "name3fff") == ([0x3FFF], True), "trigrams")


def test_names_of_one_letter_have_no_trigram(warehouse: Path, tmp_path: Path) -> None:
    """The index of their file is made once too, and a search of it finds none."""
    path = tmp_path / "list.txt"
    path.write_text("".join(f"f(uint8[{number}])\n" for number in range(1, ROWS + 1)))
    Reader(Paths(warehouse)).close()
    import_files([path], warehouse)
    assert searched(warehouse, "name3fff") == ([], True)


def test_where_they_cannot_be_written_the_scan_answers(indexed: Path) -> None:
    folder = folder_of(indexed)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    folder.with_name(".trigrams").write_text("in the way")
    assert searched(indexed, "name3fff") == ([0x3FFF], False)
