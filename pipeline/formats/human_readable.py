"""Human-readable ABIs: lists of declarations as ethers and viem write them.

::

    ["function transfer(address to, uint256 amount) returns (bool)",
     "struct Order { address owner; uint256 amount; }", "event Placed(Order order)"]

viem's lists define structs for their own entries; here each is replaced by the tuple of its members.
A name that no struct of the list defines stays, so the grammar rejects the text.

Sources: ethers' `Human-Readable ABI`; abitype's `Human-Readable`, section Signature Types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sigdir.signatures.abi import encoded
from sigdir.signatures.candidates import Entry
from sigdir.signatures.evidence import Contract, Sighting, Witness
from sigdir.signatures.grammar import MAX_TEXT_BYTES, TOO_LONG

_NAME = r"[A-Za-z_$][A-Za-z0-9_$]*"
_DECLARATION = re.compile(
    rf"\s*(?:(?P<text>(?:function|event|error)\s+{_NAME}\s*\(.*)|(?:constructor|fallback|receive)\s*\(.*"
    rf"|struct\s+(?P<struct>{_NAME})\s*\{{(?P<members>[^{{}}]*)\}})\s*\Z",
    re.DOTALL,
)
_TYPE_NAME = re.compile(rf"(?<=[(,])(\s*)({_NAME})(?=\s*[\[\s,)])")
"""A name where a type stands: after the bracket or the comma that begins a parameter."""
_GAS = re.compile(r"(?<!\s)\s*@\s*\d+\s*\Z")  # ethers: the gas of a call, after the declaration


class Structs:
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


def structs_of(items: Sequence[Any]) -> Structs:
    """The structs that a list defines. One that contains itself, or is too long for a text, is left out."""
    written = {found["struct"]: _tuple(found["members"]) for found in map(_parsed, items) if found and found["struct"]}
    missing = {
        name: {other for _, other in _TYPE_NAME.findall(text)} & written.keys() for name, text in written.items()
    }
    users: dict[str, list[str]] = {}
    for name, others in missing.items():
        for other in others:
            users.setdefault(other, []).append(name)
    done = Structs(sum(len(item) for item in items if isinstance(item, str)))
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


def _expanded(text: str, structs: Structs) -> str | None:
    """The text with its structs as tuples; None if it is too long then. As written once no bytes are left."""
    tuples = structs.tuples
    growth = sum(len(tuples.get(name, "")) for _, name in _TYPE_NAME.findall(text)) if tuples else 0
    if growth > MAX_TEXT_BYTES:
        return None
    structs.left -= growth
    if not growth or structs.left < 0:
        return text
    return _TYPE_NAME.sub(lambda found: found[1] + tuples.get(found[2], found[2]), text)


def declaration_entry(item: str, number: int, structs: Structs, contract: Contract | None = None) -> Entry | None:
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
