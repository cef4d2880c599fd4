"""The sources of one import, and which of them an imported name means.

As the compiler does, a dotted path is looked for beside the importing source. The compiler's other search paths are not
known here, so the folders above it are searched too, and the path must be in one of them only. Nothing is guessed: what
is not given, or is given twice, stays unresolved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sigdir.pipeline.formats.vyper.source_unit import SourceUnit

BUILTIN = "vyper"
"""Stands for the modules of the language itself, which hold interfaces."""
_BUILTIN_PACKAGES = ("vyper", "ethereum", "math")
_ENDINGS = (".vy", ".vyi")
_MOST_FOLDERS = 64
_MOST_DOTS = 16


class Modules:
    """Sources by their absolute path."""

    def __init__(self, units: Mapping[str, SourceUnit]) -> None:
        self._units = units
        self._targets: dict[tuple[str, str], str | None] = {}

    def unit(self, path: str) -> SourceUnit:
        return self._units[path]

    def target(self, name: str, path: str) -> str | None:
        """The source that ``name`` (maybe dotted, as imported) means in the source ``path``; BUILTIN; None if unknown."""
        key = name, path
        if key not in self._targets:
            self._targets[key] = self._find(name, path)
        return self._targets[key]

    def _find(self, name: str, path: str) -> str | None:
        """A name of an import, or a name that an imported module imports itself, as in ``a.b``."""
        unit = self._units[path]
        if name not in unit.imports:
            outer, _, inner = name.rpartition(".")
            module = self.target(outer, path) if outer and name.count(".") <= _MOST_DOTS else None
            if module is None or module == BUILTIN or inner not in self._units[module].imports:
                return None
            name, path, unit = inner, module, self._units[module]
        dots, dotted = unit.imports[name]
        parts = dotted.split(".")
        if not dots and parts[0] in _BUILTIN_PACKAGES:
            return BUILTIN
        folder = os.path.dirname(path)
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        beside = self._in_folder(folder, parts)
        if beside or dots:
            return beside
        above = set()
        for _ in range(_MOST_FOLDERS):
            if folder == os.path.dirname(folder):
                break
            folder = os.path.dirname(folder)
            above.add(self._in_folder(folder, parts))
        above.discard(None)
        return above.pop() if len(above) == 1 else None

    def _in_folder(self, folder: str, parts: list[str]) -> str | None:
        for ending in _ENDINGS:
            path = os.path.join(folder, *parts) + ending
            if path in self._units:
                return path
        return None
