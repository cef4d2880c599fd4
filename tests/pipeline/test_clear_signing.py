"""Descriptors for clear signing (ERC-7730): which texts they bring, how a call is shown by them, what is refused and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from eth_abi.abi import encode
from falcon.testing import TestClient

import sigdir
from sigdir.pipeline.directory import readings_of
from sigdir.pipeline.warehouse_directory import WarehouseDirectory
from sigdir.serve.app import create_app
from sigdir.serve.core.settings import Settings
from sigdir.signatures.abi_decoder import Budget, checksummed
from sigdir.signatures.clear_signing import CallDisplay, Called, Descriptor
from sigdir.signatures.evidence import Kind
from sigdir.signatures.given_contract import AbiContract, DeployedContract, GivenContract, InterfaceText, contract_of
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.readings import Form, Input, Reading
from sigdir.signatures.types import parameter_types
from tests.pipeline.support import CommandResult, invoke, texts
from tests.serve.support import FORM, opened

CHAIN, TOKEN, ROUTER = 1, "0x" + "a1" * 20, "0x" + "b2" * 20
ME, YOU = "0x" + "11" * 20, "0x" + "22" * 20
SCHEMA = "https://eips.ethereum.org/assets/eip-7730/erc7730-v2.schema.json"
APPROVE = "approve(address spender,uint256 value)"


def descriptor(formats: dict[str, Any], address: str = TOKEN, **more: Any) -> dict[str, Any]:
    context = {"contract": {"deployments": [{"chainId": CHAIN, "address": address}]}}
    required = {"$schema": SCHEMA, "context": context, "metadata": {"owner": "Acme"}, "display": {"formats": formats}}
    return required | more


COMMON = {
    "display": {"formats": {APPROVE: {"intent": "Approve", "fields": [
        {"path": "spender", "label": "Spender\u202e", "format": "addressName"},
        {"path": "value", "label": "Amount", "format": "tokenAmount", "params": {"tokenPath": "@.to", "threshold": "0x8000"}},
    ]}}},
    "context": {"contract": {}},
}  # fmt: skip
TOKEN_FILE = descriptor(
    {APPROVE: {"fields": [{"path": "value", "params": {"threshold": "0xff", "message": "All"}}]}},
    includes="common/erc20.json",
    metadata={
        "owner": "Acme",
        "contractName": "Acme\u202e Token",
        "token": {"ticker": "ACM", "name": "Acme", "decimals": 1},
    },
)
ROUTER_FILE = descriptor(
    {
        "swap((address token, uint256 amount)[] legs, uint8 mode, uint256 deadline, bytes path)": {
            "$id": "swap", "intent": {"Action": "Swap", "Kind": "Batch"},
            "interpolatedIntent": "Swap {{all}} in mode {mode} until {deadline}",
            "fields": [
                {"path": "legs.[]", "fields": [{"path": "token", "label": "Token", "format": "addressName"},
                                               {"path": "amount", "$ref": "$.display.definitions.send"}]},
                {"path": "mode", "label": "Mode", "format": "enum", "params": {"$ref": "$.metadata.enums.mode"}},
                {"path": "deadline", "label": "Until", "format": "date", "params": {"encoding": "timestamp"}},
                {"path": "path.[-20:]", "label": "Last token", "format": "raw"},
                {"path": "@.value", "label": "Paid", "format": "amount"}, {"path": "@.to", "label": "Router", "format": "addressName"},
                {"path": "legs.[0].amount", "label": "First", "format": "unit", "params": {"base": "%", "decimals": 2}},
                {"path": "mode", "label": "Hidden", "visible": "never"}, {"path": "mode", "label": "Quiet", "visible": {"ifNotIn": ["1"]}},
                {"path": "nothing.there", "label": "Lost"}, {"value": "$.metadata.constants.fee", "label": "Fee"},
            ],
        }
    },
    ROUTER,
    metadata={"owner": "Acme", "enums": {"mode": {"1": "fast"}}, "constants": {"fee": "0.3 %"}},
)  # fmt: skip
ROUTER_FILE["display"]["definitions"] = {"send": {"label": "Sends", "format": "tokenAmount"}}
MESSAGE_FILE = {
    "context": {"eip712": {"domain": {"name": "Permit2"}}},
    "display": {"formats": {"Mail(string text)": {"fields": [{"path": "text", "label": "Text"}]}}},
}


def registry(folder: Path) -> Path:
    """A registry of a token with a common file, a router, and messages."""
    (folder / "registry" / "acme" / "common").mkdir(parents=True)
    write(folder / "registry/acme/common/erc20.json", COMMON)
    write(folder / "registry/acme/calldata-token.json", TOKEN_FILE)
    write(folder / "registry/acme/calldata-router.json", ROUTER_FILE)
    write(folder / "registry/acme/eip712-mail.json", MESSAGE_FILE)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A registry to change, which is not imported yet."""
    return registry(tmp_path)


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The registry and a descriptor of many fields, imported, with the texts of calls that hold calls."""
    folder = registry(tmp_path_factory.mktemp("acme"))
    fields = [{"path": f"@.{number}", "label": "a" * 200, "format": "raw"} for number in range(20)]
    write(folder / "registry/long.json", descriptor({"a()": {"intent": "Short", "fields": fields}}))
    assert imported(folder).status == 0
    (folder / "calls.txt").write_text("\n".join(dict.fromkeys([*(text for text, _ in CERTAIN + UNCERTAIN), *BATCHES])))
    assert invoke(folder / "warehouse", "import", folder / "calls.txt").status == 0
    return folder


def write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document))


def imported(folder: Path, *options: str) -> CommandResult:
    return invoke(folder / "warehouse", "import", folder / "registry", *options)


def faults(folder: Path) -> dict[str, str]:
    """Import the registry; the reasons of the files that are refused, by their paths."""
    report = json.loads(imported(folder, "--json").stdout)
    return {str(Path(one["path"]).relative_to(folder / "registry")): one["reason"] for one in report["faults"]}


def read(folder: Path, call: Input) -> Reading:
    with closing(WarehouseDirectory.of(folder / "warehouse")) as directory:
        [reading] = readings_of(directory, [call])
    return reading


def shown(folder: Path, text: str, values: list[Any], to: str, **more: Any) -> CallDisplay:
    reading = read(folder, input_of(text, values)._replace(contract=called(to, **more)))
    assert reading.best is not None
    assert reading.best.known.text == text
    assert reading.best.display is not None
    return reading.best.display


SWAP = "swap((address,uint256)[],uint8,uint256,bytes)"
LEGS = [(ME, 1250), (YOU, 7)]


def swapped(folder: Path, mode: int = 1) -> CallDisplay:
    values = [LEGS, mode, 1_700_000_000, b"\x01" * 3 + bytes.fromhex(ME[2:])]
    return shown(folder, SWAP, values, ROUTER, value=15 * 10**17)


def test_a_call_of_the_contract_is_shown_as_a_signer_sees_it(acme: Path) -> None:
    """Intent, labels and formats; paths through groups, arrays and bytes; what needs the chain is raw; no other contract."""
    found = swapped(acme)
    assert found.intent == "Action: Swap, Kind: Batch"
    assert found.sentence == "Swap {all} in mode fast until 2023-11-14 22:13:20 UTC"
    assert (found.owner, found.source) == ("Acme", "registry/acme/calldata-router.json")
    assert [(one.label, one.text) for one in found.fields] == [
        ("Token", f"{ME}, {YOU}"), ("Sends", "1250, 7"), ("Mode", "fast"), ("Until", "2023-11-14 22:13:20 UTC"), ("Last token", ME),
        ("Paid", "1.5 of the chain's currency"), ("Router", checksummed(ROUTER)), ("First", "12.5%"),
        ("Lost", "not known here"), ("Fee", "0.3 %"),
    ]  # fmt: skip
    assert [one.text for one in swapped(acme, mode=2).fields if one.label in ("Mode", "Quiet")] == ["2", "2"]
    [of_token] = read(acme, input_of(SWAP, [LEGS, 1, 1_700_000_000, b""])).candidates
    assert of_token.display is None


@pytest.mark.parametrize(
    ("field", "seen"),
    [
        ({"path": "a", "visible": {"mustMatch": [0, 7]}}, []), ({"path": "a", "visible": {"mustMatch": [0, "8"]}}, None),
        ({"path": "d.[]", "visible": {"mustMatch": [1]}}, None), ({"path": "d.[0]", "visible": {"mustMatch": [1]}}, []),
        ({"path": "d", "visible": {"mustMatch": [1, 2]}}, []), ({"path": "@.from", "visible": {"mustMatch": [ME]}}, None),
        ({"path": "e", "visible": {"mustMatch": ["0xABCD"]}}, []), ({"path": "e", "visible": {"ifNotIn": ["0xabcd"]}}, []),
        ({"path": "a", "visible": {"mustMatch": ["0x07"]}}, []), ({"path": "a", "visible": {"ifNotIn": ["0x7"]}}, []),
        ({"path": "b", "format": "duration"}, ["-01:01:40"]), ({"path": "a", "format": "duration"}, ["00:00:07"]),
        ({"path": "c.[0:20]", "format": "addressName"}, ["not known here"]),
    ],
)  # fmt: skip
def test_a_value_that_the_descriptor_forbids_has_no_display(field: dict[str, Any], seen: list[str] | None) -> None:
    """`mustMatch` hides a field and demands its value. A signer sees whole addresses, and the sign of a duration."""
    declaration = "function f(uint256 a, int256 b, address c, uint256[] d, bytes2 e)"
    descriptor = Descriptor.of(declaration, json.dumps({"chains": [], "fields": [field]}), "here")
    types = parameter_types("f(uint256,int256,address,uint256[],bytes2)")
    shown = descriptor.shown(types, [7, -3700, YOU, (1, 2), b"\xab\xcd"], Called(CHAIN, None), Budget.of(1000))
    assert (shown and [one.text for one in shown.fields]) == seen


def test_a_sentence_with_a_value_that_is_not_known_is_none() -> None:
    """Who sends the call is not known of calldata alone: the intent and the fields are shown."""
    fields = [{"path": "@.from", "label": "From"}, {"path": "a", "label": "Amount"}]
    for path, sentence in (("a", "Sends 7"), ("@.from", "")):
        kept = {"chains": [], "fields": fields, "intent": "Send", "sentence": f"Sends {{{path}}}"}
        descriptor = Descriptor.of("function f(uint256 a)", json.dumps(kept), "here")
        shown = descriptor.shown(parameter_types("f(uint256)"), [7], Called(CHAIN, None), Budget.of(1000))
        assert shown is not None
        assert (shown.intent, shown.sentence) == ("Send", sentence)


MULTI_SEND = "0x38869bf66a61cf6bdb996a6ae40d5853fd43b526"
OPERATION = "(address,uint256,bytes,bytes,uint256,uint256,uint256,uint256,uint256,bytes,bytes)"
SAFE = "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)"
APPROVAL = keccak256(b"approve(address,uint256)")[:4] + encode(["address", "uint256"], [YOU, 25])


def multi_send(operation: int) -> bytes:
    packed = bytes([operation]) + bytes.fromhex(TOKEN[2:]) + bytes(32) + len(APPROVAL).to_bytes(32) + APPROVAL
    return keccak256(b"multiSend(bytes)")[:4] + encode(["bytes"], [packed])


def safe(to: str, data: bytes, operation: int) -> list[Any]:
    return [to, 0, data, operation, 0, 0, 0, ME, ME, APPROVAL]


CERTAIN: list[tuple[str, list[Any]]] = [
    ("multicall(uint256,bytes[])", [1, [APPROVAL]]),
    ("execute(address,uint256,bytes)", [TOKEN, 0, APPROVAL]),
    ("aggregate((address,bytes)[])", [[(YOU, APPROVAL), (TOKEN, APPROVAL)]]),
    (SAFE, safe(MULTI_SEND, multi_send(0), 1)), (SAFE, safe(TOKEN, APPROVAL, 0)),
    (f"handleOps({OPERATION}[],address)", [[(TOKEN, 0, b"", APPROVAL, 0, 0, 0, 0, 0, APPROVAL, APPROVAL)], ME]),
]  # fmt: skip
UNCERTAIN: list[tuple[str, list[Any]]] = [
    ("error Wrapped(bytes)", [APPROVAL]), ("event Did(bytes)", [APPROVAL]), ("setMetadata(uint256,bytes)", [1, APPROVAL]),
    ("swap(uint256,address,bytes)", [1, TOKEN, APPROVAL]), ("forward(address,uint256,bytes)", [TOKEN, 0, APPROVAL]),
    ("batch(address[],bytes[])", [[YOU], [APPROVAL]]), ("setMetadata(uint256,bytes)", [1, multi_send(0)]),
    (SAFE, safe(TOKEN, APPROVAL, 1)), (SAFE, safe(MULTI_SEND, multi_send(1), 1)), (SAFE, safe(YOU, multi_send(0), 1)),
]  # fmt: skip
BATCHES = ("multiSend(bytes)", "multicall(bytes[])")


def test_calls_inside_are_shown_where_they_are_certain(acme: Path) -> None:
    """Of texts that are known to make calls, by the contract that those go to; what is only bytes, or runs as code, is not."""
    for number, (text, values) in enumerate(CERTAIN + UNCERTAIN):
        reading = read(acme, input_of(text, values))
        assert reading.candidates[0].nested, text
        seen = [one.fields[1].text for one in displays_in(reading)]
        assert seen == ["2.5 ACM"] * (number < len(CERTAIN)), (text, values)


def input_of(declaration: str, values: list[Any]) -> Input:
    """A call of the token, or its log or error."""
    kind, text = declaration.split(" ") if " " in declaration else ("", declaration)
    data = encode([one.text for one in parameter_types(text)], values)
    contract, hash = called(TOKEN), keccak256(text.encode())
    if kind == "event":
        return Input(Form.LOG, data, (hash,), contract=contract)
    return Input(Form.REVERT if kind else Form.CALLDATA, hash[:4] + data, contract=contract)


def called(to: str, **more: Any) -> AbiContract:
    return AbiContract({}, has_fallback=True, unread=(), called=Called(CHAIN, bytes.fromhex(to[2:]), **more))


def test_a_proxy_in_front_of_the_contract_shows_nothing(acme: Path) -> None:
    """Anybody may deploy one. What an import says of the implementation is used all the same."""
    call = input_of("approve(address,uint256)", [YOU, 25])
    texts = frozenset([InterfaceText(Kind.FUNCTION, keccak256(b"approve(address,uint256)")[:8])])
    token, router = (bytes.fromhex(address[2:]) for address in (TOKEN, ROUTER))
    code = f"363d3d373d3d3d363d73{TOKEN[2:]}5af43d82803e903d91602b57fd5bf3"

    def followed(**more: str) -> GivenContract | None:
        given = {"code": code, "chain": CHAIN} | more
        return contract_of(given, lambda chain, address: DeployedContract(chain, address, texts=texts))

    contracts = [
        DeployedContract(CHAIN, token), DeployedContract(CHAIN, router, (token,)), followed(), followed(to=ROUTER),
        followed(to=TOKEN),
    ]  # fmt: skip
    readings = [read(acme, call._replace(contract=contract)) for contract in contracts]
    shown = [reading.candidates[0].display is not None for reading in readings]
    assert shown == [True, False, False, False, True]


@contextmanager
def client_of(acme: Path) -> Iterator[TestClient]:
    with opened(acme / "warehouse") as storage:
        yield TestClient(create_app(Settings(acme / "warehouse"), *storage))


def test_displays_of_many_calls_have_the_room_that_their_bytes_have(acme: Path) -> None:
    """In the answer, which says that some are left out, and on the page; the first ones are there."""
    call = input_of("multicall(bytes[])", [[keccak256(b"a()")[:4]] * 900])
    reading = read(acme, call)
    found = displays_in(reading)
    assert 100 < len(found) < 900
    assert sum(one.size for one in found) < Budget.of(len(call.data)).left
    assert "Of what a signer sees a part is left out" in reading.note
    body = urlencode({"data": "0x" + call.data.hex(), "contract": f"{CHAIN}:{TOKEN}"})
    with client_of(acme) as client:
        page = client.simulate_post("/decode/", body=body, headers=FORM).text
    assert 1 <= page.count("A signer sees") <= 80
    assert "The page has no room for what a signer sees" in page


def displays_in(reading: Reading) -> list[CallDisplay]:
    found = reading.candidates[:1]
    own = [one.display for one in found if one.display is not None]
    return own + [each for one in found for inner in one.nested for each in displays_in(inner.reading)]


def test_an_including_descriptor_overrides_the_included_one(acme: Path) -> None:
    """Field by field and parameter by parameter; the common file has no contract and shows nothing by itself."""
    for value, amount in ((0xFF, "All"), (25, "2.5 ACM")):
        found = shown(acme, "approve(address,uint256)", [YOU, value], TOKEN)
        assert (found.intent, found.contract) == ("Approve", "Acme\u202e Token")
        assert [(one.label, one.text) for one in found.fields] == [("Spender\u202e", YOU), ("Amount", amount)]


def test_over_http_as_a_command_and_on_the_page(acme: Path) -> None:
    """The contract is named by its chain and address; the answers are the same, and no other address has them.

    Each says that the interface of the contract is not known, not that the contract is not.
    """
    call: dict[str, Any] = {"data": "0x" + APPROVAL.hex(), "chain": CHAIN, "to": TOKEN}
    with client_of(acme) as client:
        found = client.simulate_post("/api/v1/decode/", json=call).json
        other = client.simulate_post("/api/v1/decode/", json=call | {"chain": 10}).json
        page = client.simulate_get("/decode/", params=call).text
        record = client.simulate_get("/selector/0x095ea7b3/").text
    assert found["candidates"][0]["display"]["fields"][1] == {
        "label": "Amount", "path": "value", "format": "tokenAmount", "text": "2.5 ACM",
    }  # fmt: skip
    assert "display" not in other["candidates"][0]
    assert "A signer sees" in page
    assert "2.5 ACM" in page
    command = invoke(acme / "warehouse", "decode", call["data"], "--chain", str(CHAIN), "--to", TOKEN).stdout.decode()
    assert ["\u202e" in text for text in (page, command, record)] == [False] * 3
    assert [text.count("\\u202e") for text in (page, command)] == [2, 2]
    assert ("Acme\\u202e Token" in record, "a descriptor for clear signing has it" in record) == (True, True)
    ran = invoke(acme / "warehouse", "decode", call["data"], "--chain", str(CHAIN), "--to", TOKEN, "--json")
    assert json.loads(ran.stdout) == found
    lack = f"no import has seen the interface of {CHAIN}:{TOKEN}"
    assert (found["contract"]["detail"], f"texts: {lack}." in page) == (lack, True)


def test_in_sql_and_in_a_decoded_file(acme: Path, tmp_path: Path) -> None:
    """A call, and one inside another, where the contract is known; other rows of the file have none."""
    calls, target = tmp_path / "calls.csv", tmp_path / "rows.ndjson"
    around = input_of("execute(address,uint256,bytes)", [TOKEN, 0, APPROVAL]).data
    given = ((APPROVAL, TOKEN), (around, ME), (APPROVAL, YOU))
    calls.write_text("input,to\n" + "".join(f"0x{data.hex()},{to}\n" for data, to in given))
    ran = invoke(acme / "warehouse", "decode", "--file", calls, "--output", target, "--chain", str(CHAIN))
    shown, outer, other = map(json.loads, target.read_text().splitlines())
    expected = {"label": "Amount", "path": "value", "format": "tokenAmount", "text": "2.5 ACM"}
    assert (ran.status, shown["display"]["fields"][1], outer["display"], other["display"]) == (0, expected, None, None)
    assert outer["nested"][0]["candidates"][0]["display"] == shown["display"]
    with sigdir.open(acme / "warehouse") as warehouse:
        [(found, without, unknown)] = warehouse.sql(
            "SELECT decode_calldata($1::BLOB, 1, $2), decode_calldata($1::BLOB), decode_calldata('0x01020304', 1, $2)",
            [APPROVAL, TOKEN],
        ).rows()
    assert json.loads(found)["candidates"][0]["display"]["fields"][1] == expected
    assert "display" not in json.loads(without)["candidates"][0]
    assert json.loads(unknown)["candidates"] == []


def test_its_texts_rank_behind_the_standards_alone(folder: Path) -> None:
    """Above what many lists name, with the names that the descriptor has."""
    for number in range(3):
        (folder / f"{number}.txt").write_text(SWAP)
        invoke(folder / "warehouse", "import", folder / f"{number}.txt")
    assert imported(folder).status == 0
    resolved = invoke(folder / "warehouse", "resolve", "0x" + keccak256(SWAP.encode())[:4].hex(), "--json")
    [one] = json.loads(resolved.stdout)[0]["texts"]
    assert one["reasons"][0] == "described for clear signing"
    assert one["declaration"].startswith("function swap((address token, uint256 amount)[] legs, uint8 mode")


def test_a_descriptor_that_is_imported_again_takes_the_place_of_the_earlier_one(folder: Path) -> None:
    assert imported(folder).status == 0
    changed = json.loads(json.dumps(ROUTER_FILE).replace('"Sends"', '"Gives"'))
    write(folder / "registry/acme/calldata-router.json", changed)
    assert imported(folder).status == 0
    found = swapped(folder)
    assert "Gives" in [one.label for one in found.fields]
    assert invoke(folder / "warehouse", "compact").status == invoke(folder / "warehouse", "verify").status == 0
    assert swapped(folder) == found


def set_format(document: dict[str, Any], path: list[Any], value: Any) -> None:
    *way, last = path
    for name in way:
        document = document[name]
    document[last] = value


FORMAT = ["display", "formats", next(iter(ROUTER_FILE["display"]["formats"]))]
SHOWN_FORMAT = f"$.display.formats[{json.dumps(FORMAT[-1][:60])}]"


BAD: list[tuple[list[Any], Any, str]] = [
    ([*FORMAT, "fields", 1, "format"], "poem", f'{SHOWN_FORMAT}.fields[1].format: "poem" is none of raw, addressName'),
    ([*FORMAT, "fields", 1, "params"], {}, f"{SHOWN_FORMAT}.fields[1].params.$ref: is missing"),
    ([*FORMAT, "fields", 2, "value"], 7, f"{SHOWN_FORMAT}.fields[2]: path and value exclude each other"),
    ([*FORMAT, "colour"], "red", f"{SHOWN_FORMAT}.colour: no such key"), ([*FORMAT, "intent"], 7, f"{SHOWN_FORMAT}.intent: 7 is not of type"),
    (["context", "contract", "deployments", 0, "address"], "0x12", '$.context.contract.deployments[0].address: "0x12" does not match'),
    (["metadata", "enums"], {}, f"{SHOWN_FORMAT}.fields[1].params.$ref: nothing is at $.metadata.enums.mode"),
    (["display", "definitions"], {}, f"{SHOWN_FORMAT}.fields[0].fields[1].$ref: nothing is at $.display.definitions.send"),
    (["includes"], "bad.json", '$.includes: "bad.json" leads back to this descriptor'),
    (["includes"], "../../outside.json", '$.includes: "../../outside.json" is none of the descriptors of this import'),
    (["includes"], "/etc/passwd", "is no path in the imported folder"), (["includes"], "https://example.org/a.json", "is no path in the imported folder"),
]  # fmt: skip
"""A place in the router's descriptor, what stands there, and the problem."""


