"""Real transactions, logs and reverts of well-known contracts, from their public encodings."""

from __future__ import annotations

from typing import Any

import pytest

from sigdir.signatures.decode_input import inputs_of_fields
from sigdir.signatures.inner_calls import TRANSACTIONS
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.readings import Candidate, Form, Input, Known, Readings
from tests.signatures.test_readings import texts_inside

TEXTS = [
    "transfer(address,uint256)", "approve(address,uint256)", "transferFrom(address,address,uint256)", "deposit()",
    "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)",
    "swapExactETHForTokens(uint256,address[],address,uint256)", "multicall(bytes[])", "multiSend(bytes)",
    "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))",
    "aggregate3((address,bool,bytes)[])", "upgrade((address,address,bytes32)[])",
    "execTransaction(address,uint256,bytes,uint8,uint256,uint256,uint256,address,address,bytes)",
    "handleOps((address,uint256,bytes,bytes,uint256,uint256,uint256,uint256,uint256,bytes,bytes)[],address)",
    "execTransactionFromEntrypoint(address,uint256,bytes)", "FailedOp(uint256,string)", "ERC20InsufficientBalance(address,uint256,uint256)",
    "Transfer(address,address,uint256)", "Swap(address,address,int256,int256,uint160,uint128,int24)",
    "TransferSingle(address,address,address,uint256,uint256)", "Deposit(address,uint256)",
    "UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)",
]  # fmt: skip

USDC, WETH = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", "0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"


def word(digits: str) -> str:
    return digits.removeprefix("0x").zfill(64)


def words(*digits: str) -> str:
    return "".join(map(word, digits))


def best(input: Input) -> Candidate:
    known: dict[bytes, list[Known]] = {}
    for text in TEXTS:
        digest = keccak256(text.encode())
        for hash in (digest, digest[:4]):
            known.setdefault(hash, []).append(Known(text))
    readings = Readings([input])
    while wanted := readings.wanted():
        readings.supply({hash: known.get(hash, []) for hash in wanted})
    found = readings.results()[0][0].best
    assert found is not None
    assert found.attempt.exact
    return found


_MAX = "f" * 64
_BSC_ROUTE = words("80", "e747990d5a3df6737851022cba3a32efe85684e7", "64ff27fd", "2")

TRANSACTIONS_OF_CONTRACTS: list[tuple[str, str, tuple[Any, ...]]] = [
    (  # a transfer of USDT
        "0xa9059cbb" + words("5494befe3ce72a2ca0001fe0ed0c55b42f8c358f", "0836d54c"),
        "transfer(address,uint256)", ("0x5494befe3ce72a2ca0001fe0ed0c55b42f8c358f", 0x836D54C),
    ),
    (  # a transfer to Gate.io
        "0xa9059cbb" + words("0d0707963952f2fba59dd06f2b425ace40b492fe", "15b1111266cfca100000"),
        "transfer(address,uint256)", ("0x0d0707963952f2fba59dd06f2b425ace40b492fe", 0x15B1111266CFCA100000),
    ),
    (  # DAI approved for Uniswap's v2 router
        "0x095ea7b3" + words("7a250d5630b4cf539739df2c5dacb4c659f2488d", _MAX),
        "approve(address,uint256)", ("0x7a250d5630b4cf539739df2c5dacb4c659f2488d", 2**256 - 1),
    ),
    (  # USDC from Binance
        "0x23b872dd" + words("28c6c06298d514db089934071355e5743bf21d60", "11" * 20, "f4240"),
        "transferFrom(address,address,uint256)",
        ("0x28c6c06298d514db089934071355e5743bf21d60", "0x" + "11" * 20, 10**6),
    ),
    (  # USDT to BAT on Uniswap v2
        "0x38ed1739" + words(
            "429d069189e0000", "29e8d66e8203c2e", "a0", "f04a5cc80b1e94c69b48f5ee68a08cd2f09a7c3e", "64a571f4", "2",
            "dac17f958d2ee523a2206206994597c13d831ec7", "0d8775f648430679a709e98d2b0cb6250d2887ef",
        ),
        "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)",
        (
            0x429D069189E0000, 0x29E8D66E8203C2E,
            ("0xdac17f958d2ee523a2206206994597c13d831ec7", "0x0d8775f648430679a709e98d2b0cb6250d2887ef"),
            "0xf04a5cc80b1e94c69b48f5ee68a08cd2f09a7c3e", 0x64A571F4,
        ),
    ),
    (  # ether to USDC on zkSync
        "0x7ff36ab5" + words("17d8be") + _BSC_ROUTE
        + words("5aea5775959fbc2557cc8789bc1bf90a239d9a91", "3355df6d4c9c3035724fd0e3914de96a5a83aaf4"),
        "swapExactETHForTokens(uint256,address[],address,uint256)",
        (
            0x17D8BE,
            ("0x5aea5775959fbc2557cc8789bc1bf90a239d9a91", "0x3355df6d4c9c3035724fd0e3914de96a5a83aaf4"),
            "0xe747990d5a3df6737851022cba3a32efe85684e7", 0x64FF27FD,
        ),
    ),
    (  # USDC to ether on Uniswap v3
        "0x414bf389" + words(USDC, WETH, "1f4", "0", "60935d71", "34742a52", "37af8ca188d3bd5", "0"),
        "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))",
        ((USDC, WETH, 500, "0x" + "00" * 20, 0x60935D71, 880028242, 0x37AF8CA188D3BD5, 0),),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "text", "values"), TRANSACTIONS_OF_CONTRACTS, ids=lambda value: str(value)[:10])
