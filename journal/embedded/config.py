"""The configuration of the embedded Apache Kafka: the cluster's description, broker properties, logging.

Pure: functions take values, and return values or the contents of files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from journal.errors import EmbeddedKafkaError

HOST = "127.0.0.1"
BROKERS_MAX = 9
VOTERS_MAX = 3
CLUSTER_FILE = "cluster.json"
CLUSTER_FORMAT = 1

# How the brokers are run fixes these properties. With other values we could not find the brokers again.
RESERVED_PROPERTIES = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What a directory's cluster.json holds. Brokers count from 1; the controller of a voter has a port of its own.

    `hosts` are the brokers' addresses if they are not all on the loopback interface.
    """

    cluster_id: str
    ports: tuple[int, ...]
    controller_ports: tuple[int, ...]
    hosts: tuple[str, ...] = ()

    @property
    def brokers(self) -> range:
        return range(1, len(self.ports) + 1)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.address(broker) for broker in self.brokers)

    def host(self, broker: int) -> str:
        return self.hosts[broker - 1] if self.hosts else HOST

    def address(self, broker: int) -> str:
        """Host and port of a broker for clients."""
        return f"{self.host(broker)}:{self.ports[broker - 1]}"

    def controller_address(self, broker: int) -> str:
        """Host and port of a broker's controller for the other brokers."""
        return f"{self.host(broker)}:{self.controller_ports[broker - 1]}"

    def is_voter(self, broker: int) -> bool:
        return broker <= len(self.controller_ports)

    def ports_of(self, broker: int) -> tuple[int, ...]:
        """All ports that the broker's process listens on."""
        own = (self.ports[broker - 1],)
        return (*own, self.controller_ports[broker - 1]) if self.is_voter(broker) else own

    def to_json(self) -> str:
        return json.dumps({"format": CLUSTER_FORMAT, **asdict(self)}, indent=2) + "\n"


def parse_cluster(text: str, path: Path) -> ClusterConfig:
    """Reads cluster.json. Raises EmbeddedKafkaError if it is anything else."""
    try:
        found = json.loads(text)
        if found["format"] != CLUSTER_FORMAT:
            raise ValueError(f"format {found['format']}, this version reads {CLUSTER_FORMAT}")
        ports = tuple(int(port) for port in found["ports"])
        controller_ports = tuple(int(port) for port in found["controller_ports"])
        if len(controller_ports) != voter_count(len(ports)):
            raise ValueError(f"{len(ports)} brokers and {len(controller_ports)} controllers")
        hosts = tuple(str(host) for host in found.get("hosts", ()))
        if hosts and len(hosts) != len(ports):
            raise ValueError(f"{len(ports)} brokers and {len(hosts)} hosts")
        return ClusterConfig(str(found["cluster_id"]), ports, controller_ports, hosts)
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedKafkaError(
            f"{path} does not describe a cluster ({error!r}): use another directory, or remove this one and its data"
        ) from error


def voter_count(brokers: int) -> int:
    """Number of brokers that are controllers too. Two voters would both be needed, so two brokers have one voter."""
    return VOTERS_MAX if brokers >= VOTERS_MAX else 1


