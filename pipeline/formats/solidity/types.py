"""Types as written to types of the ABI: names are looked up, structs become tuples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sigdir.pipeline.formats.solidity.constants import Number, array_length, converted, folded, integer_type
from sigdir.pipeline.formats.solidity.source_unit import Definition, Parameter, Unit, WrittenType
from sigdir.signatures.grammar import LIBRARY_TYPE, MAX_TEXT_BYTES, OK, UNKNOWN_TYPE

_STEP = 16
"""The cost of a struct member, and of looking into a contract."""
_LOOK = 4
"""The cost of looking into a file."""
_MOST_BASES = 256
"""The most contracts that a name is looked up in. Real contracts inherit from some dozens."""
_NAMED_IN_LIBRARIES = ("struct", "enum", "contract")
"""What a library's functions name in their selectors."""
_TO_BRACKET = re.compile(r"([^\[\]]*+)([\[\]]|\Z)")
_KEYWORD = re.compile(r"u?int[0-9]*|bytes[0-9]*|address|bool|string|function")
"""Types that a source cannot redefine."""


def _has_dot(text: str) -> bool:
    """Whether a dot stands outside of the lengths of arrays."""
    return "." in text and any("." in part and mark != "]" for part, mark in _TO_BRACKET.findall(text))


def _plain(definition: Definition | None, written: str) -> str:
    """A type that is not a tuple; as written if it is unknown."""
    if definition is None or definition.kind in ("struct", "constant", "file"):
        return written
    return definition.text


class Resolved(NamedTuple):
    """The parameters of a declaration."""

    text: str
    reason: int
    """LIBRARY_TYPE, UNKNOWN_TYPE, or OK if the grammar decides."""


