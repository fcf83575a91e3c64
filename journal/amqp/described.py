"""Described lists by table: a class names its descriptor and the types of its fields, and is coded by that.

    @described(0x24, "amqp:accepted:list")
    class AcceptedState(Composite): ...

A field without a default is mandatory, unless it may be None. Its annotation names its AMQP type: `Annotated[int,
UINT]`. A field that comes as null, or not at all, has its default; trailing nulls are left out when a list is written.
A field that is missing, too many or of another type is an `AmqpPeerError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple, Self, TypeVar, dataclass_transform, get_args, get_type_hints
from uuid import UUID

from journal.amqp.conditions import INVALID_FIELD
from journal.amqp.decoding import DESCRIBED_TYPES, decode_error
from journal.amqp.encoding import (
    ENCODERS,
    NULL,
    encode_binary,
    encode_boolean,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbol_array,
    encode_timestamp,
    encode_ubyte,
    encode_uint,
    encode_ulong,
    encode_ushort,
    encode_value,
)
from journal.amqp.values import Array, Symbol, Timestamp, Ubyte, Uint, Ulong, Ushort
from journal.errors import AmqpPeerError


class FieldType(NamedTuple):
    """The AMQP type of a field."""

    name: str

    accepts: tuple[type, ...]
    """Types of decoded values that the field takes; empty for any."""

    encode: Callable[[Any], bytes]

    convert: Callable[[Any], Any] | None = None
    """A function that checks a decoded value and makes the field's value of it; None if that is the decoded value."""


def _symbols(value: Any) -> Sequence[Symbol]:
    """A field that may have several symbols comes as one symbol or as an array of them."""
    if isinstance(value, Symbol):
        return (value,)
    if not all(isinstance(each, Symbol) for each in value.items):
        raise decode_error("a field of several symbols has an item that is no symbol")
    return tuple(value.items)


def _encode_symbols(value: Sequence[str]) -> bytes:
    return encode_symbol(value[0]) if len(value) == 1 else encode_symbol_array(value)


def _symbol_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    if not all(isinstance(key, Symbol) for key in value):
        raise decode_error("a map has a key that is no symbol")
    return value


def _annotation_keys(value: dict[Any, Any]) -> dict[Any, Any]:
    if not all(isinstance(key, Symbol | Ulong) for key in value):
        raise decode_error("annotations have a key that is neither a symbol nor a ulong")
    return value


def encode_annotation_key(key: Any) -> bytes:
    return encode_ulong(key) if isinstance(key, Ulong) else encode_symbol(key)


ANY = FieldType("*", (), encode_value)
ANNOTATIONS = FieldType(
    "annotations", (dict,), lambda value: encode_map(value, encode_annotation_key), _annotation_keys
)
BINARY = FieldType("binary", (bytes,), encode_binary)
BOOLEAN = FieldType("boolean", (bool,), encode_boolean)
FIELDS = FieldType("fields", (dict,), lambda value: encode_map(value, encode_symbol), _symbol_keys)
MAP = FieldType("map", (dict,), encode_map)
MESSAGE_ID = FieldType(
    "message-id",
    (Ulong, UUID, bytes, str),
    lambda value: encode_ulong(value) if isinstance(value, int) else encode_value(value),
)
STRING = FieldType("string", (str,), encode_string)
SYMBOL = FieldType("symbol", (Symbol,), encode_symbol)
SYMBOLS = FieldType("symbol, multiple", (Symbol, Array), _encode_symbols, _symbols)
TIMESTAMP = FieldType("timestamp", (Timestamp,), encode_timestamp)
UBYTE = FieldType("ubyte", (Ubyte,), encode_ubyte)
UINT = FieldType("uint", (Uint,), encode_uint)
ULONG = FieldType("ulong", (Ulong,), encode_ulong)
USHORT = FieldType("ushort", (Ushort,), encode_ushort)


def one_of(name: str, *classes: type) -> FieldType:
    """A field that has a described value of one of the classes."""
    return FieldType(name, classes, encode_value)


class CompositeField(NamedTuple):
    """A row of a described list's table."""

    name: str
    type: FieldType
    mandatory: bool
    default: Any


class Composite:
    """A described list. Its class is one row of the tables, its attributes are the fields."""

    __slots__ = ()

    CODE: int
    """The descriptor's number."""

    NAME: str
    """The descriptor's symbol."""

    TABLE: Sequence[CompositeField]

    @classmethod
    def of_list(cls, values: list[Any]) -> Self:
        """Makes the list of its fields. Raises `AmqpPeerError` with the condition for whoever sent it."""
        table = cls.TABLE
        if len(values) > len(table):
            raise decode_error(f"{cls.NAME} has more fields than the specification: {len(values)}")
        taken = []
        for value, (name, kind, mandatory, default) in zip(values, table, strict=False):
            if value is None:
                if mandatory:
                    raise AmqpPeerError(INVALID_FIELD, f"{cls.NAME} has no {name}, which is mandatory")
                taken.append(default)
                continue
            _, accepts, _, convert = kind
            if accepts and type(value) not in accepts:
                raise decode_error(f"{name} of {cls.NAME} is not of type {kind.name}")
            taken.append(value if convert is None else convert(value))
        for row in table[len(values) :]:
            if row.mandatory:
                raise AmqpPeerError(INVALID_FIELD, f"{cls.NAME} has no {row.name}, which is mandatory")
        return cls(*taken)

    def encoded(self) -> bytes:
        parts = []
        length = 0
        for name, kind, mandatory, default in self.TABLE:
            value = getattr(self, name)
            if not mandatory and (value is None or value == default):
                parts.append(NULL)
            else:
                parts.append(kind.encode(value))
                length = len(parts)
        return b"\x00" + encode_ulong(self.CODE) + encode_list(parts[:length])


C = TypeVar("C", bound=Composite)


@dataclass_transform(frozen_default=True)
def described(code: int, name: str) -> Callable[[type[C]], type[C]]:
    """Makes a class a described list, which the reader and the writer of values then know."""

    def register(cls: type[C]) -> type[C]:
        made = dataclass(frozen=True, slots=True)(cls)
        hints = get_type_hints(made, include_extras=True)
        made.CODE, made.NAME = code, name
        made.TABLE = tuple(
            CompositeField(
                each.name,
                hints[each.name].__metadata__[0],
                each.default is MISSING and type(None) not in get_args(hints[each.name].__origin__),
                None if each.default is MISSING else each.default,
            )
            for each in fields(made)  # type: ignore[arg-type]
        )
        DESCRIBED_TYPES[code] = DESCRIBED_TYPES[name] = made.of_list
        ENCODERS[made] = made.encoded
        return made

    return register
