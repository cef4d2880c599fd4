"""How far the mirror of a directory is: one state file per collection, next to its spool."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from sigdir.pipeline.errors import printable
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import replacing
from sigdir.warehouse.table.paths import Paths, mirror_spool


def folder_name(base: str) -> str:
    """The name of the folder for a directory's URL."""
    host = re.sub("[^a-z0-9.-]", "_", (urlsplit(base).hostname or "")[:100])
    return f"{host}-{hashlib.sha256(base.encode()).hexdigest()[:12]}"


@dataclass
class State:
    """The fields of a state file."""

    url: str
    after: str = ""
    """The feed's cursor after the last row that is spooled or imported."""
    pages: int = 0
    """Pages read, whose rows are spooled or imported."""
    ids: list[int] = field(default_factory=list)
    """Those of the rows on the last of these pages."""
    spooled: int = 0
    """Valid bytes of the spool. Bytes after them are cut off when it is opened."""

    @classmethod
    def read(cls, path: Path, url: str) -> State:
        """Read the file; a new state if it is missing. Raises UnreadableWarehouse."""
        try:
            fields = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return cls(url)
        except ValueError:
            fields = None
        if not isinstance(fields, dict) or _types(fields) != _types(asdict(cls(url))):
            raise UnreadableWarehouse(f"{path} is broken; start over with --restart")
        return cls(**fields)

    def write(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(orjson.dumps(self, option=orjson.OPT_INDENT_2))


def _types(fields: Mapping[str, object]) -> dict[str, type]:
    return {name: type(value) for name, value in fields.items()}


# Verification.


def problems_of_states(paths: Paths) -> Iterator[tuple[Path, str]]:
    """The state files that a mirror could not continue from, each with the reason. Mirrors may be running."""
    for path in paths.mirror_states():
        checked = b""
        while path.exists() and (content := path.read_bytes()) != checked:  # it may change during the check
            checked = content
            problem = _problem_of(path)
        if checked and problem:
            yield path, problem


def _problem_of(path: Path) -> str:
    try:
        state = State.read(path, "")
    except UnreadableWarehouse as error:
        return str(error).removeprefix(f"{path} ")
    if path.stem not in COLLECTIONS or path.parent.name != folder_name(state.url):
        return f"belongs to {printable(state.url)}, whose folder is {folder_name(state.url)}"
    spool = mirror_spool(path)
    size = spool.stat().st_size if spool.exists() else 0
    if size < state.spooled:
        return f"counts {state.spooled:,} bytes of a spool that has {size:,}; the next run starts over"
    if state.spooled and not _ends_line(spool, state.spooled):
        return f"counts {state.spooled:,} bytes of its spool, which end inside a line"
    return ""


def _ends_line(file: Path, at: int) -> bool:
    with file.open("rb") as lines:
        lines.seek(at - 1)
        return lines.read(1) == b"\n"
