"""Bytes cut anywhere, messages of every size on several links at once, dispositions in every order: hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from journal.amqp import Connection, EngineLimits, ReceiverLink, SenderLink
from journal.amqp.events import (
    ConnectionFailed,
    ConnectionOpened,
    DispositionReceived,
    Event,
    LinkAttached,
    SessionBegan,
    TransferReceived,
    WindowOpened,
)
from journal.amqp.message_types import AcceptedState, ReleasedState, SourceTerminus, TargetTerminus
from journal.amqp.serials import MASK, distance, ranges
from tests.unit.amqp.wires import pass_between

LINKS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, LINKS - 1), st.integers(0, 3000), st.booleans()),
        st.tuples(st.just("settle"), st.integers(0, 20), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("pass"), st.integers(1, 2000), st.just(0), st.just(False)),
    ),
    max_size=40,
)


class Pair:
    """A client of ours that sends on several links, and a server of ours that keeps what comes."""

    def __init__(self) -> None:
        limits = EngineLimits(frame_bytes_max=512, incoming_window=6)
        self.client, self.server = Connection.client("c", limits=limits), Connection.server("s", limits=limits)
        self.client.open()
        self.session = self.client.session()
        self.session.begin()
        self.senders = [self.session.sender(f"l{each}") for each in range(LINKS)]
        for link in self.senders:
            link.attach(SourceTerminus(), TargetTerminus("q"))
        self.receivers: dict[str, ReceiverLink] = {}
        self.whole: dict[str, list[bytes]] = {f"l{each}": [] for each in range(LINKS)}
        self.parts: dict[int, bytes] = {}
        self.came: list[tuple[ReceiverLink, int]] = []
        self.outcomes: dict[Any, Any] = {}
        self.windows_opened = 0

    def run(self, cut: int) -> None:
        pass_between(self.client, self.server, (self.client_told, self.server_told), cut)

    def client_told(self, event: Event) -> None:
        assert not isinstance(event, ConnectionFailed), event
        if isinstance(event, DispositionReceived):
            self.outcomes.update({entry.context: event.state for entry in event.deliveries})
        self.windows_opened += isinstance(event, WindowOpened)

    def server_told(self, event: Event) -> None:
        assert not isinstance(event, ConnectionFailed), event
        if isinstance(event, ConnectionOpened):
            self.server.open()
        elif isinstance(event, SessionBegan):
            event.session.begin()
        elif isinstance(event, LinkAttached):
            assert isinstance(event.link, ReceiverLink)
            event.link.attach(event.frame.source, event.frame.target)
            event.link.flow(1000)
        elif isinstance(event, TransferReceived):
            assert event.first == (event.delivery_id not in self.parts)
            self.parts[event.delivery_id] = self.parts.get(event.delivery_id, b"") + event.payload
            if not event.more:
                self.whole[event.link.name].append(self.parts[event.delivery_id])
                if not event.settled:
                    self.came.append((event.link, event.delivery_id))


@given(STEPS, st.integers(1, 600))
@settings(max_examples=60, deadline=None)
def test_every_message_comes_whole_in_order_and_is_settled_once(steps: list[Any], cut: int) -> None:
    pair = Pair()
    pair.run(cut)
    sent: dict[str, list[bytes]] = {f"l{each}": [] for each in range(LINKS)}
    expected = {}
    for kind, one, two, flag in steps:
        link: SenderLink = pair.senders[one % LINKS]
        if kind == "send" and link.sendable:
            payload = bytes((len(sent[link.name]) % 256,)) * two
            context = (link.name, len(sent[link.name]))
            sent[link.name].append(payload)
            delivery_id = link.send(payload, settled=flag, context=context)
            if not flag:
                expected[delivery_id] = context
        elif kind == "settle":
            some = pair.came[one : one + two]
            state = AcceptedState() if flag else ReleasedState()
            for receiver, delivery_id in some:
                receiver.settle([delivery_id], state)
            del pair.came[one : one + two]
        elif kind == "pass":
            pair.run(one)
    pair.run(cut)
    for receiver, delivery_id in pair.came:
        receiver.settle([delivery_id], AcceptedState())
    pair.run(cut)
    assert pair.whole == sent
    assert set(pair.outcomes) == set(expected.values())
    assert all(link.sendable for link in pair.senders)
    assert pair.session.outgoing_unsettled == {}


@given(st.lists(st.integers(0, MASK), max_size=8), st.integers(0, 5))
def test_ranges_are_what_they_were_made_of(ids: list[int], run: int) -> None:
    ids = [(each + step) & MASK for each in ids for step in range(run + 1)]
    found = [(first + step) & MASK for first, last in ranges(ids) for step in range(((last - first) & MASK) + 1)]
    assert found == ids
    assert distance(MASK, 0) == 1
    assert distance(0, MASK) == -1


def test_a_streamed_message_is_continued_aborted_and_followed_by_another() -> None:
    pair = Pair()
    pair.run(100)
    link = pair.senders[0]
    link.send(b"one ", more=True)
    assert link.sendable == 0
    pair.run(100)
    link.send_part(b"two ", more=True)
    link.send_part(b"three", more=False)
    pair.run(100)
    assert pair.whole["l0"] == [b"one two three"]
    link.send(b"forget", more=True)
    link.abort()
    link.send(b"next")
    pair.run(100)
    assert pair.whole["l0"] == [b"one two three", b"forget", b"next"]
    assert len(pair.came) == 2


def test_what_does_not_fit_the_window_waits_and_is_told_when_it_opens() -> None:
    pair = Pair()
    pair.run(1000)
    payload = bytes(100_000)
    pair.senders[0].send(payload)
    assert [link.sendable for link in pair.senders] == [0, 0, 0]
    pair.run(1000)
    assert pair.whole["l0"] == [payload]
    assert pair.windows_opened >= 1
    assert all(link.sendable for link in pair.senders)


def test_a_link_that_is_detached_while_its_message_waits_lets_others_send() -> None:
    pair = Pair()
    pair.run(1000)
    pair.senders[0].send(bytes(100_000))
    pair.senders[0].detach(closed=True)
    pair.run(1000)
    assert [link.sendable > 0 for link in pair.senders] == [False, True, True]
    pair.senders[1].send(b"other")
    pair.run(1000)
    assert pair.whole == {"l0": [], "l1": [b"other"], "l2": []}
