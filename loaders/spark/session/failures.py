"""Spark's errors about the journal's topics, translated into the journal's own errors.

DataFrames are lazy: Spark meets Kafka in an action, perhaps one of the caller's. The caller wraps such actions in
`journal_errors`. An error that the data source raises in one of Python's workers reaches the driver as a traceback in
the text of Spark's error, and its last line names the journal's error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from journal import errors
from journal.errors import (
    GapError,
    JournalError,
    KafkaRefusedError,
    KafkaUnavailableError,
    MissingExtraError,
    NoJournalError,
)
from journal.kafka.access import Access, Need, on_cluster, on_group, on_topic, on_transactional_id
from journal.process.commands import command

SPARK_ERRORS = (Py4JJavaError, PySparkException)
"""Errors that PySpark raises when its JVM raises one."""
READING, WRITING = "Read", "Write"
_KAFKA = "org.apache.kafka."
_NO_TOPIC = f"{_KAFKA}common.errors.UnknownTopicOrPartitionException"
_GONE = f"{_KAFKA}clients.consumer.OffsetOutOfRangeException"
_SILENT = (f"{_KAFKA}common.errors.TimeoutException", f"{_KAFKA}common.errors.DisconnectException")
_SOURCE = "org.apache.spark.sql.kafka010."
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
    thrown: Any
    """The exception itself, in the JVM."""


class ReadJournal(Protocol):
    """The journal whose topics Spark reads or writes: a `JournalSource`."""

    @property
    def journal(self) -> str: ...

    @property
    def access(self) -> Access: ...


@contextmanager
def journal_errors(source: ReadJournal, doing: str = READING) -> Iterator[None]:
    """In this context, Spark's errors about Kafka are raised as TopicError, GapError, KafkaUnavailableError or
    KafkaRefusedError. `doing` is Kafka's name of the operation on the topics."""
    try:
        yield
    except SPARK_ERRORS as error:
        ours = translated(error, source, doing)
        if ours is None:
            raise
        raise ours from error


def translated(error: Exception, source: ReadJournal, doing: str = READING) -> JournalError | None:
    """The journal's error for an error of Spark's (of an action or a streaming query); None if there is none."""
    if (raised := raised_in_python(error)) is not None:
        return raised
    causes, journal = java_causes(error), source.journal
    names = [cause.name for cause in causes]
    said = causes[-1].message if causes else ""
    if lacking := [need for cause in causes for need in _lacking(cause, doing)]:
        return KafkaRefusedError("; ".join(source.access.lacks(need) for need in dict.fromkeys(lacking)))
    if _NO_TOPIC in names:
        return NoJournalError(f"journal {journal} is not initialised: run `{command('init', journal=journal)}`")
    if _GONE in names or any(_is_data_loss(cause) for cause in causes):
        return GapError(f"records of journal {journal} that were to be read are gone from Kafka: {said}")
    if any(name in _SILENT for name in names):
        return KafkaUnavailableError(said)
    if any(name.startswith(_KAFKA) for name in names):
        return KafkaRefusedError(said)
    return None


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


def _lacking(cause: Cause, doing: str) -> list[Need]:
    """The permissions that a client lacks, if Kafka refused it for that reason."""
    match cause.name.removeprefix(f"{_KAFKA}common.errors."):
        case "TopicAuthorizationException":
            return [on_topic(name, doing) for name in sorted(cause.thrown.unauthorizedTopics())]
        case "GroupAuthorizationException":
            return [on_group(cause.thrown.groupId() or "*", "Read")]
        case "TransactionalIdAuthorizationException":
            return [on_transactional_id("*", "Write", "Describe")]
        case "ClusterAuthorizationException":
            return [on_cluster("IdempotentWrite" if doing == WRITING else "Describe")]
    return []


def java_causes(error: Exception) -> list[Cause]:
    """The Java exceptions behind an error of PySpark's, the outermost first."""
    # if PySpark has a class for an exception, the original has no public name
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Cause] = []
    while thrown is not None and len(found) < _CAUSES_MAX:
        trace = thrown.getStackTrace()
        place = trace[0].getClassName() if len(trace) else ""
        found.append(Cause(thrown.getClass().getName(), str(thrown.getMessage()), place, thrown))
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


def _is_data_loss(cause: Cause) -> bool:
    """Whether records are gone. Spark's source has no class of its own for this, and throws IllegalStateException for
    nothing else."""
    return cause.name == "java.lang.IllegalStateException" and cause.thrown_in.startswith(_SOURCE)
