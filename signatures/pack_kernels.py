"""The texts of a large pack by compiled kernels: a tenth of the time of plain Python."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.grammar_rows import is_canonical
from sigdir.signatures.keccak_rows import keccak256_rows
from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

_ROWS = 1 << 17  # that a core hashes at once


def joined(shared: bytes, rests: bytes, lists: bytes, size: int) -> memoryview:
    """The texts of ``pack_texts.Texts``, of so many bytes; the columns must fit each other."""
    out = np.empty(size, np.uint8)
    fill: Any = _join
    fill(*(np.frombuffer(column, np.uint8) for column in (shared, rests, lists)), out)
    found: memoryview = as_readonly(out).data
    return found


def hashed(data: bytes | memoryview, bounds: Array) -> tuple[Array, Array]:
    """The first four bytes of each text's hash as a number, and whether a look at its bytes shows it to be canonical.

    All cores work: the kernels release the GIL.
    """
    raw, rows = np.frombuffer(data, np.uint8), len(bounds) - 1
    known = np.empty(rows, np.bool_)
    check: Any = _check

    def block(first: int) -> Array:
        some = bounds[first : first + _ROWS + 1]
        check(raw, as_readonly(some), known[first : first + _ROWS])
        digests = keccak256_rows(raw, some, 1)
        return np.ascontiguousarray(digests[:, :4]).view(">u4").ravel().astype(np.uint32)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        prefixes = np.concatenate([np.empty(0, np.uint32), *pool.map(block, range(0, rows, _ROWS))])
    return prefixes, known


@kernel(nogil=True)
def _check(data: Array, bounds: Array, known: Array) -> None:
    """Note for each text whether it is known to be canonical. A line break stands between them."""
    for row in range(len(known)):
        known[row] = is_canonical(data, bounds[row], bounds[row + 1] - 1)


@kernel(nogil=True)
def _join(shared: Array, rests: Array, lists: Array, out: Array) -> None:
    """Write each text: what its name shares with the name before it, the rest of the name, its list, a line break."""
    before = np.uint64(0)  # where the name before it begins
    at = np.uint64(0)
    rest = np.uint64(0)
    list = np.uint64(0)
    for row in range(len(shared)):
        first = at
        for k in range(np.uint64(shared[row])):
            out[at] = out[before + k]
            at += np.uint64(1)
        while rests[rest] != 0x0A:
            out[at] = rests[rest]
            at += np.uint64(1)
            rest += np.uint64(1)
        rest += np.uint64(1)
        while lists[list] != 0x0A:
            out[at] = lists[list]
            at += np.uint64(1)
            list += np.uint64(1)
        list += np.uint64(1)
        out[at] = 0x0A
        at += np.uint64(1)
        before = first
