"""What is counted: /metrics of all workers, the dead ones too, and lookups that find nothing."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import falcon.testing
import orjson
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sigdir.serve.app import create_app
from sigdir.serve.core import misses
from sigdir.serve.core.budget import BudgetProcess, Cost
from sigdir.serve.core.misses import Misses, wanted
from sigdir.serve.core.process import limited_memory
from sigdir.serve.core.settings import COUNTS_FOLDER, Settings
from sigdir.serve.metrics import Counts
from sigdir.serve.servers.startup import answer_costly
from sigdir.warehouse.index.view import TakesLong, short_only
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.files import mark
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, import_lines
from tests.pipeline.support import invoke
from tests.serve.support import (
    FORM,
    JSON,
    LISTS,
    SIGNATURES_PATH,
    TRANSFER,
    Application,
    Place,
    application,
    get,
    opened,
    post,
    post_text,
    request,
    selector,
    topic,
    until,
)

METRICS = "/metrics"
LOOKUP = f"{SIGNATURES_PATH}?hex_signature={selector('counted()')}"


Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(at: Place) -> Samples:
    """The samples of a scrape by name and labels, read by the client library."""
    answer = get(at, METRICS)
    assert (answer.status, answer.header("Cache-Control")) == (200, "no-store")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((f"sigdir_{name}", frozenset(labels.items())), 0)


def increase(before: Samples, after: Samples, name: str, **labels: str) -> float:
    return value(after, name, **labels) - value(before, name, **labels)


def requests(samples: Samples, status: int = 200, route: str = SIGNATURES_PATH, method: str = "GET") -> float:
    return value(samples, "http_requests_total", method=method, route=route, status=str(status))


@pytest.fixture(autouse=True)
def writes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The misses of this process are in the file a tenth of a second later."""
    monkeypatch.setattr(misses, "_SECONDS", 0.1)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """With a process for costly requests. ``test_live`` has the counts of several workers."""
    warehouse = tmp_path_factory.mktemp("metrics") / "warehouse"
    import_lines(warehouse, TRANSFER, "transfer(address,uint)", "no good(")
    settings = Settings(warehouse, count_misses=True, log_requests=False)
    with closing(BudgetProcess(settings, answer_costly)) as process, opened(warehouse) as storage:
        made = create_app(settings, *storage, Counts(), processes={Cost.SIZE: process})
        yield Application(warehouse, falcon.testing.TestClient(made))


def test_a_streamed_answer_counts_with_its_bytes(app: Application) -> None:
    """As soon as the server has closed it, here falcon's client."""
    for route in ("/api/v1/changes/", "/signature-database/v1/export"):
        before = scraped(app)
        size = len(get(app, route).body)
        assert increase(before, scraped(app), "http_response_bytes_total", method="GET", route=route) == size > 0


def test_a_look_for_another_thread_to_repeat_counts_once(app: Application) -> None:
    """The page is there, but packing it takes long. Of equal requests the first is a miss."""
    for number in range(3):
        assert post_text(app, f"wide{number}({'uint256,' * 5000}uint256)").status == 201
    before, path, packed = scraped(app), f"{SIGNATURES_PATH}?text_signature=wide", {"Accept-Encoding": "gzip"}
    assert get(app, path).status == 200
    with short_only(), pytest.raises(TakesLong):
        get(app, path, packed)
    assert get(app, path, packed).status == 200
    after = scraped(app)
    assert [increase(before, after, "page_cache_lookups_total", result=kind) for kind in ("hit", "miss")] == [1, 1]


def test_what_became_of_posts_is_counted(app: Application) -> None:
    """By route: stored, or the reason for which it was refused. A form that stored is answered by a redirect."""
    before = scraped(app)
    statuses = [post_text(app, text).status for text in ("outcome()", "outcome()", "f(uint7)")]
    assert statuses == [201, 400, 400]
    body = urlencode({"texts": "function formed()"}).encode()
    assert request(app, "POST", "/submit/store/", body, FORM).status == 303
    after = scraped(app)
    api = [(SIGNATURES_PATH, outcome) for outcome in ("stored", "duplicate", "bad_width")]
    for route, outcome in [*api, ("/submit/store/", "stored")]:
        assert increase(before, after, "posts_total", route=route, outcome=outcome) == 1


