"""Targets of the cost fuzzer that no route reaches: arguments of the tools for agents, columns of packs, descriptors, files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from functools import partial, reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError

from sigdir.pipeline.decode_file import decode_file
from sigdir.pipeline.errors import PipelineError
from sigdir.pipeline.fetch import FetchError
from sigdir.pipeline.formats.clear_signing import BadDescriptor, entries_of, problem_of
from sigdir.pipeline.mirror import parse_changes, parse_page
from sigdir.pipeline.progress import Reporter
from sigdir.serve.core.writer import canonical_text
from sigdir.signatures.abi_decoder import MAX_BYTES, Budget
from sigdir.signatures.clear_signing import Called, Descriptor
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Contract
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.pack import Pack
from sigdir.signatures.pack_file import COLUMNS, INDEXED, TEXTS, BadPack, PackColumns, pack_bytes
from sigdir.signatures.types import parameter_types
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.staging.transaction import NewText
from sigdir.warehouse.table.paths import Paths
from tests.conftest import empty_warehouse
from tests.fuzz.application import folder, warehouse
from tests.fuzz.targets import usage
from tests.pipeline.test_clear_signing import ROUTER, ROUTER_FILE, SWAP
from tests.serve.support import opened

_CALL = {"data": "0xa9059cbb" + "0" * 128}
TOOLS: dict[str, dict[str, Any]] = {
    "resolve hashes": {},
    "search fragment": {},
    "search kind": {"fragment": "transfer"},
    "decode data": {},
    "decode returned_by": {"data": "0x" + "0" * 64},
    "decode code": _CALL,
    "decode abi": _CALL,
    "decode to": _CALL | {"chain": 1},
    "contract code": {},
    "solve hash": {"seconds": 0.1},
    "solve code": {"hash": "0xa9059cbb", "seconds": 0.1},
}
"""Each tool's argument, and what stands beside it."""


