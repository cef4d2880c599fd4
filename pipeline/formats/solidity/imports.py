"""Which of the given files an import refers to, by the rules of solc, Node and Foundry.

A path that begins with `./` or `../` is relative to the importing file, and exact. Any other path is looked up by
these rules, and the first that finds a given file decides:

0. For sources inside a JSON document: the document's remappings and the name that it gives the source.
1. Remappings: of `remappings.txt`, `foundry.toml` or standard JSON in a folder above the importing file, then of the
   libraries in the folder's `lib`. As in solc the longest context decides, then the longest prefix, then the last one.
2. `node_modules`, from the importing file's folder upwards, as in Node.
3. `lib/NAME`, `lib/NAME/src` and `lib/NAME/contracts`, as in Foundry: a library in the project's own `lib` goes
   before one inside another library.
4. `contracts`, a folder above the importing file, and the paths that the import was given, which are solc's base
   and include paths. As in solc the path is ambiguous if two different files match.

A file's name alone, or its nearness, decides nothing. An import that no rule finds is a reject.

Source: the Solidity documentation, "Import Path Resolution"; Node's documentation, "Loading from node_modules
folders"; Foundry's book, "Remapping dependencies".
"""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, groupby, islice
from typing import NamedTuple

from sigdir.pipeline.formats.solidity.source_unit import Import, Unit

_MOST_FOLDERS = 100
"""The most folders above a file that are looked into."""
_MOST_LIBRARIES = 256
"""The most libraries of one name that are looked into. Real projects have a few."""
_DEPENDENCIES = ("lib", "node_modules")


@dataclass(frozen=True, slots=True)
class LinkedUnits:
    """The units of all sources with the paths of their imports resolved."""

    units: dict[str, Unit]
    """By path. Imports of files that are not given are left out."""
    missing: dict[str, list[Import]]
    """By path: the imports of files that are not given."""


def linked(
    units: Mapping[str, Unit],
    remappings: Mapping[str, Remappings],
    roots: Iterable[str],
    document: str | None,
) -> LinkedUnits:
    """Resolve the imports of all units. ``remappings`` are by the folder that they stand in; ``roots`` are the
    absolute paths that the import was given. ``document`` is the absolute path of a JSON document that holds all units.
    """
    resolver = _Resolver(units, remappings, sorted(set(roots)), document)
    found: dict[str, Unit] = {}
    missing: dict[str, list[Import]] = {}
    for path, unit in units.items():
        imports = []
        for imported in unit.imports:
            target = resolver.target(imported.path, path)
            if target is not None:
                imports.append(replace(imported, path=target))
            else:
                missing.setdefault(path, []).append(imported)
        found[path] = Unit(unit.definitions, imports)
    return LinkedUnits(found, missing)


