"""Decoding over HTTP and as a command: the same answers, from rows that were imported and rows that were POSTed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from eth_abi.abi import encode

from sigdir.signatures.calldata import MAX_BYTES
from tests.conftest import Sigdir, import_files
from tests.serve.support import (
    FORM,
    Server,
    get,
    multipart,
    post,
    post_text,
    request,
    serving,
)

PATH = "/api/v1/decode/"
TO = "0x" + "ab" * 20
TRANSFER = "0xa9059cbb" + encode(["address", "uint256"], [TO, 1000]).hex()
SPAM = "many_msg_babbage(bytes1)"
"""It has the selector of transfer(address,uint256)."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("decode") / "warehouse"
    (rows := folder.with_name("rows.txt")).write_text(f"{SPAM}\nset(bytes,(uint8,string)[])\n")
    import_files([rows], folder)
    with serving(folder) as server:
        assert post_text(server.port, "transfer(address,uint256)").status == 201
        yield server


@pytest.fixture
def server(served: Server) -> Iterator[Server]:
    yield served
    assert served.errors() == []


def decoded(server: Server, data: str) -> Any:
    answer = get(server.port, f"{PATH}?data={quote(data)}")
    assert answer.status == 200
    return answer.json()


def test_each_text_of_the_selector_is_tried(server: Server) -> None:
    """What decodes comes first although it is the newer one; what does not is there with the reason."""
    assert decoded(server, TRANSFER) == {
        "selector": "0xa9059cbb",
        "bytes": 68,
        "texts": 2,
        "candidates": [
            {
                "text_signature": "transfer(address,uint256)",
                "filtered": False,
                "decodes": True,
                "exact": True,
                "left_over": 0,
                "parameters": [{"type": "address", "value": TO}, {"type": "uint256", "value": "1000"}],
            },
            {
                "text_signature": SPAM,
                "filtered": True,
                "decodes": False,
                "reason": "bad_padding",
                "detail": "the word at byte 4 has a value beyond its type, or padding that is not zero",
            },
        ],
    }


def test_bytes_left_over_are_counted(server: Server) -> None:
    first = decoded(server, TRANSFER + "00" * 5)["candidates"][0]
    assert (first["exact"], first["left_over"]) == (False, 5)


def test_a_selector_without_texts_has_no_candidates(server: Server) -> None:
    assert decoded(server, "0x00000000") == {"selector": "0x00000000", "bytes": 4, "texts": 0, "candidates": []}


def test_long_data_is_posted(server: Server) -> None:
    """As JSON, as a form and as multipart; over the bound it is refused."""
    from sigdir.signatures.keccak import keccak256

    selector = keccak256(b"set(bytes,(uint8,string)[])")[:4].hex()
    data = "0x" + selector + encode(["bytes", "(uint8,string)[]"], [bytes(60_000), [(1, "é")]]).hex()
    body, headers = multipart({"data": data})
    for answer in (
        post(server.port, PATH, {"data": data}),
        request(server.port, "POST", PATH, f"data={data}".encode(), FORM),
        request(server.port, "POST", PATH, body, headers),
    ):
        assert answer.status == 200
        [found] = answer.json()["candidates"]
        assert found["exact"]
        assert found["parameters"][1] == {"type": "(uint8,string)[]", "value": [[1, "é"]]}
    answer = post(server.port, PATH, {"data": "00" * (MAX_BYTES + 1)})
    assert (answer.status, list(answer.json())) == (400, ["data"])
    assert post(server.port, PATH, {"data": "00" * (2 * MAX_BYTES)}).status == 413


@pytest.mark.parametrize("data", ["", "0x", "xyz", "0xa9059cb", "a9059cbb0"])
def test_what_is_no_calldata_is_400(server: Server, data: str) -> None:
    answer = get(server.port, f"{PATH}?data={data}")
    assert (answer.status, list(answer.json())) == (400, ["data"])


def test_the_slash_may_be_left_out(server: Server) -> None:
    answer = get(server.port, f"{PATH[:-1]}?data={TRANSFER}")
    assert (answer.status, answer.header("Location")) == (301, f"{PATH}?data={TRANSFER}")


# The command.


def test_the_command_answers_as_the_server_does(server: Server, run_sigdir: Sigdir, tmp_path: Path) -> None:
    """From the argument, from a file, from standard input; POSTed rows that are not folded are there too."""
    (file := tmp_path / "data.hex").write_text(TRANSFER[:40] + "\n" + TRANSFER[40:] + "\n")
    warehouse: list[str | Path] = ["--warehouse", server.folder]
    for argument, stdin in ((TRANSFER, b""), (f"@{file}", b""), ("-", TRANSFER.encode())):
        ran = run_sigdir("decode", argument, "--json", *warehouse, stdin=stdin)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert json.loads(ran.stdout) == decoded(server, TRANSFER)
    shown = run_sigdir("decode", TRANSFER + "00", *warehouse).stdout.decode().splitlines()
    assert shown[0] == "transfer(address,uint256)  1 bytes left over"
    assert shown[1:3] == [f"  address  {TO}", "  uint256  1000"]
    assert shown[3].startswith(f"{SPAM}  does not decode: ")


def test_the_status_says_whether_anything_decodes(server: Server, run_sigdir: Sigdir, tmp_path: Path) -> None:
    """1 where nothing does, 2 with one line where the data, the file or the warehouse is none."""
    cases: list[tuple[str, int]] = [
        ("0xa9059cbb", 1), ("0x00000000", 1), ("0xa9", 2), (f"@{tmp_path / 'none'}", 2),
    ]  # fmt: skip
    for argument, status in cases:
        ran = run_sigdir("decode", argument, "--warehouse", server.folder)
        assert ran.returncode == status
        assert b"Traceback" not in ran.stderr
    ran = run_sigdir("decode", TRANSFER, "--warehouse", tmp_path / "none")
    assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)
    assert not (tmp_path / "none").exists()
