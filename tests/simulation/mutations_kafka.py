"""Mutations of how the product takes what Kafka does at its worst.

Transactions are refused, coordinators move, ids are forgotten, tails are lost, batches are damaged, logs are trimmed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import journal.gate
import journal.replica
import journal.writer
from journal.claiming import Claiming
from journal.errors import CorruptionError, DeadlineError
from journal.fencing import Standing
from journal.trim import Trimming
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


# ---- tails that are lost -----------------------------------------------------------------------------------------


def _counter_alone() -> Patch:
    return (Claiming, "_newest", lambda self, rows, tails, marks: rows.epoch)


@mutation
def counter_alone_counts() -> list[Patch]:
    """A claim follows the epoch counter, whatever WAL and tables say."""
    return [_counter_alone()]


@mutation
def counter_and_gate_know_no_nonce() -> list[Patch]:
    """A claim follows the epoch counter, and the gate opens for whoever has taken its epoch before."""

    def standing(claim: Any, found: Any) -> Standing:
        if found.epoch == claim.epoch:
            return Standing.OWN
        return Standing.OLDER if found.epoch < claim.epoch else Standing.NEWER

    return [_counter_alone(), (journal.gate, "standing_of", standing)]


# ---- batches that are damaged ------------------------------------------------------------------------------------


@mutation
def unreadable_wal_is_failed() -> list[Patch]:
    """A group whose fate cannot be read, as a batch is damaged or was trimmed, is called failed."""
    unknown = journal.writer._unknown

    def told(transaction: Any, error: Any) -> Any:
        return error if isinstance(error, CorruptionError) else unknown(transaction, error)

    return [(journal.writer, "_unknown", told)]


@mutation
def unreadable_table_stops_for_good() -> list[Patch]:
    """A shard whose table or WAL cannot be read is not tried again."""
    return [(ShardWorker, "stop_for_a_while", lambda self, error: self.stop_for(error))]


# ---- trims -------------------------------------------------------------------------------------------------------


@mutation
def trim_goes_beyond_the_tables() -> list[Patch]:
    """A trim deletes a few offsets more than it planned to: behind what the tables have."""
    delete = Trimming.delete

    def further(each: Any) -> Any:
        return dataclasses.replace(each, offset=each.row.mark.offset + 5) if each.row else each

    def deleting(self: Any, plan: Any) -> None:
        delete(self, [further(each) for each in plan])

    return [(Trimming, "delete", deleting)]
