"""The embedded Apache Kafka itself: real brokers started, stopped, killed, refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from journal.cli.kafka import app
from journal.cli.main import app as kafka_journal
from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.distribution import KAFKA_VERSION, get_kafka
from journal.embedded.java import find_java
from journal.embedded.process import ProcessId, start_time, wait_until
from journal.errors import EmbeddedKafkaError
from journal.kafka.cluster import KafkaCluster
from journal.kafka.settings import ClientSettings
from tests.support.brokers import JVM_OPTIONS
from tests.support.processes.command import COMMAND

pytestmark = pytest.mark.kafka
TIMEOUT_S = 30.0
WITHOUT_ARCHIVES = """#!/bin/sh
case "$*" in *ArchiveClassesAtExit*) echo "Unrecognized VM option" >&2; exit 1 ;; esac
exec {} "$@"
"""


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path_factory.mktemp("own"), attached=True, jvm_options=JVM_OPTIONS) as running:
        yield running


@pytest.fixture
def own(other_cluster: EmbeddedKafka) -> EmbeddedKafka:
    """A running cluster of this file's own, for what the shared one would suffer from."""
    other_cluster.start()
    return other_cluster


def make_topic(bootstrap: str, replication: int = 1) -> str:
    name = f"embedded-{uuid.uuid4().hex}"
    with closing(KafkaCluster(ClientSettings(bootstrap, {}))) as cluster:
        cluster.create(name, 1, replication, {}, TIMEOUT_S)
    return name


