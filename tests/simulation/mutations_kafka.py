"""Mutations of how the product takes what Kafka does at its worst.

Transactions are refused, coordinators move, and transactional ids are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from journal.errors import DeadlineError
from journal.writer import Writer
from streams.shard import ShardWorker
from tests.simulation.mutations import Patch, mutation


class _Producer:
    """A producer as it is, but for what a mutation does to it."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


# ---- transactions that are refused -------------------------------------------------------------------------------


class _Forgetful(_Producer):
    """It leaves the first record out of what is sent again after an abort."""

    _aborted = False

    def abort_transaction(self, timeout_s: float) -> None:
        self._producer.abort_transaction(timeout_s)
        self._aborted = True

    def send(self, records: Any, timeout_s: float) -> list[int]:
        if not self._aborted:
            return list(self._producer.send(records, timeout_s))
        first, *rest = records
        offsets = self._producer.send(rest or [first], timeout_s)
        return [offsets[0], *offsets] if rest else offsets

    def send_rows(self, topic: str, partition: int, rows: Any, timeout_s: float, **given: Any) -> int:
        sent = rows[1:] if self._aborted and len(rows) > 1 else rows
        return int(self._producer.send_rows(topic, partition, sent, timeout_s, **given))


@mutation
def rows_are_lost_in_an_abort() -> list[Patch]:
    """After an abort the first row of a checkpoint is not sent again."""
    send = ShardWorker._send
    return [(ShardWorker, "_send", lambda self, producer, *given: send(self, _Forgetful(producer), *given))]


# ---- coordinators ------------------------------------------------------------------------------------------------


def _judging(answer: str, judge: Callable[[Exception], None]) -> list[Patch]:
    """A writer that asks `judge` alone what such an answer to an EndTxn says about its group."""
    recover = Writer._recover

    def recovering(self: Any, transaction: Any, met: Any) -> None:
        if "end of transaction" in str(met) and answer in str(met):
            judge(met)
        else:
            recover(self, transaction, met)

    return [(Writer, "_recover", recovering)]


def _failed(met: Exception) -> None:
    raise DeadlineError(str(met)) from met


def _done(met: Exception) -> None: ...


@mutation
def without_a_coordinator_a_group_has_failed() -> list[Patch]:
    """A group whose EndTxn found no coordinator in the end is called failed."""
    return _judging("NO_COORDINATOR", _failed)


@mutation
def without_a_coordinator_a_group_is_there() -> list[Patch]:
    """A group whose EndTxn found no coordinator in the end is called done."""
    return _judging("NO_COORDINATOR", _done)


@mutation
def a_group_of_nobodys_producer_has_failed() -> list[Patch]:
    """A group whose EndTxn was told that nobody has this producer id is called failed."""
    return _judging("UNKNOWN_PRODUCER", _failed)


@mutation
def a_group_of_nobodys_producer_is_there() -> list[Patch]:
    """A group whose EndTxn was told that nobody has this producer id is called done."""
    return _judging("UNKNOWN_PRODUCER", _done)
