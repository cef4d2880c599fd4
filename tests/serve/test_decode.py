"""Decoding over HTTP and as a command: the same answers, from rows that were imported and rows that were POSTed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from eth_abi.abi import encode

from sigdir.signatures.calldata import MAX_BYTES
from tests.conftest import Sigdir
from tests.serve.support import (
    FORM,
    SPAM,
    TRANSFER,
    Server,
    get,
    multipart,
    post,
    request,
    selector,
)

PATH = "/api/v1/decode/"
TO = "0x" + "ab" * 20
CALLDATA = "0xa9059cbb" + encode(["address", "uint256"], [TO, 1000]).hex()


def decoded(server: Server, data: str) -> Any:
    answer = get(server.port, f"{PATH}?data={quote(data)}")
    assert answer.status == 200
    return answer.json()


def test_each_text_of_the_selector_is_tried(server: Server) -> None:
    """A text that decodes comes first although it is newer; one that does not is listed with the reason."""
    assert decoded(server, CALLDATA) == {
        "selector": "0xa9059cbb",
        "bytes": 68,
        "texts": 2,
        "candidates": [
            {
                "text_signature": TRANSFER,
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
                "detail": "the word at byte 4 is out of range for its type, or its padding is not zero",
            },
        ],
    }


def test_bytes_left_over_are_counted(server: Server) -> None:
    first = decoded(server, CALLDATA + "00" * 5)["candidates"][0]
    assert (first["exact"], first["left_over"]) == (False, 5)


def test_a_selector_without_texts_has_no_candidates(server: Server) -> None:
    assert decoded(server, "0x00000000") == {"selector": "0x00000000", "bytes": 4, "texts": 0, "candidates": []}


def test_long_data_is_posted(server: Server) -> None:
    """POST accepts JSON and both kinds of form; data over the bound is refused."""
    data = (
        selector("set(bytes,(uint8,string)[])")
        + encode(["bytes", "(uint8,string)[]"], [bytes(60_000), [(1, "é")]]).hex()
    )
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
def test_bad_calldata_is_400(server: Server, data: str) -> None:
    answer = get(server.port, f"{PATH}?data={data}")
    assert (answer.status, list(answer.json())) == (400, ["data"])


def test_the_slash_may_be_left_out(server: Server) -> None:
    answer = get(server.port, f"{PATH[:-1]}?data={CALLDATA}")
    assert (answer.status, answer.header("Location")) == (301, f"{PATH}?data={CALLDATA}")


# The command.


def test_the_command_answers_as_the_server_does(server: Server, run_sigdir: Sigdir, tmp_path: Path) -> None:
    """It reads an argument, a file or standard input, and finds POSTed rows that are not folded."""
    (file := tmp_path / "data.hex").write_text(CALLDATA[:40] + "\n" + CALLDATA[40:] + "\n")
    warehouse: list[str | Path] = ["--warehouse", server.folder]
    for argument, stdin in ((CALLDATA, b""), (f"@{file}", b""), ("-", CALLDATA.encode())):
        ran = run_sigdir("decode", argument, "--json", *warehouse, stdin=stdin)
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert json.loads(ran.stdout) == decoded(server, CALLDATA)
    shown = run_sigdir("decode", CALLDATA + "00", *warehouse).stdout.decode().splitlines()
    assert shown[0] == f"{TRANSFER}  1 bytes left over"
    assert shown[1:3] == ["  address  0xABaBaBaBABabABabAbAbABAbABabababaBaBABaB", "  uint256  1000"]
    assert shown[3].startswith(f"{SPAM}  does not decode: ")


def test_the_exit_status_is_whether_a_text_decodes(server: Server, run_sigdir: Sigdir, tmp_path: Path) -> None:
    """1 if no text decodes; 2 and one line if the data, the file or the warehouse cannot be read."""
    cases: list[tuple[str, int]] = [
        ("0xa9059cbb", 1), ("0x00000000", 1), ("0xa9", 2), (f"@{tmp_path / 'none'}", 2),
    ]  # fmt: skip
    for argument, status in cases:
        ran = run_sigdir("decode", argument, "--warehouse", server.folder)
        assert ran.returncode == status
        assert b"Traceback" not in ran.stderr
    ran = run_sigdir("decode", CALLDATA, "--warehouse", tmp_path / "none")
    assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)
    assert not (tmp_path / "none").exists()
