"""A node with a message store: `python -m bench.failover_node NAME [--cold] [--with-worker]`.

Settings come from the environment, and commands from standard input. After `load RATE` the node sends and acknowledges
messages whenever it is active, at that rate (operations of the journal per second), and reports when groups of them
were acknowledged. `fill N` sends N messages that stay; `hand-over` gives the journal to the standby. With --cold the
standby does not keep the queues warm, so that a take-over loads them. The node ends in order on SIGTERM, or when its
standard input ends.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from google.protobuf.json_format import MessageToDict

from bench.failover_processes import OPERATIONS_A_MESSAGE, tell
from bench.scene import RUN_TIMEOUT_S, TIMEOUT_S
from bench.workload import bodies
from journal.cli.common import Chosen
from journal.cli.node.handover import wait_for_successor
from journal.cli.stopping import stopped_by_signals
from journal.cli.worker.children import running_workers, worker_command
from journal.config import load_settings
from journal.errors import DeadlineError, FullError, JournalError, StateError
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.store.model import Message, QueueConfig
from journal.store.pending import Pending
from journal.store.store import MessageStore
from journal.v1.journal_pb2 import Mark, Operation
from loaders.node.node import Node
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode
from loaders.queues import QueueLoader

QUEUES = 64
"""The number of queues with messages that stay, and also the number of queues for the load. Each queue has an address
of its own."""

_UNBOUNDED = 1 << 40
_TICK_S = 0.004
_TELL_S = 0.05
_LOOK_S = 0.02
_FOREVER_S = 1e6


def warm_loader() -> QueueLoader:
    return QueueLoader(references_in_memory_max=_UNBOUNDED, queue_references_in_memory_max=_UNBOUNDED)


class ColdLoader:
    """A `QueueLoader` whose state is not kept warm."""

    def __init__(self) -> None:
        self.filled = warm_loader()

    def begin(self, marks: Mapping[int, Mark]) -> None:
        self.filled.begin(marks)

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self.filled.record(record_id, kind, data, updates, position)

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        self.filled.prepared(tx, data, operations)

    def complete(self, counts: LoadCounts) -> None:
        self.filled.complete(counts)


class Load:
    """A thread that sends messages at a rate, and acknowledges each once it is durable, until `stop`."""

    def __init__(self, store: MessageStore, rate: int) -> None:
        self._store = store
        self._rate = rate / OPERATIONS_A_MESSAGE
        self._bodies = bodies()
        self._sent: deque[tuple[Pending, str]] = deque()
        self._group: object = None
        self._times: deque[float] = deque()
        self._told_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        try:
            while not self._stop.is_set():
                due = int((time.monotonic() - began) * self._rate)
                while number < due:
                    self._send(number)
                    number += 1
                self._acknowledge_durable()
                self._tell(_TELL_S)
                self._stop.wait(_TICK_S)
            self._store.flush().wait(TIMEOUT_S)
        except JournalError as error:
            tell("refused", error=type(error).__name__)
        self._tell(0.0)
        tell("loaded", messages=number, seconds=time.monotonic() - began)

    def _send(self, number: int) -> None:
        queue = f"load-{number % QUEUES}"
        pending = self._store.send(Message(queue, self._bodies[number % len(self._bodies)]), [queue])
        self._sent.append((pending, queue))
        if pending.completion is not self._group:
            self._group = pending.completion
            pending.add_callback(self._note)

    def _note(self, error: JournalError | None) -> None:
        if error is None:
            self._times.append(time.time())

    def _acknowledge_durable(self) -> None:
        while self._sent and self._sent[0][0].done:
            pending, queue = self._sent.popleft()
            self._store.acknowledge(pending.wait(), queue)

    def _tell(self, after_s: float) -> None:
        now = time.monotonic()
        if self._times and now - self._told_at >= after_s:
            self._told_at = now
            tell("acknowledged", times=[self._times.popleft() for _ in range(len(self._times))])


class Owner:
    """Does what a broker does with its node: it makes a store when the node becomes active. Its callbacks run in the
    node's thread, everything else in the main thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store: MessageStore | None = None
        self._load: Load | None = None
        self._rate = 0

    def on_active(self, active: ActiveNode) -> None:
        loader = active.loader
        loaded = loader.filled.loaded if isinstance(loader, ColdLoader) else None
        if isinstance(loader, QueueLoader):
            loaded = loader.loaded
        assert loaded is not None
        store = MessageStore(active.journal)
        store.start(loaded)
        with self._lock:
            self._store = store
            self._start_load()

    def on_standby(self) -> None:
        with self._lock:
            load, self._load = self._load, None
            store, self._store = self._store, None
        if load is not None:
            load.stop()
        if store is not None:
            store.close()

    def on_fenced(self, error: JournalError) -> None:
        self.on_standby()

    def load(self, rate: int) -> None:
        with self._lock:
            self._rate = rate
            self._start_load()

    def _start_load(self) -> None:
        if self._rate and self._store is not None and self._load is None:
            self._load = Load(self._store, self._rate)

    def fill(self, messages: int) -> None:
        """Declares all queues, and sends messages that stay."""
        store = self._store
        if store is None:
            raise StateError("this node is not active")
        for kind in ("stock", "load"):
            for number in range(QUEUES):
                store.create_address(f"{kind}-{number}")
        store.flush().wait(TIMEOUT_S)
        for kind in ("stock", "load"):
            for number in range(QUEUES):
                store.create_queue(QueueConfig(f"{kind}-{number}", f"{kind}-{number}"))
        store.flush().wait(TIMEOUT_S)
        data = bodies()
        for number in range(messages):
            queue = f"stock-{number % QUEUES}"
            _send_patiently(store, Message(queue, data[number % len(data)]), queue)
        store.flush().wait(RUN_TIMEOUT_S)
        tell("filled")


