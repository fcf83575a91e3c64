"""How a job goes through topics as they grow: in micro-batches, until it is told to stop or has come to the end.

A job keeps where it goes on beside its results. So Spark's checkpoint is thrown away with each run: one that outlived
it could only disagree with the results, as one that comes from a backup does.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from loaders.spark.session.failures import Asked, journal_errors, translated

_LOOK_EVERY_S = 1


def run_micro_batches(
    records: DataFrame,
    name: str,
    source: Asked,
    take: Callable[[DataFrame], None],
    *,
    once: bool,
    every_s: float,
    stop: threading.Event,
    look: Callable[[bool], None] | None = None,
) -> None:
    """Give `take` the micro-batches of `records`, one at a time: `once`, to the end as of now, or a batch every
    `every_s`, until `stop` is set. `look` is told about once a second whether there is nothing to do.

    Raises what `take` raises, and JournalError for what Spark says of Kafka. A micro-batch behind an error, or behind
    `stop`, is not taken: Spark counts it as done, and nobody asks Spark.
    """
    failed: list[Exception] = []

    def take_batch(batch: DataFrame, _number: int) -> None:
        if failed or stop.is_set():
            return
        try:
            with journal_errors(source):
                take(batch)
        except Exception as error:  # noqa: BLE001  # whoever waits for the query raises it: Spark gives back Java
            failed.append(error)

    # only the driver reads it
    with tempfile.TemporaryDirectory(prefix="kafka-journal-spark-", ignore_cleanup_errors=True) as directory:
        writer = records.writeStream.queryName(f"{name} {source.journal}").foreachBatch(take_batch)
        writer = writer.option("checkpointLocation", Path(directory).as_uri())
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
        query = writer.start()
        try:
            while not query.awaitTermination(_LOOK_EVERY_S):
                status = query.status
                if failed or (stop.is_set() and not status["isTriggerActive"]):
                    break
                if look is not None:
                    look(not status["isTriggerActive"] and not status["isDataAvailable"])
        except StreamingQueryException as error:
            # what came of an error is not what the user wants to know
            if not failed:
                raise translated(error, source) or error from error
        finally:
            query.stop()
    if failed:
        raise failed[0]
