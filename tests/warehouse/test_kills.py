"""Imports, folds and compactions by the real command: killed at each step and at random times, in parallel, on a full disk."""

from __future__ import annotations

import gc
import json
import random
import re
import shutil
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.files import make_folder
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.vacuum import vacuum
from tests.conftest import import_files, import_lines
from tests.examples import long_except
from tests.torture.points import AFTER_THE_ENTRY, COMMIT_POINTS, IMPORT_POINTS, PLACE_POINTS, TASK_POINTS
from tests.warehouse.support import (
    BACKUP_POINTS,
    REPOSITORY,
    Disk,
    assert_clean,
    assert_fails_in_one_line,
    assert_sequences_ahead,
    assert_sound,
    call_command,
    content_of,
    copied,
    names,
    places,
    publish,
    run_command,
    stage,
    staged_rows,
    texts,
    visible,
)

NEW = {SIGNATURES: names("new", 2000), EVENT_SIGNATURES: names("New", 40)}
"""What the import brings."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Two imports with rejects, a fold, and staged rows. Of them the next import, of new.txt beside it, has some texts."""
    folder = tmp_path_factory.mktemp("base")
    paths = Paths(folder / "warehouse")
    old_events = (f"event {text};" for text in names("Old", 50))
    import_lines(paths.root, *names("old", 500), *old_events, "1bad(", name="old.txt")
    stage(paths, SIGNATURES, "folded(uint256)")
    import_lines(paths.root, *names("more", 20), name="more.txt")
    stage(paths, SIGNATURES, "posted(uint256)", "new7(uint256)", "new1999(uint256)")
    stage(paths, EVENT_SIGNATURES, "Posted(address)", "New3(uint256)")
    lines = [*NEW[SIGNATURES], *names("old", 100), *names("new", 50)]
    random.Random(1).shuffle(lines)
    lines += [*(f"event {text};" for text in NEW[EVENT_SIGNATURES]), "2bad(", "3bad("]
    lines_of(paths).write_text("\n".join(lines) + "\n")
    return paths


def lines_of(base: Paths) -> Path:
    return base.root.with_name("new.txt")


def assert_whole(base: Paths, paths: Paths, imported: bool, *later: str) -> None:
    """Assert that each row of before has its place, and that what the import brings is there, or nothing of it."""
    content, before = content_of(base), visible(base)
    assert content_of(paths, read_snapshot(base).version) == content
    for collection, table in visible(paths).items():
        assert_sound(table)
        assert table.slice(0, len(content[collection])).to_pylist() == content[collection]
        assert places(before[collection]).items() <= places(table).items()
        expected = [*texts(before[collection]), *(NEW[collection] if imported else ())]
        assert set(texts(table)) == {*expected, *(later if collection == SIGNATURES else ())}


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
QUICK = {("import", "indexed"), ("import", "committed"), ("fold", "data_written"), ("compact", "committed")}


@pytest.mark.parametrize(("change", "point"), long_except(QUICK, KILLS))
def test_a_kill_at_a_point_loses_and_doubles_nothing(base: Paths, tmp_path: Path, change: str, point: str) -> None:
    """All or nothing of the change is visible, and running it again completes it; nothing of the killed run is left."""
    paths = copied(base, tmp_path)
    make_folder(paths.cache)
    arguments: list[str | Path] = [change, "--warehouse", paths.root]
    arguments += [lines_of(base), "--json", "--quiet"] if change == "import" else []
    killed = run_command(*arguments, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = point in AFTER_THE_ENTRY
    assert read_snapshot(paths).version == read_snapshot(base).version + published
    assert_whole(base, paths, imported=published and change == "import")

    again = call_command(*arguments)
    assert again.exit_code == 0, again.stderr
    assert read_snapshot(paths).version == read_snapshot(base).version + 1
    if change == "import":
        assert_reported(paths, json.loads(again.stdout), published)
    else:
        assert (f"nothing to {change}" in again.stdout) == published
    assert_whole(base, paths, imported=change == "import")
    if change == "fold":
        assert staged_rows(paths, SIGNATURES) == staged_rows(paths, EVENT_SIGNATURES) == []
    if change == "compact":  # it leaves the files of the versions before it, and the next publisher tidies up
        assert len(read_snapshot(paths).files[SIGNATURES]) == 1
        publish(paths, ["posted(uint256)", "old7(uint256)", "later()"])
        assert_whole(base, paths, False, "later()")
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
def test_a_kill_of_the_first_import_leaves_a_usable_folder(base: Paths, tmp_path: Path, point: str) -> None:
    """The import can be run again in a folder that had no log before."""
    paths = Paths(tmp_path / "deep" / "warehouse")
    killed = run_command("import", lines_of(base), "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    import_files([lines_of(base)], paths.root)
    warehouse = sigdir.open(paths.root)
    assert (warehouse.version, warehouse.count(SIGNATURES), warehouse.count(EVENT_SIGNATURES)) == (1, 2100, 40)
    for table in visible(paths).values():
        assert_sound(table)
    assert_clean(paths)


# A full disk.


@pytest.mark.long
def test_an_import_fails_in_one_line_wherever_the_disk_is_full(base: Paths, disk: Disk) -> None:
    """For any amount of free space, the import is whole or ends with status 2 and one line."""
    for kibibytes in (*range(0, 96, 16), *range(96, 1024, 4)):
        paths = copied(base, disk.path)
        make_folder(paths.cache)  # the import builds the servers' indexes too
        disk.resize(disk.used() + kibibytes)
        result = call_command("import", lines_of(base), "--quiet", "--warehouse", paths.root)
        disk.resize(64 * 1024)
        if result.exit_code == 0:
            break
        assert_whole(base, paths, imported=False)
        assert_fails_in_one_line(result)
        assert re.search("(space|full).*nothing was published$", result.stderr.strip())
        shutil.rmtree(paths.root)
        gc.collect()  # an open handle would give a warning in a later test
    assert kibibytes > 100
    assert_whole(base, paths, imported=True)
