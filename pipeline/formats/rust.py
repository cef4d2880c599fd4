"""Rust with Solidity in it: alloy's `sol! { ... }` and Stylus' `sol_interface!`. The Solidity reader reads what is inside.

All other code is blanked, so that lines keep their numbers, and so are Rust's attributes inside a block. A function that
stands in no contract has a selector here, so it is put into an interface of its own. A block that names an ABI file
or has a macro's variables holds no Solidity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import solidity
from sigdir.pipeline.formats.contracts import absolute_path
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import ReadTask

_CODEC = ("utf-8", "surrogateescape")
_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    | \bb?r(?P<hashes>\#{0,8})"(?:[^"]|"(?!(?P=hashes)))*+ (?:"(?P=hashes))?
    | "(?:[^"\\]|\\.)*+"? | '(?:[^'\\\n]|\\[^\n])'
    | \bsol(?:_interface)?!\s*+(?P<block>[({\[])
    | (?P<attribute>\#!?\[) | \b(?P<function>function)\b
    | (?P<open>[({\[]) | (?P<close>[)}\]]) | (?P<end>;)""",
    re.VERBOSE | re.DOTALL,
)
_NO_SOLIDITY = re.compile(r'\s*+(?:\w++\s*+,\s*+)?(?:r?\#{0,8}"|\$|concat!)')


def looks_like(source: Source) -> bool:
    """By the file's name and a block in it."""
    return source.has_ending(".rs") and source.parsed(_solidity, "Rust source").strip() != b""


def read(source: Source) -> Iterator[ReadTask]:
    code = source.parsed(_solidity, "Rust source")
    if solidity.has_too_many_tokens(code):
        raise BadInput(source.name, f"Solidity of over {solidity.MAX_TOKENS:,} words and marks")
    with solidity.Project([source.path]) as project:
        project.add_code(source.number, absolute_path(source.path), code)
        yield from project.read()


def _solidity(_name: str, raw: bytes) -> bytes:
    """The Solidity of all blocks, at its lines."""
    if b"sol" not in raw:
        return b""
    code = raw.decode(*_CODEC)
    written: list[str] = []
    block = _Block(code, 0)
    for found in _TOKEN.finditer(code):
        if block.depth:
            block.take(str(found.lastgroup), found[0], *found.span())
            if not block.depth:
                written += block.solidity()
        elif found.lastgroup == "block":
            written.append(_blank(code[block.at : found.end()]))
            block = _Block(code, found.end(), depth=1)
    return "".join(written).encode(*_CODEC)


class _Block:
    """A block that is open: what is written of it so far, and the brackets around the place ``at``."""

    def __init__(self, code: str, at: int, depth: int = 0) -> None:
        self.depth, self.at = depth, at
        self._code = code
        self._parts: list[str] = []
        self._attribute = 0
        """The depth inside of the attribute in work; 0 outside of attributes."""
        self._has_function = False
        """Whether a function of no contract is open."""

    def take(self, kind: str, mark: str, start: int, end: int) -> None:
        if kind == "comment":
            self._write(start)
            self._parts.append(_blank(mark))
            self.at = end
        elif kind in ("open", "attribute", "block"):
            self.depth += 1
            if kind == "attribute" and not self._attribute:
                self._write(start)
                self._attribute = self.depth
        elif kind == "close":
            self.depth -= 1
            if self._attribute > self.depth:
                self._write(end)
                self._attribute = 0
            elif not self.depth:
                self._write(start)
                self.at = end
        if self.depth == 1 and not self._attribute:
            if kind == "function" and not self._has_function:
                self._write(start)
                self._parts.append("interface sol { ")
                self._has_function = True
            elif self._has_function and (kind == "end" or (kind == "close" and mark == "}")):
                self._write(end)
                self._parts.append(" }")
                self._has_function = False

    def _write(self, end: int) -> None:
        part = self._code[self.at : end]
        self._parts.append(_blank(part) if self._attribute else part)
        self.at = end

    def solidity(self) -> list[str]:
        text = "".join(self._parts)
        return [_blank(text) if _NO_SOLIDITY.match(text) else text, " "]


def _blank(code: str) -> str:
    return "\n" * code.count("\n") + " "
