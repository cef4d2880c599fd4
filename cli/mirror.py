"""The command `sigdir mirror`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sigdir.cli.errors import command
from sigdir.cli.options import CollectionChoice, Seconds, json_option, no_wait_option, quiet_option, warehouse_option
from sigdir.cli.output import write_report
from sigdir.cli.progress import reporter
from sigdir.pipeline.fetch import RetryPolicy
from sigdir.pipeline.mirror import MAX_ROWS, Options, run_mirror
from sigdir.signatures.collections import COLLECTIONS, Collection


@command(state="run it again to go on", makes=True)
@click.argument("url")
@warehouse_option
@click.option(
    "--collection", "collections", type=CollectionChoice(), multiple=True,
    help="Mirror only this collection.  [default: both]",
)  # fmt: skip
@click.option(
    "--way", type=click.Choice(["changes", "pages"]),
    help="Follow the feed of changes, or walk the pages.  [default: the feed if the directory has one]",
)  # fmt: skip
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=2.0, help="Requests per second.")
@click.option(
    "--tries", type=click.IntRange(1, 100), default=8,
    help="Attempts for each request, with growing pauses.",
)  # fmt: skip
@click.option("--timeout", type=Seconds(0.1, 86_400), default=30.0, help="Seconds to wait for a response.")
@click.option(
    "--max-rows", type=click.IntRange(1), default=MAX_ROWS,
    help="The most rows that the directory may say it has.",
)  # fmt: skip
@click.option("--restart", is_flag=True, help="Forget the progress of earlier runs, and fetch everything again.")
@json_option()
@quiet_option()
@no_wait_option
def mirror(
    url: str, folder: Path, collections: tuple[Collection, ...], rate: float, tries: int, timeout: float, as_json: bool,
    quiet: bool, no_wait: bool, **given: Any,
) -> None:  # fmt: skip
    """Keep a private copy of another directory.

    URL is the part in front of /api/v1/. If the directory has a feed of changes, as this project
    has, the feed is followed. Otherwise the pages of the 4byte.directory API are read, oldest
    first, from where the last run ended. Run the command again, for example from cron, to
    fetch what was added since; after an interruption or a failure it continues where it stopped.
    Rows are checked and published like those of any import. A directory that never ends, repeats
    itself or has over --max-rows rows stops the run with an error.

    Exit status: 0 done, 2 the directory or the warehouse cannot be used, 3 another process mirrors
    this directory (or publishes, with --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir mirror https://www.4byte.directory
      sigdir mirror https://signatures.example.org --rate 10 --quiet
      sigdir mirror http://127.0.0.1:8000 --collection event-signatures --json
    """
    policy = RetryPolicy(rate=rate, tries=tries, timeout=timeout)
    options = Options(url, folder, collections or COLLECTIONS, policy=policy, wait=not no_wait, **given)
    with reporter(quiet) as progress:
        report = run_mirror(options, progress)
    write_report(report, as_json)
