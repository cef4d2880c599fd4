"""A warehouse in a store: published into, read, pushed, swept, and failing, through its working copies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable

import sigdir
from sigdir.cli.spark_session import open_session
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import Options, run_import
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse.log.manifest import history, sources_paths
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.writer import Staging, make_warehouse
from sigdir.warehouse.table import failpoints, stores
from sigdir.warehouse.table.errors import NoWarehouse, UnreadableWarehouse
from sigdir.warehouse.table.identity import FORMAT
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import SWEEP_AGE, WorkingCopy, working_copy
from sigdir.warehouse.table.stores import StoreError, open_store
from sigdir.warehouse.table.suppressed import sealed_version, unsealed
from sigdir.warehouse.transfer import working_copy as copies
from sigdir.warehouse.transfer.backup import push
from sigdir.warehouse.transfer.working_copy import pull
from tests.conftest import import_files
from tests.examples import long_except
from tests.faulty_store import BUCKET, KEY, S3, SECRET, Fault
from tests.torture.points import PLACE_POINTS
from tests.warehouse.support import (
    assert_clean,
    assert_fails_in_one_line,
    assert_sound,
    call_command,
    content_of,
    flip,
    names,
    publish,
    run_command,
    sightings,
    stage,
    table_of,
    texts,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working copies lie in a folder of the test."""
    monkeypatch.setenv("SIGDIR_STORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that is the store."""
    return tmp_path / "store"


@pytest.fixture
def url(folder: Path) -> str:
    return f"file://{folder}"


@pytest.fixture
def one(tmp_path: Path, url: str) -> Paths:
    """The copy of the machine that made the warehouse."""
    return copy_in(url, tmp_path / "one")


@pytest.fixture
def in_s3(tmp_path: Path, s3: S3) -> str:
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fails is asked again once, which saves seconds where it fails all the time."""
    soon = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=5), "base": 2}
    monkeypatch.setattr(stores, "_RETRY", stores._RETRY | {"max_retries": 1, "backoff": soon})


def copy_in(url: str, folder: Path) -> Paths:
    """A working copy as another machine would have it, brought up to date; it makes the warehouse."""
    paths = working_copy(url, folder)
    pull(paths, make=True)
    return paths


def texts_of(paths: Paths) -> list[str]:
    table = table_of(read_snapshot(paths), SIGNATURES)
    assert_sound(table)
    return texts(table)


def seen_in(url: str) -> list[str]:
    """The texts of a store's newest version, as a machine sees them that has no copy yet."""
    fresh = working_copy(url, Path(os.environ["SIGDIR_STORE_CACHE"]) / f"fresh-{time.monotonic_ns()}")
    pull(fresh)
    return texts_of(fresh)


def imported(given: str | Path, root: Path) -> dict[str, Any]:
    """The report of an import without what takes time."""
    report = run_import(Options([str(given)], root), Reporter()).to_dict()
    return {name: said for name, said in report.items() if name not in ("seconds", "stages", "rows_per_second")}


def timeless(paths: Paths) -> list[dict[str, Any]]:
    """All rows without their times."""
    return [row | {"created_at": 0} for rows in content_of(paths).values() for row in rows]


def test_an_import_into_a_store_is_the_local_one(tmp_path: Path, url: str, one: Paths) -> None:
    """Rows, ids, evidence, rejects and counts are those of the same imports into a folder."""
    (tmp_path / "a.txt").write_text("f(uint)\nf(uint256)\nevent E(uint)\nbad(\ng(address to)\n")
    (tmp_path / "b.txt").write_text("g(address)\nh()\nbad)\n")
    local = Paths(tmp_path / "local")
    for file in (tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "b.txt"):
        assert imported(file, local.root) == imported(file, one.root)
    fresh = copy_in(url, tmp_path / "two")
    assert timeless(local) == timeless(fresh)
    for collection in COLLECTIONS:
        assert sightings(read_snapshot(local), collection) == sightings(read_snapshot(fresh), collection)
    query = "SELECT text, reason, file, line FROM rejects ORDER BY ALL"
    assert sigdir.open(local.root).sql(query).rows() == sigdir.open(url).sql(query).rows()
    assert_clean(fresh)


def test_every_command_reads_a_store(tmp_path: Path, url: str) -> None:
    """The commands bring the copy up to date and answer as for a folder; a store without a warehouse is named."""
    assert_fails_in_one_line(call_command("stats", "--warehouse", url))
    (tmp_path / "in.txt").write_text("dry(uint)\n")
    dry = call_command("import", tmp_path / "in.txt", "--dry-run", "--warehouse", url)
    assert (dry.exit_code, open_store(url).list()) == (0, []), dry.output
    copy = copy_in(url, tmp_path / "one")
    for number in range(3):
        publish(copy, names(f"n{number}x", 3), rejects=["bad("] if number == 0 else ())
    for arguments in (
        ["stats"], ["history"], ["rejects"], ["verify", "-q"], ["sql", "FROM signatures"],
        ["export", "4byte.json", str(tmp_path / "out.json"), "-q"], ["report", str(tmp_path / "out.html"), "-q"],
        ["suppress", "function n0x1(uint256)"], ["suppress"], ["backup", str(tmp_path / "backup"), "-q"],
        ["vacuum", "--dry-run"], ["fold"],
    ):  # fmt: skip
        result = call_command(*arguments, "--warehouse", url)
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        assert url in result.output or arguments[0] not in ("stats", "verify")
    assert "n0x1" in open_store(url).read("suppressed.txt").decode()
    assert content_of(Paths(tmp_path / "backup"))[SIGNATURES] == content_of(copy)[SIGNATURES]
    result = call_command("sql", "SELECT count(*) AS n FROM signatures", "--warehouse", url, "--as-of", "1", "--json")
    assert json.loads(result.stdout) == [{"n": 3}]


def test_vacuum_removes_what_was_replaced(tmp_path: Path, url: str, one: Paths) -> None:
    """Data and evidence, after the window; the newest version and what others may commit stay."""
    for number in range(3):
        publish(one, names(f"n{number}x", 3))
    assert call_command("compact", "--warehouse", url).exit_code == 0
    other = copy_in(url, tmp_path / "two")
    before = content_of(other)
    assert (read_snapshot(other).version, len(other.data_files())) == (4, 1)
    assert before == content_of(one)
    pull(other, as_of=2)
    assert len(content_of(other, 2)[SIGNATURES]) == 6
    stray = "table/collection=signatures/0000000000000001-abcdef01-0001.parquet"
    store = open_store(url)
    store.put(stray, b"of a run that is uploading")
    kept = {each.name for each in store.list()}
    vacuum = ("vacuum", "--keep", "0s", "--json", "--warehouse", url)
    dry = call_command(*vacuum, "--dry-run")
    assert {each.name for each in store.list()} == kept
    report = json.loads(call_command(*vacuum).stdout)
    assert report["removed"] == json.loads(dry.stdout)["removed"]
    assert [waste["kind"] for waste in report["removed"]].count("data") == 3
    assert {waste["kind"] for waste in report["removed"]} == {"data", "evidence"}
    assert (report["oldest_version"], report["newest_version"]) == (4, 4)
    fresh = copy_in(url, tmp_path / "three")
    assert content_of(fresh) == before
    assert_clean(fresh)
    assert data_files(url) == named_files(fresh) | {stray}
    assert call_command(*vacuum).exit_code == 0
    pull(fresh, as_of=1)
    with pytest.raises(UnreadableWarehouse, match="vacuumed"):
        read_snapshot(fresh, 1)
    publish(one, ["later()"])
    assert store.find(stray), "another machine may be about to commit the run"


def test_many_importers_lose_nothing(tmp_path: Path, url: str) -> None:
    """Four machines make one warehouse and import at once: it has one id, each text once and every import."""
    machines = [working_copy(url, tmp_path / f"machine{number}") for number in range(4)]
    with ThreadPoolExecutor(len(machines)) as pool:
        list(pool.map(lambda paths: pull(paths, make=True), machines))
        assert len({json.loads(paths.identity.read_bytes())["id"] for paths in machines}) == 1
        for number, paths in enumerate(machines):
            texts = (f"t{n}()" for n in range(number * 10, number * 10 + 20))
            paths.root.with_suffix(".txt").write_text("\n".join(texts))
        list(pool.map(lambda paths: import_files([paths.root.with_suffix(".txt")], paths.root), machines))
    assert sorted(seen_in(url)) == sorted(f"t{n}()" for n in range(50))
    assert len(history(copy_in(url, tmp_path / "fresh"))) == 4


def killed(cache: Path, point: str, *arguments: str | Path) -> None:
    """Run a command until it reaches the failpoint."""
    done = run_command(*arguments, SIGDIR_FAILPOINT=point, SIGDIR_STORE_CACHE=str(cache))
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("point", long_except({"uploaded"}, PLACE_POINTS))
def test_an_import_is_killed(tmp_path: Path, folder: Path, url: str, one: Paths, cache: Path, point: str) -> None:
    """It is there as a whole or not at all; the next one here removes what was left, one elsewhere once it is a day old."""
    publish(one, ["known(uint256)"])
    (tmp_path / "in.txt").write_text("a(uint)\nb(uint)\n")
    (tmp_path / "more.txt").write_text("c(uint)\n")
    arguments = ("import", tmp_path / "in.txt", "--warehouse", url, "-q")
    killed(cache, point, *arguments)
    expected = ["known(uint256)", "a(uint256)", "b(uint256)"]
    assert seen_in(url) == (expected if point == "created" else expected[:1])
    killed(cache, "read" if point == "created" else "begun", *arguments)  # it forgets no dead run
    again = call_command(*arguments)
    assert again.exit_code == 0, again.stderr
    assert seen_in(url) == expected
    copy = working_copy(url)
    assert_clean(copy)
    assert data_files(url) == named_files(copy)
    killed(cache, point, "import", tmp_path / "more.txt", "--warehouse", url, "-q")
    long_ago = time.time() - SWEEP_AGE.total_seconds() - 60
    for file in folder.rglob("*"):
        os.utime(file, (long_ago, long_ago))
    elsewhere = copy_in(url, tmp_path / "elsewhere")
    publish(elsewhere, ["later()"])
    assert data_files(url) == named_files(elsewhere)
    assert_clean(copy_in(url, tmp_path / "fresh"))


@pytest.mark.parametrize("point", long_except({"created"}, PLACE_POINTS))
def test_a_compaction_is_killed(tmp_path: Path, url: str, one: Paths, cache: Path, point: str) -> None:
    """Its rows stay as they are, and the next one, here, removes what was left and completes it."""
    for number in range(2):
        publish(one, [f"f{number}(uint256)"])
    killed(cache, point, "compact", "--warehouse", url)
    assert seen_in(url) == ["f0(uint256)", "f1(uint256)"]
    again = call_command("compact", "--warehouse", url)
    assert again.exit_code == 0, again.stderr
    assert ("nothing to compact" in again.stdout) == (point == "created")
    assert seen_in(url) == ["f0(uint256)", "f1(uint256)"]
    assert len(named_files(copy_in(url, tmp_path / "fresh"))) == 1
    assert len(data_files(url)) == 3, "the two that were merged, and the one of the newest version"


def test_documents_that_a_late_row_changes_are_uploaded_again(
    tmp_path: Path, url: str, one: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their size stays the same; the document of sources was not uploaded again, and nobody could read the version."""
    (tmp_path / "in.txt").write_text("".join(f"f{number}(uint256)\n" for number in range(50)))
    upload, uploads = WorkingCopy.upload, []

    def upload_and_post(self: WorkingCopy, run: str) -> None:
        upload(self, run)
        uploads.append(run)
        if len(uploads) == 1:
            stage(one, SIGNATURES, "f3(uint256)")

    monkeypatch.setattr(WorkingCopy, "upload", upload_and_post)
    import_files([tmp_path / "in.txt"], one.root)
    assert len(uploads) > 1
    assert seen_in(url) == [f"f{number}(uint256)" for number in range(50) if number != 3]


def test_a_run_that_was_committed_keeps_its_evidence(tmp_path: Path, url: str, one: Paths, cache: Path) -> None:
    """A machine dies right after its commit, and another one commits: its next import removes nothing of that run."""
    publish(one, ["known(uint256)"])
    (tmp_path / "in.txt").write_text("a(uint)\n")
    (tmp_path / "more.txt").write_text("c(uint)\n")
    killed(cache, "created", "import", tmp_path / "in.txt", "--warehouse", url, "-q")
    pull(one)
    publish(one, ["later()"])
    done = call_command("import", tmp_path / "more.txt", "--warehouse", url, "-q")
    assert done.exit_code == 0, done.stderr
    query = "SELECT text_signature FROM sightings WHERE file LIKE '%in.txt'"
    assert sigdir.open(url).sql(query).rows() == [("a(uint256)",)]


def data_files(url: str) -> set[str]:
    """The names of all data files in a store."""
    return {each.name for each in open_store(url).list("table") if each.name.endswith(".parquet")}


def named_files(copy: Paths) -> set[str]:
    """The data files of the newest version of a store without compactions, which are those of all versions."""
    return {copy.name(file.path) for file in read_snapshot(copy).all_files()}


def test_a_pull_is_killed(url: str, one: Paths, cache: Path) -> None:
    """The copy opens at the version before, or is marked as unfinished; the next pull completes it."""
    publish(one, ["a()"])
    killed(cache, "copied", "stats", "--warehouse", url)
    copy = working_copy(url)
    with pytest.raises(UnreadableWarehouse):
        read_snapshot(copy)
    assert call_command("stats", "--warehouse", url).exit_code == 0
    publish(one, ["b()"])
    killed(cache, "copied", "stats", "--warehouse", url)
    assert texts_of(copy) == ["a()"]
    pull(copy)
    assert texts_of(copy) == ["a()", "b()"]
    assert_clean(copy)


def test_damage_in_the_store_stays_there(tmp_path: Path, folder: Path, url: str, one: Paths) -> None:
    """A file that is not what was written is refused by name, whatever is in it, and the copy stays as it was."""
    publish(one, ["a()"])
    others = {kind: copy_in(url, tmp_path / kind) for kind in ("table", "evidence")}
    publish(one, ["b()"])
    for kind, other in others.items():
        newest = max((folder / kind).rglob("*.parquet"), key=lambda file: file.name)
        whole = newest.read_bytes()
        flip(newest)
        with pytest.raises(StoreError, match=newest.name):
            pull(other)
        assert texts_of(other) == ["a()"]
        assert list(other.tmp.glob("*")) == []
        newest.write_bytes(whole)
    newest_manifest = read_snapshot(one).manifest
    assert newest_manifest is not None
    name = one.name(newest_manifest.path)
    for content in ("", '{"sources": {"name": "../x"}}'):
        (folder / name).write_text(content)
        with pytest.raises(UnreadableWarehouse, match=f"{url}/{name}: damaged"):
            copy_in(url, tmp_path / "three")


def test_a_log_that_does_not_continue_is_refused(tmp_path: Path, folder: Path, url: str, one: Paths) -> None:
    """An entry that was replaced is found before anything of it is put in place; so is another warehouse."""
    publish(one, ["a()"])
    other = copy_in(url, tmp_path / "two")
    publish(one, ["b()"])
    entry = folder / "table/_delta_log" / one.log_entry(2).name
    raw = entry.read_bytes()
    entry.write_bytes(raw.replace(b"import", b"impart", 1))
    with pytest.raises(UnreadableWarehouse, match=f"{url}/table/_delta_log/{entry.name}: damaged"):
        pull(other)
    entry.write_bytes(raw)
    pull(other)
    for identity, reason in (
        (f'{{"format": {FORMAT}, "id": "another"}}', "another warehouse"), ('{"format": 99, "id": "another"}', "format 99"),
        ("{", f"{url}/warehouse.json: damaged"),
    ):  # fmt: skip
        (folder / "warehouse.json").write_text(identity)
        with pytest.raises(UnreadableWarehouse, match=reason):
            pull(other)
    (folder / "warehouse.json").write_bytes(other.identity.read_bytes())
    entry.unlink()
    with pytest.raises(UnreadableWarehouse, match=f"{entry.name}: lost"):
        publish(other, ["c()"])
    entry.write_bytes(raw)
    pull(other)
    assert read_snapshot(other).version == 2


def test_a_copy_is_bounded(tmp_path: Path, url: str, one: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that is larger than the copy may be is refused before it is fetched; what is old leaves the copy."""
    for number in range(3):
        publish(one, names(f"n{number}x", 3))
    other = copy_in(url, tmp_path / "two")
    for written, reason in (
        ("0.000001", ""),
        ("nan", "'nan' is not a number"),
        ("20G", "'20G' is not a number of GiB"),
    ):
        monkeypatch.setenv("SIGDIR_STORE_CACHE_GIB", written)
        with pytest.raises(UnreadableWarehouse, match=f"SIGDIR_STORE_CACHE_GIB.*{reason}"):
            copy_in(url, tmp_path / "three")
    monkeypatch.delenv("SIGDIR_STORE_CACHE_GIB")
    assert call_command("compact", "--warehouse", url).exit_code == 0
    pull(other)
    assert len(other.data_files()) == 4, "a reader of the version before may still be at work"
    monkeypatch.setattr(copies, "_KEPT", copies._KEPT * 0)
    publish(copy_in(url, tmp_path / "one"), ["later()"])
    pull(other)
    assert len(other.data_files()) == 2
    assert_clean(other)


# Push.


def test_a_push_brings_what_is_new(tmp_path: Path, url: str) -> None:
    """A local warehouse's versions, each file once, also where two name it; the copy of the store is the warehouse."""
    local = Paths(tmp_path / "local")
    publish(local, names("a", 5), ["E(uint256)"], rejects=["bad("])
    publish(local, names("b", 5))
    first = push(local, url)
    assert (first.version, first.rows, first.staged, first.log_entries, first.present) == (2, 11, 0, 3, 0)
    stage(local, SIGNATURES, "posted()")
    publish(local, names("c", 5))
    stage(local, SIGNATURES, "waits()")
    second = push(local, url)
    assert (second.version, second.staged, second.log_entries) == (3, 1, 1)
    assert second.copied < first.copied
    third = push(local, url)
    assert (third.copied, third.bytes, third.log_entries) == (0, 0, 0)
    copy = copy_in(url, tmp_path / "copy")
    assert content_of(copy) == content_of(local)
    for version in range(4):
        assert copy.log_entry(version).read_bytes() == local.log_entry(version).read_bytes()
    assert call_command("verify", "-q", "--warehouse", url).exit_code == 0


def test_a_push_refuses_another_history(tmp_path: Path, url: str) -> None:
    """Another warehouse, and a store that somebody imported into, are left as they are."""
    local, stranger = Paths(tmp_path / "local"), Paths(tmp_path / "stranger")
    publish(local, ["a()"])
    push(local, url)
    publish(stranger, ["s()"])
    with pytest.raises(UnreadableWarehouse, match="another warehouse"):
        push(stranger, url)
    publish(copy_in(url, tmp_path / "one"), ["b()"])
    with pytest.raises(UnreadableWarehouse, match="history of its own"):
        push(local, url)
    publish(local, ["c()"])
    with pytest.raises(UnreadableWarehouse, match="history of its own"):
        push(local, url)
    assert seen_in(url) == ["a()", "b()"]


def test_a_push_that_fails_leaves_the_store_at_its_version(tmp_path: Path, url: str) -> None:
    """A damaged file is named; a push that is killed shows nothing before the entries. The next push completes it."""
    local = Paths(tmp_path / "local")
    publish(local, ["a()"])
    push(local, url)
    publish(local, ["b()"])
    file = read_snapshot(local).files[SIGNATURES][-1].path
    whole = file.read_bytes()
    flip(file)
    with pytest.raises(StoreError, match=f"{file}: damaged: not what was written"):
        push(local, url)
    assert seen_in(url) == ["a()"]
    file.write_bytes(whole)
    arguments = ("backup", url, "--warehouse", local.root, "-q")
    assert run_command(*arguments, SIGDIR_FAILPOINT="copied").returncode == -signal.SIGKILL
    assert seen_in(url) == ["a()"]
    assert call_command(*arguments).exit_code == 0
    assert seen_in(url) == ["a()", "b()"]


def test_a_copy_stays_apart(tmp_path: Path, url: str) -> None:
    """A folder with a warehouse of its own is no place for a copy, and a copy follows one store."""
    make_warehouse(Paths(tmp_path / "own"))
    with pytest.raises(UnreadableWarehouse, match="of its own"):
        working_copy(url, tmp_path / "own")
    with pytest.raises(NoWarehouse):
        pull(working_copy(f"{url}-mistyped", tmp_path / "copy"))  # leaves nothing that is in the way
    copy = copy_in(url, tmp_path / "copy")
    with pytest.raises(UnreadableWarehouse, match="is a copy of"):
        working_copy(f"{url}-other", tmp_path / "copy")
    with pytest.raises(UnreadableWarehouse, match="push the warehouse itself"):
        push(copy, f"{url}-other")


def test_a_warehouse_that_takes_posts_is_no_store(tmp_path: Path) -> None:
    """An import into its folder by a URL would give the ids of rows that were POSTed, and these would be lost."""
    make_warehouse(local := Paths(tmp_path / "own"))
    stage(local, SIGNATURES, "posted(uint256)")
    url = f"file://{local.root}"
    for attempt in (lambda: copy_in(url, tmp_path / "copy"), lambda: push(local, url)):
        with pytest.raises(UnreadableWarehouse, match="takes POSTs"):
            attempt()


@pytest.mark.parametrize("point", ["uploaded", "copied"])
def test_a_store_that_is_served_as_a_folder_meanwhile_gets_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """An import and a push look again before the log entry: it would give the ids of rows that were POSTed."""
    store, local = Paths(tmp_path / "store"), Paths(tmp_path / "own")
    publish(local, ["a()"])
    push(local, url := f"file://{store.root}")
    publish(local, ["b()"])
    copy = copy_in(url, tmp_path / "copy")

    def serve(reached: str) -> None:
        if reached == point:
            Staging(store.staging).close()

    monkeypatch.setattr(failpoints, "reach", serve)
    with pytest.raises(UnreadableWarehouse, match="takes POSTs"):
        publish(copy, ["c()"]) if point == "uploaded" else push(local, url)
    assert read_snapshot(store).version == 1


def test_a_store_stays_one_where_its_folder_is_read(tmp_path: Path) -> None:
    """A staging file would make it a warehouse that takes POSTs; a backup of the folder is whole without one."""
    url = f"file://{tmp_path / 'store'}"
    publish(copy_in(url, tmp_path / "copy"), ["a()"])
    for command in (["resolve", "0xa9059cbb"], ["search", "a"], ["backup", tmp_path / "backup"]):
        assert call_command(*command, "--warehouse", tmp_path / "store").exit_code in (0, 1)
    publish(copy_in(url, tmp_path / "copy"), ["b()"])
    publish(restored := Paths(tmp_path / "backup"), ["c()"])
    assert_clean(restored)


# The suppress list.


def test_the_suppress_list(tmp_path: Path, url: str) -> None:
    """Each copy has the newest list, whoever changed it; what a store gives in its place while it fails is refused."""
    store, name = open_store(url), "suppressed.txt"
    local = Paths(tmp_path / "local")
    publish(local, ["a()", "b()"])
    push(local, url)
    copy = copy_in(url, tmp_path / "one")
    assert store.find(name) is None
    assert not copy.suppressed.exists()
    local.suppressed.write_text("function a()\n")
    push(local, url)
    first = store.read(name)
    pull(copy)
    assert copy.suppressed.read_bytes() == first
    push(local, url)
    assert store.read(name) == first, "the same list keeps its version"
    assert call_command("suppress", "function b()", "--warehouse", url).exit_code == 0
    stale = call_command("suppress", "function c()", "--warehouse", copy.root)
    assert_fails_in_one_line(stale, "changed since")
    pull(copy)
    newest = store.read(name)
    assert unsealed(copy.suppressed.read_bytes()) == b"function a()\nfunction b()\n"
    assert sealed_version(newest) > sealed_version(first) > 0

    fresh = working_copy(url, tmp_path / "fresh")
    for paths, damaged, problem in (
        (copy, b"", "lost or damaged"), (fresh, b"", "lost or damaged"), (copy, newest[:-3], "lost or damaged"),
        (copy, first, "older than that"),
    ):  # fmt: skip
        store.put(name, damaged)
        with pytest.raises(UnreadableWarehouse, match=f"{url}/{name}: .*{problem}"):
            pull(paths)
        assert copy.suppressed.read_bytes() == newest
    store.delete([name])
    with pytest.raises(UnreadableWarehouse, match=f"{url}/{name}: lost"):
        pull(copy)
    store.put(name, newest)

    local.suppressed.unlink()
    push(local, url)
    for paths in (copy, fresh):
        pull(paths)
        assert unsealed(paths.suppressed.read_bytes()) == b""
    assert sealed_version(store.read(name)) > sealed_version(newest)


# A store that fails.


FAULTS = [
    (Fault("500", "GET", "suppressed.txt"), "suppressed.txt: "),
    (Fault("404", "GET", "collection=signatures"), "NoSuchKey"),
    (Fault("500", "PUT", "collection=signatures"), "InternalError"),
    (Fault("500", "PUT", "_delta_log"), "run the command again"),
]


def test_a_failing_store(tmp_path: Path, s3: S3, in_s3: str, hasty: None) -> None:
    """The import ends with a line that names the object, and nothing is visible; an answer that was lost is no failure."""
    publish(copy_in(in_s3, tmp_path / "one"), ["known(uint256)"])
    (tmp_path / "in.txt").write_text("a(uint)\n")
    arguments = ("import", tmp_path / "in.txt", "--warehouse", in_s3, "-q")
    for fault, reason in FAULTS:
        s3.faults[:] = [fault]
        assert_fails_in_one_line(call_command(*arguments), f"{in_s3}/", reason)
    s3.faults.clear()
    assert seen_in(in_s3) == ["known(uint256)"]
    s3.faults.append(lost := Fault("lost answer", "PUT", "00002.json", times=1))
    again = call_command(*arguments)
    assert (again.exit_code, lost.times) == (0, 0), again.stderr
    assert seen_in(in_s3) == ["known(uint256)", "a(uint256)"]


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.long)])
def test_credentials_expire_while_inputs_are_read(
    tmp_path: Path, s3: S3, in_s3: str, hasty: None, engine: str
) -> None:  # fmt: skip
    """From the second object on each request is refused: one line says so, nothing is visible, and it can be run again."""
    lists = open_store(f"s3://{BUCKET}/lists-{tmp_path.name}")
    publish(copy_in(in_s3, tmp_path / "one"), ["known(uint256)"])
    for name in "abc":
        lists.put(f"{name}.txt", f"{name}(uint)\n".encode())

    def expire(method: str, path: str) -> None:
        if path.endswith("b.txt"):
            s3.faults[:] = [Fault("expired", each, "") for each in ("GET", "PUT", "HEAD")]

    s3.before = expire
    arguments = ("import", lists.url, "--engine", engine, "--warehouse", in_s3, "-q")
    assert_fails_in_one_line(call_command(*arguments), "ExpiredToken", "access denied")
    s3.before, s3.faults[:] = lambda *_: None, []
    assert seen_in(in_s3) == ["known(uint256)"]
    again = call_command(*arguments)
    assert again.exit_code == 0, again.stderr
    assert seen_in(in_s3) == ["known(uint256)", "a(uint256)", "b(uint256)", "c(uint256)"]


