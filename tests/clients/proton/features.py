"""What Proton for Python does with a broker, each feature on a connection, a queue and a topic of its own.

Argument: the broker's URL.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from proton import Delivery, Disposition, Message, int32, symbol, ulong
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import (
    AtMostOnce,
    Container,
    Copy,
    DurableSubscription,
    Selector,
)
from proton.utils import BlockingConnection, BlockingReceiver

WAIT_S = 10
NOTHING_S = 0.1


class Scene:
    """A feature's connection, with what most features use."""

    def __init__(self, name: str, url: str) -> None:
        self.url = url
        self.queue = "proton-" + "".join(each if each.isalnum() else "-" for each in name)
        self.topic = f"topic://{self.queue}-news"
        container = Container()
        container.container_id = self.queue
        self.connection = BlockingConnection(url, timeout=WAIT_S, container=container, allowed_mechs="ANONYMOUS")

    def send(self, *messages: Message, address: str | None = "") -> None:
        sender = self.connection.create_sender(self.queue if address == "" else address)
        for each in messages:
            assert sender.send(each).remote_state == Delivery.ACCEPTED
        sender.close()

    def receiver(self, address: str | None = "", **more: Any) -> BlockingReceiver:
        more.setdefault("credit", 10)
        return self.connection.create_receiver(self.queue if address == "" else address, **more)

    def through(self, message: Message) -> Message:
        """The message as it comes back."""
        self.send(message)
        return take(self.receiver())


def take(receiver: BlockingReceiver) -> Message:
    found = receiver.receive(WAIT_S)
    receiver.accept()
    return found


def receives(receiver: BlockingReceiver, *bodies: object) -> None:
    """The bodies of the next messages, and no further one comes."""
    for each in bodies:
        equal(take(receiver).body, each)
    until = time.monotonic() + NOTHING_S
    while time.monotonic() < until:
        receiver.container.do_work(NOTHING_S)
    equal(receiver.fetcher.has_message, 0)


def equal(found: object, expected: object) -> None:
    assert found == expected, f"expected {expected!r}, found {found!r}"


def text_message(s: Scene) -> None:
    equal(s.through(Message("größe")).body, "größe")


def bytes_message(s: Scene) -> None:
    message = Message(b"\1\2\3")
    message.inferred = True
    got = s.through(message)  # its body is a view of its memory
    equal(bytes(got.body), b"\1\2\3")


def map_message(s: Scene) -> None:
    equal(s.through(Message({"one": 1, "two": "2"})).body, {"one": 1, "two": "2"})


def list_message(s: Scene) -> None:
    message = Message(["one", 2, 0.5])
    message.inferred = True
    equal(s.through(message).body, ["one", 2, 0.5])


def properties(s: Scene) -> None:
    sent = {"boolean": True, "int": int32(3), "long": 4, "ulong": ulong(5), "double": 0.25, "string": "größe"}
    got = s.through(Message("body", properties=sent)).properties
    equal(got, sent)
    equal({name: type(value) for name, value in got.items()}, {name: type(value) for name, value in sent.items()})


def headers(s: Scene) -> None:
    sent = {
        "id": "id",
        "correlation_id": "correlation",
        "subject": "type",
        "reply_to": "replies",
        "address": s.queue,
        "content_type": "text/plain",
        "group_id": "group",
        "group_sequence": 7,
        "durable": True,
    }
    got = s.through(Message("body", **sent))
    equal({name: getattr(got, name) for name in sent}, sent)
    equal((got.first_acquirer, got.delivery_count), (True, 0))


def priority(s: Scene) -> None:
    s.send(*(Message(each, priority=each) for each in (4, 9, 0)))
    receives(s.receiver(), 9, 4, 0)


def time_to_live(s: Scene) -> None:
    s.send(Message("short", ttl=0.001))
    time.sleep(0.02)
    s.send(Message("long", ttl=60))
    receives(s.receiver(), "long")


