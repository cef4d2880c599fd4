"""What bytes mean, by the texts of the directory: calldata, logs and reverts as trees of readings, code as an interface.

``sigdir.signatures.readings`` builds the trees, ``sigdir.warehouse.index.ranked`` looks the texts up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import falcon

from sigdir.serve.core.budget import Cost
from sigdir.serve.core.decodings import BODY_BYTES, explained, note_decoding
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import field_error, json_bytes, send_json
from sigdir.signatures.abi_decoder import SPARE
from sigdir.signatures.decode_input import BadInput, code_input, inputs_of_fields, inputs_of_text, is_code
from sigdir.signatures.given_contract import with_contract
from sigdir.signatures.interface_forms import document as contract_document
from sigdir.signatures.reading_json import document
from sigdir.signatures.readings import Form, Input
from sigdir.warehouse.index.ranked import contract_at, read_alternatives
from sigdir.warehouse.index.view import Reader, View, this_takes_long

MAX_INPUTS = 1000
"""In one list."""

MAX_CODES = 8
"""In one list."""
_OTHER_NAMES = ("input", "calldata", "revert")
_BYTES = ("data", *_OTHER_NAMES, "topics", "topic0")  # beside them a contract's code says who was called
_LEAST_SPARE = 32  # so that two texts of a selector without arguments are tried


@dataclass
class DecodeResource:
    """GET takes ``data`` in the query, and ``as``, ``selector``, ``text``, ``to`` and ``chain``. POST takes an input's fields, or a list of
    inputs of any kinds.
    """

    cost = Cost.SIZE
    may_be_short = True

    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        if not _is_short(req.query_string):
            this_takes_long()
        names = {"data", "as", "selector", "chain", "to"} & req.params.keys()
        fields: dict[str, Any] = {name: req.get_param(name, default="") for name in names}
        if "text" in req.params:
            fields["texts"] = [req.get_param("text", default="")]
        self._answer(req, resp, self._one(req, fields))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        given = bodies.fields_or_list(req, BODY_BYTES)
        if isinstance(given, dict) and isinstance(given.get("data"), bodies.Upload):
            given["data"] = bodies.text_field(given, "data")
        if isinstance(given, dict) and isinstance(given.get("inputs"), list):
            given = given["inputs"]
        self._answer(req, resp, self._list(req, given) if isinstance(given, list) else self._one(req, given))

    def _answer(self, req: falcon.Request, resp: falcon.Response, answer: Any) -> None:
        resp.set_header("Cache-Control", "no-cache")
        send_json(req, resp, json_bytes(answer))

    def _one(self, req: falcon.Request, fields: Mapping[str, Any]) -> dict[str, Any]:
        view = self._reader.current()
        return self._document(req, view, self._with_contract(view, fields, inputs_of(fields)))

    def _document(
        self, req: falcon.Request, view: View, alternatives: list[Input], spare: int = SPARE
    ) -> dict[str, Any]:
        """The answer for one input; raises BadInput for code whose functions cannot be read."""
        if alternatives[0].form is Form.CODE:
            return contract_document(explained(view, alternatives[0]))
        readings = read_alternatives(view, alternatives, spare)
        note_decoding(req, readings)
        return document(readings, alternatives[0].contract)

    def _with_contract(self, view: View, given: Any, alternatives: list[Input]) -> list[Input]:
        """The alternatives with the contract that stands beside them; raises BadInput."""
        if not isinstance(given, Mapping) or alternatives[0].form is Form.CODE:
            return alternatives
        return with_contract(alternatives, given, partial(contract_at, view))

    def _list(self, req: falcon.Request, given: list[Any]) -> list[dict[str, Any]]:
        """An answer for each input; one that cannot be read has its error, and the others are read.

        The inputs share what one alone may spare, so the answer to a list is bounded as one answer is.
        """
        if len(given) > MAX_INPUTS:
            raise field_error("inputs", f"{len(given)} inputs; at most {MAX_INPUTS} in one request.")
        view, answers, codes = self._reader.current(), [], 0
        spare = max(_LEAST_SPARE, SPARE // max(1, len(given)))
        for one in given:
            try:
                alternatives = inputs_of(one)
                codes += alternatives[0].form is Form.CODE or (isinstance(one, Mapping) and one.get("code") is not None)
                if codes > MAX_CODES:
                    answers.append(_error("code", f"more than {MAX_CODES} codes in one list"))
                else:
                    alternatives = self._with_contract(view, one, alternatives)
                    answers.append(self._document(req, view, alternatives, spare))
            except BadInput as error:
                answers.append(_error(error.field, error.problem))
        return answers


_SHORT_CALL = re.compile(
    "data=0x([0-9a-f]{8}(?:[0-9a-f]{64}){0,2})(?:&chain=[1-9][0-9]{0,9}&to=0x[0-9a-f]{40})?"
)  # too short to hold another call
_SHORT_RETURN = re.compile("data=0x(?:[0-9a-f]{64}){0,2}&as=return&selector=0x[0-9a-f]{8}")


def _is_short(query_string: str) -> bool:
    """Whether the query has a call of two words at most, which takes 80 us, or two words that a call returned."""
    if call := _SHORT_CALL.fullmatch(query_string):
        return not is_code(bytes.fromhex(call[1]))
    return _SHORT_RETURN.fullmatch(query_string) is not None


def inputs_of(given: Any) -> list[Input]:
    """The alternatives of an input of a request: a text, or an object; raises BadInput."""
    if isinstance(given, str):
        return inputs_of_text(given)
    if not isinstance(given, Mapping):
        raise BadInput("an input is a text of hex digits or an object")
    if isinstance(given.get("code"), str) and given.keys().isdisjoint(_BYTES):
        return [code_input(given["code"])]
    data = given.get("data")
    is_alone = not given.keys() & {"topics", "topic0", "as"} and not any(map(given.get, _OTHER_NAMES))
    if isinstance(data, str) and not data.strip() and is_alone:
        raise BadInput("This field may not be blank.")
    return inputs_of_fields(given)


def _error(field: str, problem: str) -> dict[str, Any]:
    """The answer for an input of a list that cannot be read."""
    return {"kind": "error", "field": field, "detail": problem}


@dataclass
class ContractResource:
    """POST takes ``code``: hex digits of runtime or creation code."""

    cost = Cost.SIZE

    _reader: Reader

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        text = bodies.text_field(bodies.fields_of(req, BODY_BYTES), "code")
        found = explained(self._reader.current(), code_input(text))
        resp.set_header("Cache-Control", "no-cache")
        send_json(req, resp, json_bytes(contract_document(found)))
