"""A session has what was asked for, or the error names what it lacks and what mends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from journal.cli.main import app
from journal.embedded.distribution import CACHE_VARIABLE
from journal.embedded.downloads import one_at_a_time
from journal.errors import ConfigError
from journal.process.stop_requests import ONE_REQUEST_S
from loaders.spark.session.packages import SparkPart
from loaders.spark.session.session import check_parts, make_session
from tests.integration.spark.conftest import JAVA_OPTIONS, SETTINGS
from tests.support.processes.command import command_env, run_command
from tests.support.processes.terminal import Terminal
from tests.support.spark.history import History

pytestmark = pytest.mark.timeout(900, func_only=True)

START_TIMEOUT_S = 600.0
NO_REPOSITORY = """<ivysettings>
  <settings defaultResolver="empty"/>
  <resolvers><filesystem name="empty"><artifact pattern="{directory}/[artifact]"/></filesystem></resolvers>
</ivysettings>
"""
CHECKS = """
import logging, os, signal, sys, time
from journal.errors import MissingExtraError
from loaders.spark.session.packages import SparkPart
from loaders.spark.session.session import check_parts, make_session
logging.basicConfig(level=logging.INFO)
settings = dict(item.split("=", 1) for item in sys.argv[1:])
try:
    parts = {SparkPart(name) for name in settings.pop("parts").split(",") if name}
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    spark = make_session("t", parts=parts, master="local[1]", settings=settings)
    os.killpg(0, signal.SIGTERM)  # as systemd and `timeout` do
    while not told:
        time.sleep(0.01)
    (ignored,) = [
        line.split()[1]
        for line in open(f"/proc/{spark.sparkContext._gateway.proc.pid}/status")
        if line.startswith("SigIgn:")
    ]
    assert int(ignored, 16) >> (signal.SIGTERM - 1) & 1, "the JVM takes SIGTERM for itself"
    for part in SparkPart:
        try:
            check_parts(spark, {part})
        except MissingExtraError as error:
            print(error)
except MissingExtraError as error:
    print(error)
