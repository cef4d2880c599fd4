"""Requests to an Ethereum node by JSON-RPC: several calls in one request, everything bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sigdir.pipeline.errors import PipelineError
from sigdir.pipeline.fetch import Fetcher, FetchError, RetryPolicy

ANSWER_BYTES = 16 << 20
"""Of one request. A receipt with ten thousand logs has 8 MB."""
_BATCH_CALLS = 50
_MAX_REQUESTS = 200
_SHOWN = 200


class NodeError(PipelineError):
    """A node cannot be asked, or answered with an error; the sentence says what it answered, and not its whole URL."""


class NodeAnswer(NamedTuple):
    """What a node answers to one call: the result, or an error and its data as hex digits, "" for none."""

    result: Any = None
    error: str = ""
    data: str = ""


class NodeCall(NamedTuple):
    """A method of JSON-RPC and its parameters."""

    method: str
    parameters: tuple[Any, ...] = ()


class Node:
    """A node at a URL, which may hold a key: messages name its host alone.

    No request begins ``seconds`` after the first could, and each ends within as many.
    """

    def __init__(self, url: str, seconds: float, name: str = "") -> None:
        """``name`` stands in messages in place of the host. Raises NodeError for a URL that is none."""
        host = checked_url(url)
        self._url, self._name = url, name or host
        self._ends = time.monotonic() + seconds
        self._fetcher = Fetcher(RetryPolicy(rate=1e6, tries=1, timeout=seconds, deadline=seconds))

    def ask(self, calls: Sequence[NodeCall]) -> list[NodeAnswer]:
        """The answer to each call; raises NodeError where the node gives none."""
        answers: list[NodeAnswer] = []
        for first in range(0, len(calls), _BATCH_CALLS):
            answers += self._batch(calls[first : first + _BATCH_CALLS])
        return answers

    def results(self, calls: Sequence[NodeCall]) -> list[Any]:
        """The result of each call; raises NodeError for the first that has an error."""
        answers = self.ask(calls)
        for call, answer in zip(calls, answers, strict=True):
            if answer.error:
                raise NodeError(f"{self._name} answered {call.method} with {answer.error}")
        return [answer.result for answer in answers]

    def _batch(self, calls: Sequence[NodeCall]) -> list[NodeAnswer]:
        """The answers to one request. A node that takes no batch gets a request for each call."""
        requests = [
            {"jsonrpc": "2.0", "id": number, "method": call.method, "params": call.parameters}
            for number, call in enumerate(calls)
        ]
        found = self._post(requests if len(calls) > 1 else requests[0])
        if isinstance(found, dict) and len(calls) > 1:
            return [self._batch([call])[0] for call in calls]
        listed = found if isinstance(found, list) else [found]
        by_id = {one.get("id"): _answer(one) for one in listed if isinstance(one, dict)}
        if not all(number in by_id for number in range(len(calls))):
            raise NodeError(f"{self._name} answered no JSON-RPC: {json.dumps(found)[:_SHOWN]}")
        return [by_id[number] for number in range(len(calls))]

    def _post(self, request: Any) -> Any:
        if self._fetcher.requests >= _MAX_REQUESTS:
            raise NodeError(f"{self._name}: over {_MAX_REQUESTS} requests for one transaction")
        if time.monotonic() > self._ends:
            raise NodeError(f"{self._name}: it answers too slowly")
        try:
            raw = self._fetcher.get(self._url, ANSWER_BYTES, data=json.dumps(request).encode())
        except FetchError as error:
            raise NodeError(f"{self._name}: {error.reason}") from None
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            shown = raw[:_SHOWN].decode("ascii", "backslashreplace")
            raise NodeError(f"{self._name} answered no JSON: {shown}") from None


def checked_url(url: str) -> str:
    """The scheme and host of a node's URL; raises NodeError for a URL that is none."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.isascii() or not url.isprintable() or " " in url or parts.username is not None:
        raise NodeError("the URL of a node begins with http:// or https:// and a host, and names no user")
    return f"{parts.scheme}://{parts.netloc}"


def _answer(found: dict[str, Any]) -> NodeAnswer:
    error = found.get("error")
    if error is None:
        return NodeAnswer(found.get("result"))
    if not isinstance(error, dict):
        return NodeAnswer(error=json.dumps(error)[:_SHOWN])
    data = error.get("data")
    shown = f"error {error.get('code')}: {str(error.get('message'))[:_SHOWN]}"
    return NodeAnswer(error=shown, data=data if isinstance(data, str) else "")
