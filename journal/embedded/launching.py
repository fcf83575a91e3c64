"""Launches the broker processes of one directory, and waits until they answer.

The archive of Java classes, the guard and the pid files belong to a launch; the brokers' configuration does not.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from journal.embedded.distribution import Report, report_to_stderr
from journal.embedded.guard import Guard
from journal.embedded.process import ProcessId, end_processes, read_pid_file, write_pid_file
from journal.embedded.ready import answering_brokers
from journal.embedded.storage import BrokerFiles, broker_files, last_lines
from journal.errors import EmbeddedKafkaError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
KILL_TIMEOUT_S = 10.0
PROGRESS_S = 2.0
HEAP_MB = 512
ENDED_BY_SIGTERM = 128 + signal.SIGTERM
"""Exit code of a Java process that has ended because SIGTERM asked it to."""
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How brokers are launched. The fields are the arguments of `EmbeddedKafka` of the same names."""

    attached: bool = False
    prefixes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    heap_mb: int = HEAP_MB
    jvm_options: tuple[str, ...] = ()
    archive: Path | None = None
    start_timeout_s: float = START_TIMEOUT_S
    report: Report = report_to_stderr


class Launcher:
    """Launches and ends the brokers of one directory. It ends the guard with them."""

    def __init__(self, directory: Path, options: LaunchOptions) -> None:
        self._directory = directory
        self._options = options
        self._guard = Guard(directory)
        self._children: list[subprocess.Popen[bytes]] = []
        self._launched: dict[int, ProcessId] = {}
        """The last process of each broker that this object has launched."""

    @property
    def children(self) -> list[subprocess.Popen[bytes]]:
        """Processes of this object that were not known to have ended when it last ended any."""
        return self._children

    def files(self, broker: int) -> BrokerFiles:
        """Where a broker keeps its files."""
        return broker_files(self._directory, broker)

    def process(self, broker: int) -> ProcessId | None:
        """The live process of a broker, whoever launched it."""
        return read_pid_file(self.files(broker).pid_file)

    def launch_and_wait(self, java: Sequence[str], brokers: Sequence[int], awaited: Mapping[int, str]) -> None:
        """Launch `brokers` and wait until those of `awaited` answer at their addresses. If that fails, the launched
        ones are ended. `java` is the command line up to the class to run."""
        launched: dict[int, ProcessId] = {}
        try:
            for broker in brokers:
                launched[broker] = self._launch(java, broker)
            self._wait_ready(awaited, launched)
        except BaseException:  # also after an interrupt, no half-started broker may be left running
            self.end(list(launched.values()), KILL_TIMEOUT_S)
            raise

    def end(self, processes: list[ProcessId], timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End these processes, by SIGTERM and after `timeout_s` by SIGKILL."""
        end_processes(processes, timeout_s)
        self.reap()

    def end_all(self) -> None:
        """End the brokers that this object has launched, and the guard."""
        self.end(list(self._launched.values()))
        self.end_guard()

    def end_guard(self) -> None:
        """End the guard, because its brokers have ended."""
        self._guard.end()

    def reap(self) -> None:
        """Note which children have ended."""
        self._children = [child for child in self._children if child.poll() is None]

    def _launch(self, java: Sequence[str], broker: int) -> ProcessId:
        options = self._options
        if options.attached:
            self._guard.ensure()
        files = self.files(broker)
        command = [
            *options.prefixes.get(broker, ()),
            *java[:1],
            f"-Xmx{options.heap_mb}m",
            f"-Dlog4j2.configurationFile={files.log4j}",
            f"-XX:ErrorFile={files.directory}/hs_err.log",
            *([f"-XX:ArchiveClassesAtExit={options.archive}"] if options.archive else []),
            *java[1:],
            "kafka.Kafka",
            str(files.properties),
        ]
        with files.console_log.open("wb") as console:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
            )
        self._children.append(child)
        process = write_pid_file(files.pid_file, child.pid)
        if process is None:
            raise self._died(broker)
        self._launched[broker] = process
        return process

    def _wait_ready(self, addresses: Mapping[int, str], launched: Mapping[int, ProcessId]) -> None:
        """Wait until every broker of `addresses` answers as a member. Raises EmbeddedKafkaError when one of `launched`
        dies, or when the time is up."""
        began, limit_s = time.monotonic(), self._options.start_timeout_s
        while True:
            left = limit_s - (time.monotonic() - began)
            silent = addresses.keys() - answering_brokers(addresses, min(PROGRESS_S, max(left, 0.0)))
            for broker, process in launched.items():
                if not process.is_alive():
                    raise self._died(broker)
            if not silent:
                return
            if left <= 0:
                raise EmbeddedKafkaError(
                    f"broker {min(silent)} did not answer within {limit_s:.0f} s: the machine may be too busy, start "
                    f"again; {last_lines(self.files(min(silent)))}"
                )
            self._options.report(
                f"starting Apache Kafka: {len(addresses) - len(silent)} of {len(addresses)} brokers answer"
            )

    def _died(self, broker: int) -> EmbeddedKafkaError:
        return EmbeddedKafkaError(f"broker {broker} ended while starting; {last_lines(self.files(broker))}")
