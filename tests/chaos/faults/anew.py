"""Topics that are deleted and made anew behind everybody's back: all of them are another journal, of the same name; the
table alone is this one's, and empty."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient

from tests.chaos.cluster import Cluster
from tests.chaos.faults.fault import Fault
from tests.chaos.processes import NodeProcess, wait_for
from tests.support.processes.command import run_command

REQUEST_TIMEOUT_S = 30.0


def make_topics_anew(cluster: Cluster) -> None:
    """All three of the journal, empty, with other ids.

    The workers and a node, with copies of the old ones, are down meanwhile, and a standby is stopped. All run again
    when this returns; what the active node did in the old ones is forgotten.
    """
    standby, active = _stop_all(cluster)
    _make_anew(cluster, ("wal", "table", "control"))
    cluster.nodes = [standby, cluster.with_a_new_history(active)]
    _go_on(cluster, standby)


class TableMadeAnew(Fault):
    """The table topic, empty, with another id: all that was in it is still in the WAL.

    As in `make_topics_anew` all but a standby that is stopped are down until it is healed, with copies of the old one.
    """

    def __init__(self, seed: int) -> None:
        super().__init__("table made anew", seed)
        self._standby: NodeProcess | None = None

    def inject(self, cluster: Cluster) -> None:
        self._standby, _ = _stop_all(cluster)
        _make_anew(cluster, ("table",))

    def heal(self, cluster: Cluster) -> None:
        assert self._standby is not None, f"{self} was not injected"
        _go_on(cluster, self._standby)


def _stop_all(cluster: Cluster) -> tuple[NodeProcess, NodeProcess]:
    """The standby, which is paused, and the other node, which is dead like all workers. Topics can be made."""
    cluster.wait_for_members()
    standby = cluster.wait_for_standby()
    other = next(node for node in cluster.nodes if node is not standby)
    standby.pause()
    for process in (other, *cluster.workers):
        process.kill()
    return standby, other


def _go_on(cluster: Cluster, standby: NodeProcess) -> None:
    for process in (*cluster.nodes, *cluster.workers):
        process.start(ready=False)
    standby.resume()


def _known(cluster: Cluster) -> set[str]:
    """Topics that some broker knows: each hears of a deletion in its own time."""
    asked = [AdminClient({"bootstrap.servers": broker.address}) for broker in cluster.brokers]
    return {topic for admin in asked for topic in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics}


def _make_anew(cluster: Cluster, parts: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topics = [f"{cluster.journal}.{part}" for part in parts]
    for deleted in admin.delete_topics(topics, request_timeout=REQUEST_TIMEOUT_S).values():
        deleted.result()
    wait_for(lambda: not _known(cluster) & set(topics), "topics that go")
    made = run_command("init", "--shards", cluster.shards, env=cluster.process_env("command"))
    assert made.returncode == 0, made.stderr
