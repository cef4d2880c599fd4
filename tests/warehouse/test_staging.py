"""The sequences and the staging table, with several handles and processes on one file."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.staging.transaction import STAGED_TOGETHER, HighWaterMark, NewText, Range, StagedRow
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.examples import examples
from tests.processes import FORKED
from tests.warehouse import support
from tests.warehouse.support import (
    Disk,
    add_row,
    assert_fails_in_one_line,
    call_command,
    copied,
    digest_of,
    flip,
    other_process,
    publish,
    served_texts,
    small_disk,
    stage_all,
)

NOTHING_PUBLISHED = HighWaterMark()
HOUR = 3_600_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "staging.sqlite"


@pytest.fixture
def staging(path: Path) -> Iterator[Staging]:
    opened = Staging(path)
    yield opened
    opened.close()


def now() -> int:
    return time.time_ns() // 1000


def stage(
    staging: Staging, text: str, collection: Collection = SIGNATURES, high_water: HighWaterMark = NOTHING_PUBLISHED
) -> StagedRow | None:
    with staging.exclusive() as transaction:
        return add_row(transaction, collection, text, high_water)


def staged(
    staging: Staging, text: str, collection: Collection = SIGNATURES, high_water: HighWaterMark = NOTHING_PUBLISHED
) -> StagedRow:
    row = stage(staging, text, collection, high_water)
    assert row is not None
    return row


def reserve(
    staging: Staging, rows: int, collection: Collection = SIGNATURES, high_water: HighWaterMark = NOTHING_PUBLISHED
) -> Range:
    with staging.exclusive() as transaction:
        return transaction.reserve(collection, rows, high_water)


def rows_of(staging: Staging, collection: Collection = SIGNATURES, above: int = 0) -> list[StagedRow]:
    with staging.reading() as transaction:
        return transaction.rows(collection, above)


# The sequences.


def test_a_text_is_staged_once(staging: Staging) -> None:
    """The result is None for a text that was staged before or comes earlier in the batch; each collection has its own texts."""
    known = staged(staging, "known()")
    assert stage(staging, "known()") is None
    assert staged(staging, "known()", EVENT_SIGNATURES).id == 1
    other = staged(staging, "Known()")
    assert other.id == 2
    texts = [f"n{number}()" for number in range(STAGED_TOGETHER + 5)]
    names = ["known()", *texts, texts[3], texts[-1]]
    with staging.exclusive() as transaction:
        rows = transaction.stage_all(
            [NewText(SIGNATURES, name, digest_of(name)) for name in names], {SIGNATURES: NOTHING_PUBLISHED}
        )
    assert [row and row.text for row in rows] == [None, *texts, None, None]
    assert [known, other, *(row for row in rows if row)] == rows_of(staging)


def test_a_range_ends_now_where_it_can(staging: Staging) -> None:
    """A large import dates its rows back, so later rows get the time of the clock; when that is set back, times run ahead."""
    before = now()
    place = reserve(staging, HOUR)
    assert before <= place.first_created_at + place.rows - 1 <= now()
    assert before <= staged(staging, "f()").created_at <= now()
    assert reserve(staging, HOUR).first_created_at >= place.first_created_at + HOUR
    future = now() + 24 * HOUR
    assert staged(staging, "g()", high_water=HighWaterMark(0, future)).created_at == future + 1
    assert staged(staging, "h()").created_at == future + 2
    assert reserve(staging, 1000).first_created_at == future + 3
    assert staged(staging, "i()").created_at == future + 1003


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),  # which of two handles
        st.sampled_from(COLLECTIONS),
        st.one_of(st.none(), st.integers(0, 2000)),  # None stages one row, a number reserves that many
        st.builds(HighWaterMark, st.integers(0, 3000), st.integers(0, 2 * 10**15)),
    ),
    max_size=30,
)


@settings(max_examples=examples(30))
@given(STEPS)
def test_no_id_or_time_is_given_twice(steps: list[tuple[int, Collection, int | None, HighWaterMark]]) -> None:
    """For any mix of handles, rows, ranges and high water, ids and times lie right above all earlier ones and the high water."""
    last: dict[Collection, tuple[int, int]] = dict.fromkeys(COLLECTIONS, (0, 0))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        path = Path(folder) / "staging.sqlite"
        handles = [opened.enter_context(closing(Staging(path))) for _ in range(2)]
        for number, (handle, collection, rows, high_water) in enumerate(steps):
            if rows is None:
                row = staged(handles[handle], f"f{number}()", collection, high_water)
                place = Range(row.id, row.created_at, 1)
            else:
                place = reserve(handles[handle], rows, collection, high_water)
            last_id, last_created_at = last[collection]
            assert place.first_id == max(last_id, high_water.id) + 1
            assert place.first_created_at > max(last_created_at, high_water.created_at)
            last[collection] = place.first_id + place.rows - 1, place.first_created_at + place.rows - 1


# The rows.


def test_rows_come_in_id_order_within_bounds(staging: Staging) -> None:
    """``above`` is exclusive, ``up_to`` inclusive."""
    rows = [staged(staging, text) for text in ("c()", "a()", "b()")]
    with staging.reading() as transaction:
        assert transaction.rows(SIGNATURES, 1) == rows[1:]
        assert transaction.rows(SIGNATURES, 0, 2) == rows[:2]
        assert transaction.rows(EVENT_SIGNATURES, 0) == []


# Transactions.


def test_a_transaction_that_raises_leaves_nothing(staging: Staging) -> None:
    """Rows, ids and unfinished runs are unchanged."""
    kept = staged(staging, "f()")
    with pytest.raises(RuntimeError), staging.exclusive() as transaction:  # noqa: PT012 - the error comes last
        add_row(transaction, SIGNATURES, "g()", NOTHING_PUBLISHED)
        transaction.reserve(SIGNATURES, 1000, NOTHING_PUBLISHED)
        transaction.begin_publish("run")
        transaction.forget(SIGNATURES, kept.id)
        raise RuntimeError
    assert rows_of(staging) == [kept]
    assert staged(staging, "g()").id == kept.id + 1
    with staging.exclusive() as transaction:
        assert transaction.unfinished() == []


def test_a_reader_sees_one_state(path: Path, staging: Staging) -> None:
    """Commits do not wait for a reader, and a reader does not see commits that come after its begin."""
    staged(staging, "a()")
    reader = Staging(path)
    with reader.reading() as transaction:
        assert len(transaction.rows(SIGNATURES, 0)) == 1
        staged(staging, "b()")
        assert len(transaction.rows(SIGNATURES, 0)) == 1
    assert len(rows_of(reader)) == 2
    reader.close()


@pytest.mark.slow
def test_two_processes_lose_and_repeat_nothing(path: Path, staging: Staging) -> None:
    """Two processes stage at once, with half of the texts in common: each text gets one id, in order."""
    common = [f"f{number}()" for number in range(100)]
    wanted = [[*common, *(f"{who}{number}()" for number in range(100))] for who in "ab"]
    with other_process(2) as pool:
        done = [future.result() for future in [pool.submit(stage_all, path, SIGNATURES, w) for w in wanted]]
    rows = rows_of(staging)
    assert sorted(row.text for row in rows) == sorted({text for texts in wanted for text in texts})
    assert [row.id for row in rows] == list(range(1, 301))
    assert all(one.created_at < next_.created_at for one, next_ in pairwise(rows))
    assert sorted(row for some in done for row in some) == [(r.id, r.created_at, r.text) for r in rows]


def test_what_one_reader_shows_all_others_show(tmp_path: Path) -> None:
    """A row is shown before its POST is answered: to a client that asks another worker next, it is still there."""
    paths = Paths(tmp_path)
    with closing(Reader(paths)) as first, closing(Reader(paths)) as second, closing(Staging(paths.staging)) as staging:
        for number in range(50):
            text = f"f{number}()"
            second.current()
            with staging.exclusive_statement() as transaction:
                assert add_row(transaction, SIGNATURES, text, NOTHING_PUBLISHED)
                # The row is committed, and the process that stored it does nothing more for now.
                assert served_texts(first.refreshed(), SIGNATURES)[-1] == text
                assert served_texts(second.current(), SIGNATURES)[-1] == text


def _stage_one_and_die_with_a_second(path: Path) -> None:
    staging = Staging(path)
    staged(staging, "kept()")
    with staging.exclusive() as transaction:
        add_row(transaction, SIGNATURES, "lost()", NOTHING_PUBLISHED)
        transaction.reserve(SIGNATURES, 1000, NOTHING_PUBLISHED)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_whole_transactions(path: Path, staging: Staging) -> None:
    """Committed rows survive kill -9; an open transaction is gone and blocks nobody."""
    process = FORKED.Process(target=_stage_one_and_die_with_a_second, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [row.text for row in rows_of(staging)] == ["kept()"]
    assert staged(staging, "lost()").id == 2


# The file.


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """Other content gives an error of one line and is not overwritten."""
    path.write_bytes(content := b"no database " * 1000)
    with pytest.raises(UnreadableWarehouse, match=path.name) as caught:
        Staging(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_full_disk_refuses_new_rows_only(tmp_path: Path) -> None:
    """Staged rows stay, and the same handle stages again once there is room."""
    with small_disk(tmp_path / "disk") as disk:
        staging = Staging(disk.path / "staging.sqlite")
        kept = [staged(staging, f"f{number}()") for number in range(20)]
        disk.resize(disk.used() + 16)
        with pytest.raises((UnreadableWarehouse, sqlite3.OperationalError), match="full"):  # noqa: PT012 - until the disk is full
            while True:
                kept.append(staged(staging, f"g{len(kept)}(" + "uint256," * 40 + "uint256)"))
        assert rows_of(staging) == kept
        disk.resize(1024)
        kept.append(staged(staging, "h()"))
        assert rows_of(staging) == kept
        assert kept[-1].id == len(kept)
        staging.close()


def _stage_with_little_room(disk: Disk) -> None:
    """With 4 KiB more room each time, until all fits."""
    for kibibytes in range(0, 256, 4):
        folder = disk.path / str(kibibytes)
        folder.mkdir()
        disk.resize(max(disk.used(), 4) + kibibytes)
        with suppress(UnreadableWarehouse, sqlite3.OperationalError):
            staging = Staging(folder / "staging.sqlite")
            staged(staging, "f()")
            staging.close()
            return
        disk.resize(64 * 1024)


def test_a_full_disk_kills_no_process(tmp_path: Path) -> None:
    """The writer gets an error, never a signal, whichever page does not fit."""
    with small_disk(tmp_path / "disk") as disk:
        process = FORKED.Process(target=_stage_with_little_room, args=(disk,))
        process.start()
        process.join()
        assert process.exitcode == 0


# Damage.


@pytest.fixture
def killed(tmp_path: Path) -> Paths:
    """The files of a warehouse as a killed server leaves them: 40 POSTed rows, all in the write-ahead log."""
    paths = Paths(tmp_path / "running")
    publish(paths, ["old()"])
    with closing(Staging(paths.staging)) as staging:
        for number in range(40):
            with staging.exclusive_statement() as transaction:
                assert add_row(transaction, SIGNATURES, f"f{number}()", HighWaterMark(1, 1))
        copy = copied(paths, tmp_path / "killed")
    copy.staging.with_name("staging.sqlite-shm").unlink()
    return copy


def opened_texts(paths: Paths) -> list[str] | str:
    """The texts that a server shows, or the error with which it does not start."""
    try:
        with closing(Reader(paths)) as reader:
            return served_texts(reader.current(), SIGNATURES)
    except UnreadableWarehouse as error:
        return str(error)


def test_rows_that_a_damaged_write_ahead_log_lost_are_noticed(killed: Paths, tmp_path: Path) -> None:
    """SQLite drops everything from the first damaged frame on. Servers, publishers and verify say which ids are lost."""
    expected = ["old()", *(f"f{number}()" for number in range(40))]
    rng, refused = random.Random(14), []
    for number in range(8):
        paths = copied(killed, tmp_path / f"copy-{number}")
        flip(paths.staging_wal, rng.randrange(paths.staging_wal.stat().st_size), rng.randrange(8))
        found = opened_texts(paths)
        assert found == expected or isinstance(found, str)
        if isinstance(found, str):
            refused.append(paths)
            assert "are lost" in found
            assert "sigdir fold --accept-losses" in found
    assert len(refused) > 4
    with pytest.raises(UnreadableWarehouse, match="are lost"), Publisher(refused[0]):
        pass
    assert "are lost" in call_command("verify", "--quiet", "--warehouse", refused[0].root).stdout


@pytest.mark.parametrize("loss", ["a damaged log", "no file"])
def test_a_fold_goes_on_without_lost_rows_where_it_may(killed: Paths, tmp_path: Path, loss: str) -> None:
    """It counts them, their ids stay unused, and verify is content. Before that no backup takes the place of one."""
    if loss == "no file":
        killed.staging.unlink()
        killed.staging_wal.unlink()
    else:
        flip(killed.staging_wal)
    before = opened_texts(killed)
    assert isinstance(before, str)
    refused = call_command("fold", "--warehouse", killed.root)
    assert_fails_in_one_line(refused, "to 41 are lost", "`sigdir fold --accept-losses`")
    assert opened_texts(killed) == before
    refused = call_command("backup", "--warehouse", killed.root, tmp_path / "copy")
    assert_fails_in_one_line(refused, "to 41 are lost", "`sigdir fold --accept-losses`")
    accepted = call_command("fold", "--accept-losses", "--warehouse", killed.root)
    assert accepted.exit_code == 0
    [warning] = accepted.stderr.splitlines()
    assert "to 41 are lost" in warning
    left = opened_texts(killed)
    assert isinstance(left, list)
    assert f"up to {41 - len(left)} rows" in warning
    assert call_command("verify", "--quiet", "--warehouse", killed.root).exit_code == 0
    new = support.stage(killed, SIGNATURES, "new()")[0]
    assert new.id == 42


def test_a_flipped_bit_in_the_stamp_loses_nothing(killed: Paths) -> None:
    """What it says of ids is then not believed."""
    for at in range(8, killed.staging_stamp.stat().st_size):
        flip(killed.staging_stamp, at, 6)
        assert isinstance(opened_texts(killed), list)
        flip(killed.staging_stamp, at, 6)


def test_a_staging_file_whose_rows_are_all_folded_may_be_removed(killed: Paths) -> None:
    """Nothing is lost with it: servers and publishers go on, and new ids are above the table's."""
    before = opened_texts(killed)
    assert call_command("fold", "--warehouse", killed.root).exit_code == 0
    killed.staging.unlink()
    killed.staging_wal.unlink(missing_ok=True)
    assert opened_texts(killed) == before
    assert publish(killed, ["imported()"]).snapshot.high_water[SIGNATURES].id == 42
    assert support.stage(killed, SIGNATURES, "new()")[0].id == 43


@pytest.mark.parametrize("name", ["staging.sqlite", "staging.sqlite-wal", "staging.sqlite.stamp"])
@pytest.mark.parametrize("by", ["removed", "replaced"])
def test_a_file_that_was_removed_or_replaced_takes_no_row(path: Path, staging: Staging, name: str, by: str) -> None:
    """A commit would go into a file that has no name any more."""
    file = path.with_name(name)
    content = file.read_bytes()
    file.unlink()
    if by == "replaced":
        file.write_bytes(content)
    with (
        pytest.raises(UnreadableWarehouse, match=f"{name} was removed or replaced"),
        staging.exclusive_statement() as transaction,
    ):
        add_row(transaction, SIGNATURES, "f()", NOTHING_PUBLISHED)
