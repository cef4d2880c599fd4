"""The command `sigdir import`, and its report for people: a table of the inputs, the totals, what was rejected and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sigdir.cli.errors import command
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
from sigdir.pipeline.errors import one_line
from sigdir.pipeline.formats.registry import FORMATS
from sigdir.pipeline.formats.tables import ROLES
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import COUNTS, SKIP_REASONS, ImportReport
from sigdir.pipeline.run import DEFAULT_MEMORY_LIMIT, Options, run_import
from sigdir.pipeline.source import BytecodeCounts
from sigdir.signatures.canonicalise import MAX_VARIANTS
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.signatures.decode_input import BadInput
from sigdir.signatures.errors import counted
from sigdir.signatures.evidence import Deployed
from sigdir.signatures.given_contract import address_of, chain_of

if TYPE_CHECKING:
    from rich.table import Table


_FILE_COLUMNS = 10_000  # of a pipe or a file: no line is wrapped
_SHOWN_FILES = 25
_SHOWN_NAMES = 3
_SHOWN_FAULTS = 10


def print_report(report: ImportReport) -> None:
    """Write the report on standard output. A terminal shows the begin of an example, a file all of it."""
    from rich.console import Console  # 75 ms, which --json and --quiet do without

    width = None if sys.stdout.isatty() else _FILE_COLUMNS
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    console.print(_files_table(report))
    for line in unread_lines(report):
        console.print(line, soft_wrap=True)
    for collection, counts in report.collections().items():
        console.print(f"{collection}: {counts['imported']:,} imported, {counts['duplicate']:,} duplicate")
    for reason, count in report.reasons().items():
        line = f"rejected {count:>9,} {reason:<16} e.g. {_printable(_example(report, reason))}"
        console.print(line, overflow="ellipsis", no_wrap=True)
    for line in (*_bytecode_lines(report.bytecode()), *_evidence_lines(report), _last_line(report)):
        console.print(line)


def unread_lines(report: ImportReport) -> Iterator[str]:
    """What was skipped, by reason; then what has no candidates, is rejected as a whole, or is broken."""
    for reason, count in report.skip_reasons().items():
        names = (unread.path for unread in report.skipped if unread.reason == reason)
        yield f"Skipped {count:,} {SKIP_REASONS[reason]}: {_first(names)}"
    empty = [
        file.path
        for file in report.files
        if not file.read and file.fault is None and file.format not in ("deployments", "usage")
    ]
    if empty:
        yield f"No candidates in {len(empty):,} of {len(report.files):,} files: {_first(empty)}"
    for file in report.files:
        for warning in file.warnings:
            yield f"Warning: {one_line(file.path)}: {one_line(warning)}"
    if report.all_rejected:
        yield f"Everything was rejected of {counted(len(report.all_rejected), 'file')}: {_first(report.all_rejected)}"
    if report.faults:
        yield f"{counted(len(report.faults), 'file')} cannot be read to the end:"
        for fault in report.faults[:_SHOWN_FAULTS]:
            yield f"  {fault.path}: {fault.reason}"
        if len(report.faults) > _SHOWN_FAULTS:
            yield f"  ... and {len(report.faults) - _SHOWN_FAULTS:,} more; --json lists all"


def _bytecode_lines(counts: BytecodeCounts) -> Iterator[str]:
    """What the bytecode of contracts proves, and which bytecode was not read."""
    if counts.contracts:
        yield (
            f"bytecode of {counted(counts.contracts, 'contract')}: {counts.compiled:,} candidates compiled, "
            f"{counts.declared:,} only declared; {counts.misfits:,} ABIs do not fit their bytecode"
        )
    if counts.unread:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.unread.most_common())
        yield f"bytecode not read: {reasons}"


def _evidence_lines(report: ImportReport) -> Iterator[str]:
    """What is said of contracts, what is no longer said of texts, or was said too often."""
    if report.deployments or report.interfaces:
        yield f"contracts: {counted(report.deployments, 'address')}, {counted(report.interfaces, 'interface')}"
    for file in report.files:
        if file.usage:
            selectors, topics = (file.usage["hashes"][collection] for collection in COLLECTIONS)
            days = f", {' to '.join(file.usage['days'])}" if file.usage["days"] else ""
            earlier = f"; they take the place of any earlier counts of {file.source}" if report.published else ""
            yield (
                f"{one_line(file.path)}: {file.usage['uses']:,} uses of {counted(selectors, 'selector')} and"
                f" {counted(topics, 'topic')}{days}{earlier}"
            )
    if left_out := report.total("variants_left_out"):
        yield f"declarations left out: {left_out:,}, of texts with over {MAX_VARIANTS} in a batch; the texts are kept"
    if report.withdrawn.sightings:
        sightings, texts = counted(report.withdrawn.sightings, "sighting"), counted(report.withdrawn.texts, "text")
        yield f"withdrawn: {sightings}; {texts} no longer named by their source"


def _first(names: Iterable[str]) -> str:
    """The first names, each in one line, and an ellipsis if there are more."""
    shown = [one_line(name) for name in islice(names, _SHOWN_NAMES + 1)]
    return ", ".join(shown[:_SHOWN_NAMES]) + (", ..." if len(shown) > _SHOWN_NAMES else "")


def _example(report: ImportReport, reason: str) -> str:
    example = next((example for example in report.examples if example.reason == reason), None)
    return f"{os.path.basename(example.file)}:{example.line} {example.text}" if example else ""


def _files_table(report: ImportReport) -> Table:
    from rich.table import Table

    table = Table(title="Import" + (" (dry run)" if report.dry_run else ""))
    table.add_column("file", min_width=20, overflow="fold")
    table.add_column("format")
    for name in COUNTS:
        table.add_column(name, justify="right")
    by_size = sorted(report.files, key=lambda file: -file.read)
    shown = by_size if len(by_size) <= _SHOWN_FILES else by_size[: _SHOWN_FILES - 1]
    for file in shown:
        counts = (f"{getattr(file, name):,}" for name in COUNTS)
        table.add_row(_shortened(one_line(file.path)), file.format, *counts)
    if len(shown) < len(by_size):
        rest = ImportReport(files=by_size[len(shown) :])
        table.add_row(f"{len(rest.files):,} more files", "", *(f"{count:,}" for count in rest.totals().values()))
    table.add_section()
    table.add_row("total", "", *(f"{count:,}" for count in report.totals().values()))
    return table


def _last_line(report: ImportReport) -> str:
    speed = f"{report.total('read'):,} read in {report.seconds:.1f} s ({report.rows_per_second:,.0f} a second)"
    if report.dry_run:
        return f"{speed}; dry run, nothing published"
    if not report.published:
        return f"{speed}; nothing new, version {max(report.version, 0)} stays"
    rejects = f"; rejects: sigdir rejects --import {report.rejects_in}" if report.rejects_in else ""
    return f"{speed}; {counted(report.sightings, 'sighting')}; version {report.version} published{rejects}"


def _shortened(path: str) -> str:
    return path if len(path) <= 48 else "..." + path[-45:]


def _printable(text: str) -> str:
    """Text without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:160])


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
@click.option("--samples", is_flag=True, help="Import the bundled declarations of standards and well-known contracts.")
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
    from sigdir.pipeline import engine

    with open_session(master) as session:
        return engine.run(session, options, progress, engine.is_local(master))
