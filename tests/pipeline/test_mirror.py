"""Mirrors of our own server on a port, page by page and by its feed, and of servers that misbehave."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.pipeline.fetch import Fetcher, FetchError, RetryPolicy, checked_base
from sigdir.pipeline.mirror import MirrorReport, Options, Way, run_mirror
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.table.errors import Busy, UnreadableWarehouse
from sigdir.warehouse.table.files import FileLock
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.transfer.backup import backup
from tests.conftest import ROOT, SAFETY_SECONDS, environment, import_files, import_lines
from tests.pipeline.directories import EAGER, EMPTY, NOT_THERE, Reply, feed_of, pages_of, reply, row, scripted
from tests.pipeline.support import invoke, keccak256, texts, write_files
from tests.processes import Command
from tests.serve.support import EVENTS_PATH, HOST, SIGNATURES_PATH, Server, post_text, serving, until, whole
from tests.signatures.assembly import dispatcher, event_code


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def served(server: Server, collection: Collection = SIGNATURES) -> list[str]:
    return [row["text_signature"] for row in whole(server.port, collection)]


def url_of(server: Server) -> str:
    return f"http://{HOST}:{server.port}"


def mirror(url: str, warehouse: Path, **options: Any) -> MirrorReport:
    return run_mirror(Options(url, warehouse, policy=options.pop("policy", EAGER), **options), Reporter())


def state_of(warehouse: Path, collection: Collection = SIGNATURES) -> dict[str, Any]:
    """What a mirror notes of how far it is; nothing before its first note."""
    files = list(warehouse.glob(f"mirrors/*/{collection}.json"))
    state: dict[str, Any] = json.loads(files[0].read_bytes()) if files else {}
    return state


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests: they add to it, and compare with what it has then.

    Twelve pages of functions in two versions, two of events.
    """
    folder = tmp_path_factory.mktemp("mirror")
    import_lines(folder / "original", *(f"first{number}(uint256)" for number in range(700)))
    events = (f"event E{number}(address)" for number in range(130))
    import_lines(folder / "original", *(f"second{number}()" for number in range(450)), *events)
    with serving(folder / "original", workers=1) as server:
        yield server


@pytest.fixture(params=["pages", "changes"])
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


# Our own server.


def same_rows(warehouse: Path, server: Server) -> bool:
    """Whether the copy has the rows of the original, in the same order."""
    return all(texts(warehouse, collection) == served(server, collection) for collection in COLLECTIONS)


def test_a_copy_has_the_same_rows_in_the_same_order_and_stays_so(original: Server, way: Way, warehouse: Path) -> None:
    """A run that finds nothing publishes nothing, and one after POSTs brings those."""
    report = mirror(url_of(original), warehouse, way=way)
    assert same_rows(warehouse, original)
    for collection in COLLECTIONS:
        assert report.fetched[collection] == len(served(original, collection)) >= 130
    assert [entry["source"] for entry in sigdir.open(warehouse).history()] == [url_of(original)] * 2

    version = sigdir.open(warehouse).version
    again = mirror(url_of(original), warehouse, way=way)
    assert (again.requests, again.fetched.total(), again.version) == (2, 0, None)
    assert sigdir.open(warehouse).version == version

    for number in range(3):
        assert post_text(original.port, f"{way}{number}()").status == 201
    assert post_text(original.port, f"{way}(bytes)", EVENTS_PATH).status == 201
    assert mirror(url_of(original), warehouse, way=way).fetched == {SIGNATURES: 3, EVENT_SIGNATURES: 1}
    assert same_rows(warehouse, original)


