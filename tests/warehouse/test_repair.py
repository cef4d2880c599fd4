"""`sigdir repair` removes a text that is stored twice; the older id stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sigdir
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Kind
from sigdir.signatures.rank import contracts_of, sources_of
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.repair import repair
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.staging.rows import PostedSighting
from sigdir.warehouse.staging.writer import Staging
from tests.conftest import import_files
from tests.warehouse.support import (
    add_row,
    assert_clean,
    call_command,
    content_of,
    digest_of,
    fold,
    names,
    places,
    publish,
    run_command,
    served_texts,
    stage,
    visible,
)

POINTS = ("repair_written", "repair_committed")
"""The failpoints of a repair."""


def post_again(paths: Paths, *texts: str) -> None:
    """Stage texts that the table has, as a server with a damaged index did."""
    staging = Staging(paths.staging)
    high_water = read_snapshot(paths).high_water
    for text in texts:
        with staging.exclusive() as transaction:
            assert add_row(transaction, SIGNATURES, text, high_water[SIGNATURES])
    staging.close()


def verify(paths: Paths) -> list[str]:
    """The findings by their kind."""
    result = call_command("verify", "--json", "--quiet", "--warehouse", paths.root)
    return [finding["what"] for finding in json.loads(result.stdout)["findings"]]


@pytest.fixture
def doubled(paths: Paths) -> Paths:
    """Two imports; a3() and b7() POSTed again and folded with a new text; a1() and b1() POSTed again and not folded."""
    publish(paths, names("a", 10), ["E()"])
    publish(paths, names("b", 10))
    Reader(paths).close()
    post_again(paths, "a3(uint256)", "b7(uint256)")
    stage(paths, SIGNATURES, "new()")
    stage(paths, EVENT_SIGNATURES, "F()")
    fold(paths)
    post_again(paths, "a1(uint256)", "b1(uint256)")
    return paths


def test_a_text_that_is_there_twice_keeps_its_older_id(doubled: Paths) -> None:
    """In the table and in staging; everything else is as it was, and verify finds nothing."""
    assert set(verify(doubled)) == {"twice"}
    before = places(visible(doubled)[SIGNATURES].slice(0, 20)) | {
        "new()": places(visible(doubled)[SIGNATURES])["new()"]
    }
    old = content_of(doubled)
    reader = Reader(doubled)
    done = repair(doubled)
    assert done.version == 4
    assert [(row.id, row.kept, row.text, row.is_staged) for row in done.removed[SIGNATURES]] == [
        (21, 4, "a3(uint256)", False), (22, 18, "b7(uint256)", False),
        (24, 2, "a1(uint256)", True), (25, 12, "b1(uint256)", True),
    ]  # fmt: skip
    assert places(visible(doubled)[SIGNATURES]) == before
    assert content_of(doubled, 3) == old
    assert verify(doubled) == []
    assert_clean_but_for_old_files(doubled)
    assert served_texts(reader.current(), SIGNATURES) == [*names("a", 10), *names("b", 10), "new()"]
    reader.close()
    [new] = stage(doubled, SIGNATURES, "later()")
    assert new.id == 26


def assert_clean_but_for_old_files(paths: Paths) -> None:
    call_command("vacuum", "--keep", "0s", "--warehouse", paths.root)
    assert_clean(paths)


def test_a_file_of_duplicates_alone_is_left_out(paths: Paths) -> None:
    """Its rows were all POSTed again, so the new version has no file in its place."""
    publish(paths, names("a", 3))
    post_again(paths, *names("a", 3))
    fold(paths)
    assert len(read_snapshot(paths).files[SIGNATURES]) == 2
    assert repair(paths).version == 3
    assert len(read_snapshot(paths).files[SIGNATURES]) == 1
    assert verify(paths) == []
    assert list(places(visible(paths)[SIGNATURES])) == names("a", 3)


def test_what_is_said_of_both_rows_is_said_of_the_row_that_stays(paths: Paths, tmp_path: Path) -> None:
    """A POSTed declaration of a text that a list and a contract have; servers then rank it with all of that."""
    text, abi = "a(uint256)", [{"type": "function", "name": "a", "inputs": [{"type": "uint256", "name": "amount"}]}]
    (tmp_path / "list.txt").write_text(f"{text}\nb(uint256)\n")
    (tmp_path / "C.json").write_text(json.dumps({"contractName": "C", "abi": abi}))
    import_files([tmp_path / "list.txt", tmp_path / "C.json"], paths.root)
    Reader(paths).close()
    staging = Staging(paths.staging)
    high_water = read_snapshot(paths).high_water[SIGNATURES]
    with staging.exclusive() as transaction:
        row = add_row(transaction, SIGNATURES, text, high_water)
        assert row is not None
        transaction.note_sightings([PostedSighting(SIGNATURES, row.id, Kind.FUNCTION, "function a(uint256 posted)")])
    staging.close()
    fold(paths)
    said = "SELECT id, source, declaration FROM sightings WHERE text_signature = ? ORDER BY source"
    assert {id for id, *_ in sigdir.open(paths.root).sql(said, [text]).rows()} == {1, 3}
    assert call_command("repair", "--warehouse", paths.root).exit_code == 0
    assert sigdir.open(paths.root).sql(said, [text]).rows() == [
        (1, "C.json", "function a(uint256 amount)"), (1, "POST", "function a(uint256 posted)"), (1, "list.txt", None),
    ]  # fmt: skip
    assert verify(paths) == []
    built = sorted(paths.cache.glob("*.ranks"))
    reader = Reader(paths)
    assert sorted(paths.cache.glob("*.ranks")) == built, "the repair has built the columns of files that stay"
    [ranked] = ranked_rows(reader.current(), SIGNATURES, digest_of(text)[:4], Names())
    assert (sources_of(ranked.key), contracts_of(ranked.key)) == (3, 1)
    reader.close()


def test_nothing_to_repair_publishes_nothing(paths: Paths) -> None:
    """The command says so."""
    publish(paths, names("a", 3))
    result = call_command("repair", "--warehouse", paths.root)
    assert (result.exit_code, result.stdout) == (0, "nothing to repair\n")
    assert read_snapshot(paths).version == 1


def test_a_dry_run_shows_and_changes_nothing(doubled: Paths) -> None:
    """Each row is a line."""
    result = call_command("repair", "--dry-run", "--warehouse", doubled.root)
    assert result.stdout.splitlines()[0] == 'signatures: id 21 would be removed, id 4 stays: "a3(uint256)"'
    assert len(result.stdout.splitlines()) == 4
    assert set(verify(doubled)) == {"twice"}


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_repair_is_all_or_nothing(doubled: Paths, point: str) -> None:
    """Before its commit nothing is removed, after it the table's rows; the next repair does the rest."""
    result = run_command("repair", "--warehouse", doubled.root, SIGDIR_FAILPOINT=point)
    assert result.returncode == -9
    assert read_snapshot(doubled).version == (3 if point == "repair_written" else 4)
    again = call_command("repair", "--json", "--warehouse", doubled.root)
    assert json.loads(again.stdout)["removed"][SIGNATURES]
    assert verify(doubled) == []
    assert_clean_but_for_old_files(doubled)
