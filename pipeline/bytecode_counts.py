"""How many contracts of an input have bytecode, and what it proves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

OVER_TIME = "over_time"
"""The bytecodes of the input before this one took too long; this one was not analysed."""


@dataclass
class BytecodeCounts:
    """The counts of one input or of several."""

    contracts: int = 0
    """Those whose runtime code was read."""
    compiled: int = 0
    """Candidates whose hash is in the code of their contract."""
    declared: int = 0
    """Candidates whose hash is not in the code that was there."""
    misfits: int = 0
    """Contracts whose ABI has a function that their code lacks."""
    unread: Counter[str] = field(default_factory=Counter)
    """Contracts whose bytecode could not be read, by reason: a ``CodeProblem`` but EMPTY, or OVER_TIME."""

    def __bool__(self) -> bool:
        return bool(self.contracts or self.unread)

    def __iadd__(self, other: BytecodeCounts) -> Self:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"unread": dict(self.unread)}
