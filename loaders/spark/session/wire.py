"""Conversion between values and protobuf in the JVM, by `from_protobuf` with the descriptor set of this package.

Spark 3.4 opens the descriptor file on the driver and on every executor. If both run on this machine, it is the
package's own file. For any other master, `ship_descriptor` sends it along and names it without a directory: executors
find it where they run, and the driver finds it in its working directory while its process lives.

Spark turns protobuf into values as follows. An absent field is null, even if it has its default, so `with_frame` fills
in the defaults. An enum is its name (an unknown one gets a name of Spark's), and null for 0. Unsigned numbers come
signed.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.protobuf.functions import from_protobuf

import journal.v1 as messages
from journal.errors import ConfigError

_DESCRIPTOR = Path(messages.__file__).with_name("journal.desc")
_SETTING = "spark.kafkaJournal.descriptor"
"""The Spark setting with a path of the descriptor set that is the same on the driver and on every executor. If it is
set, nothing is shipped."""

MAGIC = 0x314C4A4B
FORMAT = 1

_RAW = "frame as it was"
_FRAME = (
    "magic int, format int, journal binary, epoch bigint, node string, `group` bigint, number bigint, previous bigint, "
    "last boolean, issued bigint, count int"
)
_OPERATION = (
    "type: string, id: bigint, kind: int, data: binary, replaceable: boolean, subject: bigint, tx: bigint, "
    "covers: int, shards: int"
)
_DEFAULTS: Mapping[str, object] = {
    "int": 0,
    "bigint": 0,
    "boolean": False,
    "string": "",
    "binary": b"",
}

FRAME_SCHEMA = f"{_FRAME}, operations array<struct<{_OPERATION}>>"
"""The schema of the message `Frame` in the results of `with_frame`."""


def with_frame(records: DataFrame) -> DataFrame:
    """`records` with the column `frame`: `value` as a struct of `FRAME_SCHEMA`, null if it is no frame."""
    found = computed_once(records, parsed("value", "Frame"), "frame")
    filled = computed_once(found.withColumnRenamed("frame", _RAW), _filled(F.col(_RAW)), "frame")
    return filled.drop(_RAW)


def parsed(column: Column | str, message: str) -> Column:
    """A message of journal.proto or store.proto as a struct. If the bytes do not parse, all of its fields are null."""
    return from_protobuf(column, message, _descriptor(), {"mode": "PERMISSIVE"})


def ship_descriptor(spark: SparkSession) -> None:
    """Send the descriptor set to executors on other machines. Raises ConfigError if the driver cannot write it."""
    context = spark.sparkContext
    beside = Path(_shipped(context)).absolute()
    if _everywhere(context) is not None or beside.exists():
        return
    try:
        shutil.copyfile(_DESCRIPTOR, beside)
    except OSError as error:
        raise ConfigError(
            f"{beside.name} cannot be written into the working directory {os.getcwd()}: start elsewhere, or set "
            f"{_SETTING} to where {_DESCRIPTOR.name} is on the driver and on every executor ({error})"
        ) from error
    atexit.register(beside.unlink, missing_ok=True)
    context.addFile(str(beside))


def computed_once(table: DataFrame, column: Column, name: str) -> DataFrame:
    """`table` with a column that is expensive to compute.

    Spark would evaluate the expression wherever the column is used, and parse a frame again for each field that a
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


def _descriptor() -> str:
    return _descriptor_of(SparkContext.getOrCreate())


@lru_cache(maxsize=1)
def _descriptor_of(context: SparkContext) -> str:
    """The path of the descriptor set. It is computed once for each context, as PySpark asks the JVM for every setting,
    and settings do not change after the start."""
    return _everywhere(context) or _shipped(context)


def _shipped(context: SparkContext) -> str:
    """The name of the shipped file. Each application has a name of its own, because another one may start in the same
    directory and end earlier."""
    return f"kafka-journal-{context.applicationId}.desc"


def _everywhere(context: SparkContext) -> str | None:
    """The path that is the same on the driver and on the executors; None if there is none."""
    given = context.getConf().get(_SETTING)
    if given:
        return given
    return str(_DESCRIPTOR) if (context.master or "").split("[")[0] == "local" else None


def _filled(frame: Column) -> Column:
    """A frame with protobuf's defaults filled in. The result is null if there is no magic number: the bytes do not
    parse, or they are probably no frame."""
    operations = F.transform(frame["operations"], lambda op: _with_defaults(op, _OPERATION))
    return F.when(frame["magic"].isNotNull(), _with_defaults(frame, _FRAME, operations.alias("operations")))


def _with_defaults(of: Column, fields: str, *further: Column) -> Column:
    """The fields of a schema, with protobuf's default in the place of null."""
    filled = [
        F.coalesce(of[name.strip("`")], F.lit(_DEFAULTS[kind])).alias(name.strip("`"))
        for name, kind in (field.replace(":", "").split() for field in fields.split(", "))
    ]
    return F.struct(*filled, *further)
