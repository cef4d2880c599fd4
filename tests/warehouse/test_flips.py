"""One flipped bit in any file: every answer stays right, or is refused in one line that names a file."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.history import history
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.paths import Paths
from tests.examples import examples, long_except
from tests.warehouse.support import fold, names, publish, stage

pytestmark = pytest.mark.slow

SEED = 14
FLIPS = examples(100)
VERSIONS = 6
CHECKPOINT = 4


def served(paths: Paths) -> Any:
    """Every row as a server answers it, and whether it finds it by its hash."""
    found = {}
    with closing(Reader(paths)) as reader:
        view = reader.current()
        for c in COLLECTIONS:
            for segment in view.segments[c]:
                for row in range(segment.rows):
                    text, hash = segment.text_at(row), segment.hash[row].tobytes()
                    times = int(segment.created_at[row]), view.id_of_text(c, text, hash)
                    found[c, int(segment.ids[row])] = text, hash, *times
    return found


def queried(paths: Paths) -> Any:
    """Every row as SQL answers it, and the imports."""
    queries = (
        "FROM signatures ORDER BY id",
        "FROM event_signatures ORDER BY id",
        "SELECT * EXCLUDE seconds FROM imports",
    )
    with sigdir.open(paths.root) as warehouse:
        return [warehouse.sql(query).rows() for query in queries]


Ask = Callable[[Paths], Any]


def answer_of(ask: Ask, paths: Paths) -> Any:
    """The answer, or the text of the error."""
    try:
        return ask(paths)
    except WarehouseError as error:
        return str(error)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Imports and folds of both collections, a checkpoint, an index of each file, and rows that are not folded."""
    paths = Paths(tmp_path_factory.mktemp("flips") / "warehouse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sigdir.warehouse.log.checkpoint.CHECKPOINT_VERSIONS", CHECKPOINT)
        for version in range(1, VERSIONS):
            publish(paths, names(f"v{version}f", 20), names(f"V{version}E", 5), rejects=["bad("] * (version == 1))
        for collection in COLLECTIONS:
            stage(paths, collection, "folded()")
        fold(paths)
        for number in range(30):
            stage(paths, EVENT_SIGNATURES, f"posted{number}()")
    Reader(paths).close()
    return paths


FILES: dict[str, Callable[[Paths], list[Path]]] = {
    "data": Paths.data_files,
    "log": lambda paths: sorted(paths.log.glob("*.json")),
    "checkpoint": lambda paths: [*paths.checkpoint_files(CHECKPOINT), paths.last_checkpoint],
    "staging": lambda paths: [paths.staging],
    "cache": lambda paths: sorted(path for path in paths.cache.glob("*/*") if path.is_file()),
}
ASKS: dict[str, list[Ask]] = {
    "data": [served, queried], "log": [served, queried, history], "checkpoint": [served, queried],
    "staging": [served, history], "cache": [served],
}  # fmt: skip


@pytest.mark.parametrize("what", long_except({"checkpoint", "staging"}, FILES))
def test_a_flipped_bit_changes_no_answer(original: Paths, tmp_path: Path, what: str) -> None:
    """Flips at places that a seed chooses, of the index's files after it was removed for those of data."""
    paths = Paths(tmp_path / "warehouse")
    shutil.copytree(original.root, paths.root)
    expected = {ask: ask(original) for ask in ASKS[what]}
    chosen, rng = FILES[what](paths), random.Random(SEED)
    sizes = [file.stat().st_size for file in chosen]
    refused = 0
    for _ in range(FLIPS):
        [file] = rng.choices(chosen, sizes)
        whole, flipped = file.read_bytes(), bytearray(file.read_bytes())
        at, bit = rng.randrange(len(whole)), rng.randrange(8)
        flipped[at] ^= 1 << bit
        file.write_bytes(flipped)
        if what == "data":  # a server that has an index does not read its file
            shutil.rmtree(paths.index(Collection.of_name(file.parent.name.removeprefix("collection=")), file))
        for ask, right in expected.items():
            answer = answer_of(ask, paths)
            if isinstance(answer, str):
                refused += 1
                assert "\n" not in answer
                assert str(paths.root) in answer
            else:
                assert answer == right, (file.name, at, bit)
        file.write_bytes(whole)
        if what == "data":
            Reader(paths).close()
    assert refused > 0 or what == "cache"
