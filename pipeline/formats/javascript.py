"""JavaScript and TypeScript with ABIs in them: TypeChain's factories, wagmi's output, `parseAbi([...])`.

Go's texts and comments are written alike, so abigen's bindings with their ABI as a text are read in the same way.

Lists and objects that are written out are read, nothing is run: see ``javascript_literals.py``. What a spread, a
variable or a call puts into an ABI stands elsewhere; it is one reject, as is an entry with such a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.formats.javascript_literals import parse_literals
from sigdir.pipeline.formats.json_contracts import holds_something, read_value
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import ReadTask

ENDINGS = (*(f".{module}{language}s{x}" for module in ("", "c", "m") for language in "jt" for x in ("", "x")), ".go")
_SIGN = re.compile(rb"""\binputs\\?["']?\s*:|["'`](?:function|event|error)\s+[\w$]+\s*\(""")
"""What a source with an ABI has somewhere. A source without it, as most are, is not parsed."""


def is_javascript(source: Source) -> bool:
    """Whether a file's name is that of JavaScript, TypeScript or Go."""
    return source.has_ending(*ENDINGS)


def looks_like(source: Source) -> bool:
    """By its name and by an ABI in it, because a source may begin with anything."""
    if not is_javascript(source) or b"\0" in source.head:  # a film may be called .ts
        return False
    return holds_something(source, source.parsed(_literals, "JavaScript source"))


def read(source: Source) -> Iterator[ReadTask]:
    return read_value(source, source.parsed(_literals, "JavaScript source"))


def _literals(name: str, raw: bytes) -> Any:
    return parse_literals(name, raw) if _SIGN.search(raw) else None
