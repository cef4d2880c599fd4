"""Words of eight bytes in texts, inside of kernels. All indices are unsigned: with signed ones numba adds a test for
negative indices to every byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sigdir.signatures.arrow import Array
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
