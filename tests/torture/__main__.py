"""``python -m tests.torture`` plays rounds, up to a number of rounds or of minutes."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.torture.plan import draw
from tests.torture.rounds import Torture


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the rounds.")
@click.option("--rounds", type=click.IntRange(1), default=200, show_default=True, help="At most this many rounds.")
@click.option("--minutes", type=click.FloatRange(0), help="Start no round after this many minutes.")
@click.option("--from-round", "first", type=click.IntRange(1), default=1, help="Number of the first round.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for the warehouses.  [default: temporary]")
def main(seed: int, rounds: int, minutes: float | None, first: int, folder: Path | None) -> None:
    """Kill the processes of a warehouse again and again, and check that it loses nothing. Writes the figures as JSON.

    Exit status: 0 nothing was lost, 1 something was. Then the seed and the round are shown and the
    folder is kept. --from-round plays a round again by itself.

    \b
    Examples:
      python -m tests.torture --seed 7 --rounds 25
      python -m tests.torture --seed 7 --rounds 1 --from-round 13
    """
    kept = folder or Path(tempfile.mkdtemp(prefix="sigdir-torture-"))
    kept.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the block below, and with it all processes
    torture, began = Torture(kept), time.monotonic()
    number = first
    try:
        with torture.running:
            for number in range(first, first + rounds):
                if minutes is not None and time.monotonic() - began > 60 * minutes:
                    break
                torture.play(draw(seed, number))
                click.echo(f"round {number}: {time.monotonic() - began:.1f} s; {torture.to_json()}", err=True)
    except AssertionError as finding:
        click.echo(f"FOUND with --seed {seed} in round {number}: {finding}", err=True)
        click.echo(f"to repeat: python -m tests.torture --seed {seed} --from-round {number} --rounds 1", err=True)
        click.echo(f"folder: {kept}", err=True)
        sys.exit(1)
    finally:
        click.echo(torture.to_json())
    if folder is None:
        shutil.rmtree(kept, ignore_errors=True)


if __name__ == "__main__":
    main()
