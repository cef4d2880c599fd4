"""A short torture run, and the ledger's own checks on rows that differ from what was acknowledged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.table.identity import FORMAT, Identity, write_identity
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.serve.support import Row, digest
from tests.torture.checks import by_files
from tests.torture.ledger import Ledger
from tests.torture.plan import SHARED, draw_stores
from tests.torture.stores import StoreRound

TEXTS = [f"f{number}(uint256)" for number in range(5)]
ROWS = [Row(number + 1, 1_000_000 + number, text, digest(text)[:4]) for number, text in enumerate(TEXTS)]


@pytest.mark.long
def test_nothing_is_lost_in_two_rounds(tmp_path: Path) -> None:
    """Two rounds of `make torture`: a server, imports, folds, a compaction and a backup under load, killed as the seed says."""
    command = [sys.executable, "-m", "tests.torture", "--seed", "141", "--rounds", "2", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["rounds"] == 2
    assert figures["kills"]
    assert figures["found"] > figures["acknowledged"] > 0
    assert figures["commands"].keys() >= {"backup", "compact"}


@pytest.mark.long
def test_nothing_is_lost_in_a_store(tmp_path: Path) -> None:
    """The part of a round with a store: drivers, an executor and a replica are killed, and all imports are there."""
    pytest.importorskip("pysail")
    kills: Counter[str] = Counter()
    assert StoreRound(tmp_path / "round", draw_stores(random.Random(2)), kills).play() > SHARED
    assert {"driver of local at written", "executor at task_written"} <= kills.keys()


def a_ledger() -> Ledger:
    """A ledger in which all rows but the last are acknowledged, and the last is reported as present."""
    ledger = Ledger()
    ledger.send((SIGNATURES, text) for text in TEXTS)
    for row in ROWS[:-1]:
        ledger.acknowledge(SIGNATURES, row)
    ledger.exists([(SIGNATURES, TEXTS[-1])])
    return ledger


def test_rows_as_acknowledged_are_no_finding() -> None:
    """A row that was sent without a response may be stored or not."""
    ledger = a_ledger()
    ledger.send([(SIGNATURES, "unknown()")])
    ledger.check(SIGNATURES, ROWS, "here")
    ledger.check(SIGNATURES, [*ROWS, Row(9, 2_000_000, "unknown()", b"1234")], "here")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[1:],
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]._replace(id=9, created_at=2_000_000)],
        lambda rows: [rows[0]._replace(id=0), *rows[1:]],
        lambda rows: [rows[0]._replace(created_at=1), *rows[1:]],
        lambda rows: [rows[0]._replace(hash=b"abcd"), *rows[1:]],
        lambda rows: [rows[1], rows[0], *rows[2:]],
        lambda rows: [*rows, Row(9, 2_000_000, "strange()", b"1234")],
    ],
    ids=["lost", "reported as present", "doubled", "new id", "new time", "new hash", "out of order", "of no client"],
)
def test_rows_that_differ_from_the_ledger_are_a_finding(spoil: Callable[[list[Row]], list[Row]]) -> None:
    """Each is reported in a line that names the collection."""
    with pytest.raises(AssertionError, match=SIGNATURES):
        a_ledger().check(SIGNATURES, spoil(ROWS), "here")


def test_rows_that_were_there_once_stay() -> None:
    """Also rows that an import brought, which no response reported."""
    ledger = Ledger()
    ledger.send((SIGNATURES, text) for text in TEXTS)
    ledger.remember(SIGNATURES, ROWS)
    with pytest.raises(AssertionError, match="begin with the 5 rows"):
        ledger.check(SIGNATURES, ROWS[1:], "here")


def test_answers_that_contradict_each_other_are_a_finding() -> None:
    """A text is acknowledged once, with its own hash."""
    ledger = a_ledger()
    with pytest.raises(AssertionError, match="twice"):
        ledger.acknowledge(SIGNATURES, ROWS[0]._replace(id=9))
    with pytest.raises(AssertionError, match="hash"):
        ledger.acknowledge(SIGNATURES, ROWS[-1]._replace(hash=b"abcd"))


def test_files_that_the_log_does_not_name_are_a_finding(tmp_path: Path) -> None:
    """A data file, a rejects file, a run's folder, a file in the log."""
    paths = Paths(tmp_path)
    write_identity(paths, Identity(FORMAT, "00"))
    for stray in (
        paths.data_file(SIGNATURES, "run", 1),
        paths.rejects_file("run"),
        paths.evidence_file(SIGNATURES, "run", 1),
        paths.evidence_manifest("run"),
        paths.tmp / "run",
        paths.log / "0.json#1",
    ):
        for folder in (paths.log, stray.parent):
            folder.mkdir(parents=True, exist_ok=True)
        stray.touch()
        with pytest.raises(AssertionError, match=stray.name):
            by_files(paths)
        stray.unlink()
    by_files(paths)
