"""The sources inside one input: each has a name of its own, and lines that rejects name."""

from __future__ import annotations

from bisect import bisect_right

_FIRST = 1 << 40
"""Numbers from here on are lines of sections. No input has so many lines or entries of its own."""


class Sections:
    """Gives each source inside an input a range of numbers, and finds the source and the line of a number."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._starts: list[int] = []
        self._end = _FIRST

    def add(self, name: str, lines: int) -> int:
        """Take a source of so many lines; gives the number before its first line."""
        self._names.append(name)
        self._starts.append(self._end)
        self._end += lines
        return self._starts[-1] - 1

    def place(self, number: int) -> tuple[str, int] | None:
        """The source and the line in it, from 1; None for a number of the input's own."""
        at = bisect_right(self._starts, number) - 1
        return None if at < 0 else (self._names[at], number - self._starts[at] + 1)

    def __bool__(self) -> bool:
        return bool(self._names)
