"""The file ``warehouse.json``: a warehouse's format and its id.

The format is one number for the whole folder: its table, its staging file, their names. A folder that has a
table or a staging file and no ``warehouse.json`` has the format that its staging file says, or format 1, which is
older than ``warehouse.json``. Format 2 has evidence.

The id is random and never changes. The staging file has it too, so that a staging file of another warehouse
is detected: its rows would be folded here, or taken for folded and deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import write_file
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.upgrades import add_evidence, format_of_staging

FORMAT = 2
"""The layout of the folder that this version reads and writes. Another one is upgraded or refused."""

STEPS: dict[int, Callable[[Paths], None]] = {1: add_evidence}
"""For each older format, a function that changes the folder to the next one; called by ``upgrade``.

A step that was interrupted runs again, so it must be idempotent. It changes the number in the staging file too."""


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
    """The folder's format and id, usable by this version or not; raises UnreadableWarehouse."""
    try:
        document = json.loads(paths.identity.read_bytes())
        flags = (bool(document.get(name)) for name in ("unfinished", "has_suppressed"))
        return Identity(int(document["format"]), str(document["id"]), *flags)
    except FileNotFoundError:
        if not paths.hold_warehouse():
            return Identity(FORMAT)
        # A staging file says nothing while another process makes it.
        return Identity((format_of_staging(paths) or FORMAT) if paths.staging.exists() else 1)
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.identity}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableWarehouse(f"{paths.identity}: damaged: a format number and an id are expected") from error


def usable_identity(paths: Paths) -> Identity:
    """The folder's format and id; raises UnreadableWarehouse if this version cannot use it."""
    found = read_identity(paths)
    if found.unfinished:
        raise UnreadableWarehouse(f"{paths.root} is an unfinished backup: run `sigdir backup` into it again")
    if found.format != FORMAT:
        cure = "stop all servers and run `sigdir fold`" if found.format in STEPS else "use the version that made it"
        raise UnreadableWarehouse(f"{paths.root} has format {found.format}; this version reads format {FORMAT}: {cure}")
    return found


def write_identity(paths: Paths, identity: Identity) -> None:
    """Replace the file, whole and synced; raises UnreadableWarehouse."""
    document = {name: value for name, value in asdict(identity).items() if value is not False}
    try:
        write_file(paths.identity, json.dumps(document).encode() + b"\n")
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.identity}: {error.strerror}") from error


def upgrade(paths: Paths) -> None:
    """Change an older folder to this version's format, step by step. The caller holds the publish lock."""
    found = read_identity(paths)
    while found.format in STEPS and not found.unfinished:
        STEPS[found.format](paths)
        found = replace(found, format=found.format + 1)
        write_identity(paths, found)
    usable_identity(paths)
