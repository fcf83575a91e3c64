"""Services that start while Kafka does not answer."""

from __future__ import annotations

import logging

import pytest

from journal.errors import DeadlineError, KafkaUnavailableError, TopicError
from journal.table.opening import START_ATTEMPTS, patiently


class Starting:
    """What starts once Kafka has been asked so often."""

    def __init__(self, after: int, error: Exception) -> None:
        self.left = after
        self.error = error
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return "started"


def test_a_service_asks_again_while_kafka_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    start = Starting(START_ATTEMPTS - 1, KafkaUnavailableError("no controller"))
    with caplog.at_level(logging.WARNING):
        assert patiently(start) == "started"
    assert caplog.messages == ["Kafka does not answer, and is asked again: no controller"] * (START_ATTEMPTS - 1)


def test_a_service_asks_no_more_once_its_start_was_given_up() -> None:
    start = Starting(2, DeadlineError("the control rows"))
    with pytest.raises(DeadlineError):
        patiently(start, given_up=lambda: start.asked == 2)
    assert start.asked == 2


def test_a_service_gives_up_in_the_end_while_kafka_does_not_answer() -> None:
    start = Starting(START_ATTEMPTS, KafkaUnavailableError("no controller"))
    with pytest.raises(KafkaUnavailableError):
        patiently(start)
    assert start.asked == START_ATTEMPTS


def test_what_asking_again_does_not_mend_is_raised_at_once() -> None:
    start = Starting(1, TopicError("there is no journal"))
    with pytest.raises(TopicError):
        patiently(start)
    assert start.asked == 1
