"""A contract's bytecode to its interface, by the texts of the directory. ``sigdir.signatures.contract`` finds it.

A child process runs evmole, which holds the GIL, cannot be interrupted and takes seconds for hostile code: other
requests must not wait for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from sigdir.signatures import dispatcher
from sigdir.signatures.contract import ContractCode, ContractInterface, codes_of, contract_code, interface_of
from sigdir.signatures.decode_input import BadInput, code_input
from sigdir.signatures.dispatcher import HEAD, CodeFunction, decoded_functions
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.given_contract import AbiContract, CodeContract, contract_of_abi
from sigdir.signatures.readings import Input
from sigdir.warehouse.index.known import texts_of_hashes
from sigdir.warehouse.index.view import View

SECONDS = 1.0
"""Of processor time, for the codes of one request. A contract's code takes a few milliseconds."""
_STUCK_SECONDS = 60.0


class SlowCode(SigdirError):
    """Code whose functions are not found in time."""


class CodeReader:
    """Reads the functions of code in a child process, which is started when it is needed and replaced when it ends.

    The kernel ends it when a code takes more processor time than it may have.
    """

    def __init__(self, stuck_seconds: float = _STUCK_SECONDS) -> None:
        """``stuck_seconds`` is how long the child may be silent, however busy the machine is."""
        self._stuck_seconds = stuck_seconds
        self._lock = threading.Lock()
        self._stop: weakref.finalize[Any, CodeReader] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, given: bytes, libraries: int = 0, seconds: float = SECONDS) -> ContractCode:
        """Runtime or creation code, in which so many libraries are not linked. Raises SlowCode.

        Each code that may be meant has ``seconds`` of processor time.
        """
        for code in codes_of(given):
            functions = self._functions_of(code, seconds)
            if functions:
                break
        return contract_code(code, functions, libraries, is_creation=code is not given)

    def close(self) -> None:
        """End the child process."""
        if self._stop is not None:
            self._stop()
        self._process = None

    def _functions_of(self, code: bytes, seconds: float) -> tuple[CodeFunction, ...]:
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            try:
                process.stdin.write(HEAD.pack(len(code), seconds) + code)
                process.stdin.flush()
                line = _line(process, self._stuck_seconds)
            except BrokenPipeError:
                line = b""
            if not line.endswith(b"\n"):
                self.close()
                raise SlowCode(f"its functions cannot be read, or not within {seconds:g} s of processor time")
        return decoded_functions(line)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-I", dispatcher.__file__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._stop = weakref.finalize(self, _end, self._process)
            # It writes an empty line when it is ready. A line that came later would be read as its first answer.
            if _line(self._process, self._stuck_seconds) != b"\n":
                self.close()
                raise SlowCode(f"the process that reads code has not started within {self._stuck_seconds:g} s")
        return self._process


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """The line that a child writes, or what there is of it in time."""
    assert process.stdout is not None
    until, line = time.monotonic() + seconds, b""
    with DefaultSelector() as selector:
        selector.register(process.stdout, EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(0.0, until - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            line += piece
    return line


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def explain(view: View, code: ContractCode) -> ContractInterface:
    """The interface of code by the texts of a view"""
    return interface_of(code, texts_of_hashes(view, code.hashes))


def given_contract(
    codes: CodeReader, code: Any, abi: Any, seconds: float = SECONDS
) -> AbiContract | CodeContract | None:
    """The contract that is given with an input, as hex digits of its code or as its ABI; None for neither. Raises BadInput."""
    if code is not None and abi is not None:
        raise BadInput("give a contract's code or its ABI, not both", "abi")
    if abi is not None:
        return contract_of_abi(abi)
    if code is None:
        return None
    if not isinstance(code, str):
        raise BadInput("a text of hex digits", "code")
    input = code_input(code)
    return CodeContract(_read(codes, input, seconds))


def _read(codes: CodeReader, input: Input, seconds: float) -> ContractCode:
    """The code of an input; raises BadInput where its functions cannot be read."""
    try:
        return codes.read(input.data, input.libraries, seconds)
    except SlowCode as error:
        raise BadInput(str(error), "code") from None


def explained(view: View, codes: CodeReader, input: Input, seconds: float = SECONDS) -> ContractInterface:
    """The interface of an input that is code; raises BadInput where its functions cannot be read."""
    return explain(view, _read(codes, input, seconds))
