"""Imports, folds and compactions by the real command: killed at each step and at random times, in parallel, on a full disk."""

from __future__ import annotations

import gc
import json
import random
import re
import shutil
import signal
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.jobs.vacuum import vacuum
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.table.files import make_folder
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files
from tests.examples import long_except
from tests.torture.points import AFTER_THE_ENTRY, COMMIT_POINTS, IMPORT_POINTS, PLACE_POINTS, TASK_POINTS
from tests.warehouse.support import (
    BACKUP_POINTS,
    REPOSITORY,
    Content,
    Disk,
    assert_clean,
    assert_fails_in_one_line,
    assert_sequences_ahead,
    assert_sound,
    call_command,
    content_of,
    places,
    publish,
    run_command,
    stage,
    staged_rows,
    texts,
    visible,
)


@dataclass(frozen=True, slots=True)
class Base:
    """A warehouse with several versions, whose folder is copied for each test, and the file to import next."""

    root: Path
    version: int
    content: Content
    staged: dict[Collection, list[StagedRow]]
    lines: Path
    expected: dict[Collection, set[str]]
    """All texts after the import of the lines."""

    @property
    def present(self) -> dict[Collection, set[str]]:
        """All texts before that import."""
        return {
            c: {row["text_signature"] for row in self.content[c]} | {row.text for row in self.staged[c]}
            for c in COLLECTIONS
        }

    def copy(self, folder: Path) -> Paths:
        shutil.copytree(self.root, folder / "warehouse")
        return Paths(folder / "warehouse")


