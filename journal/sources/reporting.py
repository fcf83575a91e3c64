"""Writes the states of the sources to the control rows while a node is active, so that `status` can show them on any
machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import ParseDict

from journal.errors import OperatingError
from journal.kafka.ports import Kafka
from journal.process.clocks import wall_ms
from journal.topics.control_keys import SOURCES_KEY, control_row
from journal.v1.journal_pb2 import SourcesReport

log = logging.getLogger(__name__)

REPORT_EVERY_S = 2.0
"""How long a change may take until `status` shows it."""

_END_S = 5.0


class SourcesReporter:
    """Reports changes in a thread of its own. Nothing depends on a report."""

    def __init__(self, kafka: Kafka, journal: str, node: str, status: Callable[[], dict[str, Any]], timeout_s: float):
        self._kafka = kafka
        self._journal = journal
        self._node = node
        self._status = status
        self._timeout_s = timeout_s
        self._reported: dict[str, Any] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-journal-sources-report", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end soon. A last report is not needed, because the next active node writes newer ones."""
        self._end.set()

    def close(self) -> None:
        """Wait a short while until the thread has ended."""
        self._end.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._end.wait(REPORT_EVERY_S):
            status = self._status()
            if status == self._reported:
                continue
            try:
                self._report(status)
            except OperatingError as error:
                log.warning("how the sources stand cannot be reported now: %s", error)
            except Exception as error:  # noqa: BLE001  # nothing depends on a report, and the next one may be another
                log.warning("how the sources stand cannot be reported: %r", error)
            else:
                self._reported = status

    def _report(self, status: dict[str, Any]) -> None:
        row = ParseDict(status, SourcesReport(node=self._node, timestamp=int(wall_ms())))
        producer = self._kafka.plain_producer()
        try:
            producer.send([control_row(self._journal, SOURCES_KEY, row)], self._timeout_s)
        finally:
            producer.close()
