"""Behind granian: who answers what is quick leads, who has answered lies down, and nobody stays down."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sigdir.serve.servers import gate
from sigdir.serve.servers.gate import Leader
from tests.conftest import SAFETY_SECONDS
from tests.serve.support import SIGNATURES_PATH, until

LONG = 3600.0


def scope(query: str = "page=2", method: str = "GET") -> dict[str, Any]:
    return {"REQUEST_METHOD": method, "PATH_INFO": SIGNATURES_PATH, "QUERY_STRING": query}


QUICK, SLOW = scope(), scope(method="POST")


class Work:
    """A request's work: tells that it has begun, ends when it may."""

    def __init__(self, *, held: bool) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        if not held:
            self.may_end.set()

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(SAFETY_SECONDS)


def answer(protocol: Callable[[], None], _: dict[str, Any]) -> None:
    protocol()


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Leader]:
    """One whose threads lie down until they are woken."""
    monkeypatch.setattr(gate, "_REST_SECONDS", LONG)
    leader = Leader(answer, answer)
    yield leader
    for _ in range(10):  # whoever still lies
        leader._resting.put(None)


@contextmanager
def at_work(leader: Leader, work: Work, asked: dict[str, Any]) -> Iterator[threading.Thread]:
    """A thread that has begun with a request."""
    thread = threading.Thread(target=leader, args=(work, asked), daemon=True)
    thread.start()
    assert work.begun.wait(SAFETY_SECONDS)
    try:
        yield thread
    finally:
        work.may_end.set()


def ends(thread: threading.Thread) -> bool:
    thread.join(SAFETY_SECONDS)
    return not thread.is_alive()


def lies(leader: Leader, threads: int) -> None:
    assert until(lambda: len(leader._beds) == threads, f"{threads} to lie down")


def test_who_has_answered_lies_down_while_another_leads(leader: Leader) -> None:
    """Of three quick requests at once two threads lie down, and the last to answer takes the next request."""
    first = Work(held=True)
    with at_work(leader, first, QUICK) as leading:
        with at_work(leader, Work(held=False), QUICK), at_work(leader, Work(held=False), QUICK):
            lies(leader, 2)
        first.may_end.set()
        assert ends(leading)
    leader(Work(held=False), QUICK)
    leader(Work(held=False), SLOW)


def test_who_begins_what_is_slow_wakes_another(leader: Leader) -> None:
    """A slow request gets one thread up for each, before its own work is done."""
    with at_work(leader, Work(held=True), QUICK), at_work(leader, Work(held=False), QUICK) as resting:
        lies(leader, 1)
        slow = Work(held=True)
        with at_work(leader, slow, SLOW):
            assert ends(resting)


def test_who_has_done_what_is_slow_stays_up(leader: Leader) -> None:
    """Where little is asked there are few threads, and the next request would wait for one to be woken."""
    first = Work(held=True)
    with at_work(leader, first, QUICK):
        leader(Work(held=False), SLOW)
        assert leader._beds == {}
    first.may_end.set()


def test_nobody_lies_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the one that leads never come back, the others get up by themselves."""
    monkeypatch.setattr(gate, "_REST_SECONDS", 0.01)
    leader = Leader(answer, answer)
    with at_work(leader, Work(held=True), QUICK):
        leader(Work(held=False), QUICK)
        leader(Work(held=False), SLOW)
    assert leader._beds == {}


@pytest.mark.parametrize("asked", [QUICK, SLOW])
def test_what_fails_leads_nobody(leader: Leader, asked: dict[str, Any]) -> None:
    """The error goes on to granian, which answers 500, and the next thread does not wait for this one."""

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        leader(fail, asked)
    leader(Work(held=False), QUICK)
    assert (leader._leading, leader._beds) == ({}, {})


def test_granian_still_has_the_name_that_is_replaced() -> None:
    """Without it all works, at a third of the speed and unseen."""
    pytest.importorskip("granian", reason="granian is not installed")
    assert callable(importlib.import_module("granian.server.mp")._wsgi_call_wrap)
