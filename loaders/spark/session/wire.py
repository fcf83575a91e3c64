"""Protobuf messages as values of Spark: Arrow functions, which run in the Python workers of the executors.

An absent field is null, also one that protobuf does not distinguish from its default. An enum is its name, or its
number as text if it has no name. Unsigned numbers come signed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from journal.errors import AmqpPeerError
from journal.store.message_records import parse_message
from journal.v1 import journal_pb2, store_pb2

_MESSAGES = dict(journal_pb2.DESCRIPTOR.message_types_by_name) | dict(store_pb2.DESCRIPTOR.message_types_by_name)
_PARSERS: Mapping[str, Callable[[bytes], Message]] = {"Message": parse_message}
"""Messages whose fields say more than their bytes do."""
_TYPES: Mapping[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_UINT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: LongType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
}
_UNSIGNED_BITS: Mapping[int, int] = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}


def parsed(column: Column | str, message: str) -> Column:
    """A message of journal.proto or store.proto as a struct; null if the bytes do not parse."""
    found: Column = _parser(message)(column)
    return found


def parsed_values(values: pa.Array, message: str) -> pa.Array:
    """Messages as structs. Hot path: one parse and one dictionary for each message."""
    parse = _PARSERS.get(message) or GetMessageClass(_MESSAGES[message]).FromString
    return pa.array([_as_dict(parse, value) for value in values.to_pylist()], to_arrow_type(_struct(message)))


@cache
def _parser(message: str) -> Any:
    def parse(values: pa.Array) -> pa.Array:
        return parsed_values(values, message)

    return arrow_udf(parse, returnType=_struct(message))  # type: ignore[call-overload]  # its kind is in the type hints


@cache
def _struct(message: str) -> StructType:
    return _struct_of(_MESSAGES[message])


def _struct_of(descriptor: Descriptor) -> StructType:
    return StructType([StructField(field.name, _type_of(field)) for field in descriptor.fields])


def _type_of(field: FieldDescriptor) -> DataType:
    if (of_entry := _map_fields(field)) is not None:
        return MapType(_type_of(of_entry["key"]), _type_of(of_entry["value"]))
    return ArrayType(_type_of_one(field)) if field.is_repeated else _type_of_one(field)


def _type_of_one(field: FieldDescriptor) -> DataType:
    if field.message_type is not None:
        return _struct_of(field.message_type)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else StringType()
    return _TYPES[field.cpp_type]


def _map_fields(field: FieldDescriptor) -> Mapping[str, FieldDescriptor] | None:
    """The fields `key` and `value` of a map; None for any other field."""
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return None
    return field.message_type.fields_by_name


def _as_dict(parse: Callable[[bytes], Message], value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return _fields(parse(value))
    except (DecodeError, AmqpPeerError):
        return None


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: _value(field, value) for field, value in message.ListFields()}


def _value(field: FieldDescriptor, value: Any) -> Any:
    if (of_entry := _map_fields(field)) is not None:
        return [(key, _one(of_entry["value"], value[key])) for key in value]
    return [_one(field, each) for each in value] if field.is_repeated else _one(field, value)


def _one(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        return _fields(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    bits = _UNSIGNED_BITS.get(field.cpp_type)
    return value if bits is None or value < 1 << bits - 1 else value - (1 << bits)


def computed_once(table: DataFrame, column: Column, name: str) -> DataFrame:
    """`table` with a column that is expensive to compute.

    Spark would evaluate the expression wherever the column is used, and parse a message again for each field that a
    filter looks at. A generator function keeps it from doing so, even if it generates only one row.
    """
    return table.select("*", F.explode(F.array(column)).alias(name))


def table_of(spark: SparkSession, schema: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A few rows that the driver knows, as a table; `schema` is in Spark's notation.

    The result of `createDataFrame` contains Python's rows, and needs a Python on every executor each time it is read.
    """
    told = json.dumps(rows, default=_base64)
    listed = F.from_json(F.lit(told), f"array<struct<{schema}>>", {"mode": "FAILFAST"})
    return spark.range(0, 1, 1, 1).select(F.explode(listed).alias("row")).select("row.*")


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode()
