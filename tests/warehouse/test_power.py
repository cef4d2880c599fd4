"""Power that goes at any moment: what was acknowledged is on the disk, and the rest is no obstacle.

Each test traces a real command or writer and cuts the power in front of every call that syncs or names
something; see ``tests.warehouse.power`` for what a disk may forget.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import Options, run_import
from sigdir.serve.texts import canonical_text
from sigdir.serve.writer import Writer
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.warehouse.files import make_folder
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import fold
from tests.warehouse.power import (
    Call,
    Disk,
    Kept,
    trace,
)
from tests.warehouse.support import (
    REPOSITORY,
    assert_sound,
    command,
    environment,
    places,
    run_command,
    texts,
    visible,
)

CUTS = 12
"""Of the moments at which power is cut, at most so many are looked at, spread over all of them."""

# Stages each text by itself, as a server's worker does, and says each row once it is stored.
POSTS = """
import json, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from sigdir.serve.texts import canonical_text
from sigdir.serve.writer import Writer
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths

paths = Paths(Path(sys.argv[1]))
reader = Reader(paths)
writer = Writer(paths, reader)
for number in range(6):
    for collection, text in ((SIGNATURES, f"posted{number}(uint256)"), (EVENT_SIGNATURES, f"Posted{number}(address)")):
        (row,) = writer.store([canonical_text(collection, text)])
        print(json.dumps([collection, row.text, row.id, row.created_at]), flush=True)
writer.close()
reader.close()
"""

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Owed:
    """What the disk must have: rows with their ids and times, and texts."""

    rows: Mapping[Collection, Mapping[str, Place]]
    texts: Mapping[Collection, set[str]]


def imported(root: Path, *files: Path) -> None:
    run_import(Options([str(file) for file in files], root), Reporter())


def post(root: Path, collection: Collection, *wanted: str) -> None:
    """POST texts as a server does."""
    reader = Reader(Paths(root))
    writer = Writer(Paths(root), reader)
    assert None not in writer.store([canonical_text(collection, text) for text in wanted])
    writer.close()
    reader.close()


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where the system has one."""
    shared = "/dev/shm"  # noqa: S108
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