def test_credentials_stay_secret(tmp_path: Path, s3: S3, in_s3: str, hasty: None) -> None:
    """No output, log, history or file of the warehouse has them."""
    (tmp_path / "in.txt").write_text("a(uint)\nbad(\n")
    inputs = open_store(f"s3://{BUCKET}/inputs-{tmp_path.name}")
    inputs.put("in.txt", b"b(uint)\n")
    outputs = []
    for arguments in (
        ["import", tmp_path / "in.txt", inputs.url], ["history", "--sources", "--json"], ["sql", "FROM imports"], ["verify"],
    ):  # fmt: skip
        result = call_command(*arguments, "--warehouse", in_s3)
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    s3.faults.append(Fault("expired", "GET", ""))
    outputs.append(call_command("stats", "--warehouse", in_s3).output)
    s3.faults.clear()
    outputs += [file.read_bytes().decode("latin-1") for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    outputs += [open_store(in_s3).read(each.name).decode("latin-1") for each in open_store(in_s3).list()]
    assert not any(KEY in output or SECRET in output for output in outputs)


# Readers that are not ours, and inputs.


def shared(url: str, folder: Path) -> list[str]:
    """Publish two versions into a store; returns the texts in their order."""
    copy = copy_in(url, folder)
    publish(copy, names("a", 3))
    publish(copy, names("b", 3), ["E(uint256)"])
    return sorted([*names("a", 3), *names("b", 3), "E(uint256)"])


def test_others_read_the_table(tmp_path: Path, s3: S3, in_s3: str) -> None:
    """deltalake and polars read it where it is."""
    wanted = shared(in_s3, tmp_path / "one")
    options = {**s3.variables, "AWS_ALLOW_HTTP": "true", "conditional_put": "etag"}
    table = DeltaTable(f"{in_s3}/table", storage_options=options)
    assert sorted(table.to_pyarrow_table(columns=["text_signature"])["text_signature"].to_pylist()) == wanted
    frame = polars.scan_delta(f"{in_s3}/table", storage_options=options).select("text_signature").collect()
    assert sorted(frame["text_signature"].to_list()) == wanted


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_sail_reads_the_table(tmp_path: Path, in_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark's API, with its own reader of Delta."""
    pytest.importorskip("pysail")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    wanted = shared(in_s3, tmp_path / "one")
    with open_session(None) as session:
        found = session.read.format("delta").load(f"{in_s3}/table").select("text_signature").toArrow()
    assert sorted(found["text_signature"].to_pylist()) == wanted


def test_inputs_in_a_store_are_those_of_a_folder(tmp_path: Path, s3: S3) -> None:
    """The same files give the same rows, ids, rejects, evidence and report, packed, in archives, hash-named or not."""
    files = tmp_path / "lists"
    (files / "deep" / "er").mkdir(parents=True)
    (files / "b.txt").write_text("f(uint)\nbad(\n")
    (files / "deep" / "a.txt").write_text("g(uint)\n")
    (files / "deep" / "er" / "z.json").write_text('[{"type":"function","name":"h","inputs":[]}]')
    (files / "deep" / "a9059cbb").write_text("transfer(address,uint256)")
    (files / "deep" / "095ea7b3").write_text("approve(address,uint256)")
    (files / ".hidden").write_text("hidden()\n")
    (files / "zz.bin").write_bytes(bytes(range(256)))
    shutil.make_archive(str(files / "c"), "zip", files / "deep")
    store = open_store(f"s3://{BUCKET}/in/{tmp_path.name}/lists")
    for file in files.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(files).as_posix(), file)
    disk = json.dumps(imported(files, tmp_path / "disk")).replace(str(files), store.url)
    assert json.loads(disk) == imported(store.url, tmp_path / "store")
    assert timeless(Paths(tmp_path / "disk")) == timeless(Paths(tmp_path / "store"))
    s3.faults.append(Fault("404", "GET", "deep/a.txt"))
    [fault] = imported(store.url, tmp_path / "broken")["faults"]
    assert fault["path"] == f"{store.url}/deep/a.txt"
    s3.faults.clear()
    with pytest.raises(Exception, match="no such object"):
        imported(f"{store.url}/nothing", tmp_path / "none")


def test_exports_into_a_store(tmp_path: Path, url: str, one: Paths) -> None:
    """A file and a tree are the objects that they would be on disk; a tree is not written over another."""
    publish(one, names("a", 3))
    (tmp_path / "exports" / "lists").mkdir(parents=True)
    for format, name in (("4byte.json", "lists/out.json"), ("4bytes", "tree"), ("parquet", "out.parquet")):
        for target in (f"{url}-exports/{name}", tmp_path / "exports" / name):
            result = call_command("export", format, target, "--warehouse", url, "-q")
            assert result.exit_code == 0, (result.output, result.exception)
    store, disk = open_store(f"{url}-exports"), tmp_path / "exports"
    assert {each.name: store.read(each.name) for each in store.list()} == {
        file.relative_to(disk).as_posix(): file.read_bytes() for file in disk.rglob("*") if file.is_file()
    }
    assert_fails_in_one_line(call_command("export", "4bytes", f"{url}-exports/tree", "--warehouse", url, "-q"))


# A copy that is damaged.


def test_what_is_damaged_in_a_copy_is_fetched_again(tmp_path: Path, url: str, one: Paths) -> None:
    """Each file of the newest version, one at a time, flipped, cut or missing: the store has it whole."""
    for number in range(2):
        publish(one, names(f"n{number}x", 3))
    copy = copy_in(url, tmp_path / "two")
    snapshot = read_snapshot(copy)
    assert snapshot.manifest is not None
    needed = {file.path for file in (*snapshot.all_files(), *snapshot.evidence.all_files())}
    needed |= {snapshot.manifest.path, *copy.log.glob("*.json"), *sources_paths(copy, snapshot.evidence)}
    for file in sorted(needed):
        before = file.read_bytes()
        for damaged in (before[:-8] + bytes(8), before[: len(before) // 2], None):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            pull(copy, check="bytes")
            assert file.read_bytes() == before, file
    assert pull(copy, check="bytes").bytes == 0
    assert_clean(copy)


def test_damage_of_an_older_version_in_the_store_is_named_by_who_asks_for_it(
    tmp_path: Path, folder: Path, url: str, one: Paths
) -> None:
    """A copy comes to the newest version without it."""
    other = copy_in(url, tmp_path / "two")
    publish(one, names("n", 3))
    [file] = one.data_files()
    publish(one, names("m", 3))
    assert call_command("compact", "--warehouse", url).exit_code == 0
    flip(folder / one.name(file))
    pull(other)
    assert content_of(other) == content_of(one)
    with pytest.raises(StoreError, match=f"{url}/{one.name(file)}: damaged.*only older versions need it"):
        pull(other, as_of=1)


@pytest.mark.parametrize("place", ["table", "log"])
def test_a_command_mends_the_copy_that_it_reads(url: str, one: Paths, place: str) -> None:
    """By its address or folder: it fetches what it finds damaged and says so; where the store lacks it, its own error stays."""
    publish(one, names("n", 3))
    query = ["sql", "SELECT count(text_signature) AS n FROM signatures", "--json", "--warehouse"]
    assert call_command(*query, url).exit_code == 0
    copy = working_copy(url)
    [file] = [copy.log_entry(0)] if place == "log" else copy.data_files()
    before = file.read_bytes()
    flip(file)
    result = call_command(*query, url)
    if place == "table":
        assert result.exit_code == 2
        assert "was fetched again: run the command again" in result.stderr
        result = call_command(*query, url)
    assert (result.exit_code, result.stdout) == (0, '[{"n":3}]\n'), result.stderr
    assert file.read_bytes() == before
    flip(file)
    store = copy.store.read_bytes()
    copy.store.write_text('{"url": "file:///no/such/store"}')
    away = call_command(*query, copy.root)
    copy.store.write_bytes(store)
    mended = call_command(*query, copy.root)
    assert (away.exit_code, mended.exit_code) == (2, 2)
    assert mended.stderr == f"{away.stderr.strip()}; what is damaged was fetched again: run the command again\n"
    assert file.read_bytes() == before
    flip(file)
    assert call_command("import", "/no/such/file", "--warehouse", copy.root).exit_code == 2
    assert file.read_bytes() != before, "a mistyped name is no reason to read the whole copy"
