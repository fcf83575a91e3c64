"""Requests that are on their way when one side ends: a node that closes, and a command that gives a reply up."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from journal.cli.control_socket.client import NodeClient
from journal.cli.control_socket.lines import SocketLimits
from journal.cli.operations.ports import SendOrder, SendResult, SentSoFar
from journal.errors import DeadlineError, NodeSocketError
from journal.store.model import Message
from tests.support.sockets import DEADLINE_S, NodeUnderTest, peer
from tests.support.stores import bodies, send
from tests.support.waiting import wait_until


@pytest.mark.parametrize("close_s", [DEADLINE_S, 0.1])
def test_a_node_that_closes_answers_what_it_was_asked_if_that_is_possible_in_time(
    node: NodeUnderTest, close_s: float
) -> None:
    store = node.store_node.store
    found: list[SendResult | NodeSocketError] = []

    def ask(client: NodeClient) -> None:
        try:
            found.append(client.send(SendOrder(Message("orders", b"x"), ("q",)), SentSoFar()))
        except NodeSocketError as error:
            found.append(error)

    with ExitStack() as serving:
        server = serving.enter_context(node.socket(close_s=close_s))
        with NodeClient(server.path) as client:
            with node.store_node.blocked_writer():
                asking = threading.Thread(target=ask, args=(client,))
                asking.start()
                wait_until(lambda: store.queue("q").arriving == 1)
                with peer(server) as later:
                    wait_until(lambda: server.connections == 2)
                    closing = threading.Thread(target=serving.close)
                    closing.start()
                    assert later.recv(1) == b""  # it was shut behind the other
                if close_s < 1:
                    asking.join(DEADLINE_S)
            asking.join(DEADLINE_S)
            closing.join(DEADLINE_S)
    (answer,) = found
    assert isinstance(answer, NodeSocketError if close_s < 1 else SendResult)
    store.flush().wait()
    assert bodies(store) == [b"x"]


def test_a_receiver_that_gave_a_reply_up_asks_nothing_more_and_all_is_given_back(node: NodeUnderTest) -> None:
    store = node.store_node.store
    send(store, b"1")
    with node.socket() as server:
        with node.store_node.blocked_writer(), NodeClient(server.path, SocketLimits(reply_s=0.2)) as client:
            receiving = client.receiving("q", "me")
            assert receiving.take() is not None
            with pytest.raises(DeadlineError, match=r"has not answered in 0\.2 s"):
                receiving.finish()
            receiving.close()
        wait_until(lambda: not store.holders())
    assert bodies(store) == [b"1"]


def test_a_receiver_that_took_too_long_over_a_message_is_told_so(node: NodeUnderTest) -> None:
    store = node.store_node.store
    send(store, b"1")
    with node.socket(idle_s=0.2) as server, NodeClient(server.path) as client:
        receiving = client.receiving("q", "me")
        taken = receiving.take()
        assert taken is not None
        wait_until(lambda: not server.connections)
        with pytest.raises(DeadlineError, match=r"nothing was asked for 0\.2 s: .* given back"):
            receiving.acknowledge(taken["id"])
        receiving.close()
    assert bodies(store) == [b"1"]
