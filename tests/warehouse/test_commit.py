"""One protocol for every version: the same files in the log, and the same failpoints.

``test_kills.py`` tries each failpoint for imports, folds and compactions, ``test_working_copy.py`` those of stores.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.jobs.compact import compact, everything
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.torture.points import BEFORE_THE_ENTRY, COMMIT_POINTS
from tests.warehouse.support import (
    assert_clean,
    assert_sound,
    call_command,
    content_of,
    places,
    publish,
    stage,
    staged_rows,
    visible,
)


def log_of(paths: Paths) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in paths.log.iterdir()}


@pytest.fixture
def posted(paths: Paths) -> Paths:
    """Two imports, and rows to fold."""
    publish(paths, ["a()", "b()"], ["E()"])
    publish(paths, ["c()"])
    stage(paths, SIGNATURES, "posted()")
    stage(paths, EVENT_SIGNATURES, "Posted()")
    return paths


def changes(paths: Paths) -> dict[str, Callable[[], object]]:
    """What makes a version."""
    return {
        "fold": lambda: fold(paths),
        "import": lambda: publish(paths, ["new()"]),
        "compact": lambda: compact(paths, everything),
    }


def test_every_version_follows_one_protocol(posted: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import, a fold and a compaction write an entry and a checkpoint, and reach the same failpoints in the same order.

    A suppression reaches none and leaves the log as it is.
    """
    monkeypatch.setattr("sigdir.warehouse.log.checkpoint.CHECKPOINT_VERSIONS", 1)
    reached: list[str] = []
    monkeypatch.setattr(failpoints, "reach", reached.append)
    for name, change in changes(posted).items():
        before = log_of(posted)
        reached.clear()
        assert change() is not None
        version = f"{read_snapshot(posted).version:020d}"
        changed = {file for file, content in log_of(posted).items() if before.get(file) != content}
        assert changed == {f"{version}.json", f"{version}.checkpoint.parquet", "_last_checkpoint"}, name
        assert reached == list(COMMIT_POINTS), name
    before = log_of(posted)
    reached.clear()
    assert call_command("suppress", "function a()", "--warehouse", posted.root).exit_code == 0
    assert (log_of(posted), reached) == (before, [])
    assert "a()" in places(visible(posted)[SIGNATURES])


def test_a_version_that_fails_leaves_no_files(posted: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fold, an import or a compaction wrote is removed at once, wherever it fails before the entry."""
    before = read_snapshot(posted).version
    for point in BEFORE_THE_ENTRY:

        def fail(name: str, point: str = point) -> None:
            if name == point:
                raise UnreadableWarehouse("the disk is gone")

        for change in changes(posted).values():
            with monkeypatch.context() as patch:
                patch.setattr(failpoints, "reach", fail)
                with pytest.raises(UnreadableWarehouse, match="the disk is gone"):
                    change()
            assert read_snapshot(posted).version == before
            assert_clean(posted)
    table = visible(posted)[SIGNATURES]
    assert_sound(table)
    assert places(table).keys() == {"a()", "b()", "c()", "posted()"}


def test_a_copied_warehouse_that_went_its_own_way_is_no_log_of_this_one(posted: Paths, tmp_path: Path) -> None:
    """Its entries count the rows that are staged here as folded: they would be deleted."""
    copy = Paths(tmp_path / "copy")
    shutil.copytree(posted.root, copy.root)
    publish(copy, ["theirs()"])
    publish(copy, ["theirsToo()"])
    publish(posted, ["ours()"])
    stage(posted, SIGNATURES, "later()")
    for version in (3, 4):
        shutil.copyfile(copy.log_entry(version), posted.log_entry(version))
    for use in (fold, read_snapshot):
        with pytest.raises(UnreadableWarehouse, match="another entry was published"):
            use(posted)
    assert [row.text for row in staged_rows(posted, SIGNATURES)] == ["later()"]
    assert content_of(copy)[SIGNATURES][-1]["text_signature"] == "theirsToo()"
