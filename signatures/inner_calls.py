"""Where decoded values hold calls: as calldata, as arguments beside their signature, or packed without padding.

Every ``bytes`` value may be calldata. Four forms need knowledge of what is around the value:

* Governors and timelocks of Compound keep a call as a text and its arguments without selector: a ``string`` and the
  ``bytes`` after it, or a ``string[]`` and the ``bytes[]`` after it.
* Safe's ``multiSend(bytes)``, ERC-7579's ``execute(bytes32,bytes)`` and ERC-4337's operations pack addresses and
  calls without padding. Their layouts are a table here, by text or by the tuple's types.
* Uniswap's routers keep a byte for each command, and its arguments in a list beside them (``router_commands.txt``). Where
  no input fits its command, the call is another contract's.
* An error in ``Error(string)``: contracts copy revert data into the message (``readings.py`` turns it to bytes).

A packed value is decoded to a text that says what its fields are (``transactions((uint8,address,...)[])``). This text
is ours and belongs to no contract. It names the fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from sigdir.signatures.abi_decoder import SELECTOR_BYTES, WORD_BYTES, Budget, DecodeAttempt, attempt
from sigdir.signatures.clear_signing import Called
from sigdir.signatures.errors import counted
from sigdir.signatures.types import Type, parse_declaration

Path = tuple[int, ...]
"""A value's place: the parameter's number, then positions in tuples and arrays."""


class Inner(NamedTuple):
    """Bytes inside a value that may be a call.

    ``calldata`` is looked up. Anything else is decoded by ``attempt``: ``arguments`` of a text that stood beside them,
    or ``packed`` parts. What is packed and cannot be unpacked has no attempt, and ``note`` says why.
    """

    path: Path
    data: bytes
    attempt: DecodeAttempt | None = None
    kind: str = "calldata"
    note: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether it is no calldata, or has the size of a selector and words."""
        return self.kind != "calldata" or (
            len(self.data) >= SELECTOR_BYTES and len(self.data) % WORD_BYTES == SELECTOR_BYTES
        )


def callee(text: str, values: Sequence[Any], path: Path, called: Called) -> Called | None:
    """Where the call at a path in the values of a call goes; None where it is not certain that it is a call.

    ``called`` is where the call itself goes. Without an address it is code that runs in the place of the sender.
    """
    if text in _OF_ITSELF:
        return called
    data, to, *operation = _EXECUTING.get(text, (-1, -1))
    if path[-1] != data:
        return None
    for step in path[:-1]:
        values = values[step]
    kind = values[operation[0]] if operation else _CALL
    sender = called.address or called.sender
    if kind == _DELEGATECALL:
        return Called(called.chain, None, sender) if values[to] in _MULTI_SENDS else None
    return Called(called.chain, bytes.fromhex(values[to][2:]), sender) if kind == _CALL else None


def delegation(text: str, values: Sequence[Any]) -> str:
    """What the values of a call say of foreign code that it runs; "" for none. Its names do not tell what that does."""
    if text == DELEGATION:
        run = [values[0]]
    elif text in MAY_DELEGATE:
        _, to, operation = _EXECUTING[text]
        run = [one[to] for one in (values[0] if text == TRANSACTIONS else [values]) if one[operation] == _DELEGATECALL]
    else:
        return ""
    foreign = " and at ".join(one for one in dict.fromkeys(run) if one not in _MULTI_SENDS)
    return f"a DELEGATECALL: the code at {foreign} runs as the caller itself" if foreign else ""


def inner_calls(text: str, types: Sequence[Type], values: Sequence[Any], budget: Budget) -> Iterator[Inner]:
    """The bytes values of a text's parameters that may be calls, in the order in which they stand."""
    packed = _PACKED_TEXTS.get(text)
    inner = packed(values, budget) if packed else None
    if inner is not None:
        yield inner
        return
    router = commands_by_text().get(text)
    if router is not None:
        found = list(_commands(router, values[0], values[1], budget))
        if any(one.attempt for one in found):
            yield from found
            return
        if found:
            yield Inner((0,), values[0], kind="packed", note=f"No command is unpacked. {found[0].note}")
    yield from _in_members((), types, values, budget)


_BYTES = re.compile(r"bytes(?!\d)")


