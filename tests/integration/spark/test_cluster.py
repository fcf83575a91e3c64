"""Jobs on a Spark whose executors are other processes than the driver, each in a directory of its own."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loaders.spark.stored.table_stores import TableFormat
from tests.support.processes.child import program
from tests.support.spark.cluster import spark_cluster
from tests.support.spark.history import History, wal_of
from tests.support.spark.jobs import jars_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900, func_only=True)]

JOB_TIMEOUT_S = 600.0


def test_an_archive_and_its_audit_run_on_a_standalone_cluster(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    uri, source = (tmp_path / "archive").as_uri(), history.source
    arguments = (source.bootstrap_servers, source.journal, uri, TableFormat.DELTA.value)
    with spark_cluster(tmp_path / "cluster") as cluster:
        job = "tests.support.children.cluster_job"
        ended = cluster.submit(job, *arguments, jars=jars_of(spark), timeout_s=JOB_TIMEOUT_S)
        assert ended.returncode == 0, ended.stderr
        told = json.loads(ended.stdout.splitlines()[-1])
    count = len(wal_of(history.settings)[0])
    assert (told["master"], told["records"], told["wal_records"]) == (cluster.master, count, count)
    assert (told["agrees"], told["complete"]) == (True, True), told["differences"]
    left = [path.name for path in (tmp_path / "cluster" / "driver").iterdir()]
    assert left == ["job.py"], "what was sent to the executors is left behind"


def test_what_a_cluster_runs_dies_with_whoever_started_it() -> None:
    command = ("sh", "-c", "echo up; sleep 600; echo over")
    process = subprocess.Popen(
        program("mortal_command", *command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.stdin.close()
    assert process.stdout.read() == "", "ends once all that write to it have"
    assert process.wait() == -signal.SIGKILL
