"""Spark's errors, translated into the journal's own.

DataFrames are lazy: Spark reads the journal in an action, perhaps one of the caller's. The caller wraps such actions in
`journal_errors`. An error that the data source raises in one of Python's workers reaches the driver as a traceback in
the text of Spark's error, and its last line names the journal's error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from journal import errors
from journal.errors import JournalError, MissingExtraError

SPARK_ERRORS = (Py4JJavaError, PySparkException)
"""Errors that PySpark raises when its JVM raises one."""
_LATE, _STARTS_PYTHON = "java.net.SocketTimeoutException", "org.apache.spark.api.python.PythonWorkerFactory"
_CAUSES_MAX = 20
_RAISED = re.compile(rf"^(?:.* )?{re.escape(errors.__name__)}\.(\w+): (.*)$", re.MULTILINE)
"""The last line of a traceback of one of the journal's errors."""
_NOT_FOUND = re.compile(
    r"^ModuleNotFoundError: No module named '(journal|loaders|confluent_kafka|numpy|pyarrow)\b", re.MULTILINE
)
"""The last line of a traceback where a worker lacks what the data source needs."""


class Cause(NamedTuple):
    """One of the Java exceptions behind an error."""

    name: str
    message: str
    thrown_in: str
    """The class that threw the exception."""


@contextmanager
def journal_errors() -> Iterator[None]:
    """In this context, an error of Spark's that the data source raised in a Python worker is raised as the journal's
    own, or as MissingExtraError if the worker lacks a package."""
    try:
        yield
    except SPARK_ERRORS as error:
        ours = raised_in_python(error)
        if ours is None:
            raise
        raise ours from error


def raised_in_python(error: Exception) -> JournalError | None:
    """The journal's error that one of Python's workers raised; None if there is none."""
    text = str(error)
    if lacking := _NOT_FOUND.findall(text):
        return MissingExtraError(
            f"a Python worker of Spark lacks {lacking[-1]}: pip install 'kafka-journal[spark]' where the executors run"
        )
    found = _RAISED.findall(text)
    if not found:
        return None
    name, told = found[-1]
    raised: JournalError = getattr(errors, name)(told)
    return raised


def java_causes(error: Exception) -> list[Cause]:
    """The Java exceptions behind an error of PySpark's, the outermost first."""
    # if PySpark has a class for an exception, the original has no public name
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Cause] = []
    while thrown is not None and len(found) < _CAUSES_MAX:
        trace = thrown.getStackTrace()
        place = trace[0].getClassName() if len(trace) else ""
        found.append(Cause(thrown.getClass().getName(), str(thrown.getMessage()), place))
        thrown = thrown.getCause()
    return found


def is_late_python(error: Exception) -> bool:
    """Whether a Python worker of Spark did not connect in time. Spark waits 10 s for the worker of a stream, and no
    setting changes that."""
    return any((cause.name, cause.thrown_in) == (_LATE, _STARTS_PYTHON) for cause in java_causes(error))


def in_words(error: Exception) -> str:
    """An error of Spark's in one line: the innermost Java exception, or the error itself."""
    causes = java_causes(error)
    name, told = (causes[-1].name, causes[-1].message) if causes else (type(error).__name__, str(error))
    first = next((line.strip() for line in told.splitlines() if line.strip()), "")
    return f"{name.rpartition('.')[2]}: {first}"
