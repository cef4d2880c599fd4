"""The order of the texts of one selector or topic, and its reasons.

Invariants
    The order is total and depends on the summaries alone: the standard's text, then texts that do not look mined,
    then by witness, contracts, sources, whether an import names it, uses and age. A text that looks mined is behind
    every other.
    Each reason is a fact of a summary, so a query can count it again.

Theory
    Whoever mines a text for a selector tries 2^32 names, so the name has a part that counts up or is drawn at random:
    a number, a tag of letters and digits, words of a dictionary. Honest names have such parts too, less than one in a
    hundred, and a collision proves nothing: of 1.08 M texts 34 selectors have several. So a text looks mined only
    if all of this holds: such a part, a name that no two imported texts have, and a rival with the same selector that is
    better known. POSTed texts do not count: who mined one can POST a second one. ``benchmarks/mined.py`` measures both
    errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from sigdir.signatures.errors import counted
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.standards import canonical, sources

WHOLE_NAME, PREFIX, INSIDE, OF_STANDARD = 2, 3, 4, 2
"""How a text matches a search, the best lowest: its name or all of it is what was searched, or it begins with that, or it has
it. The first two of a standard's text are better by OF_STANDARD than any other.
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """What all sources together say about one text. By default one list names it."""

    id: int
    text: str
    witness: Witness = Witness.LISTED
    """The best of its sightings."""
    kinds: tuple[Kind, ...] = ()
    """The known ones, rising."""
    sources: int = 1
    contracts: int = 0
    """Distinct contracts that sources name, or what one source counts without naming them, if that is more."""
    compiled: int = 0
    """Those of ``contracts`` whose bytecode holds the selector or the topic."""
    verified: bool = False
    first_seen: datetime | None = None
    declaration: str = ""
    """The commonest declaration; "" if no source has one."""
    uses: int = 0
    """Uses of its hash by contracts that have it and none of the hash's other texts."""
    is_posted: bool = False
    """Whether POSTs alone name it: anybody can POST a text that is mined."""

    @property
    def name(self) -> str:
        return self.text.partition("(")[0]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A text in its place, from 1.

    ``standard`` is the standard whose text it is, "" for none. ``mined`` says why it looks mined, "" if it does not.
    """

    summary: Summary
    position: int
    standard: str = ""
    mined: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """What the place rests on: short phrases, the weightiest first."""
        return (*noted_reasons(self.standard, self.mined), *plain_reasons(self.summary))


def ranked(hash: bytes, summaries: Iterable[Summary], is_shared: Callable[[str], bool]) -> list[Ranked]:
    """The texts of one hash, the best first. ``is_shared`` says whether several imported texts have a name."""
    texts = list(summaries)
    mined = {text.id: looks_mined(hash, text, texts, is_shared) for text in texts}
    texts.sort(key=lambda text: (bool(mined[text.id]), *_weight(hash, text)))
    return [
        Ranked(text, position, standard_of(hash, text.text), mined[text.id]) for position, text in enumerate(texts, 1)
    ]


def _weight(hash: bytes, text: Summary) -> tuple[int, ...]:
    """What orders texts that do not look mined: lower is better."""
    return (
        not is_standard(hash, text.text), -text.witness, -text.contracts, -text.sources, text.is_posted, -text.uses, text.id
    )  # fmt: skip


def is_standard(hash: bytes, text: str) -> bool:
    """Whether a standard gives this text to the hash."""
    return canonical().get(hash) == text


def standard_of(hash: bytes, text: str) -> str:
    """The standard that gives this text to the hash; "" for none."""
    return sources()[hash] if is_standard(hash, text) else ""


def noted_reasons(standard: str, mined: str) -> tuple[str, ...]:
    """The reasons that few texts have: the standard whose text it is, and why it looks mined; "" for neither."""
    return (*([f"text of {standard}"] if standard else ()), *([f"looks mined: {mined}"] if mined else ()))


def plain_reasons(text: Summary) -> tuple[str, ...]:
    """The reasons that any text has: its counts and its age."""
    declared = text.contracts - text.compiled
    found = (
        "described for clear signing" if text.witness is Witness.DESCRIBED else "",
        f"compiled in {counted(text.compiled, 'contract')}" if text.compiled else "",
        f"declared in {counted(declared, 'contract')}" if declared > 0 else "",
        "verified by a source that compiles contracts" if text.verified else "",
        f"named by {counted(text.sources, 'source')}" if text.witness else "a search found it; no source names it",
        f"first seen {text.first_seen:%Y-%m-%d}" if text.first_seen else "",
    )
    return tuple(filter(None, found))


# Texts that are mined to collide.

_NUMBER = re.compile(r"[0-9]{5,}")
_TAG = re.compile(r"_(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{6,}$")
_TWO_SIGNS = re.compile(r"[_$]{16,}")  # counts in binary
_LAST_WORD = re.compile(r"_([A-Za-z0-9]{5,})$")
_PIECE = re.compile(r"[0-9]+|[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WORDS = re.compile(r"[a-z]{3,}_[a-z]{3,}|[a-z0-9]+(?:_[a-z0-9]+){2,}")

# Words of which a name in snake case has at least one if it says what a function does.
_ORDINARY: Final = frozenset(
    """
    add addr address addresses admin amount approve balance balances burn buy calc calculate cancel change check claim
    contract count create decimals deposit eth execute fee fees get has init initialize is last list lp max min mint nft owner
    pay per percent percentage pool presale price rate read remove reward rewards sale sell send set stake supply swap test
    timestamp to token tokens total transfer uni update user users wallet whitelist withdraw
    """.split()  # noqa: SIM905 - a list would have a line for each word
)  # fmt: skip


@lru_cache(maxsize=1024)
def made_up_part(name: str) -> str:
    """The part of a name that is a number, a tag or words of a dictionary; "" for an ordinary name."""
    if found := _TAG.search(name) or _NUMBER.search(name) or _TWO_SIGNS.fullmatch(name):
        return found[0].lstrip("_")
    if (last := _LAST_WORD.search(name)) and len(last[1]) <= 2 * len(_PIECE.findall(last[1])):
        return last[1]
    words = name.split("_")
    return name if _WORDS.fullmatch(name) and _ORDINARY.isdisjoint(words) else ""


def looks_mined(hash: bytes, text: Summary, texts: Sequence[Summary], is_shared: Callable[[str], bool]) -> str:
    """Why a text looks as if it was mined to collide with another of ``texts``; "" if it does not.

    A better known rival is the standard's text or one with a better witness. Where all are only listed, it is a text
    with as many contracts and sources whose own name is ordinary, but not one that is POSTed alone beside an imported one.
    """
    part = made_up_part(text.name) if len(texts) > 1 and len(hash) == 4 else ""
    if not part or is_standard(hash, text.text):
        return ""
    rivals = [rival for rival in texts if rival.id != text.id and _is_better_known(hash, rival, text)]
    if not rivals or is_shared(text.name):
        return ""
    best = min(rivals, key=lambda rival: _weight(hash, rival))
    return (
        f"{part} in its name looks made up, no two imported texts have this name, and {best.text} has the same selector"
    )


def _is_better_known(hash: bytes, rival: Summary, text: Summary) -> bool:
    if is_standard(hash, rival.text) or rival.witness != text.witness:
        return is_standard(hash, rival.text) or rival.witness > text.witness
    is_as_common = rival.contracts >= text.contracts and rival.sources >= text.sources
    is_as_common &= text.is_posted or not rival.is_posted
    return text.witness == Witness.LISTED and is_as_common and not made_up_part(rival.name)
