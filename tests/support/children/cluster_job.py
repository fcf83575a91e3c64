"""An archive, then an audit of it and the WAL behind it, on the Spark that this is submitted to.

Arguments: BROKERS JOURNAL URI FORMAT; on standard output one line of JSON.
"""

from __future__ import annotations

import json
import sys

from loaders.spark.archive.archive import archive
from loaders.spark.audit.audit import audit
from loaders.spark.read.source import JournalSource
from loaders.spark.session.packages import SparkPart
from loaders.spark.session.session import make_session
from loaders.spark.stored.table_stores import TableFormat


def main() -> None:
    bootstrap, journal, uri, kept_as = sys.argv[1:]
    spark = make_session("archive and audit", parts={SparkPart.DELTA})
    source = JournalSource(bootstrap, journal)
    archived = archive(spark, source, uri, once=True, replace_other=True, kept_as=TableFormat(kept_as))
    report = audit(spark, source, archive=uri)
    told = {
        "master": spark.sparkContext.master,
        "records": archived.records,
        "wal_records": sum(shard.wal_records for shard in report.shards),
        "agrees": report.agrees,
        "complete": report.complete,
        "differences": report.lines(),
    }
    spark.stop()
    print(json.dumps(told))
