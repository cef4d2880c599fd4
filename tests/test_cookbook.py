"""docs/cookbook.md: each query runs as printed and gives what Python computes from the same rows.

The rows are those of the bundled sample, and of the real corpora if they are present.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import sigdir
from benchmarks.cookbook import PAGE, THEIRS, Question, questions
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse import Warehouse
from tests.conftest import ROOT, import_files

CORPORA = ROOT.parent / "shared" / "corpora"
QUESTIONS = questions()
Answer = list[tuple[Any, ...]]


@dataclass
class Rows:
    """The rows of a warehouse as Python values."""

    warehouse: Warehouse

    @cached_property
    def texts(self) -> list[str]:
        """The texts of the signatures, oldest first."""
        return [text for (text,) in self.warehouse.sql("SELECT text_signature FROM signatures ORDER BY id").rows()]

    @cached_property
    def events(self) -> list[str]:
        return [
            text for (text,) in self.warehouse.sql("SELECT text_signature FROM event_signatures ORDER BY id").rows()
        ]

    @cached_property
    def selectors(self) -> dict[str, list[str]]:
        """The texts of each selector, oldest first."""
        found = defaultdict(list)
        for selector, text in self.warehouse.sql("SELECT hash, text_signature FROM signatures ORDER BY id").rows():
            found["0x" + selector.hex()].append(text)
        return found

    @cached_property
    def sightings(self) -> list[dict[str, Any]]:
        """What each source says of each text."""
        said: list[dict[str, Any]] = self.warehouse.sql("FROM sightings").arrow().to_pylist()
        return said

    @cached_property
    def names(self) -> Counter[str]:
        return Counter(text.partition("(")[0] for text in [*self.texts, *self.events])


@pytest.fixture(scope="module", params=["samples", pytest.param("corpora", marks=pytest.mark.long)])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A warehouse of the sample, or of the real corpora."""
    source = ROOT / "samples" if request.param == "samples" else CORPORA
    if not source.is_dir():
        pytest.skip(f"no real data: {source} is missing")
    folder = tmp_path_factory.mktemp("cookbook")
    import_files([source], folder / "warehouse")
    theirs = folder / "theirs.txt"
    theirs.write_text("\n".join(THEIRS))
    return Rows(sigdir.open(folder / "warehouse", files={"theirs": theirs}))


def selector(text: str) -> str:
    return "0x" + keccak256(text.encode())[:4].hex()


def cut(text: str) -> list[str]:
    """The top-level types of a text. A comma separates them where every parenthesis is closed."""
    found: list[str] = []
    for piece in text[text.index("(") + 1 : -1].split(","):
        if found and found[-1].count("(") > found[-1].count(")"):
            found[-1] += "," + piece
        else:
            found.append(piece)
    return [] if found == [""] else found


def top(counted: Counter[str], limit: int) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:limit]


def distance(a: str, b: str) -> int:
    """The Damerau-Levenshtein distance."""
    table = {(i, j): i + j for i in range(len(a) + 1) for j in range(len(b) + 1) if not i or not j}
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            steps = [table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (a[i - 1] != b[j - 1])]
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                steps.append(table[i - 2, j - 2] + 1)
            table[i, j] = min(steps)
    return table[len(a), len(b)]


def same_selector(rows: Rows, answer: Answer) -> None:
    assert [text for _, text, _ in answer] == rows.selectors["0xa9059cbb"]
    assert "transfer(address,uint256)" in [text for _, text, _ in answer]


def ranked(rows: Rows, texts: list[str]) -> list[str]:
    """The texts of one selector, the best known first."""
    query = "SELECT text_signature FROM ranked WHERE list_contains(?, text_signature) AND collection = 'signatures'"
    return [text for (text,) in rows.warehouse.sql(f"{query} ORDER BY position", [texts]).rows()]


def most_texts(rows: Rows, answer: Answer) -> None:
    several = [(name, len(texts), ranked(rows, texts)[:3]) for name, texts in rows.selectors.items() if len(texts) > 1]
    assert answer == sorted(several, key=lambda row: (-row[1], row[0]))[:10]


