"""A short torture; and that it would tell: a ledger held to rows that are not what was acknowledged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS
from tests.torture.checks import by_files
from tests.torture.ledger import (
    Finding,
    Ledger,
    Row,
    Rows,
)
from tests.torture.plan import draw

TEXTS = [f"f{number}(uint256)" for number in range(5)]
ROWS = [Row(number + 1, 1_000_000 + number, text, keccak256(text.encode())[:4]) for number, text in enumerate(TEXTS)]


def test_nothing_is_lost_in_two_rounds(tmp_path: Path) -> None:
    """`make torture` for a moment: a server, imports and folds, killed as the seed says."""
    command = [
        sys.executable,
        "-m",
        "tests.torture",
        "--seed",
        "4",
        "--rounds",
        "2",
        "--json",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rounds"] == 2
    assert told["kills"] > 0
    assert told["rows_found"] > told["rows_acknowledged"] > 0


def test_a_round_is_drawn_from_seed_and_number_alone() -> None:
    """So that it can be played again, whatever was played before."""
    assert draw(1, 7, ["compact"]) == draw(1, 7, ["compact"])
    assert draw(1, 7, []).posts == draw(1, 7, ["compact"]).posts
    assert draw(1, 7, []) != draw(2, 7, []) != draw(2, 8, [])


def owing() -> Ledger:
    """A ledger with all but the last row acknowledged, and the last said to be there."""
    ledger = Ledger()
    ledger.send((SIGNATURES, text) for text in TEXTS)
    for row in ROWS[:-1]:
        ledger.acknowledge(SIGNATURES, row)
    ledger.exists([(SIGNATURES, TEXTS[-1])])
    return ledger


def test_rows_as_acknowledged_are_no_finding() -> None:
    """One that was sent and never answered for may be there or not."""
    ledger = owing()
    ledger.send([(SIGNATURES, "unknown()")])
    ledger.hold_to(SIGNATURES, Rows.of(ROWS), "here")
    unknown = Row(9, 2_000_000, "unknown()", b"1234")
    ledger.hold_to(SIGNATURES, Rows.of([*ROWS, unknown]), "here")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[1:],
        lambda rows: rows[:-1],
        lambda rows: [*rows, replace(rows[0], id=9, created_at=2_000_000)],
        lambda rows: [replace(rows[0], id=0), *rows[1:]],
        lambda rows: [replace(rows[0], created_at=1), *rows[1:]],
        lambda rows: [replace(rows[0], hash=b"abcd"), *rows[1:]],
        lambda rows: [rows[1], rows[0], *rows[2:]],
        lambda rows: [*rows, Row(9, 2_000_000, "strange()", b"1234")],
    ],
    ids=["lost", "said to be there", "doubled", "new id", "new time", "new hash", "out of order", "sent by nobody"],
)
def test_rows_that_differ_from_the_ledger_are_a_finding(spoil: Callable[[list[Row]], list[Row]]) -> None:
    """Each in a line that names the collection."""
    with pytest.raises(Finding, match=SIGNATURES):
        owing().hold_to(SIGNATURES, Rows.of(spoil(ROWS)), "here")


def test_rows_that_were_there_once_stay() -> None:
    """Also those that an import brought, which no answer told of."""
    ledger = Ledger()
    ledger.send((SIGNATURES, text) for text in TEXTS)
    ledger.remember(SIGNATURES, Rows.of(ROWS))
    with pytest.raises(Finding, match="begin with the 5 rows"):
        ledger.hold_to(SIGNATURES, Rows.of(ROWS[1:]), "here")


def test_answers_that_contradict_each_other_are_a_finding() -> None:
    """A text is acknowledged once, and with its own hash."""
    ledger = owing()
    with pytest.raises(Finding, match="twice"):
        ledger.acknowledge(SIGNATURES, replace(ROWS[0], id=9))
    with pytest.raises(Finding, match="hash"):
        ledger.acknowledge(SIGNATURES, replace(ROWS[-1], hash=b"abcd"))


def test_files_that_nobody_names_are_a_finding(tmp_path: Path) -> None:
    """A data file without a version, a run's folder without a run."""
    paths = Paths(tmp_path)
    for stray in (
        paths.data_file(SIGNATURES, "run", 1),
        paths.rejects_file("run"),
        paths.tmp / "run",
        paths.log / "0.json#1",
    ):
        for folder in (paths.log, stray.parent):
            folder.mkdir(parents=True, exist_ok=True)
        stray.touch()
        with pytest.raises(Finding, match=stray.name):
            by_files(paths)
        stray.unlink()
    by_files(paths)
