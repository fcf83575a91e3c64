"""A journal is read through Spark Connect, by a session and by a Declarative Pipeline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.processes.child import program
from tests.support.spark.cluster import connect_server, run_pipeline
from tests.support.spark.history import History, wal_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300, func_only=True)]

SPECIFICATION = """
name: orders
storage: {storage}
libraries:
  - glob:
      include: orders.py
"""
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from loaders import KafkaJournal

spark = SparkSession.active()
spark.dataSource.register(KafkaJournal)


@dp.table
def operations():
    return spark.readStream.format("kafka_journal").options(**{options}).load()


@dp.materialized_view
def operations_of_types():
    return spark.read.table("operations").groupBy("type").count()
"""


@pytest.fixture(scope="module")
def server(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a Spark Connect server, and where its tables are."""
    directory = tmp_path_factory.mktemp("connect") / "server"
    with connect_server(directory, python) as url:
        yield url, directory / "spark-warehouse"


def test_a_session_of_spark_connect_reads_operations_and_records(server: tuple[str, Path], history: History) -> None:
    source = history.source
    command = program("connect_job", server[0], source.bootstrap_servers, source.journal)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    operations = written_operations(history)
    for name in ("operations", "streamed operations", "operations of read_wal"):
        assert sorted(found[name]) == operations, name
    records = {id_: (kind, bytes.fromhex(data)) for id_, kind, data in found["records"]}
    assert records == history.loaded.records
    assert records.keys() <= {id_ for (id_,) in found["streamed changes"]}
    assert sorted(message for (message,) in found["messages"]) == sorted(history.waiting)
    assert "/nowhere is kept with the files of Spark's own JVM, which Spark Connect does not show" in found["refused"]


def test_a_declarative_pipeline_keeps_a_streaming_table_and_a_materialized_view(
    server: tuple[str, Path], history: History, tmp_path: Path
) -> None:
    specification, url, warehouse = tmp_path / "spark-pipeline.yml", *server
    specification.write_text(SPECIFICATION.format(storage=(tmp_path / "storage").as_uri()))
    (tmp_path / "orders.py").write_text(PIPELINE.replace("{options}", repr(history.source.reader_options())))
    told = run_pipeline(url, specification)
    # the command of Spark 4.2.0 then fails, because it does not know the counters that a Python worker sends
    assert "Run is COMPLETED" in told, told
    kept = pq.read_table(warehouse / "operations", columns=["shard", "offset", "index"]).to_pylist()
    operations = written_operations(history)
    assert sorted(list(row.values()) for row in kept) == operations
    view = pq.read_table(warehouse / "operations_of_types").to_pylist()
    assert sum(row["count"] for row in view) == len(operations)


def written_operations(history: History) -> list[list[int]]:
    """The places of all operations: shard, offset, index."""
    _, frames = wal_of(history.settings)
    return sorted([shard, offset, index] for shard, offset, each in frames for index, _ in enumerate(each.operations()))
