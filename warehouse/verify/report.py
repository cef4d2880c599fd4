"""What a verification found: findings, notes, and what was checked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import COLLECTIONS, Collection

SHOWN = 1000
"""At most so many findings are reported."""


@dataclass(slots=True)
class Finding:
    """One line of the report. ``more`` counts further rows of the same file with the same problem."""

    what: str
    where: str
    row: str
    why: str
    more: int = 0

    def __str__(self) -> str:
        where = f"{self.where}, {self.row}" if self.row else self.where
        more = f" (and {self.more:,} more rows there)" if self.more else ""
        return f"{self.what}: {where}: {self.why}{more}"


@dataclass
class VerifyReport:
    """What was checked and what was found; ``rows`` of the table and ``staged`` ones, by collection."""

    root: Path
    version: int = -1
    rows: dict[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, 0))
    staged: dict[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, 0))
    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    _first: dict[tuple[str, str, str], Finding] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, what: str, where: Path, why: str, row: str = "") -> None:
        self.extend([Finding(what, self.name(where), row, why)])

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add findings; a row with the same problem in the same file is only counted. Safe for threads."""
        for finding in findings:
            same = "" if finding.row else finding.why
            with self._lock:
                first = self._first.setdefault((finding.what, finding.where, same), finding)
                if first is not finding:
                    first.more += 1 + finding.more if finding.row else 0
                elif len(self.findings) < SHOWN:
                    self.findings.append(finding)

    def note(self, where: Path, why: str) -> None:
        self.notes.append(Finding("orphan", self.name(where), "", why))

    def name(self, path: Path) -> str:
        """A path as reports show it: relative to the warehouse."""
        return path.relative_to(self.root).as_posix()

    def to_dict(self) -> dict[str, Any]:
        return {
            "clean": not self.findings,
            "version": self.version,
            "rows": self.rows,
            "staged": self.staged,
            "files": self.files,
            "findings": [asdict(finding) for finding in self.findings],
            "notes": [asdict(note) for note in self.notes],
            "seconds": round(self.seconds, 3),
        }


def reason_of(error: Exception, path: Path) -> str:
    """An error's message without the path, which the finding names already."""
    return str(error).removeprefix(f"{path}: ")


def quoted(text: str) -> str:
    """A text as findings show it."""
    return json.dumps(text if len(text) <= 80 else text[:80] + "...")
