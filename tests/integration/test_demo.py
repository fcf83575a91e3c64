"""The demo as a user runs it: what it reports, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from journal.cli.flights.plan import is_of_flights
from tests.support.brokers import JVM_OPTIONS
from tests.support.processes.command import COMMAND, run_command

pytestmark = pytest.mark.kafka

TIMEOUT_S = 400.0
ENV = {"KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "2000", "JAVA_TOOL_OPTIONS": " ".join(JVM_OPTIONS)}
"""What takes longest in a short demo: the dead worker's session, and Spark."""


def test_nothing_differs_after_a_failover_and_what_was_in_doubt_is_settled(bootstrap: str, tmp_path: Path) -> None:
    env = os.environ | ENV | {"TMPDIR": str(tmp_path)}
    demo = ["demo", "-b", bootstrap, "-j", "demo-failover"]
    page = tmp_path / "report.html"
    ended = run_command(*demo, "--rows", 3000, "--report", str(page), "--json", env=env, timeout_s=TIMEOUT_S)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["ok"], result["problems"], result["flights"]) == (True, [], 3000)
    first, second, failover = result["node_1"], result["node_2"], result["failover"]
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert failover["resumed_after_step"] >= failover["acknowledged_step"] > 0
    assert failover["compared"]["different"] == 0
    assert 0 < second["operations"] <= result["operations"] // 2 <= first["operations"] < result["operations"]
    assert f"node 2 is done: {second['operations']:,} operations acknowledged" in ended.stderr
    assert second["messages_loaded"] == failover["compared"]["loaded_messages"] > 0
    assert second["planes_reattached"] > 0
    assert result["in_doubt"]["loaded_after_failover"] == 1
    assert (result["in_doubt"]["committed"], result["in_doubt"]["rolled_back"]) == (1, 1)
    assert result["compared"]["loaded_messages"] == result["compared"]["expected_messages"] > 0
    assert result["compared"]["held"] > 0
    assert result["compared"]["different"] == 0
    check_topics(result)
    assert result["verify"]["agrees"]
    assert {"node 1", "node 2", "worker 1", "worker 2", "verify", "demo"} <= result["memory_mib"].keys()
    check_analytics(result, page)
    assert not list(tmp_path.glob("kafka-journal*"))

    again = run_command(*demo, "--rows", 100, env=env, timeout_s=TIMEOUT_S)
    assert again.returncode == 1
    assert "was used before" in again.stderr


def check_topics(result: dict[str, Any]) -> None:
    """Each landed flight went out once, each correction came in once."""
    for name, least in (("routed", 2000), ("corrections", 40)):
        topic = result[name]
        assert topic["expected"] == topic["found"] > least
        assert (topic["twice"], topic["different"], topic["differences"]) == (0, 0, [])
    assert 0 < result["routed"]["records"] < result["routed"]["found"], "an hour's landings are a record"


def check_analytics(result: dict[str, Any], page: Path) -> None:
    """What Spark computes from the WAL is what the queues hold."""
    analytics = result["analytics"]
    flights = [queue for queue in analytics["queues"] if is_of_flights(queue["queue"])]
    assert sum(queue["came_in"] for queue in flights) == result["flights"]
    assert sum(queue["depth"] for queue in flights) == result["compared"]["loaded_messages"]
    assert [epoch["epoch"] for epoch in analytics["epochs"]] == [1, 2]
    assert analytics["total"]["p99_s"] >= analytics["total"]["p50_s"] > 0
    assert analytics["report"] == str(page)
    assert page.read_text(encoding="utf-8").count("<svg ") >= 4


def test_ctrl_c_leaves_no_processes_and_no_files(tmp_path: Path) -> None:
    env = os.environ | ENV | {"TMPDIR": str(tmp_path)}
    command = [str(COMMAND), "demo", "--rows", "3000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True) as demo:
        assert demo.stderr is not None
        said = []
        for line in demo.stderr:
            said.append(line)
            if "waits at the gate" in line:
                break
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        said += demo.stderr.readlines()
        assert demo.wait(TIMEOUT_S) == 130, "".join(said)
    assert len(children) >= 3, "a broker, a worker and a node"
    _, alive = psutil.wait_procs(children, timeout=TIMEOUT_S)
    assert not alive
    assert not list(tmp_path.glob("kafka-journal*"))
