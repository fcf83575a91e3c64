"""Records to a topic that is there, by Spark's Kafka sink.

The questions of Java's producers make a topic where brokers have auto.create.topics.enable, and no setting says not to.
So the topic is looked for before; and a producer, which Spark keeps for ten minutes and which asks again after five,
asks no more for a topic that it has not sent to for `_IDLE_MS`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from loaders.spark.read.source import JournalSource
from loaders.spark.session.failures import WRITING, journal_errors

_IDLE_MS = 5000
"""The least that the client takes."""


def send(records: DataFrame, source: JournalSource, topic: str) -> None:
    """Send `key` and `value`, acknowledged by all replicas. Raises TopicError for a topic that is not there,
    KafkaUnavailableError, KafkaRefusedError."""
    options = source.options()
    with journal_errors(source, WRITING):
        _require(records, {name.removeprefix("kafka."): value for name, value in options.items()}, topic)
        told = options | {"kafka.acks": "all", "kafka.metadata.max.idle.ms": str(_IDLE_MS)}
        records.write.format("kafka").options(**told).option("topic", topic).save()


def _require(records: DataFrame, properties: dict[str, str], topic: str) -> None:
    """An administrator's questions make no topics."""
    admin = records.sparkSession._jvm.org.apache.kafka.clients.admin.Admin.create(properties)  # type: ignore[union-attr]
    try:
        admin.describeTopics([topic]).allTopicNames().get()
    finally:
        admin.close()
