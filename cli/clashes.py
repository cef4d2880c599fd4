"""The command `sigdir clashes`."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from sigdir.cli.errors import command
from sigdir.cli.import_ import unread_lines
from sigdir.cli.options import json_option, quiet_option
from sigdir.cli.output import write_json, write_line
from sigdir.cli.progress import reporter
from sigdir.pipeline.clashes import PARTS, Clash, Declared, find_clashes
from sigdir.pipeline.report import ImportReport
from sigdir.signatures.errors import counted


@command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--together", is_flag=True,
    help="The inputs are parts of one contract: facets of a diamond, or a proxy and its implementation. A function that"
    " two of them have is a clash too.",
)  # fmt: skip
@click.option("--github", is_flag=True, help="Print each clash as an annotation that GitHub shows at the file.")
@json_option()
@quiet_option("Show no progress and no summary, only the clashes and what cannot be read.")
def clashes(paths: tuple[str, ...], together: bool, github: bool, as_json: bool, quiet: bool) -> None:
    """Find selectors that two texts share, in ABIs, artifacts, sources and lists.

    A contract finds a function by four bytes of a hash, so functions with different names can be taken for each other
    where contracts are put together. The inputs are read as `sigdir import` reads them; no warehouse is needed.

    Exit status: 0 no clash, 1 a clash, 2 an input cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir clashes artifacts/
      sigdir clashes out/DiamondCut.json out/Loupe.json out/Owner.json --together
      sigdir clashes Proxy.sol Vault.sol --together
      sigdir clashes src/ --github
    """
    with reporter(quiet) as progress:
        found, report = find_clashes(paths, together, progress)
    for line in unread_lines(report):
        write_line(line)
    if as_json:
        faults = [asdict(fault) for fault in report.faults]
        write_json({"clashes": [asdict(clash) for clash in found], "read": report.totals(), "faults": faults})
    else:
        for clash in found:
            click.echo(_annotation(clash) if github else _line(clash))
        if not quiet:
            write_line(_summary(found, report))
    if report.faults:
        sys.exit(2)
    sys.exit(1 if found else 0)


def _line(clash: Clash) -> str:
    """``FILE: 0x42966c68 is ...``: pre-commit and editors take what stands before the first colon as the file."""
    return f"{clash.declared[0].file}: {_sentence(clash)}"


def _annotation(clash: Clash) -> str:
    file = clash.declared[0].file.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    return f"::error file={file},title=selector clash::{_sentence(clash).replace('%', '%25')}"


def _sentence(clash: Clash) -> str:
    if clash.why == PARTS:
        return f"{clash.selector} {clash.texts[0]} is in " + " and in ".join(map(_place, clash.declared))
    return f"{clash.selector} is " + ", ".join(f"{one.text} in {_place(one)}" for one in clash.declared)


def _place(one: Declared) -> str:
    return f"{one.contract} ({one.file})" if one.contract else one.file


def _summary(found: list[Clash], report: ImportReport) -> str:
    totals = report.totals()
    rejected = f", {totals['rejected']:,} rejected" if totals["rejected"] else ""
    clashes = counted(len(found), "clash") if found else "no clash"
    files = counted(len(report.files), "file")
    return f"{clashes}: {counted(totals['read'], 'candidate')} in {files}{rejected}"
