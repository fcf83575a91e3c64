"""The commands that make and change topics, as messages name them."""

from __future__ import annotations

from collections.abc import Mapping


def create_command(
    bootstrap_servers: str, topic: str, *, partitions: int = 0, replication: int = 0, config: Mapping[str, str]
) -> str:
    """The command that makes a topic. A number of 0 leaves the choice to the brokers."""
    numbers = f" --partitions {partitions}" if partitions else ""
    numbers += f" --replication-factor {replication}" if replication else ""
    settings = "".join(f" --config {key}={value}" for key, value in config.items())
    return f"kafka-topics --bootstrap-server {bootstrap_servers} --create --topic {topic}{numbers}{settings}"


def config_command(bootstrap_servers: str, topic: str, config: Mapping[str, str]) -> str:
    """The command that changes settings of a topic."""
    settings = ",".join(f"{key}={value}" for key, value in config.items())
    return (
        f"kafka-configs --bootstrap-server {bootstrap_servers} --alter --entity-type topics --entity-name {topic} "
        f"--add-config {settings}"
    )


def partitions_command(bootstrap_servers: str, topic: str, partitions: int) -> str:
    """The command that gives a topic more partitions."""
    return f"kafka-topics --bootstrap-server {bootstrap_servers} --alter --topic {topic} --partitions {partitions}"


def delete_command(bootstrap_servers: str, topic: str) -> str:
    """The command that deletes a topic."""
    return f"kafka-topics --bootstrap-server {bootstrap_servers} --delete --topic {topic}"
