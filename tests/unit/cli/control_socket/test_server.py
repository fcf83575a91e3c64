"""A control socket on a store: what commands get, and what peers that hang, vanish or talk nonsense cannot do."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest

from journal.cli.control_socket.client import NodeClient
from journal.cli.control_socket.lines import SocketLimits
from journal.cli.control_socket.requests import order_params
from journal.cli.control_socket.serving import NodeService, ServedNode
from journal.cli.operations.ports import SendOrder, SentSoFar
from journal.cli.operations.views import StoreQueues
from journal.errors import (
    ClosedError,
    DeadlineError,
    FullError,
    InvalidOperationError,
    NodeSocketError,
    NotActiveError,
    QueueMissingError,
    RecordMissingError,
    StateError,
    TransactionUnknownError,
    XidError,
)
from journal.process.clocks import wall_ms
from journal.store.model import Message, Value
from journal.store.operations.look import QueueInfo
from journal.store.store import MessageStore
from journal.v1.store_pb2 import Outcome
from journal.xa.outcomes import KeptOutcome
from journal.xa.resource import XaResource
from journal.xa.xid import encode_xid, make_xid
from loaders.node.roles import Role
from tests.support.sockets import NodeUnderTest, peer
from tests.support.stores import START_MS, bodies, declare, infos, send
from tests.support.waiting import wait_until

PROPERTIES: dict[str, Value] = {"a": "b=c:d", "n": 7, "x": 1.5, "yes": True, "raw": b"\x00"}

ORDER = SendOrder(Message("orders", b"\x00body", headers={"JMSType": "t"}, properties=PROPERTIES, priority=7))


# ---- operations ----------------------------------------------------------------------------------------------


def test_a_message_is_sent_and_looked_at(node: NodeUnderTest) -> None:
    with node.client() as client:
        queues, (message,) = client.send(ORDER, SentSoFar())
        assert queues == ["q"]
        (line,) = client.queues().queues
        assert (line["queue"], line["ready"]) == ("q", 1)
        total, lines = client.messages("q", 0)
        (found,) = lines
        assert (total, found["id"], found["priority"]) == (1, message, 7)
        assert found["properties"] == {**PROPERTIES, "raw": "AA=="}
    assert bodies(node.store_node.store) == [b"\x00body"]


def test_create_makes_the_queue_of_the_address_s_name_and_sends_to_it_though_another_queue_is_there(
    node: NodeUnderTest,
) -> None:
    with node.client() as client:
        for _ in range(2):
            queues, _ = client.send(replace(ORDER, create=True), SentSoFar())
            assert queues == ["orders"]
        assert {line["queue"]: line["ready"] for line in client.queues().queues} == {"orders": 2, "q": 0}


def test_a_send_to_a_queue_that_is_missing_says_which_there_are(node: NodeUnderTest) -> None:
    with node.client() as client, pytest.raises(QueueMissingError, match="no queue nope: kafka-journal queues"):
        client.send(replace(ORDER, queues=["nope"]), SentSoFar())


def test_more_messages_than_a_request_may_have_are_sent_in_order(node: NodeUnderTest) -> None:
    with node.client() as client:
        _, ids = client.send(SendOrder(Message("orders", b"x"), (), count=1300), SentSoFar())
        assert len(ids) == 1300
        assert [line["id"] for line in client.messages("q", 0).lines] == ids
        assert len(list(client.messages("q", 3).lines)) == 3


def test_who_holds_a_message_is_found_behind_any_number_of_others(node: NodeUnderTest) -> None:
    store = node.store_node.store
    low = send(store, b"low", priority=0)
    store.acquire(low, "q", "somebody")
    so_far = SentSoFar()
    with node.client() as client:
        _, ids = client.send(SendOrder(Message("orders", b"x"), ("q",), count=3000), so_far)
        assert (so_far.stored, so_far.unknown) == (ids, 0)
        (line,) = client.queues().queues
    assert (line["held"], line["holders"]) == (1, {"somebody": 1})


def test_the_oldest_of_a_queue_at_work_may_be_scheduled_or_locked(node: NodeUnderTest) -> None:
    store = node.store_node.store
    at = int(START_MS)
    sent = store.send(Message("orders", b"x", timestamp=at, due=at + 3_600_000), ["q"]).wait()
    (line,) = StoreQueues(store).lines(at + 60_000.0)
    assert (line["scheduled"], line["oldest_age_seconds"]) == (1, 60.0)
    store.schedule(sent, "q", 0).wait()
    store.acknowledge(sent, "q", tx=store.begin())
    (line,) = StoreQueues(store).lines(at + 60_000.0)
    assert (line["locked"], line["ready"], line["oldest_age_seconds"]) == (1, 0, 60.0)


def test_a_store_at_work_shows_a_bounded_number_of_messages(node: NodeUnderTest) -> None:
    store = node.store_node.store
    first = send(store, b"first")
    store.acquire(first, "q", "somebody")
    for _ in range(9):
        send(store, b"x", priority=9)
    queues = StoreQueues(store, browse_max=9)
    with pytest.raises(InvalidOperationError, match="a running node shows up to 9: --limit 9"):
        queues.browse("q", 0)
    total, browsed = queues.browse("q", 2)
    assert (total, len(list(browsed))) == (10, 2)
    (line,) = queues.lines(0.0)
    assert (line["held"], line["holders"]) == (1, {"somebody": 1})


def test_queues_that_are_destroyed_while_they_are_listed_are_left_out(node: NodeUnderTest) -> None:
    store = node.store_node.store
    declare(store, "gone", address="events")

    class Destroyed(MessageStore):
        """The same store, of which a broker destroys a queue whenever somebody has listed them."""

        def __init__(self) -> None:
            self.__dict__ = store.__dict__

        def queues(self) -> list[QueueInfo]:
            found = super().queues()
            self.destroy_queue("gone")
            return found

    assert [line["queue"] for line in StoreQueues(Destroyed()).lines(0.0)] == ["q"]


def test_received_messages_are_acknowledged_and_the_rest_is_given_back(node: NodeUnderTest) -> None:
    store = node.store_node.store
    first, second = send(store, b"1"), send(store, b"2")
    with node.client() as client:
        receiving = client.receiving("q", "me")
        for message in (first, second):
            line = receiving.take()
            assert line is not None
            assert line["id"] == message
        receiving.acknowledge(first)
        receiving.close()
        store.flush().wait()
        (info,) = infos(store)
        assert (info.message, info.deliveries, info.state.value) == (second, 1, "ready")
        assert client.receiving("q", "me").finish() == 1


def test_a_queue_whose_message_has_expired_gives_nothing_and_has_no_more(node: NodeUnderTest) -> None:
    store, clock = node.store_node.store, node.store_node.clock
    send(store, b"1", expires=clock.now_ms + 1)
    clock.now_ms += 2
    with node.client() as client:
        receiving = client.receiving("q", "me")
        assert receiving.take() is None
        assert receiving.finish() == 0


def test_errors_of_a_node_arrive_with_their_class(node: NodeUnderTest) -> None:
    with node.client() as client:
        with pytest.raises(QueueMissingError, match="kafka-journal queues -j orders"):
            client.receiving("none", "me")
        with pytest.raises(QueueMissingError):
            client.messages("none", 0)
        with pytest.raises(TransactionUnknownError, match="tx list -j orders"):
            client.settle(7, commit=True, operator="me")
        with pytest.raises(StateError, match="comes first"):
            client.take()
        node.store_node.store.close()
        with pytest.raises(ClosedError):
            client.queues()


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_without_an_xid_is_settled(node: NodeUnderTest, commit: bool) -> None:
    store = node.store_node.store
    tx = store.begin()
    send(store, b"in doubt", tx=tx)
    store.prepare(tx, b"mine").wait()
    with node.client() as client:
        assert client.settle(tx, commit=commit, operator="me") == 1
    assert bodies(store) == ([b"in doubt"] if commit else [])


def test_a_transaction_with_an_xid_is_shown_and_settled_and_its_coordinator_is_told(node: NodeUnderTest) -> None:
    store, journal = node.store_node.store, node.store_node.journal
    kept = send(store, b"kept")
    resource = XaResource(store, journal, node.store_node.loader.loaded, clock_ms=wall_ms)
    node.resource = resource
    xid = resource.xid(7, b"payment", b"store")
    resource.tpc_begin(xid)
    tx = resource.tx(xid)
    store.acknowledge(kept, "q", tx=tx)
    resource.end(xid)
    resource.tpc_prepare(xid)
    with node.client() as client:
        (line,) = client.transactions().in_doubt
        assert (line["tx"], line["text"], line["queues"]) == (
            tx,
            "7:payment:store",
            {"q": {"adds": 0, "acknowledges": 1, "changes": 0}},
        )
        found = client.transaction(str(tx))
        assert client.transaction("7:payment:store").summary["tx"] == tx
        assert found.references == [{"queue": "q", "message": kept, "does": "acknowledges"}]
        assert [op["id"] for op in found.held] == [kept]
        client.settle(tx, commit=True, operator="me")
        in_doubt, (outcome,) = client.transactions()
        assert in_doubt == []
        assert (outcome["text"], outcome["decision"]) == ("7:payment:store", "heuristic commit")
        with pytest.raises(TransactionUnknownError):
            client.transaction(str(tx))
    assert bodies(store) == []
    with pytest.raises(XidError, match="was committed without its coordinator"):
        resource.tpc_rollback(xid)
    with node.client() as client:
        assert client.forget("7:payment:store", operator="me") == 1
        assert client.transactions().outcomes == []
        with pytest.raises(XidError, match=r"no outcome 7:payment:store is kept: .* tx list -j orders"):
            client.forget("7:payment:store", operator="me")
    assert not resource.outcomes()


def test_an_outcome_kept_since_the_load_of_a_broker_without_a_resource_is_forgotten(node: NodeUnderTest) -> None:
    store = node.store_node.store
    tx = store.begin()
    store.prepare(tx, encode_xid(make_xid(7, b"payment", b"store"))).wait()
    with node.client() as client:
        client.settle(tx, commit=True, operator="me")
        (line,) = client.transactions().outcomes
        client.forget(line["text"], operator="me")
        assert client.transactions().outcomes == []


def test_an_outcome_whose_rollback_is_not_finished_is_not_forgotten(node: NodeUnderTest) -> None:
    store, journal = node.store_node.store, node.store_node.journal
    xid = make_xid(7, b"payment", b"store")
    tx = store.begin()
    store.prepare(tx, encode_xid(xid)).wait()
    kept = KeptOutcome(journal.new_id(), xid, Outcome.HEURISTIC_ROLLBACK, 0)
    journal.append_all([kept.added()]).wait()
    with node.client() as client:
        with pytest.raises(XidError, match="is not settled yet"):
            client.forget("7:payment:store", operator="me")
        client.settle(tx, commit=False, operator="me")
        client.forget("7:payment:store", operator="me")
        assert client.transactions().outcomes == []


def test_a_transaction_that_a_load_found_is_settled_and_its_outcome_kept(node: NodeUnderTest) -> None:
    store, journal = node.store_node.store, node.store_node.journal
    resource = XaResource(store, journal, node.store_node.loader.loaded, clock_ms=wall_ms)
    xid = resource.xid(7, b"payment", b"store")
    resource.tpc_begin(xid)
    tx = resource.tx(xid)
    send(store, b"added", tx=tx)
    resource.end(xid)
    resource.tpc_prepare(xid)
    node.store_node.restart()
    with node.client() as client:
        assert client.settle(tx, commit=False, operator="me") == 2
    node.store_node.restart()
    (outcome,) = XaResource(
        node.store_node.store, node.store_node.journal, node.store_node.loader.loaded, clock_ms=wall_ms
    ).outcomes()
    assert (outcome.xid, outcome.decision) == (xid, Outcome.HEURISTIC_ROLLBACK)
    with node.client() as client:
        (line,) = client.transactions().outcomes
        assert (line["record"], line["decision"]) == (outcome.record_id, "heuristic rollback")
        client.forget(line["text"], operator="me")
        assert client.transactions().outcomes == []


def test_a_message_of_a_store_at_work_is_explained(node: NodeUnderTest) -> None:
    store = node.store_node.store
    ready, held, locked = (send(store, body) for body in (b"1", b"2", b"3"))
    store.acquire(held, "q", "somebody").wait()
    tx = store.begin()
    store.acknowledge(locked, "q", tx=tx)
    unrouted = store.send(Message("orders", b"4"), []).wait()
    with node.client() as client:

        def why(record_id: int) -> str:
            return "\n".join(client.explain(record_id)["why"])

        assert why(ready) == "queue q: ready, and nobody has taken it"
        assert "held by somebody" in why(held)
        assert f"transaction {tx}, which is still open" in why(locked)
        assert "no queue refers to it any more" in why(unrouted)
        volatile = store.send(Message("orders", b"5", durable=False), ["q"]).id
        assert why(volatile).splitlines() == [
            "it is in no table: it is not durable, or was stored a moment ago",
            "queue q: ready, and nobody has taken it",
        ]
        store.acknowledge(volatile, "q")
        with pytest.raises(RecordMissingError, match="is not durable: only the active node has it"):
            client.explain(volatile)
        assert "messages in it: 3" in why(store.queue("q").record_id)
        assert client.explain(store.addresses()[0].record_id)["queues"] == ["q"]
        with pytest.raises(RecordMissingError, match="has not issued that id yet"):
            client.explain(2**62)


def test_a_standby_says_who_is_active_and_answers_for_itself(node: NodeUnderTest) -> None:
    node.role, node.active_node = Role.STANDBY, "other"
    with node.client() as client:
        for ask in (
            client.queues,
            client.transactions,
            lambda: client.receiving("q", "me"),
            lambda: client.send(ORDER, SentSoFar()),
        ):
            with pytest.raises(NotActiveError, match="node one of journal orders is standby, not active; other is"):
                ask()
        assert client.hello() == "one"
        assert client.status() == {"node": "one", "role": "standby", "epoch": 1, "reason": "cut off"}
        assert client.hand_over("two") == {"to": "two"}
        node.role, node.active_node = Role.FENCED, "one"
        with pytest.raises(NotActiveError, match=r"node one of journal orders is fenced, not active: cut off$"):
            client.queues()
        node.role = Role.ACTIVE
        assert len(client.queues().queues) == 1
    assert node.handed_over == ["two"]


# ---- peers that do not behave --------------------------------------------------------------------------------


def test_what_a_vanished_peer_had_taken_is_given_back_and_counts_as_delivered(node: NodeUnderTest) -> None:
    store = node.store_node.store
    message = send(store, b"1")
    with node.socket() as server:
        client = NodeClient(server.path)
        taken = client.receiving("q", "me").take()
        assert taken is not None
        assert taken["id"] == message
        assert store.holders()
        client.close()
        wait_until(lambda: not store.holders())
        (info,) = infos(store)
        assert (info.deliveries, info.state.value) == (1, "ready")


def test_a_peer_that_hangs_loses_its_connection_and_what_it_had_taken(node: NodeUnderTest) -> None:
    store = node.store_node.store
    send(store, b"1")
    receive = b'{"id": 1, "method": "receive", "params": {"queue": "q", "receiver": "me"}}\n'
    with node.socket(idle_s=0.2) as server, peer(server) as hanging:
        hanging.sendall(receive + b'{"id": 2, "method": "take"}\n')
        replies = hanging.makefile("rb")
        assert [json.loads(replies.readline())["id"] for _ in range(2)] == [1, 2]
        (why,) = replies.read().splitlines()
        assert json.loads(why)["error"]["type"] == "DeadlineError"
        wait_until(lambda: not store.holders() and not server.connections)
    (info,) = infos(store)
    assert (info.deliveries, info.state.value) == (1, "ready")


def test_a_peer_that_takes_no_reply_is_given_up(node: NodeUnderTest) -> None:
    store = node.store_node.store
    for _ in range(20):
        store.send(Message("orders", b"x" * 200_000), ["q"])
    store.flush().wait()
    with node.socket(line_s=0.2) as server, peer(server) as silent:
        silent.sendall(b'{"id": 1, "method": "messages", "params": {"queue": "q", "limit": 0}}\n')
        assert silent.recv(1)
        wait_until(lambda: not server.connections)


def test_a_peer_that_disappears_in_a_request_costs_its_connection_only(node: NodeUnderTest) -> None:
    with node.socket() as server:
        with peer(server) as cut:
            cut.sendall(b'{"id": 1, "meth')
        with peer(server) as gone:
            gone.sendall(b'{"id": 1, "method": "queues"}\n')
        wait_until(lambda: not server.connections)
        with NodeClient(server.path) as client:
            assert client.hello() == "one"


@pytest.mark.parametrize(
    "request_line",
    [
        {"id": 1, "method": "no such"},
        {"id": 1},
        {"id": 1, "method": ["queues"]},
        {"id": 1, "method": "messages", "params": []},
        {"id": 1, "method": "messages", "params": {"queue": 3, "limit": 0}},
        {"id": 1, "method": "messages", "params": {"queue": "q", "limit": -1}},
        {"id": 1, "method": "messages", "params": {"queue": "q", "limit": True}},
        {"id": 1, "method": "settle", "params": {"tx": 2**70, "operator": "", "commit": True}},
        {"id": 1, "method": "send", "params": {"body": "no base64!"}},
        {"id": 1, "method": "send", "params": order_params(replace(ORDER, count=10**9))},
        {"id": 1, "method": "receive", "params": {"queue": "q"}},
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_the_next_one_served(
    node: NodeUnderTest, request_line: dict[str, object]
) -> None:
    with node.socket() as server, peer(server) as asked:
        replies = asked.makefile("rb")
        for line, kind in ((request_line, "InvalidOperationError"), ({"id": 2, "method": "hello"}, None)):
            asked.sendall(json.dumps(line).encode() + b"\n")
            reply = json.loads(replies.readline())
            assert (reply["id"], reply.get("error", {}).get("type")) == (line["id"], kind)


def test_a_request_over_its_bound_is_refused_on_both_sides(node: NodeUnderTest) -> None:
    with node.socket(request_bytes_max=1024) as server:
        large = SendOrder(Message("orders", b"x" * 10_000))
        with NodeClient(server.path) as client, pytest.raises(InvalidOperationError, match="more than 1024 bytes"):
            client.send(large, SentSoFar())
    with node.client(request_bytes_max=1024) as careful:
        with pytest.raises(InvalidOperationError, match="too large for a control socket"):
            careful.send(large, SentSoFar())
        assert careful.hello() == "one"
    assert bodies(node.store_node.store) == []


def test_connections_are_bounded_and_one_that_ends_makes_room(node: NodeUnderTest) -> None:
    with node.socket(connections_max=1) as server:
        with NodeClient(server.path) as first:
            assert first.hello() == "one"
            with NodeClient(server.path) as second, pytest.raises(FullError, match="try again"):
                second.hello()
        wait_until(lambda: not server.connections)
        with NodeClient(server.path) as third:
            assert third.hello() == "one"


def test_a_machine_without_a_thread_refuses_a_connection_and_serves_the_next(
    node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with node.socket() as server:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with NodeClient(server.path) as first, pytest.raises(FullError, match="no thread can be started"):
                first.hello()
        with NodeClient(server.path) as second:
            assert second.hello() == "one"


def test_a_node_that_closes_ends_its_connections_and_gives_back_what_they_took(node: NodeUnderTest) -> None:
    store = node.store_node.store
    send(store, b"1")
    with node.socket(close_s=60.0) as server:
        client = NodeClient(server.path)
        client.receiving("q", "me").take()
    assert not server.path.exists()
    assert not store.holders()
    with pytest.raises(NodeSocketError):
        client.take()
    client.close()


def test_a_node_that_does_not_answer_is_given_up(node: NodeUnderTest) -> None:
    so_far = SentSoFar()
    with node.socket() as server, node.store_node.blocked_writer():
        with NodeClient(server.path, SocketLimits(reply_s=0.2)) as client, pytest.raises(DeadlineError):
            client.send(ORDER, so_far)
        assert (so_far.stored, so_far.unknown) == ([], 1)
        with NodeClient(server.path) as other:
            assert len(other.queues().queues) == 1


def test_a_stopped_source_is_had_go_on(node: NodeUnderTest) -> None:
    with node.client() as client:
        assert client.resume_source("in", skip=True, operator="me") == {
            "source": "in",
            "skipped": "t[0]@1",
            "operator": "me",
        }
        assert client.resume_source("in", skip=False, operator="me")["skipped"] == ""


def test_a_node_without_sources_has_none_go_on(node: NodeUnderTest) -> None:
    without = ServedNode(node.served, lambda: node.role, dict, node.hand_over)
    with pytest.raises(InvalidOperationError, match="has no sources"):
        NodeService(node.settings, without).resume_source("in", skip=True, operator="me")


def test_a_node_whose_socket_is_deleted_is_found_again(node: NodeUnderTest) -> None:
    with node.socket() as server:
        server.path.parent.rename(server.path.parent.with_name("gone"))
        wait_until(server.path.exists)
        with NodeClient(server.path) as client:
            assert client.hello() == "one"
