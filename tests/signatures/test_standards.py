"""The list of canonical texts: every entry has the right selector and names its source."""

from __future__ import annotations

from sigdir.signatures.abi import with_standard
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import normalise
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


def test_the_samples_are_listed() -> None:
    """Every function, error and event of the bundled standards is canonical."""
    lines = [line for path in (ROOT / "samples").glob("erc-*.txt") for line in path.read_text().splitlines()]
    declared = [line for line in lines if line.startswith(("function", "error", "event"))]
    assert len(declared) > 50
    for line in declared:
        text = normalise(line).text
        digest = keccak256(text.encode())
        assert canonical()[digest if line.startswith("event") else digest[:4]] == text


def test_a_standard_says_what_its_functions_return() -> None:
    """Beside what a directory knows, and once."""
    balance = bytes.fromhex("70a08231")
    [one] = with_standard(balance, [])
    assert (one.text, one.types) == ("balanceOf(address)", "(uint256)")
    assert with_standard(balance, [one]) == [one]
    assert with_standard(bytes(4), []) == []
