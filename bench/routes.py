"""`python -m bench routes`: a worker with two routes, of which one sends every message, against one without routes.

Operations are mixed as in `python -m bench process`, but every record added is a message of 200 bytes with a header,
which the route takes as the key. Each round has a new journal, with the same frames.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from bench import limits
from bench.process import process_seconds
from bench.rounds import Comparison, Outcome, alternate, say
from bench.scene import Memory, Scene, delete_topics, worker
from bench.workload import PrefilledFrame, message_bodies, operation_frames
from journal.routing.config import RoutingConfig
from journal.v1.store_pb2 import MESSAGE

OPERATIONS = 1_000_000
PARTITIONS = 8
TARGET = 0.6


def run(scene: Scene) -> Outcome:
    outcome, memory = Outcome(), Memory()
    with memory.watch(bench=os.getpid(), broker=scene.broker_pid):
        for shards in (1, 8):
            _measure(scene, shards, outcome, memory)
    outcome.figures |= memory.figures()
    return outcome


def _measure(scene: Scene, shards: int, outcome: Outcome, memory: Memory) -> None:
    operations = scene.operations(OPERATIONS)
    say(f"making {operations:,} operations for {shards} shards")
    frames = operation_frames(shards, operations, fleeting=False, kind=MESSAGE, data=message_bodies())
    body = Routed(scene, shards, operations, frames, memory, "body")
    name = f"routes_{shards}_shard{'s' if shards > 1 else ''}"
    ours, plain = alternate(scene.rounds(), body.rate, body.plain_rate, what=name)
    outcome.comparisons.append(Comparison(name, "operations_per_s", ours, plain, TARGET))
    if shards == 1:
        enveloped = Routed(scene, shards, operations, frames, memory, "json")
        json, again = alternate(scene.rounds(), enveloped.rate, enveloped.plain_rate, what=f"{name}, JSON envelope")
        outcome.figures |= Comparison(f"json_envelope_{shards}_shard", "operations_per_s", json, again, 0.0).figures()


class Routed:
    """The frames of all rounds; each round has its own journal and topic."""

    def __init__(
        self, scene: Scene, shards: int, operations: int, frames: list[PrefilledFrame], memory: Memory, value: str
    ) -> None:
        self._scene = scene
        self._shards = shards
        self._operations = operations
        self._frames = frames
        self._memory = memory
        self._value = value

    def rate(self) -> float:
        """Returns the operations per second of a worker with routes, from the commit of the WAL until the last mark is
        committed."""
        topic = limits.new_topic(self._scene.bootstrap, PARTITIONS)
        target = {"topic": topic, "key": "header:tail", "value": self._value}
        routes = [
            {"name": "cancelled", "address": "flights.cancelled.#", "targets": [target]},
            {"name": "landed", "address": "flights.landed.#", "targets": [target]},
        ]
        took = self._rate(RoutingConfig.model_validate({"routes": routes}))
        delete_topics(self._scene.bootstrap, [topic])
        return took

    def plain_rate(self) -> float:
        """Returns the operations per second of a worker without routes, from the commit of the WAL until the last mark
        is committed."""
        return self._rate(RoutingConfig())

    def _rate(self, routing: RoutingConfig) -> float:
        name = f"worker_{self._shards}_shards" + ("_with_routes" if routing.routes else "")
        with ExitStack() as left:
            settings = left.enter_context(self._scene.journal(self._shards, routing=routing))
            pid = left.enter_context(worker(settings))
            left.enter_context(self._memory.watch(**{name: pid}))
            return self._operations / process_seconds(settings, self._frames)
