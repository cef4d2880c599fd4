"""How many examples a property test draws: all of them in `make test-all`, a quarter in `make test`."""

from __future__ import annotations

from hypothesis import settings

_ALL = 100


def draw_fewer() -> None:
    """Draw a quarter of the examples from here on; called before the tests are imported."""
    settings.register_profile("fewer", max_examples=_ALL // 4)
    settings.load_profile("fewer")


def examples(count: int) -> int:
    """The number for a test that draws ``count`` in `make test-all`."""
    assert settings.default is not None
    return count * settings.default.max_examples // _ALL