def test_how_decodings_ended_is_counted(app: Application) -> None:
    """Of each input, also where another process decodes: by the contract, a text, none that fits, no text."""
    before = scraped(app)
    text = "twoMeanings(uint256)"
    assert post_text(app, text).status == 201
    call, abi = selector(text), [{"type": "function", "name": "twoMeanings", "inputs": [{"type": "uint256"}]}]
    inputs = [
        {"data": call + 64 * "1", "abi": abi},
        {"data": call + 64 * "1", "abi": []},
        {"data": call},
        {"data": "0x00000000" + 600 * "0"},
    ]
    assert request(app, "POST", "/api/v1/decode/", json.dumps(inputs).encode(), JSON).status == 200
    assert get(app, f"/decode/?data={call + 64 * '1'}").status == 200
    after = scraped(app)
    for outcome, number in {"contract": 1, "text": 2, "none fits": 1, "unknown": 1}.items():
        assert increase(before, after, "decodings_total", outcome=outcome) == number


def test_a_dashboard_has_what_it_needs(app: Application) -> None:
    """The program, the process, the disk, the newest import; the documents name no other metrics.

    Their expressions parse.
    """
    mark(Paths(app.folder).last_fold)  # as a server does that folds by itself
    samples = scraped(app)
    outcomes = ("imported", "duplicate", "rejected")
    assert [value(samples, "last_import_candidates", outcome=one) for one in outcomes] == [1, 1, 1]
    assert time.time() - SAFETY_SECONDS < value(samples, "last_import_timestamp_seconds") <= time.time()
    assert 0 < value(samples, "disk_free_bytes") <= shutil.disk_usage(app.folder).total
    names = {name for name, _ in samples}
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "sigdir_build_info"} <= names
    assert not [name for name in names if name.endswith("_created")], "times when counts began, one for each count"
    folder = ROOT / "docs" / "operations"
    rules = yaml.safe_load((folder / "alerts.yaml").read_text())["groups"][0]["rules"]
    panels = orjson.loads((folder / "dashboard.json").read_bytes())["panels"]
    expressions = [rule["expr"] for rule in rules] + [one["expr"] for panel in panels for one in panel["targets"]]
    assert (len(rules), len({panel["id"] for panel in panels})) == (6, len(panels))
    for expression in expressions:
        promql_parser.parse(expression)
    named = {name for one in expressions for name in re.findall(r"\b(?:sigdir|process)_\w+", one)}
    assert named - names == {"sigdir_replica_lag_seconds"}  # of a replica alone


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_only_crashes_are_alerts(tmp_path: Path) -> None:
    """Starting a server again is none, whatever the number of its workers. A server that is away is one."""
    up, starts = "up{job='signatures',", "sigdir_worker_starts_total{"
    quiet = [(up, "1x30 0 1x29"), (starts, "5x20 4x40"), (starts, "4x20 2 4x40"), (starts, "_x20 1 16x40")]
    alerts = [(up, "1x57 0 0 0"), (starts, "4x5 4+1x55"), (starts, "2x5 2+0.4x55")]
    test = {
        "interval": "1m",
        "input_series": [
            {"series": f"{name}instance='{number}'}}", "values": samples}
            for number, (name, samples) in enumerate(alerts + quiet)
        ],
        "promql_expr_test": [
            {
                "expr": "max by (instance) (max_over_time(ALERTS{alertstate='firing'}[60m]))",
                "eval_time": "60m",
                "exp_samples": [{"labels": f"{{instance='{number}'}}", "value": 1} for number in range(len(alerts))],
            }
        ],
    }
    rules = str(ROOT / "docs" / "operations" / "alerts.yaml")
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": [rules], "tests": [test]}))
    command = ["promtool", "test", "rules", str(tmp_path / "test.yaml")]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_starting_worker_ends_no_scrape(app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of its counts is empty for a moment."""
    (tmp_path / "counter_1.db").touch()
    monkeypatch.setenv(COUNTS_FOLDER, str(tmp_path))
    assert "sigdir_build_info" in {name for name, _ in scraped(app)}


def test_a_damaged_log_ends_no_scrape(tmp_path: Path) -> None:
    """The newest import is left out; the rest is there."""
    with application(import_lines(tmp_path / "warehouse", "f(uint256)")) as app:
        entry = Paths(tmp_path / "warehouse").log_entry(1)
        whole = entry.read_bytes()
        entry.write_bytes(whole.replace(b"import", b"imp0rt"))
        damaged = get(app, METRICS)
        entry.write_bytes(whole)
        mended = get(app, METRICS)
    assert (damaged.status, mended.status) == (200, 200)
    assert b"sigdir_rows" in damaged.body
    assert [b"sigdir_last_import_candidates" in answer.body for answer in (damaged, mended)] == [False, True]


def test_the_state_of_the_warehouse_is_shown(tmp_path: Path) -> None:
    """Version, rows, staged rows, and how long folding has left a row behind."""
    warehouse = tmp_path / "new"
    with application(warehouse) as app:
        empty = scraped(app)
        assert value(empty, "warehouse_version") == -1
        assert value(empty, "fold_lag_seconds") == 0
        posted = time.time()
        for path in LISTS.values():
            assert post_text(app, "Staged(uint256)", path).status == 201
        staged = scraped(app)
        assert [value(staged, "staged_rows", collection=collection) for collection in LISTS] == [1, 1]
        assert 0 < value(staged, "fold_lag_seconds") <= time.time() - posted + 1
        fold(Paths(warehouse))
        folded = scraped(app)
        assert [value(folded, "staged_rows", collection=collection) for collection in LISTS] == [0, 0]
        assert [value(folded, "rows", collection=collection) for collection in LISTS] == [1, 1]
        assert value(folded, "warehouse_version") == get(app, "/readyz").json()["version"] >= 0
        assert value(folded, "fold_lag_seconds") == 0
        assert value(folded, "last_fold_timestamp_seconds") == 0
        mark(Paths(warehouse).last_fold)
        assert value(scraped(app), "last_fold_timestamp_seconds") >= int(posted)


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


def test_every_kind_of_lookup_counts(app: Application) -> None:
    """Lists, resolve, both dialects, files, pages and decoding, in whichever process, once a request; what is found counts nowhere,
    nor what the language has.
    """
    unknown, event, known, panic = "0x00000001", topic("E()"), selector(TRANSFER), "0x4e487b71"
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
    assert get(app, f"/api/v1/decode/?data={panic}{17:064x}").json()["candidates"]
    assert post(app, "/api/v1/resolve/", 4 * [unknown]).status == 200
    asked = (unknown, event, known, panic)
    until(lambda: [counts(app).get(hash) for hash in asked] == [10, 2, None, None], "ten lookups and two")


def test_without_memory_for_a_thread_the_answer_stays(warehouse: Path) -> None:
    """The next request that misses has its miss written, and that of the first."""
    lookup = f"{SIGNATURES_PATH}?hex_signature=0x00000000"
    with application(warehouse, count_misses=True) as app:
        before = threading.stack_size(1 << 30)  # no thread that ended has left one of this size
        try:
            with limited_memory(1 << 24):
                assert get(app, lookup).status == 200
        finally:
            threading.stack_size(before)
        assert get(app, lookup).status == 200
        assert until(lambda: counts(app), "the counts to be written") == {"0x00000000": 2}


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
    chance = random.Random(7)
    heavy = [bytes([255, 0, 0, number]) for number in range(10)]
    true: Counter[bytes] = Counter()
    counting = Misses(Paths(warehouse).misses)
    for _ in range(400):
        asked = [chance.choice(heavy), *(chance.randbytes(4) for _ in range(3))]
        true.update(asked)
        counting.add(asked)
    counting.write()
    with opened(warehouse) as (reader, _):
        found = wanted(Paths(warehouse).misses, reader.current())
    assert len(found) <= 50
    counted = {bytes.fromhex(one.hash[2:]): one.count for one in found}
    assert set(heavy) <= counted.keys()
    assert all(true[hash] - true.total() / 50 <= count <= true[hash] for hash, count in counted.items())


def test_many_begin_the_table_at_once(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """None of them is refused, and who reads a file that has no table yet finds nothing in it."""
    paths = Paths(warehouse)
    hashes = [bytes([0, 0, 0, number]) for number in range(8)]
    with opened(warehouse) as (reader, _), ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            paths.misses.unlink(missing_ok=True)
            paths.misses.touch()
            assert wanted(paths.misses, reader.current()) == []
            paths.misses.unlink()
            for counting, hash in zip(begun := [Misses(paths.misses) for _ in hashes], hashes, strict=True):
                counting.add([hash])
            list(threads.map(Misses.write, begun))
            assert {one.hash[2:] for one in wanted(paths.misses, reader.current())} == {hash.hex() for hash in hashes}
    assert capfd.readouterr().err == ""


def test_a_damaged_table_costs_no_lookup(warehouse: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Lookups answer, a line says that they are not counted, the list is 503, and the command refuses the file in a line."""
    paths = Paths(warehouse)
    paths.misses.write_bytes(b"no database" * 500)
    with application(warehouse, count_misses=True) as app:
        assert get(app, "/api/v1/signatures/?hex_signature=0x00000001").json()["count"] == 0
        assert get(app, API).status == 503
        until(lambda: "misses are not counted" in capfd.readouterr().err, "the line of the thread that writes")
    refused = invoke(warehouse, "wanted")
    assert refused.status == 2
    assert re.search("misses.sqlite: .*; it can be deleted", refused.stderr)
