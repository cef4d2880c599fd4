"""Full, read-only or damaged storage: an error of one line, no damage, and normal work once it is repaired."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import Busy, UnreadableWarehouse
from sigdir.warehouse.table.files import FileLock
from sigdir.warehouse.table.paths import Paths, folder_lock
from tests.conftest import SAFETY_SECONDS
from tests.examples import examples
from tests.processes import FORKED
from tests.warehouse.support import (
    Disk,
    assert_fails_in_one_line,
    call_command,
    digest_of,
    names,
    publish,
    served_texts,
    stage,
    texts,
    visible,
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A warehouse with two versions."""
    paths = Paths(tmp_path / "warehouse")
    publish(paths, names("a", 300), ["E(address)"])
    publish(paths, names("b", 100))
    return paths


def handles(path: Path | None = None) -> int:
    """How many open files this process has, or how many of this path."""
    found = [handle for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
    return sum(path is None or os.readlink(handle) == str(path) for handle in found)


# A full disk.


def test_a_lock_works_on_a_full_disk(disk: Disk) -> None:
    """A lock is acquired and released although its holder cannot be written to the file."""
    path = disk.path / "lock"
    path.touch()
    (disk.path / "filler").write_bytes(bytes(4096))
    disk.resize(disk.used())
    with FileLock(path, wait=False), pytest.raises(Busy):
        FileLock(path, wait=False).acquire()
    with FileLock(path, wait=False):
        pass


def test_a_lock_is_that_of_the_process_which_took_it(tmp_path: Path) -> None:
    """A child that was forked meanwhile has the file open, too: it neither releases the lock nor keeps it."""
    held, fork = FileLock(tmp_path / "lock"), multiprocessing.get_context("fork")
    held.acquire()
    releasing, sleeping = fork.Process(target=held.release), fork.Process(target=time.sleep, args=(SAFETY_SECONDS,))
    releasing.start()
    releasing.join()
    with pytest.raises(Busy):
        FileLock(tmp_path / "lock", wait=False).acquire()
    sleeping.start()
    held.release()
    with FileLock(tmp_path / "lock", wait=False):
        sleeping.kill()
        sleeping.join()


def test_a_lock_whose_file_was_removed_is_taken_on_a_new_one(tmp_path: Path) -> None:
    """Whoever waited for it holds the lock that others see; where the folder is gone too there is an error."""
    path = folder_lock(tmp_path / "run")
    path.parent.mkdir()
    for removes_folder in (False, True):
        holder, waiting = FileLock(path), FileLock(path)
        holder.acquire()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(waiting.acquire)
            while handles(path) < 2:
                time.sleep(0.01)
            shutil.rmtree(path.parent)
            if not removes_folder:
                path.parent.mkdir()
            holder.release()
            if removes_folder:
                with pytest.raises(FileNotFoundError):
                    done.result()
                continue
            done.result()
        with pytest.raises(Busy):
            FileLock(path, wait=False).acquire()
        waiting.release()


def index_with_little_room(disk: Disk, paths: Paths) -> None:
    """Build an index with 20 KiB more room each time, until it fits."""
    (file,) = read_snapshot(paths).files[SIGNATURES][-1:]
    for kibibytes in range(0, 1000, 20):
        derived = Paths(paths.root, disk.path / str(kibibytes))
        derived.cache.mkdir(parents=True)
        disk.resize(max(disk.used(), 4) + kibibytes)
        try:
            segment_of(derived, file)
            break
        except OSError:
            continue
        finally:
            disk.resize(64 * 1024)
    segment = segment_of(Paths(paths.root, disk.path / "0"), file)
    assert [segment.text_at(row) for row in range(segment.rows)] == names("c", 5000)
    assert kibibytes > 0


def test_building_an_index_on_a_full_disk_kills_no_process(disk: Disk, paths: Paths) -> None:
    """The columns are mapped, and writing to a page without room on the disk would be a SIGBUS."""
    publish(paths, names("c", 5000))
    process = FORKED.Process(target=index_with_little_room, args=(disk, paths))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_fold_on_a_full_disk_fails_until_there_is_room(disk: Disk) -> None:
    """The rows stay staged, and repeated attempts leave no open handles."""
    paths = Paths(disk.path / "warehouse")
    publish(paths, names("a", 10))
    rows = [row.text for row in stage(paths, SIGNATURES, *names("posted", 20))]
    disk.resize(disk.used())
    assert_fails_in_one_line(call_command("fold", "--warehouse", paths.root))
    before = handles()
    for _ in range(5):
        assert_fails_in_one_line(call_command("fold", "--warehouse", paths.root))
    assert handles() <= before
    disk.resize(1024)
    assert texts(visible(paths)[SIGNATURES]) == names("a", 10) + rows
    assert call_command("fold", "--warehouse", paths.root).exit_code == 0
    assert texts(visible(paths)[SIGNATURES]) == names("a", 10) + rows
    assert read_snapshot(paths).count(SIGNATURES) == 30


def test_a_publisher_that_cannot_begin_leaves_nothing_open(paths: Paths) -> None:
    """Neither a lock nor a handle. A log without its last entry is refused, because it reads as an older table."""
    entry = paths.log_entry(2)
    content = entry.read_bytes()
    entry.write_bytes(b"")
    before = handles()
    for _ in range(5):
        with pytest.raises(UnreadableWarehouse, match="empty"), Publisher(paths, wait=False):
            pass
    assert handles() <= before
    entry.unlink()
    message = "ends at version 1, but version 2 was published"
    with pytest.raises(UnreadableWarehouse, match=message):
        Reader(paths)
    assert_fails_in_one_line(call_command("fold", "--warehouse", paths.root), message)
    entry.write_bytes(content)
    publish(paths, ["later()"])


# Damage.


def damages(content: bytes) -> Iterator[bytes | None]:
    """The content of a file cut, empty, missing, or with a flipped bit."""
    yield from (content[: len(content) * 2 // 3], b"", None)
    for at in range(0, len(content), max(1, len(content) // examples(20))):
        for bit in (1, 128):
            yield content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


def test_a_damaged_index_is_built_again(paths: Paths) -> None:
    """Whatever is wrong with a file of it: every row is right, and the files are those of before."""
    Reader(paths).close()
    folder = paths.index(SIGNATURES, read_snapshot(paths).files[SIGNATURES][0].path)
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert whole.keys() > {"ids", "rows", "imports", "gram_starts", "gram_lists", "parameter_lists", "text"}
    for column, content in whole.items():
        for damaged in damages(content):
            (folder / column).unlink()
            if damaged is not None:
                (folder / column).write_bytes(damaged)
            with closing(Reader(paths)) as reader:
                view = reader.current()
                assert served_texts(view, SIGNATURES) == names("a", 300) + names("b", 100)
                assert view.has_text(SIGNATURES, "a7(uint256)", digest_of("a7(uint256)")[:4])
            assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole


def test_a_staging_file_that_breaks_while_it_is_open_is_named(paths: Paths) -> None:
    """Reading and writing transactions both raise an error that names the file."""
    stage(paths, SIGNATURES, *(f"posted{number}({'uint256,' * 60}address)" for number in range(200)))
    staging = Staging(paths.staging)
    with closing(sqlite3.connect(paths.staging)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with paths.staging.open("rb+") as file:
        file.seek(4096)
        file.write(os.urandom(paths.staging.stat().st_size - 4096))
    for use in (staging.reading, staging.exclusive):
        with pytest.raises(UnreadableWarehouse, match=str(paths.staging)), use() as transaction:
            transaction.rows(SIGNATURES, 0)
    staging.close()
