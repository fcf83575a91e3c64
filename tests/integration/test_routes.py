"""Routes on a real Kafka: messages of a store arrive in topics, by their policies; an operator has a shard go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Message as Record

from journal.config import Settings
from journal.errors import TopicError
from journal.routing.config import RoutingConfig
from journal.store.model import Message, QueueConfig, Value
from tests.support.in_process import made_journal, running_worker
from tests.support.processes.command import command_env, run_command
from tests.support.sources import DEADLINE_S, create_topic, new_name
from tests.support.stream_apps import active_store
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def with_routes(bootstrap: str, directory: Path, *routes: dict[str, Any], **more: Any) -> Settings:
    settings = made_journal(bootstrap, directory, shards=1)
    return settings.model_copy(update={"routing": RoutingConfig.model_validate({"routes": routes, **more})})


def records(bootstrap: str, topic: str) -> list[Record]:
    """All committed records of a topic with one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, DEADLINE_S)
    consumer.assign([place])
    found: list[Record] = []

    def read() -> bool:
        record = consumer.poll(0.1)
        if record is not None:
            assert record.error() is None
            found.append(record)
        return end == 0 or consumer.position([place])[0].offset >= end

    wait_until(read)
    consumer.close()
    return found


def values(bootstrap: str, topic: str) -> list[bytes]:
    return [bytes(record.value() or b"") for record in records(bootstrap, topic)]


def wait_for(bootstrap: str, topic: str, count: int) -> list[Record]:
    wait_until(lambda: len(records(bootstrap, topic)) >= count, lambda: values(bootstrap, topic))
    return records(bootstrap, topic)


def test_messages_arrive_with_key_headers_and_body_transactions_when_they_commit_large_ones_whole(
    bootstrap: str, tmp_path: Path
) -> None:
    topic, big = create_topic(bootstrap, new_name()), new_name()
    create_topic(bootstrap, big, config={"max.message.bytes": "5000000"})
    settings = with_routes(
        bootstrap,
        tmp_path,
        {"name": "some", "address": "orders.#", "filter": "n > 0", "targets": [{"topic": topic, "key": "header:k"}]},
        {"name": "large", "address": "large", "targets": [{"topic": big}]},
    )
    body = bytes(range(256)) * 12_000  # 3 MB: more than a frame takes, and than the journal's own topics
    with running_worker(settings), active_store(settings) as store:
        for address in ("orders.eu", "large"):
            store.create_address(address)
            store.create_queue(QueueConfig(f"q.{address}", address)).wait()
        sent = store.send(Message("orders.eu", b"one", properties={"n": 1, "k": "x"}), ["q.orders.eu"])
        sent.wait()
        store.acknowledge(sent.id, "q.orders.eu").wait()
        store.send(Message("orders.eu", b"not selected", properties={"n": 0, "k": "x"}), ["q.orders.eu"]).wait()
        tx = store.begin()
        store.send(Message("orders.eu", b"prepared", properties={"n": 2, "k": "y"}), ["q.orders.eu"], tx)
        store.prepare(tx, b"xid").wait()
        store.send(Message("orders.eu", b"before", properties={"n": 3, "k": "z"}), ["q.orders.eu"]).wait()
        wait_for(bootstrap, topic, 2)
        assert values(bootstrap, topic) == [b"one", b"before"]
        store.commit(tx).wait()
        store.store_stream(
            Message("large"), (body[at : at + 100_000] for at in range(0, len(body), 100_000)), ["q.large"]
        ).wait()
        one, _, prepared = wait_for(bootstrap, topic, 3)
        (whole,) = wait_for(bootstrap, big, 1)
    assert (one.key(), one.value(), prepared.value()) == (b"x", b"one", b"prepared")
    headers = dict(one.headers() or [])
    assert headers["jms.string.JMSDestination"] == b"orders.eu"
    assert headers["jms.long.JMSMessageID"] == sent.id.to_bytes(8, "big")
    assert headers["jms.long.n"] == (1).to_bytes(8, "big")
    assert headers["jmsbridge.origin"] == settings.journal.encode()
    assert whole.value() == body


