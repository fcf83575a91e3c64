"""An app of a service's own on real Kafka: Faust's agents beside the worker, `on_operation`, the view and its pages."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from journal.config import load_settings
from journal.disk.slots import hold
from journal.errors import ConfigError, KafkaUnavailableError, QueueMissingError, TopicError, WebPortError
from journal.journal import BlockingJournal
from journal.store.model import Message, QueueConfig
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE
from loaders.queues import QueueLoader
from streams.agents.agents import Told
from streams.apps.factory import make_app, serve_app
from tests.support.in_process import made_journal
from tests.support.stream_apps import (
    active_store,
    committed_records,
    fetch,
    free_port,
    new_topic,
    running,
    wait_until,
)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def as_told(told: Told) -> tuple[int, int, bytes]:
    return told.operation.type, told.operation.id, told.operation.data


def test_an_app_has_agents_of_fausts_and_of_the_journals_beside_the_worker(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    seen = new_topic(bootstrap)
    port = free_port()
    app = make_app(settings, web_port=port)
    told: list[Told] = []
    counted: list[str] = []
    failing = True
    sums = app.Table("sums", default=int, partitions=7)  # others than the topic's: Faust refuses it when it is used
    ticks: list[float] = []

    @app.on_operation(to=seen)
    async def tell(operation: Told) -> Any:
        told.append(operation)
        yield str(operation.operation.id), b"%d" % operation.operation.type

    @app.agent(app.topic(seen, key_type=str, value_type=bytes, value_serializer="raw"))
    async def count(stream: Any) -> None:
        async for key, _ in stream.items():
            counted.append(key)

    @app.agent(app.topic(seen, value_serializer="raw"), name="broken")
    async def broken(stream: Any) -> None:
        async for value in stream:
            if failing:
                sums["all"] += int(value)

    @app.timer(0.2)  # type: ignore[untyped-decorator]
    async def tick() -> None:
        ticks.append(time.monotonic())

    with running(app), BlockingJournal(settings, copy_name="test-node") as journal:
        journal.activate()
        first, unborn, in_tx, other = (journal.new_id(shard) for shard in (0, 0, 0, 1))
        journal.add(first, 1, b"one")
        journal.update(first, 2, b"two")
        rolled_back = journal.begin()
        journal.add(unborn, 1, b"never", tx=rolled_back)
        journal.prepare(rolled_back, b"xid 1")
        journal.rollback(rolled_back)
        tx = journal.begin()
        journal.add(in_tx, 1, b"in tx", tx=tx)
        journal.prepare(tx, b"xid 2").wait()
        journal.add(other, 1, b"other").wait()
        journal.commit(tx).wait()
        journal.delete(first).wait()
        wait_until(lambda: len(told) >= 5, lambda: told)
        wait_until(lambda: len(counted) >= 5, lambda: counted)
        wait_until(lambda: fetch(port, "/health")[0] == 503, lambda: fetch(port, "/health"))
        assert "PartitionsMismatch" in json.loads(fetch(port, "/health")[1])["faust"]["broken"]
        failing = False
        for _ in range(2):
            journal.add(journal.new_id(0), 1, b"more").wait()
        wait_until(lambda: fetch(port, "/health")[0] == 200, lambda: fetch(port, "/health"))
        wait_until(lambda: len(counted) >= 7, lambda: counted)
    mine = [as_told(each) for each in told if each.operation.id == first]
    assert mine == [(ADD, first, b"one"), (UPDATE, first, b"two"), (DELETE, first, b"")]
    late = next(each for each in told if each.operation.id == in_tx)
    assert late.position[2] == 1
    assert {each.frame.epoch for each in told} == {1}
    for shard in (0, 1):
        positions = [each.position for each in told if each.shard == shard]
        assert positions == sorted(positions)
    assert not any(each.operation.data == b"never" for each in told)
    assert sorted(key.decode() for key, _ in committed_records(bootstrap, seen) if key) == sorted(counted)
    assert ticks


def test_a_view_shows_queues_transactions_and_records_and_its_pages_say_the_same(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    port = free_port()
    app = make_app(settings, view=QueueLoader, web_port=port)

    @app.page("/mine")
    async def mine(web: Any, request: Any) -> Any:
        return web.json({"queues": len(app.view.queues())})

    @app.page("/depth/{name}")
    async def depth(web: Any, request: Any, name: str) -> Any:
        queue = await asyncio.to_thread(app.view.queue, name)
        return web.json({name: queue.ready})

    with running(app), active_store(settings) as store:
        store.create_address("orders")
        store.create_queue(QueueConfig("orders/a", address="orders")).wait()
        store.create_queue(QueueConfig('odd\n"b"', address="orders")).wait()
        sent = [store.send(Message("orders", b"%d" % n, timestamp=1000 + n), ["orders/a"]) for n in range(5)]
        for each in sent:
            each.wait()
        taken = store.take("orders/a", "me")
        assert taken is not None
        store.acknowledge(taken.message, "orders/a", "me").wait()
        tx = store.begin()
        store.send(Message("orders", b"in doubt"), ["orders/a"], tx)
        store.prepare(tx, b"an xid").wait()
        view = app.view
        wait_until(lambda: view.fitness().fit, view.fitness)
        wait_until(lambda: [q.ready for q in view.queues()] == [0, 4], view.queues)
        wait_until(lambda: [t.shards_seen for t in view.transactions()] == [2], view.transactions)
        queue = view.queue("orders/a")
        assert (queue.ready, queue.held, queue.oldest_ms) == (4, 0, 1001)
        assert [found.reference.message for found in view.messages("orders/a", 2)] == [each.id for each in sent[1:3]]
        (prepared,) = view.transactions()
        assert (prepared.tx, prepared.data, prepared.shards_seen) == (tx, b"an xid", prepared.shards)
        record = view.record(sent[1].id)
        assert record is not None
        assert record in list(view.records())
        assert view.record(taken.message) is None
        with pytest.raises(QueueMissingError, match="nowhere"):
            view.queue("nowhere")

        status, text = fetch(port, "/queues")
        assert (status, [q["name"] for q in json.loads(text)["queues"]]) == (200, ['odd\n"b"', "orders/a"])
        status, text = fetch(port, "/queues/orders/a?limit=3")
        body = json.loads(text)
        assert (status, body["ready"], [m["id"] for m in body["messages"]]) == (200, 4, [e.id for e in sent[1:4]])
        assert fetch(port, "/queues/nowhere")[0] == fetch(port, "/depth/nowhere")[0] == 404
        status, text = fetch(port, "/queues/odd%0A%22b%22")
        assert (status, json.loads(text)["name"]) == (200, 'odd\n"b"')
        assert fetch(port, "/queues/orders/a?limit=many")[0] == 400
        assert json.loads(fetch(port, "/transactions")[1])["transactions"][0]["data"] == b"an xid".hex()
        assert json.loads(fetch(port, "/mine")[1]) == {"queues": 2}
        status, text = fetch(port, "/health")
        assert (status, json.loads(text)["shards"]) == (200, {"0": "running", "1": "running"})
        metrics = fetch(port, "/metrics")[1]
        assert 'kafka_journal_queue_messages{queue="orders/a",state="ready"} 4.0\n' in metrics
        assert 'kafka_journal_queue_messages{queue="odd\\n\\"b\\"",state="ready"} 0.0\n' in metrics
        assert "kafka_journal_view_up 1.0\n" in metrics
        assert "# TYPE kafka_journal_shard_applied_operations_total counter\n" in metrics
        assert 'kafka_journal_worker_shard_running{shard="1"} 1.0\n' in metrics


def test_an_agent_that_raises_holds_up_its_shard_alone_and_is_told_again(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=2)
    port, seen = free_port(), new_topic(bootstrap)
    app = make_app(settings, web_port=port)
    broken = True

    @app.on_operation(to=seen)
    def careful(told: Told) -> list[tuple[bytes, bytes]]:
        if broken and told.operation.data == b"poison":
            raise ValueError("I cannot take that")
        return [(b"", told.operation.data)]

    with running(app), BlockingJournal(settings, copy_name="test-node") as journal:
        journal.activate()
        poison, healthy = journal.new_id(0), journal.new_id(1)
        journal.add(poison, 1, b"poison").wait()
        wait_until(lambda: json.loads(fetch(port, "/health")[1])["agents"])
        status, text = fetch(port, "/health")
        (trouble,) = json.loads(text)["agents"]
        assert (status, trouble["agent"], trouble["shard"]) == (503, "careful", 0)
        assert "I cannot take that" in trouble["error"]
        journal.add(healthy, 1, b"healthy").wait()
        wait_until(lambda: committed_records(bootstrap, seen) == [(b"", b"healthy")])
        assert journal.read(poison) is None
        broken = False
        wait_until(lambda: len(committed_records(bootstrap, seen)) == 2)
        wait_until(lambda: journal.read(poison) == b"poison")
        wait_until(lambda: fetch(port, "/health")[0] == 200)
    assert committed_records(bootstrap, seen) == [(b"", b"healthy"), (b"", b"poison")]


def test_a_service_that_is_stopped_while_it_starts_leaves_nothing_behind(bootstrap: str, tmp_path: Path) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    before, slot_path = set(threading.enumerate()), settings.journal_directory / "service-0"

    async def stopped_early() -> None:
        stop = asyncio.Event()
        serving = asyncio.create_task(serve_app(make_app(settings, view=QueueLoader, web_port=free_port()), stop))
        while not slot_path.exists() and not serving.done():
            await asyncio.sleep(0.001)
        stop.set()
        await serving
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(stopped_early())
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert "kafka-journal-replica" not in left
    slot = hold(slot_path)
    assert slot is not None
    slot.release()


def test_a_topic_that_is_not_there_a_taken_port_and_agents_that_cannot_be_are_refused(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = made_journal(bootstrap, tmp_path, shards=1)
    nowhere = make_app(settings, web_port=free_port())

    @nowhere.on_operation(to="nowhere")
    def tell(told: Told) -> None: ...

    with (
        pytest.raises(TopicError, match=r"topic nowhere, to which agent tell gives.*--create --topic nowhere"),
        running(nowhere),
    ):
        pass

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(WebPortError, match=rf"127\.0\.0\.1:{port}.*give web_port="),
            running(make_app(settings, web_port=port)),
        ):
            pass

    app = make_app(settings, web_port=free_port())
    app.on_change()(tell)
    for wrong, what in (
        (lambda: app.on_operation()(tell), "two agents 'tell'"),
        (lambda: app.on_operation(name="a/b")(tell), "a name is letters"),
        (lambda: app.on_change(name="b", to=f"{settings.journal}.wal")(tell), "the journal's own topic"),
        (lambda: app.on_change(name="c", every_s=-1.0)(tell), "every_s"),
        (lambda: app.view, "has no view"),
    ):
        with pytest.raises(ConfigError, match=what):
            wrong()

    looking = make_app(settings, worker=False, web_port=free_port())
    looking.on_change()(tell)
    with pytest.raises(ConfigError, match="without a worker"), running(looking):
        pass

    unreachable = load_settings(None, bootstrap_servers="127.0.0.1:1", directory=tmp_path / "unreachable")
    with (
        pytest.raises(KafkaUnavailableError, match=r"no broker accepts this client at 127\.0\.0\.1:1"),
        running(make_app(unreachable, web_port=free_port())),
    ):
        pass

    missing = load_settings(None, bootstrap_servers=bootstrap, journal="nowhere", directory=tmp_path / "nowhere")
    with (
        pytest.raises(TopicError, match="kafka-journal init -j nowhere"),
        running(make_app(missing, web_port=free_port())),
    ):
        pass
