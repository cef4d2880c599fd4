"""Commands that are bytes, each with an input of its own: Uniswap's Universal Router and v4 actions, from ``router_commands.txt``.

A command's byte has its number in seven bits; the eighth says that the call goes on if the command fails. Older routers
ignored bit 6; a byte that has it is here the command of the newer ones, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sigdir.signatures.declaration import parse_declaration

MAY_FAIL = 0x80


class Command(NamedTuple):
    """A shape of a command: its canonical text, ``names`` as declared, and whether its input is calldata."""

    text: str
    names: tuple[Any, ...]
    is_call: bool


class Commands(NamedTuple):
    """The commands of one kind of contract, by their numbers, each in its shapes. ``of`` is whose they are."""

    of: str
    shapes: Mapping[int, tuple[Command, ...]]


@lru_cache(maxsize=1)
def commands_by_text() -> Mapping[str, Commands]:
    """The commands that the arguments of a call with this text have: bytes first, a list of inputs behind them."""
    text = Path(__file__).with_name("router_commands.txt").read_text()
    found: dict[str, Commands] = {}
    for block in text.split("\n\n")[1:]:
        texts, source, *lines = block.strip().splitlines()
        shapes: dict[int, tuple[Command, ...]] = {}
        for line in lines:
            number, command = line.split(maxsplit=1)
            shapes[int(number, 16)] = (*shapes.get(int(number, 16), ()), _command(command))
        found |= dict.fromkeys(texts.split(" "), Commands(source.split("  ")[0], shapes))
    return found


def _command(line: str) -> Command:
    declaration = parse_declaration(line.removeprefix("call "))
    return Command(declaration.text, declaration.nested_names, line.startswith("call "))
