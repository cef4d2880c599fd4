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


def oracle(text: bytes) -> bytes:
    """The digest by pycryptodome, one call a text."""
    return keccak.new(digest_bits=256, data=text).digest()


def digests(texts: list[bytes], offset_type: type[np.signedinteger[Any]] = np.int64) -> list[bytes]:
    """The digests by the kernel, all texts as one batch."""
    offsets = np.cumsum([0, *map(len, texts)]).astype(offset_type)
    return rows_of(keccak256_rows(np.frombuffer(b"".join(texts), np.uint8), offsets))


def rows_of(found: Array) -> list[bytes]:
    assert found.dtype == np.uint8
    assert found.shape[1:] == (32,)
    return [row.tobytes() for row in found]


def bytes_of(size: int, seed: int) -> bytes:
    """Pseudo-random bytes, the same at every run."""
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"transfer(address,uint256)", "a9059cbb2ab09eb219583f4a59a5d0623ade346d962bcd4e46b11da047c9049b"),
    ],
)
def test_known_vectors(text: bytes, digest: str) -> None:
    """The kernel, the function for one text and pycryptodome give the published digests."""
    assert digests([text])[0].hex() == keccak256(text).hex() == oracle(text).hex() == digest


def test_every_length_has_its_padding() -> None:
    """From 0 to 1,000 bytes and around many blocks, in one batch and alone."""
    sizes = [*range(1001), *(blocks * RATE + over for blocks in (8, 9, 20, 481, 1000) for over in (-2, -1, 0, 1, 2))]
    texts = [bytes_of(size, size) for size in sizes]
    expected = [oracle(text) for text in texts]
    assert digests(texts) == expected
    assert [digests([text])[0] for text in texts] == expected


def test_one_long_text_among_short_ones() -> None:
    """Short texts keep their digests while a longer neighbour is still hashed."""
    texts = [bytes_of(size, size) for size in (0, 5, 135, 136, 500_000, 137, 272, 1, 65_536, 30)]
    expected = [oracle(text) for text in texts]
    for turn in range(len(texts)):  # each text in each lane
        assert digests(texts[turn:] + texts[:turn]) == expected[turn:] + expected[:turn]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 600), max_size=2 * WIDTH + 1), st.integers(0, 20))
def test_batches_of_any_size(sizes: list[int], before: int) -> None:
    """With 32-bit and 64-bit offsets; bytes in front of the first row belong to none, and no byte is changed."""
    texts = [bytes_of(size, size) for size in sizes]
    expected = [oracle(text) for text in texts]
    assert digests(texts, np.int32) == digests(texts) == expected
    data = np.frombuffer(b"x" * before + b"".join(texts) + b"x", np.uint8).copy()
    kept = data.copy()
    found = keccak256_rows(data, before + np.cumsum([0, *sizes]))
    assert rows_of(found) == expected
    assert (data == kept).all()


# Arrow columns.

TEXTS = ["", "transfer(address,uint256)", "é" * 100, "f()", "", "x" * 135, "x" * 136, "x" * 1_000, "balanceOf(address)"]
BOUNDS = pa.array([0] * 10, pa.int32()).buffers()[1]


@pytest.mark.parametrize(
    "column",
    [
        *(pa.array(TEXTS * 3).slice(first, rows) for first in range(10) for rows in (0, 1, WIDTH, WIDTH + 1)),
        pa.chunked_array([], pa.string()).combine_chunks(),
        pa.table({"text": TEXTS}).slice(0, 0)["text"].combine_chunks(),
        pa.array(["x", *[""] * 9, "y"])[1:-1],
        pa.StringArray.from_buffers(9, BOUNDS, pa.py_buffer(b"")),
        pa.array(TEXTS).filter(pa.array([row % 2 == 0 for row in range(len(TEXTS))])),
        pa.array(TEXTS, pa.large_string()).cast(pa.string()),
    ],
    ids=lambda column: str(len(column)),
)
def test_columns(column: pa.StringArray) -> None:
    """Slices, columns without rows or bytes, and results of Arrow's functions have the digests of their own rows."""
    assert rows_of(keccak256_column(column)) == [oracle(text.encode()) for text in column.to_pylist()]
