"""What stops an import. One line each: which input, where in it, and why."""

from __future__ import annotations

from sigdir.signatures.errors import SigdirError


class PipelineError(SigdirError):
    """The root of this floor's errors."""


class BadInput(PipelineError):
    """An input that cannot be read on; nothing of the run is published."""

    def __init__(self, name: str, reason: str, place: str = "") -> None:
        super().__init__(_one_line(f"{name}: {place + ': ' if place else ''}{reason}"))


class BrokenJSON(BadInput):
    """An input that begins like a JSON document and is none."""


def _one_line(text: str) -> str:
    """The text with line breaks and other control characters escaped: names may have any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class BadTarget(PipelineError):
    """A target that cannot be written as asked; there is none then, or it is what it was."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