def test_a_real_transaction_is_decoded(data: str, text: str, values: tuple[Any, ...]) -> None:
    found = best(Input(Form.CALLDATA, bytes.fromhex(data[2:])))
    assert (found.attempt.text, found.attempt.values) == (text, values)


def test_a_multicall_inside_a_multicall() -> None:
    """The calldata that drains Ethernaut's PuzzleWallet, as cast encodes it."""
    inner = "0xac9650d8" + words("20", "1", "20", "4") + "d0e30db0".ljust(64, "0")
    data = bytes.fromhex(inner[2:])
    outer = "ac9650d8" + words("20", "1", "20", f"{len(data):x}") + data.hex().ljust(2 * 192, "0")
    found = best(Input(Form.CALLDATA, bytes.fromhex(outer)))
    assert texts_inside(found) == [((0, 0), "multicall(bytes[])")]
    assert texts_inside(found.nested[0].reading.candidates[0]) == [((0, 0), "deposit()")]


def test_an_upgrade_of_optimism_through_multicall3() -> None:
    """aggregate3 of one call, `upgrade` of the OP contracts manager v2.0.0 for two chains."""
    upgrade = "ff2dd5a1" + words(
        "20", "2", "c75d8c4e995fb29a4bd6ccef7db3a35e069ccf07", "e323c57b8966dd6ed845715303ddded832b2672c",
        "03f206f043bb34f9e931a49716754b303e635e931b7f1294ff8ca45c969fc627", "95b1425f3f2b6c741949dba20563368f7dbe3816",
        "6d283c3ff5b2140032bf1a9c2fa20e4c73484666", "03f206f043bb34f9e931a49716754b303e635e931b7f1294ff8ca45c969fc627",
    )  # fmt: skip
    data = "82ad56cb" + words("20", "1", "20", "1b25f566336f47bc5e0036d66e142237dcf4640b", "0", "60", "104")
    found = best(Input(Form.CALLDATA, bytes.fromhex(data + upgrade + "0" * 56)))
    assert texts_inside(found) == [((0, 0, 2), "upgrade((address,address,bytes32)[])")]


def test_a_batch_of_a_safe() -> None:
    """multiSend of WCT's staking: an approval, and a call whose text is not known."""
    token, staking = "ef4461891dfb3ac8572ccf7c794664a8dd927945", "f368f535e329c6d08dff0d4b2da961c4e7f3fcaf"
    amount = "197faa4d1ae5fd78e258"
    first = "00" + token + word("0") + word("44") + "095ea7b3" + words(staking, amount)
    second = "00" + staking + word("0") + word("44") + "097cd232" + words("681bf400", amount)
    data = "8d80ff0a" + words("20", "132") + first + second + "0" * 28
    found = best(Input(Form.CALLDATA, bytes.fromhex(data)))
    assert texts_inside(found) == [((0,), TRANSACTIONS)]
    assert texts_inside(found.nested[0].reading.candidates[0]) == [((0, 0, 3), "approve(address,uint256)")]


