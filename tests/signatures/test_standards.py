"""The list of canonical texts: every entry has the right selector and names its source."""

from __future__ import annotations

from pathlib import Path

from Crypto.Hash import keccak

from sigdir.signatures.abi import with_standard
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import normalise
from sigdir.signatures.standards import NO_TEXT, canonical
from tests.conftest import ROOT

LINES = [
    line.split(maxsplit=2)
    for line in (ROOT / "sigdir" / "signatures" / "standards.txt").read_text().splitlines()
    if not line.startswith("#")
]


SELECTOR_CHARACTERS, TOPIC_CHARACTERS = 10, 66


def topic(text: str) -> str:
    return "0x" + keccak.new(digest_bits=256, data=text.encode()).hexdigest()


def selector(text: str) -> str:
    return topic(text)[:SELECTOR_CHARACTERS]


def test_each_text_has_its_hash() -> None:
    """The selector or topic of each entry is that of its text: a wrong one would hide the right text."""
    assert {len(written) for written, _, _ in LINES} == {SELECTOR_CHARACTERS, TOPIC_CHARACTERS}
    wrong = [
        (written, text) for written, text, _ in LINES if text != NO_TEXT and topic(text)[: len(written)] != written
    ]
    assert wrong == []


def test_each_text_is_canonical_and_each_entry_names_its_source() -> None:
    """Each text is canonical, because the table holds no other, and each entry names a source to check it by."""
    assert [
        text
        for hash, text, _ in LINES
        if text != NO_TEXT
        and normalise(text, declared_kind=FUNCTIONS if len(hash) == SELECTOR_CHARACTERS else EVENTS).text != text
    ] == []
    assert [line for line in LINES if len(line) != 3] == []


def test_each_hash_is_listed_once() -> None:
    """No selector has two entries: one of their texts would be hidden."""
    assert len({line[0] for line in LINES}) == len(LINES) == len(canonical())


def test_the_samples_are_listed() -> None:
    """Every function, error and event of the bundled standards is canonical."""
    missing = []
    for path in Path(ROOT / "samples").glob("erc-*.txt"):
        for line in path.read_text().splitlines():
            if line.startswith(("function", "error", "event")):
                text = normalise(line).text
                hash = topic(text) if line.startswith("event") else selector(text)
                if canonical().get(bytes.fromhex(hash[2:])) != text:
                    missing.append(text)
    assert missing == []


def test_a_standard_says_what_its_functions_return() -> None:
    """Beside what a directory knows, and once."""
    balance = bytes.fromhex("70a08231")
    [one] = with_standard(balance, [])
    assert (one.text, one.types) == ("balanceOf(address)", "(uint256)")
    assert with_standard(balance, [one]) == [one]
    assert with_standard(bytes(4), []) == []
