"""Calldata of 128 KiB that is made to cost time or memory; tests and the benchmark of decoding use it."""

from __future__ import annotations

from eth_abi.abi import encode

from sigdir.signatures.keccak import keccak256


def hostile() -> dict[str, tuple[bytes, list[str]]]:
    """Arguments by what is hostile in them, and the type lists of eight texts to try on them."""
    address = "0x" + "ab" * 20
    inner = keccak256(b"transfer(address,uint256)")[:4] + encode(["address", "uint256"], [address, 1])
    shared = _word(4000) + _word(32 * 4000) * 4000 + _word(len(inner)) + inner.ljust(96, b"\0")
    nested = b"".join(_word(1300) + _word(32 * 1300) * 1300 for _ in range(3))
    many = encode(["bytes[]"], [[keccak256(b"f()")[:4]] * 1300])
    return {
        "offsets that share a target": (_word(32) + shared, ["bytes[]"] * 8),
        "offsets in offsets": (_word(32) + nested, ["uint256[][][]", "uint8[][][]", "bytes[][]", "string[][]"] * 2),
        "words": (_word(32) + _word(4090) + _word(1) * 4090, ["uint256[]", "uint8[]", "bool[]", "int256[]"] * 2),
        "tuples": (_word(32) + _word(2045) + _word(1) * 4090, ["(uint8,uint8)[]", "(uint256,bool)[]"] * 4),
        "calls": (many, ["bytes[]"] * 8),
    }


def _word(number: int) -> bytes:
    return number.to_bytes(32)
