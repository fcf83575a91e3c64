"""Logging of commands and of a worker's processes. Importing it takes no time: colours are imported only for a
terminal."""

from __future__ import annotations

import json
import logging
import sys

from journal.words import escaped

QUIET_LOGGERS = ("journal.kafka", "streams.reading.wal_transport", "faust", "mode", "aiokafka", "asyncio")
"""Loggers of libraries. Important events of theirs reach us as errors; `--verbose` shows all."""


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
        root.handlers = [handler]
