"""Import remappings: `context:prefix=target`, as solc reads them, from the files where projects keep them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

FILES = ("remappings.txt", "foundry.toml")
"""The names of the files with remappings. Foundry gives `remappings.txt` the last word."""
MOST_REMAPPINGS = 10_000


class Remapping(NamedTuple):
    context: str
    """What the importing file's path begins with, empty for any."""
    prefix: str
    target: str


class Remappings:
    """The remappings of one folder. Paths are relative to it."""

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[Remapping]] = {}
        self._lengths: list[int] = []
        self._count = 0

    def add(self, remappings: Iterable[Remapping]) -> None:
        """Add remappings. Among equals the last one added counts."""
        for remapping in remappings:
            if self._count < MOST_REMAPPINGS:
                self._by_prefix.setdefault(remapping.prefix, []).append(remapping)
                self._count += 1
        self._lengths = sorted({len(prefix) for prefix in self._by_prefix}, reverse=True)

    def target(self, written: str, importer: str) -> str | None:
        """What a path becomes in the file ``importer``; None if no remapping applies."""
        best: Remapping | None = None
        for length in self._lengths:  # the longest first
            for remapping in self._by_prefix.get(written[:length], []) if length <= len(written) else []:
                if not importer.startswith(remapping.context):
                    continue
                if best is None or _rank(remapping) >= _rank(best):
                    best = remapping
        return best.target + written[len(best.prefix) :] if best is not None else None


def _rank(remapping: Remapping) -> tuple[int, int]:
    return len(remapping.context), len(remapping.prefix)


def parse_remapping(line: str) -> Remapping | None:
    """One remapping; None if the line is none. A target without a slash at its end is completed as in Foundry."""
    left, equals, target = line.strip().partition("=")
    context, colon, prefix = left.rpartition(":")
    prefix = prefix if colon else left
    if not equals or not prefix or not target:
        return None
    if prefix.endswith("/") and not target.endswith("/"):
        target += "/"
    return Remapping(context.removeprefix("./"), prefix, target)


def by_folder(files: Mapping[str, Mapping[str, Iterable[Remapping]]]) -> dict[str, Remappings]:
    """The remappings of each folder, from those of its files by name; those without a file are named by ""."""
    found: dict[str, Remappings] = {}
    for folder, named in files.items():
        remappings = found[folder] = Remappings()
        for name in ("foundry.toml", "remappings.txt", ""):  # the last one added counts
            remappings.add(named.get(name, []))
    return found


def parsed_remappings(name: str, content: bytes) -> tuple[list[Remapping], list[tuple[int, str]]]:
    """The remappings of a file with one of the names in FILES, and what is none: its line, 0 in a foundry.toml, and text."""
    try:
        lines = _remapping_lines(name, content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return [], [(1, f"{name} is not TOML")]
    parsed = [(number, line, parse_remapping(line)) for number, line in lines]
    broken = [(number, line) for number, line, remapping in parsed if remapping is None]
    return [remapping for _, _, remapping in parsed if remapping is not None], broken


def _remapping_lines(name: str, content: str) -> list[tuple[int, str]]:
    """The remappings as written in a file with one of the names in FILES, each with its line, 0 in a foundry.toml.

    Raises ValueError for a foundry.toml that is not TOML.
    """
    if name == "remappings.txt":
        lines = enumerate(content.splitlines(), 1)
        return [(number, line.strip()) for number, line in lines if line.strip() and not line.lstrip().startswith("#")]
    document = tomllib.loads(content)
    profiles = document.get("profile")
    profile = profiles.get("default") if isinstance(profiles, dict) else None
    written = profile.get("remappings") if isinstance(profile, dict) else None
    return [(0, line) for line in written if isinstance(line, str)] if isinstance(written, list) else []
