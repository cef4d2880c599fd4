"""Descriptors for clear signing (ERC-7730): which functions a contract has, and how calls of them are shown to a signer.

A descriptor may include another one by a path. It is resolved among the inputs of the import, so it cannot lead out of the
folder or archive that was named, and to no address.

Invariants
    A descriptor that the schema refuses, whose includes lead to itself or to no input, or that names what it does not have
    gives nothing: it is a fault with the path of what is wrong. The other inputs are read.
    All includes of an import together are merged to at most ``MAX_MERGED`` times the size of its descriptors.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.clear_signing.descriptor import BadDescriptor, entries_of, merged, problem_of
from sigdir.pipeline.formats.json_reader import is_document
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import ReadTask, pack
from sigdir.signatures.evidence import Contract

MAX_BYTES = 4 << 20
MAX_INCLUDES = 8
"""One behind the other."""
MAX_MERGED = 64
_SPARE = 16 << 20
_SCHEMA = re.compile(r"erc7730-v\d[^/]*\Z")


def looks_like(source: Source) -> bool:
    return is_document(source) and _is_descriptor(source.document())


def _is_descriptor(value: Any) -> bool:
    """Whether a JSON value names the standard's schema, or has the parts that only a descriptor has."""
    if not isinstance(value, dict):
        return False
    if _SCHEMA.search(str(value.get("$schema"))):
        return True
    context, display = value.get("context"), value.get("display")
    return isinstance(context, dict) and isinstance(display, dict) and "formats" in display


def read(source: Source) -> Iterator[ReadTask]:
    """The candidates of one descriptor that stands alone."""

    def refuse(_number: int, error: BadInput) -> None:
        raise error

    descriptors = Descriptors(refuse)
    descriptors.add(source)
    return descriptors.read()


class _Descriptor(NamedTuple):
    name: str
    number: int
    is_explicit: bool
    path: str
    below: str
    document: dict[str, Any]
    size: int


class Descriptors:
    """The descriptors of one import. Takes all, then yields the candidates of each."""

    def __init__(self, refuse: Callable[[int, BadInput], None]) -> None:
        """``refuse`` takes the number of a descriptor that was found in a folder or an archive, and its fault."""
        self._refuse = refuse
        self._found: dict[str, _Descriptor] = {}
        self._waiting: list[_Descriptor] = []
        self._left = _SPARE

    def add(self, source: Source) -> None:
        """Keep an open source; raises BadInput where the schema refuses it."""
        raw = source.read_all("descriptor")
        if len(raw) > MAX_BYTES:
            raise BadInput(source.name, f"a descriptor of over {MAX_BYTES >> 20} MiB")
        document = source.document()
        problem = problem_of(document)
        if problem:
            raise BadInput(source.name, f"not a descriptor of ERC-7730: {problem}")
        path = posixpath.normpath(source.path)
        one = _Descriptor(source.name, source.number, source.explicit, path, source.below, document, len(raw))
        self._found[path] = one
        self._waiting.append(one)
        self._left += MAX_MERGED * len(raw)

    def read(self) -> Iterator[ReadTask]:
        """The candidates of all descriptors, in the order of ``add``."""
        for one in self._waiting:
            try:
                document = self._resolved(one, [one.path])
                name = str(document.get("metadata", {}).get("contractName") or posixpath.basename(one.path))
                entries = list(entries_of(document, Contract.at(one.below, name)))
            except BadDescriptor as error:
                fault = BadInput(one.name, f"not a descriptor of ERC-7730: {error}")
                if one.is_explicit:
                    raise fault from None
                self._refuse(one.number, fault)
            else:
                yield from pack(entries, one.number)

    def _resolved(self, one: _Descriptor, chain: list[str]) -> dict[str, Any]:
        """The document with what it includes, one behind the other; ``chain`` has the paths that lead here."""
        include = one.document.get("includes")
        if include is None:
            return one.document
        shown = json.dumps(include[:200])
        if ":" in include or include.startswith("/"):
            raise BadDescriptor("$.includes", f"{shown} is no path in the imported folder")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(one.path), include))
        if path in chain:
            raise BadDescriptor("$.includes", f"{shown} leads back to this descriptor")
        if path not in self._found:
            raise BadDescriptor("$.includes", f"{shown} is none of the descriptors of this import")
        if len(chain) > MAX_INCLUDES:
            raise BadDescriptor("$.includes", f"over {MAX_INCLUDES} descriptors one behind the other")
        included = self._found[path]
        self._left -= included.size
        if self._left < 0:
            raise BadDescriptor("$.includes", "the descriptors of this import include too much")
        found: dict[str, Any] = merged(self._resolved(included, [*chain, path]), one.document)
        return found