"""


def test_a_session_that_runs_is_taken_as_it_is(spark: SparkSession) -> None:
    assert make_session("other", parts=frozenset(SparkPart)) is spark
    assert make_session("other", master="local[2]", settings=SETTINGS) is spark
    assert spark.conf.get("spark.app.name") == "kafka-journal tests"


def test_what_every_expression_asks_the_jvm_for_is_looked_up_once(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    name = "org.apache.spark.sql.functions"
    assert getattr(jvm, name) is getattr(jvm, name)
    assert getattr(jvm, name).col is getattr(jvm, name).col
    assert jvm.org.apache.hadoop.fs is jvm.org.apache.hadoop.fs
    assert jvm.org.apache.hadoop.fs.Path("/a").getName() == "a"


@pytest.mark.parametrize("asked", [{"master": "local[1]"}, {"settings": {"spark.sql.shuffle.partitions": "3"}}])
def test_what_a_running_session_was_not_started_with_is_refused(spark: SparkSession, asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="stop it first"):
        make_session("other", parts=(), **asked)


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: a JVM's packages are fixed when it starts."""
    ended = subprocess.run(
        [sys.executable, "-c", CHECKS, *arguments],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        cwd=directory,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended


def test_each_part_that_a_running_spark_lacks_is_named_and_its_jvm_leaves_signals_to_python(
    tmp_path: Path,
) -> None:
    told = run(tmp_path, "parts=", *(f"{key}={value}" for key, value in SETTINGS.items())).stdout.splitlines()
    assert [line.split("without ")[1].split(": ")[0] for line in told] == ["delta"]
    assert "--packages io.delta:delta-spark_4.2_2.13:" in told[0]
    assert "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in told[0]
    assert not list(tmp_path.iterdir()), "something was left behind"


def test_packages_that_no_repository_has_are_named_by_a_process_that_waited_for_another_one(tmp_path: Path) -> None:
    """Ivy's cache is not for two: one can find there what the other is still writing."""
    ivy = tmp_path / "ivysettings.xml"
    ivy.write_text(NO_REPOSITORY.format(directory=tmp_path))
    settings = ["parts=delta", f"spark.jars.ivySettings={ivy}", f"spark.jars.ivy={tmp_path / 'ivy'}"]
    env = os.environ | {CACHE_VARIABLE: str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", CHECKS, *settings]
    with one_at_a_time(tmp_path / "spark-packages.lock", "testing", pytest.fail):
        started = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env=env,
            start_new_session=True,
        )
        assert started.stderr is not None
        assert b"waiting for another process that is starting Spark" in started.stderr.readline()
        assert not (tmp_path / "ivy").exists()
    told, said = (each.decode() for each in started.communicate(timeout=START_TIMEOUT_S))
    assert "io.delta:delta-spark_4.2_2.13:" in told
    assert "spark.jars.ivySettings" in told
    assert "an archive of Parquet files, which needs no Delta Lake" in told
    assert "unresolved dependency" in said
    assert (tmp_path / "ivy").exists()


def test_a_session_without_java_says_that_java_is_needed(tmp_path: Path) -> None:
    env = os.environ | {"JAVA_HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = run_command("spark", "check", env=env, timeout_s=START_TIMEOUT_S)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "It needs Java 17 or newer" in ended.stderr


def test_the_session_with_delta_lake_has_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    check_parts(spark, frozenset(SparkPart))
    spark.range(2).coalesce(1).write.format("delta").save(str(tmp_path / "table"))
    read = spark.read.format("delta").load(str(tmp_path / "table"))
    assert sorted(row["id"] for row in read.collect()) == [0, 1]


@pytest.mark.kafka
def test_what_spark_refuses_is_one_line(spark: SparkSession, history: History) -> None:
    places = ("-b", history.settings.bootstrap_servers, "-j", history.settings.journal)
    for job in ("archive", "tables"):
        ended = CliRunner().invoke(app, ["spark", job, *places, "--to", "nowhere://host/path", "--once"])
        assert (ended.exit_code, isinstance(ended.exception, SystemExit)) == (1, True), ended.output
        assert ended.stderr == 'error: Spark: UnsupportedFileSystemException: No FileSystem for scheme "nowhere"\n'


@pytest.mark.kafka
def test_the_command_shows_the_first_rows_and_nothing_else(history: History, tmp_path: Path) -> None:
    settings = history.settings
    tmp_path.joinpath("spark-defaults.conf").write_text(f"{JAVA_OPTIONS} {SETTINGS[JAVA_OPTIONS]}\n")
    given = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(tmp_path)}
    env = command_env(settings.bootstrap_servers, settings.journal, settings.directory, given)
    command = ("spark", "read", "table", "--store", "--limit", 4, "--master", "local[1]", "--json")
    ended = run_command(*command, env=env, timeout_s=START_TIMEOUT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert len(found) == 4
    assert {row["id"] for row in found} <= set(history.loaded.records)


@pytest.mark.kafka
def test_ctrl_c_is_answered_at_once_while_spark_is_at_work(history: History, tmp_path: Path) -> None:
    """Spark answers nothing: it is stopped in the middle of what it does. A second Ctrl-C ends a command that still
    waits for something."""
    settings = history.settings
    tmp_path.joinpath("spark-defaults.conf").write_text(f"{JAVA_OPTIONS} {SETTINGS[JAVA_OPTIONS]}\n")
    given = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(tmp_path)}
    env = command_env(settings.bootstrap_servers, settings.journal, settings.directory, given)
    tables = ("spark", "tables", "--to", str(tmp_path / "tables"), "--format", "parquet", "--master", "local[1]")
    look = ("spark", "read", "wal", "--limit", "1", "--master", "local[1]")
    with (
        Terminal(*tables, env=env, log=tmp_path / "tables.log") as job,
        Terminal(*look, env=env, log=tmp_path / "look.log") as looking,
    ):
        at_work = [stopped_at_work(each) for each in (job, looking)]
        try:
            for each, word in ((job, "ending after this batch"), (looking, "stopping; again")):
                each.press_ctrl_c()
                each.wait_for_log(word)
            time.sleep(ONE_REQUEST_S)
            for each, codes in ((job, {-signal.SIGINT}), (looking, {-signal.SIGINT, 130})):
                assert each.ctrl_c() in codes, each.log()
                assert each.log().endswith("interrupted\n")
        finally:
            for java in at_work:
                java.kill()


def stopped_at_work(command: Terminal) -> psutil.Process:
    """Its JVM, once that has a Python process read the journal."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        for child in command.children():
            with suppress(psutil.NoSuchProcess):
                if child.name() == "java" and any("python" in each.name() for each in child.children()):
                    child.suspend()
                    return child
        time.sleep(0.05)
    raise AssertionError(command.log())
