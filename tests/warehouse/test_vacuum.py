"""Vacuum: what the window's versions need stays, what is told is what goes, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sigdir
from sigdir.cli.options import Duration
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.warehouse.compact import compact, everything, small
from sigdir.warehouse.errors import Busy, UnreadableWarehouse
from sigdir.warehouse.files import RunFolder, make_folder
from sigdir.warehouse.index.build import build_index
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import Publisher
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.vacuum import Vacuumed, vacuum
from tests.warehouse.support import (
    assert_sequences_beyond,
    assert_sound,
    assert_told_in_one_line,
    call_command,
    enter_publisher,
    fold,
    log_actions,
    names,
    other_process,
    places,
    publish,
    run_command,
    stage,
    table_of,
    visible,
)

NOTHING = timedelta(0)
DAY = timedelta(days=1)

Content = dict[Collection, list[dict[str, Any]]]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A warehouse of eight versions: rounds of two imports and a compaction, and an import at the end."""
    paths = Paths(tmp_path / "warehouse")
    for number in range(2):
        publish(paths, names(f"a{number}_", 4), [f"A{number}()"], rejects=[f"{number}bad("])
        publish(paths, names(f"b{number}_", 4), [f"B{number}()"])
        compact(paths)
    publish(paths, ["last()"])
    stage(paths, SIGNATURES, "staged()")
    return paths


def content_of(paths: Paths, version: int | None = None) -> Content:
    snapshot = read_snapshot(paths, version)
    return {collection: table_of(snapshot, collection).to_pylist() for collection in COLLECTIONS}


def contents_of(paths: Paths) -> dict[int, Content]:
    """Of each version that is there."""
    return {version: content_of(paths, version) for version in range(read_snapshot(paths).version + 1)}


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def age(paths: Paths, days: dict[int, float]) -> None:
    """Make versions so many days old, as the log tells it, and all data files a month."""
    for version, old in days.items():
        actions = log_actions(paths, version)
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int((time.time() - 86_400 * old) * 1000)
        paths.log_entry(version).write_text("".join(json.dumps(action) + "\n" for action in actions))
    for file in paths.table.glob("collection=*/*"):
        os.utime(file, (time.time() - 30 * 86_400,) * 2)


def assert_readable(paths: Paths, contents: dict[int, Content], done: Vacuumed) -> None:
    """The versions that are said to be whole are as they were; what is wanting in others is told."""
    for version, content in contents.items():
        if version >= done.oldest:
            assert content_of(paths, version) == content
        elif version > 0:  # version 0 is the empty table
            with pytest.raises(UnreadableWarehouse, match=f"version {version} of .* was vacuumed: .*sigdir vacuum"):
                read_snapshot(paths, version)


# The window.


def test_what_is_told_is_what_goes(paths: Paths) -> None:
    """A dry run changes nothing, and lists each file and byte that a real run then removes."""
    Reader(paths).close()
    (paths.cache / "signatures-gone").mkdir()
    (paths.tmp / "dead").mkdir(parents=True)
    (paths.tmp / "dead" / "spill").write_bytes(bytes(1000))
    before = files_below(paths.root)
    seen, contents = visible(paths), contents_of(paths)
    told = vacuum(paths, NOTHING, dry_run=True)
    assert files_below(paths.root) - {paths.tmp / "dead" / "lock"} == before
    assert contents_of(paths) == contents

    done = vacuum(paths, NOTHING)
    assert done == told
    gone = before - files_below(paths.root)
    assert gone == {file for waste in done.waste for file in before if file.is_relative_to(waste.path)}
    assert done.size >= 1000 + sum(w.size for w in done.waste if w.kind == "data") > 1000
    assert {waste.kind for waste in done.waste} == {"data", "run", "index"}
    assert visible(paths) == seen
    assert_readable(paths, contents, done)
    assert vacuum(paths, NOTHING) == Vacuumed(done.oldest, done.newest, ())
    assert_sequences_beyond(paths)


