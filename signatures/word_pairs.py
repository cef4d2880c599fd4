"""Names that nobody has used yet, of words that stand together in names.

A name is a run of words: `transferFrom` is `transfer` and `From`. Of the words that follow each other in known names the
probability of a new name of two or three words is that of its first word, times that of each word after the one before,
times that of the end after the last. Pairs that occur once are left out: most are parts of one name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.solve import Weighted

Array = npt.NDArray[Any]

_BREAK = "\x00"
_BEGINS = r"([a-z0-9])([A-Z])"
_ENDS = r"([A-Z])([A-Z][a-z])"
_UNDERSCORES = r"(_+)([^_])"


def new_names(known: Weighted, most: int) -> Weighted:
    """The ``most`` likeliest names of two or three words that are not known, with the probability that ``known`` leaves."""
    pairs = _Pairs(known.texts)
    first, second, chance = pairs.joined(*pairs.beginnings(), most)
    two = _texts(pairs.words, (first, second)), chance * pairs.ends[second]
    at, third, chance = pairs.joined(np.arange(len(second)), second, chance, most)
    three = _texts(pairs.words, (first[at], second[at], third)), chance * pairs.ends[third]
    texts, weights = pa.concat_arrays([two[0], three[0]]), np.concatenate([two[1], three[1]])
    new = pc.invert(pc.is_in(texts, value_set=known.texts)).to_numpy(zero_copy_only=False)
    found = Weighted(texts, weights).take(np.flatnonzero(new & (weights > 0)))
    left = max(1 - float(known.weights.sum()), 0.0)
    best = found.by_weight().take(np.arange(min(most, len(found.texts))))
    return Weighted(best.texts, best.weights * left)


class _Pairs:
    """Which words begin names, follow each other, and end names, each with its probability."""

    def __init__(self, names: pa.StringArray) -> None:
        split = names
        for pattern in (_BEGINS, _ENDS, _UNDERSCORES):
            split = pc.replace_substring_regex(split, pattern, rf"\1{_BREAK}\2")
        lists = pc.split_pattern(split, _BREAK)
        encoded = lists.values.dictionary_encode()
        self.words: pa.StringArray = encoded.dictionary
        words, bounds = encoded.indices.to_numpy().astype(np.int64), lists.offsets.to_numpy()
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

    def beginnings(self) -> tuple[Array, Array, Array]:
        """Each first word as a name so far: its number, its last word, its probability."""
        words = np.flatnonzero(self._firsts)
        return words, words, self._firsts[words]

    def joined(self, names: Array, last: Array, chance: Array, most: int) -> tuple[Array, Array, Array]:
        """Each name so far with each word that follows its last one: the name, the word, and the probability.

        Of more than four times ``most`` the unlikely ones are left out.
        """
        counts = self._starts[last + 1] - self._starts[last]
        while counts.sum() > 16 * most:
            keep = chance >= np.median(chance[counts > 0])
            names, last, chance, counts = names[keep], last[keep], chance[keep], counts[keep]
        at = np.repeat(np.arange(len(last)), counts)
        follows = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts) + self._starts[last][at]
        likely = chance[at] * self._chance[follows]
        best = np.argpartition(-likely, 4 * most)[: 4 * most] if len(likely) > 4 * most else slice(None)
        return names[at[best]], self._next[follows[best]], likely[best]


def _texts(words: pa.StringArray, parts: tuple[Array, ...]) -> pa.StringArray:
    return pc.binary_join_element_wise(*(words.take(pa.array(part)) for part in parts), "")
