"""`kafka-journal repair skip` lets the worker pass a WAL record at which it stopped. The raw bytes are kept."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    YesOption,
    confirm,
    errors,
    journal_command,
    operator,
    print_json,
    print_line,
)
from journal.cli.reading import opened_journal
from journal.cli.repair_control import control
from journal.cli.repair_table import table
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts
from journal.cli.text import moment, printable
from journal.config import Settings
from journal.errors import DeadlineError, RepairError
from journal.kafka.ports import Kafka, LogRecord
from journal.process.clocks import wall_ms
from journal.process.commands import command
from journal.topics.control_keys import control_row, skip_key
from journal.topics.control_rows import ControlRows
from journal.topics.marks import MarkReader
from journal.topics.names import table_topic, wal_topic
from journal.upkeep.stops import Stop, look_ahead
from journal.v1.journal_pb2 import Identity, Mark, SkipRequest
from journal.wire.frames import Frame
from journal.words import called, counted

app = typer.Typer(no_args_is_help=True, help="Mend a journal by hand: skip, control, table.")
app.command()(control)
app.command()(table)

_SHOWN_BYTES = 256
_LOOK_EVERY_S = 0.3


@app.command()
@journal_command
def skip(
    chosen: Chosen,
    shard: Annotated[int, typer.Argument(min=0, help="The shard that is stopped, as `status` shows it.")],
    offset: Annotated[int, typer.Argument(min=0, help="The WAL offset at which the shard is stopped.")],
    yes: YesOption = False,
    timeout_s: Annotated[
        float, typer.Option(min=1, help="How many seconds to wait for the worker to pass the record.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Skip the WAL record at which a shard is stopped.

    The record's bytes are kept in the table, and `verify` keeps naming it without failing for it.
    """
    settings = chosen.settings()
    with opened_journal(settings) as (kafka, rows):
        identity = rows.require_identity(settings.journal)
        if shard >= identity.shards:
            last = identity.shards - 1
            raise typer.BadParameter(f"{called(settings.journal)} has shards 0 to {last}", param_hint="SHARD")
        stop, record = _require_stop(kafka, settings, rows, shard, offset)
        facts = record_facts(wal_topic(settings.journal), record, stop)
        if not as_json or not yes:
            print_facts("the record to skip", facts, to=errors)
        confirm("skip it?", yes=yes)
        mark = _request(kafka, settings, identity, shard, offset, timeout_s)
    done = f"shard {shard} passed offset {offset}; its mark stands at {mark.offset}"
    note_done(done)
    if as_json:
        print_json(facts | {"skipped": True, "mark_offset": mark.offset, "operator": operator()})
    else:
        print_line(done)


# ---- what is there -----------------------------------------------------------------------------------------


def _require_stop(
    kafka: Kafka, settings: Settings, rows: ControlRows, shard: int, offset: int
) -> tuple[Stop, LogRecord]:
    """The stop at `offset`. Raises RepairError if the shard is not stopped there, or not at a record that can be
    skipped."""
    timeout_s = settings.request_timeout_ms / 1000
    identity = rows.require_identity(settings.journal)
    mark = newest_mark(kafka, settings, shard)
    if offset <= mark.offset:
        raise RepairError(f"the mark of shard {shard} is at {mark.offset}, so offset {offset} is already behind it")
    skips = {at for number, at in rows.skips if number == shard and at != offset}
    stop = look_ahead(kafka, identity, mark, skips, clock=time.monotonic, timeout_s=timeout_s).stop
    if stop is None:
        raise RepairError(
            f"shard {shard} is not stopped: its mark is at {mark.offset}, and what follows can be applied"
        )
    if stop.offset != offset:
        raise RepairError(f"shard {shard} is stopped at offset {stop.offset}, not at {offset}: {stop.reason}")
    if stop.record is None:
        raise RepairError(f"there is nothing at offset {offset} to skip: {stop.reason}")
    return stop, stop.record


def newest_mark(kafka: Kafka, settings: Settings, shard: int) -> Mark:
    """A shard's newest mark."""
    marks = MarkReader(kafka, table_topic(settings.journal), time.monotonic)
    try:
        return marks.newest(shard, settings.request_timeout_ms / 1000).mark
    finally:
        marks.close()


def record_facts(topic: str, record: LogRecord, stop: Stop) -> dict[str, object]:
    """The contents of a record, for the operator who decides."""
    value = record.value or b""
    facts: dict[str, object] = {
        "record": f"{topic}[{record.partition}]@{record.offset}",
        "written": moment(record.timestamp),
        "reason": stop.reason,
        "bytes": len(value),
        "value": printable(value, _SHOWN_BYTES) or "empty",
    }
    if record.key is not None:
        facts["key"] = printable(record.key)
    return facts if stop.frame is None else facts | _frame_facts(stop.frame)


def _frame_facts(frame: Frame) -> dict[str, object]:
    return {
        "frame": f"number {frame.number} after {frame.previous}, group {frame.group}, epoch {frame.epoch}",
        "node": frame.node,
        "lost": f"it is a frame of this journal: {counted(frame.count, 'operation')} of it will not be applied",
    }


# ---- asking the worker -------------------------------------------------------------------------------------


def _request(kafka: Kafka, settings: Settings, identity: Identity, shard: int, offset: int, timeout_s: float) -> Mark:
    """Write the request into the control rows, and wait until the mark has passed the record. Raises DeadlineError."""
    row = SkipRequest(
        journal=identity.journal, shard=shard, offset=offset, operator=operator(), timestamp=int(wall_ms())
    )
    producer = kafka.plain_producer()
    try:
        producer.send([control_row(settings.journal, skip_key(shard, offset), row)], settings.request_timeout_ms / 1000)
    finally:
        producer.close()
    return wait_for_mark(kafka, settings, shard, offset, timeout_s)


def wait_for_mark(kafka: Kafka, settings: Settings, shard: int, offset: int, timeout_s: float) -> Mark:
    """Wait until the worker has passed an offset. Raises DeadlineError."""
    until = time.monotonic() + timeout_s
    looks = 0
    marks = MarkReader(kafka, table_topic(settings.journal), time.monotonic)
    try:
        with StepProgress() as progress:
            while True:
                mark = marks.newest(shard, settings.request_timeout_ms / 1000).mark
                if mark.offset >= offset:
                    return mark
                if time.monotonic() >= until:
                    raise DeadlineError(
                        f"the skip is requested, and shard {shard} has not passed offset {offset} in {timeout_s:g} s. "
                        f"The request stays: a worker that runs does it ({command('worker')}; "
                        f"{command('status')} shows whether one does). If Kafka loses the "
                        f"request, status shows the shard as stopped at {offset}: then give this command again"
                    )
                looks += 1
                progress("worker", looks, 0)
                time.sleep(_LOOK_EVERY_S)
    finally:
        marks.close()
