"""The command that serves."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from serve.settings import Settings
from serve.supervise import StartError, run

_DEFAULTS = Settings()


@click.command(context_settings={"auto_envvar_prefix": "SIGDIR", "show_default": True})
@click.option(
    "--warehouse", "folder", type=click.Path(file_okay=False, path_type=Path), default="data",
    envvar="SIGDIR_WAREHOUSE", show_envvar=True, help="Folder of the warehouse.",
)  # fmt: skip
@click.option("--host", default=_DEFAULTS.host, show_envvar=True, help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_DEFAULTS.port, show_envvar=True, help="0 takes a free one."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    default=_DEFAULTS.workers,
    show_envvar=True,
    help="Processes on one socket.",
)
@click.option(
    "--threads", type=click.IntRange(1, 256), default=_DEFAULTS.threads, show_envvar=True, help="Threads of a worker."
)
@click.option(
    "--max-body", type=click.IntRange(1), default=_DEFAULTS.max_body, show_envvar=True, help="Bytes of a POST."
)
@click.option(
    "--max-import-body", type=click.IntRange(1), default=_DEFAULTS.max_import_body, show_envvar=True,
    help="Bytes of an import over HTTP.",
)  # fmt: skip
@click.option(
    "--fold-every", type=click.FloatRange(0), default=_DEFAULTS.fold_every, show_envvar=True,
    help="Seconds between moves of POSTed rows into the table; 0 for never.",
)  # fmt: skip
@click.option("--trust-proxy", is_flag=True, show_envvar=True, help="Believe X-Forwarded-Proto and -Host.")
@click.option(
    "--log-requests/--no-log-requests", default=True, show_envvar=True, help="A JSON line each on standard output."
)
@click.option("--server", type=click.Choice(["waitress", "granian"]), default="waitress", show_envvar=True)
def serve(
    folder: Path, host: str, port: int, workers: int, threads: int, max_body: int, max_import_body: int,
    fold_every: float, trust_proxy: bool, log_requests: bool, server: str,
) -> None:  # fmt: skip
    """Serve the directory: the 4byte.directory API over the warehouse and what is POSTed.

    \b
    Examples:
      sigdir serve
      sigdir serve --port 80 --host 0.0.0.0 --workers 4
      SIGDIR_WAREHOUSE=/srv/signatures sigdir serve --server granian
    """
    settings = Settings(
        folder, host, port, workers, threads, max_body, max_import_body, fold_every, trust_proxy, log_requests
    )
    if server == "granian" and port == 0:
        raise click.UsageError("granian needs a port")
    try:
        status = run(settings, server, _tell_ready)
    except StartError as error:
        click.echo(f"Error: {error}", err=True)
        status = 2
    sys.exit(status)


def _tell_ready(address: str) -> None:
    click.echo(
        f"ready: {address}/api/v1/signatures/\n"
        f"try:\n"
        f"  curl '{address}/api/v1/signatures/?hex_signature=0xa9059cbb'\n"
        f"  curl '{address}/api/v1/event-signatures/?text_signature=transfer'\n"
        f"  curl -d 'text_signature=function hello(uint a)' {address}/api/v1/signatures/",
        err=True,
    )
