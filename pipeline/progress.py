"""What a job reports while it works. ``cli/output.py`` shows it on a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager


class Reporter(AbstractContextManager["Reporter"]):
    """Shows nothing; subclasses show progress. Methods may be called from any thread."""

    def stage(self, name: str, total: int) -> None:
        """A new stage begins, of ``total`` units; 0 if that is not known."""

    def advance(self, units: int) -> None:
        """Units of the stage are done: bytes while reading, rows while writing."""

    def rows(self, count: int) -> None:
        """Rows were read, fetched or exported."""

    def note(self, text: str) -> None:
        """Something that deserves a line of its own."""

    def __exit__(self, *error: object) -> None:
        """Nothing is held open."""
