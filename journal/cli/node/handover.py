"""Asks the active node to hand over, by a control row, from any machine that reaches Kafka."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import NamedTuple

from journal.cli.reading import opened_journal
from journal.config import Settings
from journal.errors import DeadlineError, NotActiveError, OperatingError, StateError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.topics.control_keys import HAND_OVER_KEY, control_row
from journal.topics.control_reading import ControlWatcher
from journal.topics.control_rows import ControlRows, NodeRow
from journal.topics.names import node_group
from journal.v1.journal_pb2 import HandOver, NodeStatus
from journal.words import called
from loaders.node.duty import nobody_fit
from loaders.node.liveness import (
    LastActive,
    Members,
    could_take_over,
    fit_standbys,
    is_gone,
    is_writing,
    last_active,
    newest_report_ms,
)
from loaders.node.roles import Role

log = logging.getLogger(__name__)

_POLL_S = 0.1
_ACTIVATION_S = 30.0


class HandedOver(NamedTuple):
    """The node that is active after a hand-over was asked for, and whether it was active before."""

    node: str
    epoch: int
    was_active: bool = False


def ask_for_hand_over(settings: Settings, to: str) -> HandedOver:
    """The node that took over, once it is active; or `to` at once, if that is the active node.

    Raises NotActiveError if no node is active, StateError if no node could take over, and DeadlineError if none did in
    time.
    """
    timeout_s = settings.request_timeout_ms / 1000
    with (
        opened_journal(settings) as (kafka, _),
        closing(ControlWatcher(kafka, settings.journal, time.monotonic)) as rows,
    ):
        rows.catch_up(timeout_s)
        active = _wait_until_possible(kafka, rows, settings, to)
        if active.node == to:
            return HandedOver(to, active.epoch, was_active=True)
        _ask(kafka, settings, rows.rows, active, to, timeout_s)
        until = time.monotonic() + settings.handover_timeout_ms / 1000 + _ACTIVATION_S
        while time.monotonic() < until:
            rows.poll(_POLL_S)
            found = next_active(rows.rows, active)
            if found is not None:
                return HandedOver(found.name, found.epoch)
    raise DeadlineError(f"node {active.node} was asked and did not hand over in time: {command('status')} says more")


def next_active(rows: ControlRows, active: LastActive) -> NodeStatus | None:
    """The node that is active after `active`, if there is one yet. Raises DeadlineError if it is `active` again."""
    for row in rows.nodes.values():
        if row.status.epoch > active.epoch and row.status.role == Role.ACTIVE.value:
            if row.status.name == active.node:
                raise DeadlineError(f"nobody took over, and node {active.node} is active again")
            return row.status
    return None


def wait_for_successor(settings: Settings) -> None:
    """Wait, after this node has handed over and ended, until the successor is active, or its time is over. The
    successor waits at its gate for workers, and the worker beside this node may be the only one."""
    try:
        with closing(ControlWatcher(kafka_of(settings), settings.journal, time.monotonic)) as rows:
            rows.catch_up(settings.request_timeout_ms / 1000)
            until = time.monotonic() + settings.handover_timeout_ms / 1000
            if _is_awaited(rows.rows, settings.node):
                log.info("the worker goes on until the successor is active")
            while _is_awaited(rows.rows, settings.node) and time.monotonic() < until:
                rows.poll(_POLL_S)
    except OperatingError as error:
        log.warning("whether the successor is active cannot be read: %s", error)


def _is_awaited(rows: ControlRows, node: str) -> bool:
    """Whether `node` was the last to hand over, and its successor is not active yet."""
    released = rows.released
    if released is None or released.node != node or not released.to or rows.epoch.epoch > released.epoch + 1:
        return False
    successor = rows.nodes.get(released.to)
    return successor is not None and not (
        successor.status.epoch > released.epoch and successor.status.role == Role.ACTIVE.value
    )


class Obstacle(NamedTuple):
    """Why a hand-over is impossible now."""

    why: str
    may_pass: bool = False
    """Whether the obstacle may pass by itself: a node that has just become fit is about to join the nodes' group."""


def obstacle(rows: ControlRows, active: LastActive, to: str, members: Members) -> Obstacle | None:
    """Why `active` cannot hand over to the node `to` (empty: to anybody) now; None if it can."""
    others = {name: row for name, row in sorted(rows.nodes.items()) if name != active.node}
    known = ", ".join(sorted({active.node, *others}))
    if to and to not in others:
        return Obstacle(f"there is no node {to}: the nodes are {known}")
    now_ms = newest_report_ms(rows)
    fit = fit_standbys(rows, now_ms, members)
    if to in fit or (not to and any(name in others for name in fit)):
        return None
    asked = {to: others[to]} if to else others
    why = "; ".join(f"{name} is {_standing(row, now_ms)}" for name, row in asked.items())
    may_pass = any(could_take_over(row, now_ms, None) for row in asked.values())
    return Obstacle(f"{nobody_fit(to)} from {active.node}: {why or 'there is no other node'}", may_pass)


def _standing(row: NodeRow, now_ms: float) -> str:
    """A text that says why a node cannot take over."""
    if is_gone(row, now_ms):
        return f"gone for {(now_ms - row.timestamp) / 1000:.0f} s"
    return "not in the nodes' group" if row.status.fit else row.status.why_not or row.status.role


def _wait_until_possible(kafka: Kafka, rows: ControlWatcher, settings: Settings, to: str) -> LastActive:
    """The active node, once it can hand over, or if it is `to` itself. Raises NotActiveError and StateError, at once
    unless the obstacle may pass by itself."""
    until = time.monotonic() + settings.node_report_ms / 1000
    group, timeout_s = node_group(settings.journal), settings.request_timeout_ms / 1000
    with closing(kafka.cluster()) as cluster:
        while True:
            active = last_active(rows.rows)
            if active is None or active.released:
                raise NotActiveError(f"no node of {called(settings.journal)} is active: a standby takes over by itself")
            if active.node == to:
                _require_writing(kafka, settings, rows.rows, active)
                return active
            members = {member.client_id for member in cluster.group_members(group, timeout_s)}
            found = obstacle(rows.rows, active, to, members)
            if found is None:
                return active
            if not found.may_pass or time.monotonic() >= until:
                raise StateError(found.why)
            rows.poll(_POLL_S)


def _require_writing(kafka: Kafka, settings: Settings, rows: ControlRows, active: LastActive) -> None:
    """Raises NotActiveError if the node of the newest epoch writes nothing, as it is then not active any more."""
    shards, watch_s = rows.require_identity(settings.journal).shards, active.silence_s(settings.fence_check_ms / 1000)
    if not is_writing(kafka, settings.journal, shards, clock=time.monotonic, pause=time.sleep, watch_s=watch_s):
        raise NotActiveError(f"node {active.node} has the newest epoch, {active.epoch}, and writes nothing")


def _ask(kafka: Kafka, settings: Settings, rows: ControlRows, active: LastActive, to: str, timeout_s: float) -> None:
    uuid = rows.require_identity(settings.journal).journal
    row = HandOver(journal=uuid, epoch=active.epoch, to=to, timestamp=int(wall_ms()))
    with closing(kafka.plain_producer()) as producer:
        producer.send([control_row(settings.journal, HAND_OVER_KEY, row)], timeout_s)
