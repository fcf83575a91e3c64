"""A broker's directory. Kafka's own tool formats it once, each start checks it, and we never empty it.

    DIRECTORY/cluster.json                 cluster id and ports
    DIRECTORY/broker-N/data                Kafka's log directory
    DIRECTORY/broker-N/*.properties        written anew at every start
    DIRECTORY/broker-N/broker.pid          the process, while there is one
    DIRECTORY/broker-N/server.log          what the broker logs; console.log is what its JVM says

A directory is formatted beside `data` and then renamed, so that the next start repeats a formatting that was
interrupted.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from journal.embedded.config import (
    CLUSTER_FILE,
    ClusterConfig,
    broker_properties,
    parse_cluster,
    parse_properties,
    render_log4j,
    render_properties,
    voter_count,
)
from journal.embedded.ports import choose_free_ports
from journal.embedded.process import write_atomically
from journal.errors import EmbeddedKafkaError

FORMAT_TIMEOUT_S = 120.0
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """The files of one broker."""

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pid_file(self) -> Path:
        return self.directory / "broker.pid"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log4j(self) -> Path:
        return self.directory / "log4j2.properties"

    @property
    def server_log(self) -> Path:
        return self.directory / "server.log"

    @property
    def console_log(self) -> Path:
        return self.directory / "console.log"


def broker_files(directory: Path, broker: int) -> BrokerFiles:
    return BrokerFiles(directory / f"broker-{broker}")


def load_cluster(directory: Path) -> ClusterConfig | None:
    """The cluster in the directory; None if the directory is empty. Raises EmbeddedKafkaError if it holds anything
    else."""
    path = directory / CLUSTER_FILE
    try:
        return parse_cluster(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise EmbeddedKafkaError(f"{path} cannot be read ({error}): mend that, or use another directory") from error
    if directory.is_dir() and any(not entry.name.startswith(".") for entry in directory.iterdir()):
        raise EmbeddedKafkaError(
            f"{directory} is not empty and has no {CLUSTER_FILE}: use another directory, or empty this one"
        )
    return None


def save_cluster(directory: Path, cluster: ClusterConfig) -> None:
    write_atomically(directory / CLUSTER_FILE, cluster.to_json())


def make_cluster(brokers: int, ports: Sequence[int] | None, hosts: Sequence[str] | None = None) -> ClusterConfig:
    """A new cluster on these ports, or on free ones."""
    own = tuple(ports) if ports else choose_free_ports(brokers, ())
    return ClusterConfig(new_cluster_id(), own, choose_free_ports(voter_count(brokers), own), tuple(hosts or ()))


def settle_cluster(
    cluster: ClusterConfig,
    directory: Path,
    brokers: int | None,
    ports: Sequence[int] | None,
    hosts: Sequence[str] | None = None,
    *,
    running: bool,
) -> ClusterConfig:
    """The cluster of the directory, with the addresses that are now asked for. Raises EmbeddedKafkaError if it cannot
    have what was asked for."""
    if brokers is not None and brokers != len(cluster.ports):
        raise EmbeddedKafkaError(
            f"{directory} holds {len(cluster.ports)} broker(s), {brokers} were asked for: "
            "leave the number out, or use another directory"
        )
    asked = replace(
        cluster,
        ports=cluster.ports if ports is None else tuple(ports),
        hosts=cluster.hosts if hosts is None else tuple(hosts),
    )
    if running and asked != cluster:
        raise EmbeddedKafkaError(
            f"Kafka in {directory} runs on {cluster.bootstrap_servers}: stop it before you change its addresses"
        )
    return asked


def new_cluster_id() -> str:
    """A new id of 22 characters, as Kafka's tool makes it. It begins with no dash, which would read as an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not made.startswith("-"):
            return made


def check_formatted(files: BrokerFiles, cluster: ClusterConfig, broker: int) -> bool:
    """Whether the broker's data directory is formatted for this cluster. Raises EmbeddedKafkaError if it is neither
    that nor unused."""
    meta = files.data / "meta.properties"
    what = f"remove {files.data} (its records are lost), or use another directory"
    try:
        found = parse_properties(meta.read_text(encoding="latin-1"))
    except FileNotFoundError:
        if not files.data.exists() or not any(files.data.iterdir()):
            return False
        raise EmbeddedKafkaError(f"{files.data} is half formatted: files but no meta.properties: {what}") from None
    except OSError as error:
        raise EmbeddedKafkaError(f"{meta} cannot be read ({error}): {what}") from error
    expected = {"cluster.id": cluster.cluster_id, "node.id": str(broker)}
    for key, value in expected.items():
        if found.get(key) != value:
            raise EmbeddedKafkaError(f"{meta} says {key}={found.get(key)}, this broker has {value}: {what}")
    return True


def write_configuration(files: BrokerFiles, cluster: ClusterConfig, broker: int, properties: Mapping[str, str]) -> None:
    """Writes the files that the broker reads when it starts."""
    files.directory.mkdir(parents=True, exist_ok=True)
    own = broker_properties(cluster, broker, files.data, properties)
    files.properties.write_text(render_properties(own), encoding="ascii")
    files.log4j.write_text(render_log4j(files.server_log), encoding="ascii")


def require_properties(directory: Path, running: Sequence[BrokerFiles], properties: Mapping[str, str]) -> None:
    """Raises EmbeddedKafkaError if a running broker was started without one of these properties."""
    asked = set(render_properties(properties).splitlines())
    for files in running:
        if lacking := sorted(asked - set(files.properties.read_text(encoding="ascii").splitlines())):
            raise EmbeddedKafkaError(
                f"Kafka in {directory} runs without {', '.join(lacking)}: stop it before you change its properties"
            )


def format_data(java: Sequence[str], files: BrokerFiles, cluster: ClusterConfig, broker: int) -> None:
    """Formats the broker's data directory with Kafka's storage tool; `java` is the command line up to the class to
    run."""
    making = files.directory / "data.formatting"
    if making.exists():
        shutil.rmtree(making)
    settings = files.directory / "format.properties"
    settings.write_text(render_properties(broker_properties(cluster, broker, making, {})), encoding="ascii")
    command = [
        *java,
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        cluster.cluster_id,
        "--config",
        str(settings),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EmbeddedKafkaError(
            f"formatting {files.data} took over {FORMAT_TIMEOUT_S:.0f} s, the machine may be too busy: start again"
        ) from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        raise EmbeddedKafkaError(f"Kafka's storage tool could not format {files.data}; it said:\n{said}")
    if files.data.exists():
        files.data.rmdir()  # the directory is empty, which check_formatted has verified
    making.rename(files.data)
    settings.unlink()


def last_lines(files: BrokerFiles) -> str:
    """The last lines that the broker logged, for an error message."""
    for path in (files.console_log, files.server_log):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            continue
        if lines:
            return "\n".join([f"the last lines of {path}:", *lines[-LAST_LINES:]])
    return f"nothing was written to {files.server_log}"
