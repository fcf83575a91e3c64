"""Where windows of queues go: Parquet files, a Delta table, a topic.

Files and a table hold the windows of one origin only, a stream's state or the newest batch run, because windows of two
origins would be there twice. A file beside them, which no reader sees, says which origin it is:

    <path>/_windows-of-STATE    or _windows-of-whole, for batch runs
    <path>/_told-NUMBER         the first window of the state that is not here yet

Windows have numbers, and a state gives its windows in order. So a sink knows which windows it has. It leaves out
windows that come again, for example from a state that was restored from a backup, and raises an error if some are
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from journal.errors import ConfigError, KafkaUnavailableError, TopicError
from journal.kafka.ports import Sent
from loaders.spark.read.source import JournalSource
from loaders.spark.replay.sending import send
from loaders.spark.stored.files import Files

_ANY = -1
"""The partition that follows from the key."""
_WHOSE, _TOLD = "_windows-of-", "_told-"


class WindowSpan(NamedTuple):
    """The windows that a sink takes: the state they belong to, and their numbers from `first` to before `following`."""

    state: str
    first: int
    following: int


WHOLE = WindowSpan("whole", 0, 0)
"""The span of a batch run: all windows up to now. They replace the windows of an earlier run."""
Sink = Callable[[DataFrame, WindowSpan], None]
"""Takes windows, perhaps more than once; the second argument says which windows they are."""


def to_files(path: str) -> Sink:
    """A sink that writes Parquet files. The windows of one call go to a directory `batch=N`, where N is the number of
    the first of them.

    Raises ConfigError for a place that has windows of another origin, or other things, or lacks windows before these.
    """
    root = path.rstrip("/")

    def write(windows: DataFrame, told: WindowSpan) -> None:
        windows.coalesce(1).write.mode("overwrite").parquet(f"{root}/batch={told.first}")

    return lambda windows, told: _write_what_is_new(root, windows, told, write)


def to_delta(path: str) -> Sink:
    """A sink that writes a Delta table. Delta itself recognises windows that come again. Raises the errors of
    `to_files`."""
    root = path.rstrip("/")

    def write(windows: DataFrame, told: WindowSpan) -> None:
        writer = windows.coalesce(1).write.format("delta")
        if told == WHOLE:
            writer.mode("overwrite").save(root)
        else:
            once = {"txnAppId": f"kafka-journal analytics {told.state}", "txnVersion": str(told.following)}
            writer.mode("append").options(**once).save(root)

    return lambda windows, told: _write_what_is_new(root, windows, told, write)


def to_topic(source: JournalSource, topic: str) -> Sink:
    """A sink that writes JSON, one record for each window and queue; its key is the queue's name. A record may come
    again, unchanged.

    Raises ConfigError for a topic of the journal's own.
    """
    if topic in (source.wal, source.table, source.control):
        raise ConfigError(f"{topic} is the journal's own: analytics go to another topic")

    def write(windows: DataFrame, _told: WindowSpan) -> None:
        told = windows.select("queue", F.to_json(F.struct(*windows.columns)).alias("value")).coalesce(1)
        rows = told.toLocalIterator()
        try:
            send((Sent(topic, _ANY, row["queue"].encode(), row["value"].encode()) for row in rows), source)
        except TopicError as error:
            raise TopicError(f"topic {topic}, which the windows are to go to, is not there: make it first") from error
        except KafkaUnavailableError as error:
            raise KafkaUnavailableError(f"the windows cannot be sent to topic {topic}: {error}") from error

    return write


def _write_what_is_new(root: str, windows: DataFrame, told: WindowSpan, write: Sink) -> None:
    files = Files(windows.sparkSession, root)
    _require_own(files, root, told)
    if told == WHOLE:
        write(windows, told)
        return
    names = sorted((name for name in files.names("") if name.startswith(_TOLD)), key=_told)
    reached = _told(names[-1]) if names else told.first
    if told.first > reached:
        raise ConfigError(
            f"{root} has the windows before {reached}, and the state goes on with {told.first}: put back the state and "
            "the windows that belong to one moment, or begin both anew"
        )
    if told.following <= reached:
        return
    if told.first < reached:
        width = "(unix_millis(window_end) - unix_millis(window_start))"
        windows = windows.where(f"unix_millis(window_start) >= {width} * {reached}")
    write(windows, told._replace(first=reached))
    files.write_new(f"{_TOLD}{told.following}", "")
    for older in names:
        files.delete(older)


def _told(name: str) -> int:
    return int(name.removeprefix(_TOLD))


def _require_own(files: Files, path: str, told: WindowSpan) -> None:
    found = files.names("")
    whose = [name.removeprefix(_WHOSE) for name in found if name.startswith(_WHOSE)]
    if any(state != told.state for state in whose):
        mend = "have these go elsewhere"
        if told.state != WHOLE.state:
            mend = f"go on with the --state that they are of, or {mend}"
        raise ConfigError(f"{path} has the windows of another run: {mend}")
    if whose:
        return
    # a killed job may leave a file whose name begins with a dot
    if any(not name.startswith(".") for name in found):
        raise ConfigError(f"{path} has other things in it than windows: have them go elsewhere")
    files.write_new(f"{_WHOSE}{told.state}", "")
