"""Which Solidity sources have to be read together: those that refer to each other by their imports.

A task of an engine reads one group or some. The imports are resolved here, among all sources of the import: whether an
import is ambiguous depends on files of other projects too. So a group is read as if all sources were there.

Invariants
    Two sources are in one group if one imports the other, directly or by way of others.
    Groups do not overlap in the order of the sources, so that the rows of one group come before those of the next.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sigdir.pipeline.formats.contracts import absolute_path
from sigdir.pipeline.formats.solidity.imports import Resolver, Targets
from sigdir.pipeline.formats.solidity.outline import outline_of
from sigdir.pipeline.formats.solidity.remappings import FILES, Remapping, by_folder, parsed_remappings
from sigdir.pipeline.formats.solidity.syntax import ENCODING
from sigdir.pipeline.source import Source

_IMPORT = re.compile(rb"""\bimport\b[^;"']*+(?:"([^"\n]*+)"|'([^'\n]*+)'|)""")
"""Finds all that the parser takes for an import, and perhaps more, in a source without bodies and comments. It takes what
has no path too, so that nothing is looked at twice.
"""


@dataclass(frozen=True, slots=True)
class References:
    """What a source refers to: the paths that it imports, as written; or the remappings that a file states."""

    path: str
    size: int
    """In bytes, unpacked."""
    imports: tuple[str, ...] = ()
    remappings: tuple[Remapping, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Sources that are read together: from ``first`` up to and without ``last``, in the order of the import."""

    first: int
    last: int
    size: int
    targets: Targets
    """What all their imports refer to."""


def references(source: Source) -> References:
    """What an open source, or a file with remappings, refers to."""
    code, path = source.read_all("Solidity source"), absolute_path(source.path)
    if posixpath.basename(path) in FILES:
        found, _ = parsed_remappings(posixpath.basename(path), code)
        return References(path, len(code), remappings=tuple(found))
    hits = _IMPORT.finditer(outline_of(code).masked)
    written = dict.fromkeys(hit[hit.lastindex].decode(*ENCODING) for hit in hits if hit.lastindex)
    return References(path, len(code), tuple(written))


def groups(found: Sequence[References], paths: Sequence[str]) -> list[Group]:
    """The groups of all sources of an import, whose ``paths`` are those that the user named."""
    targets = _targets(found, [absolute_path(path) for path in paths])
    ends = _ends(found, targets)
    result: list[Group] = []
    first = end = 0
    for number in range(len(found)):
        end = max(end, ends[number])
        if end == number + 1:
            members = found[first:end]
            own = {(one.path, written): targets[one.path, written] for one in members for written in one.imports}
            result.append(Group(first, end, sum(one.size for one in members), own))
            first = end
    return result


def _targets(found: Sequence[References], roots: Sequence[str]) -> dict[tuple[str, str], str | None]:
    files: dict[str, dict[str, Sequence[Remapping]]] = {}
    for one in found:
        folder, name = posixpath.split(one.path)
        if name in FILES:
            files.setdefault(folder, {})[name] = one.remappings
    sources = frozenset(one.path for one in found if posixpath.basename(one.path) not in FILES)
    resolver = Resolver(sources, by_folder(files), sorted(set(roots)), None)
    return {(one.path, written): resolver.target(written, one.path) for one in found for written in one.imports}


def _ends(found: Sequence[References], targets: Mapping[tuple[str, str], str | None]) -> list[int]:
    """For each source the number after the last one that it is connected with by an import, or that has its path."""
    places: dict[str, tuple[int, int]] = {}
    for number, one in enumerate(found):
        first, _ = places.get(one.path, (number, number))
        places[one.path] = first, number
    ends = [places[one.path][1] + 1 for one in found]
    for (path, _), target in targets.items():
        for other in (path, target) if target is not None else ():
            first = min(places[path][0], places[target or path][0])
            ends[first] = max(ends[first], places[other][1] + 1)
    return ends
