"""Decode: the values of calldata under each signature with its selector, and why other signatures do not decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import falcon

from sigdir.serve.decode import BODY_BYTES, MAX_TEXTS, candidates
from sigdir.serve.http import bodies
from sigdir.serve.http.errors import HttpError
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.pages.page import ViewPage, rendered, send
from sigdir.serve.pages.rows import hash_address
from sigdir.signatures.calldata import BadCalldata, as_json, calldata
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.decode_attempt import DecodeAttempt
from sigdir.signatures.standards import is_filtered
from sigdir.signatures.types import Type
from sigdir.warehouse.index.view import View

# Any proxy accepts an address of this length. Longer data has no address and is answered to the POST itself.
_ADDRESS_DIGITS = 6000
_MAX_VALUES = 500
_MAX_CHARACTERS = 2000
_MAX_WORDS = 200
_WORD = 32

EXAMPLE = "0xa9059cbb" + "742d35cc6634c0532925a3b844bc454e4438f44e".zfill(64) + f"{10**18:064x}"


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value on the page: ``text``, or for tuples and arrays ``items`` and how many ``more`` are not shown.

    ``note`` adds a remark, such as the size; ``inner`` is calldata inside the value, which has a page of its own.
    """

    type: str
    text: str = ""
    items: tuple[ShownValue, ...] | None = None
    more: int = 0
    note: str = ""
    inner: str = ""


class _Budget:
    """How many more values a page may show."""

    def __init__(self) -> None:
        self.left = _MAX_VALUES


def shown(type: Type, value: Any, budget: _Budget) -> ShownValue:
    """A value as the page shows it."""
    if type.members is not None or type.element is not None:
        types = type.members or (type.element,) * len(value)
        items: list[ShownValue] = []
        for item_type, item in zip(types, value, strict=True):
            if budget.left <= 0:
                break
            items.append(shown(item_type, item, budget))  # type: ignore[arg-type]
        return ShownValue(type.text, items=tuple(items), more=len(value) - len(items))
    budget.left -= 1
    json = as_json(type, value, checksums=True)
    text = str(json).lower() if isinstance(json, bool) else str(json)
    if len(text) > _MAX_CHARACTERS:
        return ShownValue(type.text, text[:_MAX_CHARACTERS], note=f"… {_size(value)} in all")
    return ShownValue(type.text, text, note=_note(type.text, value), inner=_inner(type.text, value))


def _size(value: Any) -> str:
    return f"{len(value):,} {'bytes' if isinstance(value, bytes) else 'characters'}"


def _note(type: str, value: Any) -> str:
    if type == "bytes":
        return _size(value)
    if type.startswith("uint") and value and value == 2 ** int(type[4:]) - 1:
        return f"the largest {type}"
    return "empty" if value == "" else ""


def _inner(type: str, value: Any) -> str:
    is_call = type == "bytes" and len(value) >= 4 and len(value) % 32 == 4
    return "0x" + value.hex() if is_call else ""


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """A signature tried on the data, as the page shows it."""

    attempt: DecodeAttempt
    is_filtered: bool
    values: tuple[ShownValue, ...]

    @classmethod
    def of(cls, selector: bytes, attempt: DecodeAttempt) -> ShownAttempt:
        budget = _Budget()
        pairs = zip(attempt.types, attempt.values or (), strict=False)
        values = tuple(shown(type, value, budget) for type, value in pairs)
        return cls(attempt, is_filtered(selector, attempt.text), values)


class DecodePage(ViewPage):
    """The form, and below it the decoded data. Short data has an address that can be shared."""

    kind = HTML

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        entered = req.get_param("data") or ""
        try:
            if entered.strip():
                calldata(entered)
        except BadCalldata as error:
            _send_problem(req, resp, entered, error)
            return
        super().on_get(req, resp)

    on_head = on_get

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        entered = req.get_param("data") or ""
        return _decoded(view, entered, calldata(entered)) if entered.strip() else _form()

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        entered = _entered(req)
        try:
            data = calldata(entered)
        except BadCalldata as error:
            _send_problem(req, resp, entered, error)
            return
        if 2 * len(data) <= _ADDRESS_DIGITS:
            resp.status = falcon.HTTP_303
            resp.set_header("Location", f"/decode/?data=0x{data.hex()}")
            return
        resp.set_header("Cache-Control", "no-store")
        send(req, resp, _decoded(self._reader.current(), entered, data))


def _entered(req: falcon.Request) -> str:
    """The data of a POST, empty if the field is missing or blank; raises HttpError."""
    try:
        return bodies.text_field(bodies.fields_of(req, BODY_BYTES), "data")
    except HttpError as error:
        if error.status != 400:
            raise
        return ""


def _send_problem(req: falcon.Request, resp: falcon.Response, entered: str, error: BadCalldata) -> None:
    resp.status = falcon.HTTP_400
    resp.set_header("Cache-Control", "no-store")
    send(req, resp, _form(entered, str(error).removeprefix("calldata: ")))


def _form(entered: str = "", problem: str = "") -> bytes:
    return rendered("decode.html", here="/decode/", entered=entered, problem=problem, example=EXAMPLE, data=None)


def _words(data: bytes) -> list[tuple[int, str]]:
    """The words after the selector, as hex, each with its place; bytes count from the selector's first, as in errors."""
    stop = min(len(data), 4 + _MAX_WORDS * _WORD)
    return [(at, "0x" + data[at : at + _WORD].hex()) for at in range(4, stop, _WORD)]


def _decoded(view: View, entered: str, data: bytes) -> bytes:
    selector = data[:4]
    attempts, texts = candidates(view, data)
    all_shown = [ShownAttempt.of(selector, attempt) for attempt in attempts]
    digits = data.hex()
    return rendered(
        "decode.html", here="/decode/", entered=entered, problem="", example=EXAMPLE, data=data,
        selector="0x" + selector.hex(), address=hash_address(SIGNATURES, selector), texts=texts, tried=MAX_TEXTS,
        decoded=[one for one in all_shown if one.attempt.values is not None],
        failed=[one for one in all_shown if one.attempt.values is None],
        json=f"/api/v1/decode/?data=0x{digits}" if len(digits) <= _ADDRESS_DIGITS else "",
        max_digits=_ADDRESS_DIGITS, words=_words(data), all_words=-(-(len(data) - 4) // _WORD),
    )  # fmt: skip