def ten_mebibytes(s: Scene) -> None:
    large = bytes(10 * 1024 * 1024)
    assert s.through(Message(large)).body == large, "the bytes are not the same"


def anonymous_producer(s: Scene) -> None:
    subscriber = s.receiver(s.topic)
    s.send(Message("to a queue", address=s.queue), Message("to a topic", address=s.topic), address=None)
    receives(s.receiver(), "to a queue")
    receives(subscriber, "to a topic")


def delivery_delay(s: Scene) -> None:
    sent = time.monotonic()
    s.send(Message("later", annotations={symbol("x-opt-delivery-delay"): 300}))
    take(s.receiver())
    assert time.monotonic() - sent >= 0.3, "it came too soon"


def settled_on_sending(s: Scene) -> None:
    s.connection.create_sender(s.queue, options=AtMostOnce()).link.send(Message("sent"))
    receives(s.receiver(), "sent")


def settled_on_receiving(s: Scene) -> None:
    s.send(Message("one"))
    receiver = s.receiver(options=AtMostOnce())
    equal(receiver.receive(WAIT_S).body, "one")
    receiver.close()
    receives(s.receiver())


def receive_without_waiting(s: Scene) -> None:
    receiver = s.receiver(credit=0)
    link = receiver.link
    link.drain(10)
    s.connection.wait(lambda: not link.draining(), timeout=WAIT_S)
    equal(receiver.fetcher.has_message, 0)
    s.send(Message("there"))
    link.drain(10)
    s.connection.wait(lambda: not link.draining(), timeout=WAIT_S)
    equal(take(receiver).body, "there")


def prefetch_1000(s: Scene) -> None:
    s.send(*(Message(each) for each in range(20)))
    receives(s.receiver(credit=1000), *range(20))


def individual_acknowledge(s: Scene) -> None:
    s.send(Message("one"), Message("two"))
    receiver = s.receiver()
    receiver.receive(WAIT_S)
    receiver.receive(WAIT_S)
    second = receiver.fetcher.unsettled[-1]
    second.update(Disposition.ACCEPTED)
    second.settle()
    s.connection.container.do_work(0)
    receiver.close()
    receives(s.receiver(), "one")


def release(s: Scene) -> None:
    s.send(Message("answered"))
    receiver = s.receiver()
    receiver.receive(WAIT_S)
    receiver.release(delivered=False)
    equal(receiver.receive(WAIT_S).delivery_count, 0)


def modify(s: Scene) -> None:
    s.send(Message("answered"))
    receiver = s.receiver()
    receiver.receive(WAIT_S)
    failed = receiver.fetcher.unsettled.popleft()
    failed.local.failed = True
    failed.update(Disposition.MODIFIED)
    failed.settle()
    equal(receiver.receive(WAIT_S).delivery_count, 1)


def reject(s: Scene) -> None:
    s.send(Message("answered"))
    receiver = s.receiver()
    receiver.receive(WAIT_S)
    receiver.reject()
    receives(receiver)


