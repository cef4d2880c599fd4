"""The keccak-256 kernel against pycryptodome: no row depends on another."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from Crypto.Hash import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import RATE, WIDTH, keccak256_column, keccak256_rows
from tests.examples import examples

Array = npt.NDArray[Any]
DIGEST_BYTES = 32


def oracle(text: bytes) -> bytes:
    """The digest by pycryptodome, one call a text."""
    return keccak.new(digest_bits=256, data=text).digest()


def digests(texts: list[bytes], offset_type: type[np.signedinteger[Any]] = np.int64) -> list[bytes]:
    """The digests by the kernel, all texts as one batch."""
    offsets = np.cumsum([0, *map(len, texts)]).astype(offset_type)
    found = keccak256_rows(np.frombuffer(b"".join(texts), np.uint8), offsets)
    assert found.dtype == np.uint8
    assert found.shape == (len(texts), DIGEST_BYTES)
    return [row.tobytes() for row in found]


def column_digests(column: pa.StringArray) -> list[bytes]:
    found = keccak256_column(column)
    assert found.dtype == np.uint8
    assert found.shape == (len(column), DIGEST_BYTES)
    return [row.tobytes() for row in found]


def bytes_of(size: int, seed: int) -> bytes:
    """Pseudo-random bytes, the same at every run."""
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
        (b"testing", "5f16f4c7f149ac4f9510d9cf8cf384038ad348b3bcdc01915f95de12df9d1b02"),
        (
            b"The quick brown fox jumps over the lazy dog",
            "4d741b6f1eb29cb2a9b9911c82f56fa8d73b04959d3d9d222895df6c0b28aa15",
        ),
        (b"transfer(address,uint256)", "a9059cbb2ab09eb219583f4a59a5d0623ade346d962bcd4e46b11da047c9049b"),
        (b"Transfer(address,address,uint256)", "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"),
        (b"Approval(address,address,uint256)", "8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925"),
        (b"f(function)", "d6cd4974"),  # its first bytes, as solc 0.8.37 gives them
    ],
)
def test_known_vectors(text: bytes, digest: str) -> None:
    """The kernel and the function for one text give the published digests."""
    assert digests([text])[0].hex().startswith(digest)
    assert keccak256(text).hex().startswith(digest)


def test_every_length_up_to_a_thousand() -> None:
    """Each length from 0 to 1,000 has the right padding, in one batch and alone."""
    texts = [bytes_of(size, size) for size in range(1001)]
    expected = [oracle(text) for text in texts]
    assert digests(texts) == expected
    assert [digests([text])[0] for text in texts] == expected


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 8, 9, 20, 481, 1000])
def test_many_blocks(blocks: int) -> None:
    """Lengths around a whole number of blocks have the right padding."""
    texts = [bytes_of(blocks * RATE + over, blocks) for over in (-2, -1, 0, 1, 2)]
    assert digests(texts) == [oracle(text) for text in texts]


def test_one_long_text_among_short_ones() -> None:
    """Short texts keep their digests while a longer neighbour is still hashed."""
    texts = [bytes_of(size, size) for size in (0, 5, 135, 136, 500_000, 137, 272, 1, 65_536, 30)]
    expected = [oracle(text) for text in texts]
    for turn in range(len(texts)):  # each text in each lane
        assert digests(texts[turn:] + texts[:turn]) == expected[turn:] + expected[:turn]


@pytest.mark.parametrize("rows", [0, 1, WIDTH - 1, WIDTH, WIDTH + 1, 2 * WIDTH, 7, 8, 9, 1000])
def test_batch_sizes(rows: int) -> None:
    """A batch may have any number of rows, also one that is no multiple of the lanes."""
    sizes = np.random.default_rng(rows).integers(0, 300, rows).tolist()
    texts = [bytes_of(size, row) for row, size in enumerate(sizes)]
    assert digests(texts) == [oracle(text) for text in texts]


@settings(max_examples=examples(100))
@given(st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 600).map(lambda n: bytes_of(n, n))), max_size=40))
def test_mixed_lengths(texts: list[bytes]) -> None:
    """Texts of mixed lengths have pycryptodome's digests, with 32-bit and 64-bit offsets."""
    expected = [oracle(text) for text in texts]
    assert digests(texts) == expected
    assert digests(texts, np.int32) == expected


