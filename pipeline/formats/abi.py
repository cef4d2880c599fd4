"""ABIs: a JSON list of entries, or of declarations in words. ``sigdir.signatures.abi`` reads one entry.

Lists of other things look alike. The tools of language models are `{"type": "function", "name": ...}`, so a list
is an ABI only if an entry has all fields that the specification demands. The ABIs of Starknet and of ICON have these
fields too, but not Ethereum's selectors, so their entries are rejects.

Human-readable ABIs are lists of declarations as ethers and viem write them.

::

    ["function transfer(address to, uint256 amount) returns (bool)",
     "struct Order { address owner; uint256 amount; }", "event Placed(Order order)"]

viem's lists define structs for their own entries; here each is replaced by the tuple of its members.
A name that no struct of the list defines stays, so the grammar rejects the text.

Sources: ethers' `Human-Readable ABI`; abitype's `Human-Readable`, section Signature Types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sigdir.signatures.abi import abi_entry, encoded, has_no_selector, rejected_entry
from sigdir.signatures.candidates import Entry
from sigdir.signatures.evidence import Contract, Sighting, Witness
from sigdir.signatures.grammar import MAX_TEXT_BYTES, TOO_LONG

_SAMPLE = 8
_KINDS = frozenset(["function", "event", "error"])
_FOREIGN_KINDS = frozenset(["struct", "interface", "impl", "l1_handler", "enum", "eventlog"])
_FOREIGN_TYPE = re.compile(r".*::|felt|(?:str|list|dict|Address)\Z|\[\]", re.DOTALL)


def is_abi(value: Any) -> bool:
    """Whether a JSON value is a list of objects or declarations, and one of them is surely an entry of an ABI."""
    if not isinstance(value, list):
        return False
    return all(isinstance(item, dict) or is_declaration(item) for item in value[:_SAMPLE]) and any(map(is_entry, value))


def is_labelled_abi(value: Any) -> bool:
    """The same for a list that the document calls an ABI: it may be empty, and its entries may lack fields."""
    return isinstance(value, list) and (any(map(is_entry, value)) or all(map(_has_fields, value[:_SAMPLE])))


def is_entry(value: Any) -> bool:
    """Whether a JSON value is an entry of an ABI, and can be nothing else."""
    if not isinstance(value, dict):
        return is_declaration(value)
    kind, inputs = value.get("type"), value.get("inputs")
    if has_no_selector(kind):
        return _are_parameters(inputs) or (inputs is None and ("stateMutability" in value or "payable" in value))
    # An old ABI may have no types, but says whether a function is constant.
    is_kind = "constant" in value if kind is None else isinstance(kind, str) and kind in _KINDS
    return is_kind and isinstance(value.get("name"), str) and _are_parameters(inputs)


def _are_parameters(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_parameter, value))


def _has_fields(value: Any) -> bool:
    return isinstance(value, dict) and ("type" in value or "inputs" in value) and "text_signature" not in value


def _is_parameter(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def is_foreign(entry: Any) -> bool:
    """Whether an entry of an ABI is another chain's: a kind or a type that Ethereum does not have."""
    if not isinstance(entry, dict):
        return False
    kind = entry.get("type")
    if isinstance(kind, str) and kind in _FOREIGN_KINDS:
        return True
    for parameters in (entry.get("inputs"), entry.get("outputs")):
        if isinstance(parameters, list):
            for item in parameters:
                if _is_parameter(item) and _FOREIGN_TYPE.match(item["type"]):
                    return True
    return False


def entries_of(abi: list[Any], contract: Contract | None = None) -> Iterator[Entry]:
    """The candidates of an ABI, numbered from 1; ``contract`` is the one whose ABI it is."""
    if any(map(is_foreign, abi)):
        yield from (rejected_entry(item, number) for number, item in enumerate(abi, 1))
        return
    structs = _structs_of(abi)
    for number, item in enumerate(abi, 1):
        if is_declaration(item):
            entry = _declaration_entry(item, number, structs, contract)
            if entry is not None:
                yield entry
        elif not (isinstance(item, dict) and has_no_selector(item.get("type"))):
            yield abi_entry(item, number, contract=contract)


