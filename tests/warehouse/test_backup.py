"""`sigdir backup`: a whole and consistent copy while others write, however it is cut short.

What was acknowledged before a backup began is looked for in the copy, with the id and time that it was
acknowledged with.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import sigdir
import sigdir.warehouse.backup as backup_module
from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
)
from sigdir.warehouse.backup import Report, backup
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import FileLock, make_folder
from sigdir.warehouse.identity import read_identity
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.verify import verify
from tests.conftest import import_files
from tests.serve.support import (
    SIGNATURES_PATH,
    post_text,
    request,
    serving,
    whole,
)
from tests.warehouse.support import (
    BACKUP_POINTS,
    assert_clean,
    assert_fails_in_one_line,
    assert_sequences_ahead,
    assert_sound,
    call_command,
    fold,
    places,
    publish,
    run_command,
    stage,
    staged_rows,
    texts,
    visible,
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Two imports, one with rejects, a fold, rows in staging, a mirror."""
    own = Paths(tmp_path / "warehouse")
    publish(own, ["a(uint256)", "b(uint256)"], ["A(uint256)"], rejects=["bad("])
    stage(own, SIGNATURES, "folded(uint256)")
    fold(own)
    publish(own, ["c(uint256)"])
    stage(own, SIGNATURES, "waiting(uint256)")
    stage(own, EVENT_SIGNATURES, "Waiting(uint256)")
    mirrored(own, b"spooled\n")
    return own


def mirrored(paths: Paths, spool: bytes) -> None:
    """What a mirror goes on from."""
    folder = paths.mirror("example.org-5d41402abc4b")
    make_folder(folder)
    (folder / "signatures.ndjson").write_bytes(spool)
    (folder / "signatures.json").write_text(json.dumps({"spooled": len(spool)}))


def mirrors(paths: Paths) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths.mirrors.glob("*/*.*json")}


@pytest.fixture
def copy(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "backups" / "copy")


def assert_same(paths: Paths, copy: Paths) -> None:
    """The copy has the same rows with the same ids and times, the same past, and is in good order."""
    here, there = visible(paths), visible(copy)
    for collection in COLLECTIONS:
        assert there[collection].equals(here[collection])
        assert_sound(there[collection])
    assert sigdir.open(copy.root).history() == sigdir.open(paths.root).history()
    rejects = "SELECT * FROM rejects ORDER BY ALL"
    assert sigdir.open(copy.root).sql(rejects).rows() == sigdir.open(paths.root).sql(rejects).rows()
    assert read_identity(copy) == read_identity(paths)
    assert mirrors(copy) == mirrors(paths)
    assert len(mirrors(copy)) == 2
    assert_clean(copy)


def assert_verified(folder: Path) -> dict[str, Any]:
    """``sigdir verify`` finds nothing."""
    result = call_command("verify", "--json", "--quiet", "--warehouse", folder)
    report: dict[str, Any] = json.loads(result.stdout)
    assert (result.exit_code, report["findings"]) == (0, [])
    return report


def add_more(paths: Paths, name: str) -> None:
    """An import, a fold and staged rows."""
    publish(paths, [f"{name}(uint256)"], rejects=[f"{name}("])
    stage(paths, SIGNATURES, f"{name}folded(uint256)")
    fold(paths)
    stage(paths, SIGNATURES, f"{name}waiting(uint256)")


# The copy.


@pytest.mark.parametrize("link", [False, True], ids=["", "linked"])
def test_a_backup_is_the_same_warehouse(paths: Paths, copy: Paths, link: bool) -> None:
    report = backup(paths, copy, link)
    assert (report.version, report.rows, report.staged) == (3, 5, 2)
    assert_same(paths, copy)
    assert_sequences_ahead(copy)
    assert (report.copied, report.linked) == ((0, 5) if link else (5, 0))


def test_a_linked_file_is_the_same_file(paths: Paths, copy: Paths) -> None:
    """Data files only: everything that is ever written again is copied."""
    backup(paths, copy, link=True)
    for file in copy.root.rglob("*"):
        if file.is_file():
            assert (file.stat().st_nlink > 1) == (file.suffix == ".parquet"), file


