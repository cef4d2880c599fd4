"""Vacuum: files of the window's versions stay, the dry run lists what a real run removes, no row is lost."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import click
import pytest

import sigdir
from sigdir.cli.options import duration
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.compact import compact
from sigdir.warehouse.index.build import build_index
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import RunFolder, make_folder
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.vacuum import Vacuumed, vacuum
from tests.warehouse.support import (
    Content,
    assert_fails_in_one_line,
    assert_sequences_ahead,
    call_command,
    content_of,
    copied,
    log_actions,
    names,
    publish,
    remove_digests,
    run_command,
    stage,
    visible,
)

NOTHING = timedelta(0)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A warehouse of eight versions: twice two imports and a compaction, then an import."""
    paths = Paths(tmp_path_factory.mktemp("vacuum") / "warehouse")
    for number in range(2):
        publish(paths, names(f"a{number}_", 4), [f"A{number}()"], rejects=[f"{number}bad("])
        publish(paths, names(f"b{number}_", 4), [f"B{number}()"])
        compact(paths)
    publish(paths, ["last()"])
    stage(paths, SIGNATURES, "staged()")
    return paths


@pytest.fixture
def paths(base: Paths, tmp_path: Path) -> Paths:
    return copied(base, tmp_path)


def contents_of(paths: Paths) -> dict[int, Content]:
    """The rows of each version."""
    return {version: content_of(paths, version) for version in range(read_snapshot(paths).version + 1)}


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def age(paths: Paths, days: dict[int, float]) -> None:
    """Make versions this many days old in the log, and all data files a month old."""
    remove_digests(paths)
    for version, old in days.items():
        actions = log_actions(paths, version)
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int((time.time() - 86_400 * old) * 1000)
        paths.log_entry(version).write_text("".join(json.dumps(action) + "\n" for action in actions))
    for file in paths.table.glob("collection=*/*"):
        os.utime(file, (time.time() - 30 * 86_400,) * 2)


def assert_readable(paths: Paths, contents: dict[int, Content], done: Vacuumed) -> None:
    """Assert that versions of the window have their rows and older ones are refused as vacuumed."""
    for version, content in contents.items():
        if version >= done.oldest:
            assert content_of(paths, version) == content
        elif version > 0:  # version 0 is the empty table
            with pytest.raises(UnreadableWarehouse, match=f"version {version} of .* was vacuumed: .*sigdir vacuum"):
                read_snapshot(paths, version)


# The window.


def test_a_dry_run_lists_what_a_real_run_removes(paths: Paths) -> None:
    """File by file; rows, history and rejects stay, and no longer window brings a version back."""
    Reader(paths).close()
    (paths.cache / "signatures-gone").mkdir()
    (paths.tmp / "dead").mkdir(parents=True)
    (paths.tmp / "dead" / "spill").write_bytes(bytes(1000))
    before = files_below(paths.root)
    rows, contents, history = visible(paths), contents_of(paths), history_of(paths)
    planned = vacuum(paths, NOTHING, dry_run=True)
    assert files_below(paths.root) - {paths.tmp / "dead" / "lock"} == before
    assert contents_of(paths) == contents

    done = vacuum(paths, NOTHING)
    assert done == planned
    gone = before - files_below(paths.root)
    assert gone == {file for waste in done.waste for file in before if file.is_relative_to(waste.path)}
    assert done.size >= 1000 + sum(w.size for w in done.waste if w.kind == "data") > 1000
    assert {waste.kind for waste in done.waste} == {"data", "evidence", "run", "index"}
    assert visible(paths) == rows
    assert_readable(paths, contents, done)
    for keep in (NOTHING, DAY):
        assert vacuum(paths, keep) == Vacuumed(done.oldest, done.newest, ())
    assert history_of(paths) == history
    assert_sequences_ahead(paths)


def history_of(paths: Paths) -> tuple[object, ...]:
    warehouse = sigdir.open(paths.root)
    rows = [warehouse.sql(f"SELECT * FROM {view} ORDER BY ALL").rows() for view in ("imports", "rejects")]
    assert all(rows)
    return *rows, warehouse.history()


@pytest.mark.parametrize(
    ("days", "oldest"),
    [
        ({1: 9, 2: 8, 3: 6}, 0),  # version 2 was the newest until six days ago
        ({1: 10, 2: 9, 3: 8, 4: 7.5}, 3),  # version 3 replaced it before the window, 4 only adds files
        (dict.fromkeys(range(1, 8), 30), 6),
    ],
)
def test_versions_of_the_window_stay_whole(paths: Paths, days: dict[int, float], oldest: int) -> None:
    """Every version that was the newest at some time of the last week stays whole; no further file stays."""
    age(paths, days)
    contents = contents_of(paths)
    done = vacuum(paths)
    assert (done.oldest, done.newest) == (oldest, 7)
    assert bool(done.waste) == (oldest > 0)
    assert_readable(paths, contents, done)
    named = {file.path for version in range(oldest, 8) for file in read_snapshot(paths, version).all_files()}
    assert set(paths.table.glob("collection=*/*")) == named


# Leftovers of dead processes.


