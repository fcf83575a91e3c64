"""The demo's end in Spark: it archives the run's WAL, computes queue analytics from the archive, and writes the report.

It runs as `python -m journal.cli.flights.analytics`, so that Spark has a process of its own. It reports on standard
output, one JSON object on each line. Without `--archive` it reads the WAL itself: if the journal is on somebody's own
broker, an archive that is deleted with the demo must not become the one that `trim` waits for.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from journal.cli.child import end_with_parent
from journal.cli.logs import set_up_logging
from journal.cli.spark.analytics import to_json, write_report
from journal.cli.spark.session import SMALL, spark_session
from journal.config import Settings, load_settings
from journal.errors import ConfigError, MissingExtraError

_MASTER = "local[2]"


def tell(event: str, **fields: object) -> None:
    """Print one event for the demo."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def run(settings: Settings, archive: Path | None, report: Path) -> None:
    """Archive, compute and write. Raises MissingExtraError and ConfigError if Spark cannot be started."""
    with spark_session("kafka-journal demo", _MASTER, settings=SMALL) as spark:
        from loaders.spark.analytics.analytics import analytics
        from loaders.spark.archive.archive import archive as archive_wal
        from loaders.spark.read.source import JournalSource

        tell("started")
        source = JournalSource.from_settings(settings)
        records = 0
        if archive is not None:
            written = archive_wal(
                spark, source, str(archive), once=True, told=lambda manifest: tell("archived", batch=manifest.number)
            )
            records = written.records
        found = analytics(spark, source, archive=None if archive is None else str(archive))
        tell("computed")
        write_report(found, report)
        tell("analytics", records_archived=records, **to_json(found), report=str(report))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()
    set_up_logging(False)
    end_with_parent()
    try:
        run(load_settings(given.config), given.archive, given.report)
    except (MissingExtraError, ConfigError) as error:
        tell("missing", reason=str(error))


if __name__ == "__main__":
    main()
