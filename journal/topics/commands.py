"""The commands that make and change topics, as messages name them: Kafka's own, or ours where the brokers are those of
the user's embedded Kafka, which brings none."""

from __future__ import annotations

from collections.abc import Mapping

from journal.embedded.default import running_embedded

_NO_SETTINGS: Mapping[str, str] = {}


def create_command(
    bootstrap_servers: str,
    topic: str,
    *,
    partitions: int = 0,
    replication: int = 0,
    config: Mapping[str, str] = _NO_SETTINGS,
) -> str:
    """The command that makes a topic. A number of 0 leaves the choice to the brokers."""
    if is_embedded(bootstrap_servers):
        return _own(topic, partitions=partitions, replication=replication, config=config)
    return kafkas_create_command(
        bootstrap_servers, topic, partitions=partitions, replication=replication, config=config
    )


def kafkas_create_command(
    bootstrap_servers: str, topic: str, *, partitions: int, replication: int, config: Mapping[str, str]
) -> str:
    """The command of Kafka's own tools that makes a topic, wherever the brokers run."""
    numbers = f" --partitions {partitions}" if partitions else ""
    numbers += f" --replication-factor {replication}" if replication else ""
    settings = "".join(f" --config {key}={value}" for key, value in config.items())
    return f"kafka-topics --bootstrap-server {bootstrap_servers} --create --topic {topic}{numbers}{settings}"


def config_command(bootstrap_servers: str, topic: str, config: Mapping[str, str]) -> str:
    """The command that changes settings of a topic."""
    if is_embedded(bootstrap_servers):
        return _own(topic, config=config)
    settings = ",".join(f"{key}={value}" for key, value in config.items())
    return (
        f"kafka-configs --bootstrap-server {bootstrap_servers} --alter --entity-type topics --entity-name {topic} "
        f"--add-config {settings}"
    )


def partitions_command(bootstrap_servers: str, topic: str, partitions: int) -> str:
    """The command that gives a topic more partitions."""
    if is_embedded(bootstrap_servers):
        return _own(topic, partitions=partitions)
    return f"kafka-topics --bootstrap-server {bootstrap_servers} --alter --topic {topic} --partitions {partitions}"


def remake_command(
    bootstrap_servers: str, topic: str, *, partitions: int, replication: int, config: Mapping[str, str]
) -> str:
    """The command that deletes a topic and makes it anew."""
    if is_embedded(bootstrap_servers):
        deleted = f"kafka-journal kafka topic {topic} --delete"
    else:
        deleted = f"kafka-topics --bootstrap-server {bootstrap_servers} --delete --topic {topic}"
    made = create_command(bootstrap_servers, topic, partitions=partitions, replication=replication, config=config)
    return f"{deleted} && {made}"


def is_embedded(bootstrap_servers: str) -> bool:
    """Whether these are the servers of the user's embedded Kafka."""
    running = running_embedded()
    return running is not None and running[1] == bootstrap_servers


def _own(topic: str, *, partitions: int = 0, replication: int = 0, config: Mapping[str, str] = _NO_SETTINGS) -> str:
    numbers = f" --partitions {partitions}" if partitions else ""
    numbers += f" --replication {replication}" if replication else ""
    settings = "".join(f" --config {key}={value}" for key, value in config.items())
    return f"kafka-journal kafka topic {topic}{numbers}{settings}"
