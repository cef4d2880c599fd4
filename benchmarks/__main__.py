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
    servers,
)
from benchmarks.measure import ROOT, Figure, machine, save, saved, sigdir


def _table(figures: list[Figure]) -> Table:
    table = Table("what", title=f"{machine()['cpu']}, {machine()['cores']} cores")
    for name in ("ours", "spread", "yardstick", "ratio", "wanted"):
        table.add_column(name, justify="right")
    table.add_column("")
    for figure in figures:
        mark = "holds" if figure.holds else "MISSED"
        ratio, spread = f"{figure.ratio:.2f}x", bounds.spread_of(figure)
        table.add_row(figure.name, figure.ours, spread, figure.yardstick, ratio, figure.wanted, mark)
    return table


def _markdown(figures: list[Figure]) -> str:
    lines = ["| what | ours | spread | yardstick | ratio | wanted |", "|---|--:|--:|--:|--:|--:|"]
    for f in figures:
        mark, spread = "" if f.holds else " **missed**", bounds.spread_of(f)
        lines.append(f"| {f.name} | {f.ours} | {spread} | {f.yardstick} | {f.ratio:.2f}x | {f.wanted}{mark} |")
    return "\n".join(lines)


_LONG = ("engine-executors", "engine-memory", "import-large", "serve-large", "search-large")
"""Three to ten minutes each; all but the first have ten times the rows."""


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Size of the large corpora.")
@click.option("--rounds", default=3, show_default=True, help="Runs of each pair; the best counts.")
@click.option(
    "--only",
    type=click.Choice(
        [
            "hash",
            "search",
            "import",
            "evidence",
            "contracts",
            "pack",
            "sql",
            "ask",
            "upkeep",
            "store",
            "serve",
            "live",
            "bulk",
            "web",
            "decode",
            "engine",
            "engine-executors",
            "engine-memory",
            "import-large",
            "serve-large",
            "search-large",
        ]
    ),
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
        click.echo("\n".join([_markdown(figures), "", *bounds.page(figures, limits, cores)]))
        return
    sigdir("compile")
    corpus.CACHE.mkdir(exist_ok=True)
    limits = bounds.limits(corpus.CACHE)
    console = Console(width=None if sys.stdout.isatty() else 130)
    present = corpora if corpora.is_dir() else None
    if present is None:
        console.print("The real corpora are missing; measurements on them are left out.")
    parts: dict[str, Callable[[], list[Figure]]] = {
        "hash": bench_hash.figures,
        "search": lambda: bench_search.figures(rows, rounds, present),
        "import": lambda: bench_import.figures(rows, rounds, present),
        "evidence": lambda: bench_evidence.figures(rounds, present),
        "contracts": lambda: bench_contracts.figures(rounds),
        "pack": lambda: bench_pack.figures(rounds, present, corpus.CACHE),
        "ask": lambda: bench_ask.figures(rows, rounds),
        "solve": lambda: bench_solve.figures(rounds, present, corpus.CACHE),
        "sql": lambda: bench_sql.figures(rows, rounds, present),
        "upkeep": lambda: bench_upkeep.figures(rows, rounds),
        "store": lambda: bench_store.figures(rows, rounds),
        "serve": lambda: [f for server in servers.installed() for f in bench_serve.figures(rows, rounds, server)],
        "live": lambda: [f for server in servers.installed() for f in bench_live.figures(rows, server)],
        "bulk": lambda: [f for server in servers.installed() for f in bench_bulk.figures(rows, rounds, server)],
        "engine": lambda: bench_engine.figures(rows, rounds),
        "engine-executors": lambda: bench_engine.executors(rows, rounds),
        "decode": lambda: [f for server in servers.installed() for f in bench_decode.figures(rounds, present, server)],
        "web": lambda: [f for server in servers.installed() for f in bench_web.figures(rows, rounds, server)],
        "engine-memory": lambda: bench_engine.memory(rows),
        "import-large": lambda: bench_import.large(rows, rounds),
        "serve-large": lambda: [f for server in servers.installed() for f in bench_serve.large(rows, rounds, server)],
        "search-large": lambda: bench_search.large(rows, present),
    }
    figures = []
    for name, measured in parts.items():
        if name in only or (not only and name not in _LONG):
            found = measured()
            console.print(_table(found))
            console.print(f"saved in {save(found, rows, limits).relative_to(ROOT)}")
            figures += found
    console.print(Markdown("\n".join(bounds.page(figures, limits, cores))))
    sys.exit(0 if all(figure.holds for figure in figures) else 1)


if __name__ == "__main__":
    main()