def functions(prefix: str, numbers: range) -> list[str]:
    return [f"{prefix}{number}(uint256)" for number in numbers]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Two imports with rejects, a fold, and staged rows. The next import has some of their texts."""
    folder = tmp_path_factory.mktemp("base")
    paths = Paths(folder / "warehouse")
    old = folder / "old.txt"
    old_events = [f"Old{number}(address)" for number in range(50)]
    old.write_text("\n".join([*functions("old", range(500)), *(f"event {e};" for e in old_events), "1bad("]) + "\n")
    import_files([old], paths.root)
    stage(paths, SIGNATURES, "folded(uint256)")
    more = folder / "more.txt"
    more.write_text("\n".join(functions("more", range(20))) + "\n")
    import_files([more], paths.root)
    staged = {
        SIGNATURES: stage(paths, SIGNATURES, "posted(uint256)", "new7(uint256)", "new1999(uint256)"),
        EVENT_SIGNATURES: stage(paths, EVENT_SIGNATURES, "Posted(address)", "New3(address)"),
    }
    new_events = [f"New{number}(address)" for number in range(40)]
    new = [*functions("new", range(2000)), *functions("old", range(100)), *functions("new", range(50))]
    random.Random(1).shuffle(new)
    lines = folder / "new.txt"
    lines.write_text("\n".join([*new, *(f"event {e};" for e in new_events), "2bad(", "3bad("]) + "\n")
    content = content_of(paths)
    expected = {c: {row["text_signature"] for row in content[c]} | {row.text for row in staged[c]} for c in COLLECTIONS}
    expected[SIGNATURES] |= set(new)
    expected[EVENT_SIGNATURES] |= set(new_events)
    return Base(paths.root, read_snapshot(paths).version, content, staged, lines, expected)


def assert_past_is_kept(base: Base, paths: Paths) -> None:
    """Assert that the earlier version has its rows, staged rows are visible once, and all rows are sound."""
    assert content_of(paths, base.version) == base.content
    tables = visible(paths)
    for collection in COLLECTIONS:
        table = tables[collection]
        assert_sound(table)
        assert table.slice(0, len(base.content[collection])).to_pylist() == base.content[collection]
        where = places(table)
        for row in base.staged[collection]:
            assert where[row.text] == (row.id, row.created_at)


def assert_texts(paths: Paths, expected: dict[Collection, set[str]]) -> None:
    tables = visible(paths)
    for collection in COLLECTIONS:
        assert set(texts(tables[collection])) == expected[collection]


# Failpoints.


MIRROR_POINTS = ("spooled", "imported")


def test_every_failpoint_of_the_source_is_tested() -> None:
    """The tests know exactly the failpoints of the source; test_backup and test_working_copy try theirs."""
    found = []
    for layer in ("warehouse", "pipeline", "serve"):
        for path in (REPOSITORY / layer).rglob("*.py"):
            found += re.findall(r'failpoints\.reach\("?([^")]*)"?\)', path.read_text())
    upkeep = [*BACKUP_POINTS, "vacuum_removing", *PLACE_POINTS]
    named = [*IMPORT_POINTS, *upkeep, *MIRROR_POINTS, *TASK_POINTS]
    assert sorted(found) == sorted(named)


KILLS = [("import", point) for point in IMPORT_POINTS]
KILLS += [(change, point) for change in ("fold", "compact") for point in COMMIT_POINTS]
"""Each change of a warehouse with each failpoint that it reaches. A suppression reaches none."""
QUICK = {
    ("import", "indexed"),
    ("import", "committed"),
    ("fold", "data_written"),
    ("fold", "committed"),
    ("compact", "committed"),
}


@pytest.mark.parametrize(("change", "point"), long_except(QUICK, KILLS))
def test_a_kill_at_a_point_loses_and_doubles_nothing(base: Base, tmp_path: Path, change: str, point: str) -> None:
    """All or nothing of the change is visible, and running it again completes it; nothing of the killed run is left."""
    paths = base.copy(tmp_path)
    make_folder(paths.cache)
    arguments: list[str | Path] = [change, "--warehouse", paths.root]
    arguments += [base.lines, "--json", "--quiet"] if change == "import" else []
    killed = run_command(*arguments, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = point in AFTER_THE_ENTRY
    assert read_snapshot(paths).version == base.version + published
    assert_past_is_kept(base, paths)
    expected = base.expected if change == "import" else base.present
    assert_texts(paths, expected if published else base.present)

    again = call_command(*arguments)
    assert again.exit_code == 0, again.stderr
    assert read_snapshot(paths).version == base.version + 1
    if change == "import":
        assert_reported(paths, json.loads(again.stdout), published)
    else:
        assert (f"nothing to {change}" in again.stdout) == published
    assert_past_is_kept(base, paths)
    assert_texts(paths, expected)
    if change == "fold":
        assert staged_rows(paths, SIGNATURES) == staged_rows(paths, EVENT_SIGNATURES) == []
    if change == "compact":  # it leaves the files of the versions before it, and the next publisher tidies up
        assert len(read_snapshot(paths).files[SIGNATURES]) == 1
        publish(paths, ["posted(uint256)", "old7(uint256)", "later()"])
        expected = expected | {SIGNATURES: expected[SIGNATURES] | {"later()"}}
        assert_texts(paths, expected)
        assert_past_is_kept(base, paths)
        vacuum(paths, timedelta())
    assert_clean(paths)
    assert_sequences_ahead(paths)


def assert_reported(paths: Paths, report: dict[str, Any], published: bool) -> None:
    """Assert that the report of an import that is run again counts what the killed one published as duplicates."""
    totals = report["totals"]
    assert totals["read"] == totals["imported"] + totals["duplicate"] + totals["rejected"]
    assert report["published"] == (not published)
    assert (totals["imported"] == 0, totals["rejected"]) == (published, 2)
    warehouse = sigdir.open(paths.root)
    rejected = warehouse.sql("SELECT text FROM rejects WHERE import_id = ?", [report["rejects_in_import"]]).rows()
    assert sorted(rejected) == [("2bad(",), ("3bad(",)]
    imports = warehouse.sql("SELECT import_id FROM imports").rows()
    assert len(set(imports)) == len(imports) == 3


@pytest.mark.parametrize("point", long_except({"indexed"}, ["begun", "indexed", "committed"]))
def test_a_kill_of_the_first_import_leaves_a_usable_folder(base: Base, tmp_path: Path, point: str) -> None:
    """The import can be run again in a folder that had no log before."""
    paths = Paths(tmp_path / "deep" / "warehouse")
    killed = run_command("import", base.lines, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    import_files([base.lines], paths.root)
    warehouse = sigdir.open(paths.root)
    assert (warehouse.version, warehouse.count(SIGNATURES), warehouse.count(EVENT_SIGNATURES)) == (1, 2100, 40)
    for table in visible(paths).values():
        assert_sound(table)
    assert_clean(paths)


# A full disk.


@pytest.mark.long
def test_an_import_fails_in_one_line_wherever_the_disk_is_full(base: Base, disk: Disk) -> None:
    """For any amount of free space, the import is whole or ends with status 2 and one line."""
    for kibibytes in (*range(0, 96, 16), *range(96, 1024, 4)):
        paths = base.copy(disk.path)
        make_folder(paths.cache)  # the import builds the servers' indexes too
        disk.resize(disk.used() + kibibytes)
        result = call_command("import", base.lines, "--quiet", "--warehouse", paths.root)
        disk.resize(64 * 1024)
        if result.exit_code == 0:
            break
        published = read_snapshot(paths).version > base.version
        assert_past_is_kept(base, paths)
        assert_texts(paths, base.expected if published else base.present)
        assert_fails_in_one_line(result)
        assert re.search("(space|full).*nothing was published$", result.stderr.strip())
        assert not published, f"with {kibibytes} KiB left the import was published and reported as failed"
        shutil.rmtree(paths.root)
        gc.collect()  # an open handle would give a warning in a later test
    assert kibibytes > 100
    assert_texts(paths, base.expected)
