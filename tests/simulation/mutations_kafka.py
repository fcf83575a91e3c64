"""Mutations of how the product takes what Kafka does at its worst.

Transactions are refused, coordinators move, ids are forgotten, tails are lost, batches are damaged, logs are trimmed,
and what is large takes too long.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import journal.activate.gate
import journal.table.replica
import journal.wal.writer
from journal.activate.claiming import Claiming
from journal.errors import AbortableProducerError, CorruptionError, DeadlineError
from journal.upkeep.trim import Trimming
from journal.v1.journal_pb2 import Passed
from journal.wal.fencing import Standing
from journal.wal.read_back import BackReader
from journal.wal.writer import Writer
from streams.routes.counts import Checkpointed
from streams.worker.shard import ShardWorker
from streams.worker.shard_checkpoint import CheckpointSender, CheckpointSize, Committed
from streams.worker.shard_frames import ShardFrames
from streams.worker.shard_standing import ShardStanding
from tests.simulation.mutations import Patch, mutation

# ---- transactions that are refused -------------------------------------------------------------------------------


@mutation
def rows_are_lost_in_an_abort() -> list[Patch]:
    """A checkpoint whose transaction was refused is aborted, and what comes next is the one behind it.

    A worker once sent such a checkpoint again; now it recovers, and reads what there is."""
    send = CheckpointSender.send

    def sending(self: Any, *given: Any, **how: Any) -> Committed:
        try:
            return send(self, *given, **how)
        except AbortableProducerError:
            reader, limit_s = self._kafka.reader(self._topic), self._config.request_timeout_s
            self._producer.abort_transaction(limit_s)
            return Committed(reader.start_and_end(self._shard, limit_s)[1] - 1, True, Checkpointed())

    return [(CheckpointSender, "send", sending)]


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

    return [_counter_alone(), (journal.activate.gate, "standing_of", standing)]


# ---- batches that are damaged ------------------------------------------------------------------------------------


@mutation
def unreadable_wal_is_failed() -> list[Patch]:
    """A group whose fate cannot be read, as a batch is damaged or was trimmed, is called failed."""
    unknown = journal.wal.writer._unknown

    def told(transaction: Any, met: str) -> Any:
        error = sys.exception()
        return error if isinstance(error, CorruptionError) else unknown(transaction, met)

    return [(journal.wal.writer, "_unknown", told)]


@mutation
def unreadable_table_stops_for_good() -> list[Patch]:
    """A shard whose table or WAL cannot be read is not tried again."""
    return [(ShardStanding, "stop_for_a_while", lambda self, error: self.stop_for(error))]


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


@mutation
def trimmed_frames_were_never_there() -> list[Patch]:
    """A node that looks for its frames takes what a trim has left for all that there was."""
    read = BackReader._read_shard

    def reading(self: Any, reader: Any, shard: int, known: int, end: int, there: Any) -> None:
        start = reader.bounds(shard, self._timing.request_s)[0]
        read(self, reader, shard, max(known, start), end, there)

    return [(BackReader, "_read_shard", reading)]


@mutation
def any_passed_marker_is_the_next() -> list[Patch]:
    """A node takes the newest marker that a trim has deleted for that of the epoch behind its own."""
    passed = BackReader._passed

    def newest(self: Any, shard: int) -> list[Passed]:
        return [Passed(epoch=self._claim.epoch + 1, number=each.number) for each in passed(self, shard)[-1:]]

    return [(BackReader, "_passed", newest)]


# ---- what is large -----------------------------------------------------------------------------------------------


@mutation
def a_failed_checkpoint_stays_as_large() -> list[Patch]:
    """A worker without routes makes the next checkpoint as large as the one that failed."""
    take_less = ShardWorker._take_less

    def taking(self: Any, error: Any, rows: int) -> None:
        if self._outgoing is not None:
            take_less(self, error, rows)

    return [(ShardWorker, "_take_less", taking)]


@mutation
def a_recovery_forgets_what_was_too_large() -> list[Patch]:
    """A recovered shard without agents and routes makes checkpoints as large as ever."""
    begin = ShardFrames.begin

    def beginning(self: Any, fold: Any) -> None:
        begin(self, fold)
        if not self.tells:
            self.size = CheckpointSize(self._config.checkpoint_bytes_max)

    return [(ShardFrames, "begin", beginning)]
