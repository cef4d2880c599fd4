"""Names that nobody has used yet: of words that stand together in names, and known names in another form.

Theory
    A name is a run of words: `transferFrom` is `transfer` and `From`. Of the words that follow each other in known names
    the probability of a new name of two or three words is that of its first word, times that of each word after the one
    before, times that of the end after the last. Pairs that occur once are left out: most are parts of one name.

    The form of a name is its case (`maxTick`, `MAX_TICK`), a prefix (`getMaxTick`, `_maxTick`), a plural. A form is as likely
    as it is among known names: the share of them that it turns into another known name. That is counted apart for names of
    each number of words, and for names of one text and of several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.solve import Weighted, merged

Array = npt.NDArray[Any]

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
        first, second, chance = self.joined(*self._beginnings(), most)
        at, third, further = self.joined(np.arange(len(second)), second, chance, most)
        yield self._texts((first, second), share * chance * self.ends[second], most)
        yield self._texts((first[at], second[at], third), share * further * self.ends[third], most)

    def _texts(self, parts: tuple[Array, ...], weights: Array, most: int) -> Weighted:
        best = np.argsort(-weights, kind="stable")[: 2 * most]
        return Weighted(_joined(*(self.words.take(pa.array(part[best])) for part in parts)), weights[best])

    def _beginnings(self) -> tuple[Array, Array, Array]:
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
