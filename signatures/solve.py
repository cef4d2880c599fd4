"""Find texts for hashes that nobody knows: names times parameter lists, and what a hit is worth.

Theory
    A text is a name and a list of types. Before any hash is seen, a text has the probability P(name) * P(list): how often
    texts that are known have the name, and the list. Where bytecode shows the arguments of the function, P(list) is that
    of the lists that fit them. A selector has 32 bits, so a wrong text has it with the probability 2**-32. With the true
    text somewhere among all texts, Bayes' rule gives for a text that was tried and has the selector

        posterior = P / (sum of P over all such texts + (UNLISTED - sum of P over all texts tried) * 2**-32)

    UNLISTED would be 1 if texts that no list has were made as the known ones. They are not: see there.
    So many tries cost certainty: what they add to the sum of P is less and less, and each is one more chance of a false
    hit. A topic has 256 bits: a hit is proof.

    A name that no text has yet is not impossible. Of each count the discount of Kneser and Ney is taken away and kept
    for what was never seen: n1 / (n1 + 2 * n2), where n1 names occur once and n2 twice.

Invariants
    A candidate is tried once. A text of over 135 bytes, which needs a second permutation, is not tried.
    The kernel compares four bytes; a topic is compared as a whole afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import as_readonly, bytes_of
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import RATE, RATE_WORDS, WIDTH, permute
from sigdir.signatures.kernels import kernel

CHANCE = 2.0**-32
"""The probability that a wrong text has a selector."""
UNLISTED = 5.5
"""The sum of the probabilities of all texts, 1 for those made as the known ones are, and the rest for others.