def by_chance(rows: Rows, answer: Answer) -> None:
    [(found, expected)] = answer
    assert found == sum(len(texts) * (len(texts) - 1) // 2 for texts in rows.selectors.values())
    assert expected == pytest.approx(len(rows.texts) * (len(rows.texts) - 1) / 2 / 2**32)


def look_alikes(rows: Rows, answer: Answer) -> None:
    known = "transferFrom"
    near = [name for name in rows.names if abs(len(name) - len(known)) <= 2 and set(name) & set(known)]
    near = [name for name in near if len(set(name) ^ set(known)) <= 4]  # two edits change four letters at most
    alike = Counter({name: rows.names[name] for name in near if name != known and distance(name, known) <= 2})
    assert answer == top(alike, 20)


def case_only(rows: Rows, answer: Answer) -> None:
    spellings = defaultdict(list)
    for name in rows.names:
        spellings[name.lower()].append(name)
    several = [(sorted(names), sum(rows.names[n] for n in names)) for names in spellings.values() if len(names) > 1]
    assert answer == sorted(several, key=lambda row: (-row[1], row[0]))[:10]


def lists(rows: Rows, answer: Answer) -> None:
    assert answer == top(Counter(text[text.index("(") :] for text in rows.texts), 15)


def types(rows: Rows, answer: Answer) -> None:
    uses: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for text in rows.texts:
        found = cut(text)
        uses.update(found)
        texts.update(set(found))
    assert answer == [(kind, count, texts[kind]) for kind, count in top(uses, 15)]


def zeros(rows: Rows, answer: Answer) -> None:
    mined = [(selector, text) for selector, texts in rows.selectors.items() for text in texts]
    assert answer == sorted((row for row in mined if row[0].startswith("0x0000")), key=lambda row: row[0])[:50]
    assert answer == [(selector(text), text) for _, text in answer]


def coverage(rows: Rows, answer: Answer) -> None:
    assert ("ERC-20", 6, 6) in answer
    assert ("ERC-165", 1, 1) in answer
    lent = ["flashLoan(address,address,uint256,bytes)", "flashFee(address,uint256)", "maxFlashLoan(address)"]
    assert ("ERC-3156", 3, len(set(lent) & set(rows.texts))) in answer


def growth(rows: Rows, answer: Answer) -> None:
    [entry] = [entry for entry in rows.warehouse.history() if "import" in entry]
    [(number, _, _, imported, so_far, percent)] = answer
    assert (number, imported, so_far) == (1, entry["totals"]["imported"], len(rows.texts) + len(rows.events))
    assert percent == pytest.approx(100 * entry["totals"]["imported"] / entry["totals"]["read"], abs=0.05)


def lacking(rows: Rows, answer: Answer) -> None:
    read = []
    for text in THEIRS:
        try:
            read.append(normalise(text).text)
        except GrammarError:
            continue
    assert answer == [(text,) for text in sorted(set(read) - {*rows.texts, *rows.events})]
    assert answer


def tuples(rows: Rows, answer: Answer) -> None:
    expected = []
    for collection, texts in (("event-signatures", rows.events), ("signatures", rows.texts)):
        with_some = [text for text in texts if not text.endswith("()")]
        nested = sum(text.count("(") > 1 for text in with_some)
        expected.append((collection, nested, len(with_some), pytest.approx(100 * nested / len(with_some), abs=0.005)))
    assert answer == expected


def longest(rows: Rows, answer: Answer) -> None:
    texts = sorted(rows.texts, key=lambda text: (-len(text), text))[:10]
    assert answer == [(len(text), len(cut(text)), text[:60]) for text in texts]


def how_many(rows: Rows, answer: Answer) -> None:
    assert answer == sorted(Counter(len(cut(text)) for text in rows.texts).items())


def overloads(rows: Rows, answer: Answer) -> None:
    assert answer == top(Counter(text.partition("(")[0] for text in rows.texts), 10)


def both_kinds(rows: Rows, answer: Answer) -> None:
    assert answer == [(text,) for text in sorted(set(rows.texts) & set(rows.events))[:20]]


def refused(rows: Rows, answer: Answer) -> None:
    [entry] = [entry for entry in rows.warehouse.history() if "import" in entry]
    assert sum(count for _, count, _ in answer) == entry["totals"]["rejected"]
    reasons = Counter(reason for (reason,) in rows.warehouse.sql("SELECT reason FROM rejects").rows())
    assert [(reason, count) for reason, count, _ in answer] == top(reasons, 99)


def style_of(name: str) -> str:
    if re.fullmatch("[A-Z][A-Z0-9_$]*", name):
        return "UPPER_CASE"
    if "_" in name:
        return "_leading" if name.startswith("_") else "snake_case"
    if name[0].isupper():
        return "PascalCase"
    return "lowercase" if name == name.lower() else "camelCase"


def styles(rows: Rows, answer: Answer) -> None:
    names: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for name, count in rows.names.items():
        names[style_of(name)] += 1
        texts[style_of(name)] += count
    assert answer == [(style, count, texts[style]) for style, count in top(names, 9)]


def origin(rows: Rows, answer: Answer) -> None:
    said = [row for row in rows.sightings if row["text_signature"] == "transfer(address,uint256)"]
    names = ("source", "import_id", "file", "contract", "kind", "witness", "declaration")
    assert Counter(answer) == Counter(tuple(row[name] for name in names) for row in said)
    assert answer


def passing_for(rows: Rows, answer: Answer) -> None:
    [names] = re.findall(r"unnest\(\[(.*?)\]\)", QUESTIONS[19].query, re.DOTALL)
    known = re.findall("'(.*?)'", names)
    pairs = [(own, text) for own in known for text in rows.selectors.get(selector(own), []) if text != own]
    assert len(known) == 10
    assert answer == sorted(pairs)


def shared(rows: Rows, answer: Answer) -> None:
    texts = defaultdict(set)
    for row in rows.sightings:
        texts[row["source"]].add((row["collection"], row["id"]))
    pairs = Counter({(a, b): len(texts[a] & texts[b]) for a in texts for b in texts if a < b})
    expected = sorted(((a, b, count) for (a, b), count in pairs.items() if count), key=lambda row: (-row[2], *row[:2]))
    assert answer == expected[:20]


def of_one_source(rows: Rows, answer: Answer) -> None:
    sources = defaultdict(set)
    for row in rows.sightings:
        if row["collection"] == "signatures":
            sources[row["hex_signature"]].add(row["source"])
    alone = defaultdict(list)
    for selector, names in sources.items():
        if len(names) == 1:
            alone[min(names)].append(selector)
    expected = [(source, len(selectors), min(selectors)) for source, selectors in alone.items()]
    assert answer == sorted(expected, key=lambda row: (-row[1], row[0]))[:20]
    assert answer


def of_compiled(rows: Rows, answer: Answer) -> None:
    contracts = defaultdict(set)
    for row in rows.sightings:
        if row["hex_signature"] == "0x01ffc9a7" and row["witness"] == "compiled":
            contracts[row["text_signature"], row["declaration"]].add(row["contract"])
    expected = [(text, declaration, len(names)) for (text, declaration), names in contracts.items()]
    assert answer == sorted(expected, key=lambda row: (-row[2], row[0], row[1]))


def with_piece(rows: Rows, answer: Answer) -> None:
    found = [("event-signatures", text, "0x" + keccak256(text.encode()).hex()) for text in rows.events]
    found += [("signatures", text, selector(text)) for text in rows.texts]
    assert answer == [row for row in found if "balanceof" in row[1].lower()][:20]
    assert answer


def meant(rows: Rows, answer: Answer) -> None:
    sources = defaultdict(set)
    for row in rows.sightings:
        sources[row["collection"], row["text_signature"]].add(row["source"])
    assert sorted(text for _, text, *_ in answer) == sorted(rows.selectors["0xa9059cbb"])
    assert answer[0][:2] == (1, "transfer(address,uint256)")
    for position, (given, text, declaration, reasons) in enumerate(answer, 1):
        number = len(sources["signatures", text])
        assert f"named by {number} source{'' if number == 1 else 's'}" in reasons
        assert given == position
        assert declaration is None or canonical(declaration) == text


def canonical(declaration: str) -> str:
    return normalise(declaration.encode()).text


ORACLES: list[Callable[[Rows, Answer], None]] = [
    same_selector, most_texts, by_chance, look_alikes, case_only, lists, types, zeros, coverage, growth,
    lacking, tuples, longest, how_many, overloads, both_kinds, refused, styles, origin, passing_for,
    shared, of_one_source, of_compiled, with_piece, meant,
]  # fmt: skip


def test_the_page_has_questions_and_their_times() -> None:
    """The questions are numbered in order and have SQL; the table of times has a line for each heading."""
    assert [question.number for question in QUESTIONS] == list(range(1, len(ORACLES) + 1))
    table = re.findall(r"^\| (\d+)\. (.+?) \| [\d,]+ \| [\d.]+ \|$", PAGE.read_text(), re.MULTILINE)
    assert table == [(str(question.number), question.title) for question in QUESTIONS]
    assert Path(PAGE).read_text().count("```sql") == len(QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: str(question.number))
def test_each_query_gives_what_python_finds(rows: Rows, question: Question) -> None:
    """Each query of the page gives the result of a Python loop over the same rows."""
    ORACLES[question.number - 1](rows, rows.warehouse.sql(question.query).rows())
