"""Which format a warehouse has, and which warehouse it is: the file ``warehouse.json``.

One number stands for the whole folder: its table, its staging file, their names. A folder without the
file that holds something is of format 1, which came before it.

The id is random, given once, and kept by the staging file too, so that a staging file of another
warehouse is noticed: its rows would be folded here, or taken for folded and deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import write_file
from sigdir.warehouse.paths import Paths

FORMAT = 1
"""The layout of the folder that this version reads and writes. Another one is refused, or upgraded."""

STEPS: dict[int, Callable[[Paths], None]] = {}
"""From each older format to the next: a function that changes the folder, called by ``upgrade``.

A step is carried out again where it was cut short, so it must bear that. It changes the staging file's
own number too."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What ``warehouse.json`` says. ``id`` is empty where none was given yet.

    ``unfinished`` is set while a first backup into the folder goes on.
    """

    format: int
    id: str = ""
    unfinished: bool = False


def read_identity(paths: Paths) -> Identity:
    """What the folder is, whether this version can use it or not; raises UnreadableWarehouse."""
    try:
        told = json.loads(paths.identity.read_bytes())
        return Identity(int(told["format"]), str(told["id"]), bool(told.get("unfinished")))
    except FileNotFoundError:
        return Identity(1 if paths.log.is_dir() or paths.staging.exists() else FORMAT)
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.identity}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableWarehouse(f"{paths.identity}: damaged: a format number and an id are expected") from error


def usable_identity(paths: Paths) -> Identity:
    """What the folder is; raises UnreadableWarehouse where it is not of the format that this version knows."""
    found = read_identity(paths)
    if found.unfinished:
        raise UnreadableWarehouse(f"{paths.root} is an unfinished backup: run `sigdir backup` into it again")
    if found.format != FORMAT:
        cure = (
            "`sigdir fold` brings it up, while no server runs" if found.format in STEPS else "use the one that made it"
        )
        raise UnreadableWarehouse(f"{paths.root} has format {found.format}; this version reads format {FORMAT}: {cure}")
    return found


def write_identity(paths: Paths, identity: Identity) -> None:
    """Put the file in place, whole and synced; raises UnreadableWarehouse."""
    told = asdict(identity)
    if not identity.unfinished:
        del told["unfinished"]
    try:
        write_file(paths.identity, json.dumps(told).encode() + b"\n")
    except OSError as error:
        raise UnreadableWarehouse(f"{paths.identity}: {error.strerror}") from error


def upgrade(paths: Paths) -> None:
    """Bring an older folder to this version's format, step by step. The caller holds the publish lock."""
    found = read_identity(paths)
    while found.format in STEPS and not found.unfinished:
        STEPS[found.format](paths)
        found = replace(found, format=found.format + 1)
        write_identity(paths, found)
    usable_identity(paths)