# Declarations in words.

_NAME = r"[A-Za-z_$][A-Za-z0-9_$]*"
_DECLARATION = re.compile(
    rf"\s*(?:(?P<text>(?:function|event|error)\s+{_NAME}\s*\(.*)|(?:constructor|fallback|receive)\s*\(.*"
    rf"|struct\s+(?P<struct>{_NAME})\s*\{{(?P<members>[^{{}}]*)\}})\s*\Z",
    re.DOTALL,
)
_TYPE_NAME = re.compile(rf"(?<=[(,])(\s*)({_NAME})(?=\s*[\[\s,)])")
"""A name where a type stands: after the bracket or the comma that begins a parameter."""
_GAS = re.compile(r"(?<!\s)\s*@\s*\d+\s*\Z")  # ethers: the gas of a call, after the declaration


class _Structs:
    """The structs of a list, by name, as tuples; and how many of their bytes may still be written into other texts.

    Without this bound a struct of half a list's bytes, in each function of the other half, would take their product.
    """

    def __init__(self, size: int) -> None:
        """``size`` is that of all declarations in the list."""
        self.tuples: dict[str, str] = {}
        self.left = (1 << 20) + 8 * size


def is_declaration(value: Any) -> bool:
    """Whether a JSON value is an entry of a human-readable ABI."""
    return isinstance(value, str) and _DECLARATION.match(value) is not None


def _structs_of(items: Sequence[Any]) -> _Structs:
    """The structs that a list defines. One that contains itself, or is too long for a text, is left out."""
    written = {found["struct"]: _tuple(found["members"]) for found in map(_parsed, items) if found and found["struct"]}
    missing = {
        name: {other for _, other in _TYPE_NAME.findall(text)} & written.keys() for name, text in written.items()
    }
    users: dict[str, list[str]] = {}
    for name, others in missing.items():
        for other in others:
            users.setdefault(other, []).append(name)
    done = _Structs(sum(len(item) for item in items if isinstance(item, str)))
    ready = [name for name, others in missing.items() if not others]
    while ready:  # a struct is ready when its members are; one inside itself never is
        name = ready.pop()
        text = _expanded(written[name], done)
        if text is None or done.left < 0:
            continue
        done.tuples[name] = text
        for user in users.get(name, ()):
            missing[user].discard(name)
            if not missing[user]:
                ready.append(user)
    return done


def _parsed(item: Any) -> re.Match[str] | None:
    return _DECLARATION.match(item) if isinstance(item, str) else None


def _tuple(members: str) -> str:
    return f"({','.join(member for part in members.split(';') if (member := part.strip()))})"


def _expanded(text: str, structs: _Structs) -> str | None:
    """The text with its structs as tuples; None if it is too long then. As written once no bytes are left."""
    tuples = structs.tuples
    growth = sum(len(tuples.get(name, "")) for _, name in _TYPE_NAME.findall(text)) if tuples else 0
    if growth > MAX_TEXT_BYTES:
        return None
    structs.left -= growth
    if not growth or structs.left < 0:
        return text
    return _TYPE_NAME.sub(lambda found: found[1] + tuples.get(found[2], found[2]), text)


def _declaration_entry(item: str, number: int, structs: _Structs, contract: Contract | None = None) -> Entry | None:
    """A declaration as a candidate; None for what has no selector: a struct, a constructor and the like.

    Its kind and its parameters' names are read from the text, as those of any candidate are.
    """
    found = _parsed(item)
    if found is None or found["text"] is None:
        return None
    text = _expanded(_GAS.sub("", item.strip()), structs)
    if text is None:
        return Entry(encoded(item), number, reject_reason=TOO_LONG)
    return Entry(encoded(text), number, sighting=Sighting(witness=Witness.DECLARED, contract=contract))
