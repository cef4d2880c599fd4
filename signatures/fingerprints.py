"""Fingerprints of texts: 16 bytes a text, by which one process compares many. Their hash takes four times as long.

Invariants
    Equal texts have equal fingerprints in a process and those that it forks. Another one has others: they are never stored.
    Two different texts share theirs with a chance of 2^-128, whatever the texts are: nobody who does not know this
    process's random keys can choose texts that do.

Theory
    Multilinear hashing: the sum modulo 2^64 of a random key times a word of 32 bits, over all words of the text, is
    strongly universal in its upper 32 bits. Four sums with keys of their own make a fingerprint. A byte 1 ends each text,
    so that no text is another one with zeros after it.

Source: Lemire and Kaser, "Strongly universal string hashing is fast" (2014), theorem 3.1.

Words of eight bytes in texts, inside of kernels. All indices are unsigned: with signed ones numba adds a test for
negative indices to every byte.
"""

from __future__ import annotations

from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import as_readonly, bytes_of
from sigdir.signatures.grammar import MAX_TEXT_BYTES
from sigdir.signatures.kernels import kernel


@kernel(inline="always")
def word_at(data: Array, at: Any) -> Any:
    """The eight bytes from ``at`` on as a little-endian word; LLVM makes one load of it."""
    word = np.uint64(data[at])
    for k in range(1, 8):
        word |= np.uint64(data[at + np.uint64(k)]) << np.uint64(8 * k)
    return word


@kernel(inline="always")
def word_before(data: Array, end: Any, size: Any) -> Any:
    """The ``size`` bytes in front of ``end``, fewer than eight, as a little-endian word.

    They are the last ones of a whole word, if there is one: a loop over the bytes takes twice as long.
    """
    word = np.uint64(0)
    if end >= np.uint64(8):
        if size > np.uint64(0):
            word = word_at(data, end - np.uint64(8)) >> (np.uint64(64) - (size << np.uint64(3)))
    else:
        for k in range(size):
            word |= np.uint64(data[end - size + np.uint64(k)]) << (np.uint64(k) << np.uint64(3))
    return word


_SUMS = 4


_KEYS = np.frombuffer(token_bytes(8 * _SUMS * (MAX_TEXT_BYTES // 4 + 3)), np.uint64)
"""Of each sum a constant, then a key for each half of a word of the longest text and of the byte after it."""


def fingerprints_of(text: pa.StringArray) -> npt.NDArray[np.uint64]:
    """The fingerprints of a text column without nulls: uint64 of (rows, 2)."""
    found = np.empty((len(text), 2), np.uint64)
    if len(text):
        bounds, data = bytes_of(text)
        _fingerprints(as_readonly(data), as_readonly(bounds), _KEYS, found)
    return found


@kernel(inline="always")
def _add(sums: Any, keys: Any, key: Any, word: Any) -> Any:
    """The four sums and the products of a word's halves with their keys."""
    first, second = word & np.uint64(0xFFFFFFFF), word >> np.uint64(32)
    a, b, c, d = sums
    return (
        a + keys[key] * first + keys[key + np.uint64(4)] * second,
        b + keys[key + np.uint64(1)] * first + keys[key + np.uint64(5)] * second,
        c + keys[key + np.uint64(2)] * first + keys[key + np.uint64(6)] * second,
        d + keys[key + np.uint64(3)] * first + keys[key + np.uint64(7)] * second,
    )


@kernel(nogil=True)
def _fingerprints(data: Array, offsets: Array, keys: Array, found: Array) -> None:
    last = np.uint64(len(keys)) - np.uint64(2 * _SUMS)
    upper, half, eight = np.uint64(0xFFFFFFFF << 32), np.uint64(32), np.uint64(8)
    for row in range(len(offsets) - 1):
        at, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        sums, key = (keys[0], keys[1], keys[2], keys[3]), np.uint64(_SUMS)
        while at + eight <= end:
            sums = _add(sums, keys, key, word_at(data, at))
            key = key + eight if key < last else np.uint64(_SUMS)  # a longer text is none of ours
            at += eight
        ended = word_before(data, end, end - at) | np.uint64(1) << ((end - at) << np.uint64(3))
        a, b, c, d = _add(sums, keys, key, ended)
        found[row, 0] = (a & upper) | (b >> half)
        found[row, 1] = (c & upper) | (d >> half)
