"""A warehouse on a disk that is really read-only: served without POST, decoded, queried."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import pytest

from sigdir.serve.core.writer import canonical_text
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.files import own_temporary_folder
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.pipeline.support import invoke
from tests.serve.support import (
    EVENT,
    SPAM,
    TRANSFER,
    by,
    found,
    get,
    opened,
    post_text,
    selector,
    serving,
    until,
)
from tests.warehouse.support import small_disk

POSTED = "posted(uint256)"
CALLDATA = selector(TRANSFER) + f"{'ab' * 20:0>64}{7:064x}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A warehouse with a row that was POSTed and not folded, on a disk that is read-only since, without any index."""
    import_lines(tmp_path / "written", TRANSFER, SPAM, f"event {EVENT}")
    with opened(tmp_path / "written") as (_, writer):
        writer.store([canonical_text(SIGNATURES, POSTED)])
    with small_disk(tmp_path / "disk") as mounted:
        folder = mounted.path / "warehouse"
        shutil.copytree(tmp_path / "written", folder, ignore=shutil.ignore_patterns("cache"))
        mounted.make_read_only()
        link = tmp_path / "warehouse"
        link.symlink_to(folder)  # the tests write beside it
        yield link


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    ensure_running()  # or the server that forks processes would have its socket there, and a socket's path is short
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.mark.parametrize("name", ["waitress", pytest.param("granian", marks=pytest.mark.long)])
def test_it_is_served_without_post(disk: Path, temporary: Path, name: str) -> None:
    """All reads work, rows that are not folded too; the temporary index is gone afterwards."""
    with serving(disk, *by(name), workers=1, fold_every=60) as server:
        assert "curl -d" not in server.stderr()
        assert {row["text_signature"] for row in found(server.port, "")} == {TRANSFER, SPAM, POSTED}
        refused = post_text(server.port, "new(uint256)")
        assert (refused.status, refused.header("Reject-Reason")) == (403, "read_only")
        decoded = get(server.port, f"/api/v1/decode/?data={CALLDATA}").json()["candidates"][0]
        assert decoded["text_signature"] == TRANSFER
        for page in ("/statistics/", "/status/", f"/selector/{selector(POSTED)}/", "/dumps/1/signatures.csv"):
            assert get(server.port, page).status == 200, page
        assert "fold" not in get(server.port, "/readyz").json()
        assert server.errors() == []
        assert len(list(temporary.glob("sigdir-cache-*/*/cache/signatures-*"))) >= 1
    assert list(temporary.glob("sigdir-cache-*/*")) == []


def test_the_temporary_index_of_a_killed_server_goes_with_the_next_start(disk: Path, temporary: Path) -> None:
    """It would stay for ever, 79 bytes a row after each kill."""
    with serving(disk, workers=1) as server:
        server.kill()
        assert len(list(temporary.glob("sigdir-cache-*/*/cache/signatures-*"))) >= 1
    until(
        lambda: not list(own_temporary_folder("sigdir-cache").iterdir()), "the removal, when all processes have ended"
    )


def test_the_folder_for_indexes_can_be_given(disk: Path, tmp_path: Path, temporary: Path) -> None:
    """It is kept, so the next start builds nothing. Counts of misses are in it, and the command finds them there."""
    with serving(disk, "--cache", tmp_path / "indexes", "--count-misses", workers=1) as server:
        assert found(server.port, POSTED)
        assert get(server.port, "/signatures/00000001").status == 404
        until(lambda: get(server.port, "/api/v1/wanted/").json()["count"], "the miss to be written")
    assert "0x00000001" in invoke(disk, "wanted", "--cache", tmp_path / "indexes").stdout.decode()
    assert len(list((tmp_path / "indexes" / "cache").glob("signatures-*"))) >= 1
    assert list(temporary.glob("sigdir-*")) == []


def test_commands_read_and_do_not_write(disk: Path, tmp_path: Path, temporary: Path) -> None:
    """What reads has status 0 and leaves no temporary file; what writes names the disk in one line, with status 2."""
    for command, expected in (
        (["decode", CALLDATA], TRANSFER), (["sql", "SELECT count(*) AS n FROM signatures"], "2"), (["verify"], ""),
        (["export", "csv", "-"], SPAM), (["stats"], "signatures"), (["suppress"], ""),
    ):  # fmt: skip
        done = invoke(disk, *command)
        assert done.status == 0, (command, done.stderr)
        assert expected.encode() in done.stdout, command
    assert list(temporary.glob("sigdir-*/*")) == []
    for command in (["import", str(tmp_path / "lines.txt")], ["fold"], ["suppress", TRANSFER]):
        done = invoke(disk, *command)
        assert done.status == 2, (command, done.stderr)
        assert "ead-only" in done.stderr


def test_an_index_that_is_on_the_disk_is_used(tmp_path: Path, warehouse: Path) -> None:
    """A warehouse that was served before needs no other folder's space."""
    with small_disk(tmp_path / "disk") as mounted:
        folder = import_lines(mounted.path / "warehouse", TRANSFER)
        with opened(folder):
            pass
        mounted.make_read_only()
        with opened(folder) as (reader, _):
            assert reader.current().count(SIGNATURES) == 1
            assert list(reader.paths.cache.glob("signatures-*")) == []


def test_rows_of_a_killed_server_are_read(tmp_path: Path, warehouse: Path) -> None:
    """They are in SQLite's write-ahead log, which cannot be merged into the file on such a disk."""
    with small_disk(tmp_path / "disk") as mounted:
        folder = mounted.path / "warehouse"
        with opened(warehouse) as (_, writer):
            writer.store([canonical_text(SIGNATURES, POSTED)])
            shutil.copytree(warehouse, folder, ignore=shutil.ignore_patterns("*-shm"))
        assert Paths(folder).staging_wal.exists()
        mounted.make_read_only()
        with opened(folder) as (reader, _):
            assert reader.current().count(SIGNATURES) == 1


@pytest.fixture
def mounted_read_only(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder, and the same folder by a read-only mount."""
    folder, mount = tmp_path / "writable", tmp_path / "mount"
    folder.mkdir()
    mount.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", "-o", "ro", folder, mount], check=False).returncode:
        pytest.skip("needs root and mounts")
    try:
        yield folder, mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def test_a_writer_elsewhere_is_followed(mounted_read_only: tuple[Path, Path]) -> None:
    """Through a read-only mount of a folder that a server on the same machine writes to."""
    writable, mount = (folder / "warehouse" for folder in mounted_read_only)
    with opened(writable) as (_, writer):
        writer.store([canonical_text(SIGNATURES, "first(uint256)")])
        with closing(Reader(Paths(mount))) as reader:
            assert reader.is_read_only
            assert reader.current().count(SIGNATURES) == 1
            writer.store([canonical_text(SIGNATURES, "second(uint256)")])
            assert reader.current().count(SIGNATURES) == 2
            fold(Paths(writable))
            assert reader.refreshed().snapshot.count(SIGNATURES) == 2
