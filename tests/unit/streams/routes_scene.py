"""Groups of messages, routes for them, and faults, for tests of what a shard sends on."""

from __future__ import annotations

from typing import Any

from journal.errors import RouteStopError
from streams.worker.shard_standing import ShardState
from tests.simulation.faults import Fault, Faults
from tests.support.build import add, commit, delete, marker, prepare, rollback, update, wal
from tests.support.routes import OUT, RoutesWorld, message, one_route

GROUPS = [
    [marker()],
    [message(1, b"one"), update(1, b"u"), add(90, b"no message")],
    [message(2, b"short"), delete(2)],
    [message(3, b"tx", tx=9), prepare(9, 1)],
    [message(4, b"four"), message(40, b"other", "b.c")],
    [commit(9, 1), delete(1)],
    [message(5, b"never", tx=10), prepare(10, 1)],
    [rollback(10, 1), message(6, b"six")],
    [delete(6)],
]
SENT = [b"one", b"short", b"four", b"tx", b"six"]
FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
ROUTE = one_route(address="a")
OTHER = one_route("other", address="z.#")


class Endless(Faults):
    """No transaction ends while it is on."""

    is_on = False

    def at(self, request: str, node: str) -> Fault:
        return Fault.LOSE_REQUEST if self.is_on and request == "end_transaction" else Fault.NONE


def world(*groups: Any, routes: Any = (ROUTE, OTHER), **more: Any) -> RoutesWorld:
    return RoutesWorld(wal([marker()], *groups), *routes, **more)


def stopped(scene: RoutesWorld, at_once: int = 100) -> tuple[Any, RouteStopError]:
    """The worker that a route has stopped, and why."""
    worker = scene.worker()
    worker.recover()
    scene.drive(worker, at_once)
    assert worker.state is ShardState.STOPPED
    assert isinstance(worker.stopped_by, RouteStopError)
    return worker, worker.stopped_by


BAD = message(3, b"bad")


KEYED = {"topic": OUT, "key": "header:k"}


def keyed(on_error: str, **more: Any) -> RoutesWorld:
    return world(
        [message(1, b"1", headers={"k": "x"})],
        [message(2, b"2", headers={"k": "y"}), BAD, message(4, b"4", headers={"k": "z"})],
        [message(5, b"5", headers={"k": "x"})],
        routes=[{"name": "r", "targets": [KEYED], "on_error": on_error}],
        **more,
    )
