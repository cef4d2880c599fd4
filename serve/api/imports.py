"""The two imports over HTTP: the signatures of a contract's ABI, or of a Solidity source, are stored at once."""

from __future__ import annotations

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


class ImportResource:
    """A body of many signatures. Answers the four counters."""

    negotiates = True
    stores = True
    cost = Cost.SIZE
    name: str
    """Its name in 4byte.directory's API."""
    fields: Fields

    def __init__(self, settings: Settings, writer: Writer) -> None:
        self._max_body, self._writer = settings.max_import_body, writer

    def entries(self, fields: dict[str, Any]) -> list[Entry]:
        """The candidates of a body's fields; raises HttpError."""
        raise NotImplementedError

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        entries = self.entries(bodies.fields_of(req, self._max_body))
        counters = store_entries(self._writer, entries)
        resp.status = falcon.HTTP_201
        answer(req, resp, json_bytes(counters))

    def on_options(self, req: falcon.Request, resp: falcon.Response) -> None:
        answer(req, resp, description(self.name, self.fields))


class AbiImportResource(ImportResource):
    name = "Contract Abi Import Api"
    fields = ABI_FIELDS

    def entries(self, fields: dict[str, Any]) -> list[Entry]:
        return abi_entries(bodies.text_field(fields, "contract_abi"))


class SolidityImportResource(ImportResource):
    name = "Solidity Import Api"
    fields = SOLIDITY_FIELDS

    def entries(self, fields: dict[str, Any]) -> list[Entry]:
        return solidity_entries(fields)
