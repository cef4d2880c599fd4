"""Names that differ from a typed one by a typing error.

The measure is optimal string alignment: a letter too many, missing or wrong, or two neighbours swapped, is one
error each. Letters are compared without regard to case. The text of every row is scanned, as in a search
(``search``): the place of the parenthesis rules out most rows, and few of the others need all of their letters.
10 M rows take 30 to 350 ms on one core, most for a long name with two errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sigdir.signatures.arrow import Array
from sigdir.signatures.kernels import kernel
from sigdir.warehouse.index.segment import Segment

_SHORTEST, _LONGEST = 4, 64
_TWO_ERRORS = 6  # letters of a name from which on two errors are allowed
_MOST_ROWS = 4096  # that one scan of a segment collects


def similar_texts(segments: Sequence[Segment], typed: str, limit: int) -> list[str]:
    """What ``typed``, a name with or without the beginning of a parameter list, may have meant; the best first.

    Fewer errors come first, then names of more rows. Of names that differ in case alone one is taken. The typed
    parameters are kept if a row has them after its name. Names of less than 4 or more than 64 characters, and names
    that are not ASCII, have none.
    """
    name, parenthesis, parameters = typed.partition("(")
    if not (name.isascii() and _SHORTEST <= len(name) <= _LONGEST):
        return []
    wanted = np.frombuffer(name.lower().encode(), np.uint8)
    for errors in range(1, 3 if len(name) >= _TWO_ERRORS else 2):
        spellings: dict[tuple[int, str], Counter[str]] = {}
        wholes: set[str] = set()
        for segment in segments:
            rows, distances = np.empty(_MOST_ROWS, np.int64), np.empty(_MOST_ROWS, np.int64)
            count = _scan(segment.text, segment.offsets, segment.rows, wanted, errors, rows, distances)
            for row, distance in zip(rows[:count].tolist(), distances[:count].tolist(), strict=True):
                text = segment.text_at(row)
                found = text.partition("(")[0]
                spellings.setdefault((distance, found.lower()), Counter())[found] += 1
                if text.startswith(whole := found + parenthesis + parameters):
                    wholes.add(whole)
        if spellings:
            best = sorted(spellings, key=lambda key: (key[0], -spellings[key].total(), key[1]))[:limit]
            names = [_spelling(spellings[key], name) for key in best]
            return [whole if (whole := found + parenthesis + parameters) in wholes else found for found in names]
    return []


def _spelling(counts: Counter[str], typed: str) -> str:
    """Of names that differ in case alone the one that begins as the typed one does, then the most common."""
    return max(counts, key=lambda name: (name[0] == typed[0], counts[name]))


@kernel(nogil=True)
def _scan(text: Array, offsets: Array, rows: int, name: Array, most: int, found: Array, distances: Array) -> int:
    """Collect rows whose name is at most ``most`` errors from ``name``, which is lower-case; returns their number."""
    size = len(name)
    table = np.empty((3, size + 1), np.int64)
    count = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        length = size - most
        last = min(size + most, end - at - 1)
        while length <= last and text[at + length] != 0x28:
            length += 1
        if length > last:
            continue
        distance = _distance(text, at, length, name, most, table)
        if distance <= most:
            found[count], distances[count] = row, distance
            count += 1
            if count == len(found):
                break
    return count


@kernel(nogil=True)
def _distance(text: Array, at: int, length: int, name: Array, most: int, table: Array) -> Any:
    """The distance of ``text[at:at + length]`` from ``name``, or ``most + 1`` if it is more or a parenthesis is inside.

    ``table`` is memory for three rows. Only its cells up to ``most`` from the diagonal can be at most ``most``.
    """
    size = len(name)
    far = most + 1
    for column in range(size + 1):
        table[0, column] = column
    for i in range(1, length + 1):
        here, before, earlier = i % 3, (i - 1) % 3, (i - 2) % 3
        letter = _lower(text[at + i - 1])
        if letter == 0x28:
            return far
        first, last = max(1, i - most), min(size, i + most)
        table[here, first - 1] = i if first == 1 else far
        smallest = table[here, first - 1]
        for column in range(first, last + 1):
            cost = table[before, column - 1] + (letter != name[column - 1])
            cost = min(cost, table[here, column - 1] + 1)
            if column < i + most or i == 1:
                cost = min(cost, table[before, column] + 1)
            if i > 1 and column > 1 and letter == name[column - 2] and _lower(text[at + i - 2]) == name[column - 1]:
                cost = min(cost, table[earlier, column - 2] + 1)
            table[here, column] = cost
            smallest = min(smallest, cost)
        if smallest > most:
            return far
    return table[length % 3, size]


@kernel(nogil=True)
def _lower(byte: int) -> int:
    return byte | 0x20 if 65 <= byte <= 90 else byte


def warm() -> None:
    """Load the kernel before any request waits for it."""
    numbers = np.zeros(1, np.int64)
    text = np.frombuffer(b"warn()", np.uint8)
    segment = Segment.of(1, numbers, numbers, np.array([0, len(text)]), text, np.zeros((1, 4), np.uint8), {})
    similar_texts([segment], "warm", 1)
