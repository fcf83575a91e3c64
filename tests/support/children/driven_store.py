"""A process with one `Node` and its message store, which does what its standard input says, like `driven_node`.

Argument: NAME. `fill N` makes a queue with the messages 1 to N; `take N` takes from it so many times, through the last
store that this process had, active or not. It ends in order on SIGTERM or with its input.
"""

from __future__ import annotations

from journal.cli.node.store import StoreOwner
from journal.cli.stopping import stopped_by_signals
from journal.config import load_settings
from journal.errors import JournalError
from journal.store.model import Message, QueueConfig
from journal.store.store import MessageStore
from loaders.node.node import Node
from loaders.node.standing import ActiveNode
from tests.support.children.driven_node import tell_roles
from tests.support.children.telling import obey, tell

QUEUE = "orders"
_WAIT_S = 60.0


class Broker:
    """What serves consumers: it keeps the store of its last activation, as a thread in the middle of a call would."""

    def __init__(self, owner: StoreOwner) -> None:
        self._owner = owner
        self._store: MessageStore | None = None

    def on_active(self, active: ActiveNode) -> None:
        self._owner.on_active(active)
        assert self._owner.served is not None
        self._store = self._owner.served.store
        tell("active", epoch=active.report.epoch)

    def on_standby(self) -> None:
        self._owner.on_standby()
        tell("standby")

    def on_fenced(self, error: JournalError) -> None:
        self._owner.on_fenced(error)
        tell("fenced", error=type(error).__name__)

    def fill(self, count: int) -> None:
        store = self._require_store()
        store.create_address(QUEUE)
        store.create_queue(QueueConfig(QUEUE, QUEUE)).wait(_WAIT_S)
        sent = [store.send(Message(QUEUE, b"%d" % number), [QUEUE]) for number in range(1, count + 1)]
        for pending in sent:
            pending.wait(_WAIT_S)
        tell("filled")

    def take(self, times: int) -> None:
        """Tells of each delivery its body and count, and what was answered instead."""
        store = self._require_store()
        took: list[tuple[int, int]] = []
        instead: list[str] = []
        for _ in range(times):
            try:
                delivery = store.take(QUEUE, "consumer")
                if delivery is None:
                    instead.append("nothing")
                else:
                    took.append((int(store.message(delivery.message).body), delivery.deliveries))
            except JournalError as error:
                instead.append(type(error).__name__)
        tell("took", took=took, instead=instead)

    def flush(self) -> None:
        """What was taken so far is durably taken."""
        self._require_store().flush().wait(_WAIT_S)
        tell("flushed")

    def _require_store(self) -> MessageStore:
        assert self._store is not None, "it was never active"
        return self._store


def main(name: str) -> None:
    settings = load_settings(None, node=name)
    with StoreOwner(settings) as owner:
        broker = Broker(owner)
        node = Node(
            settings,
            loader=owner.loader,
            on_active=broker.on_active,
            on_standby=broker.on_standby,
            on_fenced=broker.on_fenced,
        )
        commands = {"fill": broker.fill, "take": broker.take, "flush": broker.flush}
        with stopped_by_signals() as stop, node:
            obey(commands, stop)
            tell_roles(node, stop)
    tell("ended")
