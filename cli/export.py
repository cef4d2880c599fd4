"""The command `sigdir export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

import click

from sigdir.cli.errors import command
from sigdir.cli.options import (
    CollectionChoice,
    as_of_option,
    existing_file,
    json_option,
    quiet_option,
    warehouse_option,
)
from sigdir.cli.output import write_report
from sigdir.cli.progress import reporter
from sigdir.pipeline.export import ABI, COLUMNS, OURS, QUERIES, Options, PackOptions, run_export
from sigdir.pipeline.export_formats import FORMATS
from sigdir.pipeline.target import STDOUT
from sigdir.signatures.collections import Collection

_FORMATS = "; ".join(
    [
        *(f"{format.name} ({format.about})" for format in FORMATS.values()),
        f"{ABI} (the ABI of chosen signatures)",
        *(f"{name} ({about})" for name, about in QUERIES.items()),
    ]
)


def _text_count(value: str) -> int | None:
    """The type of a number from 1, or `all`, which is None."""
    if value == "all":
        return None
    if not (value.isdecimal() and len(value) < 10 and int(value)):
        raise click.BadParameter(f"{value!r} is neither a number from 1 nor `all`")
    return int(value)


def _source_licence(value: str) -> tuple[str, str]:
    """The type of a source's label or a pattern of labels, and its licence."""
    source, _, licence = value.rpartition("=")
    if not source or not licence.strip():
        raise click.BadParameter(f"{value!r} is not a source, = and its licence")
    return source, licence.strip()


@command(
    state="nothing was exported",
    epilog=f"Formats: {_FORMATS}. A target that ends with .gz or .zst is compressed.",
)  # fmt: skip
@click.argument("format", type=click.Choice([*FORMATS, ABI, *QUERIES]), metavar="FORMAT")
@click.argument("target", type=click.Path())  # a URL too; the type completes names
@warehouse_option
@as_of_option
@click.option(
    "--collection", "collections", type=CollectionChoice(), multiple=True,
    help="Export only this collection.  [default: those that the format can hold; 4byte.json: signatures]",
)  # fmt: skip
@click.option("--columns", type=click.Choice(COLUMNS), default=OURS, help="For Parquet: whose column names.")
@click.option("--text", "texts", multiple=True, help="For abi: a signature, or a declaration such as `event E(uint)`.")
@click.option(
    "--hashes", type=click.File(), help="For abi: a file of selectors and topics, one a line; - for standard input."
)
@click.option(
    "--texts", "most", type=_text_count, metavar="N|all",
    help="For pack: the N texts of each collection that are used most.  [default: all]",
)  # fmt: skip
@click.option("--with-declarations", is_flag=True, help="For pack: with the commonest declaration of each text.")
@click.option("--indexed", is_flag=True, help="For pack: in the form that readers map, eight times as large.")
@click.option(
    "--sign", "key", type=existing_file, metavar="KEY",
    help="For pack: sign it by the private key in this file, which `sigdir keygen` makes.",
)  # fmt: skip
@click.option("--padded", is_flag=True, help="For ranges: with sizes that many of them share, which hides more.")
@click.option(
    "--licence", "licences", type=_source_licence, multiple=True, metavar="SOURCE=TEXT",
    help="For dataset: the licence of a source, which the data card names. SOURCE may have *; the longest that fits counts.",
)  # fmt: skip
@json_option("Report as JSON.")
@quiet_option()
def export(
    folder: Path, collections: tuple[Collection, ...], hashes: TextIO | None, most: int | None, with_declarations: bool,
    indexed: bool, key: Path | None, as_json: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Export signatures in the format of another program, as a file or a folder tree.

    TARGET is a file; for the trees a folder that does not exist yet or a .tar, for ranges and dataset a folder; or -
    for standard output (the report then goes to standard error); or an object: s3://bucket/name. The target appears
    when it is complete. Rows are in the order of their ids, and texts of one selector in that of their
    evidence, where a program takes the first. abi writes the signatures that --text and --hashes name,
    each as its commonest declaration, with the names of its parameters. pack has the texts of each collection that
    are used most, without those that look mined.

    Exit status: 0 done, 2 the target or the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir export 4byte.json 4byte.json.gz
      sigdir export foundry ~/.foundry/cache/signatures
      sigdir export topic0 topic0.tar.zst
      sigdir export parquet functions.parquet --columns sourcify --collection signatures
      sigdir export openchain - --as-of 3 | head
      sigdir export abi - --text "transfer(address,uint256)" --text "event Transfer(address,address,uint256)"
      sigdir export pack functions.pack --texts 10000 --collection signatures
      sigdir export ranges ranges/ --padded
      sigdir export dataset dataset/ --licence "topic0.json=MIT" --licence "artifacts/*=MIT"
      sigdir export abis abis.parquet
      sigdir export abi proxy.json --hashes selectors.txt
      sigdir export parquet s3://exports/functions.parquet --warehouse s3://signatures/main
    """
    wanted = tuple(line.strip() for line in hashes or () if line.strip())
    options = Options(
        warehouse=folder, collections=collections or None, hashes=wanted,
        pack=PackOptions(most, with_declarations, indexed, key), **given,
    )  # fmt: skip
    with reporter(quiet) as progress:
        report = run_export(options, progress)
    write_report(report, as_json, err=options.target == STDOUT)
