"""Contracts that imports have seen, over HTTP: decoding with `to` and `chain`, what is at an address, pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import import_files
from tests.pipeline.support import invoke
from tests.serve.support import TRANSFER, Application, application, get, selector
from tests.serve.test_contract_at_hand import CALL, PATH, WORK_ABI, WORKED, decoded, entry, memberships

TOKEN, PROXY, NOWHERE = ("0x" + digits * 20 for digits in ("ab", "cd", "0e"))
CONTRACT = f"/api/v1/contracts/1/{TOKEN}/"
MINIMAL = "0x363d3d373d3d3d363d73" + TOKEN[2:] + "5af43d82803e903d91602b57fd5bf3"
ABI = [*WORK_ABI, entry("Moved", "uint256", kind="event", anonymous=False), entry("hidden")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    (folder / "texts.txt").write_text(f"{TRANSFER}\n{WORKED}\n")
    (folder / "abi.json").write_text(json.dumps(ABI))
    (folder / "proxies.csv").write_text(f"chain,address,implementation\n1,{PROXY},{TOKEN}\n")
    warehouse = folder / "warehouse"
    import_files([folder / "texts.txt", folder / "proxies.csv"], warehouse)
    assert invoke(warehouse, "import", folder / "abi.json", "--contract", f"1:{TOKEN}").status == 0
    assert invoke(warehouse, "suppress", "hidden()") == (0, b"1 text is suppressed\n", "")
    return folder


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[Application]:
    with application(folder / "warehouse") as app:
        yield app


@pytest.mark.parametrize("address", [TOKEN, PROXY])
def test_the_text_of_the_address_comes_first(app: Application, address: str) -> None:
    """By POST and by GET, through a proxy that an import named; another text of the selector is ruled out."""
    found = decoded(app, chain=1, to=address)
    assert memberships(found) == {WORKED: True, TRANSFER: False}
    assert found["candidates"][0]["confidence"] == "high"
    assert (found["contract"]["by"], found["contract"]["texts"]) == ("deployment", 4)
    assert found["contract"]["implementations"] == ([TOKEN] if address == PROXY else [])
    for chain in ("1", "0x1", "0X01"):
        assert get(app, f"{PATH}?data={CALL}&chain={chain}&to={address}").json() == found
        assert decoded(app, chain=chain, to=address) == found


def test_code_and_abi_are_asked_before_the_address(app: Application) -> None:
    """An ABI rules; the code of a minimal proxy is followed on the chain, and without a chain it says what it is."""
    by_abi = decoded(app, chain=1, to=TOKEN, abi=[entry("transfer", "address", "uint256")])
    assert (by_abi["candidates"][0]["text_signature"], by_abi["contract"]["by"]) == (TRANSFER, "abi")
    followed = decoded(app, chain=1, code=MINIMAL)
    assert (followed["candidates"][0]["text_signature"], followed["contract"]["address"]) == (WORKED, TOKEN)
    assert decoded(app, code=MINIMAL)["contract"]["proxies"][0]["address"] == TOKEN


def test_an_address_that_nobody_has_seen(app: Application) -> None:
    """The data is read all the same, and the answer says so; a node's transaction has an address and no chain."""
    found = decoded(app, chain=1, to=NOWHERE)
    assert found["contract"]["detail"] == f"no import has seen the interface of 1:{NOWHERE}"
    plain = decoded(app)
    assert found["candidates"] == plain["candidates"]
    assert decoded(app, to=TOKEN) == plain
    answer = get(app, f"/api/v1/contracts/1/{NOWHERE}/")
    assert (answer.status, answer.json()) == (404, {"detail": f"No import has seen the interface of 1:{NOWHERE}."})


def test_what_is_at_an_address(app: Application) -> None:
    """Who says so, and the texts with their declarations; a hidden text keeps its selector, and nothing else of it is shown."""
    answer = get(app, CONTRACT)
    found = answer.json()
    assert [one["text_signature"] for one in found["functions"]] == [WORKED, None]
    assert found["functions"][1]["hash"] == selector("hidden()")
    assert found["functions"][0]["declaration"].startswith("function workMyDirefulOwner(uint256 p0, uint256 p1) ")
    assert [one["text_signature"] for one in found["events"] + found["errors"]] == ["Moved(uint256)", "Late()"]
    [said] = found["deployments"]
    assert (said["source"], said["by"], said["interface"]) == ("abi.json", "abi", found["interface"])
    assert get(app, CONTRACT, {"If-None-Match": answer.header("ETag")}).status == 304
    assert get(app, f"/api/v1/contracts/0x1/{TOKEN}/").body == answer.body
    for path in (f"/api/v1/contracts/x/{TOKEN}/", "/api/v1/contracts/1/0x12/"):
        assert get(app, path).status == 400


def test_the_pages(app: Application) -> None:
    """The page of an address has its texts and leads to decoding, which takes the address and can be shared."""
    expected = {
        f"/contracts/1/{PROXY}/": (200, f"/contracts/1/{TOKEN}/", "workMyDirefulOwner", f"chain=1&amp;to={PROXY}"),
        f"/contracts/1/{NOWHERE}/": (404, "No import has seen the interface"),
        "/contracts/1/0x12/": (400, "address: &#39;0x12&#39; is no address"),
        f"/decode/?data={CALL}&chain=1&to={TOKEN}": (
            200,
            f"by the contract 1:{TOKEN}: 4 texts.",
            f">1:{TOKEN}</textarea>",
        ),
        f"/decode/?data={CALL}&chain=1&to=0x12": (400, "is no address"),
    }
    for path, (status, *texts) in expected.items():
        answer = get(app, path, {"Accept": "text/html"})
        assert answer.status == status
        for text in texts:
            assert str(text) in answer.body.decode()
