"""Imports by the real command, killed at each step and at random, side by side, and on a full disk."""

from __future__ import annotations

import gc
import json
import random
import re
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Options, run_import
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.signatures.keccak import keccak256_column
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.staging import StagedRow, Staging
from tests.warehouse.support import (
    BACKUP_POINTS,
    REPOSITORY,
    SAFETY_SECONDS,
    Disk,
    assert_clean,
    assert_sequences_beyond,
    assert_sound,
    assert_told_in_one_line,
    call_command,
    command,
    environment,
    places,
    run_command,
    small_disk,
    table_of,
    texts,
    visible,
)
from tests.warehouse.test_compact import POINTS as COMPACT_POINTS

BEFORE_THE_COMMIT = ("read", "locked", "deduped", "reserved", "written")
BEHIND_THE_COMMIT = ("committed", "published")

LARGE_ROWS = 300_000
RANDOM_KILLS = 8


@dataclass(frozen=True, slots=True)
class Base:
    """A warehouse with a past, in a folder that is copied for each test; and what is imported next."""

    root: Path
    version: int
    content: dict[Collection, list[dict[str, Any]]]
    staged: dict[Collection, list[StagedRow]]
    lines: Path
    expected: dict[Collection, set[str]]
    """All texts once the lines are imported too."""

    @property
    def seen(self) -> dict[Collection, set[str]]:
        """All texts before that."""
        return {
            c: {row["text_signature"] for row in self.content[c]} | {row.text for row in self.staged[c]}
            for c in COLLECTIONS
        }

    def copy(self, folder: Path) -> Paths:
        shutil.copytree(self.root, folder / "warehouse")
        return Paths(folder / "warehouse")


def import_here(root: Path, *files: Path) -> ImportReport:
    """An import in this process."""
    return run_import(Options([str(file) for file in files], root), Reporter())


def stage(paths: Paths, collection: Collection, *wanted: str) -> list[StagedRow]:
    """POST texts, hashed as the server hashes them."""
    digests = keccak256_column(pa.array(wanted, pa.string()))
    floor = read_snapshot(paths).high_water[collection]
    staging = Staging(paths.staging)
    rows = []
    with staging.exclusive() as transaction:
        for text, digest in zip(wanted, digests, strict=True):
            row = transaction.stage(collection, text, digest.tobytes(), floor)
            assert row is not None
            rows.append(row)
    staging.close()
    return rows


def functions(prefix: str, numbers: range) -> list[str]:
    return [f"{prefix}{number}(uint256)" for number in numbers]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Two imports with rejects, a fold, and staged rows, some of which the next import brings too."""
    folder = tmp_path_factory.mktemp("base")
    paths = Paths(folder / "warehouse")
    old = folder / "old.txt"
    old_events = [f"Old{number}(address)" for number in range(50)]
    old.write_text("\n".join([*functions("old", range(500)), *(f"event {e};" for e in old_events), "1bad("]) + "\n")
    import_here(paths.root, old)
    stage(paths, SIGNATURES, "folded(uint256)")
    more = folder / "more.txt"
    more.write_text("\n".join(functions("more", range(20))) + "\n")
    import_here(paths.root, more)
    staged = {
        SIGNATURES: stage(paths, SIGNATURES, "posted(uint256)", "new7(uint256)", "new1999(uint256)"),
        EVENT_SIGNATURES: stage(paths, EVENT_SIGNATURES, "Posted(address)", "New3(address)"),
    }
    new_events = [f"New{number}(address)" for number in range(40)]
    new = [*functions("new", range(2000)), *functions("old", range(100)), *functions("new", range(50))]
    random.Random(1).shuffle(new)
    lines = folder / "new.txt"
    lines.write_text("\n".join([*new, *(f"event {e};" for e in new_events), "2bad(", "3bad("]) + "\n")
    snapshot = read_snapshot(paths)
    content = {c: table_of(snapshot, c).to_pylist() for c in COLLECTIONS}
    expected = {c: {row["text_signature"] for row in content[c]} | {row.text for row in staged[c]} for c in COLLECTIONS}
    expected[SIGNATURES] |= set(new)
    expected[EVENT_SIGNATURES] |= set(new_events)
    return Base(paths.root, snapshot.version, content, staged, lines, expected)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of LARGE_ROWS different signatures, shuffled."""
    path = tmp_path_factory.mktemp("large") / "large.txt"
    order = np.random.default_rng(2).permutation(LARGE_ROWS).tolist()
    path.write_text("".join(f"large{number:06d}(address,uint256)\n" for number in order))
    return path


