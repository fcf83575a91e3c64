"""Where windows of queues go: Parquet files, a Delta table, a topic.

Files and a table have the windows of one place only, a stream's state or the newest run of a batch: those of two would
be there twice. A file beside them says whose they are, which no reader of either sees:

    <path>/_windows-of-STATE    or _windows-of-whole, of batch runs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from journal.errors import ConfigError, KafkaUnavailableError, TopicError
from loaders.spark.sending import send
from loaders.spark.source import JournalSource
from loaders.spark.table_stores import Files

_WHOSE = "_windows-of-"


class Told(NamedTuple):
    """Which windows a sink takes: of which state, and of which of its micro-batches."""

    state: str
    number: int


WHOLE = Told("whole", 0)
"""All windows, as of now: they take the place of those that a run before has told."""
Sink = Callable[[DataFrame, Told], None]
"""Takes the windows of a micro-batch, perhaps more than once: `Told` says which it has."""


def to_files(path: str) -> Sink:
    """Parquet, a directory `batch=N` for each micro-batch: one that comes again replaces its own.

    Raises ConfigError for a place of other windows, or of other things."""
    root = path.rstrip("/")

    def write(windows: DataFrame, told: Told) -> None:
        _require_own(Files(windows.sparkSession, root), root, told)
        windows.coalesce(1).write.mode("overwrite").parquet(f"{root}/batch={told.number}")

    return write


def to_delta(path: str) -> Sink:
    """A Delta table; of a micro-batch that comes again Delta knows that it has it. Raises as `to_files`."""
    root = path.rstrip("/")

    def write(windows: DataFrame, told: Told) -> None:
        _require_own(Files(windows.sparkSession, root), root, told)
        writer = windows.coalesce(1).write.format("delta")
        if told == WHOLE:
            writer.mode("overwrite").save(root)
        else:
            once = {"txnAppId": f"kafka-journal analytics {told.state}", "txnVersion": str(told.number)}
            writer.mode("append").options(**once).save(root)

    return write


def to_topic(source: JournalSource, topic: str) -> Sink:
    """JSON, a record a window and queue, its key the queue's name. One may come again, as it was.

    Raises ConfigError for a topic of the journal's own."""
    if topic in (source.wal, source.table, source.control):
        raise ConfigError(f"{topic} is the journal's own: analytics go to another topic")

    def write(windows: DataFrame, _told: Told) -> None:
        value = F.to_json(F.struct(*windows.columns))
        records = windows.select(F.col("queue").alias("key"), value.alias("value")).coalesce(1)
        try:
            send(records, source, topic)
        except TopicError as error:
            raise TopicError(f"topic {topic}, which the windows are to go to, is not there: make it first") from error
        except KafkaUnavailableError as error:
            raise KafkaUnavailableError(f"the windows cannot be sent to topic {topic}: {error}") from error

    return write


def _require_own(files: Files, path: str, told: Told) -> None:
    found = files.names("")
    whose = [name.removeprefix(_WHOSE) for name in found if name.startswith(_WHOSE)]
    if any(state != told.state for state in whose):
        mend = "have these go elsewhere"
        if told.state != WHOLE.state:
            mend = f"go on with the --state that they are of, or {mend}"
        raise ConfigError(f"{path} has the windows of another run: {mend}")
    if whose:
        return
    # one that was killed in its first moment leaves a file with a dot
    if any(not name.startswith(".") for name in found):
        raise ConfigError(f"{path} has other things in it than windows: have them go elsewhere")
    files.write_new(f"{_WHOSE}{told.state}", "")
