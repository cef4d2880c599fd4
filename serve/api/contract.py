"""The route that takes a contract's bytecode and gives its interface."""

from __future__ import annotations

import falcon

from sigdir.serve.core.contracts import BODY_BYTES, explained
from sigdir.serve.http import bodies
from sigdir.serve.http.errors import field_error
from sigdir.serve.http.json_answer import json_bytes, send_json
from sigdir.signatures.contract_json import document
from sigdir.signatures.decode_input import BadInput, code_input
from sigdir.warehouse.index.view import Reader


class ContractResource:
    """POST takes ``code``: hex digits of runtime or creation code."""

    is_costly = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        text = bodies.text_field(bodies.fields_of(req, BODY_BYTES), "code")
        try:
            found = explained(self._reader.current(), code_input(text))
        except BadInput as error:
            raise field_error(error.field, error.problem) from None
        resp.set_header("Cache-Control", "no-cache")
        send_json(req, resp, json_bytes(document(found)))
