"""What wallets and explorers show for a call, with `sigdir serve --rank-lists` and without.

Each client sends the request that its source makes, and takes the row that its source takes. The call is
approve(address,uint256), for whose selector 4byte.directory has more texts, older ones and newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from tests.conftest import ROOT, import_files
from tests.serve.support import Application, application, get

APPROVE, OLDER, NEWER = (
    "approve(address,uint256)", "watch_tg_invmru_2f69f1b(address,address)", "sign_szabo_bytecode(bytes16,uint128)",
)  # fmt: skip
CALL = "0x095ea7b3" + encode(["address", "uint256"], ["0x" + "ab" * 20, 1000]).hex()
SELECTOR = CALL[:10]
TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The standards' ABIs between an older and a newer text that collide with one of theirs."""
    folder = tmp_path_factory.mktemp("wallets")
    for name, text in (("older", OLDER), ("newer", NEWER)):
        (folder / name).write_text(text)
    for source in (folder / "older", ROOT / "samples", folder / "newer"):
        import_files([source], folder / "warehouse")
    return folder / "warehouse"


@pytest.fixture(scope="module")
def listed(warehouse: Path) -> Iterator[Application]:
    with application(warehouse) as app:
        yield app


@pytest.fixture(scope="module")
def ranked(warehouse: Path) -> Iterator[Application]:
    with application(warehouse, rank_lists=True) as app:
        yield app


def first(rows: Rows) -> str:
    return str(rows[0]["text_signature"])


def only(rows: Rows) -> str:
    return first(rows) if len(rows) == 1 else "nothing"


def oldest(rows: Rows) -> str:
    return first(sorted(rows, key=lambda row: datetime.fromisoformat(row["created_at"])))


def lowest_id(rows: Rows) -> str:
    return first(sorted(rows, key=lambda row: int(row["id"])))


def highest_id(rows: Rows) -> str:
    return first(sorted(rows, key=lambda row: -int(row["id"])))


def all_of_them(rows: Rows) -> str:
    return ", ".join(str(row["text_signature"]) for row in rows)


def lowest_id_that_decodes(rows: Rows) -> str:
    """The arguments must encode to the same bytes again."""
    arguments = bytes.fromhex(CALL[10:])
    for row in sorted(rows, key=lambda row: int(row["id"])):
        types = row["text_signature"].rstrip(")").partition("(")[2].split(",")
        try:
            if encode(types, decode(types, arguments)) == arguments:
                return str(row["text_signature"])
        except DecodingError:
            continue
    return "nothing"


def unfiltered(names: Rows) -> str:
    return next(str(one["name"]) for one in names if not one["filtered"])


class Client(NamedTuple):
    """A client, what it asks, which row it takes, and what a user then sees without ``--rank-lists`` and with it."""

    source: str
    path: str
    takes: Callable[[Rows], str]
    without: str
    with_ranks: str


