"""What a node's submissions should have done: per shard, what takes effect and in which order. Pure.

An operation takes effect where it was submitted, one of a transaction where its commit was. What one epoch submits is
written by one writer, group after group, so that what took effect of it is a beginning of this, in every shard and over
all shards alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tests.chaos.fold import Effect, prepare_effect, shard_of
from tests.chaos.history import Submitted


@dataclass(frozen=True, slots=True)
class Step:
    """An effect in its shard. `n` is the operation whose acknowledgement promises it."""

    n: int
    shard: int
    effect: Effect


class Transactions:
    """What nodes put into transactions, through all epochs: a prepared one may be settled in a later one."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._prepared: dict[int, list[Submitted]] = {}
        self._changes: list[tuple[int, int, list[Submitted] | None]] = []
        """What the epoch asked for last does to prepared transactions: an operation's number, its transaction, and what
        that holds from then on; None once it is settled."""

    def steps(self, submitted: Iterable[Submitted]) -> list[Step]:
        """What one epoch's submissions should do, in order."""
        open_: dict[int, list[Submitted]] = defaultdict(list)
        prepared = dict(self._prepared)
        self._changes = []
        steps: list[Step] = []
        for one in submitted:
            if one.op == "prepare":
                prepared[one.tx] = open_.pop(one.tx, [])
                self._changes.append((one.n, one.tx, prepared[one.tx]))
                steps += self._prepare(one, prepared[one.tx])
            elif one.op in ("commit", "rollback") and one.tx in prepared:
                self._changes.append((one.n, one.tx, None))
                steps += self._settle(one, prepared.pop(one.tx))
            elif one.op in ("commit", "rollback"):
                steps += self._effects(one, open_.pop(one.tx, []))
            elif one.tx:
                open_[one.tx].append(one)
            else:
                steps.append(Step(one.n, shard_of(one.id, self._shards), effect_of(one)))
        return steps

    def end_epoch(self, there: Collection[int]) -> None:
        """What of the epoch took effect: a transaction whose settlement did not is still prepared in the next."""
        for n, tx, held in self._changes:
            if n in there and held is not None:
                self._prepared[tx] = held
            elif n in there:
                del self._prepared[tx]

    def _prepare(self, prepare: Submitted, held: list[Submitted]) -> Iterator[Step]:
        for shard in self._touched(prepare.tx, held):
            staged = [effect_of(one) for one in held if shard_of(one.id, self._shards) == shard]
            name = prepare.data if shard == shard_of(prepare.tx, self._shards) else ""
            yield Step(prepare.n, shard, prepare_effect(prepare.tx, name, staged))

    def _settle(self, settlement: Submitted, held: list[Submitted]) -> Iterator[Step]:
        for shard in self._touched(settlement.tx, held):
            yield Step(settlement.n, shard, Effect(settlement.op, settlement.tx))
        yield from self._effects(settlement, held)

    def _effects(self, settlement: Submitted, held: list[Submitted]) -> Iterator[Step]:
        for one in held if settlement.op == "commit" else ():
            yield Step(settlement.n, shard_of(one.id, self._shards), effect_of(one))

    def _touched(self, tx: int, held: list[Submitted]) -> list[int]:
        return sorted({shard_of(tx, self._shards), *(shard_of(one.id, self._shards) for one in held)})


def effect_of(one: Submitted) -> Effect:
    """An add, update or delete."""
    if one.op == "delete":
        return Effect("delete", one.id)
    return Effect(one.op, one.id, one.kind, one.data, one.replaceable, one.subject)
