"""Pid files, ports and directories of the embedded Kafka: own, taken and broken ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.embedded.config import ClusterConfig
from journal.embedded.ports import PORT_RANGE, choose_free_ports, taken_ports
from journal.embedded.process import (
    ProcessId,
    end_processes,
    read_pid_file,
    start_time,
    wait_until,
    write_pid_file,
)
from journal.embedded.storage import broker_files, check_formatted, load_cluster, new_cluster_id, save_cluster
from journal.errors import EmbeddedKafkaError

CLUSTER = ClusterConfig("AAAAAAAAAAAAAAAAAAAAAA", (20001,), (20011,))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        yield child
        child.kill()


def test_a_pid_file_finds_its_live_process(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    written = write_pid_file(tmp_path / "pid", sleeper.pid)
    assert written is not None
    assert read_pid_file(tmp_path / "pid") == written


def test_a_process_with_the_same_pid_that_began_at_another_time_is_neither_found_nor_killed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "pid").write_text(f'{{"pid": {sleeper.pid}, "started": "earlier"}}')
    assert read_pid_file(tmp_path / "pid") is None
    end_processes([ProcessId(sleeper.pid, "earlier")], timeout_s=0)
    assert start_time(sleeper.pid) is not None


ENDING = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show it")
def test_a_process_is_alive_until_its_last_thread_has_ended() -> None:
    command = [sys.executable, "-c", ENDING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ending:
        assert ending.stdout is not None
        assert ending.stdin is not None
        ending.stdout.read(1)
        stat = Path(f"/proc/{ending.pid}/stat")
        assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", 10)
        assert start_time(ending.pid) is not None
        ending.stdin.close()
        assert wait_until(lambda: start_time(ending.pid) is None, 10)


def test_a_dead_process_is_dead_also_before_it_is_reaped(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    process = write_pid_file(tmp_path / "pid", sleeper.pid)
    assert process is not None
    process.send(signal.SIGKILL)
    assert wait_until(lambda: not process.is_alive(), 10)
    assert read_pid_file(tmp_path / "pid") is None
    assert not process.send(signal.SIGTERM)


def test_a_paused_process_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    process = ProcessId(sleeper.pid, start_time(sleeper.pid) or "")
    process.send(signal.SIGSTOP)
    end_processes([process], timeout_s=10)
    assert sleeper.wait(10) == -signal.SIGTERM


BUSY = """
import threading
def spin():
    while True:
        pass
for _ in range(4):
    threading.Thread(target=spin).start()
print(flush=True)
"""


def test_a_process_is_stopped_from_its_last_thread_s_stop_until_it_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.read(1)
        process = ProcessId(busy.pid, start_time(busy.pid) or "")
        try:
            for _ in range(5):
                assert not process.is_stopped()
                process.send(signal.SIGSTOP)
                assert wait_until(process.is_stopped, 10)
                process.send(signal.SIGCONT)
                assert wait_until(lambda: not process.is_stopped(), 10)
        finally:
            busy.kill()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "started": "y"}', "17"])
def test_a_broken_pid_file_names_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert read_pid_file(tmp_path / "pid") is None


def test_a_missing_pid_file_names_no_process(tmp_path: Path) -> None:
    assert read_pid_file(tmp_path / "pid") is None


def test_this_process_has_a_start_time_that_stays() -> None:
    assert start_time(os.getpid()) == start_time(os.getpid()) is not None


def test_a_port_with_a_listener_is_taken() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert taken_ports([port]) == [port]


def test_free_ports_are_different_free_and_below_the_systems_own() -> None:
    chosen = choose_free_ports(4, ())
    assert len(set(chosen)) == 4
    assert taken_ports(chosen) == []
    assert all(port in PORT_RANGE for port in chosen)


def test_an_unused_directory_holds_no_cluster(tmp_path: Path) -> None:
    assert load_cluster(tmp_path) is None
    assert load_cluster(tmp_path / "not there") is None


def test_a_saved_cluster_is_loaded(tmp_path: Path) -> None:
    save_cluster(tmp_path, CLUSTER)
    assert load_cluster(tmp_path) == CLUSTER


def test_a_directory_of_somebody_elses_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.odt").touch()
    with pytest.raises(EmbeddedKafkaError, match=r"is not empty and has no cluster\.json"):
        load_cluster(tmp_path)


def test_cluster_ids_are_22_characters_and_no_options() -> None:
    made = {new_cluster_id() for _ in range(500)}
    assert len(made) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in made)


def test_an_empty_data_directory_is_not_formatted_yet(tmp_path: Path) -> None:
    files = broker_files(tmp_path, 1)
    assert not check_formatted(files, CLUSTER, 1)
    files.data.mkdir(parents=True)
    assert not check_formatted(files, CLUSTER, 1)


def test_data_without_meta_properties_is_half_formatted(tmp_path: Path) -> None:
    files = broker_files(tmp_path, 1)
    (files.data / "some-topic-0").mkdir(parents=True)
    with pytest.raises(EmbeddedKafkaError, match="half formatted"):
        check_formatted(files, CLUSTER, 1)


@pytest.mark.parametrize(
    "text",
    [
        "version=1\nnode.id=1\ncluster.id=BBBBBBBBBBBBBBBBBBBBBB\n",
        f"version=1\nnode.id=2\ncluster.id={CLUSTER.cluster_id}\n",
        "",
    ],
)
def test_data_of_another_cluster_or_broker_or_of_none_is_refused(tmp_path: Path, text: str) -> None:
    files = broker_files(tmp_path, 1)
    files.data.mkdir(parents=True)
    (files.data / "meta.properties").write_text(text)
    with pytest.raises(EmbeddedKafkaError, match=r"meta\.properties says"):
        check_formatted(files, CLUSTER, 1)


def test_data_of_this_cluster_and_broker_is_formatted(tmp_path: Path) -> None:
    files = broker_files(tmp_path, 1)
    files.data.mkdir(parents=True)
    (files.data / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={CLUSTER.cluster_id}\n")
    assert check_formatted(files, CLUSTER, 1)
