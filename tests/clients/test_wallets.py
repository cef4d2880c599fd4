"""The rows that wallets and explorers get for a call, with `sigdir serve --rank-lists` and without.

Each query is the request that the source of a client makes. The call is approve(address,uint256), for whose selector
4byte.directory has more texts, older ones and newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import sigdir
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, import_files, import_lines
from tests.serve.support import SIGNATURES_PATH, TOPIC, Application, application, get, local, post_text

APPROVE, OLDER, NEWER = (
    "approve(address,uint256)", "watch_tg_invmru_2f69f1b(address,address)", "sign_szabo_bytecode(bytes16,uint128)",
)  # fmt: skip
SELECTOR = "0x095ea7b3"


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
ASKED: dict[str, tuple[str, list[str], list[str]]] = {
    # Each takes the only row, the first, or that of the lowest or highest id, and showed another text than approve:
    # MetaMask 14944, 14796, 15300, 22680, AlphaWallet 3192, Telos' explorer 143
    "one selector": (f"hex_signature={SELECTOR}", NEWEST_FIRST, [APPROVE]),
    "status-go 3527": (f"hex_signature={SELECTOR[2:]}", NEWEST_FIRST, [APPROVE]),
    "Ambire, Hiero's explorer 2253": (f"format=json&hex_signature={SELECTOR[2:]}", NEWEST_FIRST, [APPROVE]),
    "Vultisig, all": (f"format=json&hex_signature={SELECTOR}&ordering=created_at", NEWEST_FIRST[::-1], [APPROVE]),
    "who wants all": (f"hex_signature={SELECTOR}&filter=false", NEWEST_FIRST, BY_RANK),
    "who wants the newest": (
        f"hex_signature={SELECTOR}&filter=false&ordering=-created_at", NEWEST_FIRST, NEWEST_FIRST
    ),
}  # fmt: skip
"""What a client asks, and the rows without ``--rank-lists`` and with it. The numbers are issues that complain of it."""


@pytest.mark.parametrize("client", ASKED)
def test_what_a_client_gets(client: str, listed: Application, ranked: Application) -> None:
    """The flag mends what a client shows, whatever row it takes; what it asks for by name it still gets."""
    query, without, with_ranks = ASKED[client]
    for app, expected in ((listed, without), (ranked, with_ranks)):
        assert texts(app, query) == expected
        page = get(app, f"{SIGNATURES_PATH}?{query}").json()
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
    answer = get(app, f"{SIGNATURES_PATH}?{query}")
    assert answer.status == 200
    return [row["text_signature"] for row in answer.json()["results"]]


def test_several_hashes_and_pages_are_ranked_too(ranked: Application) -> None:
    """Hash by hash; links lead on in the same order; pages by cursor go by id; other lists stay as they are."""
    assert texts(ranked, f"hex_signature__in={HASHES}") == [APPROVE, "transfer(address,uint256)"]
    link, found = f"{SIGNATURES_PATH}?hex_signature={SELECTOR}&filter=false&page_size=1", []
    while link:
        page = get(ranked, local(link)).json()
        found += [row["text_signature"] for row in page["results"]]
        link = page["next"]
    assert found == [APPROVE, OLDER, NEWER]
    assert texts(ranked, f"hex_signature={SELECTOR}&filter=false&cursor=") == [NEWER, APPROVE, OLDER]
    assert texts(ranked, f"hex_signature={SELECTOR[:9]}")[0] == texts(ranked, "filter=false")[0] == NEWER
    assert texts(ranked, f"hex_signature={SELECTOR}&text_signature=address") == [APPROVE, OLDER]
    assert get(ranked, f"{SIGNATURES_PATH}?hex_signature={SELECTOR}&page=2").status == 404


def test_a_text_that_only_a_search_found_is_no_answer(tmp_path: Path) -> None:
    """A wallet would show a guess, even where the hash has no other text."""
    with application(import_lines(tmp_path / "warehouse", APPROVE, source="solved"), rank_lists=True) as app:
        assert texts(app, f"hex_signature={SELECTOR}") == []
        assert texts(app, f"hex_signature={SELECTOR}&filter=false") == [APPROVE]


def test_a_second_post_with_its_name_does_not_clear_a_mined_text(tmp_path: Path) -> None:
    """POSTed texts with the same name prove nothing: who mined a text can POST them, here and in a version."""
    mined, meant = "clash550254402()", "proxyOwner()"
    selector = "0x025313a2"
    with application(import_lines(tmp_path / "warehouse", mined, meant), rank_lists=True) as app:
        assert [post_text(app, f"clash550254402({kind})").status for kind in ("bool", "bytes")] == [201, 201]
        assert texts(app, f"hex_signature={selector}") == [meant]
        fold(Paths(app.folder))
        query = "SELECT text_signature, looks_mined FROM ranked WHERE hex_signature = ? ORDER BY position"
        with sigdir.open(app.folder) as warehouse:
            assert warehouse.sql(query, [selector]).fetchall() == [(meant, False), (mined, True)]


def test_a_text_that_was_posted_before_its_import_is_an_imported_one(tmp_path: Path) -> None:
    """Its row is that of the POST. A name that several such texts have is shared, here and in a version."""
    one, meant = "clash550254402()", "proxyOwner()"
    selector, others = "0x025313a2", [f"clash550254402({kind})" for kind in ("bool", "bytes")]
    folder = import_lines(tmp_path / "warehouse", "first()")
    with application(folder) as app:
        assert [post_text(app, text).status for text in others] == [201, 201]
    fold(Paths(folder))
    import_lines(folder, one, meant, *others)
    with application(folder, rank_lists=True) as app:
        assert texts(app, f"hex_signature={selector}") == [one, meant]
    query = "SELECT looks_mined FROM ranked WHERE hex_signature = ?"
    with sigdir.open(folder) as warehouse:
        assert warehouse.sql(query, [selector]).fetchall() == [(False,), (False,)]


@pytest.mark.parametrize("is_older", [False, True])
def test_a_posted_text_comes_after_an_imported_one_and_hides_none(tmp_path: Path, is_older: bool) -> None:
    """Who finds a plain name with the selector of a text that only one list has cannot take its place by a POST."""
    imported, posted, selector = "clash550254402()", "proxyOwner()", "0x025313a2"
    folder = import_lines(tmp_path / "warehouse", "first()" if is_older else imported)
    with application(folder, rank_lists=True) as app:
        assert post_text(app, posted).status == 201
        import_lines(folder, imported)
        assert texts(app, f"hex_signature={selector}") == [imported, posted]
        fold(Paths(folder))
        query = "SELECT text_signature, looks_mined FROM ranked WHERE hex_signature = ? ORDER BY position"
        with sigdir.open(folder) as warehouse:
            assert warehouse.sql(query, [selector]).fetchall() == [(imported, False), (posted, False)]


def test_only_a_server_with_ranks_knows_the_filter(listed: Application, ranked: Application) -> None:
    query = f"{SIGNATURES_PATH}?hex_signature={SELECTOR}&filter=false&text=x"
    assert get(listed, query).header("Unknown-Parameters") == "filter, text"
    assert get(ranked, query).header("Unknown-Parameters") == "text"
