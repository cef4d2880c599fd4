"""The signature directory: Ethereum signatures and their hashes, imported, queried and served.

::

    import sigdir

    sigdir.open("data").sql("SELECT text_signature FROM signatures WHERE hex_signature = selector('f(uint)')").df()

Layers, each importing only those after it: ``cli``, ``serve``, ``pipeline``, ``warehouse``, ``signatures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sigdir.warehouse import Warehouse

__all__ = ["open"]


def open(
    path: str | Path, as_of: int | datetime | None = None, *, unsafe: bool = False,
    files: Mapping[str, Any] | None = None, memory_limit: str = "1GB",
) -> Warehouse:  # fmt: skip
    """Open the warehouse in a folder, or in a store by its URL; see ``sigdir.warehouse.Warehouse``.

    ``as_of`` opens an older version as it was, by its number or a time. ``files`` are tables of your own, by the
    names that SQL finds them under: paths, DataFrames, Arrow tables. ``unsafe`` lets SQL do whatever the engine can;
    otherwise it reads the warehouse and those tables and nothing else. Raises WarehouseError.

    ::

        with sigdir.open("data", as_of=datetime(2026, 11, 1), files={"mine": frame}) as warehouse:
            warehouse.sql("FROM mine JOIN signatures ON hex_signature = hex_of(mine.selector)").pl()
    """
    from sigdir.warehouse import Warehouse  # pyarrow takes 0.2 s to load
    from sigdir.warehouse.stores import is_url

    if isinstance(path, str) and is_url(path):
        from sigdir.warehouse.home import working_copy
        from sigdir.warehouse.working_copy import pull

        copy = working_copy(path)
        pull(copy, as_of)
        path = copy.root
    return Warehouse(path, as_of, unsafe=unsafe, files=files, memory_limit=memory_limit)
