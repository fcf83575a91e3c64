"""An archive job as a process that is killed at a moment.

`python -m tests.support.archive_job BROKERS JOURNAL PATH MOMENT`

MOMENT is `files` or `manifest`: behind which of them the second batch of the run dies, with its JVM.
"""

from __future__ import annotations

import os
import signal
import sys

from loaders.spark import archive as archiving
from loaders.spark.manifest import Manifest, ManifestLog
from loaders.spark.session import make_session
from loaders.spark.source import JournalSource

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.showConsoleProgress": "false",
}
BATCH_OFFSETS = 40


def main() -> None:
    bootstrap, journal, path, moment = sys.argv[1:]
    batches = 0

    def die(where: str) -> None:
        if (where, batches) == (moment, 2):
            os.killpg(0, signal.SIGKILL)

    class MortalLog(ManifestLog):
        """Dies before, or behind, a manifest."""

        def commit(self, manifest: Manifest) -> None:
            nonlocal batches
            batches += 1
            die("files")
            super().commit(manifest)
            die("manifest")

    setattr(archiving, "ManifestLog", MortalLog)  # noqa: B010  # what the job opens
    settings = SETTINGS | {"spark.sql.warehouse.dir": f"{path}-warehouse"}  # a killed process cannot remove it
    spark = make_session("an archive", master="local[1]", settings=settings)
    source = JournalSource(bootstrap, journal)
    archiving.archive(spark, source, path, once=True, max_offsets=BATCH_OFFSETS)


if __name__ == "__main__":
    main()
