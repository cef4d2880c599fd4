"""What `make test` takes of a test's examples: a quarter of those that a property test draws, and some cases of a table.

`make test-all` takes all of both. No example and no drawing has a time limit: a busy machine takes any time for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_ALL = 100

settings.register_profile("all", max_examples=_ALL, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("all")


def draw_fewer() -> None:
    """Draw a quarter of the examples from here on; called before the tests are imported."""
    settings.register_profile("fewer", settings.get_profile("all"), max_examples=_ALL // 4)
    settings.load_profile("fewer")


def examples(count: int) -> int:
    """The number for a test that draws ``count`` in `make test-all`."""
    assert settings.default is not None
    return count * settings.default.max_examples // _ALL


def long_except(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """The cases of a parametrised test, a tuple for several arguments; those that are not in ``kept`` are long.

    `make test` leaves those out.
    """
    cases = list(cases)
    assert all(case in cases for case in kept), "a case to be kept is not there"
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    marks = [() if case in kept else pytest.mark.long for case in cases]
    return [pytest.param(*each, marks=mark) for each, mark in zip(values, marks, strict=True)]
