"""Request and reply across the border: requests wait in a queue, and replies find them, after a failover too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from journal.config import Settings
from journal.routing.config import RoutingConfig
from journal.store.model import Message, QueueConfig
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from tests.support.in_process import made_journal, running_worker
from tests.support.sources import (
    DEADLINE_S,
    committed,
    create_topic,
    new_name,
    read_topic,
    ready,
    taking,
    wait_until,
)
from tests.support.stores import bodies

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

LONG_AGO_MS = 3_600_000


class Border:
    """Topics, queues and routing of one test."""

    def __init__(
        self, bootstrap: str, settings: Settings, *, on_error: str = "dead-letter", source: str = "replies"
    ) -> None:
        self.bootstrap = bootstrap
        self.out, self.replies, self.dead = (create_topic(bootstrap, new_name()) for _ in range(3))
        self.ask = new_name()
        self.queues = [QueueConfig(self.ask, self.ask), QueueConfig("answers", "answers")]
        target = {"topic": self.out, "reply_topic": self.replies}
        taken = {
            "name": source,
            "topics": [self.replies],
            "replies": True,
            "requests": self.ask,
            "on_error": on_error,
            "dead_letter_topic": self.dead,
        }
        config: dict[str, Any] = {
            "routes": [{"name": f"ask-{source}", "address": self.ask, "targets": [target]}],
            "sources": [taken],
        }
        self.settings = settings.model_copy(update={"routing": RoutingConfig.model_validate(config)})

    def and_(self, other: Border) -> Settings:
        """Both, this one's source first."""
        mine, theirs = self.settings.routing, other.settings.routing
        both = {"routes": (*mine.routes, *theirs.routes), "sources": (*mine.sources, *theirs.sources)}
        return self.settings.model_copy(update={"routing": mine.model_copy(update=both)})

    def request(self, store: MessageStore, body: bytes, *, age_ms: int = 0, **headers: str) -> int:
        """Send a request; its id."""
        told = {"JMSReplyTo": "queue://answers", **headers}
        message = Message(self.ask, body, told, timestamp=int(time.time() * 1000) - age_ms)
        pending = store.send(message, [self.ask])
        pending.wait(DEADLINE_S)
        return pending.id

    def reply(self, *replies: tuple[bytes, bytes | int]) -> None:
        """Produce replies: value and correlation id."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value, correlated in replies:
            text = correlated if isinstance(correlated, bytes) else b"%d" % correlated
            producer.produce(self.replies, value, headers=[("jms.string.JMSCorrelationID", text)])
        assert producer.flush(DEADLINE_S) == 0

    def letters(self, count: int) -> list[tuple[bytes | None, bytes]]:
        """Dead letters: value and reason."""
        found = read_topic(self.bootstrap, self.dead, count)
        return [(each.value(), _headers(each.headers())["kafka-journal.error.reason"]) for each in found]


def _headers(headers: object) -> dict[str, bytes]:
    """What librdkafka gives, by name."""
    assert isinstance(headers, list)
    return {str(name): bytes(value) for name, value in headers}


@pytest.fixture(scope="module")
def journal(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    settings = made_journal(bootstrap, tmp_path_factory.mktemp("replies"), shards=2)
    soon = StoreSettings(expiry_agreement_ms=0)  # otherwise no request is given up in an activation's first minute
    with running_worker(settings):
        yield settings.model_copy(update={"store": soon})


def test_a_request_goes_out_and_its_reply_comes_back_to_who_asked(bootstrap: str, tmp_path_factory: Any) -> None:
    settings = made_journal(bootstrap, tmp_path_factory.mktemp("round-trip"), shards=2)
    border = Border(bootstrap, settings)
    with running_worker(border.settings), taking(border.settings, border.queues) as node:
        border.request(node.store, b"by its id")
        border.request(node.store, b"by its own", JMSCorrelationID="own")
        for request in read_topic(bootstrap, border.out, 2):
            headers = _headers(request.headers())
            assert (headers["kafka_replyTopic"], headers["jms.string.JMSReplyTo"]) == (
                border.replies.encode(),
                b"queue://answers",
            )
            border.reply(((request.value() or b"") + b"!", headers["jms.string.JMSCorrelationID"]))
        node.wait_for("answers", 2)
        assert set(bodies(node.store, "answers")) == {b"by its id!", b"by its own!"}
        assert ready(node.store, border.ask) == 0


def test_requests_wait_through_a_failover_and_each_is_answered_once(bootstrap: str, journal: Settings) -> None:
    border = Border(bootstrap, journal)
    with taking(border.settings, border.queues) as node:
        asked = [border.request(node.store, b"%d" % number) for number in range(30)]
        border.reply(*((b"first %d" % id, id) for id in asked[:10]))
        wait_until(lambda: ready(node.store, border.ask) == 20, node.sources.status)
    border.reply(*((b"second %d" % id, id) for id in asked))
    with taking(border.settings) as node:
        wait_until(lambda: committed(border.settings).get((border.replies, 0)) == 40, node.sources.status)
        expected = [b"first %d" % id for id in asked[:10]] + [b"second %d" % id for id in asked[10:]]
        assert bodies(node.store, "answers")[-30:] == expected
        assert ready(node.store, border.ask) == 0
        assert border.letters(10) == [(b"second %d" % id, b"no-request") for id in asked[:10]]
    with taking(border.settings) as node:
        assert ready(node.store, border.ask) == 0


def test_the_first_of_two_replies_in_one_batch_counts(bootstrap: str, journal: Settings) -> None:
    border = Border(bootstrap, journal)
    with taking(border.settings, border.queues) as node:
        asked = border.request(node.store, b"?")
        border.reply((b"one", asked), (b"two", asked), (b"three", 1))
        assert border.letters(2) == [(b"two", b"no-request"), (b"three", b"no-request")]
        assert bodies(node.store, "answers")[-1] == b"one"


def test_a_request_that_waits_too_long_is_a_dead_letter_and_its_reply_comes_too_late(
    bootstrap: str, journal: Settings
) -> None:
    border = Border(bootstrap, journal)
    border.reply((b"makes the partition known", 1))
    with taking(border.settings, border.queues) as node:
        late = border.request(node.store, b"late", age_ms=LONG_AGO_MS)
        border.request(node.store, b"in time")
        wait_until(lambda: ready(node.store, border.ask) == 1, node.sources.status)
        border.reply((b"too late", late))
        letters = border.letters(3)
        assert letters[1:] == [(b"late", b"no-reply"), (b"too late", b"no-request")]
        assert bodies(node.store, border.ask) == [b"in time"]
        wait_until(lambda: node.source("replies")["dead_letters"] == 3, node.sources.status)
        assert node.source("replies")["refused"] == {"no-reply": 1, "no-request": 2}


def test_requests_are_not_given_up_while_their_replies_wait_behind_what_stops_the_source(
    bootstrap: str, journal: Settings
) -> None:
    border, other = Border(bootstrap, journal, on_error="fail"), Border(bootstrap, journal, source="other")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(border.replies, b"?", headers=[("jms.long.n", b"short")])
    assert producer.flush(DEADLINE_S) == 0
    with taking(border.and_(other), [*border.queues, other.queues[0]]) as node:
        assert "(bad-header)" in node.wait_stopped("replies")
        asked = border.request(node.store, b"answered", age_ms=LONG_AGO_MS)
        border.request(node.store, b"not answered", age_ms=LONG_AGO_MS)
        border.reply((b"in time", asked))
        for round_ in range(
            2
        ):  # all sources' requests are looked at together: where replies end, and if that is reached
            other.request(node.store, b"%d" % round_, age_ms=LONG_AGO_MS)
            assert other.letters(round_ + 1)[round_] == (b"%d" % round_, b"no-reply")
        assert ready(node.store, border.ask) == 2
        node.sources.resume("replies", skip=True)
        wait_until(lambda: ready(node.store, border.ask) == 0, node.sources.status)
        assert bodies(node.store, "answers")[-1] == b"in time"
        assert border.letters(1) == [(b"not answered", b"no-reply")]


def test_requests_are_given_up_where_the_log_of_replies_ends_with_markers(bootstrap: str, journal: Settings) -> None:
    border = Border(bootstrap, journal)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": border.replies})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(border.replies, b"aborted")
    producer.flush(DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    with taking(border.settings, border.queues) as node:
        border.request(node.store, b"late", age_ms=LONG_AGO_MS)
        assert border.letters(1) == [(b"late", b"no-reply")]
        wait_until(lambda: ready(node.store, border.ask) == 0, node.sources.status)


def test_a_queue_of_requests_that_is_not_there_stops_the_source(bootstrap: str, journal: Settings) -> None:
    border = Border(bootstrap, journal)
    border.reply((b"to nobody", 1))
    with taking(border.settings) as node:
        assert f"queue {border.ask}, in which requests wait" in node.wait_stopped("replies")
    assert committed(border.settings).get((border.replies, 0), 0) == 0
