"""The plain requests of clients that cannot be run here, with the answers read as they read them."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urljoin, urlsplit

from tests.serve.support import Server, get, post

TOPIC = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
ORIGIN = {"Origin": "chrome-extension://wallet"}


def test_metamask_takes_the_oldest(server: Server) -> None:
    """A GET in CORS mode; the results are sorted by time and the first is shown."""
    answer = get(server.port, "/api/v1/signatures/?hex_signature=0x01ffc9a7", ORIGIN)
    assert answer.header("Access-Control-Allow-Origin") == "*"
    results = sorted(answer.json()["results"], key=lambda row: datetime.fromisoformat(row["created_at"]))
    assert results[0]["text_signature"] == "supportsInterface(bytes4)"


def test_blockscout_follows_next_to_the_end(server: Server) -> None:
    """sig-provider sends hashes without 0x and joins ``next`` to its host."""
    host = f"http://127.0.0.1:{server.port}/"
    found: list[str] = []
    path = "/api/v1/signatures/?hex_signature=a9059cbb&page_size=1"  # one a page, to have a next one
    while path:
        parts = urlsplit(urljoin(host, path))
        assert f"{parts.scheme}://{parts.netloc}/" == host
        page = get(server.port, f"{parts.path}?{parts.query}").json()
        found += [row["text_signature"] for row in page["results"]]
        path = page["next"]
    assert found == ["transfer(address,uint256)", "many_msg_babbage(bytes1)"]
    events = get(server.port, f"/api/v1/event-signatures/?hex_signature={TOPIC}").json()
    assert [row["text_signature"] for row in events["results"]] == ["Transfer(address,address,uint256)"]


def test_blockscouts_other_sources(server: Server) -> None:
    """Its OpenChain source sends filter=false; its older source sends a bare ``all``, and imports ABIs."""
    texts = [
        {"name": "transfer(address,uint256)", "filtered": False, "hasVerifiedContract": False},
        {"name": "many_msg_babbage(bytes1)", "filtered": True, "hasVerifiedContract": False},
    ]
    for path in (
        "/signature-database/v1/lookup?function=0xa9059cbb&filter=false",
        "/api/v1/signatures?function=0xa9059cbb&all",
    ):
        assert get(server.port, path).json()["result"]["function"]["0xa9059cbb"] == texts
    abi = [
        {"type": "function", "name": "fromBlockscout", "inputs": [], "outputs": []},
        {"type": "constructor", "inputs": []},
    ]
    answer = post(server.port, "/api/v1/import", {"type": "abi", "data": [abi]}).json()
    assert list(answer["result"]["function"]["imported"]) == ["fromBlockscout()"]


def test_otterscan_takes_the_first(server: Server) -> None:
    """Otterscan reads a text file and shows the text before the first semicolon."""
    texts = get(server.port, "/signatures/23b872dd", ORIGIN).body.decode()
    assert texts.split(";")[0] == "transferFrom(address,address,uint256)"
    assert (
        get(server.port, f"/topic0/{TOPIC}", ORIGIN).body.decode().split(";")[0] == "Transfer(address,address,uint256)"
    )
    assert get(server.port, "/signatures/00000001", ORIGIN).status == 404


def test_older_scripts_repeat_the_parameter(server: Server) -> None:
    """querystring.stringify sends one parameter for each member of an array."""
    found = get(server.port, "/api/v1/signatures?function=0xa9059cbb&function=0x70a08231").json()["result"]["function"]
    assert {key: [text["name"] for text in texts] for key, texts in found.items()} == {
        "0xa9059cbb": ["transfer(address,uint256)"], "0x70a08231": ["balanceOf(address)"],
    }  # fmt: skip


def test_heimdall_reads_lists(server: Server) -> None:
    """Its lookup is unfiltered, looks errors up as functions, and needs a list for unknown hashes too."""
    path = "/signature-database/v1/lookup?filter=false"
    for kind, hash, names in (
        ("function", "0x23b872dd", ["transferFrom(address,address,uint256)", "gasprice_bit_ether(int128)"]),
        ("function", "0x00000001", []),
        ("event", f"0x{TOPIC}", ["Transfer(address,address,uint256)"]),
        ("event", "0x" + "0" * 64, []),
    ):
        texts = get(server.port, f"{path}&{kind}={hash}").json()["result"][kind][hash]
        assert isinstance(texts, list)
        assert [text["name"] for text in texts] == names
