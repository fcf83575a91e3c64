"""The packages of Delta Lake that go with each PySpark. No other module knows their names.

Packages are Maven coordinates, as `spark.jars.packages` and `spark-submit --packages` take them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from importlib import metadata
from importlib.util import find_spec
from platform import python_version

from journal.errors import ConfigError, MissingExtraError

SCALA = "2.13"
"""The Scala version that Spark 4 is built for."""

_OLDEST = (4, 2)
_DELTA: Mapping[str, str] = {"4.2": f"io.delta:delta-spark_4.2_{SCALA}:4.4.0"}
"""Delta Lake for each Spark for which there is one."""


class SparkPart(Enum):
    """A package that a job needs beside Spark itself."""

    DELTA = "delta"
    """Delta Lake's tables."""


_NOT_INSTALLED = "Spark needs PySpark: pip install 'kafka-journal[spark]'"


def installed_pyspark() -> str:
    """The version of the installed PySpark. Raises MissingExtraError if none is installed."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        raise MissingExtraError(_NOT_INSTALLED) from None


def not_imported(error: ImportError) -> MissingExtraError:
    """The error for a PySpark that could not be imported: none is installed, or this Python cannot import it. Raises
    ConfigError for one that is too old, because it may lack names that we import."""
    if any(find_spec(name) is None for name in ("pyspark", "py4j")):
        return MissingExtraError(_NOT_INSTALLED)
    version = installed_pyspark()
    require_supported(version)
    return MissingExtraError(
        f"PySpark {version} is installed, and Python {python_version()} cannot import it "
        f"({type(error).__name__}: {error}): pip install 'kafka-journal[spark]' gets what it needs"
    )


def require_supported(pyspark: str) -> None:
    """Raises ConfigError for a PySpark that is too old."""
    if _release(pyspark) < _OLDEST:
        raise ConfigError(
            f"PySpark {pyspark} is installed, and {'.'.join(map(str, _OLDEST))} or newer is needed: "
            "pip install 'kafka-journal[spark]'"
        )


def packages(pyspark: str, parts: Collection[SparkPart]) -> tuple[str, ...]:
    """The coordinates of `parts` for a PySpark. Raises ConfigError for one that is too old, or newer than every
    Delta Lake."""
    require_supported(pyspark)
    release = ".".join(map(str, _release(pyspark)))
    if SparkPart.DELTA in parts and release not in _DELTA:
        raise ConfigError(
            f"PySpark {pyspark} is installed, and there is no Delta Lake for it: "
            f"pip install 'pyspark=={[*_DELTA][-1]}.*', or keep files of Parquet"
        )
    return (_DELTA[release],) if SparkPart.DELTA in parts else ()


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])
