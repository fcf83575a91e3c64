"""Apache Kafka on this machine: KRaft brokers as processes on the loopback interface.

    with EmbeddedKafka(directory, brokers=3, attached=True) as kafka:
        kafka.bootstrap_servers            # "127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003"

A directory is one cluster. Its id, ports and data survive restarts, and any process that opens the directory later
finds the running brokers. Brokers outlive the process that started them. With `attached=True` they end with it, however
it ends. Leaving the block ends the brokers that were started in it, and none that ran before. Every failure is an
EmbeddedKafkaError that says what to do.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from journal.embedded.classes import archive_option
from journal.embedded.config import ClusterConfig, check_request
from journal.embedded.distribution import Report, get_kafka, report_to_stderr
from journal.embedded.java import find_java
from journal.embedded.launching import (
    ENDED_BY_SIGTERM,
    HEAP_MB,
    JVM_OPTIONS,
    KILL_TIMEOUT_S,
    START_TIMEOUT_S,
    Launcher,
    LaunchOptions,
)
from journal.embedded.ports import taken_ports
from journal.embedded.process import ProcessId, wait_until
from journal.embedded.ready import answering_brokers
from journal.embedded.status import BrokerStatus, KafkaStatus
from journal.embedded.storage import (
    BrokerFiles,
    check_formatted,
    format_data,
    load_cluster,
    make_cluster,
    require_properties,
    save_cluster,
    settle_cluster,
    write_configuration,
)
from journal.errors import EmbeddedKafkaError
from journal.process.directories import DATA, user_directory

STATUS_TIMEOUT_S = 3.0


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's own embedded Kafka: the directory kafka-journal/kafka under the XDG data directory."""
    return user_directory(DATA, "--dir or KAFKA_JOURNAL_KAFKA_DIR", environ) / "kafka"


