"""Real transactions, logs and reverts of well-known contracts, from their public encodings."""

from __future__ import annotations

from typing import Any

import pytest

from sigdir.signatures.decode_input import inputs_of_fields
from sigdir.signatures.readings import Candidate, Form, Input
from tests.signatures.test_readings import best as best_of
from tests.signatures.test_readings import texts_inside

TEXTS = [
    "approve(address,uint256)", "swapExactTokensForTokens(uint256,uint256,address[],address,uint256)",
    "exactInputSingle((address,address,uint24,address,uint256,uint256,uint256,uint160))",
    "handleOps((address,uint256,bytes,bytes,uint256,uint256,uint256,uint256,uint256,bytes,bytes)[],address)",
    "execTransactionFromEntrypoint(address,uint256,bytes)", "FailedOp(uint256,string)", "ERC20InsufficientBalance(address,uint256,uint256)",
    "Transfer(address,address,uint256)", "Swap(address,address,int256,int256,uint160,uint128,int24)", "Deposit(address,uint256)",
    "UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)",
]  # fmt: skip

USDC, WETH = "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48", "0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"


def word(digits: str) -> str:
    return digits.removeprefix("0x").zfill(64)


def words(*digits: str) -> str:
    return "".join(map(word, digits))


def best(input: Input) -> Candidate:
    found = best_of(input, *TEXTS)
    assert found.attempt.exact
    return found


_MAX = "f" * 64

TRANSACTIONS_OF_CONTRACTS: list[tuple[str, str, tuple[Any, ...]]] = [
    (  # DAI approved for Uniswap's v2 router
        "0x095ea7b3" + words("7a250d5630b4cf539739df2c5dacb4c659f2488d", _MAX),
        "approve(address,uint256)", ("0x7a250d5630b4cf539739df2c5dacb4c659f2488d", 2**256 - 1),
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
    (
        message("08c379a0", "20", text="ERC20: burn amount exceeds balance"),
        "Error(string)", ("ERC20: burn amount exceeds balance",),
    ),
    (
        message("220266b6", "0", "40", text="AA21 didn't pay prefund"),
        "FailedOp(uint256,string)", (0, "AA21 didn't pay prefund"),
    ),
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
