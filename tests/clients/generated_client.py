"""Calls operations of the client that openapi-python-client generated, in that tool's own Python.

The argument is the server's address. Prints an object of JSON: each operation's status and parsed answer.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from importlib import import_module
from typing import Any

SELECTOR, TOPIC = "a9059cbb", "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
CALLS: dict[str, dict[str, Any]] = {
    "list_signatures": {"hex_signature_in": SELECTOR, "page_size": 5},
    "get_event_signature": {"id": 1},
    "signature_evidence": {"id": 1},
    "decode": {"data": f"0x{SELECTOR}{17:064x}{1000:064x}"},
    "openchain_lookup": {"function": f"0x{SELECTOR}", "event": f"0x{TOPIC}"},
    "texts_signature": {"hash_": SELECTOR},
}


def main(address: str) -> None:
    """Import every operation, and call some."""
    client = import_module("generated").Client(base_url=address, raise_on_unexpected_status=True)
    results: dict[str, Any] = {}
    for module in pkgutil.walk_packages(import_module("generated.api").__path__, "generated.api."):
        call: Any = getattr(import_module(module.name), "sync_detailed", None)
        name = module.name.rpartition(".")[2]
        if call is not None:
            results[name] = None
        if name in CALLS:
            answer = call(client=client, **CALLS[name])
            parsed = answer.parsed.to_dict() if hasattr(answer.parsed, "to_dict") else answer.parsed
            results[name] = [int(answer.status_code), parsed]
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
