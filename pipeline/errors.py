"""The errors of imports, exports and mirrors. A message is one line: which file, where in it, and why."""

from __future__ import annotations

from sigdir.signatures.errors import SigdirError


class PipelineError(SigdirError):
    """The base of this layer's errors."""


class BadInput(PipelineError):
    """An input cannot be read to its end. ``name`` is the input's, ``reason`` has the place in it and why."""

    def __init__(self, name: str, reason: str, place: str = "") -> None:
        self.name = one_line(name)
        self.reason = one_line(f"{place}: {reason}" if place else reason)
        super().__init__(f"{self.name}: {self.reason}")


class BrokenJSON(BadInput):
    """An input begins like a JSON document and is not one."""


class BadTarget(PipelineError):
    """An export's target cannot be written as requested. It does not exist, or is unchanged."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")


def printable(name: str) -> str:
    """A file name as text that can be written anywhere: bytes that are not UTF-8 become ``\\xNN``."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def one_line(text: str) -> str:
    """Escape line breaks and other control characters; file names may contain them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
