"""A target that the brokers forbid a worker stops the shard, and the shard goes on once it is allowed. So do
sources."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from journal.config import Settings
from journal.errors import JournalError, TopicError
from journal.kafka.clients import KafkaClients, kafka_of
from journal.kafka.ports import Sent
from journal.kafka.readers import GROUP_OF_READERS
from journal.routing.config import RoutingConfig
from journal.store.model import Message, QueueConfig
from journal.topics.control_reading import read_control
from tests.integration.test_routes import values
from tests.support.in_process import made_journal, running_worker
from tests.support.sources import DEADLINE_S, create_topic, new_name, produce, taking
from tests.support.stores import bodies
from tests.support.stream_apps import active_store
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

EVERYBODY = "User:*"


class Acls:
    """What everybody may do with a topic, or another resource."""

    def __init__(self, bootstrap: str, name: str, kind: ResourceType = ResourceType.TOPIC) -> None:
        self._client = AdminClient({"bootstrap.servers": bootstrap})
        self._name = name
        self._kind = kind

    def say(self, operation: AclOperation, permission: AclPermissionType) -> None:
        place = (self._kind, self._name, ResourcePatternType.LITERAL, EVERYBODY, "*")
        for made in self._client.create_acls([AclBinding(*place, operation, permission)]).values():
            made.result(DEADLINE_S)

    def forget(self) -> None:
        kind, literal = self._kind, ResourcePatternType.LITERAL
        wanted = AclBindingFilter(kind, self._name, literal, EVERYBODY, "*", AclOperation.ANY, AclPermissionType.ANY)
        for deleted in self._client.delete_acls([wanted]).values():
            deleted.result(DEADLINE_S)

    def forbid_writing(self) -> None:
        self.say(AclOperation.ALL, AclPermissionType.ALLOW)
        self.say(AclOperation.WRITE, AclPermissionType.DENY)

    def hide(self) -> None:
        self.say(AclOperation.ALL, AclPermissionType.DENY)


def stopped(settings: Settings) -> str:
    """Why a route has stopped the shard, as its worker reports it; empty: none has."""
    rows = read_control(kafka_of(settings), settings.journal, time.monotonic, DEADLINE_S)
    return rows.routes[0].stopped if 0 in rows.routes else ""


@pytest.mark.parametrize(
    ("forbid", "what"), [(Acls.forbid_writing, "may not be written to"), (Acls.hide, "Topic authorization failed")]
)
def test_a_target_that_is_forbidden_stops_the_shard_until_it_is_allowed(
    guarded: str, tmp_path: Path, forbid: Callable[[Acls], None], what: str
) -> None:
    topic = create_topic(guarded, new_name())
    acls = Acls(guarded, topic)
    routing = RoutingConfig.model_validate({"routes": [{"name": "r", "targets": [{"topic": topic}]}]})
    settings = made_journal(guarded, tmp_path, shards=1).model_copy(update={"routing": routing})
    with running_worker(settings), active_store(settings) as store:
        store.create_address("a")
        store.create_queue(QueueConfig("q", "a")).wait()
        store.send(Message("a", b"before"), ["q"]).wait()
        wait_until(lambda: values(guarded, topic) == [b"before"])
        forbid(acls)
        for body in (b"one", b"two"):
            store.send(Message("a", body), ["q"]).wait()
        wait_until(lambda: bool(stopped(settings)))
        said = stopped(settings)
        assert f"topic {topic}" in said
        assert what in said
        assert f"kafka-acls --bootstrap-server {guarded} --add" in said
        assert f"routes resume -j {settings.journal} -b {guarded} 0 --skip" in said
        acls.forget()
        wait_until(lambda: len(values(guarded, topic)) >= 3, lambda: stopped(settings))
        assert values(guarded, topic) == [b"before", b"one", b"two"]
        wait_until(lambda: not stopped(settings))


def test_a_worker_does_not_start_with_a_target_that_it_may_not_write_to(guarded: str, tmp_path: Path) -> None:
    topic = create_topic(guarded, new_name())
    acls = Acls(guarded, topic)
    routing = RoutingConfig.model_validate({"routes": [{"name": "r", "targets": [{"topic": topic}]}]})
    settings = made_journal(guarded, tmp_path, shards=1).model_copy(update={"routing": routing})
    acls.forbid_writing()
    with pytest.raises(TopicError, match=f"route r: topic {topic} may not be written to"), running_worker(settings):
        pass
    acls.forget()
    with running_worker(settings):
        pass


def test_sources_need_to_see_and_read_their_topics_and_one_that_may_not_stops_alone(
    guarded: str, tmp_path: Path
) -> None:
    open_, shut = create_topic(guarded, new_name()), create_topic(guarded, new_name())
    for topic in (open_, shut):
        produce(guarded, topic, [b"1", b"2"])
    allowed, forbidden = Acls(guarded, open_), Acls(guarded, shut)
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        allowed.say(operation, AclPermissionType.ALLOW)
    forbidden.say(AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    sources = [{"name": name, "topics": [name], "address": "{topic}"} for name in (open_, shut)]
    routing = RoutingConfig.model_validate({"sources": sources})
    settings = made_journal(guarded, tmp_path, shards=1).model_copy(update={"routing": routing})
    with running_worker(settings), taking(settings, [QueueConfig(name, name) for name in (open_, shut)]) as node:
        assert f"where it begins in {shut} cannot be committed" in node.wait_stopped(shut)
        node.wait_for(open_, 2)
        forbidden.forget()
        node.wait_for(shut, 2)
        assert bodies(node.store, shut) == [b"1", b"2"]
        assert node.source(open_)["error"] == ""


def _describe_brokers(clients: KafkaClients, name: str) -> None:
    clients.cluster().broker_config("num.io.threads", DEADLINE_S)


def _describe_topic(clients: KafkaClients, name: str) -> None:
    clients.cluster().describe([name], DEADLINE_S)


def _list_offsets(clients: KafkaClients, name: str) -> None:
    clients.cluster().group_offsets(name, "t", DEADLINE_S)


def _init(clients: KafkaClients, name: str) -> None:
    clients.transactional_producer(name).init(DEADLINE_S)


def _produce(clients: KafkaClients, name: str) -> None:
    clients.plain_producer().send([Sent(name, 0, b"k", b"v")], DEADLINE_S)


def _read(clients: KafkaClients, name: str) -> None:
    clients.reader(name).start_and_end(0, DEADLINE_S)


@pytest.mark.parametrize(
    ("kind", "ask", "says"),
    [
        (ResourceType.BROKER, _describe_brokers, "DescribeConfigs cluster: {} --operation DescribeConfigs --cluster"),
        (ResourceType.TOPIC, _describe_topic, "Describe topic {name}: {} --operation Describe --topic {name}"),
        (ResourceType.TOPIC, _produce, "Write topic {name}: {} --operation Write --topic {name}"),
        (ResourceType.TOPIC, _read, "Read topic {name}: {} --operation Read --topic {name}"),
        (ResourceType.GROUP, _list_offsets, "Describe group {name}: {} --operation Describe --group {name}"),
        (
            ResourceType.TRANSACTIONAL_ID,
            _init,
            "Write transactional-id {name}: {} --operation Write --transactional-id {name}",
        ),
    ],
)
def test_what_is_forbidden_says_who_may_not_do_what_and_what_allows_it(
    guarded: str, kind: ResourceType, ask: Callable[[KafkaClients, str], None], says: str
) -> None:
    name = "kafka-cluster" if kind is ResourceType.BROKER else create_topic(guarded, new_name())
    acls = Acls(guarded, name, kind)
    if kind is ResourceType.BROKER:
        acls.say(AclOperation.ALL, AclPermissionType.ALLOW)  # the broker itself uses it
    acls.say(AclOperation.DESCRIBE_CONFIGS if kind is ResourceType.BROKER else AclOperation.ALL, AclPermissionType.DENY)

    def told() -> str:
        try:
            ask(KafkaClients(guarded), name)
        except JournalError as error:
            return str(error)
        return ""

    allow = f"kafka-acls --bootstrap-server {guarded} --add --allow-principal User:ANONYMOUS"
    try:  # the rule is a broker's a moment after it was made
        wait_until(lambda: f"User:ANONYMOUS may not {says.format(allow, name=name)}" in told(), told)
    finally:
        acls.forget()


def test_a_reader_needs_no_group(guarded: str) -> None:
    topic = create_topic(guarded, new_name())
    produce(guarded, topic, [b"1"])
    acls = Acls(guarded, GROUP_OF_READERS, ResourceType.GROUP)
    acls.say(AclOperation.ALL, AclPermissionType.DENY)
    try:
        reader = KafkaClients(guarded).reader(topic)
        reader.seek({0: 0})
        found: list[bytes | None] = []
        wait_until(lambda: bool(found.extend(record.value for record in reader.poll(0.5)) or found))
    finally:
        acls.forget()
    assert found == [b"1"]
