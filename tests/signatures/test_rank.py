"""The order of the texts of one selector, its reasons, and texts that look mined."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from benchmarks.mined import false_alarms, mined_texts, misses
from sigdir.signatures import rank
from sigdir.signatures.evidence import Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.rank import Summary, ranked
from sigdir.signatures.standards import NO_TEXT, canonical

TRANSFER = bytes.fromhex("a9059cbb")
OTHER = bytes.fromhex("12345678")

# From the best to the worst: each is worse than the one above in the first thing that differs.
BEST_FIRST = [
    Summary(9, "transfer(address,uint256)"),
    Summary(8, "compiled()", Witness.COMPILED, contracts=1, compiled=1),
    Summary(7, "declaredTwice()", Witness.DECLARED, contracts=2),
    Summary(6, "declaredAndListed()", Witness.DECLARED, contracts=1, sources=3),
    Summary(5, "declared()", Witness.DECLARED, contracts=1),
    Summary(3, "listedEarly()"),
    Summary(4, "listedLate()"),
    Summary(2, "posted()", is_posted=True),
    Summary(1, "many_msg_babbage(bytes1)", Witness.COMPILED, contracts=90, sources=90),
]


def never(_: str) -> bool:
    return False


def test_order() -> None:
    """The standard's text, then witness, contracts, sources, age; what looks mined is last, whatever else it has."""
    for seed in range(20):
        texts = random.Random(seed).sample(BEST_FIRST, len(BEST_FIRST))
        found = ranked(TRANSFER, texts, never)
        assert [text.summary for text in found] == BEST_FIRST
        assert [text.position for text in found] == list(range(1, len(BEST_FIRST) + 1))


def test_reasons() -> None:
    day = datetime(2024, 5, 1, 23, 59, tzinfo=UTC)
    text = "transfer(address,uint256)"
    known = Summary(1, text, Witness.COMPILED, sources=3, contracts=13, compiled=12, first_seen=day)
    mined = Summary(2, "many_msg_babbage(bytes1)", Witness.DECLARED, contracts=2, verified=True)
    first, last = ranked(TRANSFER, [mined, known], never)
    assert first.reasons == (
        "text of ERC-20", "compiled in 12 contracts", "declared in 1 contract", "named by 3 sources", "first seen 2024-05-01",
    )  # fmt: skip
    assert first.mined == ""
    assert last.reasons == (
        f"looks mined: {last.mined}", "declared in 2 contracts", "verified by a source that compiles contracts",
        "named by 1 source",
    )  # fmt: skip
    said = f"many_msg_babbage in its name looks made up, no two imported texts have this name, and {text} has the same selector"
    assert last.mined == said


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("join_tg_invmru_haha_fd06787", "fd06787"),
        ("many_msg_babbage", "many_msg_babbage"),
        ("func_2093253501", "2093253501"),
        ("wipeBlockchain_EkJWPe", "EkJWPe"),
        ("execute_44g58pv", "44g58pv"),
        ("__$_$__$$$$$__$$_$$$_$$__$$___$$", "$_$__$$$$$__$$_$$$_$$__$$___$$"),
        ("balanceOf", ""),
        ("_TaxFee", ""),
        ("MAX_SUPPLY", ""),
        ("onERC1155Received", ""),
        ("", ""),
    ],
)
def test_made_up_part(name: str, part: str) -> None:
    """Numbers, tags and words of a dictionary are told from ordinary names."""
    assert rank.made_up_part(name) == part


MINED, DECLARED = Summary(1, "func_2093253501(bytes)"), Summary(2, "f()", Witness.DECLARED)
TWICE, COMPILED = replace(MINED, sources=2), replace(MINED, witness=Witness.COMPILED)
POSTED = Summary(2, "f()", is_posted=True)


@pytest.mark.parametrize(
    ("text", "rival", "hash", "shared", "is_mined"),
    [
        # by its name, if nothing shares the name, and only beside a better known text
        (MINED, DECLARED, OTHER, False, True),
        (MINED, DECLARED, OTHER, True, False),
        (Summary(1, "func(bytes)"), DECLARED, OTHER, False, False),
        (MINED, None, OTHER, False, False),
        # of two listed texts the better known one has as many sources and an ordinary name
        (TWICE, Summary(2, "f()", sources=2), OTHER, False, True),
        (TWICE, Summary(2, "f()", sources=1), OTHER, False, False),
        (TWICE, Summary(2, "g_2093253502()", sources=2), OTHER, False, False),
        # and an import names it too, or none names either
        (MINED, POSTED, OTHER, False, False),
        (replace(MINED, is_posted=True), POSTED, OTHER, False, True),
        (COMPILED, Summary(2, "f()", Witness.COMPILED), OTHER, False, False),
        (COMPILED, Summary(2, "transfer(address,uint256)"), TRANSFER, False, True),
        # nobody finds two texts of one topic
        (MINED, Summary(2, "g()", Witness.COMPILED), keccak256(MINED.text.encode()), False, False),
    ],
)
def test_what_looks_mined(text: Summary, rival: Summary | None, hash: bytes, shared: bool, is_mined: bool) -> None:
    """A name that looks made up and that no two imported texts have, beside a better known text of the same selector."""
    found = ranked(hash, [text] if rival is None else [text, rival], lambda _: shared)
    assert [bool(one.mined) for one in found if one.summary == text] == [is_mined]


def test_every_mined_text_is_behind_a_better_witness() -> None:
    """Each text of the mined set is the last beside the standard's text, and beside any text that is compiled."""
    mined = mined_texts()
    assert len(mined) >= 200
    for _, text in mined:
        hash = keccak256(text.encode())[:4]
        standard = canonical()[hash]
        assert standard not in (text, NO_TEXT)
        assert ranked(hash, [Summary(1, text), Summary(2, standard)], never)[-1].summary.text == text
        rival = Summary(2, standard, Witness.COMPILED)
        assert ranked(OTHER, [Summary(1, text, sources=9), rival], never)[-1].summary.text == text


def test_mined_texts_that_are_only_listed() -> None:
    """Where both texts are only listed, words, tags and numbers are recognised, and most random letters."""
    missed = {style: count for style, count in misses().items() if count}
    assert set(missed) <= {"camel", "letters"}
    assert missed.get("letters", 0) <= 15


def test_honest_names_are_not_mined() -> None:
    """The texts of the standards, each beside an invented better rival, do not look mined."""
    texts = [text for text in canonical().values() if text != NO_TEXT]
    assert false_alarms(texts, len(texts)) <= len(texts) // 100
