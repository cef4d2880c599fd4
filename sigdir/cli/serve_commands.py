"""The commands that serve, and that answer as the server does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from sigdir.serve.servers.supervisor import StartError, run
from sigdir.serve.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sigdir.signatures.calldata import DecodeAttempt

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
        f"ready: {address}/\n"
        f"try:\n"
        f"  curl '{address}/api/v1/signatures/?hex_signature=0xa9059cbb'\n"
        f"  curl '{address}/api/v1/event-signatures/?text_signature=transfer'\n"
        f"  curl -d 'text_signature=function hello(uint a)' {address}/api/v1/signatures/",
        err=True,
    )


@click.command(context_settings={"show_default": True})
@click.argument("data", metavar="DATA")
@click.option(
    "--warehouse", "folder", type=click.Path(file_okay=False, path_type=Path), default="data",
    envvar="SIGDIR_WAREHOUSE", show_envvar=True, help="Folder of the warehouse.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="What GET /api/v1/decode/ answers.")
def decode(data: str, folder: Path, as_json: bool) -> None:
    """Decode calldata with each text that the warehouse has for its selector, the best first.

    DATA is hex digits, with 0x or without; @FILE reads them from a file, - from standard input. Exit status: 0
    something decodes, 1 nothing does, 2 the data or the warehouse cannot be used.

    \b
    Examples:
      sigdir decode 0xa9059cbb000000000000000000000000ab...
      sigdir decode @calldata.hex --json
      cast tx 0x5c50... input | sigdir decode -
    """
    from sigdir.cli.options import Failure
    from sigdir.serve.decode import candidates, told
    from sigdir.signatures.calldata import BadCalldata, calldata
    from sigdir.warehouse.errors import WarehouseError
    from sigdir.warehouse.index.view import Reader
    from sigdir.warehouse.paths import existing

    try:
        wanted = calldata(_hex_of(data))
        view = Reader(existing(folder)).current()
    except (BadCalldata, WarehouseError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or data}: {error.strerror or error}") from error
    if as_json:
        answer = told(view, wanted)
        click.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
        sys.exit(0 if any(candidate["decodes"] for candidate in answer["candidates"]) else 1)
    found, _ = candidates(view, wanted)
    if not found:
        click.echo(f"0x{wanted[:4].hex()}: no text of this selector is known", err=True)
    for candidate in found:
        click.echo("\n".join(_lines(candidate)))
    sys.exit(0 if any(candidate.values is not None for candidate in found) else 1)


def _hex_of(argument: str) -> str:
    """The digits that an argument gives or names; bytes that are none are told later."""
    from sigdir.signatures.calldata import MAX_BYTES

    most = 4 * MAX_BYTES
    if argument == "-":
        return sys.stdin.buffer.read(most).decode("ascii", "replace")
    if argument.startswith("@"):
        with Path(argument[1:]).open("rb") as file:
            return file.read(most).decode("ascii", "replace")
    return argument


def _lines(candidate: DecodeAttempt) -> Iterator[str]:
    """A candidate for people: the text, then its values, or why there are none."""
    from sigdir.signatures.calldata import as_json

    if candidate.values is None:
        yield f"{candidate.text}  does not decode: {candidate.detail}"
        return
    note = (
        "" if candidate.exact else f"  {candidate.left_over} bytes left over" if candidate.left_over else "  not exact"
    )
    yield candidate.text + note
    width = max((len(type.text) for type in candidate.types), default=0)
    for type, value in zip(candidate.types, candidate.values, strict=True):
        yield f"  {type.text:{width}}  {_shown(as_json(type, value))}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() else orjson.dumps(value).decode()
