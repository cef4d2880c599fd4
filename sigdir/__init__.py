"""The signature directory: Ethereum signatures and their hashes, imported, queried and served.

::

    import sigdir

    sigdir.open("data").sql("SELECT text_signature FROM signatures WHERE hex_signature = selector('f(uint)')").df()

Layers, each importing only those after it: ``cli``, ``serve``, ``pipeline``, ``warehouse``, ``signatures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sigdir.warehouse import Warehouse

__all__ = ["open"]


def open(
    path: str | Path, version: int | None = None, *, unsafe: bool = False,
    files: Mapping[str, str | Path] | None = None, memory_limit: str = "1GB",
) -> Warehouse:  # fmt: skip
    """Open the warehouse in a folder, which may be empty; see ``sigdir.warehouse.Warehouse``.

    ``version`` opens an older version as it was. ``files`` are files of your own, by the names that SQL
    finds them under. ``unsafe`` lets SQL do whatever the engine can; otherwise it reads the warehouse and
    those files and nothing else. Raises WarehouseError.
    """
    from sigdir.warehouse import Warehouse  # pyarrow and deltalake take 0.3 s to load

    return Warehouse(path, version, unsafe=unsafe, files=files, memory_limit=memory_limit)
