"""Who is in the nodes' group. A thread of its own asks again and again, so that no decision waits for an answer.

A standby that dies has reported that it is fit, and stays a member until its session ends. All information about the
group is advice: an error here costs time only.
"""

from __future__ import annotations

import logging
import threading

from journal.errors import JournalError
from journal.kafka.ports import Cluster, Kafka
from loaders.node.liveness import Members

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_ASK_S = 2.0
_END_S = 5.0


class Roll:
    """The roll of one group. It is called again and again until `close`."""

    def __init__(self, kafka: Kafka, group: str) -> None:
        self._kafka = kafka
        self._group = group
        self._changed = threading.Condition()
        self._begun = 0
        self._done = 0
        """Number of calls of the roll that have ended."""
        self._wanted = False
        self._closing = False
        self._members: frozenset[str] | None = None
        self._seen: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._run, name="kafka-journal-roll", daemon=True)
        self._thread.start()

    @property
    def members(self) -> Members:
        """Names of the nodes that were there at the last call; None if nobody could say. This never waits."""
        return self._members

    def has_left(self, name: str) -> bool:
        """Whether the node was there once and is known to have left. This never waits."""
        members = self._members
        return members is not None and name in self._seen and name not in members

    def call(self, timeout_s: float) -> None:
        """Call the roll now. If no answer comes in time, the earlier answer stays."""
        with self._changed:
            call = self._begun + 1
            self._wanted = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= call or self._closing, timeout_s)

    def close(self) -> None:
        """End the thread. A broker that does not answer is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(_END_S)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        cluster: Cluster | None = None
        while self._begin():
            try:
                cluster = cluster or self._kafka.cluster()
                found = frozenset(member.client_id for member in cluster.group_members(self._group, _ASK_S))
            except JournalError as error:
                log.debug("who is in group %s is not known: %s", self._group, error)
                if cluster is not None:
                    cluster.close()
                    cluster = None
                self._tell(None)
            else:
                self._tell(found)
        if cluster is not None:
            cluster.close()

    def _begin(self) -> bool:
        """Wait until it is time or somebody asks; return whether to call the roll again."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._closing, _EVERY_S if self._begun else 0.0)
            self._begun += 1
            self._wanted = False
            return not self._closing

    def _tell(self, found: frozenset[str] | None) -> None:
        with self._changed:
            self._members = found
            self._seen |= found or frozenset()
            self._done = self._begun
            self._changed.notify_all()
