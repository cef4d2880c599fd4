"""Constant expressions, folded as solc folds them: `2**2`, `8*4/2`, `N*2`, `1<<4`, `(5)`.

A number without a type, that is one made of literals alone, is a fraction of any size: `8/3*3` is 8. Since Solidity
0.8 a constant has its declared type. An operation with it has an integer type too: it truncates, and it has no result
outside the type's range. Before 0.8 a constant was the fraction of its expression, and `**` grouped from the left. An
expression that has a value by both rules, and not the same, has none here: `N/2*2` where N is 5.

What this module does not know has no value: calls, comparisons, the units of old compilers.

Source: libsolidity/analysis/ConstantEvaluator.cpp of solc 0.8.30 and 0.7.6, and the order of operators in the Solidity
documentation, "Order of Precedence of Operators".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

MAX_LENGTH = 1000
"""The longest expression that is folded, in characters."""
MAX_DEPTH = 48
"""The most parentheses, operators and constants inside each other. solc follows constants 32 levels deep."""
_MOST_BITS = 4096
"""solc's limit for a number without a type."""

_TOKEN = re.compile(
    r"(?P<hex>0x[0-9a-fA-F_]{1,1000}(?![\w$]))"
    r"|(?P<number>(?=[0-9.])(?:[0-9][0-9_]*)?(?:\.[0-9][0-9_]*)?(?:[eE]-?[0-9]{1,4})?)"
    r"(?P<unit>wei|gwei|ether|seconds|minutes|hours|days|weeks)?(?![\w$.])"
    r"|(?P<name>[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)"
    r"|(?P<operator>\*\*|<<|>>|[-+*/%&|^~()])"
)
_UNITS = {
    "wei": 1, "gwei": 10**9, "ether": 10**18,
    "seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800,
}  # fmt: skip
_PRECEDENCE = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "**": 7}
_INTEGER = re.compile(r"(u?)int(|[1-9][0-9]{0,2})")


class IntegerType(NamedTuple):
    is_signed: bool
    bits: int

    def holds(self, value: Fraction) -> bool:
        low, high = (-(1 << self.bits - 1), 1 << self.bits - 1) if self.is_signed else (0, 1 << self.bits)
        return low <= value < high


class Number(NamedTuple):
    value: Fraction
    type: IntegerType | None = None
    """None for a number made of literals."""


class _NoValueError(ValueError):
    """An expression that has no value, or none that is known."""


def integer_type(written: str) -> IntegerType | None:
    """The type that `uint8` or `int` names; None for any other type."""
    found = _INTEGER.fullmatch(written)
    bits = int(found[2] or 256) if found else 0
    return IntegerType(not found[1], bits) if found and bits <= 256 and bits % 8 == 0 else None


ValueOf = Callable[[str, int, bool], "Number | None"]
"""Gives the value of a named constant. Gets its name, the depth that its own expression begins at, and whether the
rules are those before 0.8."""


def array_length(expression: str, value_of: ValueOf) -> int | None:
    """The value of an expression without spaces as the length of an array; None if it has none, or two."""
    lengths = set()
    for is_old in (False, True):
        number = folded(expression, value_of, 0, is_old)
        if number is not None and number.value.denominator == 1:
            lengths.add(number.value.numerator)
    return lengths.pop() if len(lengths) == 1 else None


def folded(expression: str, value_of: ValueOf, depth: int, is_old: bool) -> Number | None:
    """The value of an expression without spaces; None if it has none."""
    if len(expression) > MAX_LENGTH:
        return None
    try:
        return _Reader(expression, value_of, is_old).whole(depth)
    except _NoValueError:
        return None


