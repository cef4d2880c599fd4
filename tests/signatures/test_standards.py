"""The list of canonical texts: every entry has the right selector and names its source."""

from __future__ import annotations

from sigdir.signatures.abi import with_standard
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import Signature, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.standards import NO_TEXT, canonical
from tests.conftest import ROOT

LINES = [
    line.split(maxsplit=2)
    for line in (ROOT / "sigdir" / "signatures" / "standards.txt").read_text().splitlines()
    if not line.startswith("#")
]


def test_each_text_is_canonical_and_has_its_hash() -> None:
    """A wrong selector or topic would hide the right text. Each entry names a source to check it by."""
    assert {len(written) for written, _, _ in LINES} == {10, 66}
    for written, text, _ in LINES:
        if text != NO_TEXT:
            assert "0x" + keccak256(text.encode()).hex()[: len(written) - 2] == written
            assert normalise(text, FUNCTIONS if len(written) == 10 else EVENTS).text == text


def test_each_hash_is_listed_once() -> None:
    """No selector has two entries: one of their texts would be hidden."""
    assert len({line[0] for line in LINES}) == len(LINES) == len(canonical())


def test_the_samples_declare_each_text() -> None:
    """A directory of the samples knows every text that is canonical. Every function, error and event of them is."""
    lines = [line for path in (ROOT / "samples").glob("*.txt") for line in path.read_text().splitlines()]
    found = {normalise(line) for line in lines if line.startswith(("function", "error", "event"))}
    collections = {10: FUNCTIONS, 66: EVENTS}
    assert found == {Signature(text, collections[len(hash)]) for hash, text, _ in LINES if text != NO_TEXT}


def test_a_standard_says_what_its_functions_return() -> None:
    """Beside what a directory knows, and once."""
    balance = bytes.fromhex("70a08231")
    [one] = with_standard(balance, [])
    assert (one.text, one.types) == ("balanceOf(address)", "(uint256)")
    assert with_standard(balance, [one]) == [one]
    assert with_standard(bytes(4), []) == []
