"""The packages of Spark and Delta Lake that go with each PySpark. No other module knows their names.

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
"""The Scala version that the packages of PySpark 3 are built for."""

_DELTA: Mapping[str, str] = {
    "3.4.1": f"io.delta:delta-core_{SCALA}:2.4.0",
}
"""Delta Lake for each PySpark whose packages are available, oldest first. The extra `spark` in pyproject.toml installs
the last one."""


class SparkPart(Enum):
    """A package that a job needs beside Spark itself."""

    KAFKA = "kafka"
    """The source and sink `kafka`."""
    PROTOBUF = "protobuf"
    """`from_protobuf` and `to_protobuf`."""
    DELTA = "delta"
    """Delta Lake's tables."""


_NOT_INSTALLED = "Spark needs PySpark: pip install 'kafka-journal[spark]'"

READING = frozenset({SparkPart.KAFKA, SparkPart.PROTOBUF})
"""The parts that reading a journal's topics takes."""


def installed_pyspark() -> str:
    """The version of the installed PySpark. Raises MissingExtraError if none is installed."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise MissingExtraError(_NOT_INSTALLED) from None


def not_imported(error: ImportError) -> MissingExtraError:
    """The error for a PySpark that could not be imported: none is installed, or this Python cannot import it. Raises
    ConfigError for a version that no packages are known for, because it may lack names that we import."""
    if any(find_spec(name) is None for name in ("pyspark", "py4j")):
        return MissingExtraError(_NOT_INSTALLED)
    version = installed_pyspark()
    packages(version)
    return MissingExtraError(
        f"PySpark {version} is installed, and Python {python_version()} cannot import it "
        f"({type(error).__name__}: {error}): PySpark 3.4 takes Python 3.12 or older"
    )


def packages(pyspark: str, parts: Collection[SparkPart] = READING) -> tuple[str, ...]:
    """The coordinates of `parts` for a PySpark. Raises ConfigError for a version that no packages are known for."""
    if pyspark not in _DELTA:
        raise ConfigError(
            f"PySpark {pyspark} is installed, and no packages for it are known: pip install pyspark=={[*_DELTA][-1]}"
        )
    coordinates = {
        SparkPart.KAFKA: f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{pyspark}",
        SparkPart.PROTOBUF: f"org.apache.spark:spark-protobuf_{SCALA}:{pyspark}",
        SparkPart.DELTA: _DELTA[pyspark],
    }
    return tuple(coordinates[part] for part in SparkPart if part in parts)
