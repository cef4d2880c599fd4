"""The command `sigdir import`."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from sigdir.cli.errors import command
from sigdir.cli.import_report import print_report, unread_lines
from sigdir.cli.options import (
    CollectionChoice,
    json_option,
    memory_limit_option,
    no_wait_option,
    quiet_option,
    threads_option,
    warehouse_option,
)
from sigdir.cli.output import write_json, write_line
from sigdir.cli.progress import reporter
from sigdir.pipeline.formats.registry import FORMATS
from sigdir.pipeline.formats.tables import ROLES
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import DEFAULT_MEMORY_LIMIT, Options, run_import
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.decode_input import BadInput
from sigdir.signatures.evidence import Deployed
from sigdir.signatures.given_contract import address_of, chain_of

_FORMATS = "; ".join(f"{format.name} ({format.about})" for format in FORMATS)


def _column(written: str) -> tuple[str, str]:
    role, _, name = written.partition("=")
    if role not in ROLES or not name:
        raise click.BadParameter(f"{role}={name} is none of " + ", ".join(f"{one}=NAME" for one in ROLES))
    return role, name


def _contract(written: str) -> Deployed:
    chain, _, address = written.partition(":")
    try:
        return Deployed(chain_of(chain), address_of(address, "address"))
    except BadInput as error:
        raise click.BadParameter(f"{error.field}: {error.problem}; it is CHAIN:ADDRESS, as 1:0x...") from None


@command(
    "import", state="nothing was published", makes=True,
    epilog=f"Formats: {_FORMATS}. Each may be plain or packed by gzip, xz, zstd or bzip2, in folders, zip or tar files.",
)  # fmt: skip
@click.argument("paths", nargs=-1, type=click.Path())  # a URL too; the type completes names
@warehouse_option
@click.option(
    "--samples", is_flag=True, help="Import the declarations of the common ERC standards that come with sigdir."
)
@click.option(
    "--collection", type=CollectionChoice(), default=SIGNATURES.value,
    help="Collection for candidates whose kind the input does not state.",
)  # fmt: skip
@click.option(
    "--format", "format", metavar="NAME",
    help="Read every input in this format.  [default: found by content, then by file name]",
)  # fmt: skip
@click.option(
    "--source", metavar="LABEL",
    help="The one source that all inputs are, by this name. Evidence counts sources by their names. An import"
    " adds to what its source said before.  [default: each file is a source, by its name below the folder you name]",
)  # fmt: skip
@click.option(
    "--replace-source", is_flag=True,
    help="The inputs are all that their sources say: what they said before is withdrawn, and the report counts it.",
)  # fmt: skip
@click.option(
    "--column", "columns", multiple=True, metavar="ROLE=NAME", type=_column,
    help="What a column of a table is: text, hash or kind, and its name.  [default: found by values and names]",
)  # fmt: skip
@click.option(
    "--contract",
    metavar="CHAIN:ADDRESS",
    type=_contract,
    help="The contract whose ABI the inputs are: decoding takes it by --to.",
)
@click.option(
    "--chain",
    type=click.IntRange(1, (1 << 63) - 1),
    default=1,
    help="The chain of contracts whose input names an address and no chain.",
)
@click.option(
    "--usage", is_flag=True,
    help="The inputs are tables of how often selectors and topics are used: a column selector or topic, a column count,"
    " and chain, contract and day where they have them. They take the place of what their sources counted before.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Do everything except publish.")
@click.option("--strict", is_flag=True, help="Stop at the first broken file of a folder or an archive.")
@click.option("--follow-links", is_flag=True, help="Read what links in folders lead to.  [default: skip them]")
@click.option(
    "--engine", type=click.Choice(["local", "spark"]), default="local",
    help="What does the work: this machine's threads, or tasks on Spark's API, which may be on many machines.",
)  # fmt: skip
@click.option(
    "--master", metavar="URL",
    help="Spark's master: local[N], spark://..., sc://... (Spark Connect).  [default: Sail in this process]",
)  # fmt: skip
@json_option()
@quiet_option("Show no progress and no report, only what cannot be read.")
@no_wait_option
@threads_option
@memory_limit_option(DEFAULT_MEMORY_LIMIT, "Memory for joining Sourcify's tables; above it, data is spilled to disk.")
def import_(
    paths: tuple[str, ...], folder: Path, samples: bool, engine: str, master: str | None, as_json: bool, quiet: bool,
    no_wait: bool, **given: Any,
) -> None:  # fmt: skip
    """Import signatures from files, folders, archives, or standard input (-).

    Candidates are canonicalised, hashed, deduplicated and published in one new version, or none
    of them is. Rejected candidates are counted and kept: see `sigdir rejects`. A broken file of a
    folder or an archive is listed, and the files beside it are imported. PATH may be an object or
    a prefix in a store: s3://bucket/prefix.

    Exit status: 0 done (also if nothing was new), 1 done, but a file of a folder or an archive is
    broken, or everything in a file was rejected, 2 an input or the warehouse cannot be used and
    nothing was published, 3 another process is publishing (with --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir import --samples
      sigdir import 4byte.json.gz --source geth
      sigdir import topics.txt --collection event-signatures
      sigdir import labels.parquet --column text=fn --column hash=code
      sigdir import 4bytes-master.zip contracts/ build-output.tar.gz
      sigdir import node_modules/@dex/core --follow-links --strict
      sigdir import today.txt --source daily
      sigdir import whole-list.txt --source ours --replace-source
      sigdir import --usage 2026-11-23.parquet 2026-11-24.parquet
      sigdir import s3://lists/2026/ --warehouse s3://signatures/main
      sigdir import all-contracts/ --engine spark --master spark://head:7077
      curl -s https://example.org/list.txt | sigdir import - --dry-run
    """
    if samples:
        paths = (str(files("sigdir") / "samples"), *paths)
    if not paths:
        raise click.UsageError("name the files to import, or give --samples")
    if master is not None and engine != "spark":
        raise click.UsageError("--master is for --engine spark")
    if given["usage"] and engine != "local":
        raise click.UsageError("--usage is read by this machine: leave out --engine")
    options = Options(list(paths), folder, wait=not no_wait, **given)
    with reporter(quiet) as progress:
        report = run_import(options, progress) if engine == "local" else _run_on_spark(options, progress, master)
    if as_json:
        write_json(report.to_dict())
    elif quiet:
        for line in () if report.is_complete else unread_lines(report):
            write_line(line)
    else:
        print_report(report)
    sys.exit(0 if report.is_complete else 1)


def _run_on_spark(options: Options, progress: Reporter, master: str | None) -> ImportReport:
    from sigdir.cli.spark_session import open_session  # Spark's packages are an extra
    from sigdir.pipeline.engines import spark

    with open_session(master) as session:
        return spark.run(session, options, progress, spark.is_local(master))
