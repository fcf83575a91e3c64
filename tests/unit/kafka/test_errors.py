"""How librdkafka's errors are sorted into ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from journal.errors import (
    AbortableProducerError,
    FatalProducerError,
    KafkaRefusedError,
    KafkaUnavailableError,
    OperatingError,
    ProducerError,
    RetriableProducerError,
    TopicError,
)
from journal.kafka.errors import (
    damage_error,
    delivery_error,
    gap_error,
    is_outside_log,
    operating_error,
    producer_error,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(KafkaError._TIMED_OUT, retriable=True), RetriableProducerError),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True), AbortableProducerError),
        (KafkaError(KafkaError._FENCED, fatal=True), FatalProducerError),
        (KafkaError(KafkaError._STATE), FatalProducerError),
        (KafkaError(KafkaError._TIMED_OUT, fatal=True, retriable=True), FatalProducerError),
    ],
)
def test_errors_of_a_transaction_are_retriable_abortable_or_fatal(error: KafkaError, kind: type[ProducerError]) -> None:
    assert type(producer_error("call", error)) is kind


@pytest.mark.parametrize(
    ("code", "fenced"),
    [
        (KafkaError._FENCED, True),
        (KafkaError.PRODUCER_FENCED, True),
        (KafkaError.INVALID_PRODUCER_EPOCH, True),
        (KafkaError._MSG_TIMED_OUT, False),
        (KafkaError.INVALID_RECORD, False),
    ],
)
def test_a_record_that_was_not_delivered_is_fatal_and_says_whether_it_was_fenced(code: int, fenced: bool) -> None:
    assert delivery_error(KafkaError(code)).fenced is fenced


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, KafkaUnavailableError),
        (KafkaError._TIMED_OUT, KafkaUnavailableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, KafkaUnavailableError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicError),
        (KafkaError._UNKNOWN_PARTITION, TopicError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaRefusedError),
        (KafkaError._AUTHENTICATION, KafkaRefusedError),
        (KafkaError.MSG_SIZE_TOO_LARGE, KafkaRefusedError),
    ],
)
def test_errors_outside_transactions_are_sorted_by_what_the_caller_can_do(
    code: int, kind: type[OperatingError]
) -> None:
    assert type(operating_error("call", KafkaError(code))) is kind


def test_a_position_outside_the_log_is_a_gap_at_its_place() -> None:
    for code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
        error = KafkaError(code)
        assert is_outside_log(error)
        gap = gap_error(error, "topic", 3, 7)
        assert (gap.topic, gap.partition, gap.offset) == ("topic", 3, 7)


def test_a_damaged_record_batch_is_corruption_at_its_place() -> None:
    error = damage_error(KafkaError(KafkaError._BAD_MSG), "j.wal", 3, 41)
    assert error is not None
    assert (error.topic, error.partition, error.offset) == ("j.wal", 3, 41)
    assert damage_error(KafkaError(KafkaError._TRANSPORT), "j.wal", 3, 41) is None


def test_a_record_that_would_be_refused_again_names_its_topic() -> None:
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    for error in (producer_error("send", too_large, "out"), delivery_error(too_large, "out")):
        assert isinstance(error, FatalProducerError)
        assert error.refused_topic == "out"
    assert delivery_error(KafkaError(KafkaError._MSG_TIMED_OUT), "out").refused_topic == ""