def test_an_execution_of_a_safe_on_base() -> None:
    to = "8d4fafba75a9dc50b4b296211509e856d2c6d081"
    signature = (
        "1fca12a0c7a67fc6ca9ca271335af2680fae0ce704f5c75fe373ddce47674df33a341f86acbc619d6db40b37ef330f3f2dd47897f0551799f28f20ef7288d69b1b"
    )  # fmt: skip
    data = "6a761202" + words(to, "9184e72a000", "140", "0", "0", "0", "0", "0", "0", "160", "0", "41")
    found = best(Input(Form.CALLDATA, bytes.fromhex(data + signature.ljust(192, "0"))))
    values = found.attempt.values or ()
    assert (values[0], values[1], values[2], values[9]) == ("0x" + to, 10**13, b"", bytes.fromhex(signature))


HANDLE_OPS = "1fad948c" + words(
    "40", "2df993cd76bb8dbda50546eef00eee2e6331a2c8", "1", "20", "eae4d85f7733ad522f601ce7ad4f595704a2d677", "0", "160",
    "180", "169b7", "1546d", "c2ec", "c88385240", "1dcd6500", "2a0", "2c0", "0", "e4",
) + (
    "70641a22" + words(WETH, "0", "60", "44") + "095ea7b3" + words("1e0049783f008a0085193e00003d00cd54003c71", _MAX) + "0" * 56
).ljust(512, "0") + words("0", "62") + (
    "000000000000000000000000000000000000000000000000000000000065793a092c25c7a7c5e4bc46467324e2845caf1ccae767786e07806ca720f8a6b8"
    "3356bc7d43a63a96b34507cfe7c424db37f351d71851ae9318e8d5c3d9f17c8bdb744c1c"
).ljust(256, "0")  # fmt: skip


def test_user_operations_of_the_entry_point() -> None:
    """handleOps of 0xf9f60f6d... on mainnet: an account approves WETH for Seaport's conduit, two calls deep."""
    found = best(Input(Form.CALLDATA, bytes.fromhex(HANDLE_OPS)))
    [(path, text)] = texts_inside(found)
    assert (path, text) == ((0, 0, 3), "execTransactionFromEntrypoint(address,uint256,bytes)")
    inner = found.nested[0].reading.candidates[0]
    assert texts_inside(inner) == [((2,), "approve(address,uint256)")]


TRANSFER_TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"

