"""Fingerprints against their definition in plain Python."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.fingerprints import _KEYS, fingerprints_of
from sigdir.signatures.grammar import MAX_TEXT_BYTES

KEYS: list[int] = _KEYS.tolist()


def oracle(text: bytes) -> tuple[int, int]:
    """The four sums, word by word."""
    ended = text + b"\1"
    ended += bytes(-len(ended) % 4)
    words = [int.from_bytes(ended[at : at + 4], "little") for at in range(0, len(ended), 4)]
    sums = [sum(key * word for key, word in zip(KEYS[k::4], [1, *words], strict=False)) % 2**64 >> 32 for k in range(4)]
    return sums[0] << 32 | sums[1], sums[2] << 32 | sums[3]


def found(texts: list[str]) -> list[tuple[int, ...]]:
    return [tuple(row) for row in fingerprints_of(pa.array(texts, pa.string())).tolist()]


@given(st.lists(st.text("ab\0\1", max_size=20)))
def test_fingerprints_are_as_defined(texts: list[str]) -> None:
    """Whatever the length of a text and its neighbours, zeros at its end included."""
    assert found(texts) == [oracle(text.encode()) for text in texts]


def test_the_longest_text_has_keys_of_its_own() -> None:
    """A text of the greatest length is hashed like a short one; a longer one, which only others write, has some value."""
    longest = "f" * MAX_TEXT_BYTES
    assert found([longest]) == [oracle(longest.encode())]
    assert len(set(found(["f" * (MAX_TEXT_BYTES + more) for more in range(20)]))) == 20


def test_a_slice_of_a_column_has_its_own_rows() -> None:
    """A column that begins inside of another one's bytes."""
    column = pa.array(["a()", "b(uint256)", "c()"], pa.string())
    assert fingerprints_of(column.slice(1)).tolist() == fingerprints_of(column).tolist()[1:]
