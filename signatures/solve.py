"""Find texts for hashes that nobody knows: names times parameter lists, and what a hit is worth.

Theory
    A text is a name and a list of types. Before any hash is seen, a text has the probability P(name) * P(list): how often
    texts that are known have the name, and the list. Where bytecode shows the arguments of the function, P(list) is that
    of the lists that fit them. A selector has 32 bits, so a wrong text has it with the probability 2**-32. With the true
    text somewhere among all texts, Bayes' rule gives for a text that was tried and has the selector

        posterior = P / (sum of P over all such texts + (1 - sum of P over all texts tried) * 2**-32)

    So many tries cost certainty: what they add to the sum of P is less and less, and each is one more chance of a false
    hit. A topic has 256 bits: a hit is proof.

    A name that no text has yet is not impossible. Of each count the discount of Kneser and Ney is taken away and kept
    for what was never seen: n1 / (n1 + 2 * n2), where n1 names occur once and n2 twice.

Invariants
    A candidate is tried once. A text of over 135 bytes, which needs a second permutation, is not tried.
    The kernel compares four bytes; a topic is compared as a whole afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.columns import as_readonly, bytes_of
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import RATE, RATE_WORDS, WIDTH, permute
from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

CHANCE = 2.0**-32
"""The probability that a wrong text has a selector."""
_NEVER_TRIED = 1e-3
"""The least probability of texts that are not tried: what is known never says that there are none, so no hit is certain."""

_BUCKETS = 1 << 16
_LAST = np.uint64(0x80 << 56)


@dataclass(frozen=True, slots=True)
class Weighted:
    """Texts and their probabilities, which sum up to 1 or less: the rest is for texts that are not among them."""

    texts: pa.StringArray
    weights: Array
    """float64."""

    def take(self, places: Array) -> Weighted:
        return Weighted(self.texts.take(pa.array(places)), self.weights[places])

    def by_weight(self) -> Weighted:
        return self.take(np.argsort(-self.weights, kind="stable"))

    def mixed(self, given: Sequence[str]) -> Weighted:
        """With texts that a user thinks likely: one of them is right with the probability one half."""
        if not given:
            return self
        added = pa.array(list(dict.fromkeys(given)))
        return merged([Weighted(self.texts, self.weights / 2), Weighted(added, np.full(len(added), 0.5 / len(added)))])


def merged(parts: Sequence[Weighted]) -> Weighted:
    """All texts of the parts, each once, with the sum of its probabilities."""
    texts = pa.concat_arrays([part.texts for part in parts])
    table = pa.table({"text": texts, "weight": np.concatenate([part.weights for part in parts])})
    sums = table.group_by("text", use_threads=False).aggregate([("weight", "sum")])
    return Weighted(sums["text"].combine_chunks(), sums["weight_sum"].to_numpy())


def discounted(texts: pa.StringArray, counts: Array) -> Weighted:
    """The probabilities of texts that were seen so often, with room for those that were not."""
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    discount = min(once / (once + 2 * twice), 0.95) if once else 0.0
    return Weighted(texts, (counts - discount) / max(counts.sum(), 1))


@kernel(nogil=True)
def _search(
    names: Array, name_bounds: Array, lists: Array, list_bounds: Array, starts: Array, targets: Array, hits: Array
) -> int:
    """Try each name with each list, which rise in length; write (name, list) of each hit, and give their number.

    ``targets`` are the first four bytes of hashes as little-endian uint32, ordered by their low halves, and ``starts``
    where each low half begins. Hits beyond the room in ``hits`` are counted only.
    """
    state = np.empty(25 * WIDTH, dtype=np.uint64)
    words = np.empty(WIDTH * RATE_WORDS, dtype=np.uint64)
    block = words.view(np.uint8)
    found = 0
    for name in range(len(name_bounds) - 1):
        begin, end = np.uint64(name_bounds[name]), np.uint64(name_bounds[name + 1])
        size = end - begin
        words[:] = 0
        for lane in range(WIDTH):
            for k in range(size):
                block[np.uint64(lane * RATE) + k] = names[begin + k]
        for group in range(0, len(list_bounds) - 1, WIDTH):
            lanes, used = 0, np.uint64(0)
            for lane in range(min(WIDTH, len(list_bounds) - 1 - group)):
                first, last = np.uint64(list_bounds[group + lane]), np.uint64(list_bounds[group + lane + 1])
                if size + last - first >= RATE:
                    break
                base = np.uint64(lane * RATE) + size
                for k in range(last - first):
                    block[base + k] = lists[first + k]
                # What the list before left is shorter, so this byte and those behind it are padding.
                block[base + last - first] = 0x01
                used = size + last - first
                lanes += 1
            if not lanes:
                break
            state[:] = 0
            for lane in range(WIDTH):
                state[(RATE_WORDS - 1) * WIDTH + lane] = _LAST
            for k in range(used // np.uint64(8) + np.uint64(1)):
                for lane in range(lanes):
                    state[k * np.uint64(WIDTH) + np.uint64(lane)] ^= words[np.uint64(lane * RATE_WORDS) + k]
            permute(state)
            for lane in range(lanes):
                hash = np.uint32(state[lane] & np.uint64(0xFFFFFFFF))
                low = hash & np.uint32(0xFFFF)
                for at in range(starts[low], starts[low + 1]):
                    if targets[at] == hash:
                        if found < len(hits):
                            hits[found, 0], hits[found, 1] = name, group + lane
                        found += 1
    return found


class Targets:
    """Hashes to look for: selectors of 4 bytes, topics of 32."""

    def __init__(self, hashes: Sequence[bytes]) -> None:
        self.hashes = frozenset(hashes)
        first = np.unique(np.array([int.from_bytes(hash[:4], "little") for hash in self.hashes], np.uint32))
        low = first & np.uint32(_BUCKETS - 1)
        order = np.argsort(low, kind="stable")
        self._first = as_readonly(first[order])
        self._starts = as_readonly(np.searchsorted(low[order], np.arange(_BUCKETS + 1)).astype(np.int64))

    def search(self, names: pa.StringArray, lists: pa.StringArray) -> list[tuple[bytes, int, int]]:
        """The hash, the name and the list of each text that has a hash. The lists rise in length."""
        name_bounds, name_bytes = bytes_of(names)
        list_bounds, list_bytes = bytes_of(lists)
        room = 1024
        while True:
            hits = np.empty((room, 2), np.int64)
            found = _search(
                as_readonly(name_bytes), as_readonly(name_bounds), as_readonly(list_bytes), as_readonly(list_bounds),
                self._starts, self._first, hits,
            )  # fmt: skip
            if found <= room:
                break
            room = found
        return [hit for name, one in hits[:found].tolist() for hit in self._proved(names, lists, name, one)]

    def _proved(
        self, names: pa.StringArray, lists: pa.StringArray, name: int, one: int
    ) -> list[tuple[bytes, int, int]]:
        digest = keccak256(f"{names[name]}{lists[one]}".encode())
        return [(hash, name, one) for hash in (digest[:4], digest) if hash in self.hashes]


def posteriors(hits: Sequence[float], tried: float) -> list[float]:
    """What each text with the selector is worth. ``hits`` are their probabilities, ``tried`` the sum over all tried."""
    whole = sum(hits) + max(1 - tried, _NEVER_TRIED) * CHANCE
    return [hit / whole for hit in hits]