@pytest.mark.parametrize(
    ("days", "oldest"),
    [
        ({}, 0),
        ({1: 9, 2: 8, 3: 6}, 0),  # until six days ago version 2 was the newest
        ({1: 10, 2: 9, 3: 8}, 3),  # and here version 3 has replaced it before the window
        ({1: 10, 2: 9, 3: 8, 4: 7.5}, 3),  # version 3 has the files of 4 but for those that came
        ({1: 10, 2: 9, 3: 8, 4: 7.5, 5: 7.4, 6: 6}, 3),
        ({1: 10, 2: 9, 3: 8, 4: 7.5, 5: 7.4, 6: 7.1}, 6),
        (dict.fromkeys(range(1, 8), 30), 6),
    ],
)
def test_versions_of_the_window_stay_whole(paths: Paths, days: dict[int, float], oldest: int) -> None:
    """Whatever was the newest at some time in the last week can be read, and what it takes no more than."""
    age(paths, days)
    contents = contents_of(paths)
    done = vacuum(paths)
    assert (done.oldest, done.newest) == (oldest, 7)
    assert bool(done.waste) == (oldest > 0)
    assert_readable(paths, contents, done)
    named = {file.path for version in range(oldest, 8) for fs in read_snapshot(paths, version).files.values()
             for file in fs}  # fmt: skip
    assert set(paths.table.glob("collection=*/*")) == named


def test_a_second_vacuum_with_a_longer_window_knows_what_is_gone(paths: Paths) -> None:
    """The window says what is kept, the disk says what is readable."""
    contents = contents_of(paths)
    assert vacuum(paths, NOTHING).oldest == 6
    done = vacuum(paths, DAY)
    assert (done.oldest, done.waste) == (6, ())
    assert_readable(paths, contents, done)


def test_the_history_stays(paths: Paths) -> None:
    """Imports, their sources and rejects, and what each commit says, whatever is vacuumed."""
    warehouse = sigdir.open(paths.root)
    queries = [
        "SELECT * FROM imports ORDER BY 1",
        "SELECT * FROM rejects ORDER BY 1",
        "SELECT * FROM signatures ORDER BY 1",
    ]
    before, history = [warehouse.sql(query).rows() for query in queries], warehouse.history()
    vacuum(paths, NOTHING)
    warehouse = sigdir.open(paths.root)
    assert [warehouse.sql(query).rows() for query in queries] == before
    assert warehouse.history() == history
    assert list(paths.rejects.iterdir())


def test_an_old_version_is_refused_in_a_line_that_says_why(paths: Paths) -> None:
    """--as-of of a vacuumed version names it and vacuum; the others work."""
    vacuum(paths, NOTHING)
    for arguments in (["sql", "SELECT 1"], ["stats"]):
        result = call_command(*arguments, "--as-of", "4", "--warehouse", paths.root)
        assert_told_in_one_line(result)
        assert "version 4 of" in result.stderr
        assert "vacuum" in result.stderr
        assert call_command(*arguments, "--as-of", "6", "--warehouse", paths.root).exit_code == 0


def test_damage_is_not_taken_for_vacuum(paths: Paths) -> None:
    """A file that the newest version lacks is missing, not vacuumed."""
    read_snapshot(paths).files[SIGNATURES][0].path.unlink()
    with pytest.raises(UnreadableWarehouse, match="No such file"):
        sigdir.open(paths.root, 7).sql("SELECT sum(id) FROM signatures").rows()


# What dead processes left.


