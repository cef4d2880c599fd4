"""The file ``warehouse.json``: a warehouse's format and its id.

The format is one number for the whole folder: its table, its staging file, their names. A program reads one format and
converts none: its rows are exported by the program that wrote them.

The id is random and never changes. The staging file has both too. So a staging file of another warehouse is detected:
its rows would be folded here, or taken for folded and deleted. And a ``warehouse.json`` that is lost, or that a crash
kept from being written, is made again from it.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import write_file
from sigdir.warehouse.table.paths import Paths

FORMAT = 6
"""The layout of the folder that this version reads and writes. Another one is refused."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of ``warehouse.json``. ``id`` is empty if there is none yet.

    ``unfinished`` is set while a first backup into the folder is running, ``has_suppressed`` in a store that has a
    suppress list.
    """

    format: int
    id: str = ""
    unfinished: bool = False
    has_suppressed: bool = False


def read_identity(paths: Paths) -> Identity:
    """The folder's format and id, usable by this version or not; raises UnreadableWarehouse.

    A folder without a warehouse has this version's format.
    """
    try:
        document = json.loads(paths.identity.read_bytes())
        flags = (bool(document.get(name)) for name in ("unfinished", "has_suppressed"))
        return Identity(int(document["format"]), str(document["id"]), *flags)
    except FileNotFoundError:
        if paths.staging.exists():
            return Identity(_format_of_staging(paths))
        if paths.log.is_dir():
            raise UnreadableWarehouse(f"{paths.identity}: missing; put this file back from a backup") from None
        return Identity(FORMAT)
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.identity}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableWarehouse(f"{paths.identity}: damaged: a format number and an id are expected") from error


def usable_identity(paths: Paths) -> Identity:
    """The folder's format and id; raises UnreadableWarehouse if this version cannot use it."""
    found = read_identity(paths)
    if found.unfinished:
        raise UnreadableWarehouse(f"{paths.root} is an unfinished backup: run `sigdir backup` into it again")
    require_format(paths.root, found.format)
    return found


def require_format(place: Path | str, found: int) -> None:
    """Raise UnreadableWarehouse for another format than this version's; ``place`` is the file, folder or URL that has it."""
    if found != FORMAT:
        raise UnreadableWarehouse(
            f"{place} has format {found}; this version reads format {FORMAT}:"
            " export with the program that wrote it, or import again"
        )


def write_identity(paths: Paths, identity: Identity) -> None:
    """Replace the file, whole and synced; raises UnreadableWarehouse."""
    document = {name: value for name, value in asdict(identity).items() if value is not False}
    try:
        write_file(paths.identity, json.dumps(document).encode() + b"\n")
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.identity}: {error.strerror}") from error


def _format_of_staging(paths: Paths) -> int:
    """The format that a staging file says. This version's where it says none: another process is just making it."""
    mode = "mode=ro" if paths.staging_wal.exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{paths.staging.as_uri()}?{mode}", uri=True, timeout=60)) as connection:
            (found,) = connection.execute("SELECT format FROM about").fetchone()
            return int(found)
    except (sqlite3.Error, TypeError, ValueError):  # whoever needs the file finds out what is wrong with it
        return FORMAT
