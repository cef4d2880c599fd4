"""Calls every operation of the client that openapi-python-client generated, in that tool's own Python.

The arguments are the server's address and values for the path of a dump. Prints an object of JSON: for each operation
the status and the parsed answer, or null where there is none.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

SELECTOR, TOPIC = "a9059cbb", "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
CALLDATA = f"0x{SELECTOR}{17:064x}{1000:064x}"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TEXTS = {"function": ["generated3(uint256)"], "event": []}


def alike(given: dict[str, Any], *operations: str) -> dict[str, dict[str, Any]]:
    return {operation: dict(given) for operation in operations}


def arguments(version: str, file: str) -> dict[str, dict[str, Any]]:
    """The arguments of each operation by its name; of one that is not here there are none."""
    hashes = {"function": f"0x{SELECTOR}", "event": f"0x{TOPIC}"}
    collection = {"version": version, "name": "signatures.ndjson"}
    data_file = {"version": version, "name": "signatures", "file": file}
    return {
        "list_signatures": {"hex_signature_in": SELECTOR, "page_size": 5},
        "list_event_signatures": {"cursor": "", "ordering": "created_at"},
        "create_signature": {"body": {"text_signature": "generated1(uint256)"}},
        "create_event_signature": {"body": {"text_signature": "Generated1(uint256)"}},
        "import_abi": {"body": {"contract_abi": '[{"type":"function","name":"generated2","inputs":[]}]'}},
        "import_solidity": {"body": {"source_code": "contract A { function generated2(uint8 a) external {} }"}},
        **{f"{verb}_{kind}signature": {"id": 1} for verb in ("get", "has", "describe") for kind in ("", "event_")},
        **alike({"data": CALLDATA}, "decode", "decode_head"),
        "decode_long": {"body": {"data": CALLDATA}},
        "contract": {"body": {"code": (EXAMPLES / "token.hex").read_text()}},
        **{f"{kind}signature_evidence{head}": {"id": 1} for kind in ("", "event_") for head in ("", "_head")},
        "resolve": {"body": [SELECTOR, TOPIC, "zz"], "format_": "json"},
        **alike({"hash_": SELECTOR, "format_": "json"}, "resolve_get", "resolve_head"),
        "changes": {"collection": "event-signatures", "after": "e0", "limit": 2},
        **alike({"version": version}, "dump", "dump_head"),
        **alike(collection, "dump_collection", "dump_collection_head"),
        **alike(data_file, "dump_file", "dump_file_head"),
        **alike(hashes, "openchain_lookup", "openchain_lookup_head", "older_lookup", "older_lookup_head"),
        **alike({"query": "transfer(*"}, "openchain_search", "openchain_search_head"),
        "openchain_import": {"body": TEXTS},
        "older_import": {"body": {"type": "raw", "data": TEXTS}},
        **alike({"hash_": SELECTOR}, "texts_signature", "texts_signature_head"),
        **alike({"hash_": TOPIC}, "texts_event_signature", "texts_event_signature_head"),
    }


def fitted(value: Any, wanted: Any) -> Any:
    """A plain value as the enumeration or model that a parameter takes."""
    for kind in (wanted, *get_args(wanted)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(value)
        if hasattr(kind, "from_dict") and isinstance(value, dict):
            return kind.from_dict(value)
    return value


def plain(value: Any) -> Any:
    """A parsed answer as JSON values."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value if isinstance(value, str) or value is None else type(value).__name__


def main(address: str, version: str, file: str) -> None:
    client = import_module("generated").Client(base_url=address, raise_on_unexpected_status=True)
    known = arguments(version, file)
    results = {}
    for module in pkgutil.walk_packages(import_module("generated.api").__path__, "generated.api."):
        call = getattr(import_module(module.name), "sync_detailed", None)
        if call is not None:
            name, parameters = module.name.rpartition(".")[2], inspect.signature(call).parameters
            given = {key: fitted(value, parameters[key].annotation) for key, value in known.pop(name, {}).items()}
            answer = call(client=client, **given)
            results[name] = [int(answer.status_code), plain(answer.parsed)]
    print(json.dumps({"results": results, "not called": list(known)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
