"""The candidates of an ABI or of Solidity that was sent."""

from __future__ import annotations

from typing import Any

from sigdir.pipeline.formats.solidity import (
    MAX_POSTED_TOKENS,
    MAX_TOKENS,
    declarations,
    has_too_many_tokens,
    is_too_long_to_post,
)
from sigdir.serve.http.bodies import Upload, loads
from sigdir.serve.http.errors import field_error
from sigdir.signatures.abi import abi_entry, has_no_selector
from sigdir.signatures.candidates import Entry


def abi_entries(text: str) -> list[Entry]:
    """The candidates of an ABI given as JSON text; raises HttpError.

    ABIs that 4byte.directory refuses are accepted too: errors, receive entries, functions without outputs.
    """
    try:
        abi = loads(text)
    except (ValueError, RecursionError):
        raise field_error("contract_abi", "Invalid JSON") from None
    if not isinstance(abi, list) or not all(map(_is_abi_entry, abi)):
        raise field_error("contract_abi", "Could not validate ABI")
    return [abi_entry(item, number) for number, item in enumerate(abi, 1) if not has_no_selector(item["type"])]


def _is_abi_entry(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.setdefault("type", "function")
    if has_no_selector(kind):
        return True
    if kind not in ("function", "event", "error") or not isinstance(item.get("name"), str) or not item["name"]:
        return False
    inputs = item.get("inputs")
    return isinstance(inputs, list) and all(isinstance(i, dict) and isinstance(i.get("type"), str) for i in inputs)


def solidity_entries(fields: dict[str, Any]) -> list[Entry]:
    """The candidates of ``source_code`` and ``source_file``; raises HttpError. Both may be missing."""
    sources = []
    if "source_code" in fields:
        sources.append(_checked("source_code", _source_code(fields["source_code"])))
    if "source_file" in fields:
        sources.append(_checked("source_file", _source_file(fields["source_file"])))
    return [entry for code in sources for entry in declarations(code)]


def _source_code(value: Any) -> bytes:
    if value is None:
        raise field_error("source_code", "This field may not be null.")
    text = (value.data.decode("utf-8", "replace") if isinstance(value, Upload) else str(value)).strip()
    if not text:
        raise field_error("source_code", "This field may not be blank.")
    return text.encode("utf-8", "replace")


def _source_file(value: Any) -> bytes:
    if value is None:
        raise field_error("source_file", "This field may not be null.")
    if not isinstance(value, Upload):
        text = "The submitted data was not a file. Check the encoding type on the form."
        raise field_error("source_file", text)
    if not value.data:
        raise field_error("source_file", "The submitted file is empty.")
    return value.data


def _checked(field: str, code: bytes) -> bytes:
    if has_too_many_tokens(code):
        raise field_error(field, f"Ensure this source has at most {MAX_TOKENS} words and marks.")
    if is_too_long_to_post(code):
        most = f"at most {MAX_POSTED_TOKENS} words and marks outside of bodies and comments"
        raise field_error(field, f"Ensure this source has {most}.")
    return code
