"""Which of the given files an import refers to."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace

from sigdir.pipeline.formats.solidity.definitions import Unit


def linked(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """The units with the paths of their imports resolved. Imports of files that are not given are dropped."""
    by_name: dict[str, list[str]] = {}
    for path in units:
        by_name.setdefault(posixpath.basename(path), []).append(path)
    linked = {}
    for path, unit in units.items():
        targets = [(imported, _target(imported.path, path, by_name)) for imported in unit.imports]
        imports = [replace(imported, path=target) for imported, target in targets if target is not None]
        linked[path] = Unit(unit.definitions, imports)
    return linked


def _target(written: str, importer: str, by_name: Mapping[str, list[str]]) -> str | None:
    """The given file that an import refers to; None if no file matches or several match equally well.

    A relative path is exact. Any other path may be remapped (`@openzeppelin/contracts/` for
    `contracts/`), so the file that shares the longest end of the path matches best. Of several such
    files the one nearest to the importer does.
    """
    same_name = by_name.get(posixpath.basename(written), [])
    if written.startswith(("./", "../")):
        exact = posixpath.normpath(posixpath.join(posixpath.dirname(importer), written))
        return exact if exact in same_name else None
    parts, near = posixpath.normpath(written).split("/")[::-1], importer.split("/")
    ranked = sorted(
        ((_shared(parts, p.split("/")[::-1]), _shared(near, p.split("/")), p) for p in same_name), reverse=True
    )
    return ranked[0][2] if len(ranked) == 1 or (ranked and ranked[0][:2] != ranked[1][:2]) else None


def _shared(a: list[str], b: list[str]) -> int:
    """The number of leading parts that two paths share."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
