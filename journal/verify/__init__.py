"""A second implementation of the journal's meaning, written from docs/FORMAT.md alone, which checks the first one.

It folds the committed WAL (`wal_fold`) and reads the table's rows (`table_state`). Then it names every difference
between the two, and between the fold and the result of a load (`compare`, `report`). It shares no code with the engine
and its frames, rows and keys, so that a fault there cannot hide itself here. Pure: no Kafka, no clock.
"""

from journal.verify.report import Loaded, Report, ShardReport, verify_shard
from journal.verify.table_state import read_table
from journal.verify.wal_fold import fold_shard

__all__ = ["Loaded", "Report", "ShardReport", "fold_shard", "read_table", "verify_shard"]
