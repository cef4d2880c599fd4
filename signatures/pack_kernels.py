"""The texts of a large pack by compiled kernels: a tenth of the time of plain Python."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.signatures.columns import as_readonly
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK
from sigdir.signatures.grammar_rows import is_canonical, normalise_rows
from sigdir.signatures.keccak_rows import keccak256_rows
from sigdir.signatures.kernels import kernel
from sigdir.signatures.pack_file import BadPack

Array = npt.NDArray[Any]

_ROWS = 1 << 17  # that are checked at once: the grammar has room for five times their bytes


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


def prefixes(collection: Collection, data: bytes | memoryview, ends: Array) -> tuple[Array, int]:
    """The first four bytes of each text's hash, and the number of the first text that is not canonical, -1 for none.

    All cores work: a block's kernels release the GIL.
    """
    raw, bounds = np.frombuffer(data, np.uint8), np.concatenate([[0], ends + 1])
    firsts = range(0, len(ends), _ROWS)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        blocks = list(pool.map(lambda first: _block(collection, raw, bounds[first : first + _ROWS + 1]), firsts))
    wrong = (first + wrong for first, (_, wrong) in zip(firsts, blocks, strict=True) if wrong >= 0)
    return np.concatenate([np.empty(0, np.uint32), *(found for found, _ in blocks)]), next(wrong, -1)


def _block(collection: Collection, data: Array, bounds: Array) -> tuple[Array, int]:
    """The same of some texts, from each bound up to the line break before the next one."""
    known = np.empty(len(bounds) - 1, np.bool_)
    check: Any = _check
    check(data, as_readonly(bounds), known)
    digests = keccak256_rows(data, bounds, 1)
    found = np.ascontiguousarray(digests[:, :4]).view(">u4").ravel().astype(np.uint32)
    return found, _first_refused(collection, data, bounds, np.flatnonzero(~known))


def _first_refused(collection: Collection, data: Array, bounds: Array, rows: Array) -> int:
    """The first of some rows that the grammar refuses or writes in another way, -1 for none."""
    if not len(rows):
        return -1
    starts, ends = bounds[rows].astype(np.int32), (bounds[rows + 1] - 1).astype(np.int32)
    result = normalise_rows(data, starts, ends, np.full(len(rows), collection.code, np.uint8), collection.code)
    good = (result.reasons == OK) & (result.collections == collection.code)
    for at, row in enumerate(rows.tolist()):
        text = result.data[result.offsets[at] : result.offsets[at + 1]]
        if not good[at] or not np.array_equal(text, data[starts[at] : ends[at]]):
            return int(row)
    return -1


@kernel(nogil=True)
def _check(data: Array, bounds: Array, known: Array) -> None:
    """Note for each line whether it is known to be canonical; of others the grammar must decide."""
    for row in range(len(known)):
        start, end = bounds[row], bounds[row + 1] - 1
        known[row] = end - start <= MAX_TEXT_BYTES and is_canonical(data, start, end)


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
    if bytes(data) != b"f()\n" or prefixes(SIGNATURES, data, one + 3)[1] != -1:
        raise BadPack("the kernels are wrong")
