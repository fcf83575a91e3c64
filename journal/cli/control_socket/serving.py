"""How a node gets a control socket:

    with control_socket(settings, node, limits=...):
        ...

`node` is the interface of the node for the socket: callables, which the socket's threads call again for every request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from journal.cli.control_socket.lines import SocketLimits
from journal.cli.control_socket.paths import socket_path
from journal.cli.control_socket.server import ControlSocketServer
from journal.cli.operations.acting import WAIT_S, Served, StoreActing
from journal.cli.operations.looking import RowsOf, ServedStates, StateLooking, StateRows, rows_of_a_load
from journal.cli.operations.message import read_message
from journal.cli.operations.outcomes import outcome_rows
from journal.cli.operations.ports import (
    Json,
    MessageRead,
    MessagesFound,
    QueueAct,
    QueuesFound,
    Receiving,
    SendOrder,
    SendResult,
    SentSoFar,
    TransactionFound,
    TransactionsFound,
)
from journal.config import Settings
from journal.errors import FullError, InvalidOperationError, NotActiveError
from journal.words import called
from loaders.node.roles import Role


class ResumeSource(Protocol):
    """The operation of `NodeOperations.resume_source`."""

    def __call__(self, source: str, /, *, skip: bool, operator: str) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ServedNode:
    """A node as its control socket sees it. Any thread may call the callables, which must not block for long."""

    served: Callable[[], Served | None]
    """The activation for commands to use; None while the node is not active."""
    role: Callable[[], Role]
    status: Callable[[], Mapping[str, Any]]
    """The answer of `status`: values that JSON can hold."""
    hand_over: Callable[[str], Mapping[str, Any]]
    """Hand over to the named node (empty: to any); returns the answer. It may raise a JournalError."""
    active_node: Callable[[], str] = lambda: ""
    """The name of the active node, if this node knows it."""
    rows: RowsOf | None = None
    """Rows as of the WAL's committed end, for `tx list`, `tx show` and `explain`. None means those of a
    read-only load."""
    resume_source: ResumeSource | None = None
    """Let a stopped source go on; returns the answer. It may raise a JournalError. None means that the node has no
    sources."""


@contextmanager
def control_socket(
    settings: Settings, node: ServedNode, *, limits: SocketLimits | None = None
) -> Iterator[ControlSocketServer]:
    """Serve until the context ends, which must be before the node's store and journal close. Raises NodeSocketError."""
    path = socket_path(settings, settings.node)
    server = ControlSocketServer(path, settings.node, NodeService(settings, node), limits or SocketLimits())
    try:
        yield server
    finally:
        server.close()


class NodeService:
    """`NodeOperations` of a running node. Any thread may use it."""

    def __init__(self, settings: Settings, node: ServedNode) -> None:
        self._journal = settings.journal
        self._name = settings.node
        self._node = node
        self._open_rows = node.rows or partial(rows_of_a_load, settings)
        self._reading = threading.Lock()

    # ---- any role --------------------------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        return {"node": self._name, "role": self._node.role().value, **self._node.status()}

    def hand_over(self, to: str) -> Mapping[str, Any]:
        return self._node.hand_over(to)

    def resume_source(self, source: str, *, skip: bool, operator: str) -> Mapping[str, Any]:
        if self._node.resume_source is None:
            raise InvalidOperationError(f"node {self._name} takes no records from Kafka topics: it has no sources")
        return self._node.resume_source(source, skip=skip, operator=operator)

    # ---- active ----------------------------------------------------------------------------------------------------

    def queues(self) -> QueuesFound:
        return self._looking().queues()

    def messages(self, queue: str, limit: int) -> MessagesFound:
        return self._looking().messages(queue, limit)

    def message(self, message_id: int) -> MessageRead:
        return read_message(self._served().store, message_id, self._journal)

    def explain(self, record_id: int) -> Json:
        return self._looking().explain(record_id)

    def transactions(self) -> TransactionsFound:
        return self._looking().transactions()

    def transaction(self, named: str) -> TransactionFound:
        return self._looking().transaction(named)

    def send(self, order: SendOrder, so_far: SentSoFar) -> SendResult:
        return self._acting().send(order, so_far)

    def receiving(self, queue: str, receiver: str) -> Receiving:
        return self._acting().receiving(queue, receiver)

    def queue(self, act: QueueAct, *, operator: str) -> Json:
        return self._acting().queue(act, operator=operator)

    def settle(self, tx: int, *, commit: bool, operator: str) -> int:
        return self._knowing_outcomes().settle(tx, commit=commit, operator=operator)

    def forget(self, named: str, *, operator: str) -> int:
        return self._knowing_outcomes().forget(named, operator=operator)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _served(self) -> Served:
        served = self._node.served()
        if served is not None:
            return served
        role, active = self._node.role(), self._node.active_node()
        is_another = active not in ("", self._name)
        who = (
            f"; {active} is: --node={active} asks it, on its machine"
            if is_another
            else f": {self._node.status()['reason']}"
        )
        raise NotActiveError(f"node {self._name} of {called(self._journal)} is {role.value}, not active{who}")

    def _looking(self) -> StateLooking:
        served = self._served()
        return StateLooking(self._journal, ServedStates(served.store, self._rows, served.resource))

    def _acting(self) -> StoreActing:
        return StoreActing(self._served(), self._journal)

    def _knowing_outcomes(self) -> StoreActing:
        """The activation with the present outcomes. Without a resource of the broker's own, memory does not have the
        outcomes of transactions that were settled by hand since the load."""
        served = self._served()
        if served.resource is None:
            with self._rows() as state:
                served = served._replace(outcomes=outcome_rows(state.base))
        return StoreActing(served, self._journal)

    @contextmanager
    def _rows(self) -> Iterator[StateRows]:
        """Rows for one command at a time, because a node has other work to do."""
        if not self._reading.acquire(timeout=WAIT_S):
            raise FullError("others are reading this node's tables: try again")
        try:
            with self._open_rows() as state:
                yield state
        finally:
            self._reading.release()
