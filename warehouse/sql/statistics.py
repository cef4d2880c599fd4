"""Statistics of a version: counted by DuckDB, returned as a few hundred plain values.

Texts are grouped before they are split: 10 M texts have 250,000 different parameter lists, so each list is split
once. 10 M rows take 10 s on two cores, 1.2 M rows 1 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.log.entry import read_entry
from sigdir.warehouse.sql.warehouse import Warehouse

SELECTORS = 2**32
"""How many selectors there are."""

OTHER = "other"
"""The name of the group of all the rest; no type has it."""

STYLES = ("camelCase", "lowercase", "Capitalised", "snake_case", "mixed_Case", "ALL_CAPS", "_leading", OTHER)
"""How names are written. ``lowercase`` is one word, which is camelCase and snake_case at once."""

_POINTS = 300
_LARGEST_IMPORTS = 10
_SHOWN_SOURCES = 8
_DEPTH = 20  # real tuples nest 5 deep; a text of 64 KiB could nest 30,000 deep, and each level costs a pass
_LEAST_EXPECTED = 0.01
_SHOWN_TYPES = 30  # a text may have an array of any size, so types have no end


@dataclass(frozen=True, slots=True)
class CountsBy:
    """How many of each collection are ``what``."""

    what: str
    signatures: int
    events: int

    @property
    def total(self) -> int:
        return self.signatures + self.events


@dataclass(frozen=True, slots=True)
class TotalsAt:
    """The rows of each collection up to a time, inclusive."""

    at: datetime
    signatures: int
    events: int


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """An import and its counts; ``source`` is its label, else the name of its only file, else None."""

    import_id: int
    committed_at: datetime
    source: str | None
    files: int
    read: int
    imported: int
    duplicate: int
    rejected: int


@dataclass(frozen=True, slots=True)
class SourceCounts:
    """The candidates of a source over all imports: a file, or the ``files`` small files of a folder.

    ``path`` ends in ``/`` for a folder; it is None for the rest.
    """

    path: str | None
    files: int
    read: int
    imported: int
    duplicate: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Chance:
    """How many selectors were found, and how many are expected if hashes were random.

    ``of`` is the number of texts that share the selector, or of zero digits at its start.
    """

    of: int
    found: int
    expected: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """A version in numbers. Functions and errors are ``signatures``; an empty warehouse has version -1.

    ``growth`` has at most some hundred points. ``imports`` are the ten that brought most, in their order.
    ``types`` counts parameters, not texts, takes a tuple for one, and ends with the OTHER types; ``parameters`` counts
    texts by how many they have. ``shared`` counts selectors by their texts, from two on; ``zeros`` texts by at least so
    many zero digits.
    """

    version: int
    committed_at: datetime | None
    rows: CountsBy
    bytes: CountsBy
    names: int
    parameter_lists: int
    selectors: int
    most_shared: str | None
    import_count: int
    growth: tuple[TotalsAt, ...]
    imports: tuple[ImportCounts, ...]
    sources: tuple[SourceCounts, ...]
    types: tuple[CountsBy, ...]
    parameters: tuple[CountsBy, ...]
    styles: tuple[CountsBy, ...]
    shared: tuple[Chance, ...]
    zeros: tuple[Chance, ...]
    reasons: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """The rows of both collections."""
        return self.rows.total


def statistics(warehouse: Warehouse, stage: Callable[[str], object] = lambda _: None) -> Statistics:
    """Count everything; ``stage`` gets the name of each part as it begins. Raises QueryError or UnreadableWarehouse."""
    texts = warehouse.count(SIGNATURES)
    stage("count names")
    styles, names = _styles(warehouse)
    stage("count types")
    types, parameters, lists = _parameters(warehouse)
    stage("count collisions")
    shared, most_shared, selectors = _shared(warehouse, texts)
    ((import_count,),) = warehouse.sql("SELECT count(*) FROM imports").rows()
    stage("count imports")
    return Statistics(
        version=warehouse.version,
        committed_at=read_entry(warehouse.paths, warehouse.version).committed_at if warehouse.version >= 0 else None,
        rows=CountsBy("rows", texts, warehouse.count(EVENT_SIGNATURES)),
        bytes=CountsBy("bytes", _bytes(warehouse, SIGNATURES), _bytes(warehouse, EVENT_SIGNATURES)),
        names=names,
        parameter_lists=lists,
        selectors=selectors,
        most_shared=most_shared,
        import_count=import_count,
        growth=_growth(warehouse),
        imports=_imports(warehouse),
        sources=_sources(warehouse),
        types=types,
        parameters=parameters,
        styles=styles,
        shared=shared,
        zeros=_zeros(warehouse, texts),
        reasons=tuple(warehouse.sql("SELECT reason, count(*) FROM rejects GROUP BY 1 ORDER BY 2 DESC, 1").rows()),
    )


def _bytes(warehouse: Warehouse, collection: Any) -> int:
    return sum(file.size for file in warehouse.snapshot.files[collection])


# Both collections in one pass: a row counts for one of them.
_ROWS = """
    rows AS (
        SELECT text_signature AS text, import_id, created_at, 1 AS signature, 0 AS event FROM signatures
        UNION ALL
        SELECT text_signature, import_id, created_at, 0, 1 FROM event_signatures
    )"""


def _growth(warehouse: Warehouse) -> tuple[TotalsAt, ...]:
    """The rows at up to _POINTS moments. Those of an import are there from its commit on, all at once."""
    ((seconds,),) = warehouse.sql(f"WITH {_ROWS} SELECT epoch(max(created_at) - min(created_at)) FROM rows").rows()
    found = warehouse.sql(
        f"""
        WITH {_ROWS}, pieces AS (
            SELECT import_id, CASE WHEN import_id = 0 THEN time_bucket(to_seconds($width), created_at) END AS bucket,
                max(created_at) AS last, sum(signature) AS signatures, sum(event) AS events
            FROM rows GROUP BY ALL
        ), moments AS (
            SELECT coalesce(committed_at, last) AS moment, signatures, events FROM pieces LEFT JOIN imports USING (import_id)
        )
        SELECT max(moment) AS until, (sum(sum(signatures)) OVER so_far)::BIGINT, (sum(sum(events)) OVER so_far)::BIGINT
        FROM moments GROUP BY time_bucket(to_seconds($width), moment)
        WINDOW so_far AS (ORDER BY max(moment)) ORDER BY until
        """,
        {"width": max(1.0, (seconds or 0) / _POINTS)},
    )
    return tuple(TotalsAt(*row) for row in found.rows())


def _imports(warehouse: Warehouse) -> tuple[ImportCounts, ...]:
    found = warehouse.sql(
        """
        SELECT import_id, committed_at,
            coalesce(source, CASE WHEN files = 1 THEN regexp_extract(sources[1].path, '[^/]*$') END),
            files, "read", imported, duplicate, rejected
        FROM (FROM imports ORDER BY imported DESC, import_id LIMIT $most) ORDER BY import_id
        """,
        {"most": _LARGEST_IMPORTS},
    )
    return tuple(ImportCounts(*row) for row in found.rows())


def _sources(warehouse: Warehouse) -> tuple[SourceCounts, ...]:
    """Files that gave a hundredth of all candidates by themselves, others by their folder, what is tiny as one."""
    found = warehouse.sql(
        """
        WITH files AS (
            SELECT s.path AS path, sum(s.read) AS read, sum(s.imported) AS imported, sum(s.duplicate) AS duplicate,
                sum(s.rejected) AS rejected
            FROM (SELECT unnest(sources) AS s FROM imports) GROUP BY 1
        ), folders AS (
            SELECT CASE WHEN read * 100 >= (SELECT sum(read) FROM files) THEN path
                    ELSE coalesce(nullif(regexp_replace(path, '[^/]*$', ''), ''), './') END AS path,
                count(*) AS files, sum(COLUMNS(* EXCLUDE (path)))
            FROM files GROUP BY 1
        ), placed AS (
            SELECT *, rank() OVER (ORDER BY read DESC, path) AS place, sum(read) OVER () AS total
            FROM folders AS f(path, files, read, imported, duplicate, rejected)
        )
        SELECT CASE WHEN place <= $most AND read * 1000 >= total THEN path END AS where_from,
            sum(files)::BIGINT, sum(read)::BIGINT AS candidates, sum(imported)::BIGINT, sum(duplicate)::BIGINT,
            sum(rejected)::BIGINT
        FROM placed GROUP BY 1 ORDER BY where_from IS NULL, candidates DESC, where_from
        """,
        {"most": _SHOWN_SOURCES},
    )
    return tuple(SourceCounts(*row) for row in found.rows())


def _parameters(warehouse: Warehouse) -> tuple[tuple[CountsBy, ...], tuple[CountsBy, ...], int]:
    """Parameters by type, texts by number of parameters, how many different lists there are.

    The innermost parentheses become `tuple` until only a list's own are left.
    """
    found = warehouse.sql(
        rf"""
        WITH RECURSIVE {_ROWS}, lists AS (
            SELECT text[strpos(text, '('):] AS list, sum(signature) AS signatures, sum(event) AS events
            FROM rows GROUP BY 1
        ), opened AS (
            SELECT list, signatures, events, 1 AS depth FROM lists
            UNION ALL
            SELECT CASE WHEN depth < $depth THEN regexp_replace(list, '([(,])\([^()]*\)', '\1tuple', 'g')
                    ELSE regexp_replace(list, '.\(.*\)', '(tuple') || ')' END,
                signatures, events, depth + 1
            FROM opened WHERE list LIKE '_%(%'
        ), flat AS MATERIALIZED (SELECT * FROM opened WHERE list NOT LIKE '_%(%')
        SELECT 'types', CASE WHEN place <= $most THEN type ELSE $other END AS shown,
            sum(signatures)::BIGINT, sum(events)::BIGINT
        FROM (
            SELECT type, sum(signatures) AS signatures, sum(events) AS events,
                rank() OVER (ORDER BY sum(signatures) + sum(events) DESC, type) AS place
            FROM (SELECT unnest(string_split(list[2:-2], ',')) AS type, signatures, events
                FROM flat WHERE list <> '()')
            GROUP BY type
        ) GROUP BY shown
        UNION ALL
        SELECT 'parameters', number::VARCHAR, sum(signatures)::BIGINT, sum(events)::BIGINT
        FROM (SELECT CASE WHEN list = '()' THEN 0 ELSE len(list) - len(replace(list, ',', '')) + 1 END AS number,
            signatures, events FROM flat)
        GROUP BY number
        UNION ALL
        SELECT 'lists', '', count(*), 0 FROM lists
        """,
        {"depth": _DEPTH, "most": _SHOWN_TYPES, "other": OTHER},
    )
    kinds: dict[str, list[CountsBy]] = {"types": [], "parameters": [], "lists": []}
    for kind, *split in found.rows():
        kinds[kind].append(CountsBy(*split))
    types = sorted(
        kinds["types"], key=lambda split: (split.what == OTHER, -split.signatures - split.events, split.what)
    )
    parameters = sorted(kinds["parameters"], key=lambda split: int(split.what))
    return tuple(types), tuple(parameters), kinds["lists"][0].signatures


def _styles(warehouse: Warehouse) -> tuple[tuple[CountsBy, ...], int]:
    """Texts by how their name is written, in the order of STYLES, and how many different names there are."""
    found = warehouse.sql(
        f"""
        WITH {_ROWS}, names AS (
            SELECT text[:strpos(text, '(') - 1] AS name, sum(signature) AS signatures, sum(event) AS events
            FROM rows GROUP BY 1
        )
        SELECT CASE
                WHEN contains(name, '$') OR name = '' THEN $other
                WHEN name[1] = '_' THEN '_leading'
                WHEN name = lower(name) THEN CASE WHEN contains(name, '_') THEN 'snake_case' ELSE 'lowercase' END
                WHEN name = upper(name) THEN 'ALL_CAPS'
                WHEN contains(name, '_') THEN 'mixed_Case'
                WHEN name[1] = lower(name[1]) THEN 'camelCase'
                ELSE 'Capitalised'
            END, sum(signatures)::BIGINT, sum(events)::BIGINT, count(*)
        FROM names GROUP BY 1
        """,
        {"other": OTHER},
    ).rows()
    by_style = {style: (signatures, events) for style, signatures, events, _ in found}
    return tuple(CountsBy(style, *by_style.get(style, (0, 0))) for style in STYLES), sum(row[3] for row in found)


def _shared(warehouse: Warehouse, texts: int) -> tuple[tuple[Chance, ...], str | None, int]:
    """Selectors by their number of texts beside chance, the one with most, how many different ones there are."""
    found = warehouse.sql(
        """
        SELECT texts, count(*), min(hash) FROM (SELECT hash, count(*) AS texts FROM signatures GROUP BY hash)
        GROUP BY texts ORDER BY texts
        """
    ).rows()
    counts = {texts_of: selectors for texts_of, selectors, _ in found}
    likely = 2
    while expected_shared(texts, likely + 1) >= _LEAST_EXPECTED:
        likely += 1
    shared = sorted({*range(2, likely + 1), *counts} - {1})
    chances = tuple(Chance(of, counts.get(of, 0), expected_shared(texts, of)) for of in shared)
    crowded = "0x" + found[-1][2].hex() if found and found[-1][0] > 1 else None
    return chances, crowded, sum(counts.values())


def expected_shared(texts: int, of: int) -> float:
    """How many selectors have exactly ``of`` of so many texts, where each text has a random selector.

    The birthday question: binomial, in logarithms because the factors leave a float's range.
    """
    if of > texts:
        return 0.0
    chosen = sum(math.log((texts - place) / (place + 1)) for place in range(of))
    return math.exp(chosen + (1 - of) * math.log(SELECTORS) + (texts - of) * math.log1p(-1 / SELECTORS))


def _zeros(warehouse: Warehouse, texts: int) -> tuple[Chance, ...]:
    """Texts by at least so many zero digits before the rest of the selector."""
    found = warehouse.sql(
        """
        SELECT len(digits) - len(ltrim(digits, '0')) AS zeros, count(*)
        FROM (SELECT hex(hash) AS digits FROM signatures) GROUP BY 1
        """
    ).rows()
    return tuple(Chance(of, sum(count for zeros, count in found if zeros >= of), texts / 16**of) for of in range(1, 9))
