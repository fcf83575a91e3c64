"""A node's membership of the journal's consumer group. The group chooses the node that should be active.

The group is subscribed to the control topic, which has one partition. The member that holds this partition is *granted*
the duty of being active. With the cooperative protocol a member that joins moves nothing. The membership reads, commits
and decides nothing: it is advice, and fencing makes an activation safe. If two members both believe that they are
granted the duty, no harm is done.

Facts of librdkafka (2.16) against Kafka 4 that shaped this file: when a session runs out by the client's own clock, its
member id is gone (and its partitions are lost, if it held any), also after the whole process was stopped; the client
joins again by itself. An assignment with an explicit offset asks for no committed one, and a paused partition fetches
nothing.
"""

from __future__ import annotations

import logging
import threading

from confluent_kafka import Consumer, KafkaException, TopicPartition

from journal.kafka.access import on_group, on_topic
from journal.kafka.errors import error_of
from journal.kafka.settings import ClientEvents, ClientSettings, config_error

log = logging.getLogger(__name__)

_POLL_S = 0.1
_LEAVE_S = 5.0


class Membership:
    """One membership, from its creation to `leave`, served by a thread of its own. Its properties never wait."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        group: str,
        topic: str,
        name: str,
        session_timeout_ms: int,
        heartbeat_ms: int,
    ) -> None:
        """`name` is the client id that others see for this member. Raises ConfigError for client properties that
        librdkafka refuses."""
        self._events = ClientEvents(settings)
        config = settings.member(group, name, session_timeout_ms=session_timeout_ms, heartbeat_ms=heartbeat_ms)
        try:
            self._consumer = Consumer({**config, **self._events.callbacks()})
        except KafkaException as error:
            raise config_error(error) from error
        self._asks = settings.access.asks(on_group(group, "Read"), on_topic(topic, "Describe"))
        self._topic = topic
        self._stop = threading.Event()
        self._granted = False
        self._joined = False
        self._member = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="kafka-journal-membership", daemon=True)
        self._thread.start()

    # ---- state of the membership -----------------------------------------------------------------------------------

    @property
    def granted(self) -> bool:
        """Whether this member holds the duty now."""
        return self._granted

    @property
    def lapsed(self) -> bool:
        """Whether this member's session has run out by its own clock and it has not joined again."""
        return self._joined and not self._member

    @property
    def ended(self) -> bool:
        """Whether the membership is over, by an error or by `leave`. A new one is needed to belong to the group
        again."""
        return not self._thread.is_alive()

    @property
    def problem(self) -> str:
        """The reason why this member is not in the group, as Kafka last said. It is empty while it is a member, or if
        nothing was said."""
        if self._member:
            return ""
        return self._problem or (f"cut off from Kafka: {self._events.refused}" if self._events.brokers_down else "")

    def leave(self, timeout_s: float = _LEAVE_S) -> None:
        """Leave the group, so that another member gets the duty at once. It does not wait for a broker that does not
        answer."""
        self._stop.set()
        self._thread.join(timeout_s)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        consumer = self._consumer
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._stop.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None and (error := message.error()) is not None:
                    lacking = self._asks.lacking(error.code())
                    self._meet(": ".join(filter(None, (f"{error.str()} ({error.name()})", lacking))))
                was, self._member = self._member, consumer.memberid() is not None
                if self._member and not was:
                    self._problem, self._events.brokers_down = "", False
                self._joined |= self._member
        except KafkaException as error:
            self._meet(f"it ended: {error_of(error).str()}")
        finally:
            self._granted = self._member = self._joined = False
            consumer.close()

    def _meet(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("membership of the nodes' group: %s", problem)
        self._problem = problem

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        placed = [TopicPartition(each.topic, each.partition, 0) for each in partitions]
        consumer.incremental_assign(placed)
        if placed:
            consumer.pause(placed)
            self._granted = True

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._granted = False

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._on_revoke(consumer, partitions)
        self._member = False
