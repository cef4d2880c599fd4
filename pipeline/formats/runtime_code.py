"""The runtime code beside an ABI, in the artifacts of Hardhat, Foundry, Truffle, Brownie, Remix and Ape, in the output of
solc and Vyper, and in Sourcify's answers.

Each puts it under another name, as hex digits or as an object that holds them. Where an artifact has creation code
alone, the runtime code inside of it is used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from sigdir.pipeline.source import OVER_TIME, BytecodeCounts
from sigdir.signatures.bytecode import (
    BadBytecode,
    RuntimeCode,
    kind_of,
    runtime_code,
    runtime_code_of_creation,
    witnessed,
)
from sigdir.signatures.candidates import Entry
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.grammar import OK

_RUNTIME_KEYS = ("deployedBytecode", "bin-runtime", "bytecode_runtime", "runtimeBytecode")
_CREATION_KEYS = ("bytecode", "bin", "Bin", "creationBytecode", "deploymentBytecode")
_INNER_KEYS = ("object", "onchainBytecode", "recompiledBytecode", "bytecode")
_HOLDER_KEYS = ("evm", "data")

_SECONDS = 10.0
"""The time for the bytecodes of one input. 3 M honest contracts take as long; hostile ones take up to a second each."""


class CodeChecker:
    """Checks the ABIs of one input against the bytecode beside them."""

    def __init__(self, counts: BytecodeCounts) -> None:
        self._counts = counts
        self._left = _SECONDS
        self._text: str | None = None
        self._code: RuntimeCode | None = None
        self._fits = True

    def check(self, entries: Iterable[Entry], holder: dict[str, Any]) -> Iterable[Entry]:
        """The entries of the ABI in ``holder``, with their witness where it holds readable bytecode."""
        code = self._code_in(holder)
        return entries if code is None else self._counted(witnessed(entries, code))

    def _code_in(self, holder: dict[str, Any]) -> RuntimeCode | None:
        for read, keys in ((runtime_code, _RUNTIME_KEYS), (runtime_code_of_creation, _CREATION_KEYS)):
            text = _code_text(holder, keys)
            if text is None:
                continue
            if text is not self._text:  # solc's output has the ABI and the identifiers of one contract
                self._text, self._fits = text, True
                self._code = self._analysed(read, text)
            return self._code
        return None

    def _analysed(self, read: Any, text: str) -> RuntimeCode | None:
        if self._left < 0:
            self._counts.unread[OVER_TIME] += 1
            return None
        began = time.monotonic()
        try:
            code: RuntimeCode = read(text)
        except BadBytecode as error:
            self._counts.unread[error.reason] += 1
            return None
        finally:
            self._left -= time.monotonic() - began
        self._counts.contracts += 1
        return code

    def _counted(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if entry.sighting.witness is Witness.COMPILED:
                self._counts.compiled += 1
            elif entry.reject_reason == OK:
                self._counts.declared += 1
                if self._fits and kind_of(entry) is Kind.FUNCTION:
                    self._fits = False
                    self._counts.misfits += 1
            yield entry


def _code_text(holder: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The hex digits under one of the keys; None where there are none. An interface has an empty bytecode."""
    for place in (holder, *(holder.get(key) for key in _HOLDER_KEYS)):
        if isinstance(place, dict):
            for key in keys:
                value = place.get(key)
                if isinstance(value, dict):
                    value = next((value[inner] for inner in _INNER_KEYS if value.get(inner)), None)
                if isinstance(value, str) and value.strip() not in ("", "0x"):
                    return value
    return None
