"""Deleting a journal for good: its topics, its consumer groups, and what one machine keeps of it.

A control row says first that the journal is being destroyed, and the control topic goes last. So if a kill interrupts
the deletion, everybody who reads the control rows refuses the journal, and names the command `destroy`, which deletes
what is left. That row is written with a new epoch, in a transaction of the writer's transactional id: this fences a
node that becomes active meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass

from journal.errors import ActiveNodeError
from journal.kafka.ports import Cluster, Kafka
from journal.limits import NODE_BYTES_MAX
from journal.process.clocks import Clock
from journal.settings import JournalSettings
from journal.topics.control_keys import DESTROYED_KEY, EPOCH_KEY, control_row
from journal.topics.control_reading import ControlWatcher, prove_control
from journal.topics.control_rows import ControlRows
from journal.topics.names import OwnTopics, client_name, control_topic, writer_id
from journal.v1.journal_pb2 import Destroyed, Epoch


@dataclass(frozen=True, slots=True)
class Destruction:
    """The parts of a journal that exist. They are deleted in this order."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    """The control topic is the last one, if it is there."""
    rows: ControlRows
    """The control rows; without content if there is no control topic."""


class Destroyer:
    """Deletes one journal. One thread uses it."""

    def __init__(
        self, kafka: Kafka, settings: JournalSettings, *, operator: str, nonce: bytes, clock: Clock, wall_ms: Clock
    ) -> None:
        """`operator` names who deletes the journal, for people. `nonce` is 16 random bytes."""
        self._kafka = kafka
        self._journal = settings.journal
        self._operator = operator
        self._nonce = nonce
        self._clock = clock
        self._wall_ms = wall_ms
        self._timeout_s = settings.request_timeout_ms / 1000

    def plan(self) -> Destruction:
        """The parts of the journal that exist. This writes nothing. Raises ActiveNodeError while a node or a worker is
        a member of one of the journal's groups."""
        own, control = OwnTopics(self._journal), control_topic(self._journal)
        with closing(self._kafka.cluster()) as cluster:
            topics = sorted(each for each in cluster.topics(self._timeout_s) if each in own)
            beginning = client_name(self._journal, "")
            groups = sorted(each for each in cluster.groups(self._timeout_s) if each.startswith(beginning))
            self._require_no_members(cluster, groups)
        rows = ControlRows()
        if control in topics:
            topics.remove(control)
            topics.append(control)
            with closing(ControlWatcher(self._kafka, self._journal, self._clock, repairing=True)) as watcher:
                rows = watcher.catch_up(self._timeout_s)
        return Destruction(tuple(groups), tuple(topics), rows)

    def delete(self, agreed: Destruction, local: Callable[[], None]) -> None:
        """Delete everything; `local` deletes what this machine keeps. After an error or a kill, call `plan` and this
        again. Raises OperatingError."""
        control = control_topic(self._journal)
        if control in agreed.topics:
            self._mark()
        with closing(self._kafka.cluster()) as cluster:
            self._require_no_members(cluster, agreed.groups)
            for group in agreed.groups:
                cluster.delete_group(group, self._timeout_s)
            for topic in agreed.topics:
                if topic != control:
                    cluster.delete_topic(topic, self._timeout_s)
            local()
            cluster.delete_topic(control, self._timeout_s)

    def _require_no_members(self, cluster: Cluster, groups: Collection[str]) -> None:
        for group in groups:
            for member in cluster.group_members(group, self._timeout_s):
                raise ActiveNodeError(
                    f"journal {self._journal} is in use: {member.client_id} at {member.host} is a member of {group}: "
                    "stop it first (one that was killed is a member until its session has ended)"
                )

    def _mark(self) -> None:
        """Write that the journal is being destroyed, unless a control row says so already."""
        producer = self._kafka.transactional_producer(writer_id(self._journal))
        try:
            producer.init(self._timeout_s)
            rows = prove_control(self._kafka, self._journal, self._clock, self._timeout_s, repairing=True)
            if rows.destroyed is not None:
                return
            uuid = rows.identity.journal if rows.identity else rows.epoch.journal
            now = int(self._wall_ms())
            destroyed = Destroyed(journal=uuid, operator=self._operator, timestamp=now)
            name = f"destroy by {self._operator}".encode()[:NODE_BYTES_MAX].decode(errors="ignore")
            epoch = Epoch(journal=uuid, epoch=rows.epoch.epoch + 1, node=name, nonce=self._nonce, timestamp=now)
            sent = [
                control_row(self._journal, DESTROYED_KEY, destroyed),
                control_row(self._journal, EPOCH_KEY, epoch),
            ]
            producer.send(sent, self._timeout_s)
            producer.commit_transaction(self._timeout_s)
        finally:
            producer.close()
