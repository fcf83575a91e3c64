"""Spark makes no topic, also where brokers make those that clients ask for; and what it may not do is told in words."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from journal.errors import KafkaRefusedError, TopicError
from loaders.spark.failures import READING, WRITING, journal_errors, translated
from loaders.spark.source import JournalSource, batch
from loaders.spark.window_sinks import WHOLE, to_topic
from tests.support.sources import new_name, topics

pytestmark = pytest.mark.timeout(400)


def test_neither_a_source_nor_a_sink_of_sparks_makes_the_topic_that_it_asks_for(
    guarded: str, spark: SparkSession
) -> None:
    topic = new_name()
    source = JournalSource(guarded, topic)
    with pytest.raises(TopicError):
        to_topic(source, topic)(spark.sql("select 'q' as queue"), WHOLE)
    with pytest.raises(TopicError), journal_errors(source):
        batch(spark, source, topic, starting={0: 0}, ending={0: 1}, shards=[0]).count()
    assert topic not in topics(guarded)


def test_what_spark_may_not_do_names_who_the_resource_and_the_command_that_allows_it(spark: SparkSession) -> None:
    """With the Java client's own exceptions: a broker with rules would take a minute more."""
    source = JournalSource("b:1", "orders", {"security.protocol": "sasl_ssl", "sasl.username": "reader"})
    errors = spark._jvm.org.apache.kafka.common.errors  # type: ignore[union-attr]
    topics = errors.TopicAuthorizationException(spark._jvm.java.util.Set.of("orders.wal"))  # type: ignore[union-attr]
    group = errors.GroupAuthorizationException.forGroupId("spark-1")
    job = spark._jvm.org.apache.spark.SparkException("Job aborted", topics)  # type: ignore[union-attr]
    add = "kafka-acls --bootstrap-server b:1 --add --allow-principal User:reader"
    for thrown, doing, said in (
        (job, READING, f"User:reader may not Read topic orders.wal: {add} --operation Read --topic orders.wal"),
        (topics, WRITING, f"User:reader may not Write topic orders.wal: {add} --operation Write --topic orders.wal"),
        (group, READING, f"User:reader may not Read group spark-1: {add} --operation Read --group spark-1"),
    ):
        ours = translated(Py4JJavaError("An error occurred", thrown), source, doing)
        assert isinstance(ours, KafkaRefusedError)
        assert str(ours) == said