def has_bytes(type: Type) -> bool:
    """Whether values of a type may hold calls."""
    return _BYTES.search(type.text) is not None


def _in_members(path: Path, types: Sequence[Type], values: Sequence[Any], budget: Budget) -> Iterator[Inner]:
    operation = _OPERATIONS.get(",".join(type.text for type in types), {}) if path else {}
    before: tuple[str, Any] = ("", None)
    for number, (type, value) in enumerate(zip(types, values, strict=True)):
        inner = _unpacked((*path, number), value, operation[number]) if number in operation else None
        if inner is not None:
            yield inner
        elif has_bytes(type):
            yield from _in_value((*path, number), type, value, budget, before)
        before = (type.text, value)


def _in_value(path: Path, type: Type, value: Any, budget: Budget, before: tuple[str, Any]) -> Iterator[Inner]:
    """Calls in one value; ``before`` is the type and value of its neighbour."""
    kind, neighbour = before
    if type.members is not None:
        yield from _in_members(path, type.members, value, budget)
    elif (element := type.element) is not None:
        texts = neighbour if kind == "string[]" and type.text == "bytes[]" and len(neighbour) == len(value) else None
        for number, item in enumerate(value):
            beside = ("string", texts[number]) if texts else ("", None)
            yield from _in_value((*path, number), element, item, budget, beside)
    elif value and type.text == "bytes":
        yield _arguments(path, neighbour, value, budget) if kind == "string" and neighbour else Inner(path, value)


_CALL_TEXT = re.compile(r"[A-Za-z_$][\w$]*\(.*\)", re.ASCII)


def _arguments(path: Path, text: str, data: bytes, budget: Budget) -> Inner:
    """The arguments of the call whose text stands beside them; plain calldata where they do not fit it."""
    if _CALL_TEXT.fullmatch(text):
        found = attempt(data, text, budget, first=0)
        if found.exact:
            return Inner(path, data, found, "arguments")
    return Inner(path, data)


# Packed forms.

_DECLARED: dict[str, tuple[Type, ...]] = {}
"""The fields of packed values with their names, by the texts."""


def _packed(declaration: str) -> str:
    """The text of packed values."""
    parsed = parse_declaration(declaration)
    _DECLARED[parsed.text] = parsed.inputs
    return parsed.text


TRANSACTIONS = _packed("transactions((uint8 operation, address to, uint256 value, bytes data)[] transactions)")
EXECUTION = _packed("execution(address target, uint256 value, bytes callData)")
EXECUTIONS = _packed("executions((address target, uint256 value, bytes callData)[] executions)")
EXECUTIONS_WITH_DATA = _packed("executions((address target, uint256 value, bytes callData)[] executions, bytes opData)")
DELEGATION = _packed("delegation(address target, bytes callData)")
DEPLOYMENT = _packed("deployment(address factory, bytes callData)")
PAYMASTER = _packed("paymaster(address paymaster, bytes data)")
LIQUIDITIES = _packed("modifyLiquiditiesWithoutUnlock(bytes actions, bytes[] params)")
PAYMASTER_WITH_GAS = _packed(
    "paymaster(address paymaster, uint128 verificationGasLimit, uint128 postOpGasLimit, bytes data)"
)
ACCOUNT_GAS_LIMITS = _packed("accountGasLimits(uint128 verificationGasLimit, uint128 callGasLimit)")
GAS_FEES = _packed("gasFees(uint128 maxPriorityFeePerGas, uint128 maxFeePerGas)")


def _unpacked(path: Path, data: bytes, text: str) -> Inner | None:
    """Values that stand without padding; last may be bytes, which are what is left. None where they need more bytes."""
    types, at = _DECLARED[text], 0
    values: list[Any] = []
    for type in types:
        if type.text == "bytes":
            values.append(data[at:])
        elif type.text == "address":
            values.append(_address(data[at : at + 20]))
            at += 20
        else:
            size = int(type.text.removeprefix("uint")) // 8
            values.append(int.from_bytes(data[at : at + size]))
            at += size
    found = DecodeAttempt(text, types, tuple(values), exact=True)
    return Inner(path, data, found, "packed") if at <= len(data) else None