def test_a_bad_descriptor_is_refused_with_the_path(folder: Path) -> None:
    """One fault each; the other descriptors are imported. Named alone it ends the import."""
    write(folder / "outside.json", COMMON)
    write(folder / "registry/acme/circle.json", descriptor({}) | {"includes": "back.json"})
    write(folder / "registry/acme/back.json", descriptor({}) | {"includes": "circle.json"})
    for number, (path, value, _) in enumerate(BAD):
        bad = json.loads(json.dumps(ROUTER_FILE))
        set_format(bad, path, value)
        (folder / f"registry/{number}").mkdir()
        write(folder / f"registry/{number}/bad.json", bad)
    found = faults(folder)
    assert len(found) == len(BAD) + 2
    for number, (_, _, problem) in enumerate(BAD):
        assert problem in found[f"{number}/bad.json"].replace("\\", "")
    assert '$.includes: "back.json" leads back to this descriptor' in found["acme/back.json"]
    assert sorted(texts(folder / "warehouse")) == ["approve(address,uint256)", SWAP]
    alone = invoke(folder / "warehouse", "import", folder / "registry/0/bad.json")
    assert alone.status == 2
    assert "not a descriptor of ERC-7730: $." in alone.stderr


def test_what_a_descriptor_makes_is_bounded(folder: Path) -> None:
    """Fields that all refer to one long enum, formats that all have many contracts, a sentence with one value again and again."""
    mode = {"path": "a", "label": "A", "format": "enum", "params": {"$ref": "$.metadata.enums.mode"}}
    long: dict[str, Any] = {"metadata": {"enums": {"mode": {"1": "x" * 60_000}}}}
    write(folder / "registry/enum.json", descriptor({"f(uint256 a)": {"fields": [mode] * 2}}, **long))
    many = descriptor({f"f{number}(uint256 a)": {"fields": []} for number in range(200)})
    many["context"]["contract"]["deployments"] = [{"chainId": number, "address": ROUTER} for number in range(1, 900)]
    write(folder / "registry/many.json", many)
    found = faults(folder)
    assert "a format of over 65,536 characters" in found["enum.json"]
    assert "$.display.formats: formats of over " in found["many.json"]
    for times, sentence in ((400, "fast" * 400), (600, "")):
        again = deepcopy(ROUTER_FILE)
        set_format(again, [*FORMAT, "interpolatedIntent"], "{mode}" * times)
        write(folder / "registry/acme/calldata-router.json", again)
        imported(folder)
        assert swapped(folder).sentence == sentence


def test_a_chain_of_includes_and_deep_groups_end(folder: Path) -> None:
    """Over eight includes one behind the other, and groups in groups, are refused."""
    for number in range(12):
        write(folder / f"registry/link{number}.json", descriptor({}) | {"includes": f"link{number + 1}.json"})
    write(folder / "registry/link12.json", descriptor({}))
    groups: list[Any] = [{"path": "a", "label": "A"}]
    for _ in range(100):
        groups = [{"path": "a", "fields": groups}]
    write(folder / "registry/deep.json", descriptor({"f(uint256 a)": {"fields": groups}}))
    found = faults(folder)
    assert "nested too deeply" in found.pop("deep.json")
    assert set(found) == {f"link{number}.json" for number in range(4)}
    assert "over 8 descriptors one behind the other" in found["link0.json"]