LISTS = "/api/v1/signatures/"
CLIENTS = [
    Client("MetaMask shared/lib/four-byte.ts", f"{LISTS}?hex_signature={SELECTOR}", oldest, OLDER, APPROVE),
    Client("MetaMask before 14937", f"{LISTS}?hex_signature={SELECTOR}", only, "nothing", APPROVE),
    Client("Telos Hyperion get_abi_signature", f"{LISTS}?hex_signature={SELECTOR}", first, NEWER, APPROVE),
    Client("status-go 3527", f"{LISTS}?hex_signature={SELECTOR[2:]}", first, NEWER, APPROVE),
    Client("status-go decoder/fourbyte/client.go", f"{LISTS}?hex_signature={SELECTOR[2:]}", highest_id, NEWER, APPROVE),
    Client("AlphaWallet SignatureLookupService.java", f"{LISTS}?hex_signature={SELECTOR}", lowest_id, OLDER, APPROVE),
    Client("Ambire humanizer", f"{LISTS}?format=json&hex_signature={SELECTOR[2:]}", lowest_id, OLDER, APPROVE),
    Client(
        "Hiero's explorer FourByteAnalyzer.ts", f"{LISTS}?format=json&hex_signature={SELECTOR[2:]}",
        lowest_id_that_decodes, OLDER, APPROVE,
    ),
    Client(
        "Vultisig resolve4ByteSelector", f"{LISTS}?format=json&hex_signature={SELECTOR}&ordering=created_at",
        all_of_them, f"{OLDER}, {APPROVE}, {NEWER}", APPROVE,
    ),
    Client(
        "a client that wants them all", f"{LISTS}?hex_signature={SELECTOR}&filter=false",
        all_of_them, f"{NEWER}, {APPROVE}, {OLDER}", f"{APPROVE}, {OLDER}, {NEWER}",
    ),
    Client(
        "a client that wants the newest of all", f"{LISTS}?hex_signature={SELECTOR}&filter=false&ordering=-created_at",
        all_of_them, f"{NEWER}, {APPROVE}, {OLDER}", f"{NEWER}, {APPROVE}, {OLDER}",
    ),
    Client(
        "Foundry's traces", f"/signature-database/v1/lookup?function={SELECTOR}&filter=true", unfiltered,
        APPROVE, APPROVE,
    ),
    Client(
        "Telos Hyperion, an event", f"/api/v1/event-signatures/?hex_signature={TOPIC}", first,
        "Transfer(address,address,uint256)", "Transfer(address,address,uint256)",
    ),
]  # fmt: skip


def shown(client: Client, app: Application) -> str:
    answer = get(app, client.path).json()
    if "result" in answer:
        return client.takes(answer["result"]["function"][SELECTOR])
    assert (answer["count"], answer["next"]) == (len(answer["results"]), None)
    return client.takes(answer["results"])


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.source)
def test_what_a_client_shows(client: Client, listed: Application, ranked: Application) -> None:
    """The flag mends what a client shows, whatever row it takes; what a client asks for by name it still gets."""
    assert (shown(client, listed), shown(client, ranked)) == (client.without, client.with_ranks)


HASHES = f"{SELECTOR},0xa9059cbb,0x00000001"


def texts(app: Application, query: str) -> list[str]:
    answer = get(app, f"{LISTS}?{query}")
    assert answer.status == 200
    return [row["text_signature"] for row in answer.json()["results"]]


def test_several_hashes_and_pages_are_ranked_too(ranked: Application) -> None:
    """Hash by hash; links lead on in the same order; pages by cursor go by id; other lists stay as they are."""
    assert texts(ranked, f"hex_signature__in={HASHES}") == [APPROVE, "transfer(address,uint256)"]
    path, found = f"{LISTS}?hex_signature={SELECTOR}&filter=false&page_size=1", []
    while path:
        page = get(ranked, path).json()
        found += [row["text_signature"] for row in page["results"]]
        parts = urlsplit(page["next"] or "")
        path = f"{parts.path}?{parts.query}" if page["next"] else ""
    assert found == [APPROVE, OLDER, NEWER]
    assert texts(ranked, f"hex_signature={SELECTOR}&filter=false&cursor=") == [NEWER, APPROVE, OLDER]
    assert texts(ranked, f"hex_signature={SELECTOR[:9]}")[0] == texts(ranked, "filter=false")[0] == NEWER
    assert texts(ranked, f"hex_signature={SELECTOR}&text_signature=address") == [APPROVE, OLDER]
    assert get(ranked, f"{LISTS}?hex_signature={SELECTOR}&page=2").status == 404


def test_only_a_server_with_ranks_knows_the_filter(listed: Application, ranked: Application) -> None:
    query = f"{LISTS}?hex_signature={SELECTOR}&filter=false&text=x"
    assert get(listed, query).header("Unknown-Parameters") == "filter, text"
    assert get(ranked, query).header("Unknown-Parameters") == "text"
