"""One application for the modules that only look rows up, or add texts of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import import_lines
from tests.serve.support import EVENT, SPAM, TRANSFER, Application, application, post_text

MAX_IMPORT_BODY = 100_000

MANY = [f"many{number}(uint256)" for number in range(120)]
IMPORTED = [
    SPAM, "error Broken(uint256)", "under_score()", "underXscore()", "set(bytes,(uint8,string)[])", f"event {EVENT}",
    *MANY, *(f"event Many{text[4:]}" for text in MANY),
]  # fmt: skip
"""The spam is older than the text that it collides with."""


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Over ``IMPORTED``, and ``TRANSFER`` POSTed but not folded."""
    warehouse = import_lines(tmp_path_factory.mktemp("shared") / "warehouse", *IMPORTED)
    with application(warehouse, max_import_body=MAX_IMPORT_BODY) as app:
        assert post_text(app, TRANSFER).status == 201
        yield app
