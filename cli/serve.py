"""The command `sigdir serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sigdir.cli.errors import command
from sigdir.cli.options import SHORTEST_PAUSE, Seconds, StoreUrl, existing_file, warehouse_option
from sigdir.serve.core.named_queries import read_queries
from sigdir.serve.core.process import write_line
from sigdir.serve.core.settings import Settings, is_origin, write_token
from sigdir.serve.servers.start import EXTRAS
from sigdir.serve.servers.supervisor import run
from sigdir.warehouse.table.errors import QueryError

_DEFAULTS = Settings()
_GRANIAN_THREADS = 1
"""Two that answer at the same time cost each other more than the work."""
_MORE_THREADS = 16
"""With --sql, --solve or --rpc. They have shares of their own, and eight threads leave one for decoding and imports."""

_SQL_THREADS = 3

_OTHER_VARIABLES = (
    "SIGDIR_WAREHOUSE", "SIGDIR_WRITE_TOKEN", "SIGDIR_STORE_CACHE", "SIGDIR_STORE_CACHE_GIB", "SIGDIR_FAILPOINT",
)  # fmt: skip
"""Those that are read and are not named as an option."""


def _readable_queries(_context: click.Context, _option: click.Parameter, value: Path | None) -> Path | None:
    if value is not None:
        try:
            read_queries(value)
        except QueryError as error:
            raise click.BadParameter(str(error)) from None
    return value and value.absolute()


def _origin(value: str) -> str:
    if value and not is_origin(value):
        raise click.BadParameter(f"{value!r} is not a scheme and a host, as https://example.org.")
    return value


def _node_url(value: str) -> str:
    if value:
        from sigdir.pipeline.transaction import (  # loads ssl, which any other server does without here
            NodeError,
            checked_url,
        )

        try:
            checked_url(value)
        except NodeError as error:
            raise click.BadParameter(str(error)) from None
    return value


def _option(name: str, help: str, **more: Any) -> Callable[[Any], Any]:
    """An option of the setting of that name, which is its default."""
    setting = name.removeprefix("--").replace("-", "_")
    return click.option(name, show_envvar=True, help=help, **{"default": getattr(_DEFAULTS, setting, None)} | more)


def _flag(name: str, help: str) -> Callable[[Any], Any]:
    return click.option(name, is_flag=True, show_envvar=True, help=help)


@command(opens_stores=True, context_settings={"auto_envvar_prefix": "SIGDIR"})
@warehouse_option
@_option("--host", "Address to listen on.")
@_option("--port", "Port to listen on; 0 takes a free one.", type=click.IntRange(0, 65535))
@_option("--workers", "Worker processes, on one socket.", type=click.IntRange(1, 256))
@_option(
    "--threads", "Threads per worker.", type=click.IntRange(1, 256), default=None,
    show_default=f"{_DEFAULTS.threads}, {_GRANIAN_THREADS} on granian; {_MORE_THREADS} with --sql, --solve or --rpc",
)  # fmt: skip
@_option("--max-body", "Largest body of a POST, in bytes.", type=click.IntRange(1))
@_option("--max-import-body", "Largest body of an import over HTTP, in bytes.", type=click.IntRange(1))
@_option("--fold-every", "Seconds between two moves of POSTed rows into the table; 0 for never.", type=Seconds())
@_flag("--trust-proxy", "Trust X-Forwarded-Proto and X-Forwarded-Host of requests.")
@_option(
    "--public-url", "What links begin with, as https://example.org. By default what the request was sent to.",
    metavar="ORIGIN", type=_origin,
)  # fmt: skip
@click.option(
    "--log-requests/--no-log-requests", default=True, show_envvar=True,
    help="Write a JSON line per request to standard output.",
)  # fmt: skip
@_option("--server", "HTTP server that runs the application.", type=click.Choice(list(EXTRAS)), default="waitress")
@_option(
    "--silent-seconds", "On waitress, replace a worker that does nothing for so long; 0 for never.",
    type=Seconds(),
)  # fmt: skip
@_flag("--read-only", "Refuse every POST that would store something.")
@_option(
    "--cache", "Folder for indexes where the warehouse is on read-only media.",
    type=click.Path(file_okay=False, path_type=Path), show_default="a temporary folder",
)  # fmt: skip
@_option(
    "--follow-store",
    "Serve the warehouse of a store, as s3://bucket/prefix, as a read replica; --warehouse is then where its copy is.",
    metavar="URL",
)  # fmt: skip
@_option(
    "--primary-url", "Where a replica sends those who POST, as https://example.org.", metavar="ORIGIN", type=_origin
)
@_flag("--rank-lists", "Look up whole hashes in 4byte.directory's lists by evidence, without texts that look mined.")
@_option(
    "--rpc", "The decode page explains transactions of this node, and asks nobody else.", metavar="URL",
    type=_node_url,
)  # fmt: skip
@_flag("--solve", "Let anybody look for texts of unknown hashes, ten seconds at a time: /solve/.")
@_flag("--count-misses", "Count selectors and topics that were looked up and not found, without clients: /wanted/.")
@_flag("--mcp", "Answer agents by the Model Context Protocol: /mcp. Needs the extra mcp.")
@_flag("--sql", "Let anybody run SQL that reads, within limits: /sql/.")
@_option("--sql-seconds", "How long a query over HTTP may take.", type=Seconds(0, 3600, min_open=True))
@_option(
    "--sql-queries", "Named queries for --sql, each after a line `-- name: NAME`.",
    type=existing_file, metavar="FILE", callback=_readable_queries,
)  # fmt: skip
@click.pass_context
def serve(
    context: click.Context, /, folder: Path | StoreUrl, server: str, threads: int | None, follow_store: str, sql: bool,
    solve: bool, **given: Any,
) -> None:  # fmt: skip
    """Serve the warehouse and what is POSTed over HTTP, as the 4byte.directory API does.

    Anybody who reaches the server may POST. With a token in the variable SIGDIR_WRITE_TOKEN only clients that send
    it in the header "Authorization: Bearer TOKEN" may. --read-only refuses all. Decoding and looking up stay open.

    A warehouse in a store is served as a read replica: its files are fetched into a copy, each is checked, and a new
    version is shown within seconds of its commit. While the store is away the version that is there is served. A POST
    is answered with 405, and with the address of --primary-url.

    Exit status: 0 stopped by SIGTERM or Ctrl-C, 2 the server cannot start.

    \b
    Examples:
      sigdir serve
      sigdir serve --port 80 --host 0.0.0.0 --workers 4
      SIGDIR_WAREHOUSE=/srv/signatures sigdir serve --server granian
      SIGDIR_WRITE_TOKEN=$(cat token.txt) sigdir serve
      sigdir serve --rank-lists
      sigdir serve --rpc http://127.0.0.1:8545
      sigdir serve --sql --sql-queries questions.sql
      sigdir serve --warehouse s3://signatures/main --primary-url https://signatures.example.org
      sigdir serve --follow-store s3://signatures/main --warehouse /var/cache/signatures
    """
    try:
        token = write_token()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    is_default = context.get_parameter_source("folder") is ParameterSource.DEFAULT
    if isinstance(folder, StoreUrl):
        if follow_store:
            raise click.UsageError(
                "--warehouse names a store already; with --follow-store it is the folder of the copy"
            )
        follow_store, is_default = folder, True
    if follow_store:
        from sigdir.warehouse.table.places import (
            working_copy,  # with numpy; any other server starts in a tenth of a second
        )

        folder = working_copy(follow_store, None if is_default else Path(str(folder))).root
    assert isinstance(folder, Path)
    usual = _GRANIAN_THREADS if server == "granian" else _DEFAULTS.threads
    threads = threads or (_MORE_THREADS if sql or solve or given["rpc"] else usual)
    if (sql or solve) and threads < _SQL_THREADS:
        raise click.UsageError(f"--sql and --solve need --threads {_SQL_THREADS} or more: what runs holds one")
    if 0 < given["fold_every"] < SHORTEST_PAUSE:
        raise click.UsageError(f"--fold-every takes {SHORTEST_PAUSE} seconds or more, or 0 for never")
    settings = Settings(
        folder, threads=threads, write_token=token, follow_store=follow_store, sql=sql, solve=solve, **given
    )
    if settings.count_misses and settings.on_read_only_media and settings.cache is None:
        raise click.UsageError("--count-misses over a warehouse on read-only media needs --cache, where the counts are")
    known = {*_OTHER_VARIABLES, *(f"SIGDIR_{option.name}".upper() for option in context.command.params)}
    for variable in sorted(name for name in os.environ if name.startswith("SIGDIR_") and name not in known):
        write_line(f"warning: {variable} is no variable of sigdir serve, and not read")
    sys.exit(run(settings, server, _write_address))


def _write_address(settings: Settings, address: str) -> None:
    tries = [
        f"curl '{address}/api/v1/signatures/?hex_signature=0xa9059cbb'",
        f"curl '{address}/api/v1/event-signatures/?text_signature=transfer'",
    ]
    if not settings.read_only:
        token = '-H "Authorization: Bearer $SIGDIR_WRITE_TOKEN" ' if settings.write_token else ""
        tries.append(f"curl {token}-d 'text_signature=function hello(uint a)' {address}/api/v1/signatures/")
    write_line("\n".join([f"ready: {address}/", "try:", *(f"  {line}" for line in tries)]))
