"""The interface of a contract written down: as Solidity that solc compiles, as ABI JSON, and as the answer of the API.

A tuple becomes a struct. What Solidity cannot say is a comment: a function without text, a name that is a keyword or is
taken by another kind of declaration, a type that solc does not implement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

from sigdir.signatures.contract import ContractInterface, ContractText, Member
from sigdir.signatures.evidence import Kind
from sigdir.signatures.types import Declaration, Type

_KEYWORDS = frozenset(
    """
    abstract after address alias anonymous apply as assembly assert auto bool break byte bytes calldata case
    catch const constant constructor continue contract copyof days default define delete do else emit enum error
    ether event external fallback false final fixed for from function gwei hex hours if immutable implements
    import in indexed inline int interface internal is let library macro mapping match memory minutes modifier
    mutable new null of override partial payable pragma private promise public pure receive reference
    relocatable require return returns revert sealed seconds sizeof static storage string struct super supports
    switch this throw true try type typedef typeof ufixed uint unchecked unicode unit using var view virtual
    weeks wei while years layout at global transient _
    """.split()  # noqa: SIM905 - a list would have a line for each word
)  # fmt: skip
_SIZED = re.compile(r"(?:u?int|bytes)\d+|u?fixed\d+x\d+")
_USABLE_KEYWORDS = frozenset(["from", "error", "revert", "assert", "require", "global", "layout", "at", "transient"])
"""Words of the list above that are names all the same: ``from`` is the first parameter of ERC-20's Transfer."""
_STATIC_LIMIT = 1 << 16  # words of a static array; solc refuses types that no memory holds
_MOST_DIGITS = 64  # of its lengths together; Python refuses to read thousands


def abi_of(contract: ContractInterface) -> list[dict[str, Any]]:
    """The ABI: each function, event and error that has a text which can be declared, by the best one."""
    return [declaration.abi_entry() for declaration in _declarations(contract)]


def solidity_of(contract: ContractInterface, name: str = "IContract") -> str:
    """The interface as a Solidity source. A name that a declaration has gets an underscore."""
    taken = {declaration.name for declaration in _declarations(contract)}
    while name in taken:
        name += "_"
    body = list(_Writer(name).lines(contract))
    return "\n".join(
        ["// SPDX-License-Identifier: UNLICENSED", "pragma solidity >=0.8.4;", "", *_header(contract), f"interface {name} {{", *body, "}", ""]
    )  # fmt: skip


def _members(contract: ContractInterface) -> tuple[Member, ...]:
    return (*contract.functions, *contract.events, *contract.errors)


def _declarations(contract: ContractInterface) -> list[Declaration]:
    """The declarations of the best texts, as far as they have one."""
    best = (member.best for member in _members(contract))
    return [text.declaration for text in best if text is not None and text.declaration is not None]


def _header(contract: ContractInterface) -> Iterator[str]:
    yield f"// Found in runtime code 0x{contract.code.code_hash.hex()} (metadata cut)."
    if contract.note:
        yield f"// {contract.note}"
    for standard in contract.standards:
        missing = f", without {', '.join(standard.missing)}" if standard.missing else ""
        yield f"// {standard.interface.name}{missing}"
    for proxy in contract.proxies:
        yield f"// {proxy.name}: {proxy.detail}"


class _Writer:
    """Writes the declarations of one interface, and the structs that they need."""

    def __init__(self, name: str) -> None:
        self._structs: dict[str, str] = {}
        self._lines: list[str] = []
        self._kinds: dict[str, Kind] = {name: Kind.UNKNOWN}

    def lines(self, contract: ContractInterface) -> Iterator[str]:
        declarations = [self._line(member) for member in _members(contract)]
        yield from self._lines
        yield from declarations

    def _line(self, member: Member) -> str:
        hash = f"0x{member.hash.hex()}"
        if member.best is None:
            return f"    // {hash} {member.shape} {member.payable}: no text is known".replace(" :", ":")
        text, declaration = member.best.known.text, member.best.declaration
        problem = self._problem(member.kind, declaration) if declaration else "too long or nested too deeply to declare"
        if declaration is None or problem:
            return f"    // {hash} {member.kind.name.lower()} {text}: {problem}"
        self._kinds[declaration.name] = member.kind
        shown = f"topic {hash[:10]}..." if member.kind is Kind.EVENT else hash
        return f"    {self._declaration(declaration)}; // {shown}{_note(declaration)}"

    def _problem(self, kind: Kind, declaration: Declaration) -> str:
        """Why Solidity cannot say a declaration, "" if it can."""
        name = declaration.name
        if not _usable(name):
            return "its name is a keyword of Solidity"
        taken = self._kinds.get(name)
        if taken is not None and (taken is not kind or kind is Kind.ERROR):
            return "another declaration has its name"
        parameters = (*declaration.inputs, *declaration.outputs)
        return next(filter(None, map(_type_problem, parameters)), "")

    def _declaration(self, declaration: Declaration) -> str:
        location, visibility = ("calldata", " external") if declaration.kind is Kind.FUNCTION else ("", "")
        taken, returned = partial(self._parameter, location), partial(self._parameter, "memory")
        return declaration.written(taken, returned, visibility)

    def _parameter(self, location: str, one: Type) -> str:
        written = self._type(one)
        is_reference = one.is_array or one.components is not None or one.text in ("bytes", "string")
        parts = [written, location if is_reference else "", "indexed" if one.indexed else "", _usable(one.name)]
        return " ".join(filter(None, parts))

    def _type(self, one: Type) -> str:
        if one.components is not None:
            return self._struct(one.components) + one.arrays
        word = one.text.removesuffix(one.arrays)
        return {"function": "function() external"}.get(word, word) + one.arrays

    def _struct(self, members: tuple[Type, ...]) -> str:
        """The name of the struct with these members; it is written where it is new."""
        names = zip(members, _member_names(members), strict=True)
        fields = " ".join(f"{self._type(one)} {name};" for one, name in names)
        if fields not in self._structs:
            number = len(self._structs) + 1
            while f"Struct{number}" in self._kinds:
                number += 1
            self._structs[fields] = f"Struct{number}"
            self._kinds[f"Struct{number}"] = Kind.UNKNOWN
            self._lines.append(f"    struct Struct{number} {{ {fields} }}")
        return self._structs[fields]


