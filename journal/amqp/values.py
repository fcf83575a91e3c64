"""Values of the AMQP type system that Python has no type for.

A decoded value keeps its AMQP type, so that a map is encoded again as it came: `Uint(5)` is an `int`, and is written as
a `uint`. A plain `int` is a `long`, a `float` a `double`, a `str` a `string`, `bytes` are `binary`, and `uuid.UUID`,
`bool`, `None`, `list` and `dict` stand for themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Symbol(str):
    """A `symbol`: a name of ASCII characters from a fixed set."""

    __slots__ = ()


class Char(str):
    """A `char`: one Unicode character."""

    __slots__ = ()


class Ubyte(int):
    """A `ubyte` of 8 bits."""

    __slots__ = ()


class Ushort(int):
    """A `ushort` of 16 bits."""

    __slots__ = ()


class Uint(int):
    """A `uint` of 32 bits."""

    __slots__ = ()


class Ulong(int):
    """A `ulong` of 64 bits."""

    __slots__ = ()


class Byte(int):
    """A `byte` of 8 bits with a sign."""

    __slots__ = ()


class Short(int):
    """A `short` of 16 bits with a sign."""

    __slots__ = ()


class Int(int):
    """An `int` of 32 bits with a sign. A plain Python `int` is a `long`."""

    __slots__ = ()


class Timestamp(int):
    """A `timestamp`: milliseconds since 1970, UTC."""

    __slots__ = ()


class Float(float):
    """A `float` of 32 bits. A plain Python `float` is a `double`."""

    __slots__ = ()


class Decimal32(bytes):
    """The four bytes of a `decimal32`, which are passed on and not computed with."""

    __slots__ = ()


class Decimal64(bytes):
    """The eight bytes of a `decimal64`."""

    __slots__ = ()


class Decimal128(bytes):
    """The sixteen bytes of a `decimal128`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that no table of this package has."""

    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class Array:
    """An `array`: items that share one constructor."""

    code: int
    """The constructor's byte, which all items are encoded by."""

    items: Sequence[object]

    descriptor: object = None
    """The descriptor of each item; None without one."""
