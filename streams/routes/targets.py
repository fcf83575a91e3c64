"""The topics that routes send to, as the cluster describes them: whether they exist, their partitions, and their size
limits.

They are checked when the worker starts, refreshed now and then, and looked up again after a transaction with records
for them has failed. A topic whose name comes from a template is looked up when the first message names it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from journal.config import Settings
from journal.errors import KafkaRefusedError, OperatingError, TopicError
from journal.kafka.ports import Cluster, Kafka, TopicState
from journal.routing.config import RoutingConfig
from journal.routing.outcomes import OutgoingRecord, Reason, RouteRefusal
from journal.routing.partitions import FIXED, parse_rule
from journal.routing.templates import Template
from journal.topics.foreign import fault_of_topic, hidden_topic

log = logging.getLogger(__name__)

BATCH_OVERHEAD_BYTES = 512
"""An upper bound for the bytes of a batch that librdkafka does not count."""

FAULTS_KEPT = 1000
"""The largest number of unfit topics whose faults are remembered. A topic's name has up to 249 bytes."""

_BATCH_BYTES_MIN = 1024

_BEFORE_LIMITS = frozenset((Reason.RETURNED, Reason.HOPS))
"""Reasons of refusals that do not depend on a topic's size limit."""


class Sizes(NamedTuple):
    """What a producer may send to all targets."""

    record_bytes_max: int
    """The largest record that at least one target takes."""
    batch_bytes_max: int
    """The largest batch of several records that every target takes."""


