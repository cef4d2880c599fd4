"""docs/clients.md, "Explain a transaction": cast's trace of a real transaction and what `sigdir decode` says, as the page has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.support import CAST, Front, Served, need
from tests.clients.support import chain as chain_of_anvil
from tests.clients.test_docs import PAGE
from tests.conftest import ROOT
from tests.pipeline.support import invoke

EXAMPLES = ROOT / "docs" / "examples"
SENDER, RECIPIENT = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
CONTRACT = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
TRACE, DECODED, FAILED = re.findall(
    r"^```text\n(.*?)^```", PAGE.partition("## Explain a transaction")[2], re.MULTILINE | re.DOTALL
)

pytestmark = pytest.mark.long


class Chain:
    """A local chain with the token of docs/examples, and cast, which asks our server for names."""

    def __init__(self, front: Front, url: str, home: Path) -> None:
        self._front, self._url, self._home = front, url, home
        self.cast("rpc", "anvil_setCode", CONTRACT, (EXAMPLES / "token.hex").read_text().strip())
        slot = self.cast("index", "address", SENDER, "0", local=True).strip()
        self.cast("rpc", "anvil_setStorageAt", CONTRACT, slot, f"0x{1000:064x}")

    def cast(self, command: str, *arguments: str, local: bool = False) -> str:
        """What a command of cast prints. It keeps no names of earlier runs."""
        address = [] if local else ["--rpc-url", self._url]
        done = self._front.tried("env", f"HOME={self._home}", CAST, command, *address, *arguments)
        assert done.returncode == 0 or "Transaction failed" in done.stderr, done.stderr
        return done.stdout

    def send(self, *arguments: str) -> str:
        """The hash of a transaction to the token, which may fail."""
        sent = self.cast(
            "send", "--unlocked", "--from", SENDER, "--gas-limit", "200000", "--json", CONTRACT, *arguments
        )
        return str(json.loads(sent)["transactionHash"])


@pytest.fixture(scope="module")
def chain(front: Front, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    need(CAST)
    with chain_of_anvil() as url:
        yield Chain(front, url, tmp_path_factory.mktemp("home"))


def assert_shows(printed: str, page: str) -> None:
    """Each line of the page was printed, in order; ``...`` stands for anything."""
    lines = iter(printed.splitlines())
    for wanted in filter(None, page.splitlines()):
        pattern = re.escape(wanted.rstrip()).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, line.rstrip()) for line in lines), (wanted, printed)


def output_of(page: str, command: str) -> str:
    """What a command printed on the page, up to the next one."""
    return page.partition(f"$ {command}")[2].partition("\n")[2].partition("\n$ ")[0]


def test_a_transaction_is_explained_as_the_page_says(chain: Chain, server: Served, tmp_path: Path) -> None:
    """cast replays two transfers in one call; our trees of its input and of its first log have the same calls and values."""
    sent = chain.send((EXAMPLES / "multicall.hex").read_text().strip())
    assert_shows(chain.cast("run", sent), output_of(TRACE, "cast run"))
    (tmp_path / "input.hex").write_text(chain.cast("tx", sent, "input"))
    (tmp_path / "log.json").write_text(json.dumps(json.loads(chain.cast("receipt", sent, "logs", "--json"))[0]))
    parts = [
        invoke(server.folder, "decode", f"@{tmp_path / name}").stdout.decode() for name in ("input.hex", "log.json")
    ]
    assert_shows("".join(parts), DECODED)


def test_a_failed_transaction_is_explained_as_the_page_says(chain: Chain, server: Served) -> None:
    """cast shows the data of an error that it does not know; it is all that we need."""
    traced = chain.cast("run", chain.send("transfer(address,uint256)", RECIPIENT, "5000"))
    assert_shows(traced, output_of(FAILED, "cast run"))
    selector, arguments = re.findall(r"custom error (0x[0-9a-f]{8}): ([0-9a-f]+)", traced)[0]
    decoded = invoke(server.folder, "decode", "revert", selector + arguments)
    assert_shows(decoded.stdout.decode(), output_of(FAILED, "sigdir decode revert"))
