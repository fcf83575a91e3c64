"""Turns librdkafka's errors into ours, by their code and by librdkafka's own three kinds, never by their text."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from journal.errors import (
    AbortableProducerError,
    CorruptionError,
    FatalProducerError,
    GapError,
    KafkaRefusedError,
    KafkaUnavailableError,
    OperatingError,
    ProducerError,
    RetriableProducerError,
    TopicError,
)
from journal.kafka.access import Request
from journal.process.commands import command

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

_UNAVAILABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,  # librdkafka raises it when it has just dropped the broker that it asked
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_NO_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)

_OUTSIDE_LOG = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})


def error_of(exception: KafkaException) -> KafkaError:
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
    }
)
"""Codes with which a broker or the client refuses a record, and would refuse the same record again."""


def producer_error(doing: str, error: KafkaError, topic: str = "", request: Request | None = None) -> ProducerError:
    """The error of a failed transactional call, about a record of `topic` if there is one. An error that is in none of
    librdkafka's three kinds counts as fatal."""
    reason = _reason(doing, error, request)
    if error.txn_requires_abort():
        return AbortableProducerError(reason)
    if error.retriable() and not error.fatal():
        return RetriableProducerError(reason)
    return _fatal(reason, error, topic)


def delivery_error(error: KafkaError, topic: str = "", request: Request | None = None) -> FatalProducerError:
    """The error of a failed delivery report in a transaction. It is fatal to the producer, whatever its code.

    If the record may still be on its way, an abort could overtake it. If the broker refused it, librdkafka goes on with
    a gap in its sequence numbers, and the next transaction on that partition fails too. A new instance's init settles
    both.
    """
    return _fatal(_reason("a record was not delivered", error, request), error, topic)


def _reason(doing: str, error: KafkaError, request: Request | None) -> str:
    """Says what the caller was doing, what error it met, and which permission it lacks."""
    said = f"{doing}: {error.str()} ({error.name()})"
    lacking = "" if request is None else request.lacking(error.code())
    return f"{said}: {lacking}" if lacking else said


def _fatal(reason: str, error: KafkaError, topic: str) -> FatalProducerError:
    code = error.code()
    return FatalProducerError(reason, fenced=code in _FENCED, refused_topic=topic if code in _REFUSED else "")


def operating_error(doing: str, error: KafkaError, request: Request | None = None) -> OperatingError:
    """The error of a failed call that is not transactional. A position outside the log is a `gap_error` instead."""
    reason = _reason(doing, error, request)
    code = error.code()
    if code in _UNAVAILABLE:
        return KafkaUnavailableError(reason)
    if code in _NO_TOPIC:
        return TopicError(f"{reason}: run `{command('init')}`")
    return KafkaRefusedError(reason)


def is_outside_log(error: KafkaError) -> bool:
    return error.code() in _OUTSIDE_LOG


def damage_error(error: KafkaError, topic: str, partition: int, offset: int) -> CorruptionError | None:
    """The error of a damaged record batch; None if `error` is of another kind."""
    if error.code() != KafkaError._BAD_MSG:
        return None
    what = f"the record batch here is damaged on the broker that was asked: {error.str()}"
    return CorruptionError(what, topic=topic, partition=partition, offset=offset)


def gap_error(error: KafkaError, topic: str, partition: int, offset: int) -> GapError:
    return GapError(
        f"this offset is outside the log: {error.str()} ({error.name()})",
        topic=topic,
        partition=partition,
        offset=offset,
    )
