"""How a selector's operators compute their values, by the rules of JMS.

None means NULL for a value and unknown for a condition. Numbers are 64-bit integers or doubles, and are promoted as in
Java. Values of different types are neither equal nor unequal. A result that cannot be computed is unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from journal.patterns import in_order
from journal.store.model import Value

Lookup = Callable[[str], Value | None]
Run = Callable[[Lookup], Value | None]
"""A compiled part of a selector: a function of a message's headers."""

Condition = Callable[[Lookup], bool | None]

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def comparing(sign: str, left: Run, right: Run) -> Condition:
    compare, of_all_types = _COMPARE[sign], sign in ("=", "<>")

    def run(get: Lookup) -> bool | None:
        a, b = left(get), right(get)
        if a is None or b is None:
            return None
        if type(a) is type(b):
            return compare(a, b) if of_all_types or type(a) in (int, float) else False
        if type(a) in (int, float) and type(b) in (int, float):
            return compare(float(a), float(b))
        return False

    return run


def computing(first: Run, further: Sequence[tuple[str, Run]]) -> Run:
    """A part that applies operators of the same precedence to their operands, from left to right."""
    steps = [(_COMPUTE[sign], part) for sign, part in further]

    def run(get: Lookup) -> Value | None:
        a = first(get)
        for compute, part in steps:
            b = part(get)
            if type(a) is int and type(b) is int:
                a = compute(a, b)
                if a is not None and not _INTEGER_MIN <= a <= _INTEGER_MAX:
                    a = _wrapped(int(a))
            elif (type(a) is float or type(a) is int) and (type(b) is float or type(b) is int):
                a = compute(float(a), float(b))
            else:
                return None
        return a

    return run


def negating(of: Run) -> Run:
    def run(get: Lookup) -> Value | None:
        value = of(get)
        if type(value) is int:
            return _wrapped(-value)
        return -value if type(value) is float else None

    return run


def plus(of: Run) -> Run:
    def run(get: Lookup) -> Value | None:
        value = of(get)
        return value if type(value) in (int, float) else None

    return run


def _wrapped(value: int) -> int:
    """The value of an integer after the overflow of a Java long."""
    return (value - _INTEGER_MIN) % 2**64 + _INTEGER_MIN


def _divided(a: float, b: float) -> float | None:
    if type(a) is int and type(b) is int:
        if b == 0:
            return None
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


_COMPUTE: Mapping[str, Callable[[float, float], float | None]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
}


# ---- conditions ----------------------------------------------------------------------------------------------------


def truth(of: Run) -> Condition:
    """A header used as a condition. It is unknown if the header is no boolean."""

    def run(get: Lookup) -> bool | None:
        value = of(get)
        return value if type(value) is bool else None

    return run


def all_of(conditions: Sequence[Condition]) -> Condition:
    def run(get: Lookup) -> bool | None:
        found: bool | None = True
        for condition in conditions:
            value = condition(get)
            if not value:
                if value is False:
                    return False
                found = None
        return found

    return run


def any_of(conditions: Sequence[Condition]) -> Condition:
    def run(get: Lookup) -> bool | None:
        found: bool | None = False
        for condition in conditions:
            value = condition(get)
            if value:
                return True
            if value is None:
                found = None
        return found

    return run


def opposite(of: Condition) -> Condition:
    def run(get: Lookup) -> bool | None:
        value = of(get)
        return None if value is None else not value

    return run


def is_null(of: Run) -> Condition:
    return lambda get: of(get) is None


def one_of(of: Run, texts: frozenset[str]) -> Condition:
    def run(get: Lookup) -> bool | None:
        value = of(get)
        if value is None:
            return None
        return type(value) is str and value in texts

    return run


def like(of: Run, fits: Callable[[str], object | None]) -> Condition:
    def run(get: Lookup) -> bool | None:
        value = of(get)
        if value is None:
            return None
        return type(value) is str and fits(value) is not None

    return run


def like_pattern(text: str, escape: str) -> Callable[[str], object | None]:
    """A LIKE pattern: `%` stands for any characters and `_` for one. After the escape character both stand for
    themselves.

    Raises ValueError if the escape character stands before any other character.
    """
    segments: list[list[str | None]] = [[]]
    at = 0
    while at < len(text):
        character = text[at]
        if escape and character == escape:
            at += 1
            if at == len(text) or text[at] not in ("%", "_", escape):
                raise ValueError(f"the escape character {escape} stands before none of %, _ and itself")
            segments[-1].append(text[at])
        elif character == "%":
            segments.append([])
        else:
            segments[-1].append(None if character == "_" else character)
        at += 1
    return in_order(segments)
