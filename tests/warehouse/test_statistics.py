"""The statistics of a version, compared with loops over its rows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.statistics import OTHER, SELECTORS, STYLES, CountsBy, Statistics, expected_shared, statistics
from sigdir.warehouse.table.paths import Paths
from tests.conftest import empty_warehouse
from tests.warehouse.support import Run, digest_of, fold, publish, stage

STYLE_OF = {
    "transfer": "lowercase", "a": "lowercase", "v2": "lowercase", "balanceOf": "camelCase", "Transfer": "Capitalised",
    "MAX_SUPPLY": "ALL_CAPS", "A": "ALL_CAPS", "V2": "ALL_CAPS", "_mint": "_leading", "_": "_leading", "x$": OTHER,
    "set_owner": "snake_case", "Set_Owner": "mixed_Case",
}  # fmt: skip
COUNTED_AS = {
    "address": "address", "uint256": "uint256", "bytes32[]": "bytes32[]", "uint8[2][]": "uint8[2][]", "(())": "tuple",
    "(bool,string)": "tuple", "((int8,(bytes)[2])[],address)[3]": "tuple[3]",
}  # fmt: skip
DEEP = f"deep({'(' * 15}bool{')' * 15},address)"
MADE = {
    DEEP: ("lowercase", ["tuple", "address"]), "posted(uint256)": ("lowercase", ["uint256"]),
    "Posted(address)": ("Capitalised", ["address"]),
}  # fmt: skip
"""Each text with its style and what its parameters are counted as."""


def random_texts(seed: int, rows: int) -> list[str]:
    """Distinct texts with all kinds of names and parameter lists."""
    rng, made = random.Random(seed), set()
    for _ in range(rows):
        name, types = rng.choice(list(STYLE_OF)), rng.choices(list(COUNTED_AS), k=rng.randrange(6))
        made.add(text := f"{name}({','.join(types)})")
        MADE[text] = STYLE_OF[name], [COUNTED_AS[type] for type in types]
    return sorted(made)


def crowded(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Digests with few different selectors, most of them with leading zeros."""
    joined = b""
    for digest in map(digest_of, text.to_pylist()):
        joined += (bytes(digest[1] % 5) + bytes([digest[0] % 16, 1, 2, 3, 4]))[:4] + digest[4:]
    return np.frombuffer(joined, np.uint8).reshape(-1, 32)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two imports with rejects and folded POSTed rows; names and selectors repeat."""
    paths = Paths(tmp_path_factory.mktemp("statistics") / "warehouse")
    with Run(paths, [random_texts(1, 300)], [random_texts(2, 90)], digest=crowded) as run:
        run.publish(rejects=["!", "?"])
    publish(paths, random_texts(3, 200), rejects=["nope"])
    stage(paths, SIGNATURES, "posted(uint256)", DEEP)
    stage(paths, EVENT_SIGNATURES, "Posted(address)")
    fold(paths)
    return sigdir.open(paths.root)


@pytest.fixture(scope="module")
def counted(warehouse: Warehouse) -> Statistics:
    return statistics(warehouse)


def rows_of(warehouse: Warehouse, collection: Collection) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = warehouse.sql(f"FROM {collection.view_name}").arrow().to_pylist()
    return rows


def splits(warehouse: Warehouse, values_of: Callable[[str], list[str]]) -> dict[str, tuple[int, int]]:
    """The number of times that ``values_of`` a text gives each value, in each collection."""
    of, events = (
        Counter(value for row in rows_of(warehouse, c) for value in values_of(row["text_signature"]))
        for c in COLLECTIONS
    )
    return {value: (of[value], events[value]) for value in {*of, *events}}


def to_dict(found: Sequence[CountsBy]) -> dict[str, tuple[int, int]]:
    assert len({split.what for split in found}) == len(found)
    return {split.what: (split.signatures, split.events) for split in found}


def test_parameters_and_names_are_counted(warehouse: Warehouse, counted: Statistics) -> None:
    """A tuple is one parameter however deep it nests, only top-level ones count. Each row has one of the styles."""
    types = to_dict(counted.types)
    assert types == splits(warehouse, lambda text: MADE[text][1])
    assert to_dict(counted.parameters) == splits(warehouse, lambda text: [str(len(MADE[text][1]))])
    assert counted.types[0].what == max(types, key=lambda what: sum(types[what]))
    expected = dict.fromkeys(STYLES, (0, 0)) | splits(warehouse, lambda text: [MADE[text][0]])
    assert list(to_dict(counted.styles).items()) == [(style, expected[style]) for style in STYLES]
    both = [row["text_signature"] for c in COLLECTIONS for row in rows_of(warehouse, c)]
    assert counted.names == len({text.partition("(")[0] for text in both})
    assert counted.parameter_lists == len({text[text.index("(") :] for text in both})


def test_rare_types_are_summed_and_a_very_deep_list_is_one_tuple(tmp_path: Path) -> None:
    """Types beyond the thirty most common are one entry; a list of more than twenty levels is a tuple, so none is slow."""
    paths = Paths(tmp_path / "warehouse")
    texts = [f"f{row}(uint256[{size}])" for size in range(1, 49) for row in range(1 + (size < 30))]
    publish(paths, [*texts, *(f"deep{row}({'(' * 9000}{')' * 9000},bool)" for row in range(2))])
    found = statistics(sigdir.open(paths.root))
    assert len(found.types) == 31
    assert found.types[-1] == CountsBy(OTHER, 19, 0)
    assert {split.signatures for split in found.types[:-1]} == {2}
    assert CountsBy("tuple", 2, 0) in found.types
    assert [split.what for split in found.parameters] == ["1"]


def test_selectors_are_counted(warehouse: Warehouse, counted: Statistics) -> None:
    """By their texts, two, three and so on, with the one that has most; and by the zero digits that they begin with."""
    texts = Counter(row["hash"] for row in rows_of(warehouse, SIGNATURES))
    shared = {of: count for of, count in Counter(texts.values()).items() if of > 1}
    assert {each.of: each.found for each in counted.shared if each.found} == shared
    assert counted.selectors == len(texts)
    assert texts[bytes.fromhex((counted.most_shared or "")[2:])] == max(texts.values()) > 3
    digits = [hash.hex() for hash in texts.elements()]
    zeros = [(of, sum(each.startswith("0" * of) for each in digits)) for of in range(1, 9)]
    assert [(each.of, each.found) for each in counted.zeros] == zeros
    assert [each.expected for each in counted.zeros] == [len(digits) / 16**of for of in range(1, 9)]
    assert counted.zeros[5].found > 0


def test_the_expected_number_is_binomial() -> None:
    """The expected number of selectors with this many texts equals the formula with exact fractions."""
    for texts in (1, 2, 1000, 1_083_492):
        for of in range(1, min(texts, 5) + 1):
            exact = float(math.comb(texts, of) / Fraction(SELECTORS) ** (of - 1)) * (1 - 1 / SELECTORS) ** (texts - of)
            assert expected_shared(texts, of) == pytest.approx(exact, rel=1e-9)
        assert expected_shared(texts, texts + 1) == 0


def test_growth_counts_the_visible_rows(warehouse: Warehouse, counted: Statistics) -> None:
    """Each point counts the rows up to its time; the rows of an import count from its commit."""
    committed = dict(warehouse.sql("SELECT import_id, committed_at FROM imports").rows())
    visible = [
        (committed.get(row["import_id"], row["created_at"]), collection)
        for collection in COLLECTIONS for row in rows_of(warehouse, collection)
    ]  # fmt: skip
    for held in counted.growth:
        by_then = Counter(collection for at, collection in visible if at <= held.at)
        assert (held.signatures, held.events) == (by_then[SIGNATURES], by_then[EVENT_SIGNATURES])
    assert counted.growth[-1].signatures + counted.growth[-1].events == counted.total == len(visible)
    assert [held.at for held in counted.growth] == sorted({held.at for held in counted.growth})


def test_imports_sources_and_reasons_are_those_of_the_history(warehouse: Warehouse, counted: Statistics) -> None:
    """The counts of each import and file, and of the reasons, are those of the log; a version has nothing later."""
    entries = [entry for entry in warehouse.history() if "import" in entry]
    assert [(each.import_id, each.imported, each.rejected) for each in counted.imports] == [
        (entry["import"], entry["totals"]["imported"], entry["totals"]["rejected"]) for entry in entries
    ]
    (source,) = counted.sources
    totals = {name: sum(entry["totals"][name] for entry in entries) for name in entries[0]["totals"]}
    assert (source.path, source.files) == ("in.txt", 1)
    assert {name: getattr(source, name) for name in totals} == totals
    assert (counted.reasons, counted.import_count) == ((("bad_name", 3),), 2)
    assert counted.committed_at == warehouse.history()[-1]["committed_at"]
    first = statistics(sigdir.open(warehouse.paths.root, 1))
    assert (first.version, first.import_count, first.reasons) == (1, 1, (("bad_name", 2),))
    assert first.total == sum(split.signatures + split.events for split in first.styles) == first.imports[0].imported


def test_an_empty_warehouse_has_zeros(tmp_path: Path) -> None:
    """Without rows the statistics are zeros and empty lists, not an error."""
    found = statistics(sigdir.open(empty_warehouse(tmp_path)))
    assert (found.version, found.total, found.growth, found.types, found.committed_at) == (-1, 0, (), (), None)
    assert found.rows == CountsBy("rows", 0, 0)
    assert [each.found for each in found.zeros] == [0] * 8
