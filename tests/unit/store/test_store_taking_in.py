"""Messages taken in with what was consumed for them: routed as sent ones, all of a batch or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from journal.append.completion import Completion
from journal.append.operations import NewRecords, PlainOperation
from journal.errors import (
    AddressInUseError,
    AddressMissingError,
    DuplicateMessageError,
    FencedError,
    MessageHeldError,
    MessageMissingError,
    MessageTooLargeError,
    NotTakenInError,
    QueueInDoubtError,
    QueueMissingError,
)
from journal.kafka.ports import Consumed, Sent
from journal.local.journal import LocalJournal
from journal.store.incoming import Incoming, PlainRun
from journal.store.model import Message, QueueConfig, Routing
from journal.store.operations.take_in import Settles, TakenIn
from journal.store.settings import StoreSettings
from tests.support.children.store import start

OFFSETS = Consumed("group", {("topic", 0): 1})


class Border(LocalJournal):
    """A journal that can take in. While `held` is a list, it has what was accepted, for the test to decide on."""

    held: list[tuple[Sequence[PlainOperation | NewRecords], Completion]] | None = None

    def take_in(
        self, operations: Sequence[PlainOperation | NewRecords], consumed: Consumed, beside: Sequence[Sent] = ()
    ) -> Completion:
        if self.held is None:
            return self.require_core().take_in(operations, consumed, beside)
        self.held.append((operations, Completion()))
        return self.held[-1][1]


class Scene:
    """A store on it."""

    def __init__(self, directory: Path, encoded_at_once: bool) -> None:
        """With `encoded_at_once` the store is not given the messages that are said by their data."""
        self._directory = directory
        self._encoded_at_once = encoded_at_once
        self.start()

    def start(self) -> None:
        self.journal = Border(self._directory, shards=2)
        self.journal.start()
        self.store = start(self.journal, StoreSettings(inline_bytes_max=100, chunk_bytes=64))

    def restart(self) -> None:
        self.close()
        self.start()

    def close(self) -> None:
        self.store.close()
        self.journal.close()

    def declare(self, *queues: QueueConfig, window: int = 0) -> None:
        self.store.create_address("orders", window)
        for queue in queues:
            self.store.create_queue(queue)
        self.store.flush().wait(10)

    def take_in(self, *messages: Message) -> TakenIn:
        return self.store.take_in(self.incoming(messages), OFFSETS, (), takes_odd)

    def incoming(self, messages: Sequence[Message]) -> list[Incoming | PlainRun]:
        """Plain ones that follow each other are a run, if they are encoded at once."""
        found: list[Incoming | PlainRun] = []
        for message in messages:
            made = self.store.incoming(message)
            if not (self._encoded_at_once and made.data and message == Message(message.address, message.body)):
                found.append(made)
                continue
            if not (found and isinstance(found[-1], PlainRun)):
                found.append(PlainRun(made.address, [], []))
            assert isinstance(found[-1], PlainRun)
            found[-1].data.append(made.data)
            found[-1].timestamps.append(made.timestamp)
        return found

    def send(self, body: str) -> int:
        pending = self.store.send(order(body), ["q"])
        pending.wait(10)
        return pending.id

    def answer(self, *messages: int, expired: bool = False) -> TakenIn:
        """Take in a reply that settles these messages of queue q."""
        incoming = self.incoming([order("reply")])
        settles = [Settles(message, "q", expired) for message in messages]
        return self.store.take_in(incoming, OFFSETS, (), takes_odd, settles)

    def hold(self) -> None:
        self.journal.held = []

    def decide(self, error: NotTakenInError | FencedError | None) -> None:
        """Tell what became of the batch that is held."""
        held, self.journal.held = self.journal.held, None
        assert held is not None
        operations, completion = held[0]
        if error is None:
            self.journal.take_in(operations, OFFSETS).wait(10)
        completion.resolve(error)

    def bodies(self, queue: str) -> list[bytes]:
        return [self.store.message(info.message).body for info in self.store.browse(queue)]

    def ready(self, queue: str) -> tuple[int, int]:
        info = self.store.queue(queue)
        return info.ready, info.arriving


def takes_odd(message: Message, queue: QueueConfig) -> bool:
    """A queue's filter is a number that bodies must end with."""
    return message.body.decode().endswith(queue.filter)


def order(body: str, duplicate_id: str = "") -> Message:
    return Message("orders", body.encode(), duplicate_id=duplicate_id.encode())


