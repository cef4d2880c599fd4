"""The format number and the id of a warehouse: refusals, upgrades, and files that belong together."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import sigdir
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse import identity
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import make_folder
from sigdir.warehouse.identity import (
    FORMAT,
    Identity,
    read_identity,
    write_identity,
)
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import Publisher
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.staging.writer import Staging
from tests.warehouse.support import (
    assert_fails_in_one_line,
    call_command,
    fold,
    other_process,
    publish,
    run_command,
    stage,
    staged_rows,
    texts,
    visible,
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A warehouse with an import, and a row in staging."""
    own = Paths(tmp_path / "warehouse")
    publish(own, ["a(uint256)", "b(uint256)"])
    stage(own, SIGNATURES, "c(uint256)")
    return own


def make_older(paths: Paths) -> None:
    """Remove everything that versions without an id did not write."""
    paths.identity.unlink()
    with closing(sqlite3.connect(paths.staging)) as connection:
        connection.execute("ALTER TABLE about DROP COLUMN warehouse")
        connection.execute("ALTER TABLE about DROP COLUMN version")
        connection.execute("UPDATE about SET format = 1")
        connection.commit()


def open_staging(path: Path) -> str:
    """Open a staging file and return the id of its warehouse. Runs in another process."""
    Staging(path).close()
    return read_identity(Paths(path.parent)).id


def test_a_warehouse_is_given_an_id_once(paths: Paths) -> None:
    """The folder and the staging file have the same id, and it never changes."""
    before = read_identity(paths)
    assert before.format == FORMAT
    assert len(before.id) == 32
    publish(paths, ["d(uint256)"])
    fold(paths)
    assert read_identity(paths) == before
    with closing(sqlite3.connect(paths.staging)) as connection:
        assert connection.execute("SELECT * FROM about").fetchall() == [(FORMAT, before.id, 3)]


def test_two_warehouses_have_different_ids(paths: Paths, tmp_path: Path) -> None:
    """Each new warehouse gets an id of its own."""
    other = Paths(tmp_path / "other")
    publish(other, ["a(uint256)"])
    assert read_identity(other).id != read_identity(paths).id


def test_processes_that_open_a_new_warehouse_at_once_agree_on_its_id(tmp_path: Path) -> None:
    """The first process that writes the staging file gives the id."""
    make_folder(tmp_path / "new")
    path = Paths(tmp_path / "new").staging
    with other_process(2) as pool:
        found = set(pool.map(open_staging, [path] * 6))
    assert len(found) == 1
    assert "" not in found


def test_a_warehouse_without_an_id_gets_one(paths: Paths) -> None:
    """The first publisher upgrades the folder and adds an id, and all rows stay."""
    make_older(paths)
    with pytest.raises(UnreadableWarehouse, match="format 1"):
        read_snapshot(paths)
    assert not paths.identity.exists()
    with Publisher(paths, wait=False):
        pass
    assert texts(visible(paths)[SIGNATURES]) == ["a(uint256)", "b(uint256)", "c(uint256)"]
    assert len(read_identity(paths).id) == 32
    fold(paths)
    assert read_snapshot(paths).count(SIGNATURES) == 3


def test_a_lost_file_is_made_again_with_the_id_of_staging(paths: Paths) -> None:
    """Opening staging restores the lost identity file."""
    before = read_identity(paths)
    paths.identity.unlink()
    Staging(paths.staging).close()
    assert read_identity(paths) == before


def test_a_lost_staging_file_is_made_again_with_the_id_of_the_folder(paths: Paths) -> None:
    """Publishing after the loss of staging keeps the id."""
    before = read_identity(paths)
    for file in paths.root.glob("staging.sqlite*"):
        file.unlink()
    publish(paths, ["d(uint256)"])
    assert read_identity(paths) == before


@pytest.mark.parametrize("older", [False, True], ids=["", "without an id"])
def test_a_staging_file_of_another_warehouse_is_refused(paths: Paths, tmp_path: Path, older: bool) -> None:
    """Its rows would be folded here, or deleted as folded; they stay as they are."""
    other = Paths(tmp_path / "other")
    stage(other, SIGNATURES, "x(uint256)")
    rows = staged_rows(other, SIGNATURES)
    if older:
        make_older(other)
    for file in paths.root.glob("staging.sqlite*"):
        file.unlink()
    shutil.copy(other.staging, paths.staging)
    for command in (["fold"], ["import", "--quiet", "samples"]):
        result = call_command(*command, "--warehouse", paths.root)
        assert_fails_in_one_line(result)
        assert f"{paths.staging} belongs to another warehouse" in result.stderr
    if not older:  # nobody upgraded the other
        paths.identity.unlink()
        assert staged_rows(paths, SIGNATURES) == rows


