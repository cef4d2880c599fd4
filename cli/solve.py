"""The command `sigdir solve`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sigdir.cli.decode_contract import code_of
from sigdir.cli.errors import Failure, command
from sigdir.cli.options import Seconds, directory_options, existing_file, json_option, quiet_option, threads_option
from sigdir.cli.output import write_json, write_line
from sigdir.cli.progress import reporter
from sigdir.cli.resolve import digest_of, hash_lines
from sigdir.pipeline.directory import Directory, Source, opened
from sigdir.pipeline.solve import MAX_HASHES, SolveOptions, SolveReport, given_lists, given_names, solve_hashes
from sigdir.signatures.errors import counted

_SHOWN = 10


@command()
@click.argument("hashes", nargs=-1, metavar="[HASH]...")
@click.option(
    "--code", metavar="FILE|HEX|-",
    help="The code of the contract: its functions' arguments narrow the lists. Without HASH, each function of it that has no text.",
)  # fmt: skip
@click.option("--names", type=existing_file, metavar="FILE", help="Names that are likely, one a line.")
@click.option(
    "--lists",
    type=existing_file,
    metavar="FILE",
    help="Parameter lists that are likely, one a line: (address,uint256).",
)
@click.option(
    "--most-lists", type=click.IntRange(1), default=500, metavar="N",
    help="Try the N commonest lists for a selector whose arguments no code shows. A topic is tried with all.",
)  # fmt: skip
@click.option(
    "--pairs", type=click.IntRange(0, 20_000_000), default=0, metavar="N",
    help="Then try N new names of words that stand together in known names.",
)  # fmt: skip
@click.option("--seconds", type=Seconds(min_open=True), help="End after this time with what was found.")
@click.option(
    "--state", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Note in FILE what is done. The same command goes on where it ended.",
)  # fmt: skip
@threads_option
@directory_options
@json_option("Write what was tried, and each text with its posterior.")
@quiet_option("Show no progress and no summary.")
def solve(
    hashes: tuple[str, ...], code: str | None, names: Path | None, lists: Path | None, most_lists: int, pairs: int,
    seconds: float | None, state: Path | None, threads: int, source: Source,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Look for texts of selectors and topics that nobody knows: known names with the likeliest parameters.

    HASH is a selector, 8 hex digits, or a topic, 64; - reads them from standard input. A selector has 32 bits, so a
    text that gives it may be chance. Each is printed with its posterior: the probability that it is the one that is
    meant. A topic has 256 bits, so a text that gives it is certain.

    Nothing is stored. `sigdir import FILE --source solved` stores texts as found by a search: they rank last, packs
    leave them out, and filters hide them.

    Exit status: 0 each hash has a text, 1 some have none, 2 a hash, a file, the warehouse or the pack cannot be used,
    130 interrupted.

    \b
    Examples:
      sigdir solve 0x6a523c5e
      sigdir solve 0x6a523c5e --code vault.hex --pairs 2000000
      sigdir solve --code vault.hex --json
      sigdir solve - --names mine.txt --state solve.json < unknown.txt
    """
    if not hashes and code is None:
        raise click.UsageError("name a HASH, or give --code")
    wanted = dict.fromkeys(map(digest_of, hash_lines(hashes)))
    if len(wanted) > MAX_HASHES:
        raise Failure(f"{len(wanted):,} hashes; at most {MAX_HASHES:,} are looked for at once")
    shown = code_of(code).arguments if code is not None else {}
    with opened(source) as directory, reporter(quiet) as progress:
        options = SolveOptions(
            {hash: shown.get(hash) for hash in wanted} or _unknown(directory, shown), given_names(names), given_lists(lists),
            most_lists, pairs, seconds, threads, state,
        )  # fmt: skip
        report = solve_hashes(directory.texts, options, progress)
    if as_json:
        write_json(_document(report))
    else:
        _print(options, report, quiet)
    sys.exit(0 if {one.hash for one in report.solutions} == {f"0x{hash.hex()}" for hash in options.hashes} else 1)


def _unknown(directory: Directory, shown: dict[bytes, str | None]) -> dict[bytes, str | None]:
    """The functions of a code that have no text."""
    return {hash: arguments for hash, arguments in shown.items() if not directory.known(hash)}


def _document(report: SolveReport) -> dict[str, object]:
    return report._asdict() | {"solutions": [one._asdict() for one in report.solutions]}


def _print(options: SolveOptions, report: SolveReport, quiet: bool) -> None:
    for hash in options.hashes:
        found = [one for one in report.solutions if one.hash == f"0x{hash.hex()}"]
        for one in found[:_SHOWN]:
            click.echo(f"{one.hash}  {one.rounded}  {one.text}")
        if not found:
            click.echo(f"0x{hash.hex()}  no text was found")
        elif len(found) > _SHOWN:
            click.echo(f"0x{hash.hex()}  {counted(len(found) - _SHOWN, 'less likely text')}; --json has all")
    if not quiet:
        write_line(f"{report.effort}; {report.false_hits:.2g} of them have a selector by chance")
