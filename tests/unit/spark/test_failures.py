"""Spark's errors as the journal's own: of Python workers that raise one, that lack a package, or that come late."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from journal.errors import GapError, MissingExtraError
from loaders.spark.session.failures import is_late_python, raised_in_python


class Thrown:
    """A Java exception, as the gateway shows one; its class is its own."""

    def __init__(self, name: str, cause: Thrown | None = None, *, thrown_in: str = "") -> None:
        self._name = name
        self._thrown_in = thrown_in
        self._cause = cause

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self._name

    def getMessage(self) -> str:
        return "Accept timed out"

    def getStackTrace(self) -> list[Thrown]:
        return [self] if self._thrown_in else []

    def getClassName(self) -> str:
        return self._thrown_in

    def getCause(self) -> Thrown | None:
        return self._cause


class Raised(PySparkException):
    """PySpark's error for a Java exception."""

    def __init__(self, thrown: Thrown) -> None:
        super().__init__("Job aborted")
        self.java_exception = thrown


TRACEBACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan the data source:
Traceback (most recent call last):
  File "/lib/journal/kafka/readers.py", line 1, in poll
{last}

\tat org.apache.spark.api.python.PythonException.raise
"""


@pytest.mark.parametrize(
    ("last", "type_", "text"),
    [
        ("journal.errors.GapError: orders.wal[0]@3: gone", GapError, "orders.wal[0]@3: gone"),
        (
            "ModuleNotFoundError: No module named 'loaders'",
            MissingExtraError,
            "a Python worker of Spark lacks loaders: pip install 'kafka-journal[spark]' where the executors run",
        ),
    ],
)
def test_an_error_that_a_python_worker_raises_is_raised_as_it_was(last: str, type_: type[Exception], text: str) -> None:
    found = raised_in_python(PySparkException(TRACEBACK.format(last=last)))
    assert (type(found), str(found)) == (type_, text)


def test_an_error_of_a_worker_that_is_none_of_the_journals_stays_what_it_is() -> None:
    assert raised_in_python(PySparkException(TRACEBACK.format(last="ValueError: no"))) is None


@pytest.mark.parametrize(
    ("thrown_in", "is_late"),
    [("org.apache.spark.api.python.PythonWorkerFactory", True), ("java.net.Socket", False)],
)
def test_a_python_worker_that_did_not_connect_in_time_is_told_from_another_silence(
    thrown_in: str, is_late: bool
) -> None:
    silence = Thrown("java.net.SocketTimeoutException", thrown_in=thrown_in)
    assert is_late_python(Raised(Thrown("org.apache.spark.SparkException", silence))) is is_late
