"""What the cost fuzzer asks: the application with every route, over a copy of a warehouse with some of everything."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import falcon.testing
from mcp.server.mcpserver import MCPServer

from sigdir.pipeline import directory
from sigdir.serve.app import create_app
from sigdir.serve.core.budget import budget_processes
from sigdir.serve.core.settings import Settings
from sigdir.serve.mcp_server import mcp_server
from sigdir.serve.servers.startup import answer_costly
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, import_files
from tests.pipeline.test_clear_signing import ROUTER, ROUTER_FILE
from tests.pipeline.test_contracts import entry
from tests.pipeline.test_transaction import FOUND, MINIMAL, RECEIPT, NodeServer
from tests.serve.support import opened

DEEP = "deep(" + "(" * 31 + "uint256" + ")" * 31 + ")"
LONG = "long(" + ",".join(["uint256"] * 1_200) + ")"


@cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sigdir-cost-"))


@cache
def warehouse() -> Path:
    """A warehouse of the samples, some thousand texts, one long and one deep, a contract with its descriptor, and usage."""
    names = [f"name{number}(uint256,address)" for number in range(3_000)]
    texts = [*names, *(f"event Event{name[4:]}" for name in names), DEEP, LONG, f"event {LONG}"]
    for name, content in {
        "texts.txt": "\n".join(texts), "router.json": json.dumps(ROUTER_FILE), "usage.csv": "selector,count\n0xa9059cbb,7\n",
        f"{ROUTER}.json": json.dumps([entry(text) for text in (*names[:100], "transfer(address,uint256)")]),
    }.items():  # fmt: skip
        (folder() / name).write_text(content)
    files = (folder() / name for name in ("texts.txt", "router.json", f"{ROUTER}.json"))
    import_files([*sorted((ROOT / "samples").glob("*.txt")), *files], folder() / "warehouse")
    import_files([folder() / "usage.csv"], folder() / "warehouse", usage=True)
    return folder() / "warehouse"


class Application:
    """The application and the tools for agents over a copy of the warehouse; in every second one lookups are ranked.

    ``patient`` answers in a process of its own, as a server does, over the warehouse itself: it only reads. ``node`` is the
    node of transactions.
    """

    client: falcon.testing.TestClient
    tools: MCPServer[Any]

    def __init__(self) -> None:
        self._copies, self._opened, self._patient = 0, ExitStack(), ExitStack()
        self.node = NodeServer()
        threading.Thread(target=self.node.serve_forever, args=(0.01,), daemon=True).start()
        self.renew()

    @cached_property
    def patient(self) -> falcon.testing.TestClient:
        settings = Settings(warehouse(), sql=True, sql_seconds=0.2, solve=True)
        processes = budget_processes(settings, answer_costly)
        for process in processes.values():
            self._patient.enter_context(closing(process))
        storage = self._patient.enter_context(opened(settings.warehouse))
        app = create_app(settings, *storage, processes=processes)
        client = falcon.testing.TestClient(app)
        while client.simulate_get("/sql/").status_code == 503:  # minutes, where a fuzzer gives way to all others
            time.sleep(1)
        return client

    def renew(self) -> None:
        """Take a new copy: POSTed rows make every later view dearer."""
        self._copies += 1
        paths = Paths(folder() / f"copy-{self._copies}")
        self._opened.close()
        shutil.rmtree(folder() / f"copy-{self._copies - 1}", ignore_errors=True)
        shutil.copytree(warehouse(), paths.root)
        node = f"http://127.0.0.1:{self.node.server_port}"
        settings = Settings(paths.root, rank_lists=self._copies % 2 == 1, mcp=True, rpc=node)
        storage = self._opened.enter_context(opened(paths.root))
        self.client = falcon.testing.TestClient(create_app(settings, *storage))
        self.tools = mcp_server(self._opened.enter_context(directory.opened(paths)))

    def close(self) -> None:
        self.node.shutdown()
        self.node.server_close()
        self._opened.close()
        self._patient.close()


@cache
def current() -> Application:
    return Application()


def discard() -> None:
    """End the application, and remove the folder of warehouses and inputs."""
    if current.cache_info().currsize:
        current().close()
        current.cache_clear()
    shutil.rmtree(folder(), ignore_errors=True)
    folder.cache_clear()
    warehouse.cache_clear()


NODE_ANSWERS = ("raw", "input", "code", "log", "logs", "revert", "facets")
"""What a node may answer with bytes of a stranger."""


def node_results(name: str, data: bytes) -> dict[str, Any]:
    """The answers of a node to each method, in one of which is the text."""
    text, log = f"0x{data.hex()}", {"address": FOUND["to"], "topics": ["0x" + "dd" * 32]}
    logs = [text] if name == "log" else [f"0x{part.hex()}" for part in data.split(b"a")] if name == "logs" else []
    is_revert = {"status": "0x0"} if name == "revert" else {}
    failed = {"code": 3, "message": "execution reverted"} | ({"data": text} if name == "revert" else {})
    return {
        "eth_chainId": "0x1", "eth_getStorageAt": "0x" + "00" * 32,
        "eth_getTransactionByHash": FOUND | ({"input": text} if name == "input" else {}),
        "eth_getTransactionReceipt": RECEIPT | is_revert | {"logs": [log | {"data": one} for one in logs]},
        "eth_getCode": text if name == "code" else MINIMAL, "eth_call": text if name == "facets" else failed,
    }  # fmt: skip
