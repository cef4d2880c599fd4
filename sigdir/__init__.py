"""The signature directory: Ethereum signatures and their hashes, imported, queried and served.

::

    import sigdir

    sigdir.open("data").sql("SELECT text_signature FROM signatures WHERE hex_signature = selector('f(uint)')").df()

``sigdir.open`` gives a ``Warehouse``:

======================  ==========================================================================================
``sql(query, values)``  a ``Result``: ``df()`` for pandas, ``pl()`` for polars, ``arrow()``, ``reader()`` for a stream,
                        ``rows()`` for tuples, which is also ``fetchall()``, ``drawn()`` for a table of characters
``count(collection)``   rows of ``signatures`` or ``event-signatures``
``version``             the version that is open
``add(data, source=)``  import a frame, Arrow data, a file or texts, where it was opened with ``create=True``
``decode(data, ...)``   what calldata, a log or a returned value means, with ``abi=``, ``code=``, or ``chain=`` and ``to=``
``history()``           a summary of each commit
``refresh()``           go to the newest version
``close()``             free the engine; ``with`` does it too
======================  ==========================================================================================

``sigdir.Pack`` reads a pack, one file that ``sigdir export pack`` writes, without a warehouse.

Layers, each importing only those after it: ``cli``, ``serve``, ``pipeline``, ``warehouse``, ``signatures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sigdir.pipeline.opened import OpenWarehouse
    from sigdir.signatures.pack import Pack

__all__ = ["Pack", "open"]


def __getattr__(name: str) -> Any:
    """Load ``Pack`` when it is used: numpy takes 0.1 s."""
    if name != "Pack":
        raise AttributeError(f"module 'sigdir' has no attribute {name!r}")
    from sigdir.signatures.pack import Pack

    return Pack


def open(
    path: str | Path, as_of: int | datetime | str | None = None, *, unsafe: bool = False,
    files: Mapping[str, Any] | None = None, memory_limit: str = "1GB", create: bool = False,
) -> OpenWarehouse:  # fmt: skip
    """Open the warehouse in a folder, or in a store by its URL; see ``sigdir.warehouse.Warehouse``.

    With ``create`` a missing one is made, and ``add`` imports into it.

    ``as_of`` opens an older version as it was, by its number or a time (also as text: "2026-11-21T08:00Z"). ``files``
    are tables of your own, by the names that SQL finds them under: paths, DataFrames, Arrow tables. ``unsafe`` lets SQL
    do whatever the engine can; otherwise it reads the warehouse and those tables and nothing else. Raises
    WarehouseError, also where a time is before the first version or a table cannot be read.

    ::

        with sigdir.open("data", as_of=datetime(2026, 11, 1), files={"mine": frame}) as warehouse:
            warehouse.sql("FROM mine JOIN signatures ON hex_signature = hex_of(mine.selector)").pl()

        sigdir.open("data", create=True).add(["function set(uint256 value)"], source="mine").totals()
    """
    from sigdir.pipeline.opened import OpenWarehouse  # pyarrow takes 0.2 s to load
    from sigdir.warehouse.table.errors import WarehouseError
    from sigdir.warehouse.table.fields import number_or_time
    from sigdir.warehouse.table.paths import Paths
    from sigdir.warehouse.table.stores import is_url

    as_of = number_or_time(as_of)
    if create and as_of is not None:
        raise WarehouseError(f"{path}: an older version cannot be added to: as_of or create=True, not both")
    if isinstance(path, str) and is_url(path):
        from sigdir.warehouse.table.places import working_copy
        from sigdir.warehouse.transfer.working_copy import pull

        copy = working_copy(path)
        pull(copy, as_of, make=create)
        path = copy.root
    elif create:
        from sigdir.warehouse.staging.writer import make_warehouse

        make_warehouse(Paths(Path(path).absolute()))
    warehouse = OpenWarehouse(path, as_of, unsafe=unsafe, files=files, memory_limit=memory_limit)
    warehouse.is_writable = create
    return warehouse
