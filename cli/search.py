"""The command `sigdir search`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import json_option, warehouse_option
from sigdir.cli.output import write_json
from sigdir.warehouse.table.paths import existing


@command()
@click.argument("terms", nargs=-1, required=True, metavar="QUERY...")
@warehouse_option
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="Most signatures of each kind.")
@json_option("Write what was understood, the counts and the signatures.")
def search(terms: tuple[str, ...], folder: Path, limit: int, as_json: bool) -> None:
    """Find signatures by a piece of their text, by a pattern of the name, or by their parameters. The best come first.

    QUERY is what the box of the search page takes: a piece of a text, a whole declaration, hex digits of a hash; or a
    name and a parameter list, where * and ? are wildcards, and terms with a keyword: kind:, params:, type:, witness:,
    standard:, source:, usage:, since:, before:. docs/search.md has the grammar.

    Exit status: 0 found, 1 nothing, 2 the query or the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir search "(address,uint256,*)"
      sigdir search "swap* (uint256,*)" witness:compiled
      sigdir search "kind:error type:bytes32 params:2.."
      sigdir search balanceOf --json
    """
    from sigdir.serve.api.search import document_of, understood  # numba takes 0.5 s to load
    from sigdir.serve.pages.search import find
    from sigdir.serve.pages.search_query import parse_search
    from sigdir.signatures.collections import COLLECTIONS
    from sigdir.warehouse.index.view import Reader

    query = parse_search(" ".join(terms))
    if query.kind == "nothing":
        raise Failure(query.problem or "there is nothing to search for")
    with closing(Reader(existing(folder), makes_staging=False)) as reader:
        found = [find(reader.current(), collection, query, 0, limit) for collection in COLLECTIONS]
    if as_json:
        counts = {one.collection: {"count": one.count, "results": list(map(document_of, one.rows))} for one in found}
        write_json({"understood": understood(query), **counts})
    else:
        click.echo(understood(query), err=True)
        for one in found:
            for row in one.rows:
                click.echo(f"0x{row.digest.hex()}  {row.declaration or row.text}")
            if one.has_more:
                click.echo(f"{one.collection}: {one.count:,} found, {len(one.rows):,} shown", err=True)
    if any(one.count for one in found):
        return
    problem = f"; not a valid signature: {query.problem}" if query.problem else ""
    click.echo(f"nothing found{problem}", err=True)
    sys.exit(1)
