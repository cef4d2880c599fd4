"""Decode: calldata as values, by each text of its selector; those texts that do not fit below, with the reason."""

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
from sigdir.signatures.calldata import (
    MAX_BYTES,
    BadCalldata,
    DecodeAttempt,
    Type,
    as_json,
    calldata,
)
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.view import View

# An address that anybody's proxy takes, and that can be passed on; longer data stays in the form.
_ADDRESS_DIGITS = 6000
_SHOWN_VALUES = 500
_SHOWN_CHARACTERS = 2000

EXAMPLE = "0xa9059cbb" + "742d35cc6634c0532925a3b844bc454e4438f44e".zfill(64) + f"{10**18:064x}"


@dataclass(frozen=True, slots=True)
class Shown:
    """A value to show: ``text`` or, of tuples and arrays, ``items`` and how many are ``more`` than shown.

    ``note`` says what the value is besides; ``inner`` is calldata that can be decoded in its turn.
    """

    type: str
    text: str = ""
    items: tuple[Shown, ...] | None = None
    more: int = 0
    note: str = ""
    inner: str = ""


class _Room:
    """How many values a page still shows."""

    def __init__(self) -> None:
        self.left = _SHOWN_VALUES


def shown(type: Type, value: Any, room: _Room) -> Shown:
    """A value as the page has it."""
    if type.members is not None or type.element is not None:
        types = type.members or (type.element,) * len(value)
        items: list[Shown] = []
        for one, inner in zip(types, value, strict=True):
            if room.left <= 0:
                break
            items.append(shown(one, inner, room))  # type: ignore[arg-type]
        return Shown(type.text, items=tuple(items), more=len(value) - len(items))
    room.left -= 1
    told = as_json(type, value)
    text = str(told).lower() if isinstance(told, bool) else str(told)
    if len(text) > _SHOWN_CHARACTERS:
        return Shown(type.text, text[:_SHOWN_CHARACTERS], note=f"… {_size(value)} in all")
    return Shown(type.text, text, note=_note(type.text, value), inner=_inner(type.text, value))


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
class Fit:
    """A candidate as the page shows it."""

    candidate: DecodeAttempt
    is_filtered: bool
    values: tuple[Shown, ...]

    @classmethod
    def of(cls, selector: bytes, candidate: DecodeAttempt) -> Fit:
        room = _Room()
        pairs = zip(candidate.types, candidate.values or (), strict=False)
        values = tuple(shown(type, value, room) for type, value in pairs)
        return cls(candidate, is_filtered(selector, candidate.text), values)


class DecodePage(ViewPage):
    """The form, and below it what was asked for with it; short data as an address that can be passed on."""

    kind = HTML

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        given = req.get_param("data") or ""
        try:
            if given.strip():
                calldata(given)
        except BadCalldata as error:
            self._fault(req, resp, given, error, 400)
            return
        super().on_get(req, resp)

    on_head = on_get

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        given = req.get_param("data") or ""
        return _page(view, given, calldata(given) if given.strip() else b"")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        try:
            given = bodies.text_field(bodies.fields_of(req, BODY_BYTES), "data")
        except HttpError as refusal:
            if refusal.status != 400:
                raise
            given = ""
        try:
            data = calldata(given)
        except BadCalldata as error:
            self._fault(req, resp, given, error, 400)
            return
        if 2 * len(data) <= _ADDRESS_DIGITS:
            resp.status = falcon.HTTP_303
            resp.set_header("Location", f"/decode/?data=0x{data.hex()}")
            return
        resp.set_header("Cache-Control", "no-store")
        send(req, resp, _page(self._reader.current(), given, data))

    def _fault(self, req: falcon.Request, resp: falcon.Response, given: str, error: BadCalldata, status: int) -> None:
        resp.status = falcon.code_to_http_status(status)
        resp.set_header("Cache-Control", "no-store")
        fault = str(error).removeprefix("calldata: ")
        send(req, resp, rendered("decode.html", here="/decode/", given=given, fault=fault, example=EXAMPLE, data=None))


def _page(view: View, given: str, data: bytes) -> bytes:
    if not data:
        return rendered("decode.html", here="/decode/", given="", fault="", example=EXAMPLE, data=None)
    selector = data[:4]
    found, texts = candidates(view, data)
    fits = [Fit.of(selector, candidate) for candidate in found]
    digits = data.hex()
    return rendered(
        "decode.html", here="/decode/", given=given, fault="", example=EXAMPLE, data=data, selector="0x" + selector.hex(),
        address=hash_address(SIGNATURES, selector), texts=texts, tried=MAX_TEXTS,
        fitting=[fit for fit in fits if fit.candidate.values is not None],
        others=[fit for fit in fits if fit.candidate.values is None],
        json=f"/api/v1/decode/?data=0x{digits}" if len(digits) <= _ADDRESS_DIGITS else "", most=MAX_BYTES,
        decodable=_ADDRESS_DIGITS,
    )  # fmt: skip
