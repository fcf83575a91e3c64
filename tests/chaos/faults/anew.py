"""Topics that are deleted and made anew behind everybody's back: another journal, of the same name."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from tests.chaos.cluster import Cluster
from tests.chaos.processes import wait_for
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
    _make_anew(cluster)
    cluster.nodes = [standby, cluster.with_a_new_history(active)]
    for process in (*cluster.nodes, *cluster.workers):
        process.start(ready=False)
    standby.resume()


def _make_anew(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [f"{cluster.journal}.{part}" for part in ("wal", "table", "control")]
    for deleted in admin.delete_topics(topics, request_timeout=REQUEST_TIMEOUT_S).values():
        deleted.result()
    wait_for(lambda: not admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics.keys() & set(topics), "topics that go")
    made = run_command("init", "--shards", cluster.shards, env=cluster.process_env("command"))
    assert made.returncode == 0, made.stderr
