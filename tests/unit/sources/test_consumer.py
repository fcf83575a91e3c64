"""What a consumed record's fields are, and where a partition begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import OFFSET_END, Message, TopicPartition

from journal.kafka.settings import ClientSettings
from journal.routing.outcomes import Header
from journal.sources import consumer
from journal.sources.consumer import SourceConsumer, headers_of


class ConsumedTopic:
    """A message of the client's, as far as it has headers."""

    def __init__(self, headers: Sequence[Header] | None = None, error: Exception | None = None) -> None:
        self._headers = headers
        self._error = error

    def headers(self) -> Sequence[Header] | None:
        if self._error is not None:
            raise SystemError("returned a result with an exception set") from self._error
        return self._headers


def found(headers: Sequence[Header] | None = None, error: Exception | None = None) -> Sequence[Header] | None:
    return headers_of(cast(Message, ConsumedTopic(headers, error)))


def test_headers_whose_names_are_no_utf_8_cannot_be_read_and_others_can() -> None:
    assert found([("a", b"1"), ("b", None)]) == [("a", b"1"), ("b", None)]
    assert found(None) == ()
    assert found(error=UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")) is None


def test_an_error_of_the_client_that_is_not_about_utf_8_is_raised() -> None:
    with pytest.raises(SystemError):
        found(error=MemoryError())


class GrowingLog:
    """A client of a log that gets a record right after the first request, whatever that asks for."""

    def __init__(self, times_ms: Sequence[int], added_ms: int) -> None:
        self._times_ms = list(times_ms)
        self._added_ms = [added_ms]

    def _grow(self) -> None:
        self._times_ms += self._added_ms
        self._added_ms = []

    def offsets_for_times(self, asked: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        (place,) = asked
        later = [offset for offset, time_ms in enumerate(self._times_ms) if time_ms >= place.offset]
        self._grow()
        return [TopicPartition(place.topic, place.partition, later[0] if later else OFFSET_END)]

    def get_watermark_offsets(self, place: TopicPartition, timeout: float, cached: bool) -> tuple[int, int]:
        end = len(self._times_ms)
        self._grow()
        return 0, end


@pytest.mark.parametrize(
    ("times_ms", "added_ms", "start"),
    [((10, 20, 30), 40, 1), ((5, 10), 20, 2), ((5, 10), 15, 2), ((), 15, 0)],
)
def test_a_record_that_comes_while_the_first_one_of_a_moment_is_looked_for_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, times_ms: Sequence[int], added_ms: int, start: int
) -> None:
    monkeypatch.setattr(consumer, "Consumer", lambda _config: GrowingLog(times_ms, added_ms))
    source = SourceConsumer(ClientSettings("nowhere:9092"), "group")
    assert source.at(("topic", 0), 15, timeout_s=1) == start
