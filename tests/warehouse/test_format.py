"""The format number and the id of a warehouse: refusals, and files that belong together."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import sigdir
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import make_folder
from sigdir.warehouse.table.identity import FORMAT, Identity, read_identity, write_identity
from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import (
    assert_fails_in_one_line,
    call_command,
    fold,
    publish,
    run_command,
    stage,
    staged_rows,
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A warehouse with an import, and a row in staging."""
    own = Paths(tmp_path / "warehouse")
    publish(own, ["a(uint256)", "b(uint256)"])
    stage(own, SIGNATURES, "c(uint256)")
    return own


def test_a_warehouse_is_given_an_id_once(paths: Paths, tmp_path: Path) -> None:
    """The folder and the staging file have the same id, which no other has, and it never changes."""
    before = read_identity(paths)
    assert before.format == FORMAT
    assert len(before.id) == 32
    publish(other := Paths(tmp_path / "other"), ["a(uint256)"])
    assert read_identity(other).id != before.id
    publish(paths, ["d(uint256)"])
    fold(paths)
    assert read_identity(paths) == before
    with closing(sqlite3.connect(paths.staging)) as connection:
        assert connection.execute("SELECT format, warehouse, version FROM about").fetchall() == [(FORMAT, before.id, 3)]


def test_all_that_open_a_new_warehouse_at_once_agree_on_its_id(tmp_path: Path) -> None:
    """The first that writes the staging file gives the id."""

    def open_staging(path: Path) -> str:
        Staging(path).close()
        return read_identity(Paths(path.parent)).id

    make_folder(tmp_path / "new")
    with ThreadPoolExecutor(6) as pool:
        (found,) = set(pool.map(open_staging, [Paths(tmp_path / "new").staging] * 6))
    assert found


def test_a_lost_file_is_made_again_with_the_id_of_the_other(paths: Paths) -> None:
    """Opening staging restores the identity file; publishing after the loss of staging keeps the id."""
    before = read_identity(paths)
    paths.identity.unlink()
    Staging(paths.staging).close()
    assert read_identity(paths) == before
    remove_staging(paths)
    publish(paths, ["d(uint256)"])
    assert read_identity(paths) == before


def test_a_staging_file_of_another_warehouse_is_refused(paths: Paths, tmp_path: Path) -> None:
    """Its rows would be folded here, or deleted as folded; they stay as they are."""
    other = Paths(tmp_path / "other")
    stage(other, SIGNATURES, "x(uint256)")
    rows = staged_rows(other, SIGNATURES)
    remove_staging(paths)
    shutil.copy(other.staging, paths.staging)
    refuse(paths, [["fold"], ["import", "--quiet", "samples"]], f"{paths.staging} belongs to another warehouse")
    paths.identity.unlink()
    assert staged_rows(paths, SIGNATURES) == rows


READERS = [["rejects"], ["history"], ["stats"], ["sql", "SELECT 1"], ["verify"]]
WRITERS = [["import", "samples"], ["fold"]]
OTHERS = [["mirror", "http://127.0.0.1:9/"], ["backup", "nowhere"]]
"""Nobody listens at the address, and nothing is at the folder."""
CURE = "export with the program that wrote it, or import again"


def remove_staging(paths: Paths) -> None:
    for file in paths.root.glob("staging.sqlite*"):
        file.unlink()


def refuse(paths: Paths, commands: list[list[str]], why: str) -> None:
    """Require that each command fails in one line that says why, and makes and removes no file."""

    def files() -> set[Path]:
        return {path for path in paths.root.rglob("*") if path.suffix not in (".lock", ".stamp")} - {paths.tmp}

    kept = files()
    for command in commands:
        assert_fails_in_one_line(call_command(*command, "--warehouse", paths.root), why)
        assert files() == kept


@pytest.mark.parametrize("lost", ["", "staging", "identity", "both"])
def test_another_format_is_refused_by_every_command(paths: Paths, tmp_path: Path, lost: str) -> None:
    """Either of the two files that have the number is enough. Without both a new id would make it another warehouse."""
    other = FORMAT - 1 if lost == "identity" else FORMAT + 1
    write_identity(paths, Identity(other, "00"))
    if lost == "identity":
        with closing(sqlite3.connect(paths.staging)) as connection, connection:
            connection.execute("UPDATE about SET format = ?", (other,))
    if lost in ("staging", "both"):
        remove_staging(paths)
    if lost in ("identity", "both"):
        paths.identity.unlink()
    why = f"{paths.root} has format {other}; this version reads format {FORMAT}: {CURE}"
    if lost == "both":
        why = f"{paths.identity}: missing; put this file back from a backup"
    refuse(paths, [*READERS, *WRITERS, *(OTHERS if lost != "both" else [])], why)


def test_another_format_is_refused_by_a_server_and_where_a_backup_goes(paths: Paths, tmp_path: Path) -> None:
    """The server ends with status 2 and both numbers, without a traceback."""
    copy = tmp_path / "copy"
    assert call_command("backup", copy, "--warehouse", paths.root).exit_code == 0
    write_identity(Paths(copy), Identity(FORMAT + 1, read_identity(paths).id))
    why = f"has format {FORMAT + 1}; this version reads format {FORMAT}: {CURE}"
    refuse(paths, [["backup", str(copy)]], f"{copy} {why}")
    result = run_command("serve", "--port", "0", "--workers", "1", "--fold-every", "0", "--warehouse", copy)
    told = result.stderr
    assert (result.returncode, why in told, "Traceback" in told) == (2, True, False)


def test_a_damaged_identity_file_is_named(paths: Paths) -> None:
    """Opening a warehouse with a damaged identity file raises an error that names it."""
    for content in (b"", b"{", b"[]", b'{"format": 1}', b'{"format": "x", "id": "y"}', b"\xff"):
        paths.identity.write_bytes(content)
        with pytest.raises(UnreadableWarehouse, match=f"{paths.identity}.*damaged"):
            sigdir.open(paths.root)
