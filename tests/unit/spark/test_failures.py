"""What the Java client may not do, as the journal's own error: who, what, and the command that allows it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.errors import PySparkException

from journal.errors import GapError, KafkaRefusedError, MissingExtraError
from loaders.spark.read.source import JournalSource
from loaders.spark.session.failures import READING, WRITING, is_late_python, translated

SOURCE = JournalSource("b:1", "orders", {"security.protocol": "sasl_ssl", "sasl.username": "reader"})
ADD = "kafka-acls --bootstrap-server b:1 --add --allow-principal User:reader"


class Thrown:
    """A Java exception, as the gateway shows one; its class is its own."""

    def __init__(
        self,
        name: str,
        cause: Thrown | None = None,
        *,
        topics: Sequence[str] = (),
        group: str = "",
        thrown_in: str = "",
    ) -> None:
        self._name = name
        self._thrown_in = thrown_in
        self._cause = cause
        self._topics = topics
        self._group = group

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self._name

    def getMessage(self) -> str:
        return "Not authorized"

    def getStackTrace(self) -> list[Thrown]:
        return [self] if self._thrown_in else []

    def getClassName(self) -> str:
        return self._thrown_in

    def getCause(self) -> Thrown | None:
        return self._cause

    def unauthorizedTopics(self) -> Sequence[str]:
        return self._topics

    def groupId(self) -> str:
        return self._group


class Raised(PySparkException):
    """What PySpark raises for it."""

    def __init__(self, thrown: Thrown) -> None:
        super().__init__("Job aborted")
        self.java_exception = thrown


def kafkas(name: str, *, topics: Sequence[str] = (), group: str = "") -> Thrown:
    return Thrown(f"org.apache.kafka.common.errors.{name}", topics=topics, group=group)


@pytest.mark.parametrize(
    ("thrown", "doing", "said"),
    [
        (
            kafkas("TopicAuthorizationException", topics=["orders.wal"]),
            READING,
            f"User:reader may not Read topic orders.wal: {ADD} --operation Read --topic orders.wal",
        ),
        (
            kafkas("TopicAuthorizationException", topics=["out"]),
            WRITING,
            f"User:reader may not Write topic out: {ADD} --operation Write --topic out",
        ),
        (
            kafkas("GroupAuthorizationException", group="spark-1"),
            READING,
            f"User:reader may not Read group spark-1: {ADD} --operation Read --group spark-1",
        ),
        (
            kafkas("ClusterAuthorizationException"),
            WRITING,
            f"User:reader may not IdempotentWrite cluster: {ADD} --operation IdempotentWrite --cluster",
        ),
    ],
)
def test_what_spark_may_not_do_names_who_the_resource_and_the_command_that_allows_it(
    thrown: Thrown, doing: str, said: str
) -> None:
    for each in (thrown, Thrown("org.apache.spark.SparkException", thrown)):
        ours = translated(Raised(each), SOURCE, doing)
        assert isinstance(ours, KafkaRefusedError)
        assert str(ours) == said


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
    found = translated(PySparkException(TRACEBACK.format(last=last)), SOURCE)
    assert (type(found), str(found)) == (type_, text)


def test_an_error_of_a_worker_that_is_none_of_the_journals_stays_what_it_is() -> None:
    assert translated(PySparkException(TRACEBACK.format(last="ValueError: no")), SOURCE) is None


@pytest.mark.parametrize(
    ("thrown_in", "is_late"),
    [("org.apache.spark.api.python.PythonWorkerFactory", True), ("java.net.Socket", False)],
)
def test_a_python_worker_that_did_not_connect_in_time_is_told_from_another_silence(
    thrown_in: str, is_late: bool
) -> None:
    silence = Thrown("java.net.SocketTimeoutException", thrown_in=thrown_in)
    assert is_late_python(Raised(Thrown("org.apache.spark.SparkException", silence))) is is_late