class _Resolver:
    """Finds the files that imports refer to, among the files ``paths``."""

    def __init__(
        self,
        paths: Collection[str],
        remappings: Mapping[str, Remappings],
        roots: Sequence[str],
        document: str | None,
    ) -> None:
        self._paths = paths
        self._remappings = remappings
        self._roots = roots
        self._document = document
        self._folders = cache(self._project_folders)
        self._below = cache(self._nearest)
        self._match = cache(self._matched)
        self._rules: tuple[Callable[[str, str], set[str] | None], ...] = (
            self._named_in_document, self._remapped, self._in_node_modules, self._in_libraries, self._below_roots,
        )  # fmt: skip

    def target(self, written: str, importer: str) -> str | None:
        """The given file that an import refers to; None if no file matches, or several."""
        folder = posixpath.dirname(importer)
        if written.startswith(("./", "../")):
            return next(iter(self._given(posixpath.join(folder, written))), None)
        # A context may name one file, so where there are remappings the whole path of the importer counts.
        return self._match(written, importer if self._remappings else posixpath.join(folder, ""))

    def _matched(self, written: str, importer: str) -> str | None:
        """The file of the first rule that decides. A rule decides by a set, which may be empty, or gives None."""
        for rule in self._rules:
            found = rule(written, importer)
            if found is not None:
                return found.pop() if len(found) == 1 else None
        return None

    def _given(self, *candidates: str) -> set[str]:
        """Those of the candidates that are given files."""
        return {path for path in map(posixpath.normpath, candidates) if path in self._paths}

    def _named_in_document(self, written: str, importer: str) -> set[str] | None:
        """By the name that the compiler knew a source of a JSON document by."""
        if self._document is None:
            return None
        target = self._target_in(self._document, written, importer)
        return self._given(posixpath.join(self._document, (target or written).lstrip("/"))) or None

    def _remapped(self, written: str, importer: str) -> set[str] | None:
        for folder in self._folders(posixpath.dirname(importer)):
            target = self._target_in(folder, written, importer)
            if target is not None:
                found = self._given(posixpath.join(folder, target))
                # Tools ignore the remappings of a package, so there the next rule may find the file.
                if found or "node_modules" not in folder.split("/"):
                    return found
            if found := self._remapped_by_libraries(written, folder):
                return found
        return None

    def _target_in(self, folder: str, written: str, importer: str) -> str | None:
        own = self._remappings.get(folder)
        return remapped(own, written, posixpath.relpath(importer, folder)) if own else None

    def _remapped_by_libraries(self, written: str, folder: str) -> set[str]:
        """By the remappings of the libraries below a folder; those with the shortest path decide."""
        for _, libraries in _by_depth(self._below(folder, "")):
            targets = [(path, remapped(self._remappings[path], written, "")) for path in libraries]
            if found := self._given(*(posixpath.join(path, target) for path, target in targets if target is not None)):
                return found
        return set()

    def _in_node_modules(self, written: str, importer: str) -> set[str] | None:
        for folder in _upwards(posixpath.dirname(importer)):
            if posixpath.basename(folder) == "node_modules":
                continue
            if found := self._given(posixpath.join(folder, "node_modules", written)):
                return found
        return None

    def _in_libraries(self, written: str, importer: str) -> set[str] | None:
        name, _, rest = written.partition("/")
        for folder in self._folders(posixpath.dirname(importer)) if rest and name in self._libraries else []:
            for _, paths in _by_depth(self._below(folder, name)):
                found = set()
                for path in paths:
                    places = (self._given(posixpath.join(path, part, rest)) for part in ("", "src", "contracts"))
                    found |= next(filter(None, places), set())
                if found:
                    return found
        return None

    def _below_roots(self, written: str, importer: str) -> set[str] | None:
        folders = [*_upwards(posixpath.dirname(importer)), *self._roots]
        return self._given(*(posixpath.join(folder, part, written) for folder in folders for part in ("", "contracts")))

    def _nearest(self, folder: str, name: str) -> list[str]:
        """Those of the libraries called ``name``, or of those with remappings for "", that lie below the folder's `lib`,
        the shortest paths first.
        """
        libraries = self._libraries[name] if name else self._remappings
        below = [path for path in libraries if path.startswith(posixpath.join(folder, "lib", ""))]
        return sorted(below, key=lambda path: (_depth(path), path))[:_MOST_LIBRARIES]

    @cached_property
    def _libraries(self) -> dict[str, set[str]]:
        """The folders `.../lib/NAME` that hold given files, by NAME."""
        found: dict[str, set[str]] = {}
        for path in self._paths:
            parts = path.split("/")
            for at, part in enumerate(parts[:-2]):
                if part == "lib":
                    found.setdefault(parts[at + 1], set()).add("/".join(parts[: at + 2]))
        return found

    def _project_folders(self, folder: str) -> list[str]:
        """The folders whose remappings and `lib` count for a file in ``folder``, the first one before the others.

        A file in a dependency is compiled by the project that holds the dependency. So the project's folder and
        those above it come first, then the folders inside the dependency, from the file upwards.
        """
        upwards = _upwards(folder)
        tops = [at for at, path in enumerate(upwards) if posixpath.basename(path) in _DEPENDENCIES]
        # Only below a given path: a project may itself lie in `/var/lib`.
        tops = [at for at in tops if any(upwards[at].startswith(f"{root}/") for root in self._roots)]
        first = tops[-1] + 1 if tops else 0
        return upwards[first:] + upwards[:first]


def _depth(path: str) -> int:
    return path.count("/")


def _by_depth(paths: Iterable[str]) -> Iterable[tuple[int, Iterable[str]]]:
    """Groups of paths of the same depth; the paths are sorted by it."""
    return groupby(paths, _depth)


def _upwards(folder: str) -> list[str]:
    """The folder and those above it."""
    found = [folder]
    while (parent := posixpath.dirname(found[-1])) != found[-1] and len(found) < _MOST_FOLDERS:
        found.append(parent)
    return found


# Import remappings: `context:prefix=target`, as solc reads them, from the files where projects keep them.


FILES = ("remappings.txt", "foundry.toml")
"""The names of the files with remappings. Foundry gives `remappings.txt` the last word."""
MOST_REMAPPINGS = 10_000


class Remapping(NamedTuple):
    context: str
    """What the importing file's path begins with, empty for any."""
    prefix: str
    target: str


Remappings = Sequence[Remapping]
"""Those of one folder, of which the first that applies counts. Paths are relative to the folder."""


def remapped(remappings: Remappings, written: str, importer: str) -> str | None:
    """What a path becomes in the file ``importer``; None if no remapping applies."""
    for context, prefix, target in remappings:
        if written.startswith(prefix) and importer.startswith(context):
            return target + written[len(prefix) :]
    return None


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


def by_folder(files: Mapping[str, Mapping[str, Sequence[Remapping]]]) -> dict[str, Remappings]:
    """The remappings of each folder, from those of its files by name; those without a file are named by ""."""
    return {folder: _in_order(named) for folder, named in files.items()}


def _in_order(named: Mapping[str, Sequence[Remapping]]) -> Remappings:
    """The longest context before others, then the longest prefix, then the last one."""
    written = chain.from_iterable(named.get(name, ()) for name in ("foundry.toml", "remappings.txt", ""))
    last_first = list(islice(written, MOST_REMAPPINGS))[::-1]
    return sorted(last_first, key=lambda one: (-len(one.context), -len(one.prefix)))


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
