"""Clients of the server. They POST, read pages and look up rows, and record every response in the ledger."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, Collection
from tests.conftest import SAFETY_SECONDS
from tests.serve.support import ABI_PATH, FORM, HOST, JSON, LISTS, Row, local
from tests.torture.ledger import Ledger, row_of
from tests.torture.plan import Post

_PAUSE_SECONDS = 0.01  # between the requests of a reader, to leave the cores to the processes under test


class ConnectionLost(Exception):
    """The connection ended without a response. The request may have been carried out or not."""


class Client:
    """One connection at a time to the port that ``port()`` gives, since a restarted server has a new one."""

    def __init__(self, port: Callable[[], int], connection: HTTPConnection | None = None) -> None:
        self._port, self._connection = port, connection

    def request(self, method: str, path: str, body: bytes | None = None, headers: Any = None) -> tuple[int, Any]:
        """Status and JSON of a response; asks again if there was no place in line. Raises ConnectionLost."""
        if self._connection is None:
            self._connection = HTTPConnection(HOST, self._port(), timeout=SAFETY_SECONDS)
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            status, content = answer.status, answer.read()
        except TimeoutError:
            raise AssertionError(f"{method} {path}: no response in {SAFETY_SECONDS} s") from None
        except (OSError, HTTPException) as error:
            self.close()
            raise ConnectionLost(str(error)) from error
        if status == 503 and b"Too many long requests" in content:  # refused before it stored anything
            time.sleep(1)
            return self.request(method, path, body, headers)
        assert status < 500, f"{method} {path}: {status} {content[:200]!r}"
        return status, json.loads(content)

    def get(self, path: str) -> Any:
        """The JSON of a response whose status must be 200."""
        status, value = self.request("GET", path)
        assert status == 200, f"GET {path}: {status} {value}"
        return value

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def post(client: Client, ledger: Ledger, one: Post) -> None:
    """POST a text and record the response. Raises ConnectionLost."""
    ledger.send([(one.collection, one.text)])
    body = urlencode({"text_signature": one.written}).encode()
    status, value = client.request("POST", LISTS[one.collection], body, FORM)
    if status == 201:
        row = row_of(value)
        assert row.text == one.text, f"{one.written} was stored as {row.text}"
        ledger.acknowledge(one.collection, row)
        return
    exists = status == 400 and "with this text signature already exists." in str(value)
    assert exists, f"POST {one.written}: {status} {value}"
    ledger.exists([(one.collection, one.text)])


def post_abi(client: Client, ledger: Ledger, posts: Sequence[Post]) -> None:
    """POST texts as one ABI. Raises ConnectionLost; then each of them may be stored or not."""
    ledger.send((one.collection, one.text) for one in posts)
    abi = []
    for one in posts:
        name, _, types = one.text.removesuffix(")").partition("(")
        kind = "event" if one.collection == EVENT_SIGNATURES else "function"
        abi.append({"type": kind, "name": name, "inputs": [{"type": type} for type in types.split(",")]})
    body = json.dumps({"contract_abi": json.dumps(abi)}).encode()
    status, value = client.request("POST", ABI_PATH, body, JSON)
    counts = (value.get("num_processed"), value.get("num_imported", 0) + value.get("num_duplicates", 0))
    assert (status, *counts) == (201, len(abi), len(abi)), f"POST of an ABI of {len(abi)}: {status} {value}"
    ledger.exists((one.collection, one.text) for one in posts)


def poster(posts: Sequence[Post], client: Client, ledger: Ledger, began: float) -> Counter[str]:
    """Send each POST at its time; gives the number of responses. Every tenth text is looked up at once."""
    done = Counter[str]()
    for number, one in enumerate(posts):
        time.sleep(max(0.0, began + one.at - time.monotonic()))
        with suppress(ConnectionLost):
            if one.by_abi:
                post_abi(client, ledger, posts[number : number + 10])
            else:
                post(client, ledger, one)
            done["posts"] += 1
            if number % 10 == 0:
                page = client.get(f"{LISTS[one.collection]}?{urlencode({'text_signature': one.text})}")
                found = [record["text_signature"] for record in page["results"]]
                assert one.text in found, f"{one.text} was acknowledged and is not found"
    client.close()
    return done


def reader(seed: str, client: Client, ledger: Ledger, stop: threading.Event) -> Counter[str]:
    """Read pages and look up acknowledged rows until it is stopped; gives how many."""
    done, chance = Counter[str](), random.Random(seed)
    while not stop.wait(_PAUSE_SECONDS):
        with suppress(ConnectionLost):
            collection = chance.choice(COLLECTIONS)
            acknowledged = ledger.acknowledged(collection)
            if acknowledged and chance.random() < 0.7:
                done["lookups"] += look_up(client, collection, chance.choice(acknowledged[-500:]))
            else:
                done["pages"] += _read_pages(client, collection, chance)
    client.close()
    return done


def _read_pages(client: Client, collection: Collection, chance: random.Random) -> int:
    """Read the first page, and the next, the last or any; gives how many."""
    size = chance.choice((1, 10, 100))
    path = f"{LISTS[collection]}?page_size={size}"
    first = _page(client, path, size)
    other = chance.randint(1, max(1, first["count"] // size))
    following = local(first["next"]) if first["next"] else path
    _page(client, chance.choice([following, f"{path}&page=last", f"{path}&page={other}"]), size)
    return 2


def _page(client: Client, path: str, size: int) -> Any:
    page = client.get(path)
    rows = [row_of(record) for record in page["results"]]
    for newer, older in pairwise(rows):
        is_newer = newer.id > older.id and newer.created_at > older.created_at
        assert is_newer, f"GET {path}: {newer} is listed in front of {older}"
    full = page["next"] is not None or page["count"] % size == 0
    wanted = min(size, page["count"]) if full else page["count"] % size
    assert len(rows) == wanted, f"GET {path}: {len(rows)} rows of {page['count']}, next {page['next']}"
    return page


def look_up(client: Client, collection: Collection, row: Row) -> int:
    """Look up a row by its hash, its text and its id; gives the number of lookups. Raises ConnectionLost."""
    for query in ({"hex_signature": f"0x{row.hash.hex()}"}, {"text_signature": row.text}):
        page = client.get(f"{LISTS[collection]}?{urlencode(query)}&page_size=1000")
        found = [row_of(record) for record in page["results"]]
        assert row in found, f"{collection}: {row} is not found by {query}"
    record = client.get(f"{LISTS[collection]}{row.id}/")
    assert row_of(record) == row, f"{collection}: {row} is not found by its id: {record}"
    return 3


def rows_above(client: Client, collection: Collection, above: int) -> tuple[list[Row], int]:
    """The rows with larger ids, oldest first, and the count of all rows. Nothing may write meanwhile."""
    rows: list[Row] = []
    link: str | None = f"{LISTS[collection]}?page_size=1000"
    while link is not None:
        page = client.get(link)
        rows += [row_of(record) for record in page["results"]]
        link = local(page["next"]) if page["next"] is not None and rows[-1].id > above else None
    return [row for row in reversed(rows) if row.id > above], page["count"]
