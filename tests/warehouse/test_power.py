"""Power loss at any moment: acknowledged rows are on the disk, and the next command works.

Each test traces a real command or writer and cuts the power before calls that sync or name something.
``tests.warehouse.power`` describes what a disk may lose.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sigdir.serve.core.writer import Writer, canonical_text
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log import snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.files import make_folder
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files
from tests.examples import examples, long_except
from tests.warehouse.power import Call, Disk, Kept, trace
from tests.warehouse.support import (
    REPOSITORY,
    assert_evidence_is_whole,
    assert_sound,
    environment,
    names,
    places,
    run_command,
    served_texts,
    texts,
    visible,
)

CUTS = max(6, examples(12))
"""About this many of the moments are tried, evenly spread, and the last ones."""

CALL = ("-c", "import sys; from tests.warehouse import test_power; getattr(test_power, sys.argv[1])(sys.argv[2])")
"""Runs a function of this module with one argument."""

Required = Mapping[Collection, Mapping[str, tuple[int, int] | None]]
"""What the disk must have: texts, each with its id and time, or with any."""


@contextmanager
def writing(root: Path) -> Iterator[Writer]:
    """Store texts as a server does."""
    with closing(Reader(Paths(root))) as reader, closing(Writer(Paths(root), reader)) as writer:
        yield writer


def post_each(root: str) -> None:
    """Store each text by itself, and print its row once it is stored."""
    with writing(Path(root)) as writer:
        for number in range(6):
            for collection in COLLECTIONS:
                (row,) = writer.store([canonical_text(collection, f"posted{number}(uint256)")])
                assert row is not None
                print(json.dumps([collection, row.text, row.id, row.created_at]), flush=True)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, if the system has one."""
    shared = "/dev/shm"  # noqa: S108
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as folder:
        yield Path(folder)