@pytest.mark.long
def test_a_copy_has_the_evidence_as_the_word_of_its_original(warehouse: Path, tmp_path: Path) -> None:
    """Kind, declaration and contracts, under the original's address; what bytecode proved there is declared here."""
    function, event = "function f(uint256 amount)", "event E(address indexed from)"
    runtime = dispatcher([keccak256("f(uint256)")[:4]], event_code(keccak256("E(address)"))).hex()
    artifact = {"contractName": "C", "abi": [function, event, "error Bad()"], "deployedBytecode": runtime}
    other = artifact | {"contractName": "D", "deployedBytecode": "0x"}
    written = {"C.json": json.dumps(artifact), "D.json": json.dumps(other), "list.txt": "listed()\nf(uint256)"}
    import_files(write_files(tmp_path, dict(written)), tmp_path / "original")
    known = "SELECT text_signature, kinds, witness, contracts, declaration, sources FROM evidence ORDER BY ALL"
    of_original = sigdir.open(tmp_path / "original").sql(known).rows()
    assert ("f(uint256)", ["function"], "compiled", 2, function, 3) in of_original
    with serving(tmp_path / "original", workers=1) as server:
        url = url_of(server)
        mirror(url, warehouse)
        version = sigdir.open(warehouse).version
        assert mirror(url, warehouse).version is None
        mirror(url, warehouse, restart=True)
    wanted = [
        (text, kinds, witness.replace("compiled", "declared"), contracts, declaration, 1)
        for text, kinds, witness, contracts, declaration, _ in of_original
    ]
    for as_of in (version, None):  # fetching all of it again says nothing new
        copy = sigdir.open(warehouse, as_of=as_of)
        assert copy.sql(known).rows() == wanted
        assert copy.sql("SELECT DISTINCT source FROM sightings").rows() == [(url,)]


def test_the_command(original: Server, warehouse: Path) -> None:
    """It takes the feed where there is one, and reports each collection."""
    arguments = ("mirror", url_of(original), "--rate", "1000", "--collection", EVENT_SIGNATURES)
    done = invoke(warehouse, *arguments, "--json")
    assert done.status == 0, done.stderr
    report = json.loads(done.stdout)
    rows = len(served(original, EVENT_SIGNATURES))
    counts = {"fetched": rows, "read": rows, "imported": rows, "duplicate": 0, "rejected": 0}
    assert (report["way"], report["collections"]) == ("changes", {EVENT_SIGNATURES: counts})
    told = invoke(warehouse, *arguments)
    assert b"event-signatures: 0 fetched, 0 imported, 0 duplicate, 0 rejected" in told.stdout
    assert texts(warehouse, EVENT_SIGNATURES) == served(original, EVENT_SIGNATURES)


