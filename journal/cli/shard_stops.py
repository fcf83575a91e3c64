"""What stopped a shard, and the command that lets it go on: as `status` says it, and whoever waits in vain for it."""

from __future__ import annotations

import time

from journal.cli.repair import newest_mark
from journal.config import Settings
from journal.kafka.control import ControlRows, wal_topic
from journal.kafka.ports import Kafka
from journal.stops import Stop, look_ahead


def stop_lines(journal: str, shard: int, stop: Stop) -> list[str]:
    """For people: where and why, and how to mend it, if anything does."""
    lines = [f"shard {shard} is STOPPED at {wal_topic(journal)}[{shard}]@{stop.offset}: {stop.reason}"]
    if stop.record is not None:
        command = f"kafka-journal repair skip -j {journal} {shard} {stop.offset}"
        lines.append(f"  it shows the record and, once you agree, has it skipped: {command}")
    return lines


def lines_of_stops(kafka: Kafka, settings: Settings, rows: ControlRows) -> list[str]:
    """`stop_lines` of all shards that are stopped now. Raises KafkaUnavailableError, DeadlineError."""
    identity = rows.require_identity(settings.journal)
    timeout_s = settings.request_timeout_ms / 1000
    lines: list[str] = []
    for shard in range(identity.shards):
        skips = {offset for number, offset in rows.skips if number == shard}
        mark = newest_mark(kafka, settings, shard)
        stop = look_ahead(kafka, identity, mark, skips, clock=time.monotonic, timeout_s=timeout_s).stop
        if stop is not None:
            lines += stop_lines(settings.journal, shard, stop)
    return lines