class EmbeddedKafka:
    """The cluster of one directory.

    `brokers` and `ports` default to what the directory holds, else to one broker on a free port. `properties` are
    broker properties on top of ours, for brokers that are started from now on. `hosts` are the brokers' addresses, if
    they are not on the loopback interface. `prefixes` are commands, by broker, that replace themselves by the broker's
    process (`nsenter`, `taskset`); the ports of such a broker are not checked. `jvm_options` come after ours. `archive`
    is the file in which a broker leaves an archive of its classes when it ends (see `classes`); without it, all brokers
    start with the archive in the cache.
    """

    def __init__(
        self,
        directory: Path | str,
        brokers: int | None = None,
        ports: Sequence[int] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        attached: bool = False,
        hosts: Sequence[str] | None = None,
        prefixes: Mapping[int, Sequence[str]] | None = None,
        heap_mb: int = HEAP_MB,
        jvm_options: Sequence[str] = (),
        archive: Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        report: Report = report_to_stderr,
    ) -> None:
        self._directory = Path(directory).absolute()
        self._properties = dict(properties or {})
        self._ports = None if ports is None else tuple(ports)
        self._hosts = None if hosts is None else tuple(hosts)
        self._brokers = brokers if brokers is not None or ports is None else len(ports)
        self._options = LaunchOptions(
            attached, dict(prefixes or {}), heap_mb, tuple(jvm_options), archive, start_timeout_s, report
        )
        self._launcher = Launcher(self._directory, self._options)
        self._java: list[str] | None = None
        if "," in str(self._directory):
            raise EmbeddedKafkaError(f"{self._directory}: Kafka takes no directory with a comma in its name")
        check_request(1 if self._brokers is None else self._brokers, self._ports, self._properties, self._hosts)

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def bootstrap_servers(self) -> str:
        """Host and port of every broker. Raises EmbeddedKafkaError before the first start."""
        return self._require_cluster().bootstrap_servers

    def running_servers(self) -> str | None:
        """The bootstrap servers if a broker's process is alive. No broker is asked. Raises EmbeddedKafkaError for a
        directory that cannot be read."""
        cluster = load_cluster(self._directory)
        if cluster is None or not any(self._process(broker) for broker in cluster.brokers):
            return None
        return cluster.bootstrap_servers

    def start(self) -> str:
        """Starts the brokers that do not run and waits until Kafka answers; returns the bootstrap servers. Blocks."""
        java = self._java_command()
        with self._locked():
            cluster = self._settled_cluster()
            missing = [broker for broker in cluster.brokers if self._process(broker) is None]
            running = [self._files(broker) for broker in cluster.brokers if broker not in missing]
            require_properties(self._directory, running, self._properties)
            if missing:
                self._check_ports(cluster, missing)
                # Saved only now, so that a request that is refused changes nothing.
                save_cluster(self._directory, cluster)
                self._prepare(java, cluster, missing)
            self._launcher.launch_and_wait(java, missing, self._awaited(cluster, missing))
        return cluster.bootstrap_servers

    def stop(self) -> bool:
        """Stops the directory's brokers, whoever started them; returns whether any ran. Blocks."""
        cluster = load_cluster(self._directory)
        if cluster is None:
            return False
        with self._locked():
            running = [process for broker in cluster.brokers if (process := self._process(broker))]
            self._launcher.end(running)
            self._launcher.end_guard()
        return bool(running)

    def status(self) -> KafkaStatus:
        """The state of each broker now, by asking the brokers themselves. Blocks for a few seconds at most."""
        cluster = load_cluster(self._directory)
        if cluster is None:
            return KafkaStatus(str(self._directory), None, None, ())
        processes = {broker: self._process(broker) for broker in cluster.brokers}
        alive = {broker: cluster.address(broker) for broker, process in processes.items() if process}
        answering = answering_brokers(alive, STATUS_TIMEOUT_S)
        rows = []
        for broker, process in processes.items():
            state = "stopped" if process is None else "running" if broker in answering else "unresponsive"
            pid = None if process is None else process.pid
            log = str(self._files(broker).server_log)
            rows.append(BrokerStatus(broker, state, cluster.ports[broker - 1], pid, log))
        return KafkaStatus(str(self._directory), cluster.cluster_id, cluster.bootstrap_servers, tuple(rows))

    def kill(self, broker: int) -> None:
        """Kills a broker by SIGKILL, as a crash would, and waits until its process is gone."""
        process = self._require_process(broker)
        process.send(signal.SIGKILL)
        if not wait_until(lambda: not process.is_alive(), KILL_TIMEOUT_S):
            raise EmbeddedKafkaError(f"broker {broker} (pid {process.pid}) cannot be killed: look at the machine")
        self._launcher.reap()

    def pause(self, broker: int) -> None:
        """Stop a broker with SIGSTOP, and wait until all of its threads stand still. The broker keeps its connections,
        but it answers nothing."""
        process = self._require_process(broker)
        process.send(signal.SIGSTOP)
        if not wait_until(process.is_stopped, KILL_TIMEOUT_S):
            raise EmbeddedKafkaError(f"broker {broker} (pid {process.pid}) cannot be suspended: look at the machine")

    def resume(self, broker: int) -> None:
        """Lets a paused broker go on, by SIGCONT."""
        self._require_process(broker).send(signal.SIGCONT)

    def broker_pid(self, broker: int) -> int | None:
        """The pid of a broker; None while it does not run."""
        process = self._process(broker)
        return None if process is None else process.pid

    def stop_broker(self, broker: int) -> None:
        """Stops one broker cleanly: it hands over the partitions that it leads. Does nothing if it does not run.
        Blocks."""
        with self._locked():
            process = self._process(broker)
            if process is not None:
                self._launcher.end([process])

    def start_broker(self, broker: int) -> None:
        """Starts one broker of the cluster unless it runs, and waits until it answers. Blocks."""
        java = self._java_command()
        cluster = self._require_cluster()
        with self._locked():
            if self._process(broker) is None:
                self._check_ports(cluster, [broker])
                self._prepare(java, cluster, [broker])
                self._launcher.launch_and_wait(java, [broker], {broker: cluster.address(broker)})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._locked():
            self._launcher.end_all()

    # ---- the parts of a start, in order --------------------------------------------------------------------------

    def _java_command(self) -> list[str]:
        """The command line up to the class to run. Java and the jars are looked for once."""
        if self._java is None:
            java = find_java()
            jars = get_kafka(java, report=self._options.report)
            archive = [] if self._options.archive else archive_option(java, jars, _leave_archive, self._options.report)
            self._java = [str(java), *archive, *JVM_OPTIONS, *self._options.jvm_options, "-cp", f"{jars}/*"]
        return self._java

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop of a directory at a time, across processes. Errors of the disk become
        EmbeddedKafkaError."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / ".lock").open("w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            what = f"{self._directory} cannot be used ({error}): mend that, or use another directory"
            raise EmbeddedKafkaError(what) from error

    def _settled_cluster(self) -> ClusterConfig:
        """The cluster that the directory is to hold; it is not saved yet."""
        cluster = load_cluster(self._directory)
        if cluster is None:
            return make_cluster(self._brokers or 1, self._ports, self._hosts)
        running = any(self._process(broker) for broker in cluster.brokers)
        return settle_cluster(cluster, self._directory, self._brokers, self._ports, self._hosts, running=running)

    def _check_ports(self, cluster: ClusterConfig, brokers: Sequence[int]) -> None:
        for broker in brokers:
            if broker in self._options.prefixes:
                continue
            for port in taken_ports(cluster.ports_of(broker), cluster.host(broker)):
                mend = ", or choose other ports" if port in cluster.ports else " (it is for the controller alone)"
                raise EmbeddedKafkaError(
                    f"port {port} of broker {broker} is taken by another process: end that one{mend}"
                )

    def _prepare(self, java: Sequence[str], cluster: ClusterConfig, brokers: Sequence[int]) -> None:
        unformatted = []
        for broker in brokers:
            files = self._files(broker)
            if not check_formatted(files, cluster, broker):
                unformatted.append(broker)
        for broker in brokers:
            files = self._files(broker)
            write_configuration(files, cluster, broker, self._properties)
            if broker in unformatted:
                format_data(java, files, cluster, broker)

    # ---- processes -----------------------------------------------------------------------------------------------

    def _awaited(self, cluster: ClusterConfig, launched: Sequence[int]) -> dict[int, str]:
        """Addresses of the brokers that run, and of those that are launched now."""
        brokers = [broker for broker in cluster.brokers if broker in launched or self._process(broker)]
        return {broker: cluster.address(broker) for broker in brokers}

    def _files(self, broker: int) -> BrokerFiles:
        return self._launcher.files(broker)

    def _process(self, broker: int) -> ProcessId | None:
        return self._launcher.process(broker)

    def _require_cluster(self) -> ClusterConfig:
        cluster = load_cluster(self._directory)
        if cluster is None:
            raise EmbeddedKafkaError(f"no Kafka in {self._directory} yet: start it first")
        return cluster

    def _require_process(self, broker: int) -> ProcessId:
        process = self._process(broker)
        if process is None:
            raise EmbeddedKafkaError(f"broker {broker} in {self._directory} does not run: start it first")
        return process


def _leave_archive(directory: Path, archive: Path) -> None:
    """Runs a broker that leaves an archive. Raises EmbeddedKafkaError unless the broker has ended by itself, because
    only then the archive is whole."""
    with EmbeddedKafka(directory, attached=True, archive=archive, report=_nothing) as kafka:
        (broker,) = kafka._launcher.children
    if broker.returncode != ENDED_BY_SIGTERM or not archive.exists():
        raise EmbeddedKafkaError(f"the broker that was to leave {archive.name} ended with {broker.returncode}")


def _nothing(line: str) -> None: ...
