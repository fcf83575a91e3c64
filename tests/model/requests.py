"""How a node asks Kafka, and what can become of a request: answered, refused, delayed, or answered twice.

Each function yields every answer the node may get, with the world as it is then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TypeAlias

from .coordinator import appended, ended, initialised, is_open, is_settling
from .state import Request, World


class Answer(StrEnum):
    """What a node is told."""

    DONE = "done"
    DOUBTFUL = "done after a transport error"  # the library repeated EndTxn; its first one may still arrive
    LATE = "done, and answered late"
    FENCED = "fenced"
    UNKNOWN = "time-out"
    NONE = "no answer yet"  # the library repeats the request by itself


Answers: TypeAlias = Iterator[tuple[Answer, str, World]]


def init(world: World, n: int) -> Answers:
    """InitProducerId: the newest wins. It waits while a committed transaction's markers are being written."""
    broker = world.broker
    if not is_settling(broker):
        yield Answer.DONE, "", world.kafka(initialised(broker, n))
    if world.faults.lost:
        delayed = broker._replace(late_inits=broker.late_inits + 1)
        yield Answer.UNKNOWN, " (delayed: time-out)", world.spend("lost").kafka(delayed)


def produce(world: World, n: int, request: Request) -> Answers:
    """One produce request. Only the newest producer's is taken."""
    broker = world.broker
    if broker.newest != n:
        yield Answer.FENCED, " -> fenced", world
        return
    if is_settling(broker):
        return
    if broker.transaction is not None and broker.transaction.frames[request.shard] is not None:
        yield Answer.UNKNOWN, " -> error: the last transaction is still open", world
        return
    yield Answer.DONE, "", world.kafka(appended(broker, request))
    if world.faults.lost:
        yield Answer.UNKNOWN, " (delayed: time-out)", world.spend("lost").kafka(broker._replace(late_produce=request))


def end_transaction(world: World, n: int) -> Answers:
    """EndTxn(commit). The library repeats it by itself, and may be told "fenced" after its first one succeeded."""
    broker = world.broker
    if broker.newest != n:
        yield Answer.FENCED, " -> fenced", world
        return
    yield Answer.DONE, "", world.kafka(ended(broker))
    if not world.faults.lost:
        return
    lost = world.spend("lost")
    yield Answer.UNKNOWN, " (delayed: time-out)", lost.kafka(broker._replace(late_end=True))
    if is_open(broker):
        yield Answer.NONE, " succeeds, its answer is lost: the library repeats it", lost.kafka(ended(broker))
        twice = lost.kafka(ended(broker)._replace(late_end=True))
        yield Answer.DOUBTFUL, ", repeated by the library, succeeds; the first request is still under way", twice
        yield Answer.LATE, " succeeds, its answer is late", lost.kafka(ended(broker))
