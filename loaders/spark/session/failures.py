"""What Spark raises for the journal's topics, as the journal's own errors.

DataFrames are lazy: Spark meets Kafka in an action, perhaps one of the caller's. `journal_errors` goes around those.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from journal.errors import GapError, JournalError, KafkaRefusedError, KafkaUnavailableError, TopicError
from journal.kafka.access import Access, Need, on_cluster, on_group, on_topic, on_transactional_id

SPARK_ERRORS = (Py4JJavaError, PySparkException)
"""What PySpark raises for what its JVM does."""
READING, WRITING = "Read", "Write"
_KAFKA = "org.apache.kafka."
_NO_TOPIC = f"{_KAFKA}common.errors.UnknownTopicOrPartitionException"
_GONE = f"{_KAFKA}clients.consumer.OffsetOutOfRangeException"
_SILENT = (f"{_KAFKA}common.errors.TimeoutException", f"{_KAFKA}common.errors.DisconnectException")
_SOURCE = "org.apache.spark.sql.kafka010."
_CAUSES_MAX = 20


class Cause(NamedTuple):
    """One of the Java exceptions behind an error, the outermost first."""

    name: str
    message: str
    thrown_in: str
    """The class that threw it."""
    thrown: Any
    """Itself, in the JVM."""


class Asked(Protocol):
    """The journal whose topics Spark was asked for: a `JournalSource`."""

    @property
    def journal(self) -> str: ...

    @property
    def access(self) -> Access: ...


@contextmanager
def journal_errors(source: Asked, doing: str = READING) -> Iterator[None]:
    """Raises TopicError, GapError, KafkaUnavailableError or KafkaRefusedError for what Spark says of Kafka. `doing` is
    what is done with a topic, by the operation's name in Kafka."""
    try:
        yield
    except SPARK_ERRORS as error:
        ours = translated(error, source, doing)
        if ours is None:
            raise
        raise ours from error


def translated(error: Exception, source: Asked, doing: str = READING) -> JournalError | None:
    """What an error of Spark's (of an action, or of a streaming query) means for the journal; None if nothing."""
    causes, journal = java_causes(error), source.journal
    names = [cause.name for cause in causes]
    said = causes[-1].message if causes else ""
    if lacking := [need for cause in causes for need in _lacking(cause, doing)]:
        return KafkaRefusedError("; ".join(source.access.lacks(need) for need in dict.fromkeys(lacking)))
    if _NO_TOPIC in names:
        return TopicError(f"journal {journal} is not initialised: run `kafka-journal init -j {journal}`")
    if _GONE in names or any(_is_data_loss(cause) for cause in causes):
        return GapError(f"records of journal {journal} that were to be read are gone from Kafka: {said}")
    if any(name in _SILENT for name in names):
        return KafkaUnavailableError(said)
    if any(name.startswith(_KAFKA) for name in names):
        return KafkaRefusedError(said)
    return None


def _lacking(cause: Cause, doing: str) -> list[Need]:
    """What a client was not allowed to do, if that is what Kafka has said."""
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
    """The Java exceptions that an error of PySpark's stands for."""
    # PySpark keeps the original of those that it has a class for, under no public name
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[Cause] = []
    while thrown is not None and len(found) < _CAUSES_MAX:
        trace = thrown.getStackTrace()
        place = trace[0].getClassName() if len(trace) else ""
        found.append(Cause(thrown.getClass().getName(), str(thrown.getMessage()), place, thrown))
        thrown = thrown.getCause()
    return found


def in_words(error: Exception) -> str:
    """What an error of Spark's comes to, in one line: the innermost Java exception's, or its own."""
    causes = java_causes(error)
    name, told = (causes[-1].name, causes[-1].message) if causes else (type(error).__name__, str(error))
    first = next((line.strip() for line in told.splitlines() if line.strip()), "")
    return f"{name.rpartition('.')[2]}: {first}"


def _is_data_loss(cause: Cause) -> bool:
    """Spark's source has no class of its own for offsets that are gone; it throws no other IllegalStateException."""
    return cause.name == "java.lang.IllegalStateException" and cause.thrown_in.startswith(_SOURCE)
