"""Solve: names times parameter lists of a directory, tried against hashes that nobody knows (``signatures/solve.py``).

The likeliest come first: known names, then new names of their words. Where the code of a contract shows the arguments
of a function, only lists that fit them are tried for it; for other hashes the commonest lists. All hashes of a collection
are looked for in one pass. Work that takes long notes what is done in a file, from which the same command goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.arrow import values
from sigdir.signatures.bytecode import Fit, fit_of_heads, heads_of
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.decode_input import code_input
from sigdir.signatures.errors import counted
from sigdir.signatures.given_contract import code_of_input
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.keccak_rows import RATE
from sigdir.signatures.solve import CHANCE, Targets, Weighted, discounted, new_names, posteriors
from sigdir.warehouse.table.files import write_file
from sigdir.warehouse.table.parallel import ordered_map

TextsOf = Callable[[Collection], Iterable[pa.StringArray]]
Lists = dict[str, float]
"""Parameter lists and their probabilities, the likeliest first."""

MAX_HASHES = 10_000
_BATCH = 1 << 23
"""Candidates that are tried at once: a quarter of a second of one core."""
_SAVE_SECONDS = 5.0
_FITS = {Fit.SAME: 1.0, Fit.ALIKE: 0.7, Fit.LOOSE: 0.02}
"""How likely code shows arguments of each fit for the true list, beside the same ones."""
_SHARE_OF_SHAPE = 0.02
"""The probability of the list that the code shows, where no text has it."""
_LISTS_OF_SHAPE = 40
_LISTS_OF_NEW_NAMES = 12
_NEW_NAMES_OF_ONE = 500_000
_ORDER = (EVENT_SIGNATURES, SIGNATURES)
"""A topic's hit is proof, so it is looked for first, and with all known lists."""


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """What is looked for, and how far.

    ``hashes`` are selectors of 4 bytes and topics of 32, each with the arguments that a function's code shows, None if
    nothing shows them. ``names`` and ``lists`` are a user's own, which are thought likely. ``pairs`` is how many new
    names of known words are tried. After ``seconds`` the work ends where it is.
    """

    hashes: Mapping[bytes, str | None]
    names: Sequence[str] = ()
    lists: Sequence[str] = ()
    most_lists: int = 500
    pairs: int = 0
    seconds: float | None = None
    threads: int = 1
    state: Path | None = None


class Solution(NamedTuple):
    """A text that has the hash. ``posterior`` is the probability that it is the one that is meant; 1 for a topic."""

    hash: str
    text: str
    posterior: float

    @property
    def rounded(self) -> str:
        """The posterior to three digits, 1 only for a topic."""
        is_topic = len(self.hash) > 2 + 2 * SIGNATURES.hash_bytes
        return f"{self.posterior if is_topic else min(self.posterior, 0.999):.3g}"


class SolveReport(NamedTuple):
    """``solutions`` have the order of the hashes asked for, then of the posterior. ``false_hits`` are expected for each
    selector. ``ended`` says whether all was tried in the time there was.
    """

    solutions: list[Solution]
    tried: int
    false_hits: float
    seconds: float
    ended: bool

    @property
    def effort(self) -> str:
        """How much was tried, as the end of a sentence. Reading a large directory takes seconds on a busy machine."""
        if not self.tried and not self.ended:
            return f"none was tried: reading the known names took all of {self.seconds:,.1f} s"
        rest = "" if self.ended else ", not all there is to try"
        return f"{counted(self.tried, 'text')} tried in {self.seconds:,.1f} s{rest}"


def solve_hashes(texts: TextsOf, options: SolveOptions, progress: Reporter) -> SolveReport:
    """Look for texts, where ``texts`` gives what is known of a collection. Raises BadInput for a state of another search."""
    began = time.monotonic()
    deadline = began + options.seconds if options.seconds is not None else None
    progress.stage("reading names and lists", 0)
    searches = [search for collection in _ORDER for search in _searches(texts, collection, options)]
    notes = _Notes(options.state, searches)
    notes.load()
    try:
        ended = _run(searches, notes, options, deadline, progress)
    finally:
        notes.save()
    return SolveReport(
        [found for hash in options.hashes for found in _solutions(hash, searches)],
        sum(search.tried for search in searches),
        sum(search.tried for search in searches if search.collection == SIGNATURES) * CHANCE,
        time.monotonic() - began,
        ended,
    )


