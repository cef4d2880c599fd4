"""The two imports over HTTP: the signatures of a contract's ABI, or of a Solidity source, are stored at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import falcon

from sigdir.serve.core.budget import Cost
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.texts import abi_entries, solidity_entries, store_entries
from sigdir.serve.core.writer import Writer
from sigdir.serve.http import bodies
from sigdir.serve.http.negotiate import json_bytes
from sigdir.serve.lists.resources import ABI_FIELDS, SOLIDITY_FIELDS, Fields, description
from sigdir.serve.pages.answers import answer
from sigdir.signatures.candidates import Entry


@dataclass
class ImportResource:
    """A body of many signatures. Answers the four counters."""

    negotiates = True
    stores = True
    cost = Cost.SIZE
    name: str
    """Its name in 4byte.directory's API."""
    fields: Fields
    entries: Callable[[dict[str, Any]], list[Entry]]
    """Gives the candidates of a body's fields; raises HttpError."""

    _settings: Settings
    _writer: Writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        entries = self.entries(bodies.fields_of(req, self._settings.max_import_body))
        counters = store_entries(self._writer, entries)
        resp.status = falcon.HTTP_201
        answer(req, resp, json_bytes(counters))

    def on_options(self, req: falcon.Request, resp: falcon.Response) -> None:
        answer(req, resp, description(self.name, self.fields))


def _abi(fields: dict[str, Any]) -> list[Entry]:
    return abi_entries(bodies.text_field(fields, "contract_abi"))


AbiImportResource = partial(ImportResource, "Contract Abi Import Api", ABI_FIELDS, _abi)
SolidityImportResource = partial(ImportResource, "Solidity Import Api", SOLIDITY_FIELDS, solidity_entries)