def check_request(
    brokers: int, ports: Sequence[int] | None, properties: Mapping[str, str], hosts: Sequence[str] | None = None
) -> None:
    """Raises EmbeddedKafkaError for an impossible number of brokers, impossible ports or hosts, or a property that only
    this package may set."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise EmbeddedKafkaError(f"{brokers} brokers: between 1 and {BROKERS_MAX} are possible")
    if ports is not None:
        if len(ports) != brokers or len(set(ports)) != brokers:
            raise EmbeddedKafkaError(f"ports {list(ports)} for {brokers} broker(s): give each its own")
        if not all(0 < port < 65536 for port in ports):
            raise EmbeddedKafkaError(f"ports {list(ports)}: a port is between 1 and 65535")
    if hosts is not None and len(hosts) != brokers:
        raise EmbeddedKafkaError(f"hosts {list(hosts)} for {brokers} broker(s): give each one")
    reserved = sorted(RESERVED_PROPERTIES & properties.keys())
    if reserved:
        raise EmbeddedKafkaError(f"{', '.join(reserved)}: set by the embedded Kafka itself, not by a property")
    for key, value in properties.items():
        if not key or any(char in key for char in " =:\t\r\n") or "\n" in value or "\r" in value:
            raise EmbeddedKafkaError(f"property {key!r}={value!r}: not a line of a properties file")


def own_properties(brokers: int) -> dict[str, str]:
    """Broker settings that suit a journal on one machine. A caller's properties override them."""
    replication = min(3, brokers)
    return {
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": str(replication),
        # One broker may fail without stopping writes, and no acknowledged record is on one broker alone.
        "min.insync.replicas": str(max(1, replication - 1)),
        "offsets.topic.replication.factor": str(replication),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(max(1, replication - 1)),
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(replication),
        "share.coordinator.state.topic.min.isr": str(max(1, replication - 1)),
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # There are few threads, because these brokers share the machine with the programs that use them.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.recovery.threads.per.data.dir": "2",
        "background.threads": "2",
        "log.cleaner.threads": "1",
        "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        "log.cleaner.backoff.ms": "5000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # Time for which the end of a transaction waits for a broker that was cut off without a word. The transactional
        # id can begin no other transaction meanwhile.
        "request.timeout.ms": "8000",
        # A killed broker comes back only when the session of its last process has ended. A heartbeat's interval is also
        # the time for which a broker waits for the controller's answer; if that is too short on a busy machine, the
        # broker never registers.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500" if brokers == 1 else "1000",
        "controller.quorum.election.timeout.ms": "500" if brokers == 1 else "1000",
        "controller.quorum.fetch.timeout.ms": "1000" if brokers == 1 else "2000",
    }


def broker_properties(cluster: ClusterConfig, broker: int, data: Path, properties: Mapping[str, str]) -> dict[str, str]:
    """All properties of one broker. `data` is its log directory."""
    listeners = [f"PLAINTEXT://{cluster.address(broker)}"]
    if cluster.is_voter(broker):
        listeners.append(f"CONTROLLER://{cluster.controller_address(broker)}")
    voters = [f"{one}@{cluster.controller_address(one)}" for one in cluster.brokers if cluster.is_voter(one)]
    return {
        "process.roles": "broker,controller" if cluster.is_voter(broker) else "broker",
        "node.id": str(broker),
        "listeners": ",".join(listeners),
        "advertised.listeners": f"PLAINTEXT://{cluster.address(broker)}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        **own_properties(len(cluster.ports)),
        **properties,
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file. Backslashes are escaped, and the file is Latin-1, as the format wants."""
    lines = []
    for key, value in properties.items():
        escaped = "".join(_escape(char) for char in value.strip())
        lines.append(f"{key}={escaped}\n")
    return "".join(lines)


def _escape(char: str) -> str:
    if char == "\\":
        return "\\\\"
    if char.isascii() and char.isprintable():
        return char
    return "".join(f"\\u{unit:04x}" for unit in _utf16_units(char))


def _utf16_units(char: str) -> list[int]:
    raw = char.encode("utf-16-be")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


def parse_properties(text: str) -> dict[str, str]:
    """Reads a simple properties file as Kafka writes it (meta.properties)."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def render_log4j(log_file: Path) -> str:
    """The logging configuration of a broker: one file, rolled at 20 MB, with three kept. Warnings of the start go to
    the same file."""
    return render_properties(
        {
            "status": "error",
            "appender.file.type": "RollingFile",
            "appender.file.name": "file",
            "appender.file.fileName": str(log_file),
            "appender.file.filePattern": f"{log_file}.%i",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "20MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": "3",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d %p %m (%c)%n",
            "rootLogger.level": "info",
            "rootLogger.appenderRef.file.ref": "file",
            # this logger writes a line for every state change of every partition, which other loggers report too
            "logger.state.name": "state.change.logger",
            "logger.state.level": "warn",
        }
    )