def solve_one(texts: TextsOf, hash: bytes, code: str, seconds: float) -> SolveReport:
    """Look for the texts of one hash by the hex digits of its contract's code, if there are any; raises BadInput of ``decode_input``."""
    shown = code_of_input(code_input(code)).arguments if code else {}
    options = SolveOptions({hash: shown.get(hash)}, pairs=_NEW_NAMES_OF_ONE, seconds=seconds)
    return solve_hashes(texts, options, Reporter())


def given_names(path: Path | None) -> list[str]:
    """The names of a user's file, one a line; raises BadInput."""
    return [text.removesuffix("()") for text in _texts(path, "{}()")]


def given_lists(path: Path | None) -> list[str]:
    """The parameter lists of a user's file, one a line, in canonical spelling; raises BadInput."""
    return [text.removeprefix("f") for text in _texts(path, "f {}")]


def _texts(path: Path | None, form: str) -> Iterator[str]:
    """The canonical text that each line of a file makes."""
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines() if path else (), 1):
        if line.strip():
            try:
                yield canonicalise_one(form.format(line.strip()), SIGNATURES.code).text
            except GrammarError as error:
                raise BadInput(str(path), str(error), f"line {number}") from None


class _Search:
    """Names times lists for some hashes; ``done`` is how many batches of names were tried.

    ``hits`` has each text that was found: its hash in hex, the text, and its probability.
    """

    def __init__(self, collection: Collection, names: Callable[[], Weighted], lists: Mapping[bytes, Lists]) -> None:
        """``lists`` has those that each hash may have. ``names`` makes the names, by weight, when they are wanted."""
        self.collection, self._make_names, self._of_hash = collection, names, lists
        distinct = {id(some): some for some in lists.values()}.values()
        self.lists = pa.array(sorted(dict.fromkeys(text for some in distinct for text in some), key=len), pa.string())
        self._targets = Targets(list(lists))
        self._rows = max(1, _BATCH // max(len(self.lists), 1))
        self.done = 0
        self.hits: list[tuple[str, str, float]] = []

    @cached_property
    def names(self) -> Weighted:
        return self._make_names()

    @property
    def batches(self) -> int:
        return -(-len(self.names.texts) // self._rows)

    @property
    def size(self) -> int:
        """Candidates in all."""
        return len(self.names.texts) * len(self.lists)

    @property
    def tried(self) -> int:
        return min(self.done * self._rows * len(self.lists), self.size) if self.done else 0

    def tried_weight(self, hash: bytes) -> float:
        """The sum of the probabilities of all texts that were tried for a hash."""
        lists = self._of_hash.get(hash, {})
        return float(self.names.weights[: self.done * self._rows].sum()) * sum(lists.values()) if self.done else 0.0

    @property
    def digest(self) -> bytes:
        """Of all that is tried, and for which hashes."""
        digest = sha256()
        for column in (self.names.texts, self.lists, pa.array(sorted(self._of_hash))):
            for buffer in column.buffers():
                digest.update(buffer or b"")
        return digest.digest()

    def run(self, batch: int) -> list[tuple[str, str, float]]:
        """The hits of a batch. A list that another hash may have is tried too, and is no hit."""
        names = self.names.take(np.arange(len(self.names.texts))[batch * self._rows : (batch + 1) * self._rows])
        return [
            (hash.hex(), f"{names.texts[name]}{self.lists[one]}", float(names.weights[name]) * weight)
            for hash, name, one in self._targets.search(names.texts, self.lists)
            if (weight := self._of_hash[hash].get(self.lists[one].as_py()))
        ]


def _searches(texts: TextsOf, collection: Collection, options: SolveOptions) -> list[_Search]:
    wanted = {hash: shown for hash, shown in options.hashes.items() if len(hash) == collection.hash_bytes}
    if not wanted:
        return []
    known_names, known_lists = _parts(texts(collection))
    names, all_lists = (
        known_names.mixed(options.names).by_weight(),
        known_lists.mixed(options.lists).by_weight().to_dict(),
    )
    common = _first(all_lists, options.most_lists)
    by_heads = _by_heads(all_lists) if any(wanted.values()) else {}
    lists = {shown: common if shown is None else _fitting(all_lists, by_heads, shown) for shown in set(wanted.values())}
    searches = [_Search(collection, lambda: names, {hash: lists[shown] for hash, shown in wanted.items()})]
    if collection == EVENT_SIGNATURES and len(common) < len(all_lists):
        rest = {text: weight for text, weight in all_lists.items() if text not in common}
        searches.append(_Search(collection, lambda: names, dict.fromkeys(wanted, rest)))
    if options.pairs:
        few = {shown: _first(some, _LISTS_OF_NEW_NAMES) for shown, some in lists.items()}
        new = partial(new_names, names, options.pairs)
        searches.append(_Search(collection, new, {hash: few[shown] for hash, shown in wanted.items()}))
    return searches


def _first(lists: Lists, most: int) -> Lists:
    return dict(islice(lists.items(), most))


def _parts(all_texts: Iterable[pa.StringArray]) -> tuple[Weighted, Weighted]:
    """The names and the parameter lists of texts."""
    texts = pa.chunked_array(list(all_texts), pa.string())
    pieces = pc.split_pattern(texts.filter(pc.less(pc.binary_length(texts), RATE)), "(", max_splits=1)
    return _counted(pc.list_element(pieces, 0), ""), _counted(pc.list_element(pieces, 1), "(")


def _counted(texts: pa.ChunkedArray, begin: str) -> Weighted:
    counted = texts.value_counts()
    return discounted(pc.binary_join_element_wise(begin, counted.field("values"), ""), values(counted.field("counts")))


def _by_heads(lists: Lists) -> dict[int, dict[str, list[str]]]:
    """What the arguments of all lists begin with, by its number."""
    found: dict[int, dict[str, list[str]]] = {}
    for text in lists:
        heads = heads_of(text)
        if heads is not None:
            found.setdefault(len(heads), {})[text] = heads
    return found


def _fitting(lists: Lists, by_heads: Mapping[int, Mapping[str, list[str]]], shown: str) -> Lists:
    """The lists that fit the arguments that a code shows, by how well they do; their probabilities sum up to 1."""
    own = f"({shown})"
    used = heads_of(own) or []
    fits = {text: fit_of_heads(heads, used) for text, heads in by_heads.get(len(used), {}).items()} | {own: Fit.SAME}
    found = {text: lists.get(text, 0.0) * _FITS.get(fit, 0.0) for text, fit in fits.items()}
    whole = sum(found.values()) / (1 - _SHARE_OF_SHAPE)
    best = sorted(filter(found.get, found), key=found.__getitem__, reverse=True)[:_LISTS_OF_SHAPE]
    return {own: _SHARE_OF_SHAPE} | {text: found[text] / whole for text in best}


def _run(
    searches: Sequence[_Search], notes: _Notes, options: SolveOptions, deadline: float | None, progress: Reporter
) -> bool:
    """Try everything, or as much as there is time for; gives whether all was tried."""
    saved = time.monotonic()
    with ThreadPoolExecutor(options.threads) as pool:
        for search in searches:
            if deadline is not None and time.monotonic() > deadline:
                return False  # making new names takes seconds
            progress.stage("trying texts", search.size - search.tried)
            for found in ordered_map(pool, search.run, range(search.done, search.batches), options.threads + 1):
                before, search.done = search.tried, search.done + 1
                search.hits += found
                progress.advance(search.tried - before)
                if (now := time.monotonic()) - saved > _SAVE_SECONDS:
                    notes.save()
                    saved = now
                if deadline is not None and now > deadline:
                    return False
    return True


class _Notes:
    """What is done of some searches, in a file if the user names one."""

    def __init__(self, path: Path | None, searches: Sequence[_Search]) -> None:
        self._path, self._searches = path, searches
        self._space = sha256(b"".join(search.digest for search in searches)).hexdigest() if path else ""

    def load(self) -> None:
        """Go on where the file ends; raises BadInput if it is of another search."""
        if self._path is None or not self._path.exists():
            return
        try:
            noted = json.loads(self._path.read_bytes())
            if noted["space"] != self._space:
                raise BadInput(str(self._path), "is of another search: of other hashes, names or lists")
            for search, (done, hits) in zip(self._searches, noted["searches"], strict=True):
                search.done, search.hits = int(done), [(hash, text, float(weight)) for hash, text, weight in hits]
        except (ValueError, KeyError, TypeError):
            raise BadInput(str(self._path), "is no file that --state has written") from None

    def save(self) -> None:
        if self._path is not None:
            done = [(search.done, search.hits) for search in self._searches]
            write_file(self._path, json.dumps({"space": self._space, "searches": done}).encode())


def _solutions(hash: bytes, searches: Sequence[_Search]) -> list[Solution]:
    """What was found for a hash, the likeliest first."""
    found = [(text, weight) for search in searches for one, text, weight in search.hits if one == hash.hex()]
    worth = [1.0] * len(found)
    if len(hash) == SIGNATURES.hash_bytes:
        worth = posteriors([weight for _, weight in found], sum(search.tried_weight(hash) for search in searches))
    solutions = [Solution(f"0x{hash.hex()}", text, value) for (text, _), value in zip(found, worth, strict=True)]
    return sorted(solutions, key=lambda one: -one.posterior)
