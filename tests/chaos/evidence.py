"""A journal's topics, read with plain clients at the end of a run."""

from __future__ import annotations

import time

from journal.v1.journal_pb2 import Identity
from tests.chaos.checker import Evidence
from tests.chaos.tables import table_state
from tests.support.topic_reader import read_topic

SETTLE_TIMEOUT_S = 120.0


def settled_evidence(bootstrap: str, journal: str) -> Evidence:
    """Everything that is committed, once the workers have brought the tables to the WAL's end."""
    control = read_topic(bootstrap, f"{journal}.control", lambda message: (message.key(), message.value()))[0]
    identity = Identity.FromString(next(value for key, value in control if key == b"journal" and value))
    wal = read_topic(bootstrap, f"{journal}.wal", lambda message: (message.offset() or 0, message.value()))
    until = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        table = read_topic(bootstrap, f"{journal}.table", lambda message: (message.key() or b"", message.value()))
        stand = [table_state(rows)[1].offset for rows in table]
        behind = [shard for shard, frames in enumerate(wal) if frames and stand[shard] < frames[-1][0]]
        if not behind:
            return Evidence(identity.journal, wal, table)
        assert time.monotonic() < until, f"the tables of shards {behind} do not reach the WAL's end: {stand}"
        time.sleep(0.5)
