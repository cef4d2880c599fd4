"""`python -m benchmarks.cookbook`: time the queries of docs/cookbook.md on the real corpora, for the page's table."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

import sigdir
from benchmarks import corpus
from benchmarks.measure import ROOT
from benchmarks.measure import sigdir as run_sigdir
from sigdir.warehouse import Warehouse

PAGE = ROOT / "docs" / "cookbook.md"
THEIRS = ["function transfer(address to, uint amount)", "neverSeenBefore(uint,(bool,string)[])", "no signature"]
"""The lines of the list in question 11."""

_QUESTION = re.compile(r"^## (\d+)\. (.+?)$.*?^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"(?<=<!-- times -->\n).*(?=<!-- /times -->)", re.DOTALL)
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the page, with its number and its SQL."""

    number: int
    title: str
    query: str


def questions() -> list[Question]:
    """The questions of the page, in order."""
    return [Question(int(number), title, query) for number, title, query in _QUESTION.findall(PAGE.read_text())]


def _timed(warehouse: Warehouse, query: str) -> tuple[float, int]:
    """The best time of several rounds in seconds, and the number of rows."""
    best, rows = float("inf"), 0
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        rows = warehouse.sql(query).arrow().num_rows
        best = min(best, time.perf_counter() - began)
    return best, rows


def _opened(corpora: Path) -> Warehouse:
    folder = corpus.CACHE / "real"
    if not (folder / "table").is_dir():
        run_sigdir("import", str(corpora), "--warehouse", str(folder), "--quiet")
    theirs = corpus.CACHE / "theirs.txt"
    theirs.write_text("\n".join(THEIRS) + "\n")
    warehouse = sigdir.open(folder, files={"theirs": theirs})
    warehouse.sql(
        "SELECT selector('f()'), count(text_signature) FROM signatures"
    ).rows()  # loads the kernels, and the files into memory
    return warehouse


@click.command()
@click.option(
    "--corpora",
    type=click.Path(path_type=Path),
    default=ROOT.parent / "shared" / "corpora",
    help="Folder of the real corpora.",
)
def main(corpora: Path) -> None:
    """Time each query and rewrite the page's table."""
    if not corpora.is_dir():
        sys.exit(f"the real corpora are missing: {corpora}")
    warehouse = _opened(corpora)
    lines = ["| question | rows | seconds |", "|---|--:|--:|"]
    for question in questions():
        seconds, rows = _timed(warehouse, question.query)
        lines.append(f"| {question.number}. {question.title} | {rows:,} | {seconds:.2f} |")
        print(lines[-1])
    table = "\n".join(lines) + "\n"
    PAGE.write_text(_TABLE.sub(lambda _: table, PAGE.read_text()))


if __name__ == "__main__":
    main()
