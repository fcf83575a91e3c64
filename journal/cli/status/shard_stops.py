"""The reason for which a shard is stopped, and the command that lets it go on. `status` shows it, and so do commands
that wait in vain for a shard."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from journal.kafka.ports import Kafka
from journal.process.commands import command
from journal.topics.control_reading import read_control
from journal.topics.marks import MarkReader
from journal.topics.names import table_topic, wal_topic
from journal.upkeep.stops import Stop, look_ahead
from journal.words import NAMED_MAX, counted


def stop_lines(journal: str, shard: int, stop: Stop) -> list[str]:
    """Lines for people: where and why the shard stopped, and what mends it, if anything does."""
    lines = [f"shard {shard} is STOPPED at {wal_topic(journal)}[{shard}]@{stop.offset}: {stop.reason}"]
    if stop.record is not None:
        skip = command("repair skip", shard, stop.offset, journal=journal)
        lines.append(f"  it shows the record and, once you agree, has it skipped: {skip}")
    return lines


def lines_of_stops(journal: str, stops: Mapping[int, Stop]) -> list[str]:
    """The `stop_lines` of the first few shards, and the number of other shards."""
    lines = [line for shard, stop in sorted(stops.items())[:NAMED_MAX] for line in stop_lines(journal, shard, stop)]
    if len(stops) > NAMED_MAX:
        lines.append(
            f"and {counted(len(stops) - NAMED_MAX, 'more shard')}: `{command('status', journal=journal)}` names all"
        )
    return lines


def stops_now(kafka: Kafka, journal: str, shards: Collection[int], timeout_s: float) -> dict[int, Stop]:
    """Those of `shards` that are stopped now, and where. Raises OperatingError, and RowError for rows that do not
    parse."""
    rows = read_control(kafka, journal, time.monotonic, timeout_s)
    identity = rows.require_identity(journal)
    marks = MarkReader(kafka, table_topic(journal), time.monotonic)
    stops: dict[int, Stop] = {}
    try:
        for shard, found in marks.newest_of(shards, timeout_s).items():
            passed = {offset for number, offset in rows.skips if number == shard}
            ahead = look_ahead(kafka, identity, found.mark, passed, clock=time.monotonic, timeout_s=timeout_s)
            if ahead.stop is not None:
                stops[shard] = ahead.stop
    finally:
        marks.close()
    return stops
