"""A commit that fails, and a log that is not this warehouse's. ``test_kills.py`` kills at each failpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.compact import compact, everything
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.torture.points import BEFORE_THE_ENTRY
from tests.warehouse.support import assert_clean, content_of, copied, publish, stage, staged_rows, texts, visible


@pytest.fixture
def posted(paths: Paths) -> Paths:
    """Two imports, and rows to fold."""
    publish(paths, ["a()", "b()"], ["E()"])
    publish(paths, ["c()"])
    stage(paths, SIGNATURES, "posted()")
    stage(paths, EVENT_SIGNATURES, "Posted()")
    return paths


CHANGES: tuple[Callable[[Paths], object], ...] = (
    fold,
    lambda paths: publish(paths, ["new()"]),
    lambda paths: compact(paths, everything),
)
"""What makes a version."""


def test_a_version_that_fails_leaves_no_files(posted: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fold, an import or a compaction wrote is removed at once, wherever it fails before the entry."""
    files = {*posted.root.rglob("*")}
    for point in BEFORE_THE_ENTRY:

        def fail(name: str, point: str = point) -> None:
            if name == point:
                raise UnreadableWarehouse("the disk is gone")

        for change in CHANGES:
            with monkeypatch.context() as patch:
                patch.setattr(failpoints, "reach", fail)
                with pytest.raises(UnreadableWarehouse, match="the disk is gone"):
                    change(posted)
            assert {*posted.root.rglob("*")} == files
    assert_clean(posted)
    assert set(texts(visible(posted)[SIGNATURES])) == {"a()", "b()", "c()", "posted()"}


def test_a_copied_warehouse_that_went_its_own_way_is_no_log_of_this_one(posted: Paths, tmp_path: Path) -> None:
    """Its entries count the rows that are staged here as folded: they would be deleted."""
    copy = copied(posted, tmp_path / "copy")
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
