"""The command that brings data in: import."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click
import orjson
from rich.console import Console

from pipeline.errors import PipelineError
from pipeline.formats.table import FORMATS
from pipeline.progress import reporter
from pipeline.run import Options, run_import
from warehouse.commands import Failure, warehouse_option
from warehouse.errors import Busy, WarehouseError
from warehouse.schema import COLLECTIONS, SIGNATURES, Collection

BUSY_STATUS = 3
INTERRUPTED_STATUS = 130


def _formats_help() -> str:
    return "; ".join(f"{format.name} ({format.about})" for format in FORMATS)


@click.command(
    "import", epilog=f"Formats: {_formats_help()}. Any of them plain, gzip, xz, zstd or bzip2, in folders, zip or tar."
)
@click.argument("paths", nargs=-1, required=True)
@warehouse_option
@click.option(
    "--collection",
    type=click.Choice(COLLECTIONS),
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
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        with reporter(quiet) as progress:
            report = run_import(options, progress)
    except Busy as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(BUSY_STATUS)
    except (PipelineError, WarehouseError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{where}{error.strerror or error}; nothing was published") from error
    except KeyboardInterrupt:
        click.echo("interrupted: nothing was published", err=True)
        sys.exit(INTERRUPTED_STATUS)
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        click.echo(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2))
    else:
        report.print(Console(width=None if sys.stdout.isatty() else 110))


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
