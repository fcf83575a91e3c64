"""Records for a topic that exists, by Spark's Kafka sink.

A Java producer's request for a missing topic creates it if brokers have auto.create.topics.enable, and no setting of
the producer prevents this. So the topic is looked up first. Spark keeps a producer for ten minutes. After five minutes
the producer would ask the brokers for its topics again, and create one that is gone; with `_IDLE_MS` it forgets a topic
to which it has sent nothing for that time.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from loaders.spark.read.source import JournalSource
from loaders.spark.session.failures import WRITING, journal_errors

_IDLE_MS = 5000
"""Milliseconds after which a producer forgets a topic to which it has sent nothing. Kafka's client accepts no smaller
value."""


def send(records: DataFrame, source: JournalSource, topic: str) -> None:
    """Send `key` and `value`, acknowledged by all replicas. Raises TopicError for a topic that does not exist,
    KafkaUnavailableError, KafkaRefusedError."""
    options = source.options()
    with journal_errors(source, WRITING):
        _require(records, {name.removeprefix("kafka."): value for name, value in options.items()}, topic)
        told = options | {"kafka.acks": "all", "kafka.metadata.max.idle.ms": str(_IDLE_MS)}
        records.write.format("kafka").options(**told).option("topic", topic).save()


def _require(records: DataFrame, properties: dict[str, str], topic: str) -> None:
    """Raises TopicError if the topic does not exist. It is looked up by an administrator's request, which creates no
    topic."""
    admin = records.sparkSession._jvm.org.apache.kafka.clients.admin.Admin.create(properties)  # type: ignore[union-attr]
    try:
        admin.describeTopics([topic]).allTopicNames().get()
    finally:
        admin.close()
