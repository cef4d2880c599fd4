"""No pattern takes more than linear time, whatever text it runs on.

Python's patterns backtrack. Each pattern of the source is run on texts that are made to keep it busy: Hypothesis draws
texts that match it, a piece of such a text is repeated, and what follows does not match. If an eightfold text takes
``GROWTH`` times the processor time, the test fails. Possessive quantifiers (``*+``), classes that exclude what follows,
and a lookbehind in front of a run (``(?<!\\s)\\s++``) keep a pattern linear.

Not seen here: loops around a pattern (``python -m tests.fuzz cost`` looks for those), and the patterns of DuckDB and
Arrow, whose engine is RE2: it does not backtrack.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from tests.fuzz.cost import TookTooLongError, time_limit
from tests.test_layers import modules, sources

GROWTH = 24
"""Linear is 8, quadratic 64."""
NOISE_SECONDS = 0.02
_MOST_SECONDS = 2.0
SIZES = (24, 192, 1536, 12_288)
"""In characters. At the first an exponential pattern takes a second, at the second a cubic one milliseconds."""

_FUNCTIONS = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
_AT_ONE_PLACE = {"match", "fullmatch"}


MATCHING: dict[tuple[str, str], Any] = {
    ("sigdir/pipeline/formats/sqlite.py", "b'CREATE TABLE [^;]*+'"): b"CREATE TABLE a",
}
"""A text for a pattern that Hypothesis cannot read."""

LOCAL: dict[tuple[str, str], Any] = {
    ("sigdir/signatures/proxies.py", "pattern"): rb"\x3d[\x60-\x72](?P<address>.{1,19})\x5a.\xf4",
    ("sigdir/serve/lists/paging.py", "f'{_LETTERS[collection]}(0|[1-9a-f][0-9a-f]{{0,14}})'"): "s(0|[1-9a-f][0-9a-f]{0,14})",
    ("sigdir/serve/dialects.py", "f'[0-9a-fA-F]{{{2 * collection.hash_bytes}}}'"): "[0-9a-fA-F]{64}",
    ("sigdir/serve/pages/record.py", "f'(?:0[xX])?([0-9a-fA-F]{{{2 * collection.hash_bytes}}})'"): "(?:0[xX])?([0-9a-fA-F]{64})",
    ("sigdir/pipeline/formats/clear_signing/__init__.py", "schema['pattern']"): "^0[xX][0-9a-fA-F]{40}$",
}  # fmt: skip
"""Patterns that depend on local names, by module and source, each with an example."""


class Use(NamedTuple):
    """A pattern of the source and how it is used."""

    source: str
    pattern: re.Pattern[Any]
    searches: bool
    """Whether it is tried at every place of a text."""


@cache
def _methods() -> frozenset[tuple[str, str, str]]:
    """Each attribute of a name: the module where it stands, the name, and the attribute."""
    return frozenset(
        (path, ast.unparse(node.value).rpartition(".")[2], node.attr)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _FUNCTIONS
    )


def _uses(path: str) -> Iterator[Use]:
    """The patterns of a module."""
    tree = modules()[path]
    names = {
        id(node.value): ast.unparse(node.targets[0]).removeprefix("self.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func.value) != "re" or node.func.attr not in _FUNCTIONS:
            continue
        methods = {node.func.attr}
        if node.func.attr == "compile":
            methods = {
                method
                for where, name, method in _methods()
                if name == names.get(id(node)) and (where == path or not name.startswith("_"))
            }
        source = ast.unparse(node.args[0])
        yield Use(source, _pattern(path, node), not methods or not methods <= _AT_ONE_PLACE)


def _pattern(path: str, call: ast.Call) -> re.Pattern[Any]:
    """The pattern of a call, evaluated in its module, or the example of ``LOCAL``."""
    if (example := LOCAL.get((path, ast.unparse(call.args[0])))) is not None:
        return re.compile(example)
    module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    is_compiled = ast.unparse(call.func) == "re.compile"
    flags = [one.value for one in call.keywords if one.arg == "flags"] + (call.args[1:] if is_compiled else [])
    values = [eval(ast.unparse(one), vars(module)) for one in [call.args[0], *flags]]  # noqa: S307 - our own source
    return re.compile(*values)


@pytest.mark.long
@pytest.mark.parametrize("path", [path for path, source in sources().items() if re.search(r"\bre\.", source)])
def test_a_pattern_is_linear(path: str) -> None:
    for use in _uses(path):
        drawn = {MATCHING[path, use.source]} if (path, use.source) in MATCHING else _matching(use.pattern)
        for one in drawn:
            for prefix, unit, suffix in _shapes(one):
                assert not _is_dear(use, prefix, unit, suffix), (use.source, prefix, unit, suffix)


def _matching(pattern: re.Pattern[Any]) -> set[Any]:
    if "(?=" not in str(pattern.pattern):
        with suppress(Unsatisfiable):  # the pattern looks at what is around its match
            return _draw(pattern, fullmatch=True)
    return _draw(pattern, fullmatch=False)


def _draw(pattern: re.Pattern[Any], fullmatch: bool) -> set[Any]:
    drawn: set[Any] = set()

    @settings(
        max_examples=8,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.from_regex(pattern, fullmatch=fullmatch))
    def draw(text: Any) -> None:
        drawn.add(text)

    with time_limit(10 * _MOST_SECONDS):  # Hypothesis runs the pattern too
        draw()
    return drawn


def _shapes(text: Any) -> Iterator[tuple[Any, Any, Any]]:
    """A matching text up to a piece, the piece or its first character to repeat, and an end that does not match."""
    kind = str if isinstance(text, str) else bytes
    runs = r"\w+|\s+|([^\w\s])\1*"
    pieces = [run[0] for run in re.finditer(runs if kind is str else runs.encode(), text)][:9]
    empty, spoiler = text[:0], "\0" if kind is str else b"\0"
    for first in range(len(pieces)):
        prefix = empty.join(pieces[:first])
        units = {empty.join(pieces[first:last]) for last in range(first + 1, len(pieces) + 1)}
        for unit in units | {pieces[first][:1]}:
            yield prefix, unit, spoiler


def _is_dear(use: Use, prefix: Any, unit: Any, suffix: Any) -> bool:
    def of_size(size: int) -> Any:
        return prefix + unit * (size // len(unit)) + suffix

    if _seconds(use, of_size(SIZES[-1])) <= NOISE_SECONDS:
        return False
    before = 0.0
    for size in SIZES:
        text = of_size(size)
        seconds = _seconds(use, text)
        if seconds > max(NOISE_SECONDS, GROWTH * before) and (seconds := _least(use, text)) > NOISE_SECONDS:
            before = _least(use, of_size(size // 8))
        if seconds > max(NOISE_SECONDS, GROWTH * before):
            return True
        before = seconds
    return False


def _least(use: Use, text: Any) -> float:
    return min(_seconds(use, text) for _ in range(4))


def _seconds(use: Use, text: Any) -> float:
    start = time.process_time()
    with suppress(TookTooLongError), time_limit(_MOST_SECONDS):
        use.pattern.fullmatch(text)
        if use.searches:
            for _ in use.pattern.finditer(text):
                pass
    return time.process_time() - start
