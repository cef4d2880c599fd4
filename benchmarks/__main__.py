"""`python -m benchmarks`: check each path against its oracle, then measure it together with its reference."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from benchmarks import (
    bench_ask,
    bench_bulk,
    bench_contracts,
    bench_decode,
    bench_engine,
    bench_evidence,
    bench_hash,
    bench_import,
    bench_live,
    bench_pack,
    bench_search,
    bench_serve,
    bench_solve,
    bench_sql,
    bench_store,
    bench_upkeep,
    bench_web,
    bounds,
    corpus,
)
from benchmarks.goals import GOALS
from benchmarks.measure import ROOT, Figure, machine, save, saved, sigdir

_COLUMNS = ("what", "measured", "ours", "yardstick", "spread", "wanted")


def _table(figures: list[Figure], rows: int) -> Table:
    what, *others = _COLUMNS
    table = Table(what, title=f"{machine()['cpu']}, {machine()['cores']} cores, {rows:,} rows")
    for name in others:
        table.add_column(name, justify="right")
    table.add_column("")
    for figure in figures:
        table.add_row(*figure.row, "holds" if figure.holds else "MISSED")
    return table


def _markdown(figures: list[Figure]) -> list[str]:
    lines = [f"| {' | '.join(_COLUMNS)} | on |", "|---|" + "--:|" * len(_COLUMNS)]
    for figure in figures:
        mark = "" if figure.holds else " **missed**"
        lines.append(f"| {' | '.join(figure.row)}{mark} | {figure.day} |")
    return lines


def _changes() -> list[str]:
    """Each goal that was another one before."""
    return [f"- {goal.what}: {goal.changes}" for goal in GOALS.values() if goal.changes]


def _parts(rows: int, rounds: int, corpora: Path | None) -> dict[str, Callable[[], list[Figure]]]:
    return {
        "hash": bench_hash.figures,
        "search": lambda: bench_search.figures(rows, rounds, corpora),
        "import": lambda: bench_import.figures(rows, rounds),
        "evidence": lambda: bench_evidence.figures(rounds, corpora),
        "contracts": lambda: bench_contracts.figures(rounds),
        "pack": lambda: bench_pack.figures(rounds, corpora, corpus.CACHE),
        "ask": lambda: bench_ask.figures(rows, rounds),
        "solve": lambda: bench_solve.figures(rounds, corpora, corpus.CACHE),
        "sql": lambda: bench_sql.figures(rows, rounds, corpora),
        "upkeep": lambda: bench_upkeep.figures(rows, rounds),
        "store": lambda: bench_store.figures(rows, rounds),
        "serve": lambda: bench_serve.figures(rows, rounds, corpora),
        "live": lambda: bench_live.figures(rows),
        "bulk": lambda: bench_bulk.figures(rows, rounds),
        "decode": lambda: bench_decode.figures(rounds, corpora),
        "web": lambda: bench_web.figures(rows, rounds),
        "engine": lambda: bench_engine.figures(rows, rounds),
        "engine-memory": lambda: bench_engine.memory(rows),
        "import-large": lambda: bench_import.large(rows, rounds),
        "serve-large": lambda: bench_serve.large(rows, rounds),
        "search-large": lambda: bench_search.large(rows, corpora),
    }


_LONG = ("engine-memory", "import-large", "serve-large", "search-large")
"""Three to ten minutes each, of ten times the rows."""


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Size of the large corpora.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each pair; the best counts.")
@click.option(
    "--only",
    type=click.Choice([*_parts(0, 0, None)]),
    multiple=True,
    help=f"Measure only this part.  [default: all but {', '.join(_LONG)}]",
)
@click.option("--show", is_flag=True, help="Print the saved results as Markdown, and measure nothing.")
@click.option(
    "--corpora",
    type=click.Path(path_type=Path),
    default=ROOT.parent / "shared" / "corpora",
    help="Folder of the real corpora.",
)
def main(rows: int, rounds: int, only: tuple[str, ...], show: bool, corpora: Path) -> None:
    """Warm the kernels, measure, print the table and what is bound by what, and save all in benchmarks/results.

    Exit status: 0 every figure is reached, 1 some are missed.
    """
    cores = os.cpu_count() or 1
    if show:
        figures, limits = saved(rows)
        click.echo(
            "\n".join(
                [
                    *_markdown(figures),
                    "",
                    "Goals that were others before:",
                    "",
                    *_changes(),
                    "",
                    *bounds.page(figures, limits, cores),
                ]
            )
        )
        return
    sigdir("compile")
    corpus.CACHE.mkdir(exist_ok=True)
    limits = bounds.limits(corpus.CACHE)
    console = Console(width=None if sys.stdout.isatty() else 130)
    present = corpora if corpora.is_dir() else None
    if present is None:
        console.print("The real corpora are missing; measurements on them are left out.")
    figures = []
    for name, measured in _parts(rows, rounds, present).items():
        if name not in only and (only or name in _LONG):
            continue
        found = measured()
        console.print(_table(found, rows))
        console.print(f"saved in {save(found, rows, limits).relative_to(ROOT)}")
        figures += found
    console.print(Markdown("\n".join(bounds.page(figures, limits, cores))))
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


if __name__ == "__main__":
    main()
