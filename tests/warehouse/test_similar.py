"""Names with a typing error: the compiled distance beside a plain one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index.similar import similar_texts
from tests.serve.support import Row, segment_of

letters = st.text("abAB1", min_size=1, max_size=9)


def distance(one: str, other: str) -> int:
    """Optimal string alignment without regard to case, as the textbook has it."""
    one, other = one.lower(), other.lower()
    table = [[max(i, j) if not (i and j) else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            best = min(table[i - 1][j - 1] + (one[i - 1] != other[j - 1]), table[i - 1][j] + 1, table[i][j - 1] + 1)
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                best = min(best, table[i - 2][j - 2] + 1)
            table[i][j] = best
    return table[-1][-1]


def similar(texts: list[str], typed: str, parts: int = 1, limit: int = 100) -> list[str]:
    rows = [Row(n, n, text, keccak256(text.encode())[:4]) for n, text in enumerate(texts, 1)]
    step = -(-len(rows) // parts)
    return similar_texts([segment_of(rows[at : at + step]) for at in range(0, len(rows), step)], typed, limit)


@given(names=st.lists(letters, min_size=1, max_size=30, unique=True), typed=st.text("abAB1", min_size=4, max_size=9))
def test_the_names_are_those_of_the_fewest_errors(names: list[str], typed: str) -> None:
    """All names of one error; without one those of two, for names of six letters or more."""
    near = {name: distance(typed, name) for name in names}
    expected = {name for name, errors in near.items() if errors <= 1}
    if not expected and len(typed) >= 6:
        expected = {name for name, errors in near.items() if errors == 2}
    found = similar([f"{name}((bool),uint8)" for name in names], typed, parts=2)
    assert sorted(name.lower() for name in found) == sorted({name.lower() for name in expected})
    assert [near[name] for name in found] == sorted(near[name] for name in found)


KEPT = {"mnit": "mint", "mnit(uint8": "mint(uint8", "mnit(bool)": "mint"}


def test_parameters_are_kept_where_a_row_has_them() -> None:
    """Nothing is like a short or a long name, or one with other letters."""
    texts = ["mint(uint8)", "mint((uint8,bool))", "i((uint8))"]
    assert {typed: similar(texts, typed) for typed in KEPT} == {typed: [found] for typed, found in KEPT.items()}
    assert not any(similar(texts, typed) for typed in ("min", "m" * 65, "m\u00efnt", "int((uint8", ""))


def test_the_more_common_name_comes_first() -> None:
    """Of names with as many errors; the number of names is limited. Those that differ in case alone are one."""
    texts = ["ab1de()", "abide(bool)", "abide(uint8)", "abides()"]
    assert similar(texts, "abxde") == ["abide", "ab1de"]
    assert similar(texts, "abxde", limit=1) == ["abide"]
    for typed, found in {"transfre": "transfer", "Transfre": "Transfer", "tRANSFRE": "transfer"}.items():
        assert similar(["transfer()", "Transfer(bool)", "Transfer(uint8)"], typed) == [found]
