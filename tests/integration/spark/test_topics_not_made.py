"""Spark makes no topic, also where brokers make those that clients ask for."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from journal.errors import NoJournalError, TopicError
from loaders.spark.analytics.window_sinks import WHOLE, to_topic
from loaders.spark.read.loading import load
from loaders.spark.read.source import JournalSource
from loaders.spark.session.failures import journal_errors
from tests.support.sources import new_name, topics

pytestmark = pytest.mark.timeout(400)


def test_no_source_or_sink_of_sparks_makes_the_topic_that_it_asks_for(guarded: str, spark: SparkSession) -> None:
    name = new_name()
    source = JournalSource(guarded, name)
    with pytest.raises(TopicError):
        to_topic(source, name)(spark.sql("select 'q' as queue"), WHOLE)
    for table in ("wal", "changes"):
        with pytest.raises(NoJournalError), journal_errors():
            load(spark, source, table, starting={0: 0}, ending={0: 1}, shards=[0]).count()
    assert not [each for each in topics(guarded) if each.startswith(name)]