def _send_patiently(store: MessageStore, message: Message, queue: str) -> None:
    while True:
        try:
            store.send(message, [queue])
        except FullError:
            store.room().wait(TIMEOUT_S)
        else:
            return


def _obey(node: Node, owner: Owner, stop: threading.Event) -> None:
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "load":
            owner.load(int(rest[0]))
        elif word == "fill":
            owner.fill(int(rest[0]))
        elif word == "hand-over":
            try:
                node.hand_over()
            except JournalError as error:
                tell("failed", error=str(error))
    stop.set()


def _tell_take_overs(node: Node) -> None:
    """Reports when the node begins to activate and when it is active, as seen by a caller who waits for that."""
    try:
        while True:
            node.wait_for(Role.ACTIVATING, _FOREVER_S)
            began = time.time()
            if not _becomes_active(node):
                continue  # this try to activate has failed
            active = time.time()
            parts = MessageToDict(
                node.status().last_failover, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
            tell("active", began=began, active=active, parts=parts)
            node.wait_for(Role.STANDBY, _FOREVER_S)
    except StateError:
        return  # the node has ended


def _becomes_active(node: Node) -> bool:
    """Waits for a node that is activating; returns whether it becomes active, as soon as it does."""
    while True:
        try:
            node.wait_for(Role.ACTIVE, _LOOK_S)
        except DeadlineError:
            if node.role is not Role.ACTIVATING:
                return node.role is Role.ACTIVE
        else:
            return True


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s: %(message)s", datefmt="%H:%M:%S")
    name, *flags = sys.argv[1:]
    settings = load_settings(None, node=name)
    owner = Owner()
    with ExitStack() as ending:
        stop = ending.enter_context(stopped_by_signals())
        if "--with-worker" in flags:
            command = worker_command(settings, Chosen(), as_json=False, verbose=False, standby=True)
            ending.enter_context(running_workers(command))
            ending.callback(wait_for_successor, settings)
        node = Node(
            settings,
            loader=ColdLoader if "--cold" in flags else warm_loader,
            on_active=owner.on_active,
            on_standby=owner.on_standby,
            on_fenced=owner.on_fenced,
        )
        ending.enter_context(node)
        threading.Thread(target=_obey, args=(node, owner, stop), daemon=True).start()
        threading.Thread(target=_tell_take_overs, args=(node,), daemon=True).start()
        told = None
        while not stop.wait(_LOOK_S):
            status = node.status()
            if (status.role, status.fit) != told:
                told = (status.role, status.fit)
                tell("role", role=status.role, fit=status.fit, why_not=status.why_not)


if __name__ == "__main__":
    main()
