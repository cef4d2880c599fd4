"""docs/clients.md, "Explain a transaction": cast's trace of a real transaction and what `sigdir decode` says, as the page has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.support import CAST, Front, Served, chain, need
from tests.clients.test_docs import PAGE
from tests.clients.test_transaction import EXAMPLES, Chain, call
from tests.pipeline.support import invoke

CONTRACT = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
TRACE, DECODED, FAILED = re.findall(
    r"^```text\n(.*?)^```", PAGE.partition("## Explain a transaction")[2], re.MULTILINE | re.DOTALL
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def node() -> Iterator[Chain]:
    with chain() as url:
        running = Chain(url)
        running.make(CONTRACT, (EXAMPLES / "token.hex").read_text().strip())
        yield running


def traced(front: Front, node: Chain, sent: str, home: Path) -> str:
    """What cast prints of a transaction, which may have failed. It keeps no names of earlier runs."""
    need(CAST)
    done = front.tried("env", f"HOME={home}", CAST, "run", "--rpc-url", node.url, sent)
    assert done.returncode == 0 or "Transaction failed" in done.stderr, done.stderr
    return done.stdout


def assert_shows(printed: str, page: str) -> None:
    """Each line of the page was printed, in order; ``...`` stands for anything."""
    lines = iter(printed.splitlines())
    for wanted in filter(None, page.splitlines()):
        pattern = re.escape(wanted.rstrip()).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, line.rstrip()) for line in lines), (wanted, printed)


def output_of(page: str, command: str) -> str:
    """What a command printed on the page, up to the next one."""
    return page.partition(f"$ {command}")[2].partition("\n")[2].partition("\n$ ")[0]


def test_a_transaction_is_explained_as_the_page_says(front: Front, node: Chain, server: Served, tmp_path: Path) -> None:
    """cast replays two transfers in one call; our trees of its input and of its first log have the same calls and values."""
    data = (EXAMPLES / "multicall.hex").read_text().strip()
    sent = node.send(CONTRACT, data)
    assert_shows(traced(front, node, sent, tmp_path), output_of(TRACE, "cast run"))
    log = json.dumps(node.rpc("eth_getTransactionReceipt", sent)["logs"][0])
    parts = [invoke(server.folder, "decode", part).stdout.decode() for part in (data, log)]
    assert_shows("".join(parts), DECODED)


def test_a_failed_transaction_is_explained_as_the_page_says(
    front: Front, node: Chain, server: Served, tmp_path: Path
) -> None:
    """cast shows the data of an error that it does not know; it is all that we need."""
    printed = traced(front, node, node.send(CONTRACT, call(5000)), tmp_path)
    assert_shows(printed, output_of(FAILED, "cast run"))
    selector, arguments = re.findall(r"custom error (0x[0-9a-f]{8}): ([0-9a-f]+)", printed)[0]
    decoded = invoke(server.folder, "decode", "revert", selector + arguments)
    assert_shows(decoded.stdout.decode(), output_of(FAILED, "sigdir decode revert"))