def test_old_versions_are_in_it(paths: Paths, copy: Paths) -> None:
    backup(paths, copy)
    for version in range(4):
        here, there = (sigdir.open(p.root, version).count(SIGNATURES) for p in (paths, copy))
        assert here == there


def test_the_next_backup_brings_what_is_new(paths: Paths, copy: Paths) -> None:
    first = backup(paths, copy)
    add_more(paths, "more")
    second = backup(paths, copy)
    assert second.present == first.copied
    assert (second.copied, second.log_entries) == (5, 2)
    assert_same(paths, copy)
    third = backup(paths, copy)
    assert (third.copied, third.log_entries, third.bytes) == (0, 0, 0)
    assert_same(paths, copy)


def test_nothing_but_staged_rows(tmp_path: Path, copy: Paths) -> None:
    own = Paths(tmp_path / "new")
    stage(own, SIGNATURES, "waiting(uint256)")
    report = backup(own, copy)
    assert (report.version, report.staged) == (-1, 1)
    assert staged_rows(copy, SIGNATURES) == staged_rows(own, SIGNATURES)


def test_a_restored_copy_goes_on(paths: Paths, copy: Paths) -> None:
    """It is a warehouse: it takes rows and imports, and what it hands out lies above what it holds."""
    backup(paths, copy)
    add_more(copy, "restored")
    seen = visible(copy)
    assert_sound(seen[SIGNATURES])
    assert {"restored(uint256)", "restoredwaiting(uint256)", "waiting(uint256)"} <= set(texts(seen[SIGNATURES]))
    assert_clean(copy)
    other = Paths(copy.root.with_name("of the copy"))
    backup(copy, other)
    assert_same(copy, other)


def test_a_checkpoint_comes_along(paths: Paths, copy: Paths) -> None:
    """With the entries before and behind it."""
    backup(paths, copy)
    add_more(paths, "more")
    DeltaTable(paths.table).create_checkpoint()
    add_more(paths, "evenmore")
    backup(paths, copy)
    assert copy.last_checkpoint.read_bytes() == paths.last_checkpoint.read_bytes()
    assert_same(paths, copy)


def test_the_command_tells_the_numbers(paths: Paths, copy: Paths) -> None:
    result = call_command("backup", copy.root, "--json", "--warehouse", paths.root)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["version"], told["rows"], told["staged"], told["copied"]) == (3, 5, 2, 5)
    result = call_command("backup", copy.root, "--warehouse", paths.root)
    assert result.exit_code == 0
    assert "version 3, 5 rows and 2 staged" in result.stdout
    assert "0 files copied (0.0 MB), 0 linked, 5 there already" in result.stdout


