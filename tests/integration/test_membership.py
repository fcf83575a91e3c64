"""The nodes' group on a real Kafka: one member holds the duty, joining moves nothing, leaving passes it on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from journal.kafka.access import access_of
from journal.kafka.clients import KafkaClients
from journal.kafka.groups import GroupsClient
from journal.kafka.membership import Membership

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

DEADLINE_S = 60.0


class Group:
    """A group over a topic of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.kafka = KafkaClients(bootstrap)
        self.name = f"test-{uuid.uuid4().hex}"
        self.kafka.cluster().create(f"{self.name}.control", 1, 1, {}, DEADLINE_S)

    def join(self, name: str, *, session_timeout_ms: int = 6000) -> Membership:
        return self.kafka.membership(
            f"{self.name}.node",
            f"{self.name}.control",
            name,
            session_timeout_ms=session_timeout_ms,
            heartbeat_ms=session_timeout_ms // 20,
        )

    def members(self) -> dict[str, int]:
        """How many partitions each has."""
        found = self.kafka.cluster().group_members(f"{self.name}.node", DEADLINE_S)
        return {member.client_id: len(member.partitions) for member in found}


@pytest.fixture
def group(bootstrap: str) -> Group:
    return Group(bootstrap)


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_one_member_holds_the_duty_and_it_passes_on_when_that_leaves(group: Group) -> None:
    first = group.join("first")
    wait_until(lambda: first.granted)
    second = group.join("second")
    wait_until(lambda: group.members() == {"first": 1, "second": 0})
    assert first.granted
    assert not second.granted
    assert not second.lapsed
    first.leave()
    assert not first.granted
    wait_until(lambda: second.granted)
    second.leave()
    wait_until(lambda: group.members() == {})


def test_a_session_that_the_brokers_refuse_is_told(group: Group) -> None:
    member = group.join("first", session_timeout_ms=500)
    wait_until(lambda: "session timeout" in member.problem)
    assert not member.granted
    assert not member.lapsed
    member.leave()


def test_a_member_that_an_error_has_ended_says_so_and_another_takes_its_place(group: Group) -> None:
    clients = group.kafka
    ended = clients.membership(f"{group.name}.node", "", "first", session_timeout_ms=6000, heartbeat_ms=300)
    wait_until(lambda: ended.ended)
    assert (ended.granted, ended.lapsed, ended.problem.startswith("it ended")) == (False, False, True)
    member = group.join("first")
    wait_until(lambda: member.granted)
    assert not member.ended
    member.leave()
    assert member.ended


def test_leaving_does_not_wait_for_brokers_that_are_not_there() -> None:
    member = KafkaClients("127.0.0.1:1").membership("g", "t", "first", session_timeout_ms=6000, heartbeat_ms=500)
    member.leave()
    assert not member.granted


def test_one_client_asks_coordinators_again_and_again(bootstrap: str) -> None:
    made: list[AdminClient] = []

    def make() -> AdminClient:
        made.append(AdminClient({"bootstrap.servers": bootstrap}))
        return made[-1]

    groups = GroupsClient(make, access_of(bootstrap, {}))
    for _ in range(2):
        assert groups.members("nobody", DEADLINE_S) == []
        assert groups.offsets("nobody", DEADLINE_S) == {}
    assert len(made) == 1