class Transacted(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Sends one message, or takes one, in a transaction that ends as it is said; then leaves."""

    def __init__(self, s: Scene, *, sends: str, commits: bool) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._s, self._sends, self._commits = s, sends, commits
        self._link: Any = None
        self._transaction: Any = None

    def on_start(self, event: Any) -> None:
        self._container = event.container
        self._connection = event.container.connect(self._s.url, allowed_mechs="ANONYMOUS", reconnect=False)
        self._container.declare_transaction(self._connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self._transaction = event.transaction
        if self._sends:
            self._link = self._container.create_sender(self._connection, self._s.queue)
        else:
            self._link = self._container.create_receiver(self._connection, self._s.queue)
            self._link.flow(1)

    def on_sendable(self, event: Any) -> None:
        if self._link is not None and event.link.name == self._link.name and self._transaction is not None:
            self._transaction.send(event.sender, Message(self._sends))
            self._end()

    def on_message(self, event: Any) -> None:
        self._transaction.accept(event.delivery)
        self._end()

    def _end(self) -> None:
        (self._transaction.commit if self._commits else self._transaction.abort)()
        self._transaction = None

    def on_transaction_committed(self, event: Any) -> None:
        self._connection.close()

    on_transaction_aborted = on_transaction_committed


def commit(s: Scene) -> None:
    Container(Transacted(s, sends="one", commits=True)).run()
    receiver = s.receiver(credit=1)
    equal(receiver.receive(WAIT_S).body, "one")
    receiver.close()
    Container(Transacted(s, sends="", commits=True)).run()
    receives(s.receiver())


def rollback(s: Scene) -> None:
    Container(Transacted(s, sends="never", commits=False)).run()
    s.send(Message("once"))
    Container(Transacted(s, sends="", commits=False)).run()
    receiver = s.receiver()
    again = take(receiver)
    equal((again.body, again.delivery_count > 0), ("once", True))
    receives(receiver)


def topic(s: Scene) -> None:
    one, other = s.receiver(s.topic, name="one"), s.receiver(s.topic, name="other")
    s.send(Message("news"), address=s.topic)
    receives(one, "news")
    receives(other, "news")


def durable_subscription(s: Scene) -> None:
    away = s.receiver(s.topic, name="subscription", options=DurableSubscription())
    away.link.detach()
    s.connection.container.do_work(NOTHING_S)
    s.send(Message("while away"), address=s.topic)
    again = s.connection.container.connect(s.url, allowed_mechs="ANONYMOUS")
    again.close()
    receives(s.receiver(s.topic, name="subscription", options=DurableSubscription()), "while away")


def selector(s: Scene) -> None:
    s.send(*(Message(each, properties={"region": each}) for each in ("eu", "us")))
    receives(s.receiver(name="selecting", options=Selector("region = 'us'")), "us")
    receives(s.receiver(), "eu")


def browser(s: Scene) -> None:
    s.send(Message("one"), Message("two"))
    receives(s.receiver(name="browsing", options=Copy()), "one", "two")
    receives(s.receiver(), "one", "two")


def temporary_queue(s: Scene) -> None:
    receiver = s.receiver(None, dynamic=True)
    s.send(Message("here"), address=receiver.link.remote_source.address)
    receives(receiver, "here")


def request_and_reply(s: Scene) -> None:
    replies = s.receiver(None, dynamic=True)
    got = s.through(Message("request", reply_to=replies.link.remote_source.address))
    s.send(Message("reply", address=got.reply_to), address=None)
    receives(replies, "reply")


FEATURES: dict[str, Callable[[Scene], None]] = {
    **{each.__name__.replace("_", " "): each for each in (text_message, bytes_message, map_message, list_message)},
    **{each.__name__.replace("_", " "): each for each in (properties, headers, priority, time_to_live)},
    "10 MiB": ten_mebibytes,
    **{each.__name__.replace("_", " "): each for each in (anonymous_producer, delivery_delay, settled_on_sending)},
    **{each.__name__.replace("_", " "): each for each in (settled_on_receiving, receive_without_waiting)},
    **{each.__name__.replace("_", " "): each for each in (prefetch_1000, individual_acknowledge, release, modify)},
    **{each.__name__.replace("_", " "): each for each in (reject, commit, rollback, topic, durable_subscription)},
    **{each.__name__.replace("_", " "): each for each in (selector, browser, temporary_queue, request_and_reply)},
}


def main(url: str) -> None:
    for name, run in FEATURES.items():
        scene = Scene(name, url)
        try:
            run(scene)
            result = "ok"
        except Exception as error:  # noqa: BLE001 - any failure is the feature's result
            result = " ".join(str(error).split()) or type(error).__name__
        scene.connection.close()
        print(f"{name}\t{result}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
