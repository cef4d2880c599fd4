"""Rust with Solidity in it: alloy's `sol! { ... }` and Stylus' `sol_interface!`. The Solidity reader reads what is inside.

All other code is blanked, so that lines keep their numbers, and so are Rust's attributes inside a block. A function that
stands in no contract has a selector here. A block that names an ABI file or has a macro's variables holds no Solidity.
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
_CONTRACT = "sol"
"""What functions of no contract are known by."""
_TOKEN = re.compile(
    r"""//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?
    | \bb?r(?P<hashes>\#{0,8})"(?:[^"]|"(?!(?P=hashes)))*+ (?:"(?P=hashes))?
    | "(?:[^"\\]|\\.)*+"? | '(?:[^'\\\n]|\\[^\n])'
    | \bsol(?:_interface)?!\s*+(?P<block>[({\[])
    | (?P<attribute>\#!?\[) | (?P<open>[({\[]) | (?P<close>[)}\]])""",
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
    project = solidity.Project([source.path])
    project.add_code(source.number, absolute_path(source.path), code, _CONTRACT)
    return project.read()


def _solidity(_name: str, raw: bytes) -> bytes:
    """The Solidity of all blocks, at its lines."""
    if b"sol" not in raw:
        return b""
    code, at = raw.decode(*_CODEC), 0
    written: list[str] = []
    for start, end in _kept(code):
        written += [_blank(code[at:start]), code[start:end]]
        at = end
    return "".join([*written, " "]).encode(*_CODEC)


def _kept(code: str) -> Iterator[tuple[int, int]]:
    """The places of Solidity: blocks without their attributes."""
    depth = attribute = at = 0  # the depth inside of an attribute is 0 outside of attributes
    spans: list[tuple[int, int]] = []
    for found in _TOKEN.finditer(code):
        kind, (start, end) = found.lastgroup, found.span()
        if not depth:
            if kind == "block":
                depth, attribute, at, spans = 1, 0, end, []
        elif kind in ("block", "open", "attribute"):
            depth += 1
            if kind == "attribute" and not attribute:
                spans.append((at, start))
                attribute = depth
        elif kind == "close":
            depth -= 1
            if attribute > depth:
                attribute, at = 0, end
            elif not depth:
                spans.append((at, start))
                if not _NO_SOLIDITY.match(" ".join(code[first:last] for first, last in spans)):
                    yield from spans


def _blank(code: str) -> str:
    return "\n" * code.count("\n") + " "