def awaited(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives, in a thread of its own: a browser's loop may run in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def answer_bytes(server: MCPServer[Any], name: str, text: str) -> int:
    """The bytes of a tool's answer, or of its error, to a text as one argument."""
    tool, argument = name.split()
    value = text.split(",") if argument == "hashes" else text
    try:
        return len(str(awaited(server.call_tool(tool, {**TOOLS[name], argument: value}))))
    except UnexpectedToolError:
        raise
    except ToolError as error:
        return len(str(error))


def pack_targets() -> dict[str, Callable[[bytes], None]]:
    """Every column of both forms of a pack, filled with a text."""
    return {
        f"pack {collection} {form} {number}": partial(_read_pack, collection, form, number)
        for collection in (SIGNATURES, EVENT_SIGNATURES)
        for form in (TEXTS, INDEXED)
        for number in range(COLUMNS)
    }


def _read_pack(collection: Collection, form: str, number: int, data: bytes) -> None:
    """Open a pack of which a column is the text, and ask it all that can be asked."""
    width = {TEXTS: {0: 1, 3: 1}, INDEXED: {0: 4, 1: 4, 3: 4}}[form].get(number, 0)
    rows = len(data) // width if width else data.count(b"\n")
    columns = (_transported if form == TEXTS else _indexed)(rows)
    columns[number] = data[: rows * width] if width else data
    with suppress(BadPack):
        pack = Pack(pack_bytes(form, 1, [PackColumns(collection, rows, columns)]))
        for ask in (pack.check, pack.indexed, partial(_ask, pack, collection)):
            with suppress(BadPack):
                ask()


def _ask(pack: Pack, collection: Collection) -> None:
    for digest in (bytes(collection.hash_bytes), b"a" * collection.hash_bytes):
        with suppress(BadPack):
            pack.declarations(digest)
    list(pack.texts(collection))


def _transported(rows: int) -> list[bytes]:
    names = b"".join(b"f%d\n" % number for number in range(rows))
    return [bytes(rows), names, b"()\n" * rows, bytes(rows), b""]


def _indexed(rows: int) -> list[bytes]:
    return [bytes(4 * rows), bytes(4 * rows), b"f()\n" * rows, bytes(4 * rows), b"function f()\n" * rows]


# Descriptors.

_FORMAT = ("display", "formats", next(iter(ROUTER_FILE["display"]["formats"])))
_DESCRIBED: dict[str, tuple[Any, ...]] = {
    "intent": (*_FORMAT, "intent"), "sentence": (*_FORMAT, "interpolatedIntent"), "label": (*_FORMAT, "fields", 1, "label"),
    "path": (*_FORMAT, "fields", 1, "path"), "owner": ("metadata", "owner"), "value": ("metadata", "constants", "fee"),
    "enum": ("metadata", "enums", "mode", "1"),
}  # fmt: skip
_LISTED = {
    "fields": (*_FORMAT, "fields"),
    "formats": ("display", "formats"),
    "contracts": ("context", "contract", "deployments"),
}
_VALUES = ([(b"\1" * 20, 5)] * 50, 1, 1 << 40, b"\7" * 60)


_TOGETHER = ("formats contracts", "fields enum")


def descriptor_targets() -> dict[str, Callable[[bytes], tuple[int, int]]]:
    """Each text of a descriptor, each of its lists with one more member for each line of the text, and two parts together."""
    return {f"descriptor {name}": partial(_describe, name) for name in (*_DESCRIBED, *_LISTED, *_TOGETHER)}


def _describe(name: str, data: bytes) -> tuple[int, int]:
    """Read a descriptor with the text in it, and show a call by it."""
    document, text = deepcopy(ROUTER_FILE), data.decode("utf-8", "replace")
    for part in name.split():
        *path, last = _DESCRIBED.get(part) or _LISTED[part]
        at = reduce(lambda value, step: value[step], path, document)
        at[last] = text if part in _DESCRIBED else _longer(part, at[last], text.split("\n"))
    size = len(json.dumps(document))
    if problem_of(document):
        return size, 0
    with suppress(BadDescriptor):
        entries = list(entries_of(document, Contract.at("", "router")))
        shown = _shown(entries[0].text.decode(), entries[0].sighting.display)
        return size, sum(len(one.sighting.display) for one in entries) + len(json.dumps(shown))
    return size, 0


def _longer(name: str, value: Any, lines: list[str]) -> Any:
    """A list of a descriptor with a member for each line."""
    if name == "formats":
        return value | {f"f{number}(uint256 a)": {"intent": line, "fields": []} for number, line in enumerate(lines)}
    if name == "fields":
        return [*value, *({"path": line, "label": line, **value[1]} for line in lines)]
    return [*value, *({"chainId": number, "address": ROUTER} for number in range(1, len(lines)))]


def _shown(text: str, display: str) -> Any:
    called = Called(1, bytes.fromhex(ROUTER[2:]))
    return Descriptor.of(text, display, "x").shown(parameter_types(SWAP), _VALUES, called, Budget.of(MAX_BYTES))


# What was POSTed.


def fold_posted(data: bytes) -> None:
    """POST each line that is a declaration, under four names, to a new warehouse, and fold them."""
    texts: list[NewText] = []
    for line in data.decode("utf-8", "replace").split("\n"):
        with suppress(GrammarError):
            texts += [canonical_text(SIGNATURES, line.replace("(", f"_{number}(", 1)) for number in range(4)]
    with TemporaryDirectory(dir=folder()) as name:
        paths = Paths(empty_warehouse(Path(name)))
        with opened(paths.root) as (_, writer):
            writer.store(texts)
        fold(paths)


# Files.


def file_targets() -> dict[str, Callable[[bytes], None]]:
    """Files of counts, files that are decoded, answers of a directory that is mirrored."""
    counts = (b"\0selector,count\n", b"\0", b'\1{"selector":"0xa9059cbb","count":7}\n')
    decoded = (
        (".csv", b"input\n"),
        (".csv", b"topic0,data\n"),
        (".jsonl", b'{"input":"0xa9059cbb"}\n'),
        (".json", b""),
    )
    return {
        **{f"usage {begin!r}": partial(_count, begin) for begin in counts},
        **{
            f"decode file {ending} {begin[:1].decode()}".rstrip(): partial(_decode, ending, begin)
            for ending, begin in decoded
        },
        "mirrored page": partial(_mirror, parse_page),
        "mirrored changes": partial(_mirror, partial(parse_changes, limit=1000)),
    }


def _count(begin: bytes, data: bytes) -> None:
    usage(begin + data)


def _decode(ending: str, begin: bytes, data: bytes) -> None:
    (path := folder() / f"decoded{ending}").write_bytes(begin + data)
    with suppress(PipelineError):
        decode_file(str(path), str(folder() / "decoded.ndjson"), warehouse(), Reporter(), {"chain": 1})


def _mirror(parse: Callable[[str, bytes], object], data: bytes) -> None:
    with suppress(FetchError):
        parse("http://a/", data)
