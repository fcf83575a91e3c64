"""A whole deployment on this machine, every process of which can be killed, stopped, paused or cut off singly.

    with Cluster(directory, seed=1) as cluster:          # three brokers, two nodes, two workers, a workload
        cluster.wait_for_acknowledgements(1000)
        cluster.active().kill()
        cluster.wait_for_acknowledgements(1000)          # the new active node's

Processes have names (`broker-1`, `node-2`, `worker-1`); `places` gives some of them an address and a command prefix of
their own. Everything is under `directory`; nothing outlives the `with`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from journal.config import Settings
from journal.embedded.config import own_properties
from tests.chaos.brokers import BROKERS, HERE, START_TIMEOUT_S, BrokerProcess, Brokers, chaos_kafka
from tests.chaos.processes import WAIT_TIMEOUT_S, NodeProcess, Place, Process, WorkerProcess, wait_for
from tests.support.processes.child import program
from tests.support.processes.command import command_env, run_command

LOOK_TIMEOUT_S = 5.0
SETTINGS = {
    "KAFKA_JOURNAL_REPLICATION": "3",
    "KAFKA_JOURNAL_SESSION_TIMEOUT_MS": "4000",
    "KAFKA_JOURNAL_CHECKPOINT_INTERVAL_MS": "50",
    "KAFKA_JOURNAL_LIMITS__TRANSACTION_BUFFER_OPERATIONS_MAX": "25",
}
"""Dead workers are noticed soon; transactions of 40 operations are staged. Nodes have the settings that users have:
with shorter ones, a busy machine alone would be reason enough for a failover."""
NODES, WORKERS = 2, 2
STANDBYS = ("worker-2",)
"""Workers that keep warm copies of the others' shards, as those of `node --with-worker` do."""