@pytest.fixture(params=[False, True], ids=["messages", "encoded"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    made = Scene(tmp_path, request.param)
    yield made
    made.close()


def queue(name: str, **more: object) -> QueueConfig:
    return QueueConfig(name, "orders", **more)  # type: ignore[arg-type]


def test_a_batch_is_in_all_queues_that_take_it_in_order_and_after_a_load_too(scene: Scene) -> None:
    multicast = {"routing": Routing.MULTICAST}
    scene.declare(queue("all", **multicast), queue("ones", filter="1", **multicast), queue("one"), queue("other"))
    taken = scene.take_in(order("1"), order("2"), order("11"), order("x" * 200))
    taken.completion.wait(10)
    assert (taken.messages, taken.unrouted, taken.duplicates) == (4, 0, 0)
    for _ in range(2):
        assert scene.bodies("all") == [b"1", b"2", b"11", b"x" * 200]
        assert scene.bodies("ones") == [b"1", b"11"]
        assert len(scene.bodies("one")) == len(scene.bodies("other")) == 2
        scene.restart()


def test_messages_of_every_kind_are_queued_in_their_order_and_after_a_load_too(scene: Scene) -> None:
    scene.declare(queue("q"), window=10)
    bodies = ["1", "2", "large" * 100, "3", "4", "known", "5"]
    batch = [order(body, "d" if body == "known" else "") for body in bodies]
    for messages, duplicates in ((7, 0), (6, 1)):
        taken = scene.take_in(*batch)
        taken.completion.wait(10)
        assert (taken.messages, taken.duplicates) == (messages, duplicates)
    expected = [body.encode() for body in (*bodies, *(body for body in bodies if body != "known"))]
    assert scene.bodies("q") == expected
    scene.restart()
    assert scene.bodies("q") == expected


def test_what_no_queue_takes_is_not_stored(scene: Scene) -> None:
    scene.declare(queue("ones", filter="1"))
    taken = scene.take_in(order("2"), order("1"), order("3"))
    taken.completion.wait(10)
    assert (taken.messages, taken.unrouted) == (1, 2)
    assert scene.bodies("ones") == [b"1"]
    scene.restart()
    assert scene.store.orphaned_messages == 0


def test_an_address_or_queue_that_is_not_there_refuses_the_batch(scene: Scene) -> None:
    with pytest.raises(AddressMissingError):
        scene.take_in(order("1"))
    scene.declare()
    with pytest.raises(QueueMissingError):
        scene.take_in(order("1"))
    with pytest.raises(MessageTooLargeError):
        scene.take_in(order("x" * (64 * 1024 * 1024 + 1)))


def test_a_duplicate_is_left_out_and_may_come_again_if_the_first_is_taken_back(scene: Scene) -> None:
    scene.declare(queue("q"), window=10)
    scene.store.send(order("sent", "a"), ["q"]).wait(10)
    scene.hold()
    taken = scene.take_in(order("1", "a"), order("2", "b"), order("3", "b"))
    assert (taken.messages, taken.duplicates) == (1, 2)
    with pytest.raises(DuplicateMessageError):
        scene.store.send(order("4", "b"), ["q"])
    scene.decide(NotTakenInError("no"))
    scene.take_in(order("5", "b")).completion.wait(10)
    scene.restart()
    with pytest.raises(DuplicateMessageError):
        scene.store.send(order("6", "b"), ["q"])
    assert scene.bodies("q") == [b"sent", b"5"]


def test_messages_taken_in_are_visible_once_they_are_durable(scene: Scene) -> None:
    scene.declare(queue("q"))
    scene.hold()
    scene.take_in(order("1"))
    assert scene.ready("q") == (0, 1)
    assert scene.store.take("q", "holder") is None
    scene.decide(None)
    assert scene.store.take("q", "holder") is not None


def test_a_batch_that_is_not_in_the_journal_leaves_nothing_and_disturbs_nobody(scene: Scene) -> None:
    scene.declare(queue("q"))
    scene.store.send(order("before"), ["q"])
    scene.hold()
    scene.take_in(order("1"), order("x" * 200))
    scene.store.send(order("after"), ["q"])
    scene.decide(NotTakenInError("no"))
    scene.store.flush().wait(10)
    assert scene.ready("q") == (2, 0)
    scene.take_in(order("again")).completion.wait(10)
    assert scene.bodies("q") == [b"before", b"after", b"again"]
    assert scene.store.cached_bytes >= 0


def test_a_node_that_is_fenced_meanwhile_has_a_store_that_refuses_everything(scene: Scene) -> None:
    scene.declare(queue("q"))
    scene.hold()
    scene.take_in(order("1"))
    scene.decide(FencedError("another node", epoch=9))
    with pytest.raises(FencedError):
        scene.store.queues()


@pytest.mark.parametrize("there", [True, False])
def test_a_queue_may_be_destroyed_while_messages_are_on_their_way_to_it(scene: Scene, there: bool) -> None:
    scene.declare(queue("q", routing=Routing.MULTICAST), queue("kept", routing=Routing.MULTICAST))
    scene.store.destroy_queue("kept").wait(10)
    scene.hold()
    scene.take_in(order("1"), order("2"))
    scene.store.destroy_queue("q").wait(10)
    with pytest.raises(AddressInUseError):
        scene.store.destroy_address("orders")
    scene.decide(None if there else NotTakenInError("no"))
    scene.store.create_queue(queue("q")).wait(10)
    assert scene.ready("q") == (0, 0)
    scene.store.destroy_queue("q").wait(10)
    scene.store.destroy_address("orders").wait(10)
    scene.store.flush().wait(10)
    scene.restart()
    assert scene.store.orphaned_messages == 0


def test_messages_taken_in_are_told_from_those_that_are_not_there(scene: Scene) -> None:
    scene.declare(queue("q"))
    scene.hold()
    scene.take_in(order("1"))
    scene.decide(NotTakenInError("no"))
    assert list(scene.store.browse("q")) == []
    with pytest.raises(MessageMissingError):
        scene.store.message(1)


def test_the_queues_of_addresses_are_told_if_there_are_any(scene: Scene) -> None:
    scene.declare(queue("q"), queue("r"))
    found = scene.store.ways_in(["orders", "nowhere"])
    assert {name: [each.name for each in queues] for name, queues in found.items()} == {"orders": ["q", "r"]}


# ---- what a batch settles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expired", [False, True])
def test_what_a_batch_settles_is_gone_with_it_and_after_a_load_too(scene: Scene, expired: bool) -> None:
    scene.declare(queue("q"))
    first, large, _ = scene.send("1"), scene.send("x" * 200), scene.send("2")
    scene.answer(first, large, expired=expired).completion.wait(10)
    for _ in range(2):
        assert scene.bodies("q") == [b"2", b"reply"]
        scene.store.flush().wait(10)
        scene.restart()
    assert scene.store.orphaned_messages == 0


def test_what_a_batch_settles_is_locked_until_that_is_known_and_waits_again_if_it_is_not(scene: Scene) -> None:
    scene.declare(queue("q"))
    first, second = scene.send("1"), scene.send("2")
    scene.hold()
    scene.answer(first)
    with pytest.raises(MessageHeldError):
        scene.store.acknowledge(first, "q")
    scene.decide(NotTakenInError("no"))
    assert scene.bodies("q") == [b"1", b"2"]
    delivery = scene.store.take("q", "holder")
    assert delivery is not None
    assert delivery.message == first
    scene.answer(second).completion.wait(10)
    assert scene.bodies("q") == [b"1", b"reply"]


def test_a_batch_that_settles_what_is_held_or_gone_changes_nothing(scene: Scene) -> None:
    scene.declare(queue("q"))
    first, second, third = scene.send("1"), scene.send("2"), scene.send("3")
    scene.store.take("q", "holder")
    scene.store.acknowledge(third, "q").wait(10)
    with pytest.raises(MessageHeldError):
        scene.answer(second, first)
    with pytest.raises(MessageMissingError):
        scene.answer(second, third)
    assert scene.bodies("q") == [b"1", b"2"]
    scene.answer(second).completion.wait(10)
    assert scene.bodies("q") == [b"1", b"reply"]


@pytest.mark.parametrize("transacted", [False, True])
def test_a_queue_of_which_a_batch_on_its_way_settles_messages_is_not_destroyed(scene: Scene, transacted: bool) -> None:
    scene.declare(queue("q"), queue("kept"))
    store = scene.store
    first, second = scene.send("1"), scene.send("2")
    scene.hold()
    scene.answer(first)
    tx = store.begin() if transacted else 0
    with pytest.raises(QueueInDoubtError):
        store.destroy_queue("q", tx)
    scene.decide(None)
    third = scene.send("3")
    store.flush().wait(10)
    scene.restart()
    store = scene.store
    assert [info.message for info in store.browse("q")][:2] == [second, third]
    tx = store.begin() if transacted else 0
    store.destroy_queue("q", tx)
    if tx:
        store.commit(tx)
    store.flush().wait(10)
    assert [info.config.name for info in store.queues()] == ["kept"]


def test_what_is_settled_in_one_queue_stays_in_another(scene: Scene) -> None:
    multicast = {"routing": Routing.MULTICAST}
    scene.declare(queue("q", **multicast), queue("other", **multicast))
    sent = scene.store.send(order("1"), ["q", "other"])
    sent.wait(10)
    scene.hold()
    scene.answer(sent.id)
    scene.store.acknowledge(sent.id, "other").wait(10)
    scene.decide(None)
    assert (scene.bodies("q"), scene.bodies("other")) == ([b"reply"], [b"reply"])
    scene.store.flush().wait(10)
    scene.restart()
    assert (scene.bodies("q"), scene.bodies("other")) == ([b"reply"], [b"reply"])
    assert scene.store.orphaned_messages == 0


def test_a_batch_gets_no_id_that_a_message_has_which_is_not_durable(scene: Scene) -> None:
    scene.declare(queue("q"))
    before = scene.journal.new_id(scene.store.queue("q").record_id & 1023)
    chosen = [before + number * 1024 for number in (2, 4, 5)]
    for each in chosen:
        scene.store.send(Message("orders", b"volatile", durable=False), ["q"], id=each).wait()
    taken = scene.take_in(order("1"), order("2"), order("x" * 200), order("3"))
    taken.completion.wait(10)
    assert scene.bodies("q") == [b"volatile"] * 3 + [b"1", b"2", b"x" * 200, b"3"]
    scene.restart()
    assert scene.bodies("q") == [b"1", b"2", b"x" * 200, b"3"]