@contextmanager
def started(server: Server, warehouse: Path, way: Way, rate: float, fault: str = "") -> Iterator[Command]:
    arguments = ["mirror", url_of(server), "--way", way, "--rate", str(rate), "--quiet"]
    variables = environment(warehouse) | ({"SIGDIR_FAILPOINT": fault} if fault else {})
    process = Command(arguments, ROOT, variables, stdout=Path(os.devnull), stderr=Path(os.devnull))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_killed_in_the_middle_of_a_walk_it_goes_on_and_misses_nothing(original: Server, warehouse: Path) -> None:
    """A row comes in between the runs. The second asks for the last page again, and the rest."""
    with started(original, warehouse, "pages", 5) as process:  # the whole walk would take 2 s
        until(lambda: state_of(warehouse).get("pages", 0) >= 2, "two pages")
        process.kill()
        process.wait(SAFETY_SECONDS)
    pages = state_of(warehouse)["pages"]
    assert sigdir.open(warehouse).version == -1
    post_text(original.port, "late(bool)")
    report = mirror(url_of(original), warehouse, way="pages", collections=(SIGNATURES,))
    found = texts(warehouse)
    assert found == served(original)
    assert report.requests == -(-len(found) // 100) - pages + 1


@pytest.mark.long
def test_killed_at_any_step_it_goes_on(original: Server, way: Way, warehouse: Path) -> None:
    """By kill -9 after it spooled, imported or committed; the last run has all rows."""
    for fault in ("spooled", "imported", "committed", "spooled"):
        with started(original, warehouse, way, 1000, fault) as process:
            process.wait(SAFETY_SECONDS)
            assert process.returncode == -signal.SIGKILL, fault
    mirror(url_of(original), warehouse, way=way)
    assert same_rows(warehouse, original)


@pytest.mark.long
def test_what_a_mirror_left_is_checked_and_cleared(warehouse: Path) -> None:
    """`sigdir verify` reads each state and its spool; `sigdir vacuum` takes what nothing goes on from."""
    rows = [row(number, f"f{number}()") for number in range(1, 6)]
    with scripted(lambda path, query: pages_of(rows, path, query)) as server:
        mirror(server.url, warehouse, way="pages")
    assert verified(warehouse) == []
    (folder,) = warehouse.glob("mirrors/127.0.0.1-*")
    state, spool = folder / "signatures.json", folder / "signatures.ndjson"
    whole = state.read_text()
    other = folder.with_name("elsewhere-0123")
    for broken, content, why in (
        ("{", "", "is broken; start over with --restart"),
        ('"spooled": 9', "", "counts 9 bytes of a spool that has 0; the next run starts over"),
        ('"spooled": 4', "half of a line\n", "counts 4 bytes of its spool, which end inside a line"),
    ):
        state.write_text(broken if broken == "{" else whole.replace('"spooled": 0', broken))
        spool.write_text(content)
        assert [(one["what"], one["why"]) for one in verified(warehouse)] == [("mirror", why)]
    state.write_text(whole)
    folder.rename(other)
    assert {one["why"] for one in verified(warehouse)} == {f"belongs to {server.url}, whose folder is {folder.name}"}
    other.rename(folder)

    left = [folder / "signatures.json.old", folder / ".signatures.json.1234.part"]
    nothing = folder.with_name("nothing-0123")
    nothing.mkdir()
    for file in (*left, nothing / "lock"):
        file.touch()
    for changed in (folder, nothing):
        assert vacuumed(warehouse) == []  # it may be starting
        os.utime(changed, (0, 0))
        if changed == folder:
            with FileLock(folder / "lock"):
                assert vacuumed(warehouse) == []
            assert vacuumed(warehouse) == sorted(map(str, left))
    assert vacuumed(warehouse) == [str(nothing)]
    assert sorted(path.name for path in (warehouse / "mirrors").rglob("*")) == sorted(
        [folder.name, "lock", *(f"{c}.{ending}" for c in COLLECTIONS for ending in ("json", "ndjson"))]
    )


def verified(warehouse: Path) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(invoke(warehouse, "verify", "--quiet", "--json").stdout)["findings"]
    return findings


def vacuumed(warehouse: Path) -> list[str]:
    """What of mirrors went."""
    removed = json.loads(invoke(warehouse, "vacuum", "--json").stdout)["removed"]
    return [one["path"] for one in removed if one["kind"] == "mirror"]


def test_a_restored_backup_goes_on_mirroring(warehouse: Path, tmp_path: Path) -> None:
    """From where it was: what was spooled is not fetched again, what was imported neither."""
    rows = [row(number, f"f{number}()") for number in range(1, 12)]
    is_broken = True

    def script(path: str, query: dict[str, str]) -> Reply:
        return reply({}, 400) if is_broken and query.get("after") == "s4" else feed_of(rows, path, query, most=4)

    def asked_by(copy: Path) -> list[str]:
        server.asked.clear()
        mirror(server.url, copy, way="changes", collections=(SIGNATURES,))
        return [path.partition("after=")[2] for path in server.asked if "after=" in path]

    with scripted(script) as server:
        with pytest.raises(FetchError, match="400"):
            asked_by(warehouse)
        import_files(write_files(tmp_path, {"lines.txt": "there()"}), warehouse)
        backup(Paths(warehouse), Paths(tmp_path / "copy"))
        is_broken = False
        assert (
            asked_by(warehouse)
            == asked_by(tmp_path / "copy")
            == ["s4&limit=20000&evidence=1", "s8&limit=20000&evidence=1"]
        )
        assert texts(tmp_path / "copy") == texts(warehouse) == ["there()", *(f"f{number}()" for number in range(1, 12))]
        backup(Paths(warehouse), Paths(tmp_path / "second"))
        assert len(asked_by(tmp_path / "second")) == 1


# Servers that are told what to answer.


TEN = [row(number + 1, f"f{number}()") for number in range(10)]


def test_answers_that_stop_no_walk(warehouse: Path) -> None:
    """Busy and cut ones are asked for again, redirects on the host are followed, a page that went ends the walk."""
    faults = iter([
        reply({}, 429, {"Retry-After": "0"}), reply({}, 503, {"Retry-After": "soon"}), None,
        (200, {"Content-Length": "5000"}, b'{"count"'), None, reply({}, 500),
        (200, {"Transfer-Encoding": "chunked", "Content-Length": ""}, b"ff\r\n{"),
    ])  # fmt: skip

    def script(path: str, query: dict[str, str]) -> Reply:
        if path.startswith("/api/"):
            where = f"/moved{path}?" + "&".join(f"{name}={value}" for name, value in query.items())
            return 302, {"Location": where}, b"x" * 100_000
        path = path.removeprefix("/moved")
        fault = next(faults, None) if path == SIGNATURES_PATH else None
        return fault or (NOT_THERE if query.get("page") == "4" else pages_of(TEN, path, query))

    with scripted(script) as server:
        mirror(server.url, warehouse)
    assert next(faults, "") == ""
    assert texts(warehouse) == [f"f{number}()" for number in range(6)]


@pytest.mark.parametrize("then", ["goes on", "lost rows", "another way"])
def test_a_run_that_gave_up_keeps_what_it_has(warehouse: Path, then: str) -> None:
    """After so many tries. The next one asks for the last page again, and for all if its spool lost rows.

    What a walk has spooled is imported whichever way the next run goes.
    """
    broken = threading.Event()
    broken.set()

    def script(path: str, query: dict[str, str]) -> Reply:
        if broken.is_set():
            return reply({}, 502) if query.get("page") == "4" else pages_of(TEN, path, query)
        return feed_of(TEN[:2], path, query) if then == "another way" else pages_of(TEN, path, query)

    with scripted(script) as server:
        with pytest.raises(FetchError, match=r"page=4: 502 Bad Gateway, 3 times$"):
            mirror(server.url, warehouse)
        assert server.asked[-4:] == [f"{SIGNATURES_PATH}?ordering=created_at&page={page}" for page in (3, 4, 4, 4)]
        broken.clear()
        server.asked.clear()
        if then == "lost rows":
            (spool,) = warehouse.glob("mirrors/*/signatures.ndjson")
            os.truncate(spool, 100)
        if then == "another way":
            assert mirror(server.url, warehouse).way == "changes"
        else:
            mirror(server.url, warehouse, way="pages", collections=(SIGNATURES,))
            assert "".join(path[-1] for path in server.asked) == ("12345" if then == "lost rows" else "345")
    assert sorted(texts(warehouse)) == [f"f{number}()" for number in range(6 if then == "another way" else 10)]


def test_rows_that_are_no_signatures_are_counted_and_kept_as_rejects(warehouse: Path) -> None:
    """Texts that are none, hashes of other texts, members of another type."""
    rows = [
        row(1, "good()"), row(2, "bad(uint7)"), {"id": 3, "text_signature": "other()", "hex_signature": "0x00000000"},
        {"id": 4, "text_signature": None, "hex_signature": ["x"]}, {"id": 5}, row(6, "also(bool)"),
    ]  # fmt: skip
    with scripted(lambda path, query: pages_of(rows, path, query)) as server:
        report = mirror(server.url, warehouse)
    assert texts(warehouse) == ["good()", "also(bool)"]
    assert report.totals[SIGNATURES] == {"read": 6, "imported": 2, "duplicate": 0, "rejected": 4}
    reasons = sigdir.open(warehouse).sql("SELECT reason FROM rejects ORDER BY line").rows()
    assert [reason for (reason,) in reasons] == ["bad_width", "hash_mismatch", "bad_entry", "bad_entry"]


FEED = [row(number * 3 + 1, f"g{number}(bytes)") for number in range(50)]


class Stages(Reporter):
    """Notes the units of each stage: those it should have, and those that were done."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, int, int]] = []

    def stage(self, name: str, total: int) -> None:
        self.noted.append((name, total, 0))

    def advance(self, units: int) -> None:
        name, total, done = self.noted[-1]
        self.noted[-1] = name, total, done + units


def test_a_feed_is_followed_to_its_end_and_from_there(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long one is imported in parts; its progress has a total, also after an import in the middle.

    What is too large for an answer is asked for in smaller parts.
    """
    monkeypatch.setattr("sigdir.pipeline.mirror.IMPORT_BYTES", 1_500)
    monkeypatch.setattr("sigdir.pipeline.mirror.CHANGES_BYTES", 500)
    rows = FEED[:30]
    with scripted(lambda path, query: feed_of(rows, path, query, 7)) as server:
        for total, more in ((30, FEED[30:]), (20, [])):
            stages = Stages()
            server.asked.clear()
            report = run_mirror(Options(server.url, warehouse, (SIGNATURES,), policy=EAGER), stages)
            assert (report.way, report.fetched[SIGNATURES]) == ("changes", total)
            assert ("after=s58" in server.asked[1]) == (total == 20)
            ours = [(units, done) for name, units, done in stages.noted if name == SIGNATURES][1:]
            assert {units for units, _ in ours} == {total}
            assert ours[-1][1] == 30 - 10 * (total != 30)
            rows += more
    assert texts(warehouse) == [row["text_signature"] for row in FEED]
    assert len(sigdir.open(warehouse).history()) > 2


def test_one_mirror_of_a_directory_at_a_time_by_a_state_that_can_be_read(warehouse: Path) -> None:
    """A second one is told who holds the lock, a broken state is one line; ``restart`` fetches everything again."""
    with scripted(lambda path, query: feed_of(FEED, path, query)) as server:
        mirror(server.url, warehouse)
        (lock,) = warehouse.glob("mirrors/*/lock")
        with FileLock(lock):
            with pytest.raises(Busy):
                mirror(server.url, warehouse)
            done = invoke(warehouse, "mirror", server.url)
        assert (done.status, f"is held by process {os.getpid()}" in done.stderr) == (3, True)
        state = lock.with_name("signatures.json")
        for content in ("", "[]", '{"url": 3}', '{"url": "http://127.0.0.1"}'):
            state.write_text(content)
            with pytest.raises(UnreadableWarehouse, match=r"signatures\.json"):
                mirror(server.url, warehouse)
        again = mirror(server.url, warehouse, restart=True)
    assert again.fetched[SIGNATURES] == again.totals[SIGNATURES]["duplicate"] == len(FEED)


def test_nobody_answers(warehouse: Path) -> None:
    """It is said in one line, and silence is not waited for longer than said."""
    done = invoke(warehouse, "mirror", "http://127.0.0.1:1", "--tries", "2", "--quiet")
    assert (done.status, done.stderr.count("\n"), "Connection refused, 2 times\n" in done.stderr) == (2, 1, True)
    quiet = threading.Event()

    def script(*_: Any) -> Reply:
        quiet.wait(SAFETY_SECONDS)
        return EMPTY

    with scripted(script) as server:
        with pytest.raises(FetchError, match=r"no answer in 0\.1 s, 2 times"):
            Fetcher(RetryPolicy(rate=1e6, tries=2, delay=0.01, timeout=0.1)).get(server.url, 1000)
        quiet.set()


def test_requests_keep_their_distance_and_retries_grow_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's: sleeping moves it, and nothing else does."""
    now = [100.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("sigdir.pipeline.fetch.time.sleep", sleep)
    monkeypatch.setattr("sigdir.pipeline.fetch.time.monotonic", lambda: now[0])
    answers = iter([EMPTY, EMPTY, reply({}, 503), reply({}, 429, {"Retry-After": "50"}), reply({}, 503), EMPTY])
    with scripted(lambda *_: next(answers)) as server:
        fetcher = Fetcher(RetryPolicy(rate=2))
        for _ in range(3):
            fetcher.get(server.url, 1000)
    assert [seconds for seconds in slept if seconds] == [0.5, 0.5, 1, 50, 4]


def test_what_is_no_directory() -> None:
    """It is refused in one line without the secret that it may have; a directory may have a port and a path."""
    for url in (
        "", "4byte.directory", "ftp://a/", "file:///etc/passwd", "http://", "http://a:x/", "http://a:99999/",
        "http://me:secret@a/", "http://a/?x=1", "http://a/#x", "http://[::1/", "http://a b/", "http://a\n/",
    ):  # fmt: skip
        with pytest.raises(FetchError) as error:
            checked_base(url)
        assert "\n" not in str(error.value)
        assert "secret" not in str(error.value)
    assert checked_base("https://a.example:8443/mount/") == "https://a.example:8443/mount"
