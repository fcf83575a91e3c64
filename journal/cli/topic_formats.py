"""The output of `init --dry-run`: the topics that a journal needs, for people who make them with other tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum

from journal.config import Settings
from journal.topics.commands import kafkas_create_command
from journal.topics.required_topics import RequiredTopic


class TopicFormat(Enum):
    """A form in which topics are described to other tools."""

    KAFKA_TOPICS = "kafka-topics"
    JSON = "json"
    STRIMZI = "strimzi"


def described(settings: Settings, topics: Sequence[RequiredTopic], form: TopicFormat) -> Iterator[str]:
    """The topics in one of the forms, line by line."""
    return _FORMS[form](settings, topics)


def _as_commands(settings: Settings, topics: Sequence[RequiredTopic]) -> Iterator[str]:
    for topic in topics:
        yield kafkas_create_command(
            settings.bootstrap_servers,
            topic.name,
            partitions=topic.partitions,
            replication=topic.replication,
            config=topic.config,
        )


def _as_json(settings: Settings, topics: Sequence[RequiredTopic]) -> Iterator[str]:
    listed = [
        {
            "topic": topic.name,
            "partitions": topic.partitions,
            "replication": topic.replication,
            "config": topic.config,
            "required": {
                key: {"bound": setting.bound.value, "setting": setting.source, "why": setting.why}
                for key, setting in topic.settings.items()
            },
        }
        for topic in topics
    ]
    yield json.dumps({"journal": settings.journal, "topics": listed})


def _as_strimzi(_: Settings, topics: Sequence[RequiredTopic]) -> Iterator[str]:
    for topic in topics:
        yield from (
            "---",
            "apiVersion: kafka.strimzi.io/v1  # v1beta2 before Strimzi 0.49",
            "kind: KafkaTopic",
            "metadata:",
            f"  name: {topic.name.lower().replace('_', '-')}",
            "  labels:",
            "    strimzi.io/cluster: my-cluster  # the name of your Kafka resource",
            "spec:",
            f"  topicName: {topic.name}",
            f"  partitions: {topic.partitions}",
            f"  replicas: {topic.replication}",
            "  config:",
            *(
                f"    {key}: {setting.value}  # {setting.bound.value} this: {setting.why}"
                for key, setting in topic.settings.items()
            ),
        )


_FORMS: Mapping[TopicFormat, Callable[[Settings, Sequence[RequiredTopic]], Iterator[str]]] = {
    TopicFormat.KAFKA_TOPICS: _as_commands,
    TopicFormat.JSON: _as_json,
    TopicFormat.STRIMZI: _as_strimzi,
}
