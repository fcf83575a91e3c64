"""How a job goes through growing topics: in micro-batches, until somebody stops the job or it has reached the end.

A job stores its results together with the offsets at which it continues. So Spark's checkpoint is deleted after each
run: an older one, or one from a backup, could only disagree with the results.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from loaders.spark.session.failures import is_late_python, journal_errors, raised_in_python

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1
_STARTS_MAX = 3
"""How often a query is started if its Python worker does not connect in time, as on a busy machine."""


def run_micro_batches(
    records: DataFrame,
    name: str,
    journal: str,
    take: Callable[[DataFrame], None],
    *,
    once: bool,
    every_s: float,
    stop: threading.Event,
    look: Callable[[bool], None] | None = None,
) -> None:
    """Give `take` the micro-batches of `records`, one at a time: with `once`, to the end as of now; otherwise a batch
    every `every_s` until `stop` is set. `look` is called about once a second; its argument says whether there is
    nothing to do.

    Raises what `take` raises, and the journal's error where a Python worker has raised one. After an error, or after
    `stop`, no micro-batch is taken, although Spark counts it as done.
    """
    failed: list[Exception] = []

    def take_batch(batch: DataFrame, _number: int) -> None:
        if failed or stop.is_set():
            return
        try:
            with journal_errors():
                take(batch)
        except Exception as error:  # noqa: BLE001  # whoever waits for the query raises it: Spark gives back Java
            failed.append(error)

    # only the driver reads this file
    with tempfile.TemporaryDirectory(prefix="kafka-journal-spark-", ignore_cleanup_errors=True) as directory:
        writer = records.writeStream.queryName(f"{name} {journal}").foreachBatch(take_batch)
        writer = writer.option("checkpointLocation", Path(directory).as_uri())
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s} seconds")
        for starts_left in reversed(range(_STARTS_MAX)):
            query = writer.start()
            try:
                while not query.awaitTermination(_LOOK_EVERY_S):
                    status = query.status
                    if failed or (stop.is_set() and not status["isTriggerActive"]):
                        break
                    if look is not None:
                        look(not status["isTriggerActive"] and not status["isDataAvailable"])
                break
            except StreamingQueryException as error:
                # report the first error, not the errors that it caused
                if failed:
                    break
                if not (starts_left and is_late_python(error)):
                    raise raised_in_python(error) or error from error
                log.warning("Spark's Python worker did not start in time: starting the query again")
            finally:
                query.stop()
    if failed:
        raise failed[0]