def test_rows_may_begin_anywhere_in_the_data() -> None:
    """Bytes outside of the first and last offset belong to no row."""
    data = bytes_of(1_000, 1)
    offsets = np.array([137, 137, 140, 300, 800])
    found = keccak256_rows(np.frombuffer(data, np.uint8), offsets)
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    assert [row.tobytes() for row in found] == [oracle(data[a:b]) for a, b in bounds]


def test_data_is_not_written_to() -> None:
    """The kernel does not change its input, writable or not."""
    data = np.frombuffer(bytes_of(700, 2), np.uint8)
    writable = data.copy()
    offsets = np.array([0, 10, 400, 700])
    assert keccak256_rows(writable, offsets).tolist() == keccak256_rows(data, offsets).tolist()
    assert writable.tolist() == data.tolist()


# Arrow columns.

TEXTS = ["", "transfer(address,uint256)", "é" * 100, "f()", "", "x" * 135, "x" * 136, "x" * 1_000, "balanceOf(address)"]


def test_slices_of_a_column() -> None:
    """A slice, which shares the column's buffers at an offset, has the digests of its own rows."""
    column = pa.array(TEXTS * 3)
    expected = [oracle(text.encode()) for text in TEXTS * 3]
    for first in range(len(column) + 1):
        for rows in (0, 1, WIDTH - 1, WIDTH, WIDTH + 1, len(column)):
            assert column_digests(column.slice(first, rows)) == expected[first : first + rows]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([], pa.string()),
        pa.array(TEXTS)[:0],
        pa.array(TEXTS)[len(TEXTS) :],
        pa.chunked_array([], pa.string()).combine_chunks(),
        pa.table({"text": TEXTS}).slice(0, 0)["text"].combine_chunks(),
    ],
    ids=["made empty", "empty slice", "slice at the end", "no chunks", "empty table"],
)
def test_empty_columns(column: pa.StringArray) -> None:
    """A column without rows has no digests, whatever its buffers are."""
    assert column_digests(column) == []


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 100])
def test_columns_of_empty_texts(rows: int) -> None:
    """Empty texts have the empty text's digest, also in a column without any bytes."""
    bounds = pa.array([0] * (rows + 1), pa.int32()).buffers()[1]
    for column in (
        pa.array([""] * rows),
        pa.array(["x", *[""] * rows, "y"])[1:-1],
        pa.StringArray.from_buffers(rows, bounds, pa.py_buffer(b"")),
    ):
        assert column_digests(column) == [oracle(b"")] * rows


def test_columns_made_by_arrow_functions() -> None:
    """Filtered, taken, concatenated and cast columns have the digests of their rows."""
    column = pa.array(TEXTS)
    expected = [oracle(text.encode()) for text in TEXTS]
    assert column_digests(column.filter(pa.array([row % 2 == 0 for row in range(len(TEXTS))]))) == expected[::2]
    assert column_digests(column.take(pa.array([3, 3, 0]))) == [expected[3], expected[3], expected[0]]
    assert column_digests(pa.concat_arrays([column[1:], column[:1]])) == expected[1:] + expected[:1]
    assert column_digests(pa.array(TEXTS, pa.large_string()).cast(pa.string())) == expected


@settings(max_examples=examples(60))
@given(st.lists(st.text(max_size=60), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_any_slice_of_any_column(texts: list[str], first: int, rows: int) -> None:
    """Any slice of any column has the digests of its texts."""
    part = pa.array(texts, pa.string()).slice(min(first, len(texts)), rows)
    assert column_digests(part) == [oracle(text.encode()) for text in part.to_pylist()]
