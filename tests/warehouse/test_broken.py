"""Full, read-only or damaged storage: an error of one line, no damage, and normal work once it is repaired."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
from tests.examples import examples
from tests.processes import FORKED
from tests.warehouse.support import (
    Disk,
    assert_fails_in_one_line,
    assert_sound,
    call_command,
    names,
    publish,
    served_texts,
    small_disk,
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


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# A full disk.


def test_a_lock_works_on_a_full_disk(tmp_path: Path) -> None:
    """A lock is acquired and released although its holder cannot be written to the file."""
    with small_disk(tmp_path / "disk") as disk:
        filler = disk.path / "filler"
        lock = FileLock(disk.path / "lock", wait=False)
        (disk.path / "lock").touch()
        disk.resize(disk.used() + 64)
        fill(filler)
        lock.acquire()
        with pytest.raises(Busy):
            FileLock(disk.path / "lock", wait=False).acquire()
        lock.release()
        with FileLock(disk.path / "lock", wait=False):
            pass


def test_a_lock_whose_file_was_removed_is_taken_on_a_new_one(tmp_path: Path) -> None:
    """Whoever waited for it holds the lock that others see; where the folder is gone too there is an error."""
    path = folder_lock(tmp_path / "run")
    path.parent.mkdir()
    for removes_folder in (False, True):
        holder, waiting = FileLock(path), FileLock(path)
        holder.acquire()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(waiting.acquire)
            while handles_of(path) < 2:
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


def handles_of(path: Path) -> int:
    """How many open files of this process have the path."""
    handles = Path("/proc/self/fd").iterdir()
    return sum(handle.is_symlink() and os.readlink(handle) == str(path) for handle in handles)


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


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


def test_building_an_index_on_a_full_disk_kills_no_process(tmp_path: Path, paths: Paths) -> None:
    """The columns are mapped, and writing to a page without room on the disk would be a SIGBUS."""
    publish(paths, names("c", 5000))
    with small_disk(tmp_path / "disk") as disk:
        process = FORKED.Process(target=index_with_little_room, args=(disk, paths))
        process.start()
        process.join()
        assert process.exitcode == 0


def test_a_fold_on_a_full_disk_fails_until_there_is_room(tmp_path: Path) -> None:
    """The rows stay staged, and repeated attempts leave no open handles."""
    with small_disk(tmp_path / "disk") as disk:
        paths = Paths(disk.path / "warehouse")
        publish(paths, names("a", 10))
        rows = [row.text for row in stage(paths, SIGNATURES, *names("posted", 20))]
        disk.resize(disk.used() + 4)
        fill(disk.path / "filler")
        assert_fails_in_one_line(call_command("fold", "--warehouse", paths.root))
        before = open_handles()
        for _ in range(20):
            assert_fails_in_one_line(call_command("fold", "--warehouse", paths.root))
        assert open_handles() <= before
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
    before = open_handles()
    for _ in range(5):
        with pytest.raises(UnreadableWarehouse, match="empty"), Publisher(paths, wait=False):
            pass
    assert open_handles() <= before
    entry.unlink()
    message = "ends at version 1, but version 2 was published"
    with pytest.raises(UnreadableWarehouse, match=message):
        Reader(paths)
    with pytest.raises(UnreadableWarehouse, match=message):
        Publisher(paths).__enter__()
    result = call_command("fold", "--warehouse", paths.root)
    assert result.exit_code == 2
    assert message in result.output
    entry.write_bytes(content)
    publish(paths, ["later()"])


# Damage.


INDEX_FILES = ("ids", "rows", "imports", "gram_starts", "gram_lists", "parameter_lists", "text")


def truncated(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def emptied(content: bytes) -> bytes:
    return b""


def flips(content: bytes) -> Iterator[bytes]:
    for at in range(0, len(content), max(1, len(content) // examples(20))):
        for bit in (1, 128):
            yield content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


@pytest.mark.parametrize("column", [*INDEX_FILES, "checksums.json"])
def test_a_damaged_index_is_built_again(paths: Paths, column: str) -> None:
    """A truncated, empty or missing file, or a flipped bit: a known text is still known and every row is right."""
    Reader(paths).close()
    expected = names("a", 300) + names("b", 100)
    table = visible(paths)[SIGNATURES]
    assert_sound(table)
    folder = paths.index(SIGNATURES, read_snapshot(paths).files[SIGNATURES][0].path)
    whole = {file.name: file.read_bytes() for file in folder.iterdir()}
    content = whole[column]
    for damaged in (truncated(content), emptied(content), None, *flips(content)):
        (folder / column).unlink()
        if damaged is not None:
            (folder / column).write_bytes(damaged)
        reader = Reader(paths)
        view = reader.current()
        assert served_texts(view, SIGNATURES) == expected
        for text, hash in zip(texts(table), table["hash"].to_pylist(), strict=True):
            assert view.has_text(SIGNATURES, text, hash)
        reader.close()
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == whole


def test_a_staging_file_that_breaks_while_it_is_open_is_named(paths: Paths) -> None:
    """Reading and writing transactions both raise an error that names the file."""
    stage(paths, SIGNATURES, *(f"posted{number}({'uint256,' * 60}address)" for number in range(200)))
    staging = Staging(paths.staging)
    with sqlite3.connect(paths.staging) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with paths.staging.open("rb+") as file:
        file.seek(4096)
        file.write(os.urandom(paths.staging.stat().st_size - 4096))
    for use in (staging.reading, staging.exclusive):
        with pytest.raises(UnreadableWarehouse, match=str(paths.staging)), use() as transaction:
            transaction.rows(SIGNATURES, 0)
    staging.close()
