"""Local transactions, with proton's own transaction controller."""

from __future__ import annotations

import proton
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Transaction
from proton.utils import BlockingConnection

from tests.unit.broker.conftest import TIMEOUT_S, Broker


class InTransaction(MessagingHandler, TransactionHandler):
    """Receives a message, sends one more, and settles both as a transaction; then does it again, if it is told so."""

    def __init__(self, url: str, outcomes: list[str]) -> None:
        MessagingHandler.__init__(self, prefetch=0, auto_accept=False)
        TransactionHandler.__init__(self)
        self.url = url
        self.outcomes = outcomes
        self.seen: list[tuple[str, int]] = []
        self.told: list[str] = []

    def on_start(self, event: proton.Event) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, allowed_mechs="ANONYMOUS", reconnect=False)
        self.receiver = event.container.create_receiver(self.connection, "in")
        self.sender = event.container.create_sender(self.connection, "out")
        self.begin()

    def begin(self) -> None:
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: proton.Event) -> None:
        self.transaction: Transaction = event.transaction
        self.receiver.flow(1)

    def on_message(self, event: proton.Event) -> None:
        self.seen.append((event.message.body, event.message.delivery_count))
        self.transaction.send(self.sender, proton.Message(body=f"answer to {event.message.body}"))
        self.transaction.accept(event.delivery)
        outcome = self.outcomes.pop(0)
        if outcome == "commit":
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_committed(self, event: proton.Event) -> None:
        self.go_on("committed")

    def on_transaction_aborted(self, event: proton.Event) -> None:
        self.go_on("aborted")

    def go_on(self, told: str) -> None:
        self.told.append(told)
        if self.outcomes:
            self.begin()
        else:
            self.connection.close()


def run(broker: Broker, outcomes: list[str]) -> InTransaction:
    handler = InTransaction(broker.url, outcomes)
    Container(handler).run()
    return handler


def test_a_rollback_gives_back_what_was_taken_and_a_commit_keeps_all(
    broker: Broker, client: BlockingConnection
) -> None:
    client.create_sender("in").send(proton.Message(body="question"))
    handler = run(broker, ["abort", "commit"])
    assert handler.told == ["aborted", "committed"]
    assert handler.seen == [("question", 0), ("question", 1)]
    receiver = client.create_receiver("out")
    assert receiver.receive(TIMEOUT_S).body == "answer to question"
    receiver.accept()
    found = broker.store.queue("in")
    assert (found.ready, found.held, found.locked) == (0, 0, 0)
    assert broker.store.queue("out").ready == 0


def test_what_is_committed_survives_a_crash_and_what_is_open_does_not(broker: Broker) -> None:
    client = broker.connect()
    client.create_sender("in").send(proton.Message(body=1))
    client.create_sender("in", name="second").send(proton.Message(body=2))
    run(broker, ["commit"])
    tx = broker.store.begin()
    taken = broker.store.take("in", "somebody")
    assert taken is not None
    broker.store.acknowledge(taken.message, "in", "somebody", tx)
    broker.crash()
    client = broker.connect()
    assert client.create_receiver("in").receive(TIMEOUT_S).body == 2
    assert client.create_receiver("out").receive(TIMEOUT_S).body == "answer to 1"
    client.close()
