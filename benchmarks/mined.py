"""Texts that are mined to collide: makes the test set of tests/signatures/mined.txt, and measures who is called mined.

    python -m benchmarks.mined mine FILE [A_STYLE]     some minutes: A_STYLE texts of each style, each with the
                                                       selector of a text in standards.txt
    python -m benchmarks.mined measure [TEXTS]         false alarms on honest texts (one a line), misses on the test set

Theory. A text of four pieces is found for one of n selectors after 2^32 / n texts. The styles are those of mined texts
in the wild: words, a tag of hex digits, a number, random letters, words in camel case. The words are our own.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.evidence import Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import digests_of
from sigdir.signatures.kernels import kernel
from sigdir.signatures.rank import Summary, ranked
from sigdir.signatures.standards import NO_TEXT, canonical

Array = npt.NDArray[Any]

TEST_SET = Path(__file__).parents[1] / "tests" / "signatures" / "mined.txt"

_WORDS = """
    amber anchor apple arrow autumn badger bamboo barrel basket beacon blossom border bottle bridge bronze bucket butter
    candle canvas carbon castle cedar cherry circle cobalt copper coral cotton cradle crystal dagger daisy desert dolphin
    dragon eagle echo ember engine fabric falcon feather fiddle forest fossil frozen garden ginger glacier granite gravel
    hammer harbor hazel hollow honey hunter island ivory jacket jasmine jungle kernel kettle kitten ladder lagoon lantern
    lemon linen lizard magnet maple marble meadow mellow meteor mirror monkey mosaic muffin needle nickel noble nutmeg
    oasis olive onion orange orchid oyster paddle panther paper pebble pepper pigeon pillow planet pocket purple puzzle
    quartz rabbit ribbon river rocket saddle sailor salmon shadow silent silver spider spring summer sunset tavern temple
    thunder timber tomato tunnel turtle velvet violet walnut whisper willow window winter wizard yellow zephyr
