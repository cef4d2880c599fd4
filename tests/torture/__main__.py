"""``python -m tests.torture`` plays rounds, up to a number of rounds or of minutes."""

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
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the rounds.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="At most this many rounds.")
@click.option("--minutes", type=click.FloatRange(0), help="Start no round after this many minutes.")
@click.option(
    "--from-round", "first", type=click.IntRange(1), default=1, help="Number of the first round, to play one again."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the warehouses.  [default: temporary]",
)
@click.option("--plan", "plan_only", is_flag=True, help="Only show what the rounds would do.")
@click.option("--json", "as_json", is_flag=True, help="Write the figures as JSON to standard output.")
def main(
    seed: int, rounds: int, minutes: float | None, first: int, folder: Path | None, plan_only: bool, as_json: bool
) -> None:
    """Kill the processes of a warehouse again and again, and check that it loses nothing.

    Exit status: 0 nothing was lost, 1 something was. Then the seed and the round are shown and the
    folder is kept. --from-round plays a round again by itself.

    \b
    Examples:
      python -m tests.torture --seed 7 --rounds 25
      python -m tests.torture --seed 7 --rounds 1 --from-round 13
      python -m tests.torture --minutes 30 --rounds 1000 --json > figures.json
    """
    upkeep = [name for name in UPKEEP if name in commands.list_commands(Context(commands))]
    plans = (draw(seed, number, upkeep, first) for number in range(first, first + rounds))
    if plan_only:
        for plan in plans:
            click.echo(json.dumps(asdict(plan)))
        return
    kept = folder or Path(tempfile.mkdtemp(prefix="sigdir-torture-"))
    kept.mkdir(parents=True, exist_ok=True)
    torture = Torture(kept, upkeep)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # runs the finally below, which ends all processes
    began = time.monotonic()
    click.echo(f"seed {seed}, commands besides import and fold: {', '.join(upkeep) or 'nothing'}; in {kept}", err=True)
    try:
        for plan in plans:
            is_late = minutes is not None and time.monotonic() - began > 60 * minutes
            if is_late:
                break
            round_began = time.monotonic()
            torture.play(plan)
            _write_progress(plan.round, time.monotonic() - round_began, torture)
        torture.close()
    except Finding as finding:
        click.echo(f"FOUND with --seed {seed} in round {plan.round}: {finding}", err=True)
        click.echo(f"to repeat: python -m tests.torture --seed {seed} --from-round {plan.round} --rounds 1", err=True)
        click.echo(f"folder: {kept}", err=True)
        sys.exit(1)
    finally:
        torture.end()
        torture.figures.seconds = time.monotonic() - began
        document = torture.figures.to_dict()
        click.echo(json.dumps(document) if as_json else _line(document))
    if folder is None:
        shutil.rmtree(kept, ignore_errors=True)


def _write_progress(number: int, seconds: float, torture: Torture) -> None:
    done = torture.figures
    click.echo(
        f"round {number}: {seconds:.1f} s; so far {sum(done.kills.values())} kills,"
        f" {done.acknowledged:,} rows acknowledged, {done.found:,} found",
        err=True,
    )


def _line(figures: dict[str, Any]) -> str:
    kills = ", ".join(f"{kind} {count}" for kind, count in figures["kills_by_kind"].items())
    return (
        f"{figures['rounds']} rounds, {figures['kills']} kills ({kills}), {figures['rows_acknowledged']:,} rows acknowledged,"
        f" {figures['rows_found']:,} found, {figures['lookups']:,} lookups, {figures['pages']:,} pages,"
        f" {figures['imports_finished']} imports finished, {figures['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