class Cluster:
    """Brokers, nodes and workers of one journal, and the workload that the active node runs."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        shards: int = 4,
        rate: int = 2000,
        env: Mapping[str, str] | None = None,
        places: Mapping[str, Place] | None = None,
        properties: Mapping[str, str] | None = None,
        kafka: Brokers | None = None,
    ) -> None:
        """`rate` bounds the workload, operations a second. `env` is of nodes and workers, on top of `SETTINGS`.

        `kafka` is a running cluster of three brokers, which is left as it is in the end; without one it makes its own,
        with `properties`.
        """
        self.directory = directory
        self._idle_note = directory / "idle"
        self.seed = seed
        self.shards = shards
        self._places = dict(places or {})
        self._own_kafka = None if kafka else chaos_kafka(directory / "kafka", self._places, properties)
        self.kafka: Brokers = kafka or self._own_kafka
        self._env = {**SETTINGS, **(env or {})}
        self._rate = rate
        self.journal = ""
        self.brokers: Sequence[BrokerProcess] = []
        self.nodes: Sequence[NodeProcess] = []
        self.workers: Sequence[WorkerProcess] = []

    # ---- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything, until a node is active."""
        self.kafka.start()
        self._init()
        self.brokers = [
            BrokerProcess(self.kafka, broker, self._place(f"broker-{broker}")) for broker in range(1, BROKERS + 1)
        ]
        self.workers = [self._worker(f"worker-{number}") for number in range(1, WORKERS + 1)]
        self.nodes = [self._node(f"node-{number}") for number in range(1, NODES + 1)]
        for process in (*self.workers, *self.nodes):
            process.start(ready=False)
        self.wait_for_active()

    def _init(self) -> None:
        self.journal = f"chaos-{uuid.uuid4().hex[:12]}"
        env = command_env(self.bootstrap, self.journal, self.directory / "command", self._env)
        done = run_command("init", "--shards", self.shards, env=env, timeout_s=START_TIMEOUT_S)
        assert done.returncode == 0, done.stderr

    def close(self) -> None:
        """Ends what runs, at once."""
        for process in (*self.nodes, *self.workers):
            process.kill()
        if self._own_kafka is not None:
            for broker in self.brokers:
                broker.kill()
            self._own_kafka.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- looking ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap_servers

    @property
    def settings(self) -> dict[str, str]:
        """What nodes and workers have that differs from the defaults, by name (bounds of `limits` apart)."""
        names = {name: name.removeprefix("KAFKA_JOURNAL_").lower() for name in self._env if "__" not in name}
        return {known: self._env[name] for name, known in names.items()}

    @property
    def processes(self) -> list[Process]:
        return [*self.brokers, *self.nodes, *self.workers]

    def find(self, name: str) -> Process:
        return next(process for process in self.processes if process.name == name)

    def active(self) -> NodeProcess | None:
        """The node that says that it is active; of two, the one of the newer epoch."""
        active = [node for node in self.nodes if node.role == "active"]
        return max(active, key=lambda node: node.epoch, default=None)

    @property
    def acknowledged(self) -> int:
        """Operations, of all nodes in all their lives."""
        return sum(node.acknowledged for node in self.nodes)

    def members(self, *, without: BrokerProcess | None = None) -> set[int]:
        """The brokers that a broker counts as the cluster's; `without` is not asked for the way to it."""
        asked = [broker.address for broker in self.brokers if broker is not without]
        try:
            return set(AdminClient({"bootstrap.servers": ",".join(asked)}).list_topics(timeout=LOOK_TIMEOUT_S).brokers)
        except KafkaException:
            return set()

    def session_s(self, kind: str) -> float:
        """How long a broker, node or worker may be silent: then the others go on without it."""
        if kind == "broker":
            return int(own_properties(BROKERS)["broker.session.timeout.ms"]) / 1000
        name = {"node": "node_session_timeout_ms", "worker": "session_timeout_ms"}[kind]
        return int(self.settings.get(name, Settings.model_fields[name].default)) / 1000

    def take_ended_by_themselves(self) -> list[str]:
        """How processes ended that nobody had ended, since this was asked last."""
        ended: list[str] = []
        for process in self.processes:
            process.note_end()
            ended += process.ended_by_itself
            process.ended_by_itself.clear()
        return ended

    # ---- waiting and mending -----------------------------------------------------------------------------------------

    def wait_for_active(self) -> NodeProcess:
        wait_for(lambda: self.active() is not None, f"an active node ({self._where()})")
        active = self.active()
        assert active is not None
        return active

    def wait_for_standby(self) -> NodeProcess:
        """A node that says that it is a standby, while another is active."""
        found: list[NodeProcess] = []

        def standby() -> bool:
            active = self.active()
            found[:] = [node for node in self.nodes if active is not None and node.role == "standby"]
            return bool(found)

        wait_for(standby, f"a standby ({self._where()})")
        return found[0]

    def wait_for_acknowledgements(self, more: int, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """So many more than now."""
        wanted = self.acknowledged + more
        wait_for(lambda: self.acknowledged >= wanted, f"{more} acknowledgements ({self._where()})", timeout_s)

    def wait_for_members(self) -> None:
        """All brokers are members of the Kafka cluster."""
        wait_for(lambda: len(self.members()) == BROKERS, f"{BROKERS} brokers ({self._where()})")

    def wait_for_shares(self) -> None:
        """Every worker that runs reads some of the shards, and each is read by one."""

        def shared() -> bool:
            shares = [worker.shards for worker in self.workers if worker.running]
            return all(shares) and sorted(shard for share in shares for shard in share) == list(range(self.shards))

        wait_for(shared, f"shares of all shards ({self._where()})")

    def wait_until_left_out(self, process: Process) -> None:
        """The others go on without a process that says nothing: another node is active in a newer epoch, other workers
        read its shards, the other brokers count it no more."""
        wait_for(self._left_out(process), f"the others without {process.name} ({self._where()})")

    def _left_out(self, process: Process) -> Callable[[], bool]:
        if isinstance(process, NodeProcess):
            epoch, nodes = process.epoch, [node for node in self.nodes if node is not process]
            return lambda: any(node.epoch > epoch for node in nodes)
        if isinstance(process, WorkerProcess):
            shards, workers = process.shards, [worker for worker in self.workers if worker is not process]
            assert shards, f"{process.name} reads nothing: see wait_for_shares"
            return lambda: shards <= {shard for worker in workers if worker.running for shard in worker.shards}
        assert isinstance(process, BrokerProcess)
        others = {broker.broker for broker in self.brokers if broker is not process}
        return lambda: self.members(without=process) == others

    def rest(self) -> None:
        """The workload rests until `work`."""
        self._idle_note.touch()

    def work(self) -> None:
        self._idle_note.unlink(missing_ok=True)

    def mend(self) -> None:
        """Starts whatever does not run, and lets go on whatever is paused or rests."""
        self.work()
        for process in self.processes:
            if process.running:
                process.resume()
            else:
                process.start(ready=False)

    def _where(self) -> str:
        return f"everything is under {self.directory}"

    # ---- making ----------------------------------------------------------------------------------------------------

    def _place(self, name: str) -> Place:
        return self._places.get(name, HERE)

    def process_env(self, name: str) -> dict[str, str]:
        """The environment of a node or worker of that name; its local copies are under NAME/data."""
        own = {"KAFKA_JOURNAL_NODE": name, "CHAOS_IDLE_NOTE": str(self._idle_note)}
        data = self.directory / name / "data"
        return command_env(self.bootstrap, self.journal, data, {**self._env, **own})

    def _worker(self, name: str) -> WorkerProcess:
        command = program("mortal_worker", self.directory / name, name)
        if name in STANDBYS:
            command.append("--standby")
        return WorkerProcess(name, self._place(name), self.directory, command, self.process_env(name))

    def with_a_new_history(self, node: NodeProcess) -> NodeProcess:
        """The same node, with its local copies; what it did is forgotten."""
        return self._node(node.name)

    def _node(self, name: str) -> NodeProcess:
        command = program("chaos_node", self.seed, self._rate)
        history = self.directory / name / f"history-{uuid.uuid4().hex[:8]}"
        return NodeProcess(name, self._place(name), self.directory, command, self.process_env(name), history)