def _note(declaration: Declaration) -> str:
    if declaration.kind is Kind.EVENT and not any(declaration.indexed) and declaration.inputs:
        return ", which parameters are indexed is not known"
    return ""


def _usable(name: str) -> str:
    return "" if name in _KEYWORDS - _USABLE_KEYWORDS or _SIZED.fullmatch(name) else name


def _member_names(members: tuple[Type, ...]) -> list[str]:
    """A name for each member of a struct, all different."""
    names: dict[str, None] = {}
    for number, one in enumerate(members):
        name = _usable(one.name)
        if not name or name in names:
            name = f"_{number}"
        while name in names:
            name += "_"
        names[name] = None
    return list(names)


def _type_problem(one: Type) -> str:
    """Why solc takes no parameter of a type, "" if it does."""
    if one.components is not None and not one.components:
        return "solc has no empty structs"
    if "fixed" in one.text:
        return "solc does not implement fixed point numbers"
    lengths = re.findall(r"\[(\d+)\]", one.arrays)
    if "0" in lengths:
        return "solc has no arrays of length 0"
    if sum(map(len, lengths)) > _MOST_DIGITS or prod(map(int, lengths)) > _STATIC_LIMIT:
        return "an array of it takes more than memory"
    return next(filter(None, map(_type_problem, one.components or ())), "")


# What the API and `sigdir decode contract --json` answer.


def document(contract: ContractInterface) -> dict[str, Any]:
    """Everything that was found, with the ABI and the Solidity interface."""
    code = contract.code
    found = {
        "kind": "contract",
        "code_hash": _hex(code.code_hash),
        "bytes": len(code.runtime.code),
        "is_creation": code.is_creation,
        "machine": code.machine,
        "unlinked_libraries": code.runtime.libraries,
        "functions": [_function(one) for one in contract.functions],
        "events": [{"topic": _hex(one.hash), "texts": _texts(one)} for one in contract.events],
        "errors": [{"selector": _hex(one.hash), "texts": _texts(one)} for one in contract.errors],
        "standards": [
            {"name": one.interface.name, "source": one.interface.source, "in_full": one.in_full, "missing": list(one.missing)}
            for one in contract.standards
        ],
        "interface_ids": [{"id": _hex(one.id), "name": one.name} for one in contract.interface_ids],
        "proxies": [
            {"name": one.name, "source": one.source, "detail": one.detail, "address": _hex(one.address) if one.address else None}
            for one in contract.proxies
        ],
        "abi": abi_of(contract),
        "solidity": solidity_of(contract),
    }  # fmt: skip
    return found | {"note": contract.note} if contract.note else found


def _function(member: Member) -> dict[str, Any]:
    return {
        "selector": _hex(member.hash),
        "arguments": member.arguments,
        "takes_ether": member.takes_ether,
        "texts": _texts(member),
    }


def _texts(member: Member) -> list[dict[str, Any]]:
    return [_text(one, member.kind) for one in member.texts]


def _text(one: ContractText, kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {
        "text_signature": one.known.text,
        "declaration": str(one.declaration) if one.declaration else None,
        "witness": one.known.witness.name.lower(),
        "reasons": list(one.reasons),
    }
    return found | {"fit": one.fit.name.lower()} if kind is Kind.FUNCTION else found


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