class Targets:
    """The targets of a journal's routes. Thread-safe."""

    def __init__(self, kafka: Kafka, settings: Settings) -> None:
        self._kafka = kafka
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        self._lock = threading.Lock()
        self.bytes_max: dict[str, int] = {}
        """The max.message.bytes of each known topic. Other parts hold this dictionary, so it is changed in place."""
        self._partitions: dict[str, int] = {}
        self._compacted: frozenset[str] = frozenset()
        self._faults: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._suspected = False

    # ---- asking the cluster ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Look up every topic that the configuration names. Raises TopicError with the command that mends it."""
        routing = self._settings.routing
        wanted = fixed_topics(routing)
        self.look_up(wanted)
        faults = [f"route {name}: {self._faults[topic]}" for topic, name in wanted.items() if topic in self._faults]
        faults += self._misfits(routing)
        if faults:
            raise TopicError("; ".join(faults))

    def look_up(self, topics: Iterable[str]) -> None:
        """Ask the cluster for topics. Raises OperatingError."""
        wanted = list(topics)
        if not wanted:
            return
        cluster = self._kafka.cluster()
        try:
            found, hidden = self._describe(cluster, wanted, time.monotonic() + self._timeout_s)
        finally:
            cluster.close()
        with self._lock:
            for topic in wanted:
                state = found.get(topic)
                fault = hidden.get(topic) or fault_of_topic(self._settings, topic, state)
                if fault:
                    self._faults[topic] = fault
                if state is not None:
                    self._partitions[topic] = state.partitions
                    self.bytes_max[topic] = int(state.config["max.message.bytes"])
                if not fault:
                    # this is set last, so that a thread that reads without the lock finds everything else
                    self._faults.pop(topic, None)
            compacted = {topic for topic, state in found.items() if _is_compacted(state)}
            self._compacted = (self._compacted - set(wanted)) | compacted
            self._forget_some(len(wanted))

    def _forget_some(self, looked_at: int) -> None:
        """Forget the oldest faults. A template makes topic names from messages, so there may be any number of missing
        topics."""
        while len(self._faults) > max(looked_at, FAULTS_KEPT):
            topic = next(iter(self._faults))
            self._partitions.pop(topic, None)
            self.bytes_max.pop(topic, None)
            del self._faults[topic]  # this is set last, as above

    def _describe(
        self, cluster: Cluster, topics: list[str], until: float
    ) -> tuple[dict[str, TopicState], dict[str, str]]:
        """The topics that exist, and the faults of those that the cluster does not let us see.

        The cluster refuses a whole request if it refuses one topic, so that topic is found by halving the request.
        """
        try:
            return cluster.describe(topics, max(0.001, until - time.monotonic())), {}
        except KafkaRefusedError as error:
            if len(topics) == 1:
                return {}, {topics[0]: hidden_topic(self._settings, topics[0], error)}
        half = len(topics) // 2
        found, hidden = self._describe(cluster, topics[:half], until)
        further_found, further_hidden = self._describe(cluster, topics[half:], until)
        return found | further_found, hidden | further_hidden

    def refresh(self) -> None:
        """Ask the cluster again for all known topics. Raises OperatingError."""
        with self._lock:
            known = {*self._partitions, *self._faults}
        self.look_up(known)

    def refresh_suspected(self) -> None:
        """Call `refresh` if `suspect` or `try_again` was called since the last refresh. Raises OperatingError."""
        if self._suspected:
            self.refresh()
            self._suspected = False

    def suspect(self) -> None:
        """Note that a transaction with records for the targets has failed. The topics may have changed, so
        `refresh_suspected` will ask the cluster for them again."""
        self._suspected = True

    def refuse(self, topic: str, reason: str) -> None:
        """Note that the broker refuses records for a topic. No record goes there until `try_again`."""
        self._refused[topic] = f"topic {topic} refuses records: {reason}"

    def try_again(self) -> None:
        """Forget the faults of topics, because they may have been mended."""
        self._refused.clear()
        self._suspected = True

    # ---- what is known ---------------------------------------------------------------------------------------------

    def ready(self) -> dict[str, int]:
        """The number of partitions of each topic that takes any record that is not too large."""
        with self._lock:  # it is a copy, because other shards may add topics meanwhile
            return {
                topic: partitions
                for topic, partitions in self._partitions.items()
                if topic not in self._compacted and not self.fault(topic)
            }

    def knows(self, topic: str) -> bool:
        return topic in self._partitions or topic in self._faults

    def partitions(self, topic: str) -> int:
        return self._partitions[topic]

    def fault(self, topic: str, *, keyless: bool = False) -> str:
        """Why no record can be sent to a known topic; empty if records can be sent."""
        if fault := self.unfit(topic) or self._refused.get(topic):
            return fault
        if keyless and topic in self._compacted:
            return f"topic {topic} is compacted, and the record has no key"
        return ""

    def unfit(self, topic: str) -> str:
        """Why a known topic cannot be a target, by its description in the cluster; empty if it can."""
        if fault := self._faults.get(topic):
            return fault
        return "" if topic in self._partitions else f"topic {topic} is asked for again"

    def sizes(self) -> Sizes:
        """The size limits for producers that are made now: they follow from the settings, and from the limits of all
        topics that are known."""
        limits = self._settings.limits
        known = list(self.bytes_max.values())
        batch = min([limits.message_bytes_max, *(size - BATCH_OVERHEAD_BYTES for size in known)])
        return Sizes(max([limits.row_message_bytes_max, *known]), max(batch, _BATCH_BYTES_MIN))

    def _misfits(self, routing: RoutingConfig) -> list[str]:
        """Settings of routes that do not fit their topics, as texts for people."""
        faults = []
        for route in routing.routes:
            for target in route.targets:
                topic, rule = Template(target.topic).fixed, parse_rule(target.partitioner)
                if topic is None or topic not in self._partitions:
                    continue
                if rule.name == FIXED and rule.fixed >= self._partitions[topic]:
                    faults.append(f"route {route.name}: topic {topic} has no partition {rule.fixed}")
                if "none" in target.key and topic in self._compacted:
                    faults.append(f"route {route.name}: topic {topic} is compacted: its records need a key")
        return faults


def fixed_topics(routing: RoutingConfig) -> dict[str, str]:
    """The topics that routes name, also for dead letters, each with a route that names it."""
    topics: dict[str, str] = {}
    for route in routing.routes:
        named = [Template(target.topic).fixed or "" for target in route.targets]
        if route.on_error.value == "dead-letter":
            named.append(route.dead_letter_topic or routing.dead_letter_topic)
        for topic in named:
            if topic:
                topics.setdefault(topic, route.name)
    return topics


def topics_of(outcomes: Iterable[OutgoingRecord | RouteRefusal]) -> set[str]:
    """The topics on which the outcomes of a message depend. The topics of refusals are included, because a topic's
    limit may be the reason of a refusal."""
    topics: set[str] = set()
    for outcome in outcomes:
        if isinstance(outcome, OutgoingRecord):
            topics.add(outcome.topic)
            continue
        if outcome.topic and outcome.reason not in _BEFORE_LIMITS:
            topics.add(outcome.topic)
        if outcome.dead_letter is not None:
            topics.add(outcome.dead_letter.topic)
    return topics


def refresh_quietly(targets: Targets) -> None:
    """Refresh the targets. A failure is only logged, because the next refresh follows soon."""
    try:
        targets.refresh()
    except OperatingError as error:
        log.warning("the topics of routes cannot be looked at now: %s", error)


def _is_compacted(state: TopicState) -> bool:
    return "compact" in state.config.get("cleanup.policy", "")