def test_files_that_no_version_names_go_when_they_are_old(paths: Paths) -> None:
    """A young one might be another's who has lost the lock's file; an old one is nobody's."""
    young, old = (paths.data_file(SIGNATURES, run, 1) for run in ("young", "old"))
    commit = paths.log / "00000000000000000008.json#1"
    for file in (young, old, commit):
        file.write_bytes(b"orphan")
    hours_ago = time.time() - 2 * 3600
    for file in (old, commit):
        os.utime(file, (hours_ago, hours_ago))
    told = vacuum(paths, DAY, dry_run=True)
    assert [(waste.kind, waste.path, waste.size) for waste in told.waste] == [("log", commit, 6), ("data", old, 6)]
    assert vacuum(paths, DAY) == told
    assert (young.exists(), old.exists(), commit.exists()) == (True, False, False)
    assert read_snapshot(paths).version == 7


def test_living_imports_keep_their_folders(paths: Paths) -> None:
    """A folder whose lock is held is somebody's."""
    with RunFolder(paths.tmp) as living:
        (living.path / "spill").write_bytes(b"rows")
        assert vacuum(paths, NOTHING, dry_run=True).waste
        vacuum(paths, NOTHING)
        assert (living.path / "spill").read_bytes() == b"rows"


def test_indexes_of_the_newest_version_stay(paths: Paths) -> None:
    """Those of files that were replaced go, though the files stay for the window."""
    make_folder(paths.cache)
    old = read_snapshot(paths, 5).files[SIGNATURES][-1]
    build_index(paths.cache, SIGNATURES, old.path, old.rows)
    Reader(paths).close()
    used = files_below(paths.cache) - {file for file in files_below(paths.cache) if old.path.stem in str(file)}
    done = vacuum(paths, DAY)
    assert {waste.kind for waste in done.waste} == {"index"}
    assert files_below(paths.cache) == used
    assert old.path.exists()


def test_a_kill_in_the_middle_is_made_good_by_the_next(paths: Paths) -> None:
    """Files go one by one; the versions that are kept need none of them."""
    contents = contents_of(paths)
    told = vacuum(paths, NOTHING, dry_run=True)
    killed = run_command("vacuum", "--keep", "0s", "--warehouse", paths.root, SIGDIR_FAILPOINT="vacuum_removing")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = vacuum(paths, NOTHING)
    assert len(left.waste) == len(told.waste) - 1
    assert left.oldest == told.oldest
    assert_readable(paths, contents, left)


# The lock.


def test_nothing_goes_while_another_publishes(paths: Paths, tmp_path: Path) -> None:
    """Who may not wait is told who holds the lock; who may wait goes on when it is free."""
    with Publisher(paths):
        with pytest.raises(Busy):
            vacuum(paths, NOTHING, wait=False)
        result = call_command("vacuum", "--no-wait", "--warehouse", paths.root)
        assert (result.exit_code, result.stderr.count("\n")) == (3, 1)
    assert vacuum(paths, NOTHING, wait=False).waste
    with other_process() as process:
        assert process.submit(enter_publisher, paths.root, False, tmp_path / "said").result() == "7"


def test_where_nothing_was_published_there_is_nothing_to_do(tmp_path: Path) -> None:
    """No folder, and one with nothing but staged rows."""
    paths = Paths(tmp_path / "warehouse")
    assert vacuum(paths) == Vacuumed(-1, -1, ())
    assert not paths.root.exists()
    stage(paths, SIGNATURES, "f()")
    assert vacuum(paths) == Vacuumed(-1, -1, ())
    result = call_command("vacuum", "--warehouse", paths.root)
    assert (result.exit_code, result.stdout) == (0, "nothing to remove\n")


def test_a_log_that_cannot_be_read_stops_it(paths: Paths) -> None:
    """Nothing goes where it is not known what is needed."""
    before = files_below(paths.table) - {paths.log_entry(6)}
    paths.log_entry(6).write_text("{")
    result = call_command("vacuum", "--keep", "0s", "--warehouse", paths.root)
    assert_told_in_one_line(result)
    assert files_below(paths.table) >= before


# The command.


