"""The interface of a contract over HTTP and as a command: the same answer, by rows that were imported and rows that were POSTed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sigdir.signatures.abi_decoder import MAX_BYTES
from sigdir.signatures.contract import read_contract
from tests.pipeline.support import invoke
from tests.serve.support import SPAM, TRANSFER, Application, multipart, post, request, selector
from tests.signatures.assembly import creation_code, dispatcher, metadata, reads_words
from tests.signatures.test_bytecode import CONTRACTS

PATH = "/api/v1/contract/"
CODE = (dispatcher([bytes.fromhex(selector(TRANSFER)[2:]), b"\1\2\3\4"], function=reads_words(2)) + metadata()).hex()


def explained(app: Application, code: str) -> Any:
    answer = post(app, PATH, {"code": code})
    assert answer.status == 200, answer.body
    return answer.json()


def test_a_contract_is_explained(app: Application) -> None:
    """Its functions by the directory's texts, and what is unknown by its shape."""
    found = explained(app, CODE)
    known, unknown = sorted(found["functions"], key=lambda one: -len(one["texts"]))
    assert known["selector"] == selector(TRANSFER)
    assert next(text["text_signature"] for text in known["texts"]) == TRANSFER
    assert {text["text_signature"] for text in known["texts"]} == {TRANSFER, SPAM}
    assert known["texts"][0]["declaration"].startswith("function transfer(address to, uint256 value)")
    assert [text["fit"] for text in known["texts"]] == ["alike", "differs"]
    assert (unknown["selector"], unknown["texts"]) == ("0x01020304", [])
    assert [entry["name"] for entry in found["abi"]] == ["transfer"]
    assert "function transfer(address to, uint256 value) external" in found["solidity"]
    assert not found["is_creation"]


def test_creation_code_and_forms(app: Application) -> None:
    """Creation code gives the same interface; the code may be sent as a form."""
    wanted = explained(app, "0x" + CODE)
    assert explained(app, creation_code(bytes.fromhex(CODE)).hex()) == wanted | {"is_creation": True}
    body, headers = multipart({"code": CODE})
    assert request(app, "POST", PATH, body, headers).json() == wanted


def test_code_beside_other_inputs(app: Application) -> None:
    """The decode route takes code too: by its field, by its first bytes, and up to eight of them in a list."""
    wanted = explained(app, CODE)
    assert post(app, "/api/v1/decode/", {"code": CODE}).json() == wanted
    calldata = selector(TRANSFER) + f"{1:064x}{2:064x}"
    mixed = post(app, "/api/v1/decode/", [calldata, "0x6080604052" + "00" * 40, {"code": CODE}, {"code": "0xz"}])
    assert [one["kind"] for one in mixed.json()] == ["calldata", "contract", "contract", "error"]
    assert mixed.json()[2] == wanted
    many = post(app, "/api/v1/decode/", [{"code": CODE}] * 9).json()
    assert [one["kind"] for one in many] == ["contract"] * 8 + ["error"]
    assert many[8]["detail"] == "more than 8 codes in one list"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("", "This field may not be blank."),
        ("0x60zz", "bytecode has 'z' at digit 3"),
        ("00" * (MAX_BYTES + 1), f"bytecode of {MAX_BYTES + 1:,} bytes; at most {MAX_BYTES:,} are read"),
    ],
)
def test_what_is_no_code_is_refused(app: Application, code: str, problem: str) -> None:
    """With 400 and a sentence that names the place."""
    answer = post(app, PATH, {"code": code})
    assert (answer.status, answer.json()) == (400, {"code": [problem]})


def test_code_whose_libraries_are_not_linked(app: Application) -> None:
    """Their places are no hex digits; every route takes them, and counts them."""
    code = "0x60806040" + CODE + "73__$" + "ab" * 17 + "$__00"
    found = explained(app, code)
    assert found["unlinked_libraries"] == 1
    assert post(app, "/api/v1/decode/", {"data": code}).json() == found
    answer = post(app, "/api/v1/decode/", {"data": "0x12345678" + "__$" + "ab" * 17 + "$__"})
    assert (answer.status, list(answer.json())) == (400, ["data"])


def test_code_of_too_many_functions_is_refused(app: Application) -> None:
    """Each takes evmole 2 ms, where its selector is compared and leads to the same place: it would take a minute."""
    compared = [b"\x80\x63" + number.to_bytes(4) + b"\x14\x61\x00\x05\x57" for number in range(1002)]
    few, many = (bytes.fromhex("5f3560e01c5b") + b"".join(compared[:count]) for count in (12, 1002))
    assert len(read_contract(few.hex()).functions) == 12
    refused = {"code": ["code of more than 1,000 functions"]}
    assert post(app, PATH, {"code": many.hex()}).json() == refused
    beside = {"data": selector(TRANSFER), "code": many.hex()}
    assert post(app, "/api/v1/decode/", beside).json() == refused


def test_the_command(app: Application, tmp_path: Path) -> None:
    """It shows a table, the ABI, Solidity, and what the API answers; unknown functions give status 1."""
    (file := tmp_path / "code.hex").write_text(f"0x{CODE}\n")
    command = partial(invoke, app.folder, "decode", "contract")
    for argument, stdin in ((file, b""), ("-", CODE.encode())):
        ran = command(argument, "--json", stdin=stdin)
        assert (ran.status, ran.stderr, json.loads(ran.stdout)) == (1, "", explained(app, CODE))
    shown = command(CODE).stdout.decode()
    assert TRANSFER in shown
    assert "  payable  unknown (" in shown
    assert json.loads(command(file, "--abi").stdout)[0]["name"] == "transfer"
    assert b"interface IContract {" in command(file, "--solidity").stdout
    refused = command("0x60zz")
    assert (refused.status, refused.stderr) == (2, "Error: bytecode has 'z' at digit 3\n")


def test_what_is_certain_of_code_without_functions(app: Application) -> None:
    """The page and the command say that it delegates and for which machine it is."""
    proxy = CONTRACTS["Lib_ResolvedDelegateProxy"]["runtime"]
    page = request(app, "GET", f"/decode/?data={proxy}")
    assert b"As runtime code (EVM): 799 bytes" in page.body
    assert b"The code compares no selector, and delegates calls." in page.body
    first, second, *_ = invoke(app.folder, "decode", "contract", proxy).stdout.decode().splitlines()
    assert first.startswith("runtime code (EVM), 799 bytes")
    assert second == "delegates calls: no function is found"