""".split()  # noqa: SIM905 - a list would have a line for each word
_ONE_TYPE = (
    "address",
    "bool",
    "bytes",
    "bytes1",
    "bytes4",
    "bytes16",
    "int128",
    "string",
    "uint16",
    "uint64",
    "uint128",
)
_TYPES = [f"({','.join(types)})" for count in (1, 2, 3) for types in product(_ONE_TYPE, repeat=count)]
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def _strings(alphabet: str, length: int) -> list[str]:
    return ["".join(letters) for letters in product(alphabet, repeat=length)]


def styles() -> dict[str, list[list[str]]]:
    """The pieces of the texts of each style: a text is one of each list, in order."""
    starts = [f"{word}_" for word in _WORDS]
    capitals = [word.capitalize() for word in _WORDS]
    hexes = _strings("0123456789abcdef", 3)
    return {
        "words": [starts, starts, _WORDS, _TYPES],
        "tag": [[f"join_{word}_" for word in _WORDS], [f"{tag}7" for tag in hexes], hexes, _TYPES],
        "number": [
            ["func_", "var_", "fn", "get_"],
            [str(n) for n in range(10, 99_999)],
            _strings("0123456789", 4),
            _TYPES,
        ],
        "letters": [starts, _strings(_LETTERS, 2), _strings(_LETTERS, 3), _TYPES],
        "camel": [_WORDS, capitals, capitals, _TYPES],
    }


_CHUNK = 1 << 16
_FILTER_BITS = 20


def mine(pieces: list[list[str]], selectors: list[bytes], count: int, seed: int) -> list[str]:
    """So many texts of these pieces with one of the selectors, or all that there are."""
    flat = [piece.encode() for part in pieces for piece in part]
    data, bounds = np.frombuffer(b"".join(flat), np.uint8), np.cumsum([0, *map(len, flat)])
    sizes = np.array([len(part) for part in pieces], np.int64)
    wanted = np.sort(np.array([int.from_bytes(selector, "little") for selector in selectors], np.uint32))
    passes = np.zeros(1 << _FILTER_BITS, np.bool_)
    passes[wanted & ((1 << _FILTER_BITS) - 1)] = True
    every = int(np.prod(sizes))
    found: list[str] = []
    first = int(np.random.default_rng(seed).integers(every))
    for number in range(first, first + every, 64 * _CHUNK):
        if len(found) >= count:
            break
        for hit in _search(data, bounds, sizes, number % every, wanted, passes).tolist():
            places, rest = [], hit
            for size in sizes.tolist():
                places.append(rest % size)
                rest //= size
            found.append("".join(part[place] for part, place in zip(pieces, places, strict=True)))
    return found[:count]


@kernel(nogil=True)
def _search(data: Array, bounds: Array, sizes: Array, start: int, wanted: Array, passes: Array) -> Array:
    """The numbers of the texts from ``start`` on, 64 chunks of them, whose selector is wanted."""
    every = sizes.prod()
    text, offsets = np.empty(_CHUNK * 80, np.uint8), np.zeros(_CHUNK + 1, np.int64)
    digests = np.empty((_CHUNK, 4), np.uint64)
    hits = np.empty(4096, np.int64)
    count = 0
    for chunk in range(64):
        at = 0
        for n in range(_CHUNK):
            rest = (start + chunk * _CHUNK + n) % every
            first = 0
            for part in range(len(sizes)):
                piece = first + rest % sizes[part]
                rest //= sizes[part]
                first += sizes[part]
                for k in range(bounds[piece], bounds[piece + 1]):
                    text[at] = data[k]
                    at += 1
            offsets[n + 1] = at
        digests_of(text, offsets, digests)
        for n in range(_CHUNK):
            selector = np.uint32(digests[n, 0] & np.uint64(0xFFFF_FFFF))
            if passes[selector & np.uint32((1 << _FILTER_BITS) - 1)]:
                place = np.searchsorted(wanted, selector)
                if place < len(wanted) and wanted[place] == selector:
                    hits[count] = (start + chunk * _CHUNK + n) % every
                    count += 1
    return hits[:count]


def _mine_all(file: Path, count: int) -> None:
    selectors = [hash for hash, text in canonical().items() if len(hash) == 4 and text != NO_TEXT]
    with file.open("w") as out:
        out.write(
            "# Mined by `python -m benchmarks.mined mine`: style, text. Each has the selector of a text in standards.txt.\n"
        )
        for seed, (style, pieces) in enumerate(styles().items()):
            for text in mine(pieces, selectors, count, seed):
                out.write(f"{style} {text}\n")
            out.flush()


def mined_texts() -> list[tuple[str, str]]:
    """The mined texts, each with its style."""
    lines = TEST_SET.read_text().splitlines()
    return [(style, text) for style, text in (line.split() for line in lines if not line.startswith("#"))]


def misses() -> Counter[str]:
    """By style, the mined texts that are first although they and the standard's text are listed once.

    The worst case: the mined text is the older one, and nobody knows that the other one is a standard's.
    """
    found: Counter[str] = Counter()
    for style, text in mined_texts():
        hash = keccak256(text.encode())[:4]
        unknown = bytes(4)  # no standard has a text for it
        texts = [Summary(1, text), Summary(2, canonical()[hash])]
        found[style] += ranked(unknown, texts, lambda _: False)[0].summary.text == text
    return found


def false_alarms(texts: list[str], count: int, seed: int = 0) -> int:
    """How many of so many honest texts are called mined if each has an invented rival with a better witness."""
    names = Counter(text.partition("(")[0] for text in texts)
    found = 0
    for text in random.Random(seed).sample(texts, count):
        rivals = [Summary(1, text), Summary(2, "rival()", Witness.COMPILED, contracts=1, compiled=1)]
        found += bool(ranked(bytes(4), rivals, lambda name: names[name] > 1)[-1].mined)
    return found


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["mine"]:
        _mine_all(Path(arguments[1]), int(arguments[2]) if len(arguments) > 2 else 60)
        return
    total = Counter(style for style, _ in mined_texts())
    for style, missed in misses().items():
        print(f"{style}: {total[style] - missed} of {total[style]} behind a text that is listed too")
    if arguments[1:]:
        texts = Path(arguments[1]).read_text().splitlines()
        count = min(100_000, len(texts))
        print(f"{false_alarms(texts, count)} of {count} honest texts are called mined")


if __name__ == "__main__":
    main(sys.argv[1:])