def _not_unpacked(path: Path, data: bytes) -> Inner | None:
    """Bytes that are packed in another way: contracts take some of these, so calls must not be hidden by them."""
    note = "It is packed in another way than is known. The calls in it are not shown."
    return Inner(path, data, kind="packed", note=note) if data else None


def _decoded(path: Path, data: bytes, texts: Sequence[str], budget: Budget) -> Inner | None:
    """The arguments of the first text that has all of the bytes."""
    for text in texts:
        found = attempt(data, text, budget, first=0)
        if found.exact:
            return Inner(path, data, found._replace(types=_DECLARED[text]), "packed")
    return _not_unpacked(path, data)


def _address(data: bytes) -> str:
    return "0x" + data.hex()


def _multi_send(values: Sequence[Any], budget: Budget) -> Inner | None:
    """Safe's transactions: operation (1 byte), to (20), value (32), length of data (32), data."""
    (data,) = values
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 53 : at + 85])
        end = at + 85 + size
        if end > len(data) or data[at] > 1:
            return _not_unpacked((0,), data)
        to, value = _address(data[at + 1 : at + 21]), int.from_bytes(data[at + 21 : at + 53])
        found.append((data[at], to, value, data[at + 85 : end]))
        at = end
    made = DecodeAttempt(TRANSACTIONS, _DECLARED[TRANSACTIONS], (tuple(found),), exact=True)
    return Inner((0,), data, made, "packed") if found else None


_SINGLE, _BATCH, _DELEGATE = 0x00, 0x01, 0xFF


def _execute(values: Sequence[Any], budget: Budget) -> Inner | None:
    """ERC-7579's execution, by the first byte of its mode; ERC-7821 adds data after a batch."""
    mode, data = values
    if mode[0] == _BATCH:
        return _decoded((1,), data, (EXECUTIONS, EXECUTIONS_WITH_DATA), budget)
    text = {_SINGLE: EXECUTION, _DELEGATE: DELEGATION}.get(mode[0])
    return _unpacked((1,), data, text) if text else None


def _modify_liquidities(values: Sequence[Any], budget: Budget) -> Inner | None:
    """Actions of Uniswap's v4 position manager, with a deadline beside them."""
    return _decoded((0,), values[0], (LIQUIDITIES,), budget)


_PACKED_TEXTS = {
    "modifyLiquidities(bytes,uint256)": _modify_liquidities,
    "multiSend(bytes)": _multi_send,
    "execute(bytes32,bytes)": _execute,
    "executeFromExecutor(bytes32,bytes)": _execute,
}


_OPERATIONS: Mapping[str, Mapping[int, str]] = {
    "address,uint256,bytes,bytes,uint256,uint256,uint256,uint256,uint256,bytes,bytes": {2: DEPLOYMENT, 9: PAYMASTER},
    "address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes": {
        2: DEPLOYMENT, 4: ACCOUNT_GAS_LIMITS, 6: GAS_FEES, 7: PAYMASTER_WITH_GAS
    },
}  # fmt: skip
"""What is packed in operations of the entry points 0.6 (UserOperation) and 0.7 (PackedUserOperation): initCode,
paymasterAndData and the words of two gas figures, by their numbers.
"""


# Calls that are certain: by texts that are known to make them.

