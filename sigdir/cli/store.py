"""Warehouses in stores, as commands see them: each works on the working copy, which is brought up to date first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """What the user gave for --warehouse: the URL of a store."""

    url: str


def local_folder(place: StoreUrl, as_of: int | datetime | None, make: bool) -> Path:
    """The folder of the store's working copy, brought up to date; ``make`` makes a warehouse where there is none.

    Raises StoreError, UnreadableWarehouse.
    """
    from sigdir.warehouse.home import working_copy
    from sigdir.warehouse.working_copy import pull  # the engines, which --help does without

    paths = working_copy(place.url)
    pull(paths, as_of, make=make)
    return paths.root