def assert_past_is_kept(base: Base, paths: Paths) -> None:
    """The version from before reads as it was, staged rows are there once, everything is sound."""
    old = sigdir.open(paths.root, base.version)
    seen = visible(paths)
    for collection in COLLECTIONS:
        assert table_of(old.snapshot, collection).to_pylist() == base.content[collection]
        table = seen[collection]
        assert_sound(table)
        assert table.slice(0, len(base.content[collection])).to_pylist() == base.content[collection]
        where = places(table)
        for row in base.staged[collection]:
            assert where[row.text] == (row.id, row.created_at)
        # The hash belongs to the text, which it does in no row that was mixed up with another.
        digests = keccak256_column(table["text_signature"].combine_chunks())[:, : collection.hash_bytes]
        assert table["hash"].combine_chunks().to_pylist() == [digest.tobytes() for digest in digests]


def assert_texts(paths: Paths, expected: dict[Collection, set[str]]) -> None:
    seen = visible(paths)
    for collection in COLLECTIONS:
        assert set(texts(seen[collection])) == expected[collection]


def assert_accounted(totals: dict[str, int]) -> None:
    assert totals["read"] == totals["imported"] + totals["duplicate"] + totals["rejected"]


# The points.


MIRROR_POINTS = ("spooled", "imported")


def test_the_points_are_those_of_the_source() -> None:
    """Each place at which a process can be killed by name is tried, a backup's in test_backup, and there is no other."""
    found = []
    for floor in ("warehouse", "pipeline", "serve"):
        for path in (REPOSITORY / floor).rglob("*.py"):
            found += re.findall(r'failpoints\.reach\("?([^")]*)"?\)', path.read_text())
    upkeep = [*COMPACT_POINTS, *BACKUP_POINTS, "vacuum_removing"]
    named = [*BEFORE_THE_COMMIT, *BEHIND_THE_COMMIT, *upkeep, *MIRROR_POINTS]
    assert sorted(found) == sorted(named)