LOGS: list[tuple[list[str], str, str, tuple[int, ...], tuple[Any, ...]]] = [
    (  # The DAO's tokens, block 1,996,603
        [TRANSFER_TOPIC, "df21fa922215b1a56f5a6d6294e6e36c85a0acfb", "32be343b94f860124dc4fee278fdcbd38c102d88"],
        words("27cfefc4f3f392700"), "Transfer(address,address,uint256)", (0, 1),
        ("0xdf21fa922215b1a56f5a6d6294e6e36c85a0acfb", "0x32be343b94f860124dc4fee278fdcbd38c102d88", 0x27CFEFC4F3F392700),
    ),
    (  # the first token of an ERC-721 contract
        [TRANSFER_TOPIC, "0", "845095a03a6686e24b90fed55e11f4ec808b1ab3", "1"], "",
        "Transfer(address,address,uint256)", (0, 1, 2),
        ("0x" + "00" * 20, "0x845095a03a6686e24b90fed55e11f4ec808b1ab3", 1),
    ),
    (  # ether wrapped by Uniswap's universal router
        ["0xe1fffcc4923d04b559f4d29a8bfc6cda04eb5b0d3c460751c2402c5c5cc9109c", "ef1c6e67703c7bd7107eed8303fbe6ec2554bf6b"],
        words("a688906bd8b0000"), "Deposit(address,uint256)", (0,),
        ("0xef1c6e67703c7bd7107eed8303fbe6ec2554bf6b", 750000000000000000),
    ),
    (  # a Uniswap v3 pool
        [
            "0xc42079f94a6350d7e6235f29174924f928cc2ac818eb64fed8004e115fbcca67",
            "11ddd59c33c73c44733b4123a86ea5ce57f6e854", "11ddd59c33c73c44733b4123a86ea5ce57f6e854",
        ],
        words(
            "4caf17d998f10e", "ffffffffffffffffffffffffffffffffffffffffffffffffffb4511eebbbf96c",
            "fe55cd8544b442b5b2d0944c", "63eadcf9c2ee507fb6", "f" * 62 + "7d",
        ),
        "Swap(address,address,int256,int256,uint160,uint128,int24)", (0, 1),
        (
            "0x11ddd59c33c73c44733b4123a86ea5ce57f6e854", "0x11ddd59c33c73c44733b4123a86ea5ce57f6e854", 0x4CAF17D998F10E,
            -0x4BAEE114440694, 0xFE55CD8544B442B5B2D0944C, 0x63EADCF9C2EE507FB6, -131,
        ),
    ),
    (  # conditional tokens of Polymarket burned
        [
            "0xc3d58168c5ae7397731d063d5bbf3d657854427343f4c083240f7aacaa2d0f62",
            "d91e80cf2e7be2e162c6513ced06f1dd0da35296", "d91e80cf2e7be2e162c6513ced06f1dd0da35296", "0",
        ],
        words("47212f7902c30bd802ea461cc340b9fdb9ad0b35c1ce8aa75807ee264579f664", "4c4b40"),
        "TransferSingle(address,address,address,uint256,uint256)", (0, 1, 2),
        (
            "0xd91e80cf2e7be2e162c6513ced06f1dd0da35296", "0xd91e80cf2e7be2e162c6513ced06f1dd0da35296", "0x" + "00" * 20,
            0x47212F7902C30BD802EA461CC340B9FDB9AD0B35C1CE8AA75807EE264579F664, 5_000_000,
        ),
    ),
    (  # of the handleOps above
        [
            "0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f",
            "2d5f7a884e9a99cfe2445db2af140a8851fbd860852b668f2f199190f68adf87", "eae4d85f7733ad522f601ce7ad4f595704a2d677", "0",
        ],
        words("0", "1", "15ed8b13589192", "284a6"),
        "UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)", (0, 1, 2),
        (
            bytes.fromhex("2d5f7a884e9a99cfe2445db2af140a8851fbd860852b668f2f199190f68adf87"),
            "0xeae4d85f7733ad522f601ce7ad4f595704a2d677", "0x" + "00" * 20, 0, True, 0x15ED8B13589192, 0x284A6,
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("topics", "data", "text", "split", "values"), LOGS, ids=lambda value: str(value)[:20])
def test_a_real_log_is_decoded(
    topics: list[str], data: str, text: str, split: tuple[int, ...], values: tuple[Any, ...]
) -> None:
    """By its text alone the parameters that are indexed come out as in the contract."""
    [input] = inputs_of_fields({"topics": ["0x" + word(topic) for topic in topics], "data": "0x" + data})
    found = best(input)
    assert (found.attempt.text, found.split, found.attempt.values) == (text, split, values)


def message(selector: str, *before: str, text: str) -> str:
    raw = text.encode().hex()
    return selector + words(*before, f"{len(raw) // 2:x}") + raw.ljust(-(-len(raw) // 64) * 64, "0")


REVERTS: list[tuple[str, str, tuple[Any, ...]]] = [
    (message("08c379a0", "20", text="STF"), "Error(string)", ("STF",)),  # Uniswap v3, safeTransferFrom
    (
        message("08c379a0", "20", text="ERC20: burn amount exceeds balance"),
        "Error(string)", ("ERC20: burn amount exceeds balance",),
    ),
    (
        message("220266b6", "0", "40", text="AA21 didn't pay prefund"),
        "FailedOp(uint256,string)", (0, "AA21 didn't pay prefund"),
    ),
    ("4e487b71" + words("32"), "Panic(uint256)", (0x32,)),
    (
        "e450d38c" + words("5a4be260869a25e6682cb0362233872f10f8736d", "a", "29a2241af62c0000"),
        "ERC20InsufficientBalance(address,uint256,uint256)",
        ("0x5a4be260869a25e6682cb0362233872f10f8736d", 10, 3 * 10**18),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "text", "values"), REVERTS, ids=lambda value: str(value)[:20])
def test_a_real_revert_is_decoded(data: str, text: str, values: tuple[Any, ...]) -> None:
    found = best(Input(Form.REVERT, bytes.fromhex(data)))
    assert (found.attempt.text, found.attempt.values) == (text, values)
