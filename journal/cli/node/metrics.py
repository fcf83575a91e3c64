"""Metrics of `kafka-journal node`, and whether the node is ready: it is active, or could take over warm."""

from __future__ import annotations

import time
from collections.abc import Iterator

from journal.cli.operations.acting import Served
from journal.errors import StateError
from journal.observe.exposition import Family
from journal.v1.journal_pb2 import NodeStatus
from loaders.node.roles import Role
from streams.apps.sources import reported_families

_FAILOVER_STEPS = ("silence", "fence", "claim", "gate", "load", "ready", "callback")


def node_families(status: NodeStatus, served: Served | None) -> Iterator[Family]:
    """The metrics of a node, and of the store that it serves while it is active."""
    roles = [({"role": role.value}, float(status.role == role.value)) for role in Role]
    yield Family("node_role", "gauge", "1 for the role that the node has.", roles)
    yield Family("node_epoch", "gauge", "Epoch of an active node, otherwise 0.", [({}, status.epoch)])
    since_s = max(0.0, time.time() - status.since / 1000)
    yield Family("node_role_age_seconds", "gauge", "How long the node has had its role.", [({}, since_s)])
    yield Family("node_fit", "gauge", "1 while a take-over would be warm.", [({}, float(status.fit))])
    yield Family("node_copy_lag_offsets", "gauge", "Its copy's distance to the table.", [({}, status.lag_offsets)])
    yield Family("node_copy_lag_seconds", "gauge", "How long its copy has been behind.", [({}, status.lag_ms / 1000)])
    yield from reported_families([status], time.time() * 1000)
    if status.HasField("last_failover"):
        failover = status.last_failover
        steps = [({"step": step}, getattr(failover, f"{step}_ms") / 1000) for step in _FAILOVER_STEPS]
        yield Family("node_failover_seconds", "gauge", "Times of its last activation, by step.", steps)
    if served is not None:
        yield from _queue_families(served)


def _queue_families(served: Served) -> Iterator[Family]:
    try:
        queues = served.store.queues()
    except StateError:
        return  # the node has given its store up meanwhile
    now_ms = time.time() * 1000
    states = ("ready", "scheduled", "held", "locked", "arriving")
    yield Family(
        "queue_messages",
        "gauge",
        "Messages of a queue.",
        [({"queue": each.config.name, "state": state}, getattr(each, state)) for each in queues for state in states],
    )
    sizes = [({"queue": each.config.name}, each.bytes) for each in queues]
    yield Family("queue_bytes", "gauge", "Size of a queue's messages.", sizes)
    yield Family(
        "queue_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest of the messages that are next by priority; 0 if none is ready.",
        [({"queue": each.config.name}, max(0.0, now_ms - each.oldest) / 1000 if each.oldest else 0) for each in queues],
    )


def why_not_ready(status: NodeStatus) -> str:
    """The reason for which a node is not ready; empty if it is."""
    if status.role == Role.ACTIVE.value or status.fit:
        return ""
    return f"the node is {status.role}: {status.why_not or status.reason}"
