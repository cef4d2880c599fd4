"""Targets of the cost fuzzer that no route reaches: the arguments of the tools for agents, and the columns of packs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import INDEXED, TEXTS, BadPack, PackColumns, pack_bytes

_CALL = {"data": "0xa9059cbb" + "0" * 128}
TOOLS: dict[str, dict[str, Any]] = {
    "resolve hashes": {},
    "search fragment": {},
    "decode data": {},
    "decode returned_by": {"data": "0x" + "0" * 64},
    "decode code": _CALL,
    "decode abi": _CALL,
    "contract code": {},
}
"""Each tool's argument, and what stands beside it."""


def answer_bytes(server: MCPServer[Any], name: str, text: str) -> int:
    """The bytes of a tool's answer, or of its error, to a text as one argument."""
    tool, argument = name.split()
    value = text.split(",") if argument == "hashes" else text
    try:
        return len(str(asyncio.run(server.call_tool(tool, {**TOOLS[name], argument: value}))))
    except UnexpectedToolError:
        raise
    except ToolError as error:
        return len(str(error))


def pack_targets() -> dict[str, Callable[[bytes], tuple[int, int]]]:
    """Every column of both forms of a pack, filled with a text."""
    columns = {TEXTS: 6, INDEXED: 5}
    return {
        f"pack {collection} {form} {number}": partial(_read_pack, collection, form, number)
        for collection in (SIGNATURES, EVENT_SIGNATURES)
        for form, count in columns.items()
        for number in range(count)
    }


def _read_pack(collection: Collection, form: str, number: int, data: bytes) -> tuple[int, int]:
    """Open a pack of which a column is the text, and ask it all that can be asked."""
    width = {TEXTS: {0: 1, 2: 3}, INDEXED: {0: 4, 1: 4, 3: 4}}[form].get(number, 0)
    rows = len(data) // width if width else data.count(b"\n")
    columns = (_transported if form == TEXTS else _indexed)(rows)
    columns[number] = data[: rows * width] if width else data
    with suppress(BadPack):
        pack = Pack(pack_bytes(form, 1, [PackColumns(collection, rows, columns)]))
        for ask in (pack.check, pack.indexed, partial(_ask, pack, collection)):
            with suppress(BadPack):
                ask()
    return 0, 0


def _ask(pack: Pack, collection: Collection) -> None:
    for digest in (bytes(collection.hash_bytes), b"a" * collection.hash_bytes):
        with suppress(BadPack):
            pack.declarations(digest)
    list(pack.texts(collection))


def _transported(rows: int) -> list[bytes]:
    names = b"".join(b"f%d\n" % number for number in range(rows))
    return [bytes(rows), names, bytes(3 * rows), b"()\n", b"", b""]


def _indexed(rows: int) -> list[bytes]:
    return [bytes(4 * rows), bytes(4 * rows), b"f()\n" * rows, bytes(4 * rows), b"function f()\n" * rows]