def lines_file(folder: Path, name: str, rows: int) -> Path:
    path = folder / f"{name}.txt"
    events = [f"event {text};" for text in names(name.title(), rows // 10)]
    path.write_text("\n".join([*names(name, rows), *events, f"1{name}bad("]))
    return path


def required_now(root: Path) -> Required:
    """All rows that the warehouse has now."""
    return {c: places(table) for c, table in visible(Paths(root)).items()}


def posted(output: bytes) -> Required:
    """The rows that the writer has printed so far."""
    rows: dict[Collection, dict[str, tuple[int, int]]] = {c: {} for c in COLLECTIONS}
    for line in output.splitlines(keepends=True):
        if line.startswith(b"[") and line.endswith(b"\n"):  # other processes may print too
            collection, text, id, created_at = json.loads(line)
            rows[collection][text] = (id, created_at)
    return rows


def assert_kept(root: Path, required: Required) -> None:
    """Assert that a reader and a server have every required row once, with its id and time."""
    paths = Paths(root)
    make_folder(root)
    tables = visible(paths)
    for collection, table in tables.items():
        assert_sound(table)
        where = places(table)
        for text, place in required.get(collection, {}).items():
            assert place in (None, where[text])
    assert_evidence_is_whole(paths, with_strays=True)
    with closing(Reader(paths)) as reader:
        view = reader.current()
        for collection, table in tables.items():
            ids = [id for segment in view.segments[collection] for id in segment.ids[: segment.rows]]
            assert ids == table["id"].to_pylist()
            assert served_texts(view, collection) == texts(table)


def cut_power(
    disk: Disk, calls: list[Call], memory: Path, required: Callable[[bytes], Required], go_on: Callable[[Path], object]
) -> None:
    """Cut the power before call after call, check what is left in the folder ``memory``, and run ``go_on`` on it."""
    moments = sum(1 for _ in deepcopy(disk).replay(calls))
    every = max(1, moments // CUTS)
    chance = random.Random(7)

    def check(number: int) -> None:
        kept: Kept
        # Always the strictest disk and one of the others. go_on, every fifth time, takes a third of the time.
        for kept in ("synced", ("names", "some")[number % 2]):
            parent = memory / f"cut-{number}-{kept}"
            disk.restore(parent, kept, chance)
            try:
                assert_kept(parent / "warehouse", required(disk.output))
                if number % 5 == 0:
                    go_on(parent / "warehouse")
                    assert_kept(parent / "warehouse", required(disk.output))
            except Exception as error:
                error.add_note(f"power cut at call {number} of {moments}, kept: {kept}; in {parent}")
                raise
            shutil.rmtree(parent)

    number = 0
    for number, _ in enumerate(disk.replay(calls)):
        if number % every == 0 or number > moments - 4:
            check(number)
    check(number + 1)
    assert [path for path in disk.named_early if "/warehouse/tmp/" not in path] == []


def traced(folder: Path, *arguments: str | Path) -> tuple[Disk, list[Call]]:
    """The disk of ``parent`` before Python runs with these arguments, and the calls that it makes."""
    disk = Disk(folder / "parent")
    command = [sys.executable, *map(str, arguments)]
    return disk, trace(command, folder / "parent", folder / "trace", environment(), REPOSITORY)


def imported(folder: Path, rows: int) -> Path:
    """A warehouse with an import and POSTed rows."""
    root = folder / "parent" / "warehouse"
    import_files([lines_file(folder, "old", rows)], root)
    with writing(root) as writer:
        texts = ["more7(uint256)", *names("posted", 20)]
        assert None not in writer.store([canonical_text(SIGNATURES, text) for text in texts])
    return root


@pytest.mark.long
def test_posts_survive_power_loss(tmp_path: Path, memory: Path) -> None:
    """Every acknowledged row is kept, from the first row of a new folder on."""
    (tmp_path / "parent").mkdir()
    disk, calls = traced(tmp_path, *CALL, "post_each", tmp_path / "parent" / "warehouse")
    lines = lines_file(tmp_path, "posted", 20)
    cut_power(disk, calls, memory, posted, lambda root: import_files([lines], root))
    assert [len(rows) for rows in posted(disk.output).values()] == [6, 6]


@pytest.mark.parametrize("before", long_except({"nothing"}, ["nothing", "rows", "a served warehouse"]))
def test_an_import_survives_power_loss(tmp_path: Path, memory: Path, before: str) -> None:
    """Earlier rows stay; a reported import is whole, and an unreported one can be run again."""
    root, rows = tmp_path / "parent" / "warehouse", 100 if before == "nothing" else 500
    earlier: Required = {}
    if before == "nothing":
        root.parent.mkdir()
    else:
        imported(tmp_path, 300)
        earlier = required_now(root)
    if before == "rows":
        shutil.rmtree(Paths(root).cache)  # without it no index is built
    lines = lines_file(tmp_path, "more", rows)
    new = {SIGNATURES: names("more", rows), EVENT_SIGNATURES: names("More", rows // 10)}
    whole = {c: dict.fromkeys(texts) | dict(earlier.get(c, {})) for c, texts in new.items()}
    disk, calls = traced(tmp_path, "-m", "sigdir", "import", lines, "--json", "--quiet", "--warehouse", root)

    def required(output: bytes) -> Required:
        return whole if b'"totals"' in output else earlier

    cut_power(disk, calls, memory, required, lambda root: import_files([lines], root))
    assert required(disk.output) == whole


def fold_with_a_checkpoint(root: str) -> None:
    snapshot.CHECKPOINT_VERSIONS = 2
    print(fold(Paths(Path(root))))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fold", "after a publisher died", "with a checkpoint"])
def test_a_fold_survives_power_loss(tmp_path: Path, memory: Path, kind: str) -> None:
    """POSTed rows stay, also where a publisher died before it synced the entry's name, or the fold writes a checkpoint."""
    root = imported(tmp_path, 20)
    before = required_now(root)
    folding: list[str | Path] = ["-m", "sigdir", "fold", "--warehouse", root]
    if kind == "with a checkpoint":
        folding = [*CALL, "fold_with_a_checkpoint", root]
    if kind == "after a publisher died":
        assert run_command("fold", "--warehouse", root, SIGDIR_FAILPOINT="committed").returncode < 0
    disk, calls = traced(tmp_path, *folding)
    if kind == "after a publisher died":
        disk.unsync(Paths(root).log_entry(2))
    cut_power(disk, calls, memory, lambda _: before, lambda root: fold(Paths(root)))
    told = {"fold": b"published", "after a publisher died": b"nothing to fold", "with a checkpoint": b"version=2"}
    assert told[kind] in disk.output
    assert len(list(Paths(root).log.glob("*2.checkpoint*"))) == (kind == "with a checkpoint")
