"""Calls that may never return, and a producer with such a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from journal.errors import ClosedError, DeadlineError, FatalProducerError
from journal.kafka import producer_instance, transactional_producer
from journal.kafka.bounded_calls import call_within
from journal.kafka.commit_times import CommitTimes
from journal.kafka.ports import Consumed
from journal.kafka.settings import RETRY_BACKOFF_MS, ClientSettings, repeated_after_s
from journal.kafka.transactional_producer import KafkaTransactionalProducer

LIMIT_S = 30.0
SHORT_S = 0.05
CONSUMED = Consumed("group", {("orders", 0): 7})


class Handles:
    """Makes stand-ins for confluent-kafka's producer, and notes the threads in which they end."""

    def __init__(self) -> None:
        self.commit: Callable[[], None] = lambda: None
        self.commit_offsets: Callable[[], None] = lambda: None
        self.ended_in: list[threading.Thread] = []
        self.ended = threading.Event()

    def __call__(self, config: dict[str, object]) -> Handle:
        return Handle(self)


class Handle:
    def __init__(self, handles: Handles) -> None:
        self._handles = handles

    def commit_transaction(self, timeout_s: float) -> None:
        self._handles.commit()

    def send_offsets_to_transaction(self, offsets: object, group: object, timeout_s: float) -> None:
        self._handles.commit_offsets()

    def __del__(self) -> None:
        self._handles.ended_in.append(threading.current_thread())
        self._handles.ended.set()


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> Handles:
    made = Handles()
    monkeypatch.setattr(producer_instance, "Producer", made)
    monkeypatch.setattr(transactional_producer, "group_without_members", lambda _settings, _group: object())
    monkeypatch.setattr(transactional_producer, "_ENDS_LATE_S", SHORT_S)
    return made


@pytest.fixture
def answer() -> Iterator[threading.Event]:
    """The event that a call waits for. It is set at the end, so that no thread stays."""
    answer = threading.Event()
    yield answer
    answer.set()


def a_producer() -> KafkaTransactionalProducer:
    return KafkaTransactionalProducer(ClientSettings("b:1"), "id", CommitTimes())


def test_a_bounded_call_passes_its_result_or_error_on() -> None:
    def refuse() -> None:
        raise LookupError("refused")

    assert call_within(LIMIT_S, lambda: 7) == 7
    with pytest.raises(LookupError, match="refused"):
        call_within(LIMIT_S, refuse)


def test_a_call_that_does_not_return_is_left_behind_in_its_thread(answer: threading.Event) -> None:
    with pytest.raises(DeadlineError):
        call_within(SHORT_S, answer.wait)


def test_offsets_whose_commit_never_returns_are_a_fatal_error_in_time(
    handles: Handles, answer: threading.Event
) -> None:
    handles.commit_offsets = lambda: void(answer.wait())
    producer = a_producer()
    with pytest.raises(FatalProducerError, match="id: commit offsets: the call has not ended") as met:
        producer.send_offsets(CONSUMED, SHORT_S)
    assert not met.value.fenced
    with pytest.raises(ClosedError):
        producer.commit_transaction(LIMIT_S)
    producer.close()
    assert not answer.is_set(), "nobody has waited for the call"


def test_a_producer_whose_call_never_returns_is_not_ended(handles: Handles, answer: threading.Event) -> None:
    handles.commit_offsets = lambda: void(answer.wait())
    producer = a_producer()
    with suppress(FatalProducerError):
        producer.send_offsets(CONSUMED, SHORT_S)
    producer.close()
    del producer
    assert handles.ended_in == []
    answer.set()
    assert handles.ended.wait(LIMIT_S)
    assert handles.ended_in != [threading.current_thread()]


def refuse_as_fenced() -> None:
    raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


def test_an_error_of_a_commit_of_offsets_becomes_one_of_ours(handles: Handles) -> None:
    handles.commit_offsets = refuse_as_fenced
    with pytest.raises(FatalProducerError) as met:
        a_producer().send_offsets(CONSUMED, LIMIT_S)
    assert met.value.fenced


def test_a_producer_ends_when_it_is_closed_after_an_error(handles: Handles) -> None:
    handles.commit_offsets = refuse_as_fenced
    producer = a_producer()
    with suppress(FatalProducerError):
        producer.send_offsets(CONSUMED, LIMIT_S)
    producer.close()
    assert handles.ended.wait(LIMIT_S)


def void(_: object) -> None: ...


@pytest.mark.parametrize("call", ["commit_transaction", "send_offsets"])
def test_a_commit_in_whose_time_it_may_have_been_sent_again_does_not_count_as_one_request(
    handles: Handles, call: str
) -> None:
    """librdkafka tells nobody that it has sent a request again, but it waits for its back-off before it does."""
    times = [0.0]

    def takes(seconds: float) -> Callable[[], None]:
        return lambda: times.append(times[-1] + seconds)

    producer = KafkaTransactionalProducer(ClientSettings("b:1"), "id", CommitTimes(), clock=lambda: times[-1])
    arguments = (CONSUMED, LIMIT_S) if call == "send_offsets" else (LIMIT_S,)
    repeated_s = repeated_after_s(RETRY_BACKOFF_MS)
    for seconds, once in ((0.5 * repeated_s, True), (1.01 * repeated_s, False), (2 * repeated_s, False)):
        handles.commit = handles.commit_offsets = takes(seconds)
        assert getattr(producer, call)(*arguments) is once