_CALL, _DELEGATECALL = 0, 1
_MULTI_SENDS = frozenset(
    """
    0x8d29be29923b68abfdd21e541b9374737b49cdad 0xa238cbeb142c10ef7ad8442c6d1f9e89e07e7761
    0x998739bfdaadde7c933b942a68053933098f9eda 0x0dfcccb95225ffb03c6fbb2559b530c2b7c8a912
    0x40a2accbd92bca938b02010e17a5b8929b49130d 0xa1dabef33b3b82c7814b6d82a79e50f4ac44102b
    0xf220d3b4dfb23c4ade8c88e526c1353abacbc38f 0x38869bf66a61cf6bdb996a6ae40d5853fd43b526
    0x309d0b190fecca8e1d5d8309a16f7e3cb133e885 0x9641d764fc13c8b624c04430c7356c1c7c8102e2
    0x0408ef011960d02349d50286d20531229bcef773 0x218543288004cd07832472d464648173c77d7eb7
    0xa83c336b20401af773b6219ba5027174338d1836
    """.split()  # noqa: SIM905 - a list would have a line for each
)  # fmt: skip
"""The Safe's MultiSend and MultiSendCallOnly, 1.1.1 to 1.5.0 (safe-global/safe-deployments): made to run as the Safe."""
_OF_ITSELF = frozenset({"multicall(bytes[])", "multicall(uint256,bytes[])", "multicall(bytes32,bytes[])"})
_SAFE = "address,uint256,bytes,uint8"
_EXECUTING: Mapping[str, tuple[int, ...]] = {
    "execute(address,uint256,bytes)": (2, 0),
    f"execute({_SAFE})": (2, 0, 3),
    f"execTransactionFromModule({_SAFE})": (2, 0, 3),
    f"execTransactionFromModuleReturnData({_SAFE})": (2, 0, 3),
    f"execTransaction({_SAFE},uint256,uint256,uint256,address,address,bytes)": (2, 0, 3),
    "executeBatch((address,uint256,bytes)[])": (2, 0),
    "aggregate((address,bytes)[])": (1, 0),
    "blockAndAggregate((address,bytes)[])": (1, 0),
    "tryAggregate(bool,(address,bytes)[])": (1, 0),
    "tryBlockAndAggregate(bool,(address,bytes)[])": (1, 0),
    "aggregate3((address,bool,bytes)[])": (2, 0),
    "aggregate3Value((address,bool,uint256,bytes)[])": (3, 0),
    **{f"handleOps(({types})[],address)": (3, 0) for types in _OPERATIONS},
    TRANSACTIONS: (3, 1, 0),
    EXECUTION: (2, 0),
    EXECUTIONS: (2, 0),
    EXECUTIONS_WITH_DATA: (2, 0),
}
"""Where the tuple of a call, or the parameters, have its calldata, its address and, with some, its operation."""
MAY_DELEGATE = frozenset(text for text, places in _EXECUTING.items() if len(places) > 2)


# Commands with their inputs.


def _commands(router: Commands, commands: bytes, inputs: Sequence[bytes], budget: Budget) -> Iterator[Inner]:
    """The commands in their order, each at its input; where their numbers differ, a note at the commands."""
    if len(commands) != len(inputs):
        note = f"It has {counted(len(commands), 'command')} and {counted(len(inputs), 'input')}."
        yield Inner((0,), commands, kind="packed", note=note)
    for number, (byte, data) in enumerate(zip(commands, inputs, strict=False)):
        yield _input_of(router, byte, data, budget)._replace(path=(1, number))


def _input_of(router: Commands, byte: int, data: bytes, budget: Budget) -> Inner:
    shapes = router.shapes.get(byte & ~_MAY_FAIL, ())
    may_fail = "If it fails, the others go on." if byte & _MAY_FAIL else ""
    why = ""
    for text, types, is_call in shapes:
        found = DecodeAttempt(text, types, (data,), exact=True) if is_call else attempt(data, text, budget, first=0)
        if found.exact:
            return Inner((), data, found._replace(types=types), "packed", may_fail)
        why = why or f"Its input does not fit {text}: {found.detail or 'other bytes are left or stand between'}."
    return Inner((), data, kind="packed", note=why or f"0x{byte:02x} is no known command of {router.of}.")


# Commands of routers that are bytes: Uniswap's Universal Router and v4 actions. A command's byte has its number in seven
# bits. Older routers ignored bit 6; a byte that has it is here the command of the newer ones, or none.

_MAY_FAIL = 0x80
"""The eighth bit says that the call goes on if the command fails."""


class Command(NamedTuple):
    """A shape of a command: its canonical text, its types as declared, and whether its input is calldata."""

    text: str
    types: tuple[Type, ...]
    is_call: bool


class Commands(NamedTuple):
    """The commands of one kind of contract, by their numbers, each in its shapes. ``of`` is whose they are."""

    of: str
    shapes: Mapping[int, tuple[Command, ...]]


@lru_cache(maxsize=1)
def commands_by_text() -> Mapping[str, Commands]:
    """The commands that the arguments of a call with this text have: bytes first, a list of inputs behind them."""
    text = FilePath(__file__).with_name("router_commands.txt").read_text()
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
    return Command(declaration.text, declaration.inputs, line.startswith("call "))
