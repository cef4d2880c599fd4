"""The rows that wallets and explorers get for a call, with `sigdir serve --rank-lists` and without.

Each path is the request that the source of a client makes; a client takes one of the rows. The call is
approve(address,uint256), for whose selector 4byte.directory has more texts, older ones and newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError

from tests.conftest import ROOT, import_files, import_lines
from tests.serve.support import TOPIC, Application, application, get

APPROVE, OLDER, NEWER = (
    "approve(address,uint256)", "watch_tg_invmru_2f69f1b(address,address)", "sign_szabo_bytecode(bytes16,uint128)",
)  # fmt: skip
SELECTOR = "0x095ea7b3"
LISTS = "/api/v1/signatures/"


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


NEWEST_FIRST, BY_RANK = [NEWER, APPROVE, OLDER], [APPROVE, OLDER, NEWER]
CALL = encode(["address", "uint256"], ["0x" + "70" * 20, 25])
Row = dict[str, Any]


def the_only_one(rows: list[Row]) -> Row | None:
    return rows[0] if len(rows) == 1 else None


def oldest(rows: list[Row]) -> Row:
    return min(rows, key=lambda row: str(row["created_at"]))


def lowest_id(rows: list[Row]) -> Row:
    return min(rows, key=lambda row: int(row["id"]))


def highest_id(rows: list[Row]) -> Row:
    return max(rows, key=lambda row: int(row["id"]))


def lowest_id_that_fits(rows: list[Row]) -> Row | None:
    """The values of the call encode to the same bytes."""
    return next((row for row in sorted(rows, key=lambda row: int(row["id"])) if _fits(row["text_signature"])), None)


def _fits(text: str) -> bool:
    types = text.partition("(")[2].removesuffix(")").split(",")
    try:
        return encode(types, decode(types, CALL)) == CALL
    except DecodingError:
        return False


CLIENTS: dict[str, tuple[str, Callable[[list[Row]], Row | None], str | None]] = {
    "MetaMask 14944, 14796, 15300, 22680": (f"hex_signature={SELECTOR}", oldest, OLDER),
    "MetaMask before 2022": (f"hex_signature={SELECTOR}", the_only_one, None),
    "AlphaWallet 3192": (f"hex_signature={SELECTOR}", lowest_id, OLDER),
    "Ambire": (f"format=json&hex_signature={SELECTOR[2:]}", lowest_id, OLDER),
    "Telos' explorer 143": (f"hex_signature={SELECTOR}", itemgetter(0), NEWER),
    "status-go 3527": (f"hex_signature={SELECTOR[2:]}", itemgetter(0), NEWER),
    "status-go, later": (f"hex_signature={SELECTOR[2:]}", highest_id, NEWER),
    "Hiero's explorer 2253": (f"format=json&hex_signature={SELECTOR[2:]}", lowest_id_that_fits, OLDER),
}
"""The issue that complains of it: what the client asks, the row that it takes, and the text that a user sees of a server
without ``--rank-lists``. With it everybody sees approve."""


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_user_sees(client: str, listed: Application, ranked: Application) -> None:
    """The flag mends what a client shows, whatever row it takes."""
    query, taken, by_default = CLIENTS[client]
    for app, seen in ((listed, by_default), (ranked, APPROVE)):
        row = taken(get(app, f"{LISTS}?{query}").json()["results"])
        assert (row and row["text_signature"]) == seen


ASKED: dict[str, tuple[str, list[str], list[str]]] = {
    "one selector": (f"hex_signature={SELECTOR}", NEWEST_FIRST, [APPROVE]),
    "Vultisig, all": (f"format=json&hex_signature={SELECTOR}&ordering=created_at", NEWEST_FIRST[::-1], [APPROVE]),
    "who wants all": (f"hex_signature={SELECTOR}&filter=false", NEWEST_FIRST, BY_RANK),
    "who wants the newest": (
        f"hex_signature={SELECTOR}&filter=false&ordering=-created_at", NEWEST_FIRST, NEWEST_FIRST
    ),
}  # fmt: skip
"""What a client asks, and the rows without ``--rank-lists`` and with it."""


@pytest.mark.parametrize("client", ASKED)
def test_what_a_client_gets(client: str, listed: Application, ranked: Application) -> None:
    """What a client asks for by name it still gets."""
    query, without, with_ranks = ASKED[client]
    for app, expected in ((listed, without), (ranked, with_ranks)):
        assert texts(app, query) == expected
        page = get(app, f"{LISTS}?{query}").json()
        assert (page["count"], page["next"]) == (len(expected), None)


def test_events_and_the_dialect_of_openchain_are_the_same(listed: Application, ranked: Application) -> None:
    """Foundry's traces take the text that is not filtered: issues 646, 7011 and 12169."""
    for app in (listed, ranked):
        events = get(app, f"/api/v1/event-signatures/?hex_signature=0x{TOPIC}").json()["results"]
        assert [row["text_signature"] for row in events] == ["Transfer(address,address,uint256)"]
        found = get(app, f"/signature-database/v1/lookup?function={SELECTOR}&filter=true").json()["result"]["function"]
        assert [one["name"] for one in found[SELECTOR] if not one["filtered"]] == [APPROVE]


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


def test_a_text_that_only_a_search_found_is_no_answer(tmp_path: Path) -> None:
    """A wallet would show a guess, even where the hash has no other text."""
    with application(import_lines(tmp_path / "warehouse", APPROVE, source="solved"), rank_lists=True) as app:
        assert texts(app, f"hex_signature={SELECTOR}") == []
        assert texts(app, f"hex_signature={SELECTOR}&filter=false") == [APPROVE]


def test_only_a_server_with_ranks_knows_the_filter(listed: Application, ranked: Application) -> None:
    query = f"{LISTS}?hex_signature={SELECTOR}&filter=false&text=x"
    assert get(listed, query).header("Unknown-Parameters") == "filter, text"
    assert get(ranked, query).header("Unknown-Parameters") == "text"
