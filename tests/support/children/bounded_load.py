"""A load of many records in a process of its own, and by how much it grew meanwhile.

Arguments: DIRECTORY RECORDS.
"""

from __future__ import annotations

import resource
from pathlib import Path

from journal.disk.rocks import RocksStore
from journal.limits import Limits
from journal.load.accepted_load import load_with_acceptance
from journal.load.loading import NullLoader
from journal.v1.journal_pb2 import ADD, Mark, Operation
from journal.wire.keys import mark_key, record_key
from journal.wire.rows import position_bytes

DATA_BYTES = 1024
BATCH = 10_000


def grown_by(directory: Path, records: int) -> int:
    """Bytes, of a process that has written nothing."""
    store = RocksStore(directory)
    before = _peak_bytes()
    loader = NullLoader()
    _, counts = load_with_acceptance(
        store, {0: Mark(shard=0, records=records)}, loader, Limits(), lambda _done, _total: None
    )
    assert counts.records == records
    store.close()
    return _peak_bytes() - before


def fill(directory: Path, records: int) -> None:
    store = RocksStore(directory)
    data = bytes(DATA_BYTES)
    for first in range(1, records + 1, BATCH):
        ids = range(first, min(first + BATCH, records + 1))
        rows = [
            (record_key(each), Operation(type=ADD, id=each, data=data).SerializeToString() + position_bytes(each, 0, 0))
            for each in ids
        ]
        store.write([*rows, (mark_key(0), Mark(shard=0).SerializeToString())], {})
    store.close()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(directory: str, records: str) -> None:
    print(grown_by(Path(directory), int(records)))
