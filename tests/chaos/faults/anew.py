"""Topics that are deleted and made anew behind everybody's back: all of them are another journal, of the same name; the
table alone is this one's, and empty."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient

from tests.chaos.cluster import Cluster
from tests.chaos.processes import Process, wait_for
from tests.support.processes import run_command

REQUEST_TIMEOUT_S = 30.0


def make_topics_anew(cluster: Cluster) -> None:
    """All three of the journal, empty, with other ids.

    The workers and a node, with copies of the old ones, are down meanwhile, and a standby is stopped. All run again
    when this returns; what the active node did in the old ones is forgotten.
    """
    active, standby = cluster.wait_for_active(), cluster.wait_for_standby()
    standby.pause()
    for process in (active, *cluster.workers):
        process.kill()
    _make_anew(cluster, ("wal", "table", "control"))
    cluster.nodes = [standby, cluster.with_a_new_history(active)]
    _go_on(cluster, standby)


def make_table_anew(cluster: Cluster) -> None:
    """The table topic, empty, with another id: all that was in it is still in the WAL.

    As in `make_topics_anew` all but a standby that is stopped are down meanwhile, with copies of the old one.
    """
    active, standby = cluster.wait_for_active(), cluster.wait_for_standby()
    standby.pause()
    for process in (active, *cluster.workers):
        process.kill()
    _make_anew(cluster, ("table",))
    _go_on(cluster, standby)


def _go_on(cluster: Cluster, standby: Process) -> None:
    for process in (*cluster.nodes, *cluster.workers):
        process.start(ready=False)
    standby.resume()


def _make_anew(cluster: Cluster, parts: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [f"{cluster.journal}.{part}" for part in parts]
    for deleted in admin.delete_topics(topics, request_timeout=REQUEST_TIMEOUT_S).values():
        deleted.result()
    wait_for(lambda: not admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.keys() & set(topics), "topics that go")
    made = run_command("init", "--shards", cluster.shards, env=cluster.process_env("command"))
    assert made.returncode == 0, made.stderr
