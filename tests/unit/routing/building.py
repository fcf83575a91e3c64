"""Routers, sources, messages and records in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from journal.routing.config import RoutingConfig
from journal.routing.outcomes import Header, OutgoingRecord, RouteRefusal
from journal.routing.record_in import Sources
from journal.routing.router import Router
from journal.routing.source_record import SourceRecord
from journal.store.message_records import encode_message
from journal.store.model import Message, Value
from journal.topics.names import OwnTopics

OWN = OwnTopics("flights")


def config(**routing: Any) -> RoutingConfig:
    return RoutingConfig.model_validate(routing)


def route(name: str = "r", *targets: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "targets": list(targets) or [{"topic": "t"}], **fields}


def source(name: str = "s", **fields: Any) -> dict[str, Any]:
    return {"name": name, "topics": ["in"], **fields}


def router(*routes: Mapping[str, Any], journal: str = "flights", replay_of: str = "", **routing: Any) -> Router:
    return Router(config(routes=routes, **routing), journal=journal, own_topics=OWN, replay_of=replay_of)


def taking(**fields: Any) -> Sources:
    return Sources(config(sources=[source(**fields)]), journal="flights", own_topics=OWN)


def stored(address: str = "a", body: bytes = b"body", headers: Any = None, **properties: Value) -> bytes:
    return encode_message(Message(address, body, headers or {}, properties))


def sent(outcomes: Sequence[OutgoingRecord | RouteRefusal]) -> list[tuple[str, str]]:
    """Route and topic of each, all of them sent."""
    assert all(isinstance(each, OutgoingRecord) for each in outcomes), outcomes
    return [(each.route, each.topic) for each in outcomes]


def only(outcomes: Sequence[OutgoingRecord | RouteRefusal]) -> OutgoingRecord:
    [one] = outcomes
    assert isinstance(one, OutgoingRecord), one
    return one


def refused(outcomes: Sequence[OutgoingRecord | RouteRefusal]) -> RouteRefusal:
    [one] = outcomes
    assert isinstance(one, RouteRefusal), one
    return one


def record(
    value: bytes | None = b"v", headers: Sequence[Header] = (), *, topic: str = "in", key: bytes | None = None
) -> SourceRecord:
    return SourceRecord(topic, 3, 17, 1_700_000_000_000, key, value, headers)
