"""Changes of the suppress list."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sigdir.warehouse.index.visible import Visible, prebuild
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.files import FileLock
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import place_of
from sigdir.warehouse.table.suppressed import Entry, Suppressed, changed, parse, read_text


def change_list(
    paths: Paths, *, add: Iterable[Entry] = (), remove: Iterable[Entry] = (), wait: bool = True,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Suppressed:  # fmt: skip
    """Change the suppress list of a warehouse, and give the new one; raises Busy, UnreadableWarehouse, OSError.

    The visible files of the new list come first, the list last, under the publish lock: a server that sees the new
    list writes nothing.
    """
    with FileLock(paths.lock, wait, on_wait=on_wait):
        text = changed(read_text(paths), add, remove)
        suppressed = parse(text, str(paths.suppressed))
        snapshot = read_snapshot(paths)
        Visible(paths, suppressed).snapshot(snapshot)  # raises where a file cannot be written
        prebuild(paths, snapshot.all_files(), snapshot.manifest, 1, suppressed)
        place_of(paths).write_suppressed(text.encode())
    return suppressed
