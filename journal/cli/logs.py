"""Logging of commands and of a worker's processes. Importing it takes no time: colours are imported only for a
terminal."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

from journal.words import escaped

QUIET_LOGGERS = ("journal.kafka", "streams.reading.wal_transport", "faust", "mode", "aiokafka", "asyncio")
"""Loggers of libraries. Important events of theirs reach us as errors; `--verbose` shows all."""

SILENT_LOGGERS = ("aiokafka.consumer.group_coordinator",)
"""Loggers whose errors need nobody: the worker joins its group again by itself, and the offsets that it commits decide
nothing."""

AGAIN_S = 60.0
"""How seldom aiokafka may say the same again. While Kafka is away, it would say it many times a second."""


class SeldomAgain(logging.Filter):
    """Passes a message of aiokafka once in `AGAIN_S`, whatever its arguments, and every message of ours.

    It drops what asyncio says of an error that aiokafka has not looked at itself: the task is tried again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == "asyncio":
            error = record.exc_info[1] if record.exc_info else None
            return not type(error).__module__.startswith("aiokafka.")
        if record.name.partition(".")[0] != "aiokafka":
            return True
        now, key = self._clock(), (record.name, str(record.msg))
        if now - self._said.get(key, -AGAIN_S) < AGAIN_S:
            return False
        self._said[key] = now
        return True


def set_up_logging(verbose: bool) -> None:
    """Log to standard error: in colour for people, in plain lines with their time for files and service managers."""
    handler: logging.Handler
    if sys.stderr.isatty():
        from rich.logging import RichHandler

        from journal.cli.common import errors

        handler = RichHandler(console=errors, show_path=False, rich_tracebacks=False, markup=False)
        handler.setFormatter(LogLines("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LogLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if verbose:
        logging.getLogger().setLevel(logging.DEBUG)
        return
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in SILENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    handler.addFilter(SeldomAgain())


class LogLines(logging.Formatter):
    """A log record as text that a terminal shows and never obeys. All lines but the first are indented, so that a name
    that a client has chosen cannot look like another record."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record), kept="\n\t").replace("\n", "\n    ")


class JsonLines(logging.Formatter):
    """A log record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_progress(*, as_json: bool = False) -> None:
    """Also log normal events, for commands that keep running."""
    root = logging.getLogger()
    root.setLevel(min(root.level, logging.INFO))
    if as_json:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines())
        for each in (one for former in root.handlers for one in former.filters):
            handler.addFilter(each)
        root.handlers = [handler]
