"""Clients of the server. They POST, read pages and look up rows, and record every response in the ledger."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, Collection
from tests.torture.ledger import Finding, Ledger, Row
from tests.torture.plan import Post
from tests.torture.processes import HANGS_SECONDS, HOST

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_JSON = {"Content-Type": "application/json"}
_PAUSE_SECONDS = 0.01  # between the requests of a reader, to leave the cores to the processes under test
_EXISTS = "with this text signature already exists."


class ConnectionLost(Exception):
    """The connection ended without a response. The request may have been carried out or not."""


class Client:
    """One connection at a time to the port that ``port()`` gives, since a restarted server has a new one."""

    def __init__(self, port: Callable[[], int]) -> None:
        self._port = port
        self._connection: HTTPConnection | None = None

    def request(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> tuple[int, Any]:
        """Status and JSON of a response; asks again if there was no place in line. Raises ConnectionLost, Finding."""
        if self._connection is None:
            self._connection = HTTPConnection(HOST, self._port(), timeout=HANGS_SECONDS)
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            status, content = answer.status, answer.read()
        except TimeoutError:
            raise Finding(f"{method} {path}: no response in {HANGS_SECONDS:.0f} s") from None
        except (OSError, HTTPException) as error:
            self.close()
            raise ConnectionLost(str(error)) from error
        if status == 503 and b"Too many long requests" in content:  # refused before it stored anything
            time.sleep(1)
            return self.request(method, path, body, headers)
        if status >= 500:
            raise Finding(f"{method} {path}: {status} {content[:200]!r}")
        return status, json.loads(content)

    def get(self, path: str) -> Any:
        """The JSON of a response whose status must be 200."""
        status, value = self.request("GET", path)
        if status != 200:
            raise Finding(f"GET {path}: {status} {value}")
        return value

    def local_port(self) -> int:
        assert self._connection is not None
        return int(self._connection.sock.getsockname()[1])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def post(client: Client, ledger: Ledger, one: Post) -> None:
    """POST a text and record the response. Raises ConnectionLost."""
    ledger.send([(one.collection, one.text)])
    body = urlencode({"text_signature": one.written}).encode()
    status, value = client.request("POST", f"/api/v1/{one.collection}/", body, _FORM)
    if status == 201:
        row = Row.of_record(value)
        if row.text != one.text:
            raise Finding(f"{one.written} was stored as {row.text}")
        ledger.acknowledge(one.collection, row)
    elif status == 400 and _EXISTS in str(value):
        ledger.exists([(one.collection, one.text)])
    else:
        raise Finding(f"POST {one.written}: {status} {value}")


def post_abi(client: Client, ledger: Ledger, posts: Sequence[Post]) -> None:
    """POST texts as one ABI. Raises ConnectionLost; then each of them may be stored or not."""
    ledger.send((one.collection, one.text) for one in posts)
    abi = []
    for one in posts:
        name, _, types = one.text.removesuffix(")").partition("(")
        kind = "event" if one.collection == EVENT_SIGNATURES else "function"
        abi.append({"type": kind, "name": name, "inputs": [{"type": type} for type in types.split(",")]})
    status, value = client.request(
        "POST", "/api/v1/import-abi/", json.dumps({"contract_abi": json.dumps(abi)}).encode(), _JSON
    )
    counts = (value.get("num_processed"), value.get("num_imported", 0) + value.get("num_duplicates", 0))
    if status != 201 or counts != (len(abi), len(abi)):
        raise Finding(f"POST of an ABI of {len(abi)}: {status} {value}")
    ledger.exists((one.collection, one.text) for one in posts)


def poster(posts: Sequence[Post], client: Client, ledger: Ledger, began: float) -> int:
    """Send each POST at its time; gives the number of responses. Every tenth text is looked up at once."""
    answered = 0
    for number, one in enumerate(posts):
        time.sleep(max(0.0, began + one.at - time.monotonic()))
        with suppress(ConnectionLost):
            if one.by_abi:
                post_abi(client, ledger, posts[number : number + 10])
            else:
                post(client, ledger, one)
            answered += 1
            if number % 10 == 0:
                page = client.get(f"/api/v1/{one.collection}/?{urlencode({'text_signature': one.text})}")
                if one.text not in [record["text_signature"] for record in page["results"]]:
                    raise Finding(f"{one.text} was acknowledged and is not found")
    client.close()
    return answered


class Reader:
    """Reads pages and looks up acknowledged rows until it is stopped."""

    def __init__(self, seed: int, client: Client, ledger: Ledger) -> None:
        self._chance = random.Random(seed)
        self._client = client
        self._ledger = ledger
        self.pages = 0
        self.lookups = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(_PAUSE_SECONDS):
            with suppress(ConnectionLost):
                self._once()
        self._client.close()

    def _once(self) -> None:
        acknowledged = self._ledger.acknowledged()
        if acknowledged and self._chance.random() < 0.7:
            look_up(self._client, *self._chance.choice(acknowledged[-500:]))
            self.lookups += 3
            return
        collection = self._chance.choice(COLLECTIONS)
        kind = self._chance.randrange(3)
        size = self._chance.choice((1, 10, 100))
        first = self._page(collection, f"/api/v1/{collection}/?page_size={size}", size)
        if kind == 0:
            for _ in range(4):
                if first["next"] is None:
                    break
                first = self._page(collection, local(first["next"]), size)
        else:
            page = "last" if kind == 1 else self._chance.randint(1, max(1, first["count"] // size))
            self._page(collection, f"/api/v1/{collection}/?page={page}&page_size={size}", size)

    def _page(self, collection: Collection, path: str, size: int) -> Any:
        page = self._client.get(path)
        self.pages += 1
        rows = [Row.of_record(record) for record in page["results"]]
        for newer, older in pairwise(rows):
            if not (newer.id > older.id and newer.created_at > older.created_at):
                raise Finding(f"GET {path}: {newer} is listed in front of {older}")
        full = page["next"] is not None or page["count"] % size == 0
        if len(rows) != (min(size, page["count"]) if full else page["count"] % size):
            raise Finding(f"GET {path}: {len(rows)} rows of {page['count']}, page size {size}, next {page['next']}")
        return page


def local(link: str) -> str:
    """An absolute link without scheme and host."""
    return "/" + link.split("/", 3)[3]


def look_up(client: Client, collection: Collection, row: Row) -> None:
    """Look up a row by its hash, its text and its id. Raises Finding, ConnectionLost."""
    hex_signature = f"0x{row.hash.hex()}"
    for query in (f"hex_signature={hex_signature}", f"text_signature={quote(row.text)}"):
        page = client.get(f"/api/v1/{collection}/?{query}&page_size=1000")
        if row not in [Row.of_record(record) for record in page["results"]]:
            raise Finding(f"{collection}: {row} is not found by {query}")
    status, record = client.request("GET", f"/api/v1/{collection}/{row.id}/")
    if status != 200 or Row.of_record(record) != row:
        raise Finding(f"{collection}: {row} is not found by its id: {status} {record}")


def rows_above(client: Client, collection: Collection, above: int) -> tuple[list[Row], int]:
    """The rows with larger ids, oldest first, and the count of all rows. Nothing may write meanwhile."""
    rows: list[Row] = []
    link: str | None = f"/api/v1/{collection}/?page_size=1000"
    while link is not None:
        page = client.get(link)
        rows += [Row.of_record(record) for record in page["results"]]
        link = local(page["next"]) if page["next"] is not None and rows[-1].id > above else None
    return [row for row in reversed(rows) if row.id > above], page["count"]


def client_of(worker: int, port: int) -> Client:
    """A client connected to this worker: it connects until this worker accepts."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        client = Client(lambda: port)
        client.get("/healthz")
        if _has_socket(worker, _inode(port, client.local_port())):
            return client
        client.close()
    raise Finding(f"worker {worker} accepts no connection")


def _inode(port: int, other: int) -> str:
    """The inode of the server's socket of a connection, found by the two ports."""
    wanted = (f"0100007F:{port:04X}", f"0100007F:{other:04X}")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (fields[1], fields[2]) == wanted:
            return fields[9]
    return ""


def _has_socket(pid: int, inode: str) -> bool:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()) == f"socket:[{inode}]":
                return True
    return False
