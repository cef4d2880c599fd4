"""``python -m tests.torture``: rounds until so many are played or so many minutes are over."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click import Context

from sigdir.cli.main import main as commands
from tests.torture.ledger import Finding
from tests.torture.plan import draw
from tests.torture.rounds import UPKEEP, Torture


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="What the rounds are drawn from.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="At most so many.")
@click.option("--minutes", type=click.FloatRange(0), help="Begin none after so many.")
@click.option("--from-round", "first", type=click.IntRange(1), default=1, help="Begin with this one, to play it again.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where.  [default: a temporary one]")
@click.option("--plan", "only_plan", is_flag=True, help="Show what the rounds would do.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON on standard output.")
def main(
    seed: int, rounds: int, minutes: float | None, first: int, folder: Path | None, only_plan: bool, as_json: bool
) -> None:
    """Kill the processes of a warehouse again and again, and see whether it keeps its word.

    Exit status: 0 nothing was lost, 1 something was; then seed and round are told and the folder is
    kept. A round can be played again by itself with --from-round.

    \b
    Examples:
      python -m tests.torture --seed 7 --rounds 25
      python -m tests.torture --seed 7 --rounds 1 --from-round 13
      python -m tests.torture --minutes 30 --rounds 1000 --json > figures.json
    """
    upkeep = [name for name in UPKEEP if name in commands.list_commands(Context(commands))]
    plans = (draw(seed, number, upkeep, first) for number in range(first, first + rounds))
    if only_plan:
        for plan in plans:
            click.echo(json.dumps(asdict(plan)))
        return
    kept = folder or Path(tempfile.mkdtemp(prefix="sigdir-torture-"))
    kept.mkdir(parents=True, exist_ok=True)
    torture = Torture(kept, upkeep)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of the end below: no process may stay behind
    began = time.monotonic()
    click.echo(f"seed {seed}, besides import and fold: {', '.join(upkeep) or 'nothing'}; in {kept}", err=True)
    try:
        for plan in plans:
            is_late = minutes is not None and time.monotonic() - began > 60 * minutes
            if is_late:
                break
            in_round = time.monotonic()
            torture.play(plan)
            _tell(plan.round, time.monotonic() - in_round, torture)
        torture.close()
    except Finding as finding:
        click.echo(f"FOUND with --seed {seed} in round {plan.round}: {finding}", err=True)
        click.echo(f"again: python -m tests.torture --seed {seed} --from-round {plan.round} --rounds 1", err=True)
        click.echo(f"kept: {kept}", err=True)
        sys.exit(1)
    finally:
        torture.end()
        torture.figures.seconds = time.monotonic() - began
        told = torture.figures.as_dict()
        click.echo(json.dumps(told) if as_json else _line(told))
    if folder is None:
        shutil.rmtree(kept, ignore_errors=True)


def _tell(number: int, seconds: float, torture: Torture) -> None:
    done = torture.figures
    click.echo(
        f"round {number}: {seconds:.1f} s; so far {sum(done.kills.values())} kills,"
        f" {done.acknowledged:,} rows acknowledged, {done.found:,} found",
        err=True,
    )


def _line(told: dict[str, Any]) -> str:
    kills = ", ".join(f"{kind} {count}" for kind, count in told["kills_by_kind"].items())
    return (
        f"{told['rounds']} rounds, {told['kills']} kills ({kills}), {told['rows_acknowledged']:,} rows acknowledged,"
        f" {told['rows_found']:,} found, {told['lookups']:,} lookups, {told['pages']:,} pages,"
        f" {told['imports_finished']} imports finished, {told['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