def write(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.commit_transaction(TIMEOUT_S)


def read_first(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        return None if message is None else message.value()
    finally:
        consumer.close()


def test_the_shared_broker_takes_transactions(bootstrap: str) -> None:
    topic = make_topic(bootstrap)
    write(bootstrap, topic, b"one")
    assert read_first(bootstrap, topic) == b"one"


def test_a_broker_has_its_classes_from_an_archive(kafka: EmbeddedKafka) -> None:
    pid = kafka.broker_pid(1)
    assert f"/kafka-{KAFKA_VERSION}-classes-" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def test_a_java_that_leaves_no_archive_runs_kafka_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(WITHOUT_ARCHIVES.format(find_java()), encoding="utf-8")
    java.chmod(0o755)
    cache = tmp_path / "cache"
    shutil.copytree(get_kafka(java), cache / f"kafka-{KAFKA_VERSION}")
    monkeypatch.setenv("KAFKA_JOURNAL_CACHE", str(cache))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    with EmbeddedKafka(tmp_path / "kafka", attached=True, jvm_options=JVM_OPTIONS) as running:
        assert running.status().running
    assert capfd.readouterr().err.count("could not be prepared, its starts take longer: broker 1 ended") == 1
    assert not list(cache.glob("*.part-*"))


def test_starting_what_runs_changes_nothing(kafka: EmbeddedKafka) -> None:
    before = kafka.status()
    assert kafka.start() == kafka.bootstrap_servers
    assert kafka.status() == before
    assert before.running


def test_leaving_a_block_ends_no_broker_that_ran_before(kafka: EmbeddedKafka) -> None:
    before = kafka.status()
    with EmbeddedKafka(kafka.directory, attached=True) as second:
        assert second.bootstrap_servers == kafka.bootstrap_servers
    assert kafka.status() == before
    assert before.running


def test_another_process_finds_the_running_brokers_by_their_directory(kafka: EmbeddedKafka) -> None:
    answer = CliRunner().invoke(app, ["start", "--dir", str(kafka.directory), "--json"])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout) == {
        "bootstrap_servers": kafka.bootstrap_servers,
        "directory": str(kafka.directory),
        "already_running": True,
    }


def test_a_topic_is_made_changed_and_deleted_by_a_command(kafka: EmbeddedKafka) -> None:
    name = f"topic-{uuid.uuid4().hex}"

    def done(*options: str) -> str:
        answer = CliRunner().invoke(app, ["topic", name, "--dir", str(kafka.directory), "--json", *options])
        assert answer.exit_code == 0, answer.output
        return str(json.loads(answer.stdout)["done"])

    with closing(KafkaCluster(ClientSettings(kafka.bootstrap_servers))) as cluster:
        assert done("--partitions", "2", "--config", "retention.ms=-1") == "made"
        state = cluster.describe([name], TIMEOUT_S)[name]
        assert (state.partitions, state.config["retention.ms"]) == (2, "-1")
        assert done("--partitions", "3", "--config", "retention.ms=60000", "--config", "segment.ms=90000") == "changed"
        state = cluster.describe([name], TIMEOUT_S)[name]
        assert (state.partitions, state.config["retention.ms"], state.config["segment.ms"]) == (3, "60000", "90000")
        assert done("--delete") == "deleted" == done("--delete")
        assert cluster.describe([name], TIMEOUT_S) == {}


def test_other_ports_or_another_number_of_brokers_are_refused_for_a_running_cluster(kafka: EmbeddedKafka) -> None:
    with pytest.raises(EmbeddedKafkaError, match="stop it before you change its addresses"):
        EmbeddedKafka(kafka.directory, ports=[31999]).start()
    with pytest.raises(EmbeddedKafkaError, match="holds 1 broker"):
        EmbeddedKafka(kafka.directory, brokers=3).start()


def test_records_ports_and_identity_survive_a_stop_and_a_crash(own: EmbeddedKafka) -> None:
    bootstrap, identity = own.bootstrap_servers, own.status().cluster_id
    topic = make_topic(bootstrap)
    write(bootstrap, topic, b"kept")
    assert own.stop()
    assert not own.stop()
    assert [broker.state for broker in own.status().brokers] == ["stopped"]
    assert own.start() == bootstrap
    own.kill(1)
    own.start_broker(1)
    assert (own.bootstrap_servers, own.status().cluster_id) == (bootstrap, identity)
    assert read_first(bootstrap, topic) == b"kept"


def test_a_paused_broker_is_unresponsive_until_it_is_resumed(own: EmbeddedKafka) -> None:
    own.pause(1)
    assert [broker.state for broker in own.status().brokers] == ["unresponsive"]
    own.resume(1)
    assert own.start() == own.bootstrap_servers
    assert own.status().running


def test_three_brokers_go_on_when_one_is_killed_and_take_it_back(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kafka", brokers=3, attached=True, jvm_options=JVM_OPTIONS) as three:
        topic = make_topic(three.bootstrap_servers, replication=3)
        three.kill(3)
        cluster = KafkaCluster(ClientSettings(three.bootstrap_servers, {}))
        assert cluster.broker_config("node.id", 30.0).keys() == {1, 2}, "the others count a dead one for a while"
        write(three.bootstrap_servers, topic, b"without the third")
        assert [broker.state for broker in three.status().brokers] == ["running", "running", "stopped"]
        three.start_broker(3)
        assert three.status().running
        assert read_first(three.bootstrap_servers, topic) == b"without the third"
        three.kill(3)
        with EmbeddedKafka(three.directory, jvm_options=JVM_OPTIONS) as second:
            assert second.status().running
        assert [broker.state for broker in three.status().brokers] == ["running", "running", "stopped"]


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(EmbeddedKafkaError, match=f"port {port} of broker 1 is taken"):
            EmbeddedKafka(tmp_path / "kafka", ports=[port], attached=True).start()


def test_an_interrupted_format_is_done_again_and_a_half_formatted_directory_is_refused(own: EmbeddedKafka) -> None:
    own.stop()
    broker = own.directory / "broker-1"
    (broker / "data").rename(broker / "data.formatting")
    own.start()
    assert not (broker / "data.formatting").exists()
    own.stop()
    meta = broker / "data" / "meta.properties"
    meta.rename(broker / "meta.properties")
    with pytest.raises(EmbeddedKafkaError, match="half formatted"):
        own.start()
    (broker / "meta.properties").rename(meta)


def test_a_broker_that_dies_at_its_start_leaves_its_last_words(tmp_path: Path) -> None:
    kafka = EmbeddedKafka(tmp_path / "kafka", properties={"num.io.threads": "none"}, attached=True)
    with pytest.raises(EmbeddedKafkaError, match=r"Invalid value none for configuration num\.io\.threads"):
        kafka.start()
    assert [broker.state for broker in kafka.status().brokers] == ["stopped"]


def test_an_old_java_is_refused_by_the_command_with_exit_code_1(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    command = ["kafka", "start", "--dir", str(tmp_path / "kafka")]
    answer = CliRunner().invoke(kafka_journal, command, env={"JAVA_HOME": str(tmp_path)})
    assert answer.exit_code == 1
    assert "Java 11, too old" in answer.stderr


STARTER = """
import sys, time
from journal.embedded.cluster import EmbeddedKafka
kafka = EmbeddedKafka(sys.argv[1], attached=True)
kafka.start()
print(kafka.status().brokers[0].pid, flush=True)
time.sleep(600)
"""


def test_attached_brokers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        broker = ProcessId(pid, start_time(pid) or "")
        assert broker.is_alive()
        os.kill(parent.pid, signal.SIGKILL)
    assert wait_until(lambda: not broker.is_alive(), TIMEOUT_S)


def test_the_commands_start_show_and_stop_a_broker_that_outlives_them(tmp_path: Path) -> None:
    where = ["--dir", str(tmp_path / "kafka"), "--json"]
    runner = CliRunner()
    assert runner.invoke(app, ["status", *where]).exit_code == 1
    try:
        command = [sys.executable, "-c", "from journal.cli.kafka import app; app()", "start", *where]
        started = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert not started["already_running"]
        shown = runner.invoke(app, ["status", *where])
        assert shown.exit_code == 0
        status = json.loads(shown.stdout)
        assert status["bootstrap_servers"] == started["bootstrap_servers"]
        table = runner.invoke(app, ["status", *where[:2]]).stdout
        assert f"bootstrap servers: {started['bootstrap_servers']}\n" in table
        assert status["brokers"][0]["log"] in table, "whole, where there is no terminal"
    finally:
        stopped = runner.invoke(app, ["stop", *where])
    assert json.loads(stopped.stdout)["stopped"]
    assert runner.invoke(app, ["status", *where]).exit_code == 1


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_interrupted_says_so(ending: signal.Signals, tmp_path: Path) -> None:
    java, asked = tmp_path / "bin" / "java", tmp_path / "asked"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho > '{asked}'\nexec sleep {TIMEOUT_S}\n")
    java.chmod(0o755)
    command = [str(COMMAND), "kafka", "start", "--dir", str(tmp_path / "kafka")]
    env = os.environ | {"JAVA_HOME": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=env, text=True) as start:
        assert wait_until(asked.exists, TIMEOUT_S)
        start.send_signal(ending)
        _, said = start.communicate(timeout=TIMEOUT_S)
    assert (start.returncode, said) == (130, "interrupted\n")


def test_a_bad_command_line_has_exit_code_2(tmp_path: Path) -> None:
    for wrong in (["--ports", "x"], ["-p", "novalue"], ["--brokers", "0"]):
        assert CliRunner().invoke(app, ["start", "--dir", str(tmp_path / "kafka"), *wrong]).exit_code == 2
