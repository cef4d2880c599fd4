"""The commands that move data in and out: import, export, mirror."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
import orjson
from rich.console import Console

from sigdir.cli.options import CollectionChoice, Failure, as_of_option, warehouse_option
from sigdir.pipeline.errors import PipelineError
from sigdir.pipeline.export import COLUMNS, OURS, run_export
from sigdir.pipeline.export import FORMATS as EXPORT_FORMATS
from sigdir.pipeline.export import Options as ExportOptions
from sigdir.pipeline.fetch import RetryPolicy
from sigdir.pipeline.formats.registry import FORMATS
from sigdir.pipeline.mirror import Options as MirrorOptions
from sigdir.pipeline.mirror import Way, run_mirror
from sigdir.pipeline.progress import reporter
from sigdir.pipeline.run import Options, run_import
from sigdir.pipeline.target import STDOUT
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.errors import Busy, WarehouseError

BUSY_STATUS = 3
INTERRUPTED_STATUS = 130


@contextmanager
def _told_in_a_line(state: str) -> Iterator[None]:
    """Errors and interruptions of the work as one line and an exit status; ``state`` is how things stand then."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    except Busy as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(BUSY_STATUS)
    except (PipelineError, WarehouseError) as error:
        raise Failure(str(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{where}{error.strerror or error}; {state}") from error
    except KeyboardInterrupt:
        click.echo(f"interrupted: {state}", err=True)
        sys.exit(INTERRUPTED_STATUS)
    finally:
        signal.signal(signal.SIGTERM, before)


def _formats_help() -> str:
    return "; ".join(f"{format.name} ({format.about})" for format in FORMATS)


@click.command(
    "import", epilog=f"Formats: {_formats_help()}. Any of them plain, gzip, xz, zstd or bzip2, in folders, zip or tar."
)
@click.argument("paths", nargs=-1, required=True)
@warehouse_option
@click.option(
    "--collection",
    type=CollectionChoice(),
    default=SIGNATURES,
    show_default=True,
    help="Where candidates go of which the input does not say what they are.",
)
@click.option("--format", "format", metavar="NAME", help="Read all inputs so.  [default: by content, then by name]")
@click.option("--source", metavar="LABEL", help="A label for the history.")
@click.option("--dry-run", is_flag=True, help="Do everything but publish.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--no-wait", is_flag=True, help="Give up (status 3) where another process is publishing.")
@click.option("--threads", type=click.IntRange(1, 256), default=None, help="[default: one a core]")
@click.option("--memory-limit", default="512MB", show_default=True, help="What deduping may take before it spills.")
def import_(
    paths: tuple[str, ...],
    folder: Path,
    collection: Collection,
    format: str | None,
    source: str | None,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    no_wait: bool,
    threads: int | None,
    memory_limit: str,
) -> None:
    """Import signatures from files, folders, archives, or standard input (-).

    Candidates are normalised, hashed, compared with what is there, and published in one new
    version, all or nothing. What cannot be normalised is counted and kept: see `sigdir rejects`.
    Exit status: 0 done (also where nothing was new), 2 an input or the warehouse cannot be used
    and nothing was published, 3 another process is publishing, 130 interrupted.

    \b
    Examples:
      sigdir import samples
      sigdir import 4byte.json.gz --source geth
      sigdir import topics.txt --collection event-signatures
      sigdir import 4bytes-master.zip contracts/ build-output.tar.gz
      curl -s https://example.org/list.txt | sigdir import - --dry-run
    """
    options = Options(
        list(paths), folder, collection, format, source, dry_run, not no_wait,
        **({"threads": threads} if threads else {}), memory_limit=memory_limit,
    )  # fmt: skip
    with _told_in_a_line("nothing was published"), reporter(quiet) as progress:
        report = run_import(options, progress)
    if as_json:
        click.echo(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    else:
        report.print(Console(width=None if sys.stdout.isatty() else 110))


def _export_formats_help() -> str:
    return "; ".join(f"{format.name} ({format.about})" for format in EXPORT_FORMATS.values())


@click.command(epilog=f"Formats: {_export_formats_help()}. A target that ends with .gz or .zst is packed.")
@click.argument("format", type=click.Choice(list(EXPORT_FORMATS)), metavar="FORMAT")
@click.argument("target")
@warehouse_option
@as_of_option
@click.option(
    "--collection",
    "collections",
    type=CollectionChoice(),
    multiple=True,
    help="Only this one.  [default: what the format has a place for; 4byte.json: signatures]",
)
@click.option(
    "--columns", type=click.Choice(COLUMNS), default=OURS, show_default=True, help="Of Parquet: whose columns."
)
@click.option("--json", "as_json", is_flag=True, help="Report as JSON.")
@click.option("--quiet", is_flag=True, help="No progress.")
def export(
    format: str,
    target: str,
    folder: Path,
    version: int | None,
    collections: tuple[Collection, ...],
    columns: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Export signatures as a file or tree of another program's shape.

    TARGET is a file, for the trees a folder that is not there yet or a .tar, or - for standard
    output (the report then goes to standard error). It appears when it is whole. Rows come in the
    order of their ids. Exit status: 0 done, 2 the target or the warehouse cannot be used,
    130 interrupted.

    \b
    Examples:
      sigdir export 4byte.json 4byte.json.gz
      sigdir export foundry ~/.foundry/cache/signatures
      sigdir export topic0 topic0.tar.zst
      sigdir export parquet functions.parquet --columns sourcify --collection signatures
      sigdir export openchain - --as-of 3 | head
    """
    options = ExportOptions(format, target, folder, version, collections or None, columns)
    try:
        with _told_in_a_line("nothing was exported"), reporter(quiet) as progress:
            report = run_export(options, progress)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if as_json:
        click.echo(
            orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS), err=target == STDOUT
        )
    else:
        click.echo("\n".join(report.lines()), err=target == STDOUT)


@click.command()
@click.argument("url")
@warehouse_option
@click.option(
    "--collection", "collections", type=CollectionChoice(), multiple=True, help="Only this one.  [default: both]"
)
@click.option(
    "--way",
    type=click.Choice(["changes", "pages"]),
    help="Follow the feed of changes, or walk the pages.  [default: the feed where there is one]",
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True, help="Requests a second."
)
@click.option(
    "--tries", type=click.IntRange(1, 100), default=8, show_default=True, help="Of each request, ever further apart."
)
@click.option(
    "--timeout", type=click.FloatRange(0.1), default=30.0, show_default=True, help="Seconds to wait for an answer."
)
@click.option("--restart", is_flag=True, help="Forget how far it came, and fetch everything again.")
@click.option("--json", "as_json", is_flag=True, help="Report as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--no-wait", is_flag=True, help="Give up (status 3) where another process is publishing.")
def mirror(
    url: str,
    folder: Path,
    collections: tuple[Collection, ...],
    way: Way | None,
    rate: float,
    tries: int,
    timeout: float,
    restart: bool,
    as_json: bool,
    quiet: bool,
    no_wait: bool,
) -> None:
    """Keep a private copy of another directory.

    URL is what stands before /api/v1/. A directory of this kind is asked for what has changed; of
    one that speaks as 4byte.directory does the pages are walked, newest first, up to the first one
    with nothing new. Run it again, from cron for example, to fetch what has come since; where it
    was interrupted or failed it goes on. Rows are checked and published as those of any import are.
    Exit status: 0 done, 2 the directory or the warehouse cannot be used, 3 another process mirrors
    this directory (or publishes, with --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir mirror https://www.4byte.directory
      sigdir mirror https://signatures.example.org --rate 10 --quiet
      sigdir mirror http://127.0.0.1:8000 --collection event-signatures --json
    """
    manners = RetryPolicy(rate=rate, tries=tries, timeout=timeout)
    options = MirrorOptions(url, folder, collections or COLLECTIONS, way, manners, restart, not no_wait)
    with _told_in_a_line("run it again to go on"), reporter(quiet) as progress:
        report = run_mirror(options, progress)
    if as_json:
        click.echo(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    else:
        click.echo("\n".join(report.lines()))


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
