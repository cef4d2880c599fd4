"""The texts of a large pack by compiled kernels: a tenth of the time of plain Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.columns import as_readonly
from sigdir.signatures.grammar_rows import is_canonical
from sigdir.signatures.keccak_rows import keccak256_rows
from sigdir.signatures.kernels import kernel
from sigdir.signatures.pack_file import BadPack

Array = npt.NDArray[Any]

_ROWS = 1 << 17  # that a core hashes at once


def joined(
    shared: Array, rests: bytes, rest_ends: Array, of_row: Array, table: list[bytes], ends: Array
) -> memoryview:  # fmt: skip
    """The texts of ``pack_texts.Texts``, whose ``ends`` fit these columns."""
    lists = np.frombuffer(b"".join(table), np.uint8)
    list_ends = np.cumsum(np.fromiter(map(len, table), np.int64, len(table)))
    out = np.empty(int(ends[-1]) + 1 if len(ends) else 0, np.uint8)
    columns = (shared, np.frombuffer(rests, np.uint8), rest_ends, of_row, lists, list_ends, ends)
    fill: Any = _join
    fill(*map(as_readonly, columns), out)
    found: memoryview = as_readonly(out).data
    return found


def prefixes(data: bytes | memoryview, ends: Array) -> Array:
    """The first four bytes of each text's hash as a number. All cores work: the kernel releases the GIL."""
    raw, bounds = np.frombuffer(data, np.uint8), np.concatenate([[0], ends + 1])

    def block(first: int) -> Array:
        digests = keccak256_rows(raw, bounds[first : first + _ROWS + 1], 1)
        return np.ascontiguousarray(digests[:, :4]).view(">u4").ravel().astype(np.uint32)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return np.concatenate([np.empty(0, np.uint32), *pool.map(block, range(0, len(ends), _ROWS))])


def unknown_lists(lists: Sequence[bytes]) -> list[bytes]:
    """Those that a look at each byte does not show to be canonical; of them the grammar must decide."""
    raw = np.frombuffer(b"".join(b"f" + each for each in lists), np.uint8)
    bounds = np.cumsum([0, *(len(each) + 1 for each in lists)])
    known = np.empty(len(lists), np.bool_)
    check: Any = _check
    check(raw, as_readonly(bounds), known)
    return [lists[at] for at in np.flatnonzero(~known).tolist()]


@kernel(nogil=True)
def _check(data: Array, bounds: Array, known: Array) -> None:
    """Note for each text whether it is known to be canonical."""
    for row in range(len(known)):
        known[row] = is_canonical(data, bounds[row], bounds[row + 1])


@kernel(nogil=True)
def _join(
    shared: Array, rests: Array, rest_ends: Array, of_row: Array, lists: Array, list_ends: Array, ends: Array, out: Array
) -> None:  # fmt: skip
    """Write each text: what its name shares with the name before it, the rest of the name, its list, a line break."""
    name = np.uint64(0)  # where the name before it is in ``out``
    at = np.uint64(0)
    rest = np.uint64(0)
    for row in range(len(ends)):
        first = at
        for k in range(np.uint64(shared[row])):
            out[at] = out[name + k]
            at += np.uint64(1)
        while rest < np.uint64(rest_ends[row]):
            out[at] = rests[rest]
            at += np.uint64(1)
            rest += np.uint64(1)
        rest += np.uint64(1)
        number = of_row[row]
        begin = np.uint64(list_ends[number - 1]) if number else np.uint64(0)
        for k in range(begin, np.uint64(list_ends[number])):
            out[at] = lists[k]
            at += np.uint64(1)
        out[at] = 0x0A
        at += np.uint64(1)
        name = first


def warm() -> None:
    """Compile or load what reading needs."""
    one = np.zeros(1, np.int64)
    data = joined(one.astype(np.uint8), b"f\n", one + 1, one.astype(np.uint32), [b"()"], one + 3)
    if bytes(data) != b"f()\n" or prefixes(data, one + 3) != 0x26121FF0 or unknown_lists([b"()"]):
        raise BadPack("the kernels are wrong")
