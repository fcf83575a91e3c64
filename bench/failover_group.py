"""The limit of a failover: a plain consumer group of two processes, of which one leaves or is killed."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

from bench import limits
from bench.failover_processes import Told, wait_for_members
from journal.config import Settings


class Group:
    """Two processes of `bench.failover_member` with the nodes' session and heartbeat; one holds the only partition."""

    def __init__(self, bootstrap: str, settings: Settings, ending: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._ending = ending
        self._name = uuid.uuid4().hex
        self._topic = limits.new_topic(bootstrap, 1)
        self._holder = self._start()
        self._holder.next("assigned", 0.0)
        self._other = self._start()

    def _start(self) -> Told:
        session_ms, heartbeat_ms = self._settings.node_session_timeout_ms, self._settings.node_heartbeat_ms
        command = ["bench.failover_member", self._bootstrap, self._name, self._topic, str(session_ms)]
        member = Told([*command, str(heartbeat_ms)], {}, self._settings.directory / f"{self._name}.log")
        self._ending.enter_context(member)
        member.tell("open")
        return member

    def leave_s(self) -> float:
        """Returns the seconds from the holder's closing to the other member's assignment."""
        wait_for_members(self._bootstrap, self._name, 2)
        before = self._holder.events[-1]["at"]
        self._holder.tell("close")
        closing = self._holder.next("closing", before)["at"]
        took = self._swap(closing)
        self._other.next("closed", closing)
        self._other.tell("open")
        return took

    def kill_s(self) -> float:
        """Returns the seconds from the holder's death to the other member's assignment."""
        wait_for_members(self._bootstrap, self._name, 2)
        took = self._swap(self._holder.kill())
        self._other = self._start()
        return took

    def _swap(self, began: float) -> float:
        self._holder, self._other = self._other, self._holder
        took: float = self._holder.next("assigned", began)["at"] - began
        return took