def test_a_shard_that_a_route_stops_goes_on_when_an_operator_says_so(bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap, new_name())
    settings = with_routes(bootstrap, tmp_path, {"name": "keyed", "targets": [{"topic": topic, "key": "header:k"}]})
    env = command_env(bootstrap, settings.journal, tmp_path / "command")

    def status() -> dict[str, Any]:
        ended = run_command("routes", "status", "--json", env=env)
        assert ended.returncode in (0, 1), ended.stderr
        found: dict[str, Any] = json.loads(ended.stdout)
        return found | {"exit": ended.returncode}

    with running_worker(settings), active_store(settings) as store:
        store.create_address("a")
        store.create_queue(QueueConfig("q", "a")).wait()
        for number, properties in enumerate([{"k": "x"}, {}, {"k": "y"}]):
            store.send(Message("a", b"%d" % number, properties=properties), ["q"]).wait()
        wait_until(lambda: bool(status()["shards"] and status()["shards"][0]["stopped"]), status)
        assert values(bootstrap, topic) == [b"0"]
        said = status()
        (shard,) = said["shards"]
        assert (said["exit"], said["routes"][0]["sent"]) == (1, 1)
        offset = shard["stopped_at"]
        seen = run_command("status", "--json", env=env)
        assert json.loads(seen.stdout)["shards"][0]["stopped_by_route"]["offset"] == offset, seen.stderr
        assert "is STOPPED by a route since" in run_command("status", env=env).stdout
        assert f"routes resume -j {settings.journal} -b {bootstrap} 0 --skip {offset}" in shard["stopped"]
        wrong = run_command("routes", "resume", 0, "--skip", offset + 1, "--yes", env=env)
        assert (wrong.returncode, f"stopped before offset {offset}" in wrong.stderr) == (1, True)
        done = run_command("routes", "resume", 0, "--skip", offset, "--yes", "--json", env=env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["resumed"]
        assert [record.value() for record in wait_for(bootstrap, topic, 2)] == [b"0", b"2"]
        wait_until(lambda: status()["routes"][0]["refused"] == {"skipped-by-operator": 1}, status)
        assert status()["exit"] == 0
        assert store.queue("q").ready == 3, "the message that was not sent is in its queue all the same"


def test_a_message_that_is_there_is_tested_by_its_id_a_large_one_too(bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(bootstrap, new_name(), config={"max.message.bytes": "1000000"})
    roomy = create_topic(bootstrap, new_name(), config={"max.message.bytes": "3000000"})
    routes = [
        {"name": "r", "address": "orders.#", "targets": [{"topic": topic, "key": "header:k"}]},
        {"name": "made", "address": "orders.#", "filter": "k = 'z'", "targets": [{"topic": "{to}"}]},
    ]
    settings = with_routes(bootstrap, tmp_path, *routes)
    env = command_env(
        bootstrap,
        settings.journal,
        tmp_path / "command",
        {"KAFKA_JOURNAL_ROUTING": json.dumps({"routes": routes})},
    )

    def tested(message_id: int) -> tuple[int, dict[str, Any]]:
        ended = run_command("routes", "test", "--id", message_id, "--json", env=env)
        assert ended.returncode in (0, 1), ended.stderr
        return ended.returncode, json.loads(ended.stdout)

    with running_worker(settings), active_store(settings) as store:
        store.create_address("orders.x")
        store.create_queue(QueueConfig("q", "orders.x")).wait()
        small = store.send(Message("orders.x", b"hello", properties={"k": "x"}), ["q"])
        fits = store.store_stream(Message("orders.x", properties={"k": "y"}), [b"a" * 300_000, b"b" * 400_000], ["q"])
        properties: dict[str, Value] = {"k": "z", "to": roomy}
        large = store.store_stream(Message("orders.x", properties=properties), [b"c" * 400_000] * 5, ["q"])
        for each in (small, fits, large):
            each.wait()
        code, found = tested(small.id)
        assert code == 0
        assert [each["verdict"] for each in found["routes"]] == ["yes", "no: the filter is false, as k is the text x"]
        assert (found["outcomes"][0]["key"], found["outcomes"][0]["value"]) == ("x", "hello")
        code, found = tested(fits.id)
        assert (code, found["outcomes"][0]["value"]) == (0, "a" * 300_000 + "b" * 400_000)
        code, found = tested(large.id)
        assert (code, found["outcomes"][0]["refused"]) == (1, "too-large")
        made = found["outcomes"][1]
        assert (made["topic"], len(made["value"])) == (roomy, 2_000_000), "a template's topic is asked for"
        gone = store.send(Message("orders.x", b"?", properties={"k": "z", "to": new_name()}), ["q"])
        gone.wait()
        code, found = tested(gone.id)
        assert (code, "is not there" in found["stop"]) == (1, True)
        wrong = run_command("routes", "test", "--id", 1, env=env)
        assert (wrong.returncode, "no message 1 lives" in wrong.stderr) == (1, True)


def test_a_route_to_a_topic_that_is_not_there_keeps_a_worker_from_starting(bootstrap: str, tmp_path: Path) -> None:
    topic = new_name()
    settings = with_routes(bootstrap, tmp_path, {"name": "r", "targets": [{"topic": topic}]})
    with pytest.raises(TopicError, match=f"route r: topic {topic} is not there.*--create"), running_worker(settings):
        pass


def test_small_limits_of_a_topic_stop_no_shard(bootstrap: str, tmp_path: Path) -> None:
    topic = create_topic(
        bootstrap, new_name(), config={"max.message.bytes": "4000", "compression.type": "uncompressed"}
    )
    settings = with_routes(bootstrap, tmp_path, {"name": "r", "targets": [{"topic": topic}], "on_error": "skip"})
    with running_worker(settings), active_store(settings) as store:
        store.create_address("a")
        store.create_queue(QueueConfig("q", "a")).wait()
        sizes = [100, 3000, 5000, 3300] * 50
        pending = [store.send(Message("a", bytes([size % 251]) * size), ["q"]) for size in sizes]
        for each in pending:
            each.wait()
        found = wait_for(bootstrap, topic, 150)
    assert [len(record.value() or b"") for record in found] == [size for size in sizes if size < 4000]
