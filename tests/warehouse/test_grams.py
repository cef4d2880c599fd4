"""The grams of names: the same rows as a scan finds, at rest, built and rebuilt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index import grams
from sigdir.warehouse.index.grams import build_grams, grams_of
from sigdir.warehouse.index.search import rows_with_text
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.serve.support import Row, segment_of
from tests.signatures.strategies import EXACT

NAMES = st.text(alphabet="abcABC019_$", min_size=1, max_size=12)
LISTS = st.sampled_from(["()", "(address)", "(uint256,(bytes32,bool)[])", "((abc,abc)[2],fixed128x18)"])
FRAGMENTS = NAMES | st.tuples(NAMES, st.sampled_from(["(", "((", "(add", ")", "(uint256,"])).map("".join)


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Few rows have grams too, in several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grams, "_FEW_ROWS", 1)
        patch.setattr(grams, "_BLOCK_ROWS", 16)
        yield


@given(st.lists(st.tuples(NAMES, LISTS).map("".join), min_size=1, max_size=60), FRAGMENTS)
def test_any_fragment_is_found_as_a_scan_finds_it(texts: list[str], fragment: str) -> None:
    """Fragments and patterns."""
    segment = segment_of([Row(0, 0, text, b"\0\0\0\0") for text in texts])
    indexed = replace(segment, grams=build_grams(segment.text, segment.offsets, segment.rows))
    scanned = rows_with_text(segment.text, segment.offsets, segment.rows, fragment)
    assert indexed.with_text(fragment).tolist() == [row for piece in scanned for row in piece.tolist()]
    for pattern in (f"{fragment}*", f"*{fragment}*", f"?{fragment}*", f"{fragment}*(*uint*"):
        assert indexed.like(pattern, 9).tolist() == segment.like(pattern, 9).tolist()


def test_what_may_stand_in_a_list_of_types_is_left_to_the_scan() -> None:
    """Each piece of each type, and nothing that has a letter or a digit too much."""
    types = [*EXACT, "fixed128x18", "ufixed8x80"]
    pieces = {
        word[first:last] for word in types for first in range(len(word)) for last in range(first + 1, len(word) + 1)
    }
    assert [piece for piece in pieces if grams_of(piece) is not None] == []
    for name in ("balanceOf", "uint256s", "addresses", "f(u", "transfer(address", "UintTo"):
        assert (grams_of(name) is None) == (len(re.split(r"(?<=\()", name)[0]) < 4), name


@pytest.mark.parametrize(("line", "rows"), [("name{}(uint256)", [33]), ("f(uint8[{}])", [])])
def test_a_publisher_builds_them_where_a_server_has_read_before(warehouse: Path, line: str, rows: list[int]) -> None:
    """Also where names of one letter have no gram. A damaged file is built again: see ``test_broken.py``."""
    paths = Paths(warehouse)
    Reader(paths).close()
    import_lines(warehouse, *(line.format(number) for number in range(1, 65)))
    [file] = read_snapshot(paths).files[SIGNATURES]
    assert (paths.index(SIGNATURES, file.path) / "gram_lists").is_file()
    with closing(Reader(paths)) as reader:
        [segment] = reader.current().segments[SIGNATURES]
        assert segment.grams is not None
        assert segment.grams.candidates("NAME34") is not None
        assert segment.with_text("NAME34").tolist() == rows