Texts that are tried sum up to 0.64, and of what lists have so many are found once they are taken out. Of 128 functions of
Aave, Safe and OpenZeppelin that no list has 0.117 are found, and 0.64 / 0.117 is 5.5. With 1 in its place 91 % of the
answers above 0.9 are right among 806 later functions, with 5.5 they are 96 % (docs/solve.md).
"""

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

    def to_dict(self) -> dict[str, float]:
        return dict(zip(self.texts.to_pylist(), self.weights.tolist(), strict=True))

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

    def search(self, names: pa.StringArray, lists: pa.StringArray, room: int = 1024) -> list[tuple[bytes, int, int]]:
        """The hash, the name and the list of each text that has a hash. The lists rise in length."""
        name_bounds, name_bytes = bytes_of(names)
        list_bounds, list_bytes = bytes_of(lists)
        hits = np.empty((room, 2), np.int64)
        found = _search(
            as_readonly(name_bytes), as_readonly(name_bounds), as_readonly(list_bytes), as_readonly(list_bounds),
            self._starts, self._first, hits,
        )  # fmt: skip
        if found > room:
            return self.search(names, lists, found)
        return [
            (hash, name, one)
            for name, one in hits[:found].tolist()
            for hash in self._proved(f"{names[name]}{lists[one]}")
        ]

    def _proved(self, text: str) -> frozenset[bytes]:
        """The hashes that a text has as a whole."""
        digest = keccak256(text.encode())
        return self.hashes & {digest[:4], digest}


def posteriors(hits: Sequence[float], tried: float) -> list[float]:
    """What each text with the selector is worth. ``hits`` are their probabilities, ``tried`` the sum over all tried."""
    whole = sum(hits) + (UNLISTED - tried) * CHANCE
    return [hit / whole for hit in hits]


# Names that nobody has used yet: of words that stand together in names, and known names in another form.
#
# Theory
#     A name is a run of words: `transferFrom` is `transfer` and `From`. Of the words that follow each other in known names
#     the probability of a new name of two or three words is that of its first word, times that of each word after the one
#     before, times that of the end after the last. Pairs that occur once are left out: most are parts of one name.
#
#     The form of a name is its case (`maxTick`, `MAX_TICK`), a prefix (`getMaxTick`, `_maxTick`), a plural. A form is as likely
#     as it is among known names: the share of them that it turns into another known name. That is counted apart for names of
#     each number of words, and for names of one text and of several.


_BREAK = "\x00"
_BEGINS = r"([a-z0-9])([A-Z])"
_ENDS = r"([A-Z])([A-Z][a-z])"
_UNDERSCORES = r"(_+)([^_])"
_PREFIXES = ("get", "set", "is")
_PREFIX = f"^(?:{'|'.join(_PREFIXES)})([A-Z])"
_MANY_WORDS = 4
_KINDS = 2 * _MANY_WORDS + 2
"""Of names: by their number of words, and by whether one text has them or several."""


def new_names(known: Weighted, most: int) -> Weighted:
    """The ``most`` likeliest names of two or three words that are not known, with the probability that ``known`` leaves."""
    pairs = _Pairs(known.texts)
    parts = [_form(known, np.diff(pairs.lists.offsets.to_numpy()), made) for made in _made(pairs.lists)]
    of_forms = sum(float(part.weights.sum()) for part in parts)
    parts = [Weighted(part.texts, part.weights / max(of_forms, 1.0)) for part in parts]  # of few names they pass 1
    parts += pairs.names(most, max(1 - of_forms, 0.0))
    lowest = np.sort(np.concatenate([part.weights for part in parts]))[-2 * most :][0]  # half of them may be known
    found = merged([part.take(np.flatnonzero(part.weights >= lowest)) for part in parts])
    new = pc.invert(pc.is_in(found.texts, value_set=known.texts)).to_numpy(zero_copy_only=False)
    found = found.take(np.flatnonzero(new & (found.weights > 0))).by_weight()
    best = found.take(np.arange(min(most, len(found.texts))))
    return Weighted(best.texts, best.weights * max(1 - float(known.weights.sum()), 0.0))


def _form(known: Weighted, words: Array, made: pa.StringArray) -> Weighted:
    """The new names that a form makes of the known ones, whose numbers of words are given."""
    is_other = pc.and_(pc.not_equal(made, known.texts), pc.not_equal(made, "")).to_numpy(zero_copy_only=False)
    is_known = pc.is_in(made, value_set=known.texts).to_numpy(zero_copy_only=False)
    kinds = 2 * np.minimum(words, _MANY_WORDS) + (known.weights > known.weights.min())
    new = np.flatnonzero(is_other & ~is_known)
    found, missed = np.bincount(kinds[is_other & is_known], minlength=_KINDS), np.bincount(kinds[new], minlength=_KINDS)
    return Weighted(made.take(pa.array(new)), (found / np.maximum(missed, 1) / len(known.texts))[kinds[new]])


def _made(words: pa.ListArray) -> Iterator[pa.StringArray]:
    """Each form of all names, whose words are given."""
    bare = pc.ascii_trim(words.values, "_")
    snake = pc.ascii_trim(pc.binary_join(pa.ListArray.from_arrays(words.offsets, bare), "_"), "_")
    capitalised = pa.ListArray.from_arrays(words.offsets, pc.ascii_capitalize(bare))
    pascal = pc.binary_join(capitalised, "")
    camel = _uncapitalised(pascal)
    yield from (camel, pascal, pc.ascii_upper(snake), _joined("_", camel), _joined(camel, "s"))
    yield from (_joined(prefix, pascal) for prefix in _PREFIXES)
    yield _uncapitalised(pc.replace_substring_regex(camel, _PREFIX, r"\1"))
    yield pc.replace_substring_regex(camel, "s$", "")


def _joined(*parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _uncapitalised(texts: pa.StringArray) -> pa.StringArray:
    return _joined(pc.ascii_lower(pc.utf8_slice_codeunits(texts, 0, 1)), pc.utf8_slice_codeunits(texts, 1))


class _Pairs:
    """Which words begin names, follow each other, and end names, each with its probability."""

    def __init__(self, names: pa.StringArray) -> None:
        split = names
        for pattern in (_BEGINS, _ENDS, _UNDERSCORES):
            split = pc.replace_substring_regex(split, pattern, rf"\1{_BREAK}\2")
        self.lists: pa.ListArray = pc.split_pattern(split, _BREAK)
        encoded = self.lists.values.dictionary_encode()
        self.words: pa.StringArray = encoded.dictionary
        words, bounds = encoded.indices.to_numpy().astype(np.int64), self.lists.offsets.to_numpy()
        size = len(self.words)
        begins, last = np.zeros(len(words), np.bool_), np.zeros(len(words), np.bool_)
        begins[bounds[:-1]], last[bounds[1:] - 1] = True, True
        self._firsts = np.bincount(words[begins], minlength=size) / len(names)
        uses = np.bincount(words, minlength=size)
        self.ends = np.bincount(words[last], minlength=size) / uses
        inner = np.flatnonzero(~last)
        keys, counts = np.unique(words[inner] * size + words[inner + 1], return_counts=True)
        keys, counts = keys[counts > 1], counts[counts > 1]
        self._next = keys % size
        self._chance = counts / uses[keys // size]
        self._starts = np.searchsorted(keys // size, np.arange(size + 1))

    def names(self, most: int, share: float) -> Iterator[Weighted]:
        """The likeliest names of two words, and of three, with this share of their probabilities."""
        first = np.flatnonzero(self._firsts)
        parts, chance = [first], self._firsts[first]
        for _ in range(2):
            at, word, chance = self._followed(parts[-1], chance, most)
            parts = [*(part[at] for part in parts), word]
            weights = share * chance * self.ends[word]
            best = np.argsort(-weights, kind="stable")[: 2 * most]
            yield Weighted(_joined(*(self.words.take(pa.array(part[best])) for part in parts)), weights[best])

    def _followed(self, last: Array, chance: Array, most: int) -> tuple[Array, Array, Array]:
        """The last word of each name so far with each word that follows it: its place, the word, and the probability.

        Of more than four times ``most`` the unlikely ones are left out.
        """
        places = np.arange(len(last))
        counts = self._starts[last + 1] - self._starts[last]
        while counts.sum() > 16 * most:
            keep = chance >= np.median(chance[counts > 0])
            places, chance, counts = places[keep], chance[keep], counts[keep]
        at = np.repeat(np.arange(len(places)), counts)
        follows = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts) + self._starts[last[places]][at]
        likely = chance[at] * self._chance[follows]
        best = np.argpartition(-likely, 4 * most)[: 4 * most] if len(likely) > 4 * most else slice(None)
        return places[at[best]], self._next[follows[best]], likely[best]
