"""Synthetic corpora, drawn from a seed with the words of real signatures. They are not committed.

``lines`` are distinct canonical signatures of about 36 bytes. ``declarations`` are signatures as people write
them: keywords, parameter names, aliases, data locations, tuples, trailing parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CACHE = Path(__file__).parent / ".cache"
_CHUNK = 1_000_000
_POOL = 40_000

_VERBS = [
    "get",
    "set",
    "add",
    "remove",
    "transfer",
    "approve",
    "mint",
    "burn",
    "swap",
    "deposit",
    "withdraw",
    "claim",
    "stake",
    "update",
    "execute",
    "init",
    "is",
    "has",
    "max",
]
_NOUNS = [
    "Token",
    "Balance",
    "Owner",
    "Price",
    "Fee",
    "Reward",
    "Pool",
    "Vault",
    "Position",
    "Order",
    "Auction",
    "Bid",
    "Role",
    "Admin",
    "Signer",
    "Proof",
    "Root",
    "Epoch",
    "Round",
]
_WORDS = [
    "to",
    "from",
    "amount",
    "value",
    "owner",
    "spender",
    "id",
    "data",
    "deadline",
    "index",
    "recipient",
    "price",
    "salt",
    "proof",
    "user",
    "token",
]
_TYPES = {  # type as written, and its approximate weight in real signatures
    "uint256": 40, "address": 24, "bool": 4, "bytes32": 5, "string": 5, "bytes": 4, "uint8": 3,
    "uint256[]": 3, "address[]": 2, "uint128": 2, "int256": 1, "bytes4": 1, "uint64": 1,
    "(uint256,address)": 1, "(address,uint256,bytes)[]": 1, "bytes32[2]": 1,
}  # fmt: skip
_WRITTEN_TYPES = {
    "uint": 20, "uint256": 20, "address": 22, "address payable": 3, "bool": 4, "bytes32": 5,
    "string memory": 4, "string calldata": 2, "bytes calldata": 3, "uint8": 3, "uint[] memory": 2,
    "uint256[] calldata": 2, "address[] memory": 2, "int": 1, "byte": 1, "tuple(uint a, address b)": 1,
    "tuple(address to, uint256 value, bytes data)[] calldata": 1,
}  # fmt: skip
_TAILS = [
    " external;", " public view returns (uint256);", " external returns (bool success);", " public payable;",
    " external view returns (address, uint256);", " public onlyOwner returns (bool);", "", ";",
]  # fmt: skip

Strings = npt.NDArray[np.object_]


def lines(rows: int, first: int = 0) -> Path:
    """A file of distinct canonical signatures, made if it is missing."""
    return _made(f"lines-{first}-{rows}.txt", rows, first, _canonical_chunk)


def declarations(rows: int) -> Path:
    """A file of declarations with distinct canonical texts, made if it is missing."""
    return _made(f"declarations-{rows}.txt", rows, 0, _declaration_chunk)


def real_names(texts: pa.StringArray, rows: int) -> Iterator[pa.StringArray]:
    """So many signatures with the names of real ones, a file's rows at a time: first as they are, then with other lists."""
    parts = pc.split_pattern(texts, "(", max_splits=1)
    names, lists = pc.list_element(parts, 0), pc.list_element(parts, 1)
    different, numbers = pc.unique(lists), np.arange(len(texts), dtype=np.int64)
    made = 0
    while made < rows:
        yield texts.slice(0, rows - made)
        made += len(texts)
        others = different.take(pa.array((numbers * 7919 + made) % len(different)))
        texts = pc.binary_join_element_wise(names, others, "(")


def _made(name: str, rows: int, first: int, chunk: Any) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / name
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        with temporary.open("wb") as out:
            for start in range(first, first + rows, _CHUNK):
                count = min(_CHUNK, first + rows - start)
                text = pc.binary_join_element_wise(chunk(start, count), "\n", "")
                out.write(
                    text.combine_chunks().buffers()[2] if isinstance(text, pa.ChunkedArray) else text.buffers()[2]
                )
        temporary.replace(path)
    return path


def _canonical_chunk(start: int, count: int) -> pa.StringArray:
    chance = np.random.default_rng(start)
    lists = _lists(chance, _TYPES, ["{}"])
    return pc.binary_join_element_wise(_names(chance, start, count), "(", _pick(chance, lists, count), ")", "")


def _declaration_chunk(start: int, count: int) -> pa.StringArray:
    chance = np.random.default_rng(start)
    named = [f"{{}} {word}" for word in _WORDS]
    functions = _pick(chance, _lists(chance, _WRITTEN_TYPES, named), count)
    plain = {kind: weight for kind, weight in _WRITTEN_TYPES.items() if "calldata" not in kind and "memory" not in kind}
    event_lists = _lists(chance, plain, ["{} indexed owner", "{} value", "{}"], most_indexed=3)
    events = _pick(chance, event_lists, count)
    bare = _pick(chance, _lists(chance, _WRITTEN_TYPES, ["{}"]), count)
    kinds = chance.choice(4, count, p=[0.6, 0.2, 0.05, 0.15])
    tails = np.where(kinds == 0, np.array(_TAILS, object)[chance.integers(0, len(_TAILS), count)], "")
    keywords = np.array(["function ", "event ", "error ", ""], object)[kinds]
    bodies = pc.choose(pa.array(kinds), functions, events, bare, bare)
    names = _names(chance, start, count)
    return pc.binary_join_element_wise(pa.array(keywords), names, "(", bodies, ")", pa.array(tails), "")


def _names(chance: np.random.Generator, start: int, count: int) -> pa.StringArray:
    words = [pa.array(np.array(pool, object)) for pool in (_VERBS, _NOUNS, _NOUNS)]
    parts = [pool.take(pa.array(chance.integers(0, len(pool), count))) for pool in words]
    numbers = pa.array(np.arange(start, start + count)).cast(pa.string())
    return pc.binary_join_element_wise(*parts, "_", numbers, "")


def _lists(
    chance: np.random.Generator, types: dict[str, int], patterns: list[str], most_indexed: int = 0
) -> pa.StringArray:
    """A pool of parameter lists. Most have one to three parameters, like real ones."""
    weights = np.array(list(types.values()), float)
    kinds = list(types)
    pool = []
    for length in chance.poisson(1.7, _POOL).tolist():
        chosen = chance.choice(len(kinds), length, p=weights / weights.sum())
        shapes = chance.integers(0, len(patterns), length)
        texts = [patterns[s].format(kinds[k]) for k, s in zip(chosen.tolist(), shapes.tolist(), strict=True)]
        indexed = 0
        for place, text in enumerate(texts):
            indexed += " indexed" in text
            if most_indexed and indexed > most_indexed:
                texts[place] = text.replace(" indexed", "")
        pool.append(", ".join(texts) if patterns != ["{}"] else ",".join(texts))
    return pa.array(pool)


def _pick(chance: np.random.Generator, pool: pa.StringArray, count: int) -> pa.StringArray:
    return pool.take(pa.array(chance.integers(0, len(pool), count)))
