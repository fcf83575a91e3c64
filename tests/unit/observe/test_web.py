"""What a process answers to those who watch it over HTTP."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from journal.cli.node.metrics import node_families, why_not_ready
from journal.errors import WebPortError
from journal.observe.exposition import Family, exposition
from journal.observe.web import ObservedWeb
from journal.v1.journal_pb2 import Failover, NodeStatus

ANY_PORT = ("127.0.0.1", 0)


class Watched:
    """A process with a queue of an odd name."""

    why_not = ""

    def families(self) -> Iterator[Family]:
        yield Family("messages_total", "counter", 'How many, in "words".', [({"queue": 'odd\n"b"\\'}, 3)])


def get(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def test_a_process_shows_its_metrics_and_whether_it_is_ready() -> None:
    watched = Watched()
    web = ObservedWeb(ANY_PORT, metrics=watched.families, ready=lambda: watched.why_not)
    host, port = web.start()
    url = f"http://{host}:{port}"
    status, content_type, text = get(f"{url}/metrics?name[]=all")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text.splitlines() == [
        '# HELP kafka_journal_messages_total How many, in "words".',
        "# TYPE kafka_journal_messages_total counter",
        r'kafka_journal_messages_total{queue="odd\n\"b\"\\"} 3.0',
    ]
    assert (get(f"{url}/live")[0], get(f"{url}/ready")[0]) == (200, 200)
    watched.why_not = "the copy is behind"
    status, _, text = get(f"{url}/ready")
    assert (status, json.loads(text)) == (503, {"ready": False, "reason": "the copy is behind"})
    assert get(f"{url}/live")[0] == 200
    assert get(f"{url}/elsewhere")[0] == 404
    web.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, port), timeout=10)


def test_an_address_that_another_process_has_is_named() -> None:
    first = ObservedWeb(ANY_PORT, metrics=list, ready=str)
    host, port = first.start()
    with pytest.raises(WebPortError, match=rf"{host}:{port}: Address already in use.*--web"):
        ObservedWeb((host, port), metrics=list, ready=str).start()
    first.close()


def test_a_node_is_ready_while_it_is_active_or_fit() -> None:
    assert why_not_ready(NodeStatus(role="active")) == why_not_ready(NodeStatus(role="standby", fit=True)) == ""
    assert why_not_ready(NodeStatus(role="standby", why_not="its copy is behind")).endswith("its copy is behind")
    assert why_not_ready(NodeStatus(role="starting", reason="connecting")) == "the node is starting: connecting"


def test_a_node_tells_its_role_and_the_times_of_its_last_failover() -> None:
    status = NodeStatus(name="one", role="active", epoch=7, last_failover=Failover(gate_ms=1500), recoveries=2)
    lines = exposition(node_families(status, None)).splitlines()
    assert {
        'kafka_journal_node_role{role="active"} 1.0',
        'kafka_journal_node_role{role="standby"} 0.0',
        "kafka_journal_node_epoch 7.0",
        'kafka_journal_node_recoveries_total{node="one"} 2.0',
        'kafka_journal_node_failover_seconds{step="gate"} 1.5',
    } <= {*lines}
