"""The command `sigdir mcp`."""

from __future__ import annotations

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import directory_options
from sigdir.pipeline.directory import Source, opened
from sigdir.signatures.errors import missing_package
from sigdir.signatures.interruption import waiting


@command()
@directory_options
def mcp(source: Source) -> None:
    """Answer agents by the Model Context Protocol, on standard input and output.

    The tools are resolve, search, decode, contract and solve. Nothing is written, and nothing asks the network. The extra
    `mcp` has the package that this command needs.

    Exit status: 0 standard input has ended, 2 the warehouse, the pack or the package is missing, 130 interrupted.

    \b
    Examples:
      sigdir mcp --pack functions.pack
      claude mcp add signatures -- sigdir mcp --warehouse /srv/signatures
    """
    try:
        from sigdir.serve.mcp_server import mcp_server
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise Failure(missing_package("sigdir mcp", "mcp", "mcp")) from None
    with opened(source) as directory, waiting():
        mcp_server(directory).run("stdio")