class TypeResolver:
    """Resolves the types of one source's declarations. A scope is a contract's name, empty for the file.

    ``budget`` bounds the work. Each character of a resolved type costs 1, each struct member and each
    contract searched _STEP, each file searched _LOOK. Once it is spent, types stay as written. Without
    it, nested structs of two structs each would double with each level, and a function of 20 bytes
    can name them. OpenZeppelin's sources spend at most 0.2 per byte.
    """

    def __init__(self, files: Mapping[str, Unit], path: str, budget: int) -> None:
        self._files = files
        self._path = path
        self._budget = budget
        self._found: dict[tuple[str, str, str], Definition | None] = {}
        self._global: dict[tuple[str, str], Definition | None] = {}
        self._lineages: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._tuples: dict[tuple[str, str, str], str] = {}
        self._values: dict[tuple[str, str, str, bool], Number | None] = {}

    def parameter_list(self, parameters: Sequence[Parameter], scope: str, by_name: bool) -> Resolved:
        """The resolved parameters of a declaration. ``by_name`` keeps names of structs, enums and contracts."""
        text = ",".join([self._text(p.written, scope, by_name) + p.suffix + _named(p.name) for p in parameters])
        if by_name and scope and any(self._is_library_type(p, scope) for p in parameters):
            return Resolved(text, LIBRARY_TYPE)
        # The grammar takes `A.B` for a type of a library. Here it is a name that no given source explains.
        return Resolved(text, UNKNOWN_TYPE if not by_name and _has_dot(text) else OK)

    def value_of_getter(self, value: Parameter, scope: str) -> str:
        """What a getter returns, as a list. Of a struct these are its members without arrays and mappings."""
        definition = self._find(value.written.base, self._path, scope) if not value.written.lengths else None
        if definition is None or definition.kind != "struct" or self._budget < 0:
            return self.parameter_list([value], scope, by_name=False).text
        return ",".join(
            [
                self._member_text(written, definition) + _named(name)
                for written, _, name in definition.members
                if not written.lengths and written.mapped is None
            ]
        )

    def _member_text(self, member: WrittenType, struct: Definition) -> str:
        inner = self._find(member.base, struct.file, struct.scope)
        if inner is None or inner.kind != "struct":
            return _plain(inner, member.base)
        return self._tuple_of(inner)

    def _is_library_type(self, parameter: Parameter, scope: str) -> bool:
        """Whether only functions of libraries have such parameters."""
        definition = self._find(parameter.written.base, self._path, scope)
        is_named = definition is not None and definition.kind in _NAMED_IN_LIBRARIES
        return is_named or parameter.suffix == " storage" or parameter.written.mapped is not None

    def _text(self, written: WrittenType, scope: str, by_name: bool) -> str:
        if self._budget < 0:
            return written.base + "".join(f"[{length}]" for length in written.lengths)
        definition = self._find(written.base, self._path, scope)
        if by_name and definition is not None and definition.kind in _NAMED_IN_LIBRARIES:
            text = f"{definition.scope}.{definition.name}" if definition.scope else definition.name
        elif definition is not None and definition.kind == "struct":
            text = self._tuple_of(definition)
        else:
            text = _plain(definition, written.base)
        text += self._lengths(written, self._path, scope)
        self._budget -= len(text)
        return text

    def _tuple_of(self, struct: Definition) -> str:
        key = _key(struct)
        if key not in self._tuples:
            self._tuples[key] = self._tuple(struct)
        return self._tuples[key]

    def _tuple(self, struct: Definition) -> str:
        """A struct as a tuple, with its nested structs, cut when it is longer than a text may be.

        A struct inside itself stays a name.
        """
        parts, size = ["("], 0
        open_structs = [(struct, iter(struct.members), ")")]
        inside = {_key(struct)}
        while open_structs and size <= MAX_TEXT_BYTES:
            outer, members, closing = open_structs[-1]
            member = next(members, None)
            if member is None:
                open_structs.pop()
                inside.remove(_key(outer))
                parts.append(closing)
                continue
            if parts[-1] != "(":
                parts.append(",")
            written, _, name = member
            lengths = self._lengths(written, outer.file, outer.scope)
            inner = self._find(written.base, outer.file, outer.scope)
            if inner is not None and inner.kind == "struct" and _key(inner) not in inside:
                open_structs.append((inner, iter(inner.members), ")" + lengths + _named(name)))
                inside.add(_key(inner))
                parts.append("(")
            else:
                parts.append(_plain(inner, written.base) + lengths + _named(name))
            size += len(parts[-1])
        self._budget -= _STEP * len(parts)
        return "".join(parts)

    def _lengths(self, written: WrittenType, file: str, scope: str) -> str:
        return "".join([f"[{self._length(length, file, scope)}]" for length in written.lengths])

    def _length(self, written: str, file: str, scope: str) -> str:
        """An array length as a number, if it is a constant expression; otherwise as written."""
        if not written or (written.isdecimal() and not written.startswith("0")):
            return written
        self._budget -= len(written)
        length = array_length(written, partial(self._constant, file, scope)) if self._budget >= 0 else None
        return str(length) if length is not None else written

    def _constant(self, file: str, scope: str, path: str, depth: int, is_old: bool) -> Number | None:
        """The value of a constant; None if the name is not one, or if it is defined by itself."""
        definition = self._find(path, file, scope)
        kind = integer_type(definition.value_type) if definition is not None else None
        if definition is None or kind is None or self._budget < 0:
            return None
        key = (*_key(definition), is_old)
        if key not in self._values:
            self._values[key] = None  # while its own expression is folded
            self._budget -= len(definition.text)
            value_of = partial(self._constant, definition.file, definition.scope)
            number = folded(definition.text, value_of, depth, is_old)
            self._values[key] = converted(number, kind) if number is not None and not is_old else number
        return self._values[key]

    def _find(self, path: str, file: str, scope: str) -> Definition | None:
        """The definition that a path such as `Lib.S` refers to in that scope of that file."""
        key = path, file, scope
        if key not in self._found:
            self._found[key] = None if _KEYWORD.fullmatch(path) else self._resolved(path, file, scope)
        return self._found[key]

    def _resolved(self, path: str, file: str, scope: str) -> Definition | None:
        first, *rest = path.split(".")
        found = self._member(file, scope, first) or self._in_file(file, first)
        for name in rest:
            if found is None or found.kind not in ("contract", "file"):
                return None
            found = (
                self._in_file(found.file, name) if found.kind == "file" else self._member(found.file, found.name, name)
            )
        return found

    def _member(self, file: str, contract: str, name: str) -> Definition | None:
        """The definition of a name in a contract or in one that it inherits from."""
        lineage = self._lineage(file, contract)
        self._budget -= _STEP * len(lineage)
        found = (self._get(file, contract, name) for file, contract in lineage)
        return next(filter(None, found), None)

    def _lineage(self, file: str, contract: str) -> list[tuple[str, str]]:
        """The contract and all known contracts that it inherits from, as (file, contract)."""
        key = file, contract
        lineage = self._lineages.get(key)
        if lineage is None:
            lineage = self._lineages[key] = [key] if contract else []
            seen = {key}
            for where, name in lineage:  # the list grows in the loop
                definition = self._get(where, "", name)
                for base in map(partial(self._base, where), definition.bases if definition else ()):
                    if base is not None and base not in seen and len(lineage) < _MOST_BASES:
                        seen.add(base)
                        lineage.append(base)
        return lineage

    def _base(self, file: str, path: str) -> tuple[str, str] | None:
        """A base contract. Its path may begin with the name of an imported file, never with a contract."""
        found: Definition | None = None
        for name in path.split("."):
            found = self._in_file(file, name)
            if found is None:
                return None
            file = found.file
        return (found.file, found.name) if found is not None and found.kind == "contract" else None

    def _in_file(self, file: str, name: str) -> Definition | None:
        """The definition of a name outside of contracts: in the file, or in the files that it imports."""
        key = file, name
        if key not in self._global:
            self._global[key] = self._exported(file, name)
        return self._global[key]

    def _exported(self, file: str, name: str) -> Definition | None:
        places, seen = [(file, name)], {(file, name)}
        for place in places:  # the list grows in the loop
            self._budget -= _LOOK
            if self._budget < 0:
                return None
            file, name = place
            if (found := self._get(file, "", name)) is not None:
                return found
            for imported in self._files[file].imports:
                if imported.prefix:
                    if imported.prefix == name:
                        return Definition("", name, "file", file=imported.path)
                    continue
                named = [(imported.path, there) for here, there in imported.names or [(name, name)] if here == name]
                places += [place for place in named if place not in seen]
                seen.update(named)
        return None

    def _get(self, file: str, scope: str, name: str) -> Definition | None:
        return self._files[file].definitions.get((scope, name))


def _named(name: str) -> str:
    """What stands behind a type."""
    return f" {name}" if name else ""


def _key(definition: Definition) -> tuple[str, str, str]:
    return definition.file, definition.scope, definition.name
