"""Warehouses in stores, as commands see them: each works on the working copy, which is brought up to date first."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sigdir.cli.output import write_line
from sigdir.signatures.errors import SigdirError
from sigdir.warehouse.table.errors import NoWarehouse
from sigdir.warehouse.table.paths import Paths


class StoreUrl(str):
    """What the user gave for --warehouse: the URL of a store."""

    __slots__ = ()


def local_folder(place: StoreUrl, as_of: int | datetime | None, make: bool, may_be_missing: bool) -> Path:
    """The folder of the store's working copy, brought up to date; ``make`` makes a warehouse where there is none.

    With ``may_be_missing`` (a dry run) a store without a warehouse gives a copy without rows. Raises StoreError,
    UnreadableWarehouse.
    """
    from sigdir.warehouse.table.places import working_copy
    from sigdir.warehouse.transfer.working_copy import pull  # the engines, which --help does without

    paths = working_copy(place)
    try:
        pulled = pull(paths, as_of, make=make)
    except NoWarehouse:
        if not may_be_missing:
            raise
        return paths.root
    if pulled.made:
        write_line(f"new warehouse at {place}")
    return paths.root


def mend(folder: Path) -> str:
    """Fetch again what is damaged in a store's working copy; gives what to do then, nothing if there is nothing to do."""
    from sigdir.warehouse.table.places import store_of
    from sigdir.warehouse.transfer.working_copy import pull

    if store_of(Paths(folder)) is None:
        return ""
    try:
        pulled = pull(Paths(folder), check="bytes")
    except (SigdirError, OSError):  # the store is away: what the command met is the error
        return ""
    fetched = pulled.bytes or pulled.log_entries
    return "what is damaged was fetched again: run the command again" if fetched else ""


def shown(folder: Path) -> str:
    """How messages name a warehouse: by the store's URL where the folder is a working copy."""
    from sigdir.warehouse.table.places import store_of

    store = store_of(Paths(folder))
    return str(folder) if store is None else store.url
