"""The status page: which version this is, what is in it, and what was done to it last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import falcon

from sigdir.serve.openapi import package_version
from sigdir.serve.pages.page import Kept, ViewPage, rendered
from sigdir.serve.pages.rows import TITLES
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.identity import FORMAT
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log import read_summary
from sigdir.warehouse.origins import origin_of
from sigdir.warehouse.paths import Paths

_IMPORTS = 10
_LOOKED_AT = 300
"""Commits at most that are read for the page: a fold a minute is five hours of them."""


class StatusPage(ViewPage):
    def __init__(self, reader: Reader, kept: Kept, paths: Paths) -> None:
        super().__init__(reader, kept)
        self._paths = paths

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        imports, fold = [], None
        for summary in _newest(self._paths, view.snapshot.version):
            if summary.get("kind") == "fold" and fold is None:
                fold = summary
            if "import" in summary:
                imports.append(origin_of(summary))
            if len(imports) == _IMPORTS and fold is not None:
                break
        collections: list[dict[str, Any]] = []
        for collection in COLLECTIONS:
            published, rows = view.snapshot.count(collection), view.count(collection)
            files = len(view.snapshot.files[collection])
            collections.append({"title": TITLES[collection], "rows": rows, "staged": rows - published, "files": files})
        return rendered(
            "status.html", here="/status/", version=view.snapshot.version, collections=collections,
            imports=imports[:_IMPORTS], fold=fold, format=FORMAT, package=package_version(), looked_at=_LOOKED_AT,
        )  # fmt: skip


def _newest(paths: Paths, version: int) -> Iterator[dict[str, Any]]:
    """What the last commits say of themselves, the newest first."""
    for number in range(version, max(version - _LOOKED_AT, -1), -1):
        summary = read_summary(paths, number)
        if summary is not None:
            yield summary
