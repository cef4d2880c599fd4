"""Decode: one box for calldata, a log, revert data or code, and below it what each known signature makes of it."""

from __future__ import annotations

from urllib.parse import quote

import falcon

from sigdir.serve.code_reader import CodeReader, explained
from sigdir.serve.decode import BODY_BYTES
from sigdir.serve.http import bodies
from sigdir.serve.http.codings import packed
from sigdir.serve.http.errors import HttpError
from sigdir.serve.http.negotiate import HTML, JSON
from sigdir.serve.http.page_cache import PageCache
from sigdir.serve.pages.page import ViewPage, rendered, send
from sigdir.serve.pages.shown_contract import ShownContract, shown_contract
from sigdir.serve.pages.shown_reading import shown_reading
from sigdir.signatures.abi_decoder import WORD_BYTES
from sigdir.signatures.decode_input import BadInput, inputs_of_text, whole
from sigdir.signatures.readings import Form, Input
from sigdir.warehouse.index.known import read_alternatives
from sigdir.warehouse.index.view import Reader, View

# Any proxy accepts an address of this length. Longer data has no address and is answered to the POST itself.
_ADDRESS_CHARACTERS = 6000
_MAX_WORDS = 200

EXAMPLE = "0xa9059cbb" + "742d35cc6634c0532925a3b844bc454e4438f44e".zfill(64) + f"{10**18:064x}"
_TRANSFER_TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
_TOKENS = "0x" + f"{25 * 10**18:064x}"
LOG_EXAMPLE = " ".join([_TRANSFER_TOPIC, *("0x" + digits.zfill(64) for digits in (EXAMPLE[34:74], "dead")), _TOKENS])
REVERT_EXAMPLE = "0x4e487b71" + f"{0x11:064x}"
ERROR_EXAMPLE = "0xe450d38c" + EXAMPLE[10:74] + f"{0:064x}{10**18:064x}"
ANONYMOUS_EXAMPLE = "\n".join([
    "event LogNote(bytes4 indexed sig, address indexed usr, uint256 value) anonymous",
    "0x" + "a9059cbb".ljust(64, "0"), "0x" + EXAMPLE[10:74], _TOKENS,
])  # fmt: skip
_INNER = EXAMPLE[2:].ljust(192, "0")
MULTICALL_EXAMPLE = "0xac9650d8" + f"{32:064x}{1:064x}{32:064x}{68:064x}" + _INNER
PROXY_EXAMPLE = "0x363d3d373d3d3d363d73" + EXAMPLE[34:74] + "5af43d82803e903d91602b57fd5bf3"
_EXAMPLES = (
    ("a transfer", EXAMPLE), ("a multicall", MULTICALL_EXAMPLE), ("a log", LOG_EXAMPLE), ("an anonymous log", ANONYMOUS_EXAMPLE),
    ("a custom error", ERROR_EXAMPLE), ("a panic", REVERT_EXAMPLE), ("a proxy's code", PROXY_EXAMPLE),
)  # fmt: skip
_ABI_FILE, _SOLIDITY_FILE = _DOWNLOADS = ("abi.json", "interface.sol")


