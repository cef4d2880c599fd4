"""A signal is noted, raised where the work looks, and ends the process where it does not look."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event, Thread

import pytest

from sigdir.signatures import interruption
from sigdir.signatures.interruption import check, each, is_noted, noting, postponed, waiting
from sigdir.warehouse.table.files import RunFolder, uninterrupted
from tests.conftest import SAFETY_SECONDS


def send(stop: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), stop)


def never() -> None:
    raise AssertionError("the process would have ended")


def test_a_signal_raises_where_the_work_looks() -> None:
    """And not where it comes: that may be within a dependency that cannot take it."""
    with noting(never):
        check()
        send()
        assert is_noted()
        with pytest.raises(KeyboardInterrupt):
            check()
    check()
    assert not is_noted()


def test_a_thread_hears_it_too() -> None:
    """A pool's threads look, and their error reaches the main thread."""
    heard = Event()

    def work() -> None:
        while not heard.is_set():
            try:
                check()
            except KeyboardInterrupt:
                heard.set()

    with noting(never):
        thread = Thread(target=work)
        thread.start()
        send(signal.SIGINT)
        assert heard.wait(SAFETY_SECONDS)
        thread.join()


def test_a_wait_ends() -> None:
    """In the main thread the handler raises in it."""

    def silence() -> object:
        send()
        return Event().wait(SAFETY_SECONDS)

    with noting(never), pytest.raises(KeyboardInterrupt):  # each item is waited for
        next(each(silence() for _ in range(1)))


def test_an_engine_is_interrupted_by_another_thread() -> None:
    """Until it ends. What it raises then is the interruption."""
    interrupted = Event()

    def query() -> None:
        send()
        assert interrupted.wait(SAFETY_SECONDS)
        raise RuntimeError("the query was interrupted")

    with noting(never), pytest.raises(KeyboardInterrupt) as raised, waiting(interrupted.set):
        query()
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_an_error_without_a_signal_stays() -> None:
    with noting(never), pytest.raises(RuntimeError, match="no such table"), waiting(never):
        raise RuntimeError("no such table")


def test_work_that_does_not_look_ends_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the second signal, or after the time that it has to end by itself."""
    monkeypatch.setattr(interruption, "_GRACE_SECONDS", 2 * SAFETY_SECONDS)
    ended = Event()
    with noting(ended.set):
        send()
        assert not ended.is_set()
        send(signal.SIGINT)
        assert ended.wait(SAFETY_SECONDS)
    monkeypatch.setattr(interruption, "_GRACE_SECONDS", 0.2)
    ended.clear()
    with noting(ended.set):
        send()
        assert ended.wait(SAFETY_SECONDS)


def test_the_last_step_of_a_publish_is_not_interrupted() -> None:
    """A signal before it stops the run, one during it is ignored."""
    with noting(never):
        with uninterrupted():
            send()
            check()
        assert not is_noted()
        send()
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            never()


def test_ctrl_c_is_postponed() -> None:
    """Noted or raised, it comes when the block is done."""
    done: list[bool] = []

    @postponed()
    def work() -> None:
        send(signal.SIGINT)
        done.append(is_noted())

    with pytest.raises(KeyboardInterrupt):
        work()
    with noting(never):
        work()
        assert is_noted()
    assert done == [False, False]


def test_a_run_that_is_interrupted_as_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    with noting(never):
        send()
        with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path / "tmp"):
            never()
    assert not list((tmp_path / "tmp").iterdir())


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    """A shell's background job does not hear it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noting(never):
            send(signal.SIGINT)
            assert not is_noted()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_of_another_is_left_alone() -> None:
    """`sigdir fold --every` and `sigdir serve` stop in their own way; their signals end nothing."""
    came: list[int] = []
    with noting(never):
        signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
        send()
        send()
        assert came == [signal.SIGTERM] * 2
        assert not is_noted()