def test_the_command_tells_files_bytes_and_versions(paths: Paths) -> None:
    dry = call_command("vacuum", "--keep", "0s", "--dry-run", "--json", "--warehouse", paths.root)
    told = json.loads(dry.stdout)
    assert (told["dry_run"], told["keep_seconds"], told["oldest_version"], told["newest_version"]) == (True, 0, 6, 7)
    assert told["bytes"] == sum(entry["bytes"] for entry in told["removed"])
    assert all(Path(entry["path"]).exists() for entry in told["removed"])
    shown = call_command("vacuum", "--keep", "0s", "--dry-run", "--warehouse", paths.root).stdout
    assert f"{len(told['removed'])} data files" in shown
    assert "would be removed" in shown
    assert "versions 6 to 7 would be readable" in shown
    done = call_command("vacuum", "--keep", "0s", "--warehouse", paths.root)
    assert done.stdout == shown.replace("would be removed", "removed").replace("would be", "are")
    assert not any(Path(entry["path"]).exists() for entry in told["removed"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("90s", 90), ("15m", 900), ("36h", 129_600), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_a_window_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert Duration().convert(text, None, None).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "9999999d", "7days"])
def test_another_window_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        Duration().convert(text, None, None)


# Anything in any order.

steps = st.one_of(
    st.tuples(st.just("import"), st.integers(0, 12), st.integers(0, 5)),
    st.tuples(st.just("stage"), st.integers(0, 12), st.integers(1, 2)),
    st.sampled_from([("fold",), ("compact",), ("compact all",), ("vacuum",), ("dry run",)]),
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=5, max_size=14))
def test_rows_outlive_whatever_is_done(done: list[tuple[Any, ...]]) -> None:
    """Against a plain model: the texts that were taken in, each at the place where it was first seen."""
    with ExitStack() as stack:
        paths = Paths(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "warehouse")
        known: dict[Collection, dict[str, tuple[int, int] | None]] = {c: {} for c in COLLECTIONS}
        contents: dict[int, Content] = {}
        oldest = 0
        reader = stack.enter_context(_closing(Reader(paths)))
        for name, *arguments in done:
            if name == "import":
                first, count = arguments
                wanted = [f"f{number}()" for number in range(first, first + count)]
                publish(paths, wanted, [f"E{first}()"])
                known[SIGNATURES] |= dict.fromkeys(text for text in wanted if text not in known[SIGNATURES])
                known[EVENT_SIGNATURES].setdefault(f"E{first}()", None)
            elif name == "stage":
                for text in (f"f{number}()" for number in range(arguments[0], sum(arguments))):
                    if text not in known[SIGNATURES]:
                        (row,) = stage(paths, SIGNATURES, text)
                        known[SIGNATURES][text] = (row.id, row.created_at)
            elif name == "fold":
                fold(paths)
            elif name.startswith("compact"):
                compact(paths, everything if name == "compact all" else small)
            else:
                oldest = max(oldest, _vacuumed(paths, dry_run=name == "dry run"))
            _compare(paths, reader, known)
            version = read_snapshot(paths).version
            contents.setdefault(version, content_of(paths))
        for version, content in contents.items():
            if version >= oldest:
                assert content_of(paths, version if version >= 0 else None) == content or version == -1


class _closing:  # noqa: N801 - as contextlib has it, typed
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __enter__(self) -> Reader:
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _vacuumed(paths: Paths, dry_run: bool) -> int:
    told = vacuum(paths, NOTHING, dry_run=True)
    if dry_run:
        return 0
    assert vacuum(paths, NOTHING) == told
    return told.oldest


def _compare(paths: Paths, reader: Reader, known: dict[Collection, dict[str, tuple[int, int] | None]]) -> None:
    """What is visible is what is known, at the same places as before; a server sees the same."""
    view = reader.refreshed()
    for collection, table in visible(paths).items():
        assert_sound(table)
        found = places(table)
        assert found.keys() == known[collection].keys()
        for text, place in found.items():
            assert known[collection][text] in (None, place)
            known[collection][text] = place
        segments = view.segments[collection]
        served = [segment.text_at(row) for segment in segments for row in range(segment.rows)]
        assert served == list(found)