@pytest.mark.parametrize("point", [*BEFORE_THE_COMMIT, *BEHIND_THE_COMMIT])
def test_a_kill_at_a_point_loses_and_doubles_nothing(base: Base, tmp_path: Path, point: str) -> None:
    """All or nothing is visible, and the same import run again makes the rest of it good."""
    paths = base.copy(tmp_path)
    killed = run_command("import", base.lines, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = point in BEHIND_THE_COMMIT
    assert read_snapshot(paths).version == base.version + published
    assert_past_is_kept(base, paths)
    assert_texts(paths, base.expected if published else base.seen)

    again = call_command("import", base.lines, "--json", "--quiet", "--warehouse", paths.root)
    assert again.exit_code == 0, again.stderr
    report = json.loads(again.stdout)
    assert_accounted(report["totals"])
    assert report["published"] == (not published)
    assert (report["totals"]["imported"] == 0) == published
    assert (report["totals"]["rejected"], report["version"]) == (2, base.version + 1)
    assert_past_is_kept(base, paths)
    assert_texts(paths, base.expected)
    assert_clean(paths)
    assert_sequences_beyond(paths)
    warehouse = sigdir.open(paths.root)
    rejected = warehouse.sql("SELECT text FROM rejects WHERE import_id = ?", [report["rejects_in_import"]]).rows()
    assert sorted(rejected) == [("2bad(",), ("3bad(",)]
    imports = warehouse.sql("SELECT import_id FROM imports").rows()
    assert len(set(imports)) == len(imports) == 3


@pytest.mark.parametrize("point", ["reserved", "written", "committed"])
def test_a_kill_of_the_first_import_leaves_a_folder_that_works(base: Base, tmp_path: Path, point: str) -> None:
    """Also where nothing was there before, not even the log."""
    paths = Paths(tmp_path / "deep" / "warehouse")
    killed = run_command("import", base.lines, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    import_here(paths.root, base.lines)
    warehouse = sigdir.open(paths.root)
    assert (warehouse.version, warehouse.count(SIGNATURES), warehouse.count(EVENT_SIGNATURES)) == (1, 2100, 40)
    for table in visible(paths).values():
        assert_sound(table)
    assert_clean(paths)


def test_kills_one_after_another_leave_what_one_leaves(base: Base, tmp_path: Path) -> None:
    """Left-overs of several dead runs go with the next that lives."""
    paths = base.copy(tmp_path)
    for point in ("reserved", "written"):
        assert run_command("import", base.lines, "--warehouse", paths.root, SIGDIR_FAILPOINT=point).returncode < 0
    assert_past_is_kept(base, paths)
    import_here(paths.root, base.lines)
    assert_past_is_kept(base, paths)
    assert_texts(paths, base.expected)
    assert_clean(paths)


# Any moment.


@pytest.fixture(scope="module")
def seconds_to_import(base: Base, large: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """From the first line that an undisturbed import says to its end."""
    paths = base.copy(tmp_path_factory.mktemp("measured"))
    with started_import(paths, large) as process:
        began = time.monotonic()
        process.communicate(timeout=SAFETY_SECONDS)
    assert process.returncode == 0
    return time.monotonic() - began


def started_import(paths: Paths, *files: Path) -> subprocess.Popen[str]:
    """The command, at the beginning of its first stage."""
    process = subprocess.Popen(
        command("import", *files, "--warehouse", paths.root),
        cwd=REPOSITORY, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == "read ...\n"
    return process


@pytest.mark.parametrize(
    "share", [(part + random.Random(part).random()) / RANDOM_KILLS for part in range(RANDOM_KILLS)], ids="{:.2f}".format
)
def test_a_kill_at_any_moment_loses_and_doubles_nothing(
    base: Base, large: Path, tmp_path: Path, seconds_to_import: float, share: float
) -> None:
    """A larger import killed after some share of its time is there whole or not at all."""
    paths = base.copy(tmp_path)
    with started_import(paths, large) as process:
        time.sleep(share * seconds_to_import)
        process.kill()
        process.communicate(timeout=SAFETY_SECONDS)
    version = read_snapshot(paths).version
    assert version in (base.version, base.version + 1)
    assert_past_is_kept(base, paths)
    rows = visible(paths)[SIGNATURES].num_rows
    assert rows == len(base.seen[SIGNATURES]) + LARGE_ROWS * (version - base.version)

    report = import_here(paths.root, large)
    assert_accounted(report.totals())
    assert report.total("imported") == LARGE_ROWS * (base.version + 1 - version)
    assert_past_is_kept(base, paths)
    assert visible(paths)[SIGNATURES].num_rows == len(base.seen[SIGNATURES]) + LARGE_ROWS
    assert_clean(paths)
    assert_sequences_beyond(paths)


# Two at once.


def test_two_importers_at_once_bring_each_text_once(base: Base, tmp_path: Path) -> None:
    """Files that overlap, into one folder: one waits for the other, and the counts add up."""
    paths = base.copy(tmp_path)
    ranges = (range(60_000), range(30_000, 90_000))
    files = []
    for number, numbers in enumerate(ranges):
        files.append(tmp_path / f"{number}.txt")
        events = [f"event E{n}(uint256);" for n in numbers[:1000]]
        files[-1].write_text("\n".join([*functions("both", numbers), *events, f"{number}bad("]) + "\n")
    processes = [
        subprocess.Popen(
            command("import", file, "--json", "--quiet", "--warehouse", paths.root),
            cwd=REPOSITORY, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for file in files
    ]  # fmt: skip
    outputs = [process.communicate(timeout=SAFETY_SECONDS) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    reports = [json.loads(output) for output, _ in outputs]
    for report in reports:
        assert_accounted(report["totals"])
        assert (report["totals"]["read"], report["totals"]["rejected"]) == (61_001, 1)
    assert sum(report["collections"][SIGNATURES]["imported"] for report in reports) == 90_000
    assert sum(report["collections"][EVENT_SIGNATURES]["imported"] for report in reports) == 2_000
    assert sorted(report["version"] for report in reports) == [base.version + 1, base.version + 2]
    assert_past_is_kept(base, paths)
    brought = {
        SIGNATURES: set(functions("both", range(90_000))),
        EVENT_SIGNATURES: {f"E{n}(uint256)" for n in [*range(1000), *range(30_000, 31_000)]},
    }
    assert_texts(paths, {collection: base.seen[collection] | brought[collection] for collection in COLLECTIONS})
    assert_clean(paths)


def test_rows_posted_during_an_import_are_there_once(base: Base, large: Path, tmp_path: Path) -> None:
    """POSTs of texts that the import brings too are acknowledged at once, and keep their ids."""
    paths = base.copy(tmp_path)
    random_texts = random.Random(3).sample(range(LARGE_ROWS), 2000)
    posted: list[StagedRow] = []
    with started_import(paths, large) as process:
        for number in random_texts:
            if process.poll() is not None or read_snapshot(paths).version > base.version:
                break
            posted += stage_unless_known(paths, f"large{number:06d}(address,uint256)")
        process.communicate(timeout=SAFETY_SECONDS)
    assert process.returncode == 0
    assert posted
    assert_past_is_kept(base, paths)
    table = visible(paths)[SIGNATURES]
    assert table.num_rows == len(base.seen[SIGNATURES]) + LARGE_ROWS
    where = places(table)
    assert [where[row.text] for row in posted] == [(row.id, row.created_at) for row in posted]
    totals = sigdir.open(paths.root).history()[-1]["totals"]
    assert_accounted(totals)
    assert totals["imported"] + len(posted) == LARGE_ROWS


def stage_unless_known(paths: Paths, text: str) -> list[StagedRow]:
    """POST as the server has to: the version is looked at inside the transaction that stages.

    A commit is made inside such a transaction too, so none comes between the look and the row.
    """
    digest = keccak256_column(pa.array([text], pa.string()))[0].tobytes()
    staging = Staging(paths.staging)
    with staging.exclusive() as transaction:
        snapshot = read_snapshot(paths)
        known = snapshot.version > 2  # the import has brought all that this test posts
        row = None if known else transaction.stage(SIGNATURES, text, digest, snapshot.high_water[SIGNATURES])
    staging.close()
    return [row] if row is not None else []


# A full disk.


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.mark.parametrize(("mebibytes", "stages"), [(4, ["read"]), (16, ["read", "dedupe", "write"])])
def test_a_full_disk_leaves_the_version_before(
    base: Base, large: Path, disk: Disk, mebibytes: int, stages: list[str]
) -> None:
    """Status 2 and one line, in the middle of reading or of writing; with room the import succeeds."""
    paths = base.copy(disk.path)
    disk.resize(disk.used() + 1024 * mebibytes)
    full = run_command("import", large, "--warehouse", paths.root)
    *said, last = full.stderr.splitlines()
    assert (full.returncode, full.stdout, said) == (2, "", [f"{stage} ..." for stage in stages]), full.stderr
    assert re.match("Error: .*space.*nothing was published$", last)
    assert read_snapshot(paths).version == base.version
    assert_past_is_kept(base, paths)
    assert_texts(paths, base.seen)

    disk.resize(64 * 1024)
    assert import_here(paths.root, large).total("imported") == LARGE_ROWS
    assert_past_is_kept(base, paths)
    assert visible(paths)[SIGNATURES].num_rows == len(base.seen[SIGNATURES]) + LARGE_ROWS
    assert_clean(paths)


def test_wherever_the_disk_is_full_it_is_told_in_one_line(base: Base, disk: Disk) -> None:
    """From the first page on to the last: status 2 with one line, or a whole import."""
    for kibibytes in (*range(0, 96, 16), *range(96, 1024, 4)):
        paths = base.copy(disk.path)
        disk.resize(disk.used() + kibibytes)
        result = call_command("import", base.lines, "--quiet", "--warehouse", paths.root)
        disk.resize(64 * 1024)
        if result.exit_code == 0:
            break
        published = read_snapshot(paths).version > base.version
        assert_past_is_kept(base, paths)
        assert_texts(paths, base.expected if published else base.seen)
        assert_told_in_one_line(result)
        assert not published, f"with {kibibytes} KiB left it is published, and said to have failed"
        shutil.rmtree(paths.root)
        gc.collect()  # a handle that was left open would warn in some later test
    assert kibibytes > 100
    assert_texts(paths, base.expected)


# What else keeps an import from ending.


def test_an_import_that_fails_closes_its_files(tmp_path: Path) -> None:
    """No file handle is left for the garbage collector, which would warn."""
    lines = tmp_path / "broken.json"
    lines.write_text('[{"type": "function", ')
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(BadInput):
            import_here(tmp_path / "warehouse", lines)
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert list((tmp_path / "warehouse" / "tmp").iterdir()) == []


@pytest.mark.parametrize("limit", ["1MB", "nonsense"])
def test_an_import_within_an_impossible_limit_is_told_in_one_line(base: Base, tmp_path: Path, limit: str) -> None:
    """A memory limit that is none, or too small to work in, is the caller's to change."""
    paths = base.copy(tmp_path)
    result = call_command("import", base.lines, "--quiet", "--memory-limit", limit, "--warehouse", paths.root)
    assert_told_in_one_line(result)
    assert_past_is_kept(base, paths)
    assert_texts(paths, base.seen)