READERS = [["rejects"], ["history"], ["stats"], ["sql", "SELECT 1"], ["verify"]]
WRITERS = [["import", "samples"], ["fold"]]


@pytest.mark.parametrize("command", [*READERS, *WRITERS], ids=lambda command: command[0])
@pytest.mark.parametrize("has_staging", [True, False], ids=["", "staging lost"])
def test_a_newer_format_is_refused_by_every_command(paths: Paths, command: list[str], has_staging: bool) -> None:
    """The error has one line and both numbers; no file is made in the folder."""
    write_identity(paths, Identity(FORMAT + 1, "00"))
    if not has_staging:
        for file in paths.root.glob("staging.sqlite*"):
            file.unlink()
    before = {path for path in paths.root.rglob("*") if path.name != "publish.lock"}
    result = call_command(*command, "--warehouse", paths.root)
    assert_fails_in_one_line(result)
    assert f"format {FORMAT + 1}; this version reads format {FORMAT}" in result.stderr
    assert {path for path in paths.root.rglob("*") if path.name != "publish.lock"} - {paths.tmp} == before - {paths.tmp}


def test_a_newer_format_is_refused_by_a_backup_of_it_and_into_it(paths: Paths, tmp_path: Path) -> None:
    """The error names the folder with the newer format."""
    copy = tmp_path / "copy"
    assert call_command("backup", copy, "--warehouse", paths.root).exit_code == 0
    for newer in (copy, paths.root):
        write_identity(Paths(newer), Identity(FORMAT + 1, read_identity(paths).id))
        result = call_command("backup", copy, "--warehouse", paths.root)
        assert_fails_in_one_line(result)
        assert f"{newer} has format {FORMAT + 1}" in result.stderr


def test_a_newer_format_is_refused_by_a_server(paths: Paths) -> None:
    """The server ends with status 2 and both numbers, without a traceback."""
    write_identity(paths, Identity(FORMAT + 1, "00"))
    result = run_command("serve", "--port", "0", "--workers", "1", "--fold-every", "0", "--warehouse", paths.root)
    assert result.returncode == 2
    assert f"format {FORMAT + 1}; this version reads format {FORMAT}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": "x", "id": "y"}', b"\xff"])
def test_a_damaged_identity_file_is_named(paths: Paths, content: bytes) -> None:
    """Opening a warehouse with a damaged identity file raises an error that names it."""
    paths.identity.write_bytes(content)
    with pytest.raises(UnreadableWarehouse, match="damaged") as caught:
        sigdir.open(paths.root)
    assert str(paths.identity) in str(caught.value)


def test_the_first_publisher_upgrades_an_older_format(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers refuse an older format and name the remedy; the steps run once, in order, and all rows stay."""
    own = read_identity(paths)
    write_identity(paths, Identity(FORMAT - 2, own.id))
    done: list[int] = []

    def step(number: int) -> None:
        assert read_identity(paths).format == number
        done.append(number)

    steps = {number: lambda _, number=number: step(number) for number in (FORMAT - 2, FORMAT - 1)}
    monkeypatch.setattr(identity, "STEPS", steps)
    with pytest.raises(
        UnreadableWarehouse, match=f"format {FORMAT - 2}; this version reads format {FORMAT}.*sigdir fold"
    ):
        read_snapshot(paths)
    with Publisher(paths, wait=False) as publisher:
        assert len(publisher.staged(SIGNATURES)) == 1
    assert done == [FORMAT - 2, FORMAT - 1]
    assert read_identity(paths) == own
    fold(paths)
    assert done == [FORMAT - 2, FORMAT - 1]
    assert texts(visible(paths)[SIGNATURES]) == ["a(uint256)", "b(uint256)", "c(uint256)"]


def test_a_step_that_fails_leaves_the_older_number(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed step the number stays, and the next publisher runs the step again."""
    write_identity(paths, Identity(FORMAT - 1, read_identity(paths).id))

    def fail(_: Paths) -> None:
        raise UnreadableWarehouse("no room")

    monkeypatch.setattr(identity, "STEPS", {FORMAT - 1: fail})
    with pytest.raises(UnreadableWarehouse, match="no room"):
        fold(paths)
    assert read_identity(paths).format == FORMAT - 1
    monkeypatch.setattr(identity, "STEPS", {FORMAT - 1: lambda _: None})
    fold(paths)
    assert json.loads(paths.identity.read_bytes())["format"] == FORMAT
