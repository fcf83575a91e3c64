"""`Node`: one of several that serve a journal. One is active; the others are standbys that follow the tables.

    def on_active(active: ActiveNode) -> None: ...      # append through active.journal, serve active.loader's state

    with Node(settings, loader=QueueLoader, on_active=on_active, on_fenced=stop_serving) as node:
        ...                                             # until somebody wants it to end

`loaders.node.life` is what its thread does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from journal.activate.copy import TableCopy
from journal.config import Settings
from journal.disk.slots import leaving_nothing_of_no_journal, take_slot
from journal.errors import ConfigError, DeadlineError, JournalError, StateError
from journal.kafka.clients import kafka_of
from journal.load.loading import Loader
from journal.process.clocks import wall_ms
from journal.process.progress import Progress, no_progress
from journal.v1.journal_pb2 import NodeStatus
from loaders.node.asked_handover import AskedHandOver
from loaders.node.duty import nobody_fit
from loaders.node.hooks import RoleHooks
from loaders.node.life import NodeLife
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode, NodeOwner, NodeStanding
from loaders.node.surroundings import surroundings_of

__all__ = ["ActiveNode", "Node"]


def _nothing() -> None:
    """The default `on_standby`, for an owner that needs none."""


def _nothing_more(_: JournalError) -> None:
    """The default `on_fenced`, for an owner that needs none."""


class Node:
    """One node. Any thread may call its methods, except its own thread, which runs the callbacks."""

    def __init__(
        self,
        settings: Settings,
        *,
        loader: Callable[[], Loader],
        on_active: Callable[[ActiveNode], None],
        on_standby: Callable[[], None] = _nothing,
        on_fenced: Callable[[JournalError], None] = _nothing_more,
        progress: Progress = no_progress,
    ) -> None:
        """`loader` makes a loader for each activation; a standby keeps a `FollowingLoader` warm.

        `on_active` takes over the journal and the filled loader. When it returns, the node reports that it is active;
        when it raises, the activation has failed.

        `on_standby` is called when the node becomes a standby at its start and after `on_fenced`, and when the node
        gives the journal up in order. In the last case the journal is still open: appends that are accepted until the
        callback returns are written.

        `on_fenced` is called when the node is no longer active and did not choose so. From then on the owner must hand
        out nothing.

        All callbacks run in the node's thread, which waits for them. Errors of the last two are logged. Raises
        ConfigError for `fail_back` without `preferred`.
        """
        if settings.fail_back and not settings.preferred:
            raise ConfigError("fail_back is for a preferred node: set preferred too, or give --preferred")
        self._settings = settings
        self._owner = NodeOwner(loader, on_active, on_standby, on_fenced, progress)
        self._hooks = RoleHooks(settings)
        self._standing = NodeStanding(settings, clock_ms=wall_ms)
        self._asked = AskedHandOver(time.monotonic)
        self._stop = threading.Event()
        self._life: NodeLife | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the local copy and become a standby. Raises TopicError, KafkaUnavailableError, LocalStorageError."""
        if self._thread is not None or self._stop.is_set():
            raise StateError(f"the node is {self.role.value}")
        settings = self._settings
        kafka = kafka_of(settings)
        with leaving_nothing_of_no_journal(settings.journal_directory):
            slot = take_slot(settings.journal_directory, "node")
            copy = TableCopy(settings, slot=slot, kafka=kafka)
            try:
                rows = copy.open()
            except BaseException:
                slot.release()
                raise
        surroundings = surroundings_of(settings, kafka, copy)
        life = self._life = NodeLife(
            settings, surroundings, copy, rows, self._standing, self._hooks, self._owner, self._asked, stop=self._stop
        )
        self._standing.identify(copy.identity.journal, life.fitness)

        def live() -> None:
            try:
                life.run()
            finally:
                slot.release()
                self._standing.end()

        self._thread = threading.Thread(target=live, name="kafka-journal-node", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 60.0) -> None:
        """Hand over to a fit standby, or release the journal if there is none, and end. Raises DeadlineError after
        `timeout_s`; the node still ends afterwards."""
        self._stop.set()
        if self._life is None or self._thread is None:
            return
        self._life.end_activation()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise DeadlineError(f"the node is still {self.role.value} after {timeout_s:g} s")

    def hand_over(self, to: str = "", timeout_s: float = 30.0) -> None:
        """Give the journal to a fit standby (`to`, or the best one) and become a standby.

        Raises StateError if this node is not active, or stops being active before it could hand over. Raises
        DeadlineError after `timeout_s`: either no standby was fit and this node stays active, or the hand-over has
        begun and will end by itself. Once this returns the node writes nothing more. If the successor could not be
        told, the log says so, and the successor takes over when it finds this node silent.
        """
        if self.role is not Role.ACTIVE:
            raise StateError(f"the node is {self.role.value}, not active")
        asking = self._asked.ask(self._standing.epoch, to, awaited=True)
        try:
            try:
                self._standing.wait(lambda role: role not in (Role.ACTIVE, Role.STOPPING), timeout_s)
            finally:
                self._asked.withdraw(asking)
        except DeadlineError as error:
            if self.role is Role.ACTIVE:
                raise DeadlineError(f"{nobody_fit(to)}: {error}") from error
            if self.role is Role.STOPPING:
                raise
        if self._asked.begun != asking.epoch:
            raise StateError(f"the node did not hand over before it was active no more; it is {self.role.value}")

    @property
    def role(self) -> Role:
        return self._standing.role

    def status(self) -> NodeStatus:
        """The status that this node reports to the others."""
        return self._standing.status()

    @property
    def active_node(self) -> str:
        """The name of the active node according to the control rows; empty if there is none or it is not known."""
        return self._life.active_node if self._life is not None else ""

    def wait_for(self, role: Role, timeout_s: float) -> None:
        """Wait until the node has this role. Raises DeadlineError, or StateError if the node ends first."""
        self._standing.wait(lambda now: now in (role, Role.STOPPED), timeout_s)
        if role is not Role.STOPPED and self.role is Role.STOPPED:
            raise StateError(f"the node is stopped: {self.status().reason}")

    def __enter__(self) -> Node:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