class DecodePage(ViewPage):
    """The form, and below it the decoded data. Short data has an address that can be shared."""

    kind = HTML
    is_costly = True

    def __init__(self, reader: Reader, cache: PageCache, codes: CodeReader) -> None:
        super().__init__(reader, cache)
        self._codes = codes

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        entered = req.get_param("data") or ""
        try:
            super().on_get(req, resp)
        except BadInput as error:
            _send_problem(req, resp, entered, error)

    on_head = on_get

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        entered = req.get_param("data") or ""
        return self._decoded(view, entered, inputs_of(entered)) if entered.strip() else _form()

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        entered, wanted = _entered(req)
        try:
            self._answer(req, resp, entered, wanted)
        except BadInput as error:
            _send_problem(req, resp, entered, error)

    def _answer(self, req: falcon.Request, resp: falcon.Response, entered: str, wanted: str) -> None:
        """The answer to a POST; ``wanted`` is the name of a file to download, or empty."""
        alternatives = inputs_of(entered)
        if wanted in _DOWNLOADS and alternatives[0].form is Form.CODE:
            _send_file(req, resp, wanted, self._contract(self._reader.current(), alternatives[0]))
            return
        address = _address(entered, alternatives)
        if len(address) <= _ADDRESS_CHARACTERS:
            resp.status = falcon.HTTP_303
            resp.set_header("Location", f"/decode/?data={address}")
            return
        resp.set_header("Cache-Control", "no-store")
        send(req, resp, self._decoded(self._reader.current(), entered, alternatives))

    def _contract(self, view: View, input: Input) -> ShownContract:
        return shown_contract(explained(view, self._codes, input))

    def _decoded(self, view: View, entered: str, alternatives: list[Input]) -> bytes:
        if alternatives[0].form is Form.CODE:
            address = _address(entered, alternatives)
            return rendered(
                "contract.html", here="/decode/", entered=entered, problem="", examples=_EXAMPLES, downloads=_DOWNLOADS,
                contract=self._contract(view, alternatives[0]), json=_json(address),
            )  # fmt: skip
        readings = read_alternatives(view, alternatives)
        address = _address(entered, alternatives)
        data = readings[0].data
        first = 0 if readings[0].form is Form.LOG else 4
        return rendered(
            "decode.html", here="/decode/", entered=entered, problem="", examples=_EXAMPLES,
            shown=[shown_reading(reading) for reading in readings],
            json=_json(address),
            words=_words(data, first), all_words=-(-(len(data) - first) // WORD_BYTES),
        )  # fmt: skip


def inputs_of(entered: str) -> list[Input]:
    """The alternatives of what was entered; raises BadInput."""
    if not entered.strip():
        raise BadInput("nothing was entered")
    return whole(inputs_of_text(entered))


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
    return f"/api/v1/decode/?data={address}" if len(address) <= _ADDRESS_CHARACTERS else ""


def _entered(req: falcon.Request) -> tuple[str, str]:
    """The data of a POST, and the file that it wants; empty where a field is missing or blank. Raises HttpError."""
    try:
        fields = bodies.fields_of(req, BODY_BYTES)
        wanted = fields.get("download")
        return bodies.text_field(fields, "data"), wanted if isinstance(wanted, str) else ""
    except HttpError as error:
        if error.status != 400:
            raise
        return "", ""


def _send_file(req: falcon.Request, resp: falcon.Response, name: str, contract: ShownContract) -> None:
    """Answer with the ABI or the Solidity interface as a file of this name."""
    text = contract.solidity if name == _SOLIDITY_FILE else contract.abi
    resp.content_type = JSON if name == _ABI_FILE else "text/plain; charset=utf-8"
    resp.downloadable_as = name
    resp.set_header("Cache-Control", "no-store")
    resp.data = packed(req, resp, text.encode())


def _send_problem(req: falcon.Request, resp: falcon.Response, entered: str, error: BadInput) -> None:
    resp.status = falcon.HTTP_400
    resp.set_header("Cache-Control", "no-store")
    send(req, resp, _form(entered, error.problem))


def _form(entered: str = "", problem: str = "") -> bytes:
    return rendered(
        "decode.html", here="/decode/", entered=entered, problem=problem, examples=_EXAMPLES, shown=[]
    )  # fmt: skip


def _words(data: bytes, first: int) -> list[tuple[int, str]]:
    """The words from byte ``first`` on, as hex, each with its place; places count as in the reasons."""
    stop = min(len(data), first + _MAX_WORDS * WORD_BYTES)
    return [(at, "0x" + data[at : at + WORD_BYTES].hex()) for at in range(first, stop, WORD_BYTES)]