def test_old_files_that_no_version_names_are_removed(paths: Paths) -> None:
    """A young file stays, because a publisher whose lock file was deleted may still need it."""
    young, old = (paths.data_file(SIGNATURES, run, 1) for run in ("young", "old"))
    commit = paths.log / "00000000000000000008.json#1"
    for file in (young, old, commit):
        file.write_bytes(b"orphan")
    hours_ago = time.time() - 2 * 3600
    for file in (old, commit):
        os.utime(file, (hours_ago, hours_ago))
    planned = vacuum(paths, DAY, dry_run=True)
    assert [(waste.kind, waste.path, waste.size) for waste in planned.waste] == [("log", commit, 6), ("data", old, 6)]
    assert vacuum(paths, DAY) == planned
    assert (young.exists(), old.exists(), commit.exists()) == (True, False, False)
    assert read_snapshot(paths).version == 7


def test_what_is_in_use_stays(paths: Paths) -> None:
    """A living run's folder and the newest version's indexes; those of replaced files go before the files do."""
    make_folder(paths.cache)
    old = read_snapshot(paths, 5).files[SIGNATURES][-1]
    build_index(paths, old)
    Reader(paths).close()
    used = files_below(paths.cache) - {file for file in files_below(paths.cache) if old.path.stem in str(file)}
    with RunFolder(paths.tmp) as living:
        (living.path / "spill").write_bytes(b"rows")
        done = vacuum(paths, DAY)
        assert {waste.kind for waste in done.waste} == {"index"}
        assert files_below(paths.cache) == used
        assert old.path.exists()
        assert vacuum(paths, NOTHING).waste
        assert (living.path / "spill").read_bytes() == b"rows"


def test_the_next_vacuum_finishes_a_killed_one(paths: Paths) -> None:
    """After a kill between two removals, the kept versions are whole and the next run removes the rest."""
    contents = contents_of(paths)
    planned = vacuum(paths, NOTHING, dry_run=True)
    killed = run_command("vacuum", "--keep", "0s", "--warehouse", paths.root, SIGDIR_FAILPOINT="vacuum_removing")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = vacuum(paths, NOTHING)
    assert len(left.waste) == len(planned.waste) - 1
    assert left.oldest == planned.oldest
    assert_readable(paths, contents, left)


# The lock.


def test_nothing_is_removed_while_another_publishes(paths: Paths) -> None:
    """Without waiting, vacuum and compaction fail as busy while another holds the lock, and run once it is free."""
    with Publisher(paths):
        for command in ("vacuum", "compact"):
            result = call_command(command, "--no-wait", "--warehouse", paths.root)
            assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
            assert "is held by process" in result.stderr
    assert vacuum(paths, NOTHING, wait=False).waste


def test_without_versions_nothing_is_removed(tmp_path: Path) -> None:
    """A missing folder and one with only staged rows have nothing to vacuum."""
    paths = Paths(tmp_path / "new")
    assert vacuum(paths) == Vacuumed(-1, -1, ())
    assert not paths.root.exists()
    stage(paths, SIGNATURES, "f()")
    assert vacuum(paths) == Vacuumed(-1, -1, ())


def test_a_log_that_cannot_be_read_stops_it(paths: Paths) -> None:
    """Nothing is removed."""
    before = files_below(paths.table)
    paths.log_entry(6).write_text("{")
    with pytest.raises(UnreadableWarehouse):
        vacuum(paths, NOTHING)
    assert files_below(paths.table) == before


# The command.


def test_the_command_reports_files_bytes_and_versions(paths: Paths) -> None:
    """The same in a dry run; --as-of with a vacuumed version names the version and vacuum."""
    command = ("vacuum", "--keep", "0s", "--warehouse", paths.root)
    report = json.loads(call_command(*command, "--dry-run", "--json").stdout)
    assert (report["dry_run"], report["keep_seconds"]) == (True, 0)
    assert (report["oldest_version"], report["newest_version"]) == (6, 7)
    assert report["bytes"] == sum(entry["bytes"] for entry in report["removed"])
    assert all(Path(entry["path"]).exists() for entry in report["removed"])
    shown = call_command(*command, "--dry-run").stdout
    for kind, title in (("data", "data files"), ("evidence", "files of evidence")):
        assert f"{sum(entry['kind'] == kind for entry in report['removed'])} {title}" in shown
    assert "versions 6 to 7 would be readable" in shown
    done = call_command(*command)
    assert done.stdout == shown.replace("would be removed", "removed").replace("would be", "are")
    assert not any(Path(entry["path"]).exists() for entry in report["removed"])
    assert call_command(*command).stdout == "nothing to remove\nversions 6 to 7 are readable\n"
    assert_fails_in_one_line(call_command("stats", "--as-of", "4", "--warehouse", paths.root), "version 4 of", "vacuum")


def test_a_window_is_a_number_and_a_unit() -> None:
    """A duration is a whole number with s, m, h, d or w; any other text is an error of the option."""
    durations = {"0s": 0, "90s": 90, "15m": 900, "36h": 129_600, "7d": 604_800, "2w": 1_209_600}
    for text, seconds in durations.items():
        assert duration(text).total_seconds() == seconds
    for text in ("", "7", "d", "-1d", "1.5d", "7 d", "7D", "9999999d", "7days"):
        with pytest.raises(click.BadParameter, match="is not a duration"):
            duration(text)