# Others write meanwhile.


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_rows_that_are_folded_while_it_copies_are_in_it_once(
    paths: Paths, copy: Paths, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """At the worst moments: just before the look at the log, and just behind it."""
    acknowledged = visible(paths)

    def folded_meanwhile(own: Paths) -> Snapshot:
        seen = read_snapshot(own)
        fold(own)
        return seen if moment == "behind" else read_snapshot(own)

    monkeypatch.setattr(backup_module, "read_snapshot", folded_meanwhile)
    backup(paths, copy)
    monkeypatch.undo()
    for collection in COLLECTIONS:
        held = visible(copy)[collection]
        assert places(held) == places(acknowledged[collection])
        assert_sound(held)
    assert_clean(copy)
    assert bool(staged_rows(copy, SIGNATURES)) == (moment == "behind")
    backup(paths, copy)
    assert_same(paths, copy)


def test_what_comes_while_files_are_copied_waits_for_the_next_one(paths: Paths, copy: Paths) -> None:
    before = visible(paths)
    done: list[int] = []

    def meanwhile(report: Report) -> None:
        if not done:
            done.append(report.copied)
            add_more(paths, "meanwhile")

    backup(paths, copy, progress=meanwhile)
    assert done
    after = visible(copy)
    for collection in COLLECTIONS:
        assert after[collection].equals(before[collection])
    assert_clean(copy)
    backup(paths, copy)
    assert_same(paths, copy)


class Client(threading.Thread):
    """POSTs one text after another and notes each that was acknowledged."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__()
        self.port, self.prefix = port, name
        self.ledger: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            answer = post_text(self.port, f"{self.prefix}{number}(uint256)")
            number += 1
            if answer.status == 201:
                self.ledger.append(answer.json())
            else:
                self.errors.append(f"{answer.status} {answer.body!r}")


@contextmanager
def posting(port: int) -> Iterator[list[Client]]:
    """Clients that POST until the end of the block."""
    clients = [Client(port, name) for name in ("ann", "bob", "cyd")]
    for client in clients:
        client.start()
    try:
        yield clients
    finally:
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join()


def test_a_backup_of_a_server_under_load_has_everything_that_was_acknowledged(tmp_path: Path, copy: Paths) -> None:
    """Rows are POSTed and folded, a file is imported, and backups go on into one folder."""
    warehouse = tmp_path / "warehouse"
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(f"imported{n}(uint256)" for n in range(20_000)))
    moments = []
    with serving(warehouse, fold_every=0.1) as server:
        with posting(server.port) as clients:
            for number in range(3):
                if number == 1:
                    import_files([lines], warehouse)
                ledger = [row for client in clients for row in list(client.ledger)]
                backup(Paths(warehouse), copy)
                moment = tmp_path / f"moment{number}"
                shutil.copytree(copy.root, moment)
                moments.append((moment, ledger))
        assert [client.errors for client in clients] == [[], [], []]
        all_rows = [row for client in clients for row in client.ledger]
        backup(Paths(warehouse), copy)
        end = whole(server.port)
        assert server.errors() == []
    moments.append((copy.root, all_rows))
    for folder, ledger in moments:
        report = assert_verified(folder)
        held = visible(Paths(folder))[SIGNATURES]
        assert_sound(held)
        assert report["rows"][SIGNATURES] + report["staged"][SIGNATURES] == held.num_rows
        ids = dict(zip(texts(held), held["id"].to_pylist(), strict=True))
        assert len(ids) == held.num_rows
        assert {row["text_signature"]: row["id"] for row in ledger}.items() <= ids.items()
    assert 0 < len(moments[2][1]) < len(all_rows)
    with serving(copy.root, workers=1) as restored:
        assert whole(restored.port) == end
        last = max(row["id"] for row in end)
        answer = post_text(restored.port, "restored(uint256)")
        assert answer.status == 201
        assert answer.json()["id"] > last
        assert request(restored.port, "GET", f"{SIGNATURES_PATH}{all_rows[-1]['id']}/").json() == all_rows[-1]


# Cut short.


@pytest.mark.parametrize("point", ["brought", "replaced"])
def test_a_first_backup_that_was_cut_short_says_so(paths: Paths, copy: Paths, point: str) -> None:
    """No command takes it for a warehouse; the next backup into it finishes it."""
    killed = run_command("backup", copy.root, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL
    for command in (["stats"], ["verify"], ["fold"], ["sql", "SELECT 1"], ["import", "--quiet", "samples"]):
        result = call_command(*command, "--warehouse", copy.root)
        assert_fails_in_one_line(result)
        assert f"{copy.root} is an unfinished backup" in result.stderr
    add_more(paths, "more")
    backup(paths, copy)
    assert_same(paths, copy)


@pytest.mark.parametrize("point", BACKUP_POINTS)
def test_a_later_backup_that_was_cut_short_opens(paths: Paths, copy: Paths, point: str) -> None:
    """At the state before, or at a later one: nothing is missing, nothing there twice."""
    backup(paths, copy)
    before = visible(copy)
    add_more(paths, "more")
    mirrored(paths, b"spooled\nand more\n")
    killed = run_command("backup", copy.root, "--warehouse", paths.root, SIGDIR_FAILPOINT=point)
    assert killed.returncode == -signal.SIGKILL
    kept = copy.root.with_name("kept")
    shutil.copytree(copy.root, kept)
    seen, now = visible(Paths(kept)), visible(paths)
    for collection in COLLECTIONS:
        assert_sound(seen[collection])
        assert places(before[collection]).items() <= places(seen[collection]).items()
        assert places(seen[collection]).items() <= places(now[collection]).items()
    assert (read_snapshot(Paths(kept)).version == 3) == (point == "brought")
    found = verify(Paths(kept), 1, "64MB", lambda *_: None, lambda _: None).findings
    # A log that is newer than staging is the one thing that shows.
    assert {finding.what for finding in found} == ({"sequence"} if point == "logged" else set())
    backup(paths, copy)
    assert_same(paths, copy)


# What is refused.


def assert_refused(paths: Paths, copy: Paths, why: str) -> None:
    """In one line, and nothing in the folder is changed."""
    before = {path: path.read_bytes() for path in copy.root.rglob("*") if path.is_file() and path != copy.lock}
    result = call_command("backup", copy.root, "--warehouse", paths.root)
    assert_fails_in_one_line(result)
    assert why in result.stderr
    assert before == {path: path.read_bytes() for path in copy.root.rglob("*") if path in before}


def test_a_folder_of_something_else_is_refused(paths: Paths, copy: Paths) -> None:
    make_folder(copy.root)
    (copy.root / "letter.txt").write_text("dear")
    assert_refused(paths, copy, f"{copy.root} is neither empty nor a backup")
    assert os.listdir(copy.root) == ["letter.txt"]


def test_another_warehouse_is_refused(paths: Paths, copy: Paths) -> None:
    publish(copy, ["other(uint256)"])
    assert_refused(paths, copy, f"{copy.root} is another warehouse")


def test_the_backup_of_another_warehouse_is_refused(paths: Paths, copy: Paths, tmp_path: Path) -> None:
    other = Paths(tmp_path / "other")
    publish(other, ["other(uint256)"])
    backup(other, copy)
    assert_refused(paths, copy, f"{copy.root} is another warehouse")


USES: dict[str, Callable[[Paths], object]] = {
    "a row was posted": lambda copy: stage(copy, SIGNATURES, "own(uint256)"),
    "rows were folded": fold,
    "something was imported": lambda copy: publish(copy, ["own(uint256)"]),
    "it lost its staging file": lambda copy: copy.staging.unlink(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize("goes_on", [False, True], ids=["", "so did the warehouse"])
def test_a_copy_that_was_written_to_is_refused(
    paths: Paths, copy: Paths, use: Callable[[Paths], object], goes_on: bool
) -> None:
    """It has rows of its own by then, which a backup would take away."""
    backup(paths, copy)
    use(copy)
    if goes_on:
        add_more(paths, "more")
    assert_refused(paths, copy, str(copy.root))


@pytest.mark.parametrize("where", [".", "below", ".."])
def test_a_folder_that_is_not_apart_is_refused(paths: Paths, where: str) -> None:
    assert_refused(paths, Paths(paths.root / where), "is not apart from")
    assert not (paths.root / "below").exists()


def test_where_no_warehouse_is_nothing_is_made(tmp_path: Path, copy: Paths) -> None:
    result = call_command("backup", copy.root, "--warehouse", tmp_path / "nowhere")
    assert_fails_in_one_line(result)
    assert "there is no such folder" in result.stderr
    (tmp_path / "nowhere").mkdir()
    result = call_command("backup", copy.root, "--warehouse", tmp_path / "nowhere")
    assert_fails_in_one_line(result)
    assert "there is no warehouse here" in result.stderr
    assert not copy.root.exists()
    assert list((tmp_path / "nowhere").iterdir()) == []


def test_a_second_backup_into_a_folder_is_told_who_is_at_it(paths: Paths, copy: Paths) -> None:
    backup(paths, copy)
    with FileLock(copy.lock):
        assert_refused(paths, copy, f"{copy.lock} is held by process {os.getpid()}")


def test_a_lost_data_file_is_named(paths: Paths, copy: Paths) -> None:
    """A copy without it would only look like one."""
    file = read_snapshot(paths).files[SIGNATURES][0].path
    file.unlink()
    assert_fails_in_one_line(result := call_command("backup", copy.root, "--warehouse", paths.root))
    assert str(file) in result.stderr
    with pytest.raises(UnreadableWarehouse, match="unfinished backup"):
        read_snapshot(copy)
