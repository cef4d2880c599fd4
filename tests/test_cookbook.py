"""docs/cookbook.md: each query runs as printed and gives the recorded answer.

``cookbook.json`` has the answers of the bundled standards and of the files below, which an oracle in Python agreed with when they were
recorded. The real corpora have an answer to each question.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import sigdir
from benchmarks.cookbook import PAGE, THEIRS, Question, questions
from sigdir.warehouse import Warehouse
from tests.conftest import ROOT, import_files

CORPORA = ROOT.parent / "shared" / "corpora"
QUESTIONS = questions()
ANSWERS: list[Any] = json.loads((ROOT / "tests" / "cookbook.json").read_text())
MORE = [
    "many_msg_babbage(bytes1)", "join_tg_invmru_haha_fd06787(address,bool)", "collate_propagate_storage(bytes16)", "burn(uint256)",
    "transferForm(address,address,uint256)", "tranferFrom()", "wycpnbqcyf()", "event burn(uint256)", "flashFee(address,uint256)", "bad(",
    "f(uint7)", "1st()",
]  # fmt: skip
"""Collisions, look-alikes, a mined selector, a text of both kinds, rejects."""
INTERFACE = {
    "contractName": "A", "deployedBytecode": "0x60003560e01c6301ffc9a714601057005b00",
    "abi": [{"type": "function", "name": "supportsInterface", "inputs": [{"name": "id", "type": "bytes4"}], "outputs": []}],
}  # fmt: skip


def opened(folder: Path, *sources: Path) -> Warehouse:
    """A warehouse of these files, with the list of question 11."""
    import_files(sources, folder / "warehouse")
    (theirs := folder / "theirs.txt").write_text("\n".join(THEIRS))
    return sigdir.open(folder / "warehouse", files={"theirs": theirs})


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("cookbook")
    (more := folder / "more.txt").write_text("\n".join(MORE))
    (compiled := folder / "A.json").write_text(json.dumps(INTERFACE))
    shutil.copytree(ROOT / "samples", folder / "samples", ignore=_not_in_answers)
    return opened(folder, folder / "samples", more, compiled)


def _not_in_answers(_: str, names: list[str]) -> list[str]:
    """Samples that are no standard, and ERC-3156: question 9 asks for a standard that is there in part."""
    return [name for name in names if not name.startswith("erc-") or name == "erc-3156-flash-loans.txt"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    if not CORPORA.is_dir():
        pytest.skip(f"no real data: {CORPORA} is missing")
    return opened(tmp_path_factory.mktemp("corpora"), CORPORA)


def test_the_page_has_questions_and_their_times() -> None:
    """The questions are numbered in order and have SQL; the table of times has a line for each heading."""
    assert [question.number for question in QUESTIONS] == list(range(1, len(ANSWERS) + 1))
    table = re.findall(r"^\| (\d+)\. (.+?) \| [\d,]+ \| [\d.]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert table == [(str(question.number), question.title) for question in QUESTIONS]
    assert PAGE.read_text().count("```sql") == len(QUESTIONS)


def answer(warehouse: Warehouse, question: Question) -> Any:
    """The rows as JSON has them, without the times and folders of this run."""
    rows = [list(row) for row in warehouse.sql(question.query).rows()]
    written = json.dumps(rows, default=lambda _: "a time")
    written = re.sub(r"/[^\" ]*/(?=samples/|more\.txt|A\.json)", "", written)
    return json.loads(re.sub(r"first seen \d{4}-\d\d-\d\d", "first seen today", written))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question.number))
def test_each_query_gives_the_recorded_answer(warehouse: Warehouse, question: Question) -> None:
    """Of rows, names and counts; each question has one."""
    assert answer(warehouse, question) == ANSWERS[question.number - 1]
    assert ANSWERS[question.number - 1]


@pytest.mark.long
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question.number))
def test_the_real_corpora_have_an_answer(corpora: Warehouse, question: Question) -> None:
    assert answer(corpora, question)
