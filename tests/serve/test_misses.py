"""Counting what lookups do not find: by several workers, across a kill, and never more than the table holds."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import falcon.testing
import pytest

from sigdir.serve.core import misses
from sigdir.serve.core.budget import BudgetProcess
from sigdir.serve.core.misses import MissCounter, Misses, wanted
from sigdir.serve.core.process import limited_memory
from sigdir.serve.core.settings import Settings
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.pipeline.support import invoke
from tests.serve.support import (
    TRANSFER,
    Application,
    application,
    get,
    opened,
    post,
    post_text,
    selector,
    topic,
    until,
)

API = "/api/v1/wanted/"
HTML = {"Accept": "text/html"}
NEW = "nobodyKnows(uint256)"


def counts(app: Application) -> dict[str, int]:
    return {row["hash"]: row["count"] for row in get(app, API).json()["results"]}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    warehouse = import_lines(tmp_path / "warehouse", TRANSFER)
    Paths(warehouse).cache.mkdir(exist_ok=True)
    return warehouse


def test_every_kind_of_lookup_counts(warehouse: Path) -> None:
    """Lists, resolve, both dialects, files, pages and decoding, in whichever process, once a request; what is found counts nowhere,
    nor what the language has.
    """
    unknown, event, known = "0x00000001", topic("E()"), selector(TRANSFER)
    with (
        closing(BudgetProcess(Settings(warehouse, count_misses=True))) as process,
        application(warehouse, process, count_misses=True) as app,
    ):
        for path in (
            "/api/v1/signatures/?hex_signature={}",
            "/api/v1/signatures/?hex_signature__in={}",
            "/api/v1/resolve/?hash={}",
            "/signature-database/v1/lookup?function={}",
            "/api/v1/signatures?function={}",
            "/selector/{}/",
            "/api/v1/decode/?data={}",
            "/decode/?data={}" + 300 * "00",
        ):
            for hash in (unknown, known):
                get(app, path.format(hash))
        for path in ("/signatures/00000001", f"/signatures/{known[2:]}", f"/topic0/{event[2:]}", f"/topic/{event}/"):
            get(app, path)
        assert get(app, f"/api/v1/decode/?data=0x4e487b71{17:064x}").json()["candidates"]
        assert post(app, "/api/v1/resolve/", 4 * [unknown]).status == 200
        until(lambda: counts(app) == {unknown: 10, event: 2}, "ten lookups of a selector and two of a topic count")


def test_without_memory_for_a_thread_the_answer_stays(warehouse: Path) -> None:
    """The next request that misses has its miss written, and that of the first."""
    paths = Paths(warehouse)
    with opened(warehouse) as (reader, _):
        middleware = MissCounter(Misses(paths.misses), reader)
        req = falcon.testing.create_req()
        req.context.looked_up = [bytes(4)]
        before = threading.stack_size(1 << 30)  # no thread that ended has left one of this size
        try:
            with limited_memory(1 << 24):
                middleware.process_response(req, falcon.Response(), None, True)
        finally:
            threading.stack_size(before)
        middleware.process_response(req, falcon.Response(), None, True)
        found = until(lambda: wanted(paths.misses, reader.current()), "the counts to be written")
    assert [(one.hash, one.count) for one in found] == [("0x00000000", 2)]


def test_counts_are_of_all_workers(warehouse: Path) -> None:
    """Of two, each with counts of its own; a text that is POSTed leaves the list, the page and the command."""
    lookup = f"/api/v1/signatures/?hex_signature__in={selector(NEW)},0x00000002"
    with application(warehouse, count_misses=True) as app, application(warehouse, count_misses=True) as other:
        for _ in range(10):
            assert get(app, lookup).status == get(other, lookup).status == 200
        until(lambda: counts(app) == {selector(NEW): 20, "0x00000002": 20}, "the counts of both are written")
        assert get(app, f"{API}?page_size=1&page=2").json()["previous"].endswith(f"{API}?page=1&page_size=1")
        assert get(app, f"{API}?page=3").status == 404
        assert post_text(other, NEW).status == 201
        assert counts(app) == {"0x00000002": 20}
        assert 'href="/wanted/"' in get(app, "/status/", HTML).body.decode()
        page = get(app, "/wanted/", HTML).body.decode()
        assert ("0x00000002" in page, selector(NEW) in page, 'href="/submit/"' in page) == (True, False, True)
    found: list[dict[str, Any]] = json.loads(invoke(warehouse, "wanted", "--json").stdout)
    assert [(one["collection"], one["hash"], one["count"]) for one in found] == [("signatures", "0x00000002", 20)]
    with application(warehouse) as app:
        assert (get(app, API).status, get(app, "/wanted/").status) == (404, 404)


def test_the_table_is_bounded_and_its_error_too(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a flood of other hashes the most wanted stay, no count is too high, and none too low by more than misses / size."""
    monkeypatch.setattr(misses, "LARGEST", 50)
    paths, chance = Paths(warehouse), random.Random(7)
    heavy = [bytes([255, 0, 0, number]) for number in range(10)]
    true: Counter[bytes] = Counter()
    counting = Misses(paths.misses)
    for _ in range(400):
        asked = [chance.choice(heavy), *(chance.randbytes(4) for _ in range(3))]
        true.update(asked)
        counting.add(asked)
    counting.write()
    reader = Reader(paths)
    found = wanted(paths.misses, reader.current())
    reader.close()
    assert len(found) <= 50
    counted = {bytes.fromhex(one.hash[2:]): one.count for one in found}
    assert set(heavy) <= counted.keys()
    assert all(true[hash] - true.total() / 50 <= count <= true[hash] for hash, count in counted.items())


def test_many_begin_the_table_at_once(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """None of them is refused, and who reads a file that has no table yet finds nothing in it."""
    paths = Paths(warehouse)
    hashes = [bytes([0, 0, 0, number]) for number in range(8)]
    with opened(warehouse) as (reader, _), ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            paths.misses.unlink(missing_ok=True)
            paths.misses.touch()
            assert wanted(paths.misses, reader.current()) == []
            paths.misses.unlink()
            for counting, hash in zip(begun := [Misses(paths.misses) for _ in hashes], hashes, strict=True):
                counting.add([hash])
            list(threads.map(Misses.write, begun))
            assert {one.hash for one in wanted(paths.misses, reader.current())} == {
                f"0x{hash.hex()}" for hash in hashes
            }
    assert capfd.readouterr().err == ""


def test_a_damaged_table_costs_no_lookup(warehouse: Path) -> None:
    """Lookups answer, the list says which file is damaged, and the command refuses it in a line."""
    paths = Paths(warehouse)
    paths.misses.write_bytes(b"no database" * 500)
    with application(warehouse, count_misses=True) as app:
        assert get(app, "/api/v1/signatures/?hex_signature=0x00000001").json()["count"] == 0
        assert get(app, API).status == 503
    refused = invoke(warehouse, "wanted")
    assert refused.status == 2
    assert re.search("misses.sqlite: .*; it can be deleted", refused.stderr)