def converted(number: Number, kind: IntegerType) -> Number | None:
    """A number as a value of an integer type, truncated; None if it is out of range."""
    value = Fraction(int(number.value))
    return Number(value, kind) if kind.holds(number.value) else None


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, expression: str, value_of: ValueOf, is_old: bool) -> None:
        self._expression = expression
        self._value_of = value_of
        self._is_old = is_old
        self._at = 0
        self._next()

    def whole(self, depth: int) -> Number:
        number = self._operation(0, depth)
        if self._token is not None:
            raise _NoValueError
        return number

    def _next(self) -> None:
        """Go to the next token."""
        self._token = None
        if self._at < len(self._expression):
            self._token = _TOKEN.match(self._expression, self._at)
            if self._token is None or not self._token[0]:
                raise _NoValueError
            self._at = self._token.end()

    def _operator(self) -> str:
        return (self._token["operator"] or "") if self._token else ""

    def _operation(self, above: int, depth: int) -> Number:
        """Operands joined by operators that bind tighter than ``above``."""
        if depth > MAX_DEPTH:
            raise _NoValueError
        left = self._operand(depth)
        while (precedence := _PRECEDENCE.get(operator := self._operator(), 0)) > above:
            self._next()
            groups_from_right = operator == "**" and not self._is_old
            right = self._operation(precedence - groups_from_right, depth + 1)
            left = _applied(operator, left, right)
        return left

    def _operand(self, depth: int) -> Number:
        token = self._token
        if token is None or depth > MAX_DEPTH:
            raise _NoValueError
        self._next()
        if token["operator"] in ("-", "~"):
            return _negated(token["operator"], self._operand(depth + 1))
        if token["operator"] == "(":
            number = self._operation(0, depth + 1)
            if self._operator() != ")":
                raise _NoValueError
            self._next()
            return number
        if token["name"]:
            named = self._value_of(token["name"], depth + 1, self._is_old)
            if named is None:
                raise _NoValueError
            return named
        if token["operator"]:
            raise _NoValueError
        return _literal(token)


def _literal(token: re.Match[str]) -> Number:
    if token["hex"]:
        return _bounded(Fraction(int(token["hex"].replace("_", ""), 16)))
    digits = token["number"].replace("_", "")
    if re.match(r"0[0-9]", digits):  # no compiler reads octal numbers
        raise _NoValueError
    try:
        value = Fraction(digits)
    except ValueError:
        raise _NoValueError from None
    return _bounded(value * _UNITS[token["unit"] or "wei"])


def _negated(operator: str, number: Number) -> Number:
    if operator == "-":
        return _typed(-number.value, number.type)
    return _typed(Fraction(~_whole(number)), number.type)


def _applied(operator: str, left: Number, right: Number) -> Number:
    if operator in ("**", "<<", ">>"):
        return _raised(operator, left, right)
    kind = _common_type(left, right)
    a, b = left.value, right.value
    if operator in "+-*":
        value = a + b if operator == "+" else a - b if operator == "-" else a * b
    elif operator in "/%":
        if not b:
            raise _NoValueError
        value = a / b if operator == "/" else a - int(a / b) * b
    else:
        x, y = _whole(left), _whole(right)
        value = Fraction(x & y if operator == "&" else x | y if operator == "|" else x ^ y)
    return _typed(value, kind)


def _raised(operator: str, left: Number, right: Number) -> Number:
    """A power or a shift. The left side decides the type; a literal with a typed right side has 256 bits."""
    exponent = _whole(right)
    kind = left.type
    if kind is None and right.type is not None:
        kind = IntegerType(left.value < 0, 256)
    if operator == "**":
        size = max(abs(left.value.numerator).bit_length(), left.value.denominator.bit_length())
        if abs(left.value) != 1 and left.value and size * abs(exponent) > 2 * _MOST_BITS:
            raise _NoValueError
        if exponent < 0 and not left.value:
            raise _NoValueError
        if abs(left.value) == 1 or not left.value:
            exponent = exponent % 2 if exponent and left.value else min(exponent, 1)
        return _typed(left.value**exponent, kind)
    if not 0 <= exponent <= _MOST_BITS:
        raise _NoValueError
    value = _whole(left)
    return _typed(Fraction(value << exponent if operator == "<<" else value >> exponent), kind)


def _whole(number: Number) -> int:
    if number.value.denominator != 1:
        raise _NoValueError
    return number.value.numerator


def _bounded(value: Fraction) -> Number:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        raise _NoValueError
    return Number(value)


def _typed(value: Fraction, kind: IntegerType | None) -> Number:
    if kind is None:
        return _bounded(value)
    number = converted(Number(value), kind)
    if number is None:
        raise _NoValueError
    return number


def _common_type(left: Number, right: Number) -> IntegerType | None:
    """The type of an operation: None for two literals, otherwise the smallest that both convert to."""
    if left.type is None and right.type is None:
        return None
    a, b = (number.type or _smallest_type(number) for number in (left, right))
    if a.is_signed == b.is_signed:
        return max(a, b)
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.bits <= unsigned.bits:
        raise _NoValueError
    return signed


def _smallest_type(number: Number) -> IntegerType:
    value = _whole(number)
    bits = (value if value >= 0 else ~value).bit_length() + (value < 0)
    return IntegerType(value < 0, max(8, -(-bits // 8) * 8))
