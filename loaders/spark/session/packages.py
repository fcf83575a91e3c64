"""Which packages of Spark's and Delta Lake's go with which PySpark: the one place that knows.

Packages are Maven coordinates, as `spark.jars.packages` and `spark-submit --packages` take them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from importlib import metadata
from importlib.util import find_spec
from platform import python_version

from journal.errors import ConfigError, MissingExtraError

SCALA = "2.12"
"""What PySpark 3 from a package index is built for."""

_DELTA: Mapping[str, str] = {
    "3.4": f"io.delta:delta-core_{SCALA}:2.4.0",
}
"""By minor release of Spark, for those that the tests run on."""


class Part(Enum):
    """What a job needs beside Spark itself."""

    KAFKA = "kafka"
    """The source and sink `kafka`."""
    PROTOBUF = "protobuf"
    """`from_protobuf` and `to_protobuf`."""
    DELTA = "delta"
    """Delta Lake's tables."""


_NOT_INSTALLED = "Spark needs PySpark: pip install 'kafka-journal[spark]'"

READING = frozenset({Part.KAFKA, Part.PROTOBUF})
"""What it takes to read a journal's topics."""


def installed_pyspark() -> str:
    """The version of the installed PySpark. Raises MissingExtraError without one."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise MissingExtraError(_NOT_INSTALLED) from None


def not_imported(error: ImportError) -> MissingExtraError:
    """What it means that PySpark was not imported: there is none, or this Python cannot import the one there is.

    Raises ConfigError for one that nothing is matched to: it may lack what is imported.
    """
    if any(find_spec(name) is None for name in ("pyspark", "py4j")):
        return MissingExtraError(_NOT_INSTALLED)
    version = installed_pyspark()
    packages(version)
    return MissingExtraError(
        f"PySpark {version} is installed, and Python {python_version()} cannot import it "
        f"({type(error).__name__}: {error}): PySpark 3.4 takes Python 3.12 or older"
    )


def packages(pyspark: str, parts: Collection[Part] = READING) -> tuple[str, ...]:
    """The coordinates of `parts` for a PySpark. Raises ConfigError for one they are not matched to."""
    minor = ".".join(pyspark.split(".")[:2])
    if minor not in _DELTA:
        raise ConfigError(
            f"PySpark {pyspark} is not of {', '.join(_DELTA)}: pip install 'kafka-journal[spark]' installs one that is"
        )
    coordinates = {
        Part.KAFKA: f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{pyspark}",
        Part.PROTOBUF: f"org.apache.spark:spark-protobuf_{SCALA}:{pyspark}",
        Part.DELTA: _DELTA[minor],
    }
    return tuple(coordinates[part] for part in Part if part in parts)
