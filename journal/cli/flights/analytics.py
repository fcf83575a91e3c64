"""The demo's end in Spark: archives the run's WAL, computes queue analytics from the archive, writes the report.

Run as `python -m journal.cli.flights.analytics`: Spark is in a process of its own. It tells what it does on standard
output, one JSON object a line. Without `--archive` it reads the WAL itself: an archive that goes with the demo
must not become the one that a journal on somebody's own broker waits for before it is trimmed.
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
from loaders.spark.session.packages import READING

_MASTER = "local[2]"


def tell(event: str, **fields: object) -> None:
    """One line for the demo."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def run(settings: Settings, archive: Path | None, report: Path) -> None:
    """Raises MissingExtraError and ConfigError if Spark cannot be had."""
    with spark_session("kafka-journal demo", _MASTER, READING, SMALL) as spark:
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
