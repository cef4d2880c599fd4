"""Decode: one box for calldata, a log, revert data or code, and below it what each known signature makes of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import falcon

from sigdir.serve.core.budget import Cost
from sigdir.serve.core.decodings import BODY_BYTES, explained, note_decoding
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import HTML, JSON, HttpError, packed
from sigdir.serve.pages.page import ViewPage, indented, rendered, send
from sigdir.serve.pages.shown_reading import shown_reading, shown_transaction
from sigdir.signatures.abi_decoder import WORD_BYTES
from sigdir.signatures.contract import ContractInterface
from sigdir.signatures.decode_input import BadInput, hex_bytes, inputs_of_text, return_inputs, texts_to_try
from sigdir.signatures.given_contract import contract_fields, with_contract
from sigdir.signatures.interface_forms import abi_of, solidity_of
from sigdir.signatures.readings import Form, Input
from sigdir.warehouse.index.ranked import contract_at, read_alternatives
from sigdir.warehouse.index.view import View

# Any proxy accepts an address of this length. Longer data has no address and is answered to the POST itself.
_ADDRESS_CHARACTERS = 6000
_MAX_WORDS = 200

EXAMPLE = (
    "0xa9059cbb"
    "000000000000000000000000742d35cc6634c0532925a3b844bc454e4438f44e"
    "0000000000000000000000000000000000000000000000000de0b6b3a7640000"
)
LOG_EXAMPLE = (
    "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef "
    "0x000000000000000000000000742d35cc6634c0532925a3b844bc454e4438f44e "
    "0x000000000000000000000000000000000000000000000000000000000000dead "
    "0x0000000000000000000000000000000000000000000000015af1d78b58c40000"
)
ANONYMOUS_EXAMPLE = (
    "event LogNote(bytes4 indexed sig, address indexed usr, uint256 value) anonymous\n"
    "0xa9059cbb00000000000000000000000000000000000000000000000000000000\n"
    "0x000000000000000000000000742d35cc6634c0532925a3b844bc454e4438f44e\n"
    "0x0000000000000000000000000000000000000000000000015af1d78b58c40000"
)
MULTICALL_EXAMPLE = (
    "0xac9650d8"
    "0000000000000000000000000000000000000000000000000000000000000020"
    "0000000000000000000000000000000000000000000000000000000000000001"
    "0000000000000000000000000000000000000000000000000000000000000020"
    "0000000000000000000000000000000000000000000000000000000000000044"
    "a9059cbb000000000000000000000000742d35cc6634c0532925a3b844bc454e"
    "4438f44e0000000000000000000000000000000000000000000000000de0b6b3"
    "a764000000000000000000000000000000000000000000000000000000000000"
)
PROXY_EXAMPLE = "0x363d3d373d3d3d363d73742d35cc6634c0532925a3b844bc454e4438f44e5af43d82803e903d91602b57fd5bf3"
# To quote them for each page would be a sixth of its time.
_QUOTED = {
    name: quote(example)
    for name, example in {
        "a transfer": EXAMPLE, "a multicall": MULTICALL_EXAMPLE, "a log": LOG_EXAMPLE, "an anonymous log": ANONYMOUS_EXAMPLE,
        "a custom error": "0xe450d38c000000000000000000000000742d35cc6634c0532925a3b844bc454e4438f44e"
        "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000de0b6b3a7640000",
        "a panic": "0x4e487b710000000000000000000000000000000000000000000000000000000000000011", "a proxy's code": PROXY_EXAMPLE,
    }.items()
}  # fmt: skip
_ABI_FILE, _SOLIDITY_FILE = _DOWNLOADS = ("abi.json", "interface.sol")


@dataclass
class DecodePage(ViewPage):
    """The form, and below it the decoded data. Short data has an address that can be shared."""

    kind = HTML

    _rpc: str
    """The URL of the node that is asked for transactions, empty for none."""

    def cost(self, req: falcon.Request) -> Cost:
        return Cost.NODE if self._rpc and req.method != "POST" and "tx" in req.params else Cost.SIZE

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        entered = Entered.of_query(req)
        try:
            if self._rpc and entered.tx:
                self._send_transaction(req, resp, entered)
            else:
                super().on_get(req, resp)
        except BadInput as error:
            self._send_problem(req, resp, entered, error)

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        entered = Entered.of_query(req)
        if not entered.is_filled:
            return self._form(entered, before=_lines_before(req.get_param("with") or ""))
        return self._decoded(req, view, entered, self._with_contract(view, entered, entered.inputs()))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        entered, wanted = _entered(req)
        try:
            self._answer(req, resp, entered, wanted)
        except BadInput as error:
            self._send_problem(req, resp, entered, error)

    def _answer(self, req: falcon.Request, resp: falcon.Response, entered: Entered, wanted: str) -> None:
        """The answer to a POST; ``wanted`` is the name of a file to download, or empty."""
        alternatives = entered.inputs()
        if wanted in _DOWNLOADS and alternatives[0].form is Form.CODE:
            _send_file(req, resp, wanted, explained(self._reader.current(), alternatives[0]))
            return
        address = entered.address(alternatives)
        is_in_address = not entered.contract or entered.place or alternatives[0].form is Form.CODE
        if is_in_address and len(address) <= _ADDRESS_CHARACTERS:
            raise falcon.HTTPSeeOther(f"/decode/?{address}")
        resp.set_header("Cache-Control", "no-store")
        view = self._reader.current()
        send(req, resp, self._decoded(req, view, entered, self._with_contract(view, entered, alternatives)))

    def _with_contract(self, view: View, entered: Entered, alternatives: list[Input]) -> list[Input]:
        """The alternatives with the contract whose ABI, code or address was entered; raises BadInput."""
        if not entered.contract or alternatives[0].form is Form.CODE:
            return alternatives
        return with_contract(alternatives, contract_fields(entered.contract), partial(contract_at, view))

    def _decoded(self, req: falcon.Request, view: View, entered: Entered, alternatives: list[Input]) -> bytes:
        address = entered.address(alternatives)
        if alternatives[0].form is Form.CODE:
            found = explained(view, alternatives[0])
            return self._rendered(
                "contract.html", entered, downloads=_DOWNLOADS, contract=found, solidity=solidity_of(found),
                abi=indented(abi_of(found)), json=_json(address),
            )  # fmt: skip
        readings = read_alternatives(view, alternatives)
        note_decoding(req, readings)
        data = readings[0].data
        first = 0 if readings[0].form in (Form.LOG, Form.RETURN) else 4
        return self._rendered(
            "decode.html", entered, shown=[shown_reading(reading) for reading in readings],
            contract=alternatives[0].contract,
            json="" if alternatives[0].contract and not entered.place else _json(address),
            words=_words(data, first), all_words=-(-(len(data) - first) // WORD_BYTES),
        )  # fmt: skip

    def _send_transaction(self, req: falcon.Request, resp: falcon.Response, entered: Entered) -> None:
        """Answer with a transaction as the node has it now; raises BadInput, HttpError."""
        resp.set_header("Cache-Control", "no-store")
        send(req, resp, self._form(entered, **shown_transaction(self._reader.current(), self._rpc, entered.tx)))

    def _send_problem(self, req: falcon.Request, resp: falcon.Response, entered: Entered, error: BadInput) -> None:
        resp.status = falcon.HTTP_400
        resp.set_header("Cache-Control", "no-store")
        send(req, resp, self._form(entered, problem=error.problem if error.field == "data" else str(error)))

    def _form(self, entered: Entered, **values: Any) -> bytes:
        return self._rendered("decode.html", entered, **{"shown": [], "contract": None} | values)

    def _rendered(self, template: str, entered: Entered, **values: Any) -> bytes:
        defaults = {"problem": "", "has_node": bool(self._rpc), "explained": None, "before": ""}
        return rendered(template, here="/decode/", entered=entered, examples=_QUOTED, **defaults | values)


class Entered(NamedTuple):
    """What was entered: the bytes, if a call returned them its selector or text, and the contract's ABI, code or address.

    Or the hash of a transaction.
    """

    data: str = ""
    call: str = ""
    contract: str = ""
    tx: str = ""

    @classmethod
    def of_query(cls, req: falcon.Request) -> Self:
        call = req.get_param("selector") or req.get_param("text") or ""
        place = f"{req.get_param('chain')}:{req.get_param('to', default='')}" if req.get_param("chain") else ""
        return cls(req.get_param("data") or "", call, place, tx=req.get_param("tx") or "")

    @property
    def place(self) -> dict[str, str]:
        """The chain and the address of the contract; empty where its ABI or code was entered."""
        fields = contract_fields(self.contract)
        return fields if "chain" in fields else {}

    @property
    def is_filled(self) -> bool:
        return bool(self.data.strip() or self.call.strip())

    def inputs(self) -> list[Input]:
        """The alternatives; raises BadInput."""
        call = self.call.strip()
        if call:
            texts = texts_to_try([call]) if "(" in call else ()
            return return_inputs(hex_bytes(self.data), "" if texts else call, texts)
        if not self.data.strip():
            raise BadInput("nothing was entered")
        return inputs_of_text(self.data)

    def address(self, alternatives: list[Input]) -> str:
        """The query of a page with the same answer, and of the API."""
        place = f"&{urlencode(self.place)}" if self.place and alternatives[0].form is not Form.CODE else ""
        if alternatives[0].form is not Form.RETURN:
            return f"data={_address(self.data, alternatives)}{place}"
        call = self.call.strip()
        name = "text" if "(" in call else "selector"
        return urlencode({"data": "0x" + alternatives[0].data.hex(), "as": Form.RETURN, name: call}) + place


def _lines_before(text: str) -> str:
    """A signature that the page of a selector or topic leads here with, on the line before the bytes."""
    return f"{text.strip()}\n" if text.strip() else ""


def _address(entered: str, alternatives: list[Input]) -> str:
    """The input as a value of a query: hex digits as they are, anything else quoted, texts to try on their lines."""
    [first, *others] = alternatives
    if first.texts:
        return quote("\n".join(filter(None, map(str.strip, entered.splitlines()))), safe="")
    if others or first.form is Form.LOG or first.libraries:
        return quote(" ".join(entered.split()), safe="")
    return "0x" + first.data.hex()


def _json(address: str) -> str:
    """Where the API has the same answer; empty where that takes a POST."""
    return f"/api/v1/decode/?{address}" if len(address) <= _ADDRESS_CHARACTERS else ""


def _entered(req: falcon.Request) -> tuple[Entered, str]:
    """What a POST has, and the file that it wants; empty where a field is missing or no text. Raises HttpError."""
    try:
        fields = bodies.fields_of(req, BODY_BYTES)
    except HttpError as error:
        if error.status != 400:
            raise
        fields = {}
    data, call, contract, wanted = (_text(fields, name) for name in ("data", "call", "contract", "download"))
    return Entered(data, call, contract), wanted


def _text(fields: dict[str, Any], name: str) -> str:
    """A text of a form; "" where it is missing or cannot be read."""
    with suppress(HttpError):
        return bodies.text_field(fields, name) if fields.get(name) else ""
    return ""


def _send_file(req: falcon.Request, resp: falcon.Response, name: str, contract: ContractInterface) -> None:
    """Answer with the ABI or the Solidity interface as a file of this name."""
    text = solidity_of(contract) if name == _SOLIDITY_FILE else indented(abi_of(contract))
    resp.content_type = JSON if name == _ABI_FILE else "text/plain; charset=utf-8"
    resp.downloadable_as = name
    resp.set_header("Cache-Control", "no-store")
    resp.data = packed(req, resp, text.encode())


def _words(data: bytes, first: int) -> list[tuple[int, str]]:
    """The words from byte ``first`` on, as hex, each with its place; places count as in the reasons."""
    stop = min(len(data), first + _MAX_WORDS * WORD_BYTES)
    return [(at, "0x" + data[at : at + WORD_BYTES].hex()) for at in range(first, stop, WORD_BYTES)]