def lines_file(folder: Path, name: str, rows: int) -> Path:
    path = folder / f"{name}.txt"
    lines = [f"{name}{number}(uint256)" for number in range(rows)]
    lines += [f"event {name.title()}{number}(address);" for number in range(rows // 10)]
    path.write_text("".join(f"{line}\n" for line in [*lines, f"1{name}bad("]))
    return path


def owed_now(root: Path) -> Owed:
    """All rows that are there, if any are."""
    tables = visible(Paths(root)) if root.is_dir() else {}
    return Owed({c: places(tables[c]) if c in tables else {} for c in COLLECTIONS}, {c: set() for c in COLLECTIONS})


def posted(told: bytes) -> Owed:
    """The rows that a writer has said so far."""
    rows: dict[Collection, dict[str, Place]] = {c: {} for c in COLLECTIONS}
    for line in told.splitlines(keepends=True):
        if line.startswith(b"[") and line.endswith(b"\n"):  # other processes may say something too
            collection, text, id, created_at = json.loads(line)
            rows[collection][text] = (id, created_at)
    return Owed(rows, {c: set() for c in COLLECTIONS})


def assert_kept(root: Path, owed: Owed) -> None:
    """All that is owed is there, once and as it was, for a reader and for a server."""
    paths = Paths(root)
    make_folder(root)
    tables = visible(paths)
    for collection, table in tables.items():
        assert_sound(table)
        where = places(table)
        assert owed.rows[collection].items() <= where.items()
        assert owed.texts[collection] <= where.keys()
    reader = Reader(paths)
    view = reader.current()
    for collection, table in tables.items():
        assert view.count(collection) == table.num_rows
        ids = [segment.ids[: segment.rows] for segment in view.segments[collection]]
        assert np.concatenate([np.empty(0, np.int64), *ids]).tolist() == table["id"].to_pylist()
        found = [segment.text_at(row) for segment in view.segments[collection] for row in range(segment.rows)]
        assert found == texts(table)
    reader.close()


def cut_power(
    disk: Disk, calls: list[Call], memory: Path, owed: Callable[[bytes], Owed], then: Callable[[Path], None]
) -> None:
    """Cut the power before call after call, see what is left each time, and go on from there with ``then``.

    ``memory`` is where that is put; on a real disk most of the time would be its syncs.
    """
    moments = disk.moments(calls)
    every = max(1, moments // CUTS)
    chance = random.Random(7)

    def look(number: int) -> None:
        kept: Kept
        # The strictest disk each time, and one of the others; going on from there is a third of the cost.
        for kept in ("synced", ("names", "some")[number % 2]):
            parent = memory / f"cut-{number}-{kept}"
            disk.restore(parent, kept, chance)
            try:
                assert_kept(parent / "warehouse", owed(disk.told))
                if number % 5 == 0:
                    then(parent / "warehouse")
                    assert_kept(parent / "warehouse", owed(disk.told))
            except Exception as error:
                error.add_note(f"power cut at call {number} of {moments}, kept: {kept}; in {parent}")
                raise
            shutil.rmtree(parent)

    number = 0
    for number, _ in enumerate(disk.replay(calls)):
        if number % every == 0 or number > moments - 4:
            look(number)
    look(number + 1)
    assert [path for path in disk.named_early if "/warehouse/tmp/" not in path] == []


def test_posts_outlive_the_power(tmp_path: Path, memory: Path) -> None:
    """From the first row of a folder that was not there on."""
    root = tmp_path / "parent" / "warehouse"
    root.parent.mkdir()
    disk = Disk(root.parent)
    calls = trace([sys.executable, "-c", POSTS, str(root)], root.parent, tmp_path / "trace", environment(), REPOSITORY)
    lines = lines_file(tmp_path, "posted", 20)
    cut_power(disk, calls, memory, posted, lambda root: imported(root, lines))
    assert len(posted(disk.told).rows[SIGNATURES]) == 6


def import_case(folder: Path, rows: int, prepare: Callable[[Path], None]) -> tuple[Disk, list[Call], Path, Owed]:
    """A warehouse prepared, an import into it traced: the disk, the calls, the file, what was owed before."""
    root = folder / "parent" / "warehouse"
    root.mkdir(parents=True)
    prepare(root)
    before = owed_now(root)
    disk = Disk(root.parent)
    lines = lines_file(folder, "more", rows)
    calls = trace(
        command("import", lines, "--json", "--quiet", "--warehouse", root),
        root.parent, folder / "trace", environment(), REPOSITORY,
    )  # fmt: skip
    return disk, calls, lines, before


@pytest.mark.parametrize("served", [False, True], ids=["plain", "served"])
def test_an_import_outlives_the_power(tmp_path: Path, memory: Path, served: bool) -> None:
    """What was there stays, the import is whole once it has said so, and can be run again until then."""

    def prepare(root: Path) -> None:
        imported(root, lines_file(tmp_path, "old", 300))
        post(root, SIGNATURES, "posted(uint256)", "more7(uint256)")
        if not served:
            shutil.rmtree(Paths(root).cache)  # without it nobody builds an index

    disk, calls, lines, before = import_case(tmp_path, 500, prepare)
    all_texts = {
        SIGNATURES: {f"more{n}(uint256)" for n in range(500)},
        EVENT_SIGNATURES: {f"More{n}(address)" for n in range(50)},
    }

    def owed(told: bytes) -> Owed:
        return Owed(before.rows, all_texts) if b'"totals"' in told else before

    cut_power(disk, calls, memory, owed, lambda root: imported(root, lines))
    assert owed(disk.told).texts == all_texts


def test_the_first_import_outlives_the_power(tmp_path: Path, memory: Path) -> None:
    """Also where nothing was there before, not even the log."""
    disk, calls, lines, before = import_case(tmp_path, 100, lambda root: root.rmdir())

    def owed(told: bytes) -> Owed:
        texts = {f"more{n}(uint256)" for n in range(100)} if b'"totals"' in told else set()
        return Owed(before.rows, {SIGNATURES: texts, EVENT_SIGNATURES: set()})

    cut_power(disk, calls, memory, owed, lambda root: imported(root, lines))


def test_a_fold_outlives_the_power(tmp_path: Path, memory: Path) -> None:
    """A POSTed row is on the disk before, while and after it moves into the table."""
    root = tmp_path / "parent" / "warehouse"
    imported(root, lines_file(tmp_path, "old", 300))
    post(root, SIGNATURES, *(f"posted{n}(uint256)" for n in range(50)))
    post(root, EVENT_SIGNATURES, "Posted(address)")
    before = owed_now(root)
    disk = Disk(root.parent)
    calls = trace(command("fold", "--warehouse", root), root.parent, tmp_path / "trace", environment(), REPOSITORY)
    cut_power(disk, calls, memory, lambda _: before, lambda root: discard(fold(Paths(root))))
    assert b"published" in disk.told


def test_a_version_whose_publisher_died_is_synced_before_its_rows_leave_staging(tmp_path: Path, memory: Path) -> None:
    """A kill between naming a version and syncing its name, a fold by the next process, and then no power."""
    root = tmp_path / "parent" / "warehouse"
    imported(root, lines_file(tmp_path, "old", 20))
    post(root, SIGNATURES, *(f"posted{n}(uint256)" for n in range(20)))
    before = owed_now(root)
    assert run_command("fold", "--warehouse", root, SIGDIR_FAILPOINT="committed").returncode < 0
    disk = Disk(root.parent)
    disk.unsync(Paths(root).log_entry(2))
    calls = trace(command("fold", "--warehouse", root), root.parent, tmp_path / "trace", environment(), REPOSITORY)
    cut_power(disk, calls, memory, lambda _: before, lambda root: discard(fold(Paths(root))))
    assert b"nothing to fold" in disk.told


def test_a_checkpoint_outlives_the_power(tmp_path: Path, memory: Path) -> None:
    """It is read instead of the log's entries, so half of one would be worse than none."""
    root = tmp_path / "parent" / "warehouse"
    for number in range(2):
        imported(root, lines_file(tmp_path, f"old{number}", 20))
    post(root, SIGNATURES, "posted(uint256)")
    before = owed_now(root)
    disk = Disk(root.parent)
    script = (
        "import sys; from pathlib import Path; from sigdir.warehouse import log, publish;"
        " from sigdir.warehouse.paths import Paths;"
        " log.CHECKPOINT_VERSIONS = 3; print(publish.fold(Paths(Path(sys.argv[1]))))"
    )
    calls = trace([sys.executable, "-c", script, str(root)], root.parent, tmp_path / "trace", environment(), REPOSITORY)
    cut_power(disk, calls, memory, lambda _: before, lambda root: discard(fold(Paths(root))))
    log = Paths(root).log
    assert len(list(log.glob("*3.checkpoint*"))) == 1
    assert json.loads((log / "_last_checkpoint").read_bytes())["version"] == 3


def discard(value: object) -> None:
    """For its effect alone."""
